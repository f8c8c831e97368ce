"""The propagation graph of a prepared program, and the shardings that propagation found for its ops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from eggshard.ops.sharding_rule import DEPENDENT, Nearby, sharding_rule
from eggshard.planner.propagation.draft import EDGE, FUNCTION, MANUAL, RETURN, DraftOp, Value
from eggshard.planner.propagation.flows import Flow, ManualEdge, always, identity, scheduled
from eggshard.planner.propagation.graph import Graph, Node
from eggshard.planner.propagation.preparation import groups_of, holder_of, sources, watching_edge
from eggshard.planner.propagation.schedule import SAME_SHAPE
from eggshard.planner.propagation.table import ShardingTable
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import Sharding
from eggshard.program.tensor_sharding import TensorSharding

MESH = "mesh"
_OFFLOADS = frozenset(("MoveToDevice", "MoveToHost"))


class ProgramGraph(Graph):
    """The graph of a prepared function."""

    def __init__(self, function: DraftOp, mesh: Mesh, outputs: Sequence[Sharding | None]) -> None:
        super().__init__(ShardingTable({MESH: mesh}))
        self.ops: list[DraftOp] = []
        self._values: list[Value | None] = [None]
        self._numbers: dict[Value, int] = {}
        self._node_numbers: dict[DraftOp, int] = {}
        self._uses: dict[Value, tuple[int, ...]] = {}
        self._add(function, ())
        for value, number in self._numbers.items():
            self.slots[number] = self._numbers[holder_of(value)]
        self.watchers = {slot: tuple(self._affected(slot)) for slot in set(self.slots[1:])}
        for values in groups_of(function):
            slots = [self.slots[self._numbers[value]] for value in values]
            for number in map(self._numbers.__getitem__, values):
                self.groups[number] = tuple(slot for slot in slots if slot != number)
        returned = [self._numbers[value] for value in function.blocks[0].ops[-1].operands]
        of_results = [self.add_slot(_named(sharding)) for sharding in outputs]
        for node in self.nodes:
            node.flow = self._flow(node)
        for number, slot in zip(returned, of_results, strict=True):
            rule = identity(self._of(number).type.shape, 1)
            flow = Flow(rule, (self.slots[number], slot), 1, always(rule), (number, number))
            self.returned.append((self.nodes[0], flow))

    def kept(self, value: Value) -> TensorSharding | None:
        """What is kept at a value itself, which may be another sharding than its edge's."""
        return self.sharding(self._numbers[value])

    def found(self, value: Value) -> Sharding | None:
        """A value's sharding."""
        kept = self.sharding(self.slots[self._numbers[value]])
        return None if kept is None else kept.sharding

    def is_erased(self, op: DraftOp) -> bool:
        """Whether propagation has taken an op away, as nothing needs it."""
        return self.nodes[self._node_numbers[op]].erased

    # -- reading -----------------------------------------------------------------------------------------------------

    def _add(self, op: DraftOp, around: tuple[int, ...]) -> None:
        number = self._node_numbers[op] = len(self.ops)
        self.ops.append(op)
        operands = tuple(self._numbers[value] for value in op.operands)
        results = tuple(map(self._new_value, op.results))
        self.add_node(op.name, around, operands, results, bool(results) and op.pure)
        for block in op.blocks:
            arguments = tuple(map(self._new_value, block.arguments))
            if op.name == MANUAL:
                self.fixed.update((*results, *arguments))
            for inner in block.ops:
                self._add(inner, (number, *around))

    def _new_value(self, value: Value) -> int:
        number = self._numbers[value] = self.add_value(value.type.rank, _named(value.sharding))
        self._values.append(value)
        return number

    def _of(self, number: int) -> Value:
        value = self._values[number]
        assert value is not None
        return value

    # -- who looks at a value ----------------------------------------------------------------------------------------

    def _affected(self, slot: int) -> Iterator[int]:
        """The ops to look at again when what is kept at a slot has changed, in the order in which Shardy lists them."""
        value = self._of(slot)
        if value.owner.name == EDGE:
            (owner,) = value.owner.operands
            if owner.owner.name == "while":
                for block in owner.owner.blocks:
                    yield from self._users_of(block.arguments[owner.number])
        yield self._node_numbers[value.owner]
        yield from self._users_of(value)

    def _users_of(self, value: Value) -> tuple[int, ...]:
        """The ops at which a change of a value's sharding may matter; a use that flows into an edge is the edge's."""
        found = self._uses.get(value)
        if found is None:
            found = self._uses[value] = tuple(self._interested(op, operand) for op, operand in value.uses)
        return found

    def _interested(self, op: DraftOp, operand: int) -> int:
        edge = watching_edge(op, operand)
        if edge is None and op.name == RETURN and op.block is not None:
            op = op.block.owner
        return self._node_numbers[op if edge is None else edge]

    # -- what shardings flow through ---------------------------------------------------------------------------------

    def _flow(self, node: Node) -> Flow | None:
        """What shardings flow through at an op."""
        op = self.ops[node.number]
        if op.name == EDGE:
            return self._of_edge(node, op.operands[0])
        if not node.results or op.name == FUNCTION:
            return None
        operands, results = (tuple(value.type for value in values) for values in (op.operands, op.results))
        regions = op.regions if op.name == "scatter" else ()
        rule = _rule(op.name, op.attributes, operands, results, regions, _nearby(op))
        if rule is None:
            return None
        offload = op.name == "custom_call" and op.attributes["call_target_name"] in _OFFLOADS
        keeps_shape = offload or op.elementwise or op.name in SAME_SHAPE
        steps = scheduled(op.name, rule, keeps_shape, op.elementwise)
        return self.between(node.operands, node.results, steps, node.operands)

    def _of_edge(self, node: Node, owner: Value) -> Flow:
        given = tuple(self._numbers[source] for source in sources(owner))
        rule = identity(owner.type.shape, len(given))
        flow = self.between(given, node.results, scheduled("", rule, True, False), node.operands)
        if owner.owner.name == MANUAL:
            argument = owner.block is not None
            stated = owner.owner.ends[0 if argument else 1][owner.number]
            flow.manual = ManualEdge(self.table, argument, owner.owner.attributes["manual_axes"], stated)
        return flow


def _named(sharding: Sharding | None) -> TensorSharding | None:
    return None if sharding is None else TensorSharding(MESH, sharding)


_rule = lru_cache(maxsize=4096)(sharding_rule)


def _nearby(op: DraftOp) -> Nearby:
    if op.name not in DEPENDENT:
        return Nearby()
    made = [value.definer for value in op.operands]
    sources = [maker.operands[0] if maker and maker.name == "slice" else value
               for value, maker in zip(op.operands, made, strict=True)]
    return Nearby(
        tuple(maker.name if maker else "" for maker in made), tuple(map(sources.index, sources)),
        frozenset(user.name for value in op.results for user, _ in value.uses))
