"""Conflicts of propagation: an op computes with axes that one decision put there, and a value has those of another.

They are read off the reshards that `insert-explicit-reshards` puts around each op, before any of them are joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from jaxlib.mlir import ir

from eggshard.planner.propagation.projection import Projection, TensorProjection
from eggshard.program.axes import Axes, AxisRef, any_overlap
from eggshard.program.op_sharding_rule import OpShardingRule
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import read_per_value
from eggshard.shardy.edges import DATA_FLOW
from eggshard.shardy.explanation.axis_origins import AxisOrigins
from eggshard.shardy.module import BODIES, SHARDING, ShardyModule, callee, maker, uses
from eggshard.shardy.reshards.values import Values
from eggshard.shardy.rules import rule_of

RESHARD, ALL_REDUCE = "sdy.reshard", "sdy.all_reduce"
#: Before reshards are inserted: of ops the shardings of their results; of reshards, that the program has them.
_BEFORE = "eggshard.before"


class Rejection(NamedTuple):
    """A reshard that an op needs for one of its tensors, and the axes that this is about.

    number: of the operand or result. had, used: the value's sharding, and the one that the op computes with. kept,
    rejected: per axis the names of the origins of what the op computes with, and of what it does not. Nothing is
    rejected where a result has more axes at the op than its value may have.
    """

    op: Any
    is_result: bool
    number: int
    had: TensorSharding | None
    used: TensorSharding | None
    kept: dict[str, tuple[str, ...]]
    rejected: dict[str, tuple[str, ...]]
    reshard: Any


class _Tensor(NamedTuple):
    """A tensor of an op: per factor the axes that its value has, and those that the op computes with."""

    had: Mapping[int, Axes]
    used: Mapping[int, Axes]
    origins: Mapping[str, str]


def mark(module: ShardyModule) -> None:
    """Note what `rejections` has to know of the module before reshards are inserted."""
    for op in module.walk():
        if op.name in (RESHARD, ALL_REDUCE):
            op.attributes[_BEFORE] = ir.UnitAttr.get()
        elif SHARDING in op.attributes:
            op.attributes[_BEFORE] = op.attributes[SHARDING]


def rejections(module: ShardyModule, origins: AxisOrigins) -> Iterator[Rejection]:
    """The axes of values that ops do not compute with, in the text's order.

    The module has reshards inserted, and none of them joined; `mark` was called before.
    """
    values = Values(module)
    for op in module.walk():
        if not _is_inserted(op):
            yield from _of_op(values, origins, op)


def _of_op(values: Values, origins: AxisOrigins, op: Any) -> Iterator[Rejection]:
    operands = {0: op} if op.name == RESHARD else {
        n: found for n, value in enumerate(op.operands) if (found := _operand_reshard(values, value)) is not None}
    results = {n: found for n, value in enumerate(op.results) if (found := _result_reshard(values, value)) is not None}
    if not operands and not results:
        return
    rule = None if op.name in (RESHARD, *DATA_FLOW, *BODIES) else rule_of(op)
    if rule is not None:
        yield from _of_ruled(values, origins, op, rule, operands, results)
        return
    for n, reshard in operands.items():  # the operand becomes another value, dimension by dimension
        had, used = values.sharding(reshard.operands[0]), values.sharding(reshard.results[0])
        tensors = [_Tensor(_dims(had), _dims(used), origins.of(_root(reshard.operands[0]))),
                   _Tensor(_dims(used), _dims(used), _target_origins(values, origins, op, n))]
        yield from _rejected(op, False, n, had, used, tensors, 0, reshard)


def _of_ruled(
    values: Values, origins: AxisOrigins, op: Any, rule: OpShardingRule, operands: Mapping[int, Any],
    results: Mapping[int, Any],
) -> Iterator[Rejection]:
    """Those of an op with a rule, factor by factor. operands, results: the reshards at each."""
    used_in, used_out = ([values.sharding(value) for value in side] for side in (op.operands, op.results))
    had_in = [values.sharding(operands[n].operands[0]) if n in operands else s for n, s in enumerate(used_in)]
    had_out = [values.sharding(results[n].results[0]) if n in results else s for n, s in enumerate(used_out)]
    on = values.common_mesh([*used_in, *used_out, *had_in, *had_out])
    if on is None:
        return
    had = Projection.of(rule, had_in, had_out, on.mesh, closed_if_missing=True)
    used = Projection.of(rule, used_in, used_out, on.mesh, closed_if_missing=True)
    noted = [*(origins.of(_root(value)) for value in op.operands), *map(origins.of, op.results)]
    tensors = [
        _Tensor(_factors(h), _factors(u), o) for h, u, o in zip(had.tensors, used.tensors, noted, strict=True)]
    for n, reshard in operands.items():
        yield from _rejected(op, False, n, had_in[n], used_in[n], tensors, n, reshard)
    for n, reshard in results.items():
        yield from _rejected(op, True, n, had_out[n], used_out[n], tensors, len(had_in) + n, reshard)


def _rejected(
    op: Any, is_result: bool, number: int, had: TensorSharding | None, used: TensorSharding | None,
    tensors: list[_Tensor], position: int, reshard: Any,
) -> Iterator[Rejection]:
    """The rejection of a tensor's axes; none where an operand is only cut further, which moves nothing."""
    tensor = tensors[position]
    lost = {f: _beyond(axes, tensor.used.get(f, ())) for f, axes in tensor.had.items()}
    gained = {f: _beyond(axes, tensor.had.get(f, ())) for f, axes in tensor.used.items()}
    every = [axis for axes in lost.values() for axis in axes]
    if not every and not (is_result and any(gained.values())):
        return
    kept: dict[str, tuple[str, ...]] = {}
    for factor, axes in sorted({f: a for t in tensors for f, a in t.used.items()}.items()):
        for axis in axes:
            instead = axis in gained.get(factor, ()) and (is_result or lost.get(factor))
            if instead or any_overlap([axis], every):  # overlapping ones shard another dimension of the op
                who = _who(axis, ((t.origins, t.had.get(factor, ())) for t in tensors))
                if who:
                    kept[_text(axis)] = who
    rejected = {_text(axis): _who(axis, [(tensor.origins, [axis])]) for axis in every}
    yield Rejection(op, is_result, number, had, used, kept, rejected, reshard)


