"""The propagation graph of a module: ops, values and shardings, read from MLIR before and written back after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir

from eggshard.planner.propagation.flows import Flow, ManualEdge, always, identity, scheduled
from eggshard.planner.propagation.graph import NO_SLOT, Graph, Node
from eggshard.planner.propagation.schedule import SAME_SHAPE
from eggshard.planner.propagation.table import ShardingTable
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text, read_per_value
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
from eggshard.shardy.module import (
    BODIES,
    OWN_SHARDING,
    SHARDING,
    ShardyModule,
    callee,
    manual_axes,
    rank,
    shape,
    symbol,
)
from eggshard.shardy.propagation.groups import GROUP, group_of
from eggshard.shardy.rules import rule_of
from eggshard.shardy.traits import is_elementwise, is_pure, is_static, is_terminator

BARRIER = "sdy.propagation_barrier"
_OFFLOADS = frozenset(("MoveToDevice", "MoveToHost"))


class ModuleGraph(Graph):
    """The graph of a module, with the MLIR operation of each node and the MLIR value of each number."""

    def __init__(self, module: ShardyModule, conservative: bool = False) -> None:
        super().__init__(ShardingTable(module.meshes))
        self.module, self.conservative = module, conservative
        self.ops: list[Any] = []
        self.values: list[Any] = [None]
        self._numbers: dict[Any, int] = {}
        self._node_numbers: dict[Any, int] = {}
        self._attributes: dict[str, Any] = {}
        self._uses: dict[int, tuple[int, ...]] = {}
        for op in module.module.body.operations:
            self._add(op.operation, ())
        self.functions = {symbol(op): n for n, op in enumerate(self.ops) if op.name == "func.func"}
        self.calls: dict[str, list[Node]] = {}
        for node in self._named("func.call"):
            self.calls.setdefault(callee(self.ops[node.number]), []).append(node)
        for node in self._named("sdy.manual_computation"):
            arguments = self.ops[node.number].regions[0].blocks[0].arguments
            self.fixed.update(node.results, (self._numbers[argument] for argument in arguments))
        for number, value in enumerate(self.values[1:], 1):
            holder = holder_of(value)
            self.slots[number] = NO_SLOT if holder is None else self._numbers[holder]
        self.watchers = {slot: tuple(self._affected(slot)) for slot in set(self.slots[1:]) - {NO_SLOT}}
        members: dict[int, list[int]] = {}
        for node in self._named(GROUP):
            members.setdefault(group_of(self.ops[node.number]), []).append(node.operands[0])
        for values in members.values():
            for value in values:
                self.groups[value] = tuple(self.slots[v] for v in values if self.slots[v] != value)
        self._of_function = {
            number: [self.add_slot(sharding) for sharding in module.function_result_shardings(self.ops[number])]
            for number in self.functions.values()
        }
        self._before = list(self.shardings)
        for node in self.nodes:
            node.flow = self._flow(node)
        self.returned = [(self.nodes[n], flow) for n in self._entry_functions() for flow in self._of_results(n)]

    # -- reading -----------------------------------------------------------------------------------------------------

    def _add(self, op: Any, around: tuple[int, ...]) -> None:
        number = len(self.ops)
        self.ops.append(op)
        self._node_numbers[op] = number
        operands = tuple(self._numbers[operand] for operand in op.operands)
        results = list(op.results)
        stated = (self.module.result_shardings(op) if results else None) or (None,) * len(results)
        made = tuple(self._new_value(value, sharding) for value, sharding in zip(results, stated, strict=True))
        self.add_node(op.name, around, operands, made, bool(made) and not is_terminator(op) and is_pure(op))
        for region in op.regions:
            for i, block in enumerate(region.blocks):
                of_arguments = self._of_arguments(op, len(block.arguments)) if i == 0 else [None] * len(block.arguments)
                for argument, sharding in zip(block.arguments, of_arguments, strict=True):
                    self._new_value(argument, sharding)
                for inner in block.operations:
                    self._add(inner.operation, (number, *around))

    def _of_arguments(self, op: Any, count: int) -> list[TensorSharding | None]:
        if op.name == "func.func":
            return list(self.module.argument_shardings(op))
        if op.name in BODIES:
            return [self.module.sharding(argument) for argument in op.regions[0].blocks[0].arguments]
        return [None] * count

    def _new_value(self, value: Any, sharding: TensorSharding | None) -> int:
        number = self._numbers[value] = self.add_value(rank(value), sharding)
        self.values.append(value)
        return number

    def _named(self, name: str) -> list[Node]:
        return [node for node in self.nodes if node.name == name]

    def _entry_functions(self) -> list[int]:
        """Functions whose results are propagated to and from: the only one, or ``main``, or those without callers."""
        if len(self.functions) == 1:
            return list(self.functions.values())
        if "main" in self.functions:
            return [self.functions["main"]]
        return [number for name, number in self.functions.items() if name not in self.calls]

    # -- who looks at a value ----------------------------------------------------------------------------------------

    def _affected(self, slot: int) -> Iterator[int]:
        """The ops to look at again when what is kept at a slot has changed, in the order in which Shardy lists them."""
        value = self.values[slot]
        node = self.definer(slot)
        if node is None:
            yield self._node_numbers[owner_of(value)]
        else:
            if node.name == EDGE:
                for target in other_targets(self.ops[node.number].operands[0]):
                    yield from self._users_of(self._numbers[target])
            yield node.number
        yield from self._users_of(slot)

    def _users_of(self, value: int) -> tuple[int, ...]:
        """The ops at which a change of a value's sharding may matter, as MLIR lists its uses.

        A use that flows into a data-flow edge is the edge's; what a function returns is used where it is called.
        """
        found = self._uses.get(value)
        if found is None:
            found = self._uses[value] = tuple(
                number for use in self.values[value].uses
                for number in self._interested(use.owner.operation, use.operand_number))
        return found

    def _interested(self, op: Any, operand: int) -> Iterator[int]:
        owner = owner_of_source(op, operand)
        edge = edge_of(owner) if owner is not None else None
        if edge is not None:
            yield self._node_numbers[edge]
        elif op.name == "func.return":
            name = symbol(op.parent.operation)
            for call in self.calls.get(name, ()):
                yield from self._users_of(call.results[operand])
            if name not in self.calls:
                yield self.functions[name]
        elif is_terminator(op):
            yield self._node_numbers[op.parent.operation]
        elif op.name == "func.call":
            body = self.ops[self.functions[callee(op)]].regions[0]
            if body.blocks:
                yield from self._users_of(self._numbers[body.blocks[0].arguments[operand]])
        else:
            yield self._node_numbers[op]

    def _edge_sources(self, op: Any) -> tuple[int, ...]:
        """The values that flow into a data-flow edge; none into the edge of a function without callers."""
        owner = op.operands[0]
        if op.name != FUNCTION_EDGE:
            return tuple(self._numbers[source] for source in sources(owner))
        if isinstance(owner, ir.BlockArgument):
            calls = self.calls.get(symbol(owner_of(owner)), ())
            return tuple(call.operands[owner.arg_number] for call in calls)
        body = self.ops[self.functions[callee(owner_of(owner))]].regions[0]
        return (self._numbers[terminator(body).operands[ir.OpResult(owner).result_number]],) if body.blocks else ()

    # -- what shardings flow through ---------------------------------------------------------------------------------

    def _flow(self, node: Node) -> Flow | None:
        """What shardings flow through at an op; at all but ops with rules by the identity, dimension by dimension."""
        op = self.ops[node.number]
        if node.name in (EDGE, FUNCTION_EDGE):
            return self._of_edge(node)
        if node.name == BARRIER:
            same = identity(shape(op.results[0]), 1)
            direction = int(ir.IntegerAttr(op.attributes["allowed_direction"]).value)
            return self.between(node.operands, node.results, always(same, direction, True))
        if not node.results or node.name.startswith(("func.", "builtin.", "sdy.mesh")):
            return None
        rule = rule_of(op, self.conservative)
        if rule is None:
            return None
        elementwise = is_elementwise(op)
        name = node.name.partition(".")[2]
        keeps_shape = elementwise or name in SAME_SHAPE or (
            name == "custom_call" and ir.StringAttr(op.attributes["call_target_name"]).value in _OFFLOADS)
        steps = scheduled(name, rule, keeps_shape, elementwise, self.conservative)
        return self.between(node.operands, node.results, steps, node.operands)

    def _of_edge(self, node: Node) -> Flow | None:
        op = self.ops[node.number]
        given, owner = self._edge_sources(op), op.operands[0]
        if not given or not is_static(op.results[0]):
            return None
        rule = identity(shape(op.results[0]), len(given))
        flow = self.between(given, node.results, scheduled("", rule, True, False), node.operands)
        of = owner_of(owner)
        if of.name == "sdy.manual_computation":
            argument = isinstance(owner, ir.BlockArgument)
            name, n = ("in_shardings", owner.arg_number) if argument else ("out_shardings", owner.result_number)
            stated = read_per_value(str(of.attributes[name]))[n]
            flow.manual = ManualEdge(self.table, argument, manual_axes(of), stated.sharding)
        return flow

    def _of_results(self, function: int) -> Iterator[Flow]:
        """Yield the flows between a function's returned values and its stated results; tokens have none."""
        body = self.ops[function].regions[0]
        returned = terminator(body).operands if len(body.blocks) else ()
        for value, slot in zip(returned, self._of_function[function], strict=False):
            if is_static(value):
                rule, number = identity(shape(value), 1), self._numbers[value]
                yield Flow(rule, (self.slots[number], slot), 1, always(rule), (number, number))

    def stated_rule(self, node: Node) -> Any | None:
        """The rule of an op itself, not that of an edge or a barrier."""
        return None if node.flow is None or node.name in (EDGE, FUNCTION_EDGE, BARRIER) else node.flow.rule

    def function_result(self, function: Node, flow: Flow) -> int | None:
        """The number of the function's result that a flow leads to; None for other flows."""
        slot = flow.slots[-1]
        return self._of_function[function.number].index(slot) if slot >= len(self.values) else None

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Write changed shardings to the module, and take erased ops away."""
        changed = {slot for slot, before in enumerate(self._before) if self.shardings[slot] != before}
        for node in self.nodes:
            if not node.erased and changed.intersection(node.results):
                self._write_results(node)
        for number in changed:
            if number < len(self.values) and isinstance(self.values[number], ir.BlockArgument):
                self.module.set_sharding(self.values[number], self.sharding(number))
        for number, slots in self._of_function.items():
            for result, slot in enumerate(slots):
                if slot in changed:
                    self.module.set_function_result_sharding(self.ops[number], result, self.sharding(slot))
        for node in reversed(self.nodes):
            if node.erased and not any(self.nodes[a].erased for a in node.ancestors):
                self.ops[node.number].erase()

    def _write_results(self, node: Node) -> None:
        stated = [found for found in map(self.sharding, node.results) if found is not None]
        own, op = OWN_SHARDING.get(node.name), self.ops[node.number]
        if own:
            op.attributes[own] = self._attribute(str(stated[0]))
        elif len(stated) == len(node.results):
            name = "out_shardings" if node.name in BODIES else SHARDING
            op.attributes[name] = self._attribute(per_value_text(stated))

    def _attribute(self, text: str) -> Any:
        found = self._attributes.get(text)
        if found is None:
            found = self._attributes[text] = ir.Attribute.parse(text)
        return found
