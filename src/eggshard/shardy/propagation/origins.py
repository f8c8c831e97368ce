"""Origins of each axis of a sharding: the stated sharding it came from, and the edges of ops along which it came.

``sdy.sharding_origins`` says for every axis of a value which argument, result, constraint or manual computation it was
first stated for; ``sdy.propagation_edges`` of an op, at which step of propagation which of its tensors gave an axis to
which others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxlib.mlir import ir

from eggshard.planner.propagation.projection import Projection
from eggshard.program.axes import AxisRef, begins_with
from eggshard.program.mesh import Mesh
from eggshard.program.op_sharding_rule import OpShardingRule
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import read_per_value
from eggshard.shardy.edges import EDGE, FUNCTION_EDGE, edge_of, holder_of, owner_of, sharding_of, sources, terminator
from eggshard.shardy.module import ShardyModule, entries, inside_first, set_entry

#: Per value the stated sharding that each of its axes came from, and per op which tensor each axis came from, by steps.
ORIGINS, EDGES, NAME = "sdy.sharding_origins", "sdy.propagation_edges", "sdy.sharding_origin_name"
#: Origins of the block arguments and the results of an op whose data-flow edges have been removed.
ARGUMENT_ORIGINS, RESULT_ORIGINS = "sdy.block_arg_sharding_origins", "sdy.result_sharding_origins"
_CONSTRAINT, _MANUAL = "sdy.sharding_constraint", "sdy.manual_computation"


class Gift(NamedTuple):
    """An axis that one tensor of an op gave to another; tensors by position, operands first."""

    axis: AxisRef
    source: int
    target: int


class Notes:
    """What is noted during one pass, and then written on the module."""

    def __init__(self, module: ShardyModule, origins: bool, edges: bool) -> None:
        self.module, self.origins, self.edges = module, origins, edges
        self.step = 1 + max(_steps(module), default=-1)
        self._origins: dict[Any, dict[AxisRef, str]] = {}
        #: Per op, and per result of functions, the gifts and their steps.
        self._gifts: dict[tuple[Any, int | None], list[tuple[Gift, int, int]]] = {}
        if origins:
            self._prepare()

    def _prepare(self) -> None:
        ops = inside_first(self.module.module.operation)
        constraints = [op for op in ops if op.name == _CONSTRAINT]
        for number, op in enumerate(constraints):
            name = f"constraint_{number}"
            op.attributes[NAME] = ir.StringAttr.get(name)
            self._state(op.results[0], sharding_of(self.module, op.results[0]), name)
            self._state(op.operands[0], sharding_of(self.module, op.operands[0]), name)
        for number, op in enumerate(op for op in ops if op.name == _MANUAL):
            op.attributes[NAME] = ir.StringAttr.get(f"mc_{number}")
            for side, owners in _owners(op):
                for i, owner in enumerate(owners):
                    edge = edge_of(owner)
                    if edge is None:
                        continue
                    name = f"mc_{number}_{side}: {i}"
                    self._state(edge.results[0], read_per_value(str(op.attributes[_ATTRIBUTES[side]]))[i], name)
                    if side == "input":
                        source = sources(owner)[0]
                        self._state(source, sharding_of(self.module, source), name)
        for function in self.module.functions:
            if not function.regions[0].blocks:
                continue
            for i, argument in enumerate(function.regions[0].blocks[0].arguments):
                self._state(argument, sharding_of(self.module, argument), f"input: {i}")
            stated = self.module.function_result_shardings(function)
            for i, value in enumerate(terminator(function.regions[0]).operands):
                self._state(value, stated[i], f"output: {i}")

    def _state(self, value: Any, sharding: TensorSharding | None, name: str) -> None:
        holder = holder_of(value)
        if sharding is None or holder is None:
            return
        for axis in (axis for axes in sharding.axes for axis in axes):
            self._origins.setdefault(holder, {}).setdefault(axis, name)

    # -- during the pass ---------------------------------------------------------------------------------------------

    def take(
        self, op: Any, values: Sequence[Any], rule: OpShardingRule, old: Projection, new: Projection, mesh: Mesh,
        result: int | None = None,
    ) -> None:
        """Note what changed between the values of an op; result: the number of the function's result, for those."""
        count = len(old.operands)
        for gift in gifts_of(rule, old, new, mesh):
            noted, operands = (gift, count) if op.name not in (EDGE, FUNCTION_EDGE) else (_of_edge(gift, count), 1)
            if self.edges and noted.source != noted.target:
                self._gifts.setdefault((op, result), []).append((noted, operands, self.step))
            holder = holder_of(values[gift.target])
            origin = self._origin(values[gift.source], gift.axis)
            if self.origins and origin is not None:
                self._origins.setdefault(holder, {}).setdefault(gift.axis, origin)
        self.step += 1

    def _origin(self, value: Any, axis: AxisRef) -> str | None:
        """Where a value has an axis from; if it was cut or merged since, where it has a piece of it from."""
        known = self._origins.get(holder_of(value), {})
        if axis in known:
            return known[axis]
        related = (origin for other, origin in known.items() if other.contains(axis) or axis.contains(other))
        return next(related, None)

    def forget(self, ops: Iterable[Any]) -> None:
        """Drop the notes on ops that are taken away."""
        for op in ops:
            for result in op.results:
                self._origins.pop(result, None)
            self._gifts.pop((op, None), None)

    # -- afterwards --------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Put the notes on the module's ops, arguments and results."""
        for value, known in self._origins.items():
            self._write_origins(value, known)
        for (op, result), gifts in self._gifts.items():
            attribute = ir.Attribute.parse(edges_text(gifts))
            if result is None:
                op.attributes[EDGES] = attribute
            else:
                set_entry(op, "res_attrs", result, EDGES, attribute)

    def _write_origins(self, value: Any, known: dict[AxisRef, str]) -> None:
        def entry(own: str = "") -> Any:
            """The origins; that which is stated at this place is called ``self``."""
            return ir.DictAttr.get({
                _key(axis): ir.StringAttr.get("self" if origin == own else origin) for axis, origin in known.items()})

        for use in value.uses:
            user = use.owner.operation
            if user.name == "func.return":
                number = use.operand_number
                set_entry(user.parent.operation, "res_attrs", number, ORIGINS, entry(f"output: {number}"))
                break
        op = owner_of(value)
        if op.name == "func.func":
            number = ir.BlockArgument(value).arg_number
            set_entry(op, "arg_attrs", number, ORIGINS, entry(f"input: {number}"))
        elif op.name in (_CONSTRAINT, EDGE):
            op.attributes[ORIGINS] = entry(_own_name(op))
        elif not isinstance(value, ir.BlockArgument):
            entries = (
                list(ir.ArrayAttr(op.attributes[ORIGINS])) if ORIGINS in op.attributes else
                [ir.DictAttr.get({}) for _ in op.results])
            entries[ir.OpResult(value).result_number] = entry()
            op.attributes[ORIGINS] = ir.ArrayAttr.get(entries)


