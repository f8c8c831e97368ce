"""Canonicalization of collectives and reshards: fused where two are one, and removed where they do nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.program.axes import in_mesh_order
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text, read_per_value
from eggshard.shardy.dead_ops import erase_dead
from eggshard.shardy.module import COLLECTIVES, ShardyModule, create, maker, manual_axes, uses
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.reshards.collectives.kinds import Collective, fused_pair
from eggshard.shardy.reshards.shared_reshards import RESHARD, same_shards, share_in_other_shapes


@shardy_pass("canonicalize-collectives", on="")
def canonicalize_collectives(module: ShardyModule, reshards: bool = True) -> None:
    """Fuse and drop collectives, reshards and manual computations, as jaxlib's `canonicalize` does with Shardy's ops.

    reshards: without it reshards stay as they are, as Shardy's export pipeline has it
    (``canonicalize{enable-patterns=sdy-collective}``).

    A reduction that is only sliced is a reduce-scatter and a slice of what is left, all-to-alls of different
    dimensions in a row are one, a reduction of what was placed in zeros is a gather, equal ops on the same value are
    one, and what changes nothing or has no users goes.
    """
    _canonicalize(module, (*COLLECTIVES, *((RESHARD,) if reshards else ())), common=True)


@shardy_pass("canonicalize-reshards", on="")
def canonicalize_reshards(module: ShardyModule, common: bool = True) -> None:
    """Drop reshards that only another reshard uses and all ops that no op uses, and share equal reshards.

    As jaxlib's `canonicalize` does; common: also let equal reshards of a value in a block be one, which Shardy's
    export pipeline does not (its ``canonicalize{enable-patterns=sdy-reshard}``).
    """
    _canonicalize(module, (RESHARD,), common)


def _canonicalize(module: ShardyModule, names: Collection[str], common: bool) -> None:
    """Simplify ops of these names until nothing changes; common: equal ops on one value become one."""
    pure = [name for name in names if name in COLLECTIVES]  # jaxlib keeps those that no op uses
    changed = True
    while changed:
        changed = erase_dead(module, pure)
        for op in module.walk("sdy.manual_computation") if pure else ():
            if _redundant_manual_computation(module, op) or _unused_inputs(op):
                changed = True
                break  # what was walked may be gone
        if changed:
            continue
        for op in module.walk(*names):
            if not uses(op.results[0]):
                continue
            if op.name == RESHARD:
                changed |= _folded(op)
                changed |= common and _same_as_before(op)
            elif _same_as_before(op) or any(simplify(module, op) for simplify in _PATTERNS[op.name]):
                changed = True
        if common and not changed and RESHARD in names:  # chains that end elsewhere are folded by now
            changed = share_in_other_shapes(module)


def _replace(op: Any, value: Any) -> bool:
    """Nothing is erased while ops are gone through: what has no uses goes afterwards."""
    op.results[0].replace_all_uses_with(value)
    return True


def _same_as_before(op: Any) -> bool:
    """An equal op on the same value stands earlier in the block."""
    for user, _ in uses(op.operands[0]):
        alike = user != op and user.name == op.name and user.block == op.block and _alike(user, op)
        if alike and uses(user.results[0]) and user.is_before_in_block(op):
            return _replace(op, user.results[0])
    return False


def _alike(first: Any, second: Any) -> bool:
    """Whether two ops have equal attributes; of reshards, whether they leave the same shards."""
    if first.name != RESHARD:
        return attributes_of(first) == attributes_of(second)
    return same_shards(*(TensorSharding.parse(str(op.attributes["sharding"])) for op in (first, second)))


def _nothing_moves(module: ShardyModule, op: Any) -> bool:
    """No axes."""
    step = Collective.read(op)
    return step is not None and not step.moved and _replace(op, op.operands[0])


def _equal_shardings(module: ShardyModule, op: Any) -> bool:
    """A permute to the sharding that is there."""
    source, target = module.sharding(op.operands[0]), TensorSharding.parse(str(op.attributes["out_sharding"]))
    if source is None:
        return False
    same = (source.axes, source.sharding.unreduced) == (target.axes, target.sharding.unreduced)
    return same and module.mesh(source) == module.mesh(target) and _replace(op, op.operands[0])


def _slice_of_gather(module: ShardyModule, op: Any) -> bool:
    """A slice along the axes that were gathered."""
    gather = maker(op.operands[0], "sdy.all_gather")
    same = gather is not None and str(gather.attributes["gathering_axes"]) == str(op.attributes["slicing_axes"])
    return same and _replace(op, gather.operands[0])


def _reduction_of_copies(module: ShardyModule, op: Any) -> bool:
    """A reduction of what was made partial values by keeping one copy."""
    made = maker(op.operands[0], "sdy.replicated_to_unreduced")
    same = made is not None and str(made.attributes["axes"]) == str(op.attributes["reduction_axes"])
    return same and _replace(op, made.operands[0])


def _reduction_of_placed_shards(module: ShardyModule, op: Any) -> bool:
    """A reduction of shards that were placed in zeros is a gather."""
    placed, reduced = _read(maker(op.operands[0], "sdy.sharded_to_unreduced")), Collective.read(op)
    if placed is None or reduced is None:
        return False
    if in_mesh_order(placed.moved, module.mesh(placed.to).axes) != reduced.axes:
        return False
    gather = Collective("all_gather", reduced.to, dims=placed.dims)
    return _replace(op, gather.create(op.operands[0].owner.operands[0], op))


def _read(op: Any) -> Collective | None:
    return None if op is None else Collective.read(op)


def _exchange_of_exchange(module: ShardyModule, op: Any) -> bool:
    """Two all-to-alls between different dimensions, the first of which no other op uses."""
    inner = maker(op.operands[0], "sdy.all_to_all")
    return inner is not None and len(uses(inner.results[0])) == 1 and _fused(module, inner, op, [op])


def _slice_of_reduction(module: ShardyModule, op: Any) -> bool:
    """A reduction of which nothing is used but equal slices, that begin with all of its axes."""
    reduction = maker(op.operands[0], "sdy.all_reduce")
    users = [user for user, _ in uses(reduction.results[0])] if reduction is not None else []
    if not users or not all(u.name == op.name and u.block == op.block and _same_slices(u, op) for u in users):
        return False
    return not any(u != op and u.is_before_in_block(op) for u in users) and _fused(module, reduction, op, users)


def _fused(module: ShardyModule, inner: Any, op: Any, users: Sequence[Any]) -> bool:
    """Put what an op and the one before it come to together in the place of the op's users."""
    first, second = _read(inner), _read(op)
    assert first is not None and second is not None
    moves, value = fused_pair(first.move, second.move, module.mesh(first.to).axes), inner.operands[0]
    for move in moves or ():
        made = move.on(first.to.mesh)
        scattered = made.to.updated(replicated=second.to.sharding.replicated)
        value = replace(made, to=scattered if move.kind == "reduce_scatter" else second.to).create(value, op)
    return moves is not None and all(_replace(user, value) for user in users)


