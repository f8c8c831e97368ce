"""Localization of StableHLO ops: in place where only types and attributes change, otherwise rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from eggshard.errors import EggshardError, ShardingError
from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.placement.transfer import Strategy
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.axes import difference, union
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import atoms
from eggshard.program.types import numpy_dtype
from eggshard.shardy.local.conversion import Conversion, tensor_type
from eggshard.shardy.local.decisions import BY_REGION, Decision, Refusal, decide
from eggshard.shardy.local.layouts import Layout, refined
from eggshard.shardy.local.parts import Part, captures, parts_of, starts_from_identity
from eggshard.shardy.module import uses
from eggshard.spmd.on_shards import on_shards
from eggshard.steps.steps import Action, AllGather, AllReduce, KeepFirst, Local, Slice, Step, StepPlan

#: Monoids for which combining with the same value twice changes nothing.
_IDEMPOTENT = ("max", "min", "and", "or")


def convert_ordinary(conversion: Conversion, op: Any) -> None:
    """An op whose regions, if it has any, are of scalars. Refusal where it cannot be computed shard by shard."""
    operands = [conversion.layout(v) for v in op.operands]
    results = conversion.results_stated(op)
    outside = [conversion.layout(v) for v in captures(op) if not conversion.layout(v).plain]
    if outside:
        raise Refusal(f"its region uses a {outside[0].type} from outside that is sharded as {outside[0]}")
    if all(x.plain for x in (*operands, *results)) and op.name != "sdy.constant":
        _settle(conversion, op, results, results)
        return
    try:
        parts, decisions = _decided(op, operands, results)
    except Refusal:
        if not _without_shards(conversion, op, operands, results):
            raise
        return
    if decisions[0].monoid == BY_REGION:
        _settle(conversion, op, results, results)
        _reduce_again(conversion, op, decisions[0], results)
        return
    made = list(results)
    for part, decision in zip(parts, decisions, strict=True):
        _keep_first(conversion, op, part, decision)
        for i in part.results:
            mesh = decision.mesh if decision.partial else made[i].mesh
            made[i] = replace(made[i], mesh=mesh).partial(decision.partial, decision.monoid)
    part, decision = parts[0], decisions[0]
    if part.definition.name == "constant":
        action = Local("constant", decision.attributes, (made[0].local,))
        (value,) = conversion.splicer.program(_alone(action), [], op)
        conversion.replace(op, [value], made)
    elif decision.by_place:
        program = _by_place(part, operands, made)
        conversion.replace(op, conversion.splicer.program(program, list(op.operands), op), made)
    else:
        _set_attributes(op, parts, decisions)
        _settle(conversion, op, made, results)


def is_computed_in_place(conversion: Conversion, op: Any) -> bool:
    """Whether an op is computed on shards as these are stated; True for what is refused for other reasons."""
    try:
        operands = [
            conversion.stated(tensor_type(value.type), conversion.module.sharding(value), "an operand")
            for value in op.operands
        ]
        results = conversion.results_stated(op)
        if not all(x.plain for x in (*operands, *results)):
            _decided(op, operands, results)
    except ShardingError:
        return True
    except Refusal:
        return False
    return True


def _without_shards(conversion: Conversion, op: Any, operands: Sequence[Layout], results: Sequence[Layout]) -> bool:
    """Write an op that knows no shards: nothing where there are no elements, or whole operands' results, and cut them.

    False where that is not possible.
    """
    if op.name == "stablehlo.rng":
        _rng(conversion, op, operands, results[0])
        return True
    if has_effects(op) or not results:
        return False
    if not any(x.type.elements for x in results):
        empty = [Literal(np.zeros(x.local.shape, numpy_dtype(x.type.dtype))) for x in results]
        actions = [Local("constant", Attributes(value=v), (x.local,)) for v, x in zip(empty, results, strict=True)]
        conversion.replace(op, [conversion.splicer.program(_alone(a), [], op)[0] for a in actions], results)
        return True
    if all(x.plain for x in operands):
        _settle(conversion, op, [Layout.whole(x.type) for x in results], results)
        return True
    return False


def _decided(op: Any, operands: Sequence[Layout], results: Sequence[Layout]) -> tuple[list[Part], list[Decision]]:
    """The op's parts, and how each is computed on shards."""
    try:
        parts = parts_of(op, tuple(x.type for x in operands), tuple(x.type for x in results))
    except EggshardError as error:
        raise Refusal(str(error)) from None
    if parts is None:
        sharded = next(x for x in (*operands, *results) if not x.plain)
        raise Refusal(f"it is not known how to compute it on shards of {sharded.type}, {sharded}; replicate it")
    return parts, [
        decide(part, [operands[i] for i in part.operands], [results[i] for i in part.results]) for part in parts
    ]


def _set_attributes(op: Any, parts: Sequence[Part], decisions: Sequence[Decision]) -> None:
    for part, decision in zip(parts, decisions, strict=True):
        for name, codec in part.definition.attributes.items():
            local = decision.attributes.get(name)
            if local != part.attributes.get(name):
                op.attributes[name] = ir.Attribute.parse(codec.encode(local))