def origins_of(value: Any) -> dict[str, str]:
    """What is noted of a value: per axis the name of its origin, also of one that is stated at the value itself."""
    op = owner_of(value)
    if not isinstance(value, ir.BlockArgument):
        number, key = ir.OpResult(value).result_number, RESULT_ORIGINS if RESULT_ORIGINS in op.attributes else ORIGINS
    else:
        number, key = ir.BlockArgument(value).arg_number, ARGUMENT_ORIGINS
        if op.name == "func.func":
            return _named(entries(op, "arg_attrs")[number], f"input: {number}")
        if op.name == "stablehlo.while":  # what a loop carries lies as its result
            key = RESULT_ORIGINS
    noted = op.attributes[key] if key in op.attributes else None
    if isinstance(noted, ir.ArrayAttr):  # of the results that have edges: which these are is known where all have one
        count = len(op.operands if key == ARGUMENT_ORIGINS else op.results)
        noted = noted[number] if len(noted) == count else None
    own = ir.StringAttr(op.attributes[NAME]).value if NAME in op.attributes else "self"
    return _texts(noted, own)


def result_origins(function: Any, number: int) -> dict[str, str]:
    """What is noted of a function's result."""
    return _named(entries(function, "res_attrs")[number], f"output: {number}")


def _named(entry: Any, own: str) -> dict[str, str]:
    return _texts(entry[ORIGINS] if ORIGINS in entry else None, own)