def _same_slices(first: Any, second: Any) -> bool:
    return bool(first.attributes["slicing_axes"] == second.attributes["slicing_axes"])


def _folded(op: Any) -> bool:
    """Reshard what the reshard in front of this one reshards, if that has no other use."""
    changed = False
    while (inner := maker(op.operands[0], RESHARD)) is not None and len(uses(inner.results[0])) == 1:
        op.operands[0] = inner.operands[0]
        inner.erase()
        changed = True
    return changed


_Simplify = Callable[[ShardyModule, Any], bool]
_PATTERNS: dict[str, tuple[_Simplify, ...]] = {
    "sdy.all_gather": (_nothing_moves,),
    "sdy.all_slice": (_nothing_moves, _slice_of_gather, _slice_of_reduction),
    "sdy.all_reduce": (_nothing_moves, _reduction_of_copies, _reduction_of_placed_shards),
    "sdy.all_to_all": (_exchange_of_exchange,),
    "sdy.collective_permute": (_equal_shardings,),
    "sdy.reduce_scatter": (_nothing_moves,),
    "sdy.replicated_to_unreduced": (_nothing_moves,),
    "sdy.sharded_to_unreduced": (_nothing_moves,),
}


def _redundant_manual_computation(module: ShardyModule, op: Any) -> bool:
    """A manual computation over one device per group is its body; one without values and ops is nothing."""
    body = op.regions[0].blocks[0]
    inside = [inner.operation for inner in body.operations]
    if not len(op.operands) and not len(op.results) and len(inside) == 1:
        op.erase()
        return True
    shardings = [s for name in ("in_shardings", "out_shardings") for s in read_per_value(str(op.attributes[name]))]
    sizes = module.mesh(shardings[0]).axes if shardings else {}
    if math.prod(sizes.get(name, 1) for name in manual_axes(op)) != 1:
        return False
    for argument, operand in zip(body.arguments, op.operands, strict=True):
        argument.replace_all_uses_with(operand)
    returned = list(inside[-1].operands)
    for inner in inside[:-1]:
        inner.move_before(op)
    for result, value in zip(op.results, returned, strict=True):
        result.replace_all_uses_with(value)
    op.erase()
    return True


def _unused_inputs(op: Any) -> bool:
    """Operands that the body does not use."""
    body = op.regions[0].blocks[0]
    kept = [i for i, argument in enumerate(body.arguments) if uses(argument)]
    if len(kept) == len(body.arguments):
        return False
    shardings = read_per_value(str(op.attributes["in_shardings"]))
    attributes = {name: str(attribute) for name, attribute in attributes_of(op).items()}
    attributes["in_shardings"] = per_value_text([shardings[i] for i in kept])
    new = create(op.name, [op.operands[i] for i in kept], [r.type for r in op.results], attributes, op, regions=1)
    body.append_to(new.regions[0])
    for i in reversed(range(len(body.arguments))):
        if i not in kept:
            body.erase_argument(i)
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    op.erase()
    return True