def _settle(conversion: Conversion, op: Any, made: Sequence[Layout], wanted: Sequence[Layout]) -> None:
    """Give an op's results what they are made as, and their users what is wanted: parts of that, or partial values."""
    for value, here, there in zip(list(op.results), made, wanted, strict=True):
        conversion.settle(value, here)
        actions: list[Action] = []
        missing = difference(there.unreduced, here.unreduced, there.mesh.axes) if there.unreduced else ()
        fine = refined(there.mesh, *there.dims, missing)
        if missing and here.unreduced and here.monoid != there.monoid:
            raise Refusal(
                f"its result is partial sums by {here.monoid}, and stated to be partial sums by {there.monoid}"
            )
        if there.sharded and not here.sharded:
            actions.append(Slice(tuple((d, atoms(axes, fine)) for d, axes in enumerate(there.dims) if axes)))
        if missing:
            actions.append(KeepFirst(atoms(missing, fine), there.monoid))
        if actions:
            partial_sums = union(here.unreduced, there.unreduced, there.mesh.axes)
            layout = there.partial(partial_sums, there.monoid or here.monoid)
            conversion.after(op, value, fine, actions, layout)


def _keep_first(conversion: Conversion, op: Any, part: Part, decision: Decision) -> None:
    """Let operands that enter once be partial values, too, and so the value that a reduction starts from."""
    kept = [(part.operands[i], axes) for i, axes in decision.keep]
    for number in part.inits if decision.partial and decision.monoid not in _IDEMPOTENT else ():
        if not starts_from_identity(op.operands[number], decision.monoid):
            if op.name != "stablehlo.reduce":
                raise Refusal(
                    "it starts from a value other than the identity, and its results are partial sums; reduce first"
                )
            kept.append((number, decision.partial))
    for number, axes in kept:
        value, fine = op.operands[number], refined(decision.mesh, axes)
        actions = [KeepFirst(atoms(axes, fine), decision.monoid)]
        op.operands[number] = conversion.splicer.act(fine, actions, value, conversion.layout(value).local, op)


def _reduce_again(conversion: Conversion, op: Any, decision: Decision, results: Sequence[Layout]) -> None:
    """Gather what every device has reduced of its shard, and reduce that: the region is associative, and what the
    reduction starts from its identity."""
    fine = refined(decision.mesh, decision.partial)
    over = atoms(decision.partial, fine)
    users = [uses(value) for value in op.results]
    again = op.clone(ir.InsertionPoint.after(op))
    again.attributes["dimensions"] = ir.DenseI64ArrayAttr.get([0])
    for i, (value, layout) in enumerate(zip(op.results, results, strict=True)):
        local = layout.local
        row = local.with_shape((1, *local.shape))
        steps = (
            Step(Local("reshape", Attributes(shape=row.shape), (row,)), (0,), (1,)),
            Step(AllGather(((0, over),)), (1,), (2,)),
        )
        types = (local, row, row.with_shape((fine.count(over), *local.shape)))
        (again.operands[i],) = conversion.splicer.program(StepPlan(fine, (0,), steps, (2,), types), [value], again)
        for user, number in users[i]:
            user.operands[number] = again.results[i]
        conversion.layouts[again.results[i]] = layout
        conversion.combined[again.results[i]] = decision.partial


def _by_place(part: Part, operands: Sequence[Layout], results: Sequence[Layout]) -> StepPlan:
    """The op written out where shards need to know their place."""
    layouts = (*operands, *results)
    mesh = next(x.mesh for x in layouts if not x.plain)
    if any(x.mesh != mesh for x in layouts if not x.plain):
        raise Refusal("its tensors are sharded on meshes of different device orders; reshard them to one")
    fine = refined(mesh, *(axes for x in layouts for axes in (*x.dims, x.unreduced)))
    placed = [tuple(x.placement(fine) for x in side) for side in (operands, results)]
    return on_shards(
        fine, part.definition.name, part.attributes, part.regions, tuple(x.type for x in operands),
        tuple(x.type for x in results), Strategy(placed[0], placed[1], (), True),
    )


def _rng(conversion: Conversion, op: Any, operands: Sequence[Layout], result: Layout) -> None:
    """Every device draws the numbers of its shard; those that hold the same shard take the first one's."""
    parts = parts_of(op, tuple(x.type for x in operands), (result.type,))
    if parts is None or result.unreduced or not all(x.plain for x in operands):
        raise Refusal("its operands are not replicated, or its result is said to be partial sums; reshard it first")
    part = parts[0]
    local, shape = result.local, np.array(result.local.shape, numpy_dtype(operands[2].type.dtype))
    fine = refined(result.mesh, *result.dims)
    sharing = tuple(a for a in fine.axes if a not in {n for axes in result.dims for n in atoms(axes, fine)})
    draw = Local("rng", part.attributes.updated(shape=local.shape), (local,))
    steps = [
        Step(Local("constant", Attributes(value=Literal(shape)), (operands[2].type,)), (), (2,)),
        Step(draw, (0, 1, 2), (3,)),
    ]
    if fine.count(sharing) > 1:
        steps += [Step(KeepFirst(sharing, "add"), (3,), (4,)), Step(AllReduce(sharing, "add"), (4,), (5,))]
    types = (*(x.type for x in operands), *(local for _ in steps[1:]))
    plan = StepPlan(fine, (0, 1), tuple(steps), (len(types) - 1,), types)
    conversion.replace(op, conversion.splicer.program(plan, list(op.operands)[:2], op), [result])


def _alone(action: Local) -> StepPlan:
    """A device program of one op without operands."""
    return StepPlan(Mesh({}), (), (Step(action, (), (0,)),), (0,), action.result_types)


def has_effects(op: Any) -> bool:
    """Whether computing an op on every device does something more often than once."""
    if op.name == "stablehlo.custom_call":
        return str(attributes_of(op).get("has_side_effect", "false")) == "true"
    return not op.name.startswith(("stablehlo.", "chlo.", "sdy.")) or op.name in (
        "stablehlo.rng", "stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv")
