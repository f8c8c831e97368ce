"""Ops that move elements between shards, with their communication: an exchange between neighbours, or a reshard.

Where Shardy gathers the factor, or fetches whole neighbouring shards, only the rows that are needed travel here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.axes import Axes, axis_ref, difference
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import axis_list_text
from eggshard.shardy.local.emission import channels
from eggshard.shardy.local.halo_exchange import Exchange, Shards, grids, is_outermost, on_shards, refined
from eggshard.shardy.local.parts import captures
from eggshard.shardy.local.permutation.permuted import PERMUTED, Concatenate, Permuted
from eggshard.shardy.local.reshapes import local_axes
from eggshard.shardy.module import ShardyModule, create, rank, shape, uses
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.reshards.collectives.kinds import Collective


@shardy_pass("resolve-permutation-factors")
def resolve_permutation_factors(module: ShardyModule, enable_halo_exchange: bool = True) -> None:
    """Give ops along whose sharded dimensions elements move the communication that this takes.

    These are pads, slices, reversals, concatenations, windows and spatial dimensions of convolutions. They become
    computations on shards that fetch the rows that they need of each other. Without ``enable_halo_exchange``, in
    manual computations, and for ops that have none of that kind (windows that scatter; convolutions that are grouped
    or contract a sharded dimension) the dimensions are made whole before the op by ``sdy.reshard``, and sharded again
    behind it. So are dimensions of reshapes, as far as devices do not hold what their shards of the result are made of,
    and those of updates that are smaller than what they update. Kernels are made whole along their spatial dimensions,
    and nothing is reduced along these any more.
    """
    channel = channels(module)
    if enable_halo_exchange:
        for op in module.walk("stablehlo.concatenate"):
            _resolve(module, PERMUTED[op.name](op), channel)
    for op in module.walk(*PERMUTED):
        permuted = PERMUTED[op.name](op)
        for number in range(len(op.operands)):
            _make_whole(module, permuted, number)
        _resolve(module, permuted, channel if enable_halo_exchange else None)
    for op in module.walk("stablehlo.reshape"):
        _resolve_reshape(module, op)
    for op in module.walk("stablehlo.dynamic_update_slice"):
        _resolve_update(module, op)


def _resolve(module: ShardyModule, permuted: Permuted, channel: Iterator[int] | None) -> None:
    op = permuted.op
    stated = [module.sharding(value) for value in (*op.operands, *op.results)]
    named = next((s for s in stated if s is not None and any(s.axes)), None)
    if named is None or named.sharding.device is not None:
        return
    shardings = [s or TensorSharding.closed(named.mesh, [()] * rank(v))
                 for s, v in zip(stated, (*op.operands, *op.results), strict=True)]
    ins, outs = shardings[: len(op.operands)], shardings[len(op.operands) :]
    moving = [p for p in permuted.pairs if ins[p.operand].axes[p.dim] or outs[0].axes[p.result]]
    if not moving or all(_aligned(module, permuted, pair, ins, outs[0]) for pair in moving):
        return
    needed = _needed(module, permuted, ins, outs) if channel is not None else None
    if channel is None or needed is None:
        _replicate(module, permuted, ins, outs)
        return
    slices, operands = [], []
    for i, (x, sharding, target) in enumerate(zip(list(op.operands), ins, needed, strict=True)):
        if _take_source(module, permuted, i, target):
            slices.append(x.owner.operation)
            operands.append((op.operands[i], target))
        else:
            operands.append((_resharded(module, x, sharding, target, op), target))
    for old, new in zip(op.results, _exchanged(module, permuted, operands, outs, channel), strict=True):
        old.replace_all_uses_with(new)
    op.erase()
    for made in dict.fromkeys(slices):
        if not uses(made.results[0]):
            made.erase()


def _take_source(module: ShardyModule, permuted: Permuted, number: int, target: TensorSharding) -> bool:
    """Take what an operand of a concatenation is a slice of, if that lies where it is needed, instead of the operand.

    Rows that move travel once then, and a rotation is one permute.
    """
    if not isinstance(permuted, Concatenate):
        return False
    found = permuted.sliced_from(number)
    sharding = module.sharding(found[0]) if found is not None else None
    if found is None or sharding is None or sharding.axes != target.axes or sharding.mesh != target.mesh:
        return False
    permuted.op.operands[number], permuted.cuts[number] = found
    return True


def _exchanged(
    module: ShardyModule, permuted: Permuted, operands: Sequence[tuple[Any, TensorSharding]],
    outs: Sequence[TensorSharding], channel: Iterator[int],
) -> list[Any]:
    """The results of an op on shards that fetch what they need, before the op."""
    results = [(result.type, sharding) for result, sharding in zip(permuted.op.results, outs, strict=True)]
    mesh = refined(module.mesh(outs[0]), [s for _, s in (*operands, *results)])
    result_grids = grids(mesh, outs[0], shape(permuted.op.results[0]))

    once = list(dict.fromkeys(operands))

    def body(exchange: Exchange, shards: list[Shards]) -> list[Any]:
        each = [shards[once.index(operand)] for operand in operands]
        return permuted.on_shards(exchange, [Shards(x.value, list(x.grids)) for x in each], result_grids)

    return on_shards(module, channel, once, results, body, permuted.op)


def exchange_in_place(module: ShardyModule, op: Any, channel: Iterator[int] | None = None) -> None:
    """Compute an op on its shards where they lie: each device at a place of its own, with rows of others if need be.

    The op is one that `resolve_permutation_factors` resolves. Without a channel no rows are sent (the shards are even
    then): it stays where some device needs those of others. It also stays where operands would have to be resharded.
    """
    permuted = PERMUTED[op.name](op)
    values = (*op.operands, *op.results)
    stated = [module.sharding(value) for value in values]
    named = stated[-1]
    if named is None or any(s is not None and module.on_one_device(s) for s in stated):
        return
    given = [s or TensorSharding.closed(named.mesh, [()] * rank(v)) for s, v in zip(stated, values, strict=True)]
    ins, outs = given[: len(op.operands)], given[len(op.operands) :]
    needed = _needed(module, permuted, ins, outs)
    if needed is None or [s.axes for s in needed] != [s.axes for s in ins]:
        return
    moving = [p for p in permuted.pairs if ins[p.operand].axes[p.dim] or outs[0].axes[p.result]]
    if all(_aligned(module, permuted, pair, ins, outs[0]) for pair in moving):
        return
    operands = list(zip(op.operands, needed, strict=True))
    new = _exchanged(module, permuted, operands, outs, channel or channels(module))
    if channel is None and module.walk("stablehlo.collective_permute", root=new[0].owner.operation):
        new[0].owner.operation.erase()
        return
    for old, value in zip(op.results, new, strict=True):
        old.replace_all_uses_with(value)
    op.erase()


def _make_whole(module: ShardyModule, permuted: Permuted, number: int) -> None:
    """Make an operand whole along dimensions that no result has, but are not summed up shard by shard either.

    Shardy may have the result reduced along the axes that shard them: it holds no partial values along these then.
    """
    op, dims = permuted.op, permuted.whole(number)
    x, sharding = op.operands[number], module.sharding(op.operands[number])
    if sharding is None or sharding.sharding.device is not None:
        return
    gathered = tuple(axis for d in dims for axis in sharding.axes[d])
    whole = sharding.with_axes(() if d in dims else axes for d, axes in enumerate(sharding.axes))
    op.operands[number] = _resharded(module, x, sharding, whole, op)
    for user, _ in uses(op.results[0]) if gathered else ():
        reduction = Collective.read(user)
        if reduction is None or reduction.kind != "all_reduce":
            continue
        left = difference(reduction.axes, gathered, module.mesh(reduction.to).axes)
        if left:
            user.attributes["reduction_axes"] = ir.Attribute.parse(axis_list_text(left))
        else:
            user.results[0].replace_all_uses_with(op.results[0])
            user.erase()


def _aligned(
    module: ShardyModule, permuted: Permuted, pair: Any, ins: list[TensorSharding], out: TensorSharding
) -> bool:
    """Whether every device already has what it needs along a pair of dimensions, from the same index on."""
    axes = ins[pair.operand].axes[pair.dim], out.axes[pair.result]
    if axes[0] != axes[1] or not axes[0] or ins[pair.operand].mesh != out.mesh:
        return not any(axes)
    mesh = refined(module.mesh(out), [out])
    tiles = [grids(mesh, out, [n] * len(out.axes))[pair.result].tile for n in (
        shape(permuted.op.operands[pair.operand])[pair.dim], shape(permuted.op.results[0])[pair.result])]
    return permuted.aligned(pair.dim, *tiles)


def _needed(
    module: ShardyModule, permuted: Permuted, ins: list[TensorSharding], outs: list[TensorSharding]
) -> list[TensorSharding] | None:
    """The operands' shardings for an exchange; None where there can be none."""
    op, result = permuted.op, outs[0]
    if any(s.mesh != result.mesh or s.sharding.unreduced for s in (*ins, *outs) if any(s.axes) or s.sharding.unreduced):
        return None
    if any(out.axes != result.axes for out in outs) or not is_outermost(op) or captures(op):
        return None
    if any(0 in shape(x) for x in op.operands):  # which cannot be sharded like the results
        return None
    if not any(result.axes[pair.result] for pair in permuted.pairs):
        return None
    found: list[list[Axes] | None] = [
        permuted.operand_axes(i, result.axes, s.axes) for i, s in enumerate(ins)]
    return None if None in found else [TensorSharding.closed(result.mesh, axes) for axes in found if axes is not None]