def _texts(noted: Any, own: str) -> dict[str, str]:
    origins = {} if noted is None else {each.name: ir.StringAttr(each.attr).value for each in ir.DictAttr(noted)}
    return {axis: own if origin == "self" else origin for axis, origin in origins.items()}


def _own_name(op: Any) -> str:
    """What a constraint, or an edge of a manual computation, is called as an origin."""
    if op.name == _CONSTRAINT:
        return ir.StringAttr(op.attributes[NAME]).value if NAME in op.attributes else ""
    of = owner_of(op.operands[0])
    if of.name != _MANUAL:
        return ""
    side, number = next(
        (side, owners.index(op.operands[0])) for side, owners in _owners(of) if op.operands[0] in owners)
    return f"{ir.StringAttr(of.attributes[NAME]).value}_{side}: {number}"


_ATTRIBUTES = {"input": "in_shardings", "output": "out_shardings"}


def _owners(op: Any) -> tuple[tuple[str, list[Any]], ...]:
    return ("input", list(op.regions[0].blocks[0].arguments)), ("output", list(op.results))


def gifts_of(rule: OpShardingRule, old: Projection, new: Projection, mesh: Mesh) -> Iterator[Gift]:
    """The axes that tensors have after a step and had not before, and the tensors that had them."""
    before = list(old.tensors)
    mappings = (*rule.operands, *rule.results)
    for target, (tensor, dims) in enumerate(zip(new.tensors, mappings, strict=True)):
        found: dict[AxisRef, int] = {}
        for factors in dims:
            previous: AxisRef | None = None
            for factor in factors:
                was, now = before[target].factors.get(factor), tensor.factors.get(factor)
                if was is None or now is None or was.axes == now.axes:
                    continue
                last = now.axes[-1]
                if previous is not None and previous.can_merge(last):
                    found.pop(previous, None)
                    last = previous.merge(last, mesh.axes)
                previous = now.axes[-1]
                source = _source(before, factor, now.axes)
                if source is None:
                    continue
                axes = (*now.axes[:-1], last)
                first = len(was.axes) - (bool(was.axes) and was.axes[-1] != axes[len(was.axes) - 1])
                for axis in axes[first:]:
                    found.setdefault(axis, source)
        for axis, source in found.items():
            yield Gift(axis, source, target)


def _of_edge(gift: Gift, sources: int) -> Gift:
    """A gift at a data-flow edge: its one operand stands for all that flows into it."""
    source, target = (0 if position < sources else 1 for position in (gift.source, gift.target))
    return Gift(gift.axis, source, target)


def _source(tensors: Sequence[Any], factor: int, axes: tuple[AxisRef, ...]) -> int | None:
    """The first tensor of which a factor was sharded by these axes, and maybe more."""
    for number, tensor in enumerate(tensors):
        own = tensor.factors.get(factor)
        if own is not None and begins_with(own.axes, axes):
            return number
    return None


def edges_text(gifts: Iterable[tuple[Gift, int, int]]) -> str:
    """The attribute of gifts with the number of the op's operands and their steps; the first of equal gifts counts."""
    first: dict[Gift, tuple[int, int]] = {}
    for gift, operands, step in gifts:
        if gift not in first or step < first[gift][1]:
            first[gift] = operands, step
    steps: dict[int, dict[tuple[AxisRef, int], list[str]]] = {}
    for gift, (operands, step) in sorted(first.items()):
        targets = steps.setdefault(step, {}).setdefault((gift.axis, gift.source), [])
        targets.append(_tensor(gift.target, operands))
    operands = next(iter(first.values()))[0]
    shown = []
    for step in sorted(steps):
        each = ", ".join(
            f"{{{axis} = {_tensor(source, operands)} -> [{', '.join(targets)}]}}"
            for (axis, source), targets in steps[step].items())
        shown.append(f"{{step-{step} = [{each}]}}")
    return f"#sdy.propagation_edges<[{', '.join(shown)}]>"


def _tensor(position: int, operands: int) -> str:
    return f"operand-{position}" if position < operands else f"result-{position - operands}"


def _key(axis: AxisRef) -> str:
    return str(axis).replace('"', "")


def _steps(module: ShardyModule) -> Iterator[int]:
    """The steps noted on a module's ops."""
    for op in module.walk():
        if EDGES in op.attributes:
            for part in str(op.attributes[EDGES]).split("step-")[1:]:
                yield int(part.split(" ", 1)[0])
