"""A module as propagation sees it: ops with rules, numbered, and the places where shardings are kept.

Propagation looks at an op many times, so everything is read from MLIR once, before it, and written back after it. Ops
are numbered in the order of the text, an op before its regions; values in that order, too. A value's *slot* is the
value at which its sharding is kept: itself, or the data-flow edge that it is a target of. Functions' results have slots
of their own, behind those of all values.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.edges import (
    EDGE,
    FUNCTION_EDGE,
    edge_of,
    holder_of,
    other_targets,
    owner_of,
    owner_of_source,
    sources,
    terminator,
)
from eggshard.shardy.module import BODIES, OWN_SHARDING, RULE, SHARDING, ShardyModule, rank
from eggshard.shardy.propagation.table import NONE, ShardingTable
from eggshard.shardy.traits import is_elementwise, is_pure, is_terminator

#: The slot of values that cannot have a sharding; no value has this number.
NO_SLOT = 0


class Node:
    """An op. `operands` and `results` are values by number; `ancestors` the ops around it, innermost first.

    What shardings flow through is set by `flows.py`: a rule, and the slots that it relates.
    """

    __slots__ = ("op", "name", "number", "ancestors", "operands", "results", "pure", "elementwise", "erased", "flow")

    def __init__(self, op: Any, number: int, ancestors: tuple[int, ...], operands: tuple[int, ...],
                 results: tuple[int, ...]) -> None:
        self.op, self.name, self.number, self.ancestors = op, op.name, number, ancestors
        self.operands, self.results = operands, results
        self.pure = bool(results) and not is_terminator(op) and is_pure(op)
        self.elementwise = is_elementwise(op)
        self.erased = False
        self.flow: Any = None


class Graph:
    """The ops, values and shardings of a module."""

    def __init__(self, module: ShardyModule) -> None:
        self.module = module
        self.table = ShardingTable(module.meshes)
        self.nodes: list[Node] = []
        #: The MLIR value of each number, its uses counted, its slot, and the sharding kept at it.
        self.values: list[Any] = [None]
        self.use_counts: list[int] = [0]
        self.shardings: list[int] = [NONE]
        self._slots: list[int | None] = [NO_SLOT]
        self._definers: list[int] = [-1]
        self._numbers: dict[Any, int] = {}
        self._node_numbers: dict[Any, int] = {}
        self._users: dict[int, tuple[int, ...]] = {}
        self._changed: set[int] = set()
        for op in module.module.body.operations:
            self._add(op.operation, ())
        self.functions = {
            ir.StringAttr(node.op.attributes["sym_name"]).value: node
            for node in self.nodes if node.name == "func.func"
        }
        self.calls: dict[str, list[Node]] = {}
        for node in self.nodes:
            if node.name == "func.call":
                callee = ir.FlatSymbolRefAttr(node.op.attributes["callee"]).value
                self.calls.setdefault(callee, []).append(node)
        self._count_uses()
        self._fixed = {NO_SLOT, *self._of_manual()}
        self._first_result: dict[int, int] = {}
        for function in self.functions.values():
            self._first_result[function.number] = len(self.shardings)
            stated = module.function_result_shardings(function.op)
            self.shardings.extend(self.table.number(sharding) for sharding in stated)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _add(self, op: Any, around: tuple[int, ...]) -> None:
        number = len(self.nodes)
        node = Node(op, number, around, (), tuple(self._new_value(result, number) for result in op.results))
        self.nodes.append(node)
        self._node_numbers[op] = number
        stated = self.module.result_shardings(op) if node.results else None
        for value, sharding in zip(node.results, stated or (), strict=False):
            self.shardings[value] = self.table.number(sharding)
        within = (number, *around)
        for region in op.regions:
            for i, block in enumerate(region.blocks):
                arguments = [self._new_value(argument) for argument in block.arguments]
                if i == 0:
                    self._read_arguments(op, arguments)
                for inner in block.operations:
                    self._add(inner.operation, within)

    def _read_arguments(self, op: Any, arguments: list[int]) -> None:
        if op.name == "func.func":
            for value, sharding in zip(arguments, self.module.argument_shardings(op), strict=True):
                self.shardings[value] = self.table.number(sharding)
        elif op.name in BODIES:
            for value in arguments:
                self.shardings[value] = self.table.number(self.module.sharding(self.values[value]))

    def _new_value(self, value: Any, definer: int = -1) -> int:
        number = len(self.values)
        self._numbers[value] = number
        self.values.append(value)
        self.use_counts.append(0)
        self.shardings.append(NONE)
        self._slots.append(None)
        self._definers.append(definer)
        return number

    def _count_uses(self) -> None:
        for node in self.nodes:
            node.operands = tuple(self._numbers[operand] for operand in node.op.operands)
            for value in node.operands:
                self.use_counts[value] += 1

    def _of_manual(self) -> Iterator[int]:
        for node in self.nodes:
            if node.name == "sdy.manual_computation":
                yield from node.results
                yield from (self._numbers[argument] for argument in node.op.regions[0].blocks[0].arguments)

    # -- values and slots --------------------------------------------------------------------------------------------

    def number(self, value: Any) -> int:
        """The number of an MLIR value."""
        return self._numbers[value]

    def node(self, op: Any) -> Node:
        """The node of an MLIR operation."""
        return self.nodes[self._node_numbers[op]]

    def slot(self, value: int) -> int:
        """Where a value's sharding is kept; NO_SLOT for arguments of reductions and the like."""
        found = self._slots[value]
        if found is None:
            found = self._slots[value] = self._find_slot(self.values[value])
        return found

    def _find_slot(self, value: Any) -> int:
        holder = holder_of(value)
        return NO_SLOT if holder is None else self._numbers[holder]

    def result_slot(self, function: Node, number: int) -> int:
        """The slot of a function's result."""
        return self._first_result[function.number] + number

    @property
    def slots(self) -> Iterator[int]:
        """Every slot that holds a sharding, but for those of values whose edges hold another."""
        for number in range(1, len(self.shardings)):
            if number >= len(self.values) or self.slot(number) == number:
                yield number

    def sharding(self, slot: int) -> TensorSharding | None:
        """What is kept at a slot."""
        return self.table.shardings[self.shardings[slot]]

    def keep(self, slot: int, number: int) -> None:
        """Keep a sharding at a slot. Other results of the same op that had none are then fully open.

        Manual computations without data-flow edges keep theirs: axes that are manual could not be told from others.
        """
        if slot in self._fixed:
            return
        self.shardings[slot] = number
        if slot >= len(self.values):
            self._changed.add(slot)
            return
        value = self.values[slot]
        if isinstance(value, ir.BlockArgument):
            self._changed.add(slot)
            return
        node = self.node(owner_of(value))
        self._changed.add(node.results[0])
        sharding = self.table.shardings[number]
        if len(node.results) > 1 and sharding is not None:
            for other in node.results:
                if self.shardings[other] == NONE:
                    fully_open = TensorSharding.fully_open(sharding.mesh, rank(self.values[other]))
                    self.shardings[other] = self.table.number(fully_open)

    # -- who looks at a value ----------------------------------------------------------------------------------------

    def users(self, value: int) -> tuple[int, ...]:
        """The ops at which a change of a value's sharding may matter, as MLIR lists its uses.

        A use that flows into a data-flow edge is the edge's; what a function returns is used where it is called.
        """
        found = self._users.get(value)
        if found is None:
            out: list[int] = []
            for use in self.values[value].uses:
                out.extend(self._interested(use.owner.operation, use.operand_number))
            found = self._users[value] = tuple(out)
        return found

    def _interested(self, op: Any, operand: int) -> Iterator[int]:
        owner = owner_of_source(op, operand)
        edge = edge_of(owner) if owner is not None else None
        if edge is not None:
            yield self._node_numbers[edge]
        elif op.name == "func.return":
            function = self.node(op.parent.operation)
            calls = self.calls.get(ir.StringAttr(function.op.attributes["sym_name"]).value)
            for call in calls or ():
                yield from self.users(call.results[operand])
            if not calls:
                yield function.number
        elif is_terminator(op):
            yield self._node_numbers[op.parent.operation]
        elif op.name == "func.call":
            body = self.functions[ir.FlatSymbolRefAttr(op.attributes["callee"]).value].op.regions[0]
            if body.blocks:
                yield from self.users(self._numbers[body.blocks[0].arguments[operand]])
        else:
            yield self._node_numbers[op]

    def affected(self, slot: int) -> Iterator[int]:
        """The ops to look at again when what is kept at a slot has changed, in the order in which Shardy lists them."""
        value = self.values[slot]
        if isinstance(value, ir.BlockArgument):
            yield self._node_numbers[owner_of(value)]
            yield from self.users(slot)
            return
        node = self.node(owner_of(value))
        if node.name == EDGE:
            for target in other_targets(node.op.operands[0]):
                yield from self.users(self._numbers[target])
        yield node.number
        yield from self.users(slot)

    def edge_sources(self, node: Node) -> list[int]:
        """The values that flow into a data-flow edge; none into the edge of a function that nobody calls."""
        owner = node.op.operands[0]
        if node.name != FUNCTION_EDGE:
            return [self._numbers[source] for source in sources(owner)]
        if isinstance(owner, ir.BlockArgument):
            function = ir.StringAttr(owner_of(owner).attributes["sym_name"]).value
            return [call.operands[owner.arg_number] for call in self.calls.get(function, ())]
        callee = ir.FlatSymbolRefAttr(owner_of(owner).attributes["callee"]).value
        body = self.functions[callee].op.regions[0]
        return [self._numbers[terminator(body).operands[ir.OpResult(owner).result_number]]] if body.blocks else []

    def definer(self, value: int) -> Node | None:
        """The op that a value is a result of; None for arguments."""
        found = self._definers[value]
        return self.nodes[found] if found >= 0 else None

    def using(self, value: int) -> set[int]:
        """The ops that use a value."""
        numbers = {self._node_numbers[use.owner.operation] for use in self.values[value].uses}
        return {number for number in numbers if not self.nodes[number].erased}

    # -- changes -----------------------------------------------------------------------------------------------------

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

    def write(self) -> None:
        """Write changed shardings to the module, and take erased ops away."""
        for slot in sorted(self._changed):
            if slot >= len(self.values):
                self._write_function_result(slot)
                continue
            value = self.values[slot]
            if isinstance(value, ir.BlockArgument):
                self.module.set_sharding(value, self.sharding(slot))
                continue
            node = self.node(owner_of(value))
            if not node.erased:
                self._write_results(node)
        self._changed.clear()
        for node in reversed(self.nodes):
            if node.erased and not any(self.nodes[a].erased for a in node.ancestors):
                node.op.erase()

    def _write_results(self, node: Node) -> None:
        numbers = tuple(self.shardings[value] for value in node.results)
        own = OWN_SHARDING.get(node.name)
        if own:
            node.op.attributes[own] = self.table.attribute(numbers[0])
        elif all(numbers):
            name = "out_shardings" if node.name in BODIES else SHARDING
            node.op.attributes[name] = self.table.per_value(numbers)

    def _write_function_result(self, slot: int) -> None:
        for function in self.functions.values():
            number = slot - self._first_result[function.number]
            if 0 <= number < len(self.module.function_result_shardings(function.op)):
                self.module.set_function_result_sharding(function.op, number, self.sharding(slot))


def drop_rules(module: ShardyModule) -> None:
    """Take away the rules that are derived from their ops; the user's stay."""
    for op in module.walk():
        if RULE in op.attributes and ", custom>" not in str(op.attributes[RULE]):
            del op.attributes[RULE]