def _resharded(module: ShardyModule, x: Any, given: TensorSharding, target: TensorSharding, before: Any) -> Any:
    """The value at another sharding."""
    if given.axes == target.axes and (given.mesh == target.mesh or not any(given.axes)):
        return x
    return create("sdy.reshard", [x], [x.type], {"sharding": str(target)}, before).results[0]


def _replicate(
    module: ShardyModule, permuted: Permuted, ins: list[TensorSharding], outs: list[TensorSharding]
) -> None:
    """Make the dimensions along which elements move whole, for the op alone."""
    op = permuted.op
    pairs = [p for p in permuted.pairs if not _aligned(module, permuted, p, ins, outs[0])]
    for i, (x, sharding) in enumerate(zip(list(op.operands), ins, strict=True)):
        whole = sharding.with_axes(
            () if any(p.operand == i and p.dim == d for p in pairs) else axes for d, axes in enumerate(sharding.axes))
        op.operands[i] = _resharded(module, x, sharding, whole, op)
    dims = {p.result for p in pairs}
    for result, sharding in zip(op.results, outs, strict=True):
        whole = sharding.with_axes(() if d in dims else axes for d, axes in enumerate(sharding.axes))
        _resharded_behind(module, op, result, sharding, whole)


def _resharded_behind(
    module: ShardyModule, op: Any, result: Any, sharding: TensorSharding, narrow: TensorSharding
) -> None:
    """Let the op give its result at another sharding, and reshard it to its own for all users."""
    if narrow != sharding:
        module.set_sharding(result, narrow)
        at = ir.InsertionPoint.after(op)
        reshard = create("sdy.reshard", [result], [result.type], {"sharding": str(sharding)}, at)
        result.replace_all_uses_except(reshard.results[0], reshard)


