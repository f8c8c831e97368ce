"""The propagation graph: numbered ops with rules, and the slots that hold shardings.

Ops are numbered in the order of the text, an op before its regions, and values likewise. A value's *slot* is the value
at which its sharding is kept: itself, or the data-flow edge that it is a target of. The slots after those of all values
are for what functions return.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from eggshard.planner.propagation.flows import Flow
from eggshard.planner.propagation.strategies import Step
from eggshard.planner.propagation.table import NONE, ShardingTable
from eggshard.program.tensor_sharding import TensorSharding

#: The slot of values that cannot have a sharding; no value has this number.
NO_SLOT = 0


@dataclass(eq=False, slots=True)
class Node:
    """An op. ``operands`` and ``results`` are values by number; ``ancestors`` the ops around it, innermost first.

    pure: nothing would be missed of it but its results. flow: what shardings flow through.
    """

    name: str
    number: int
    ancestors: tuple[int, ...]
    operands: tuple[int, ...]
    results: tuple[int, ...]
    pure: bool = False
    flow: Flow | None = None
    erased: bool = False


class Graph:
    """The ops, values and shardings of a program; what reads the program fills it.

    shardings: by slot. watchers: per slot the ops to look at again when its sharding has changed, in the order in which
    Shardy lists them. groups: per value of a sharding group the slots of the other values. returned: the flows between
    what functions return and the shardings stated for it, with the functions. fixed: slots that are never changed.
    """

    def __init__(self, table: ShardingTable) -> None:
        self.table = table
        self.nodes: list[Node] = []
        self.ranks: list[int] = [0]
        self.shardings: list[int] = [NONE]
        self.slots: list[int] = [NO_SLOT]
        self.watchers: dict[int, tuple[int, ...]] = {}
        self.groups: dict[int, tuple[int, ...]] = {}
        self.returned: list[tuple[Node, Flow]] = []
        self.fixed: set[int] = {NO_SLOT}
        self.use_counts: list[int] = [0]
        self._users: list[list[int]] = [[]]
        self._definers: list[Node | None] = [None]

    def add_value(self, rank: int, sharding: TensorSharding | None = None) -> int:
        """A new value's number; it is kept at its own slot."""
        number = len(self.ranks)
        self.ranks.append(rank)
        self.shardings.append(self.table.number(sharding))
        self.slots.append(number)
        self.use_counts.append(0)
        self._users.append([])
        self._definers.append(None)
        return number

    def add_slot(self, sharding: TensorSharding | None) -> int:
        """A new slot of no value; values cannot be added after it."""
        self.shardings.append(self.table.number(sharding))
        return len(self.shardings) - 1

    def add_node(self, name: str, ancestors: tuple[int, ...], operands: tuple[int, ...], results: tuple[int, ...],
                 pure: bool = False) -> Node:
        """A new op on values that are there."""
        node = Node(name, len(self.nodes), ancestors, operands, results, pure)
        self.nodes.append(node)
        for value in operands:
            self.use_counts[value] += 1
            self._users[value].append(node.number)
        for value in results:
            self._definers[value] = node
        return node

    def between(self, operands: tuple[int, ...], results: tuple[int, ...], steps: tuple[Step, ...],
                single_use: tuple[int, ...] = ()) -> Flow:
        """The flow between the slots of values. single_use: as of `Flow`, without scalars."""
        values = (*operands, *results)
        slots, ranked = tuple(self.slots[v] for v in values), tuple(v for v in single_use if self.ranks[v])
        return Flow(steps[0].rule, slots, len(operands), steps, values, ranked)

    # -- shardings ---------------------------------------------------------------------------------------------------

    @property
    def own_slots(self) -> Iterator[int]:
        """Every slot that holds a sharding, but for those of values whose edges hold another."""
        for slot in range(1, len(self.shardings)):
            if slot >= len(self.slots) or self.slots[slot] == slot:
                yield slot

    def sharding(self, slot: int) -> TensorSharding | None:
        """What is kept at a slot."""
        return self.table.shardings[self.shardings[slot]]

    def keep(self, slot: int, number: int) -> None:
        """Keep a sharding at a slot. Other results of the same op that had none are then fully open."""
        if slot in self.fixed:
            return
        self.shardings[slot] = number
        node = self._definers[slot] if slot < len(self.slots) else None
        sharding = self.table.shardings[number]
        if node is not None and len(node.results) > 1 and sharding is not None:
            for other in node.results:
                if self.shardings[other] == NONE:
                    fully_open = TensorSharding.fully_open(sharding.mesh, self.ranks[other])
                    self.shardings[other] = self.table.number(fully_open)

    # -- ops ---------------------------------------------------------------------------------------------------------

    def definer(self, value: int) -> Node | None:
        """The op that a value is a result of; None for arguments."""
        return self._definers[value]

    def using(self, value: int) -> set[int]:
        """The ops that use a value."""
        return {number for number in self._users[value] if not self.nodes[number].erased}

    def is_dead(self, node: Node) -> bool:
        """Whether nothing would be missed if an op were not there."""
        return node.pure and not any(self.use_counts[value] for value in node.results)

    def erase(self, node: Node) -> Iterator[Node]:
        """Take an op away, with its regions; yields the ops taken, innermost first."""
        inner = list(takewhile(lambda n: node.number in n.ancestors, islice(self.nodes, node.number + 1, None)))
        for taken in (*reversed(inner), node):
            taken.erased = True
            for value in taken.operands:
                self.use_counts[value] -= 1
            yield taken