def _beyond(axes: Axes, others: Axes) -> Axes:
    """The axes behind those with which both lists begin."""
    same = 0
    while same < min(len(axes), len(others)) and (axes[same] == others[same] or axes[same].is_prefix_of(others[same])):
        same += 1
    return axes[same:]


def _who(axis: AxisRef, holders: Iterable[tuple[Mapping[str, str], Iterable[AxisRef]]]) -> tuple[str, ...]:
    """The origins of an axis, or of a part of it, in the tensors that have it."""
    found = dict[str, None]()
    for origins, axes in holders:
        for has in axes:
            if has.overlaps(axis):
                exact = origins.get(_text(has))
                found |= dict.fromkeys([exact] if exact else [o for a, o in origins.items() if a.startswith(
                    f"{has.name}:") or a == has.name])
    return tuple(found)


# -- the reshards around an op ---------------------------------------------------------------------------------------


def _is_inserted(op: Any) -> bool:
    return op.name in (RESHARD, ALL_REDUCE) and _BEFORE not in op.attributes


def _operand_reshard(values: Values, value: Any) -> Any:
    """The reshard that was inserted for an operand; None if there is none, or if it is one of its maker's result."""
    op = maker(value, RESHARD)
    return op if op is not None and _is_inserted(op) and not _is_of_result(values, op) else None


def _result_reshard(values: Values, value: Any) -> Any:
    """The reshard that was inserted for a result, behind sums of its shards."""
    while (users := [user for user, _ in uses(value)]) and all(user.name == ALL_REDUCE for user in users):
        value = users[0].results[0]
    return next((user for user in users if _is_inserted(user) and _is_of_result(values, user)), None)


def _is_of_result(values: Values, reshard: Any) -> bool:
    """Whether a reshard brings what an op made to the sharding that the op had before."""
    value = _before_sums(reshard.operands[0])
    op = maker(value)
    if op is None or op.name == RESHARD or SHARDING not in op.attributes:
        return False
    if _BEFORE not in op.attributes:
        return True
    number = ir.OpResult(value).result_number
    before, now = (read_per_value(str(op.attributes[key]))[number] for key in (_BEFORE, SHARDING))
    return (before.mesh, before.axes) != (now.mesh, now.axes)


def _before_sums(value: Any) -> Any:
    while (op := maker(value, ALL_REDUCE)) is not None:
        value = op.operands[0]
    return value


def _root(value: Any) -> Any:
    """The value that inserted ops made an operand of."""
    while (op := maker(value, RESHARD, ALL_REDUCE)) is not None and _is_inserted(op):
        value = op.operands[0]
    return value


def _target_origins(values: Values, origins: AxisOrigins, op: Any, number: int) -> dict[str, str]:
    """The origins of what an operand without a rule becomes: a constraint, a body's argument, an op's result."""
    if op.name == "func.return":
        return origins.of_result(op.parent.operation, number)
    if op.name == "func.call":
        function = values.module.by_name.get(callee(op))
        blocks = function.regions[0].blocks if function is not None else ()
        return origins.of(blocks[0].arguments[number]) if blocks else {}
    if op.name in BODIES:
        return origins.of(op.regions[0].blocks[0].arguments[number])
    of = op.parent.operation if op.name.endswith(".return") else op
    return origins.of(of.results[number]) if number < len(of.results) else {}


# -- axes ------------------------------------------------------------------------------------------------------------


def _dims(sharding: TensorSharding | None) -> dict[int, Axes]:
    return {} if sharding is None else dict(enumerate(sharding.axes))


def _factors(tensor: TensorProjection) -> dict[int, Axes]:
    return {factor: (*found.axes, *found.overflow) for factor, found in tensor.factors.items()}


def _text(axis: AxisRef) -> str:
    return str(axis).replace('"', "")