def _resolve_update(module: ShardyModule, op: Any) -> None:
    """Make an update whole along dimensions in which it may lie anywhere."""
    update, sharding = op.operands[1], module.sharding(op.operands[1])
    if sharding is not None and sharding.sharding.device is None:
        whole = sharding.with_axes(
            axes if n == all_ else () for axes, n, all_ in zip(
                sharding.axes, shape(update), shape(op.operands[0]), strict=True))
        op.operands[1] = _resharded(module, update, sharding, whole, op)


def _resolve_reshape(module: ShardyModule, op: Any) -> None:
    """Make dimensions whole as far as devices cannot reshape what they have."""
    values = op.operands[0], op.results[0]
    stated = [module.sharding(value) for value in values]
    named = next((s for s in stated if s is not None and any(s.axes)), None)
    if named is None or named.sharding.device is not None:
        return
    given = [s or TensorSharding.closed(named.mesh, [()] * rank(x)) for s, x in zip(stated, values, strict=True)]
    if given[0].mesh != given[1].mesh or min((*shape(values[0]), *shape(values[1])), default=0) < 0:
        return
    mesh = refined(module.mesh(named), given)
    names = [[grid.axes for grid in grids(mesh, s, shape(x))] for s, x in zip(given, values, strict=True)]
    kept = local_axes((shape(values[0]), shape(values[1])), (names[0], names[1]), mesh.axes)
    narrow = [
        s if axes == old else TensorSharding(s.mesh, s.with_axes(
            tuple(axis_ref(name) for name in dim) for dim in axes).sharding.canonical(mesh))
        for s, axes, old in zip(given, kept, names, strict=True)]
    op.operands[0] = _resharded(module, values[0], given[0], narrow[0], op)
    _resharded_behind(module, op, values[1], given[1], narrow[1])
