"""Shardy's choice of the axes that shard each factor of one op whose operands and results disagree.

Shardy considers one op at a time. Operands and results vote, with their global sizes, for the axes that shard their
factors, whatever a reshard would cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eggshard.planner.propagation.projection import Projection, TensorProjection
from eggshard.program.axes import Axes, any_overlap, shard_count
from eggshard.program.mesh import Mesh
from eggshard.program.op_sharding_rule import NEED_REPLICATION, PASS_THROUGH, PERMUTATION, REDUCTION, OpShardingRule
from eggshard.shardy.reshards.axis_lists import extends, joined, order, truncated

#: Among candidates with as many votes, the kinds of factors that go first.
_PRECEDENCE = {PASS_THROUGH: 3, REDUCTION: 2, PERMUTATION: 1, NEED_REPLICATION: 0}


def common_axes(projection: Projection, rule: OpShardingRule, sizes: Sequence[int], mesh: Mesh) -> list[Axes]:
    """Per factor the axes that shard it in every tensor. sizes: the elements of each operand, then of each result."""
    agreed = _agreed(projection, rule)
    if agreed is not None:
        return agreed
    ranked = [i for i, tensor in enumerate(rule.tensors) if tensor]
    plain = all(len(dim) == 1 for tensor in rule.tensors for dim in tensor)
    if len(ranked) == 2 and plain and not rule.of_kind(NEED_REPLICATION):
        return _of_preferred(projection, rule, sizes, mesh, *ranked)
    chosen = _elected(projection, rule, sizes, mesh)
    _move_to_batching(chosen, rule, mesh)
    return chosen


def agreed_axes(projection: Projection, factor: int) -> Axes | None:
    """The axes that shard a factor in all tensors that have it; None if they differ."""
    found = {tensor.factors[factor].axes for tensor in projection.tensors if factor in tensor.factors}
    return None if len(found) > 1 else found.pop() if found else ()


def shards_of(tensor: TensorProjection, mesh: Mesh) -> int:
    """The number of shards that all factors' axes make of a tensor."""
    return math.prod(shard_count((*found.axes, *found.overflow), mesh.axes) for found in tensor.factors.values())


def _agreed(projection: Projection, rule: OpShardingRule) -> list[Axes] | None:
    """The axes per factor if no tensor needs another sharding, else None."""
    out: list[Axes] = []
    for i, factor in enumerate(rule.factors):
        axes = agreed_axes(projection, i)
        if axes is None or (axes and factor.kind == NEED_REPLICATION):
            return None
        if any_overlap(axes, [axis for others in out for axis in others]):
            return None
        out.append(axes)
    return out


def _of_preferred(
    projection: Projection, rule: OpShardingRule, sizes: Sequence[int], mesh: Mesh, first: int, second: int,
) -> list[Axes]:
    """Return the factor axes of the preferred one of two tensors, which keeps its sharding.

    Preferred is one without axes on permutation factors, else the larger, else the one with more shards.
    """
    permuted, tensors = rule.of_kind(PERMUTATION), list(projection.tensors)

    def preference(number: int) -> tuple[bool, int, int]:
        tensor = tensors[number]
        exchanges = any(i in permuted and found.axes for i, found in tensor.factors.items())
        return not exchanges, sizes[number], shards_of(tensor, mesh)

    if preference(first) < preference(second):
        first, second = second, first
    kept, other = (tensors[i].factors for i in (first, second))
    taken = [axis for found in kept.values() for axis in found.axes]
    out: list[Axes] = []
    for i in range(len(rule.factors)):
        if i in kept or i not in other:
            out.append(kept[i].axes if i in kept else ())
        else:
            out.append(truncated(other[i].axes, taken))
    return out


@dataclass
class _Candidate:
    """Axes that might shard a factor: a prefix of those that shard it in some tensor.

    votes: the elements of the tensors that have it. gain: the shards that it makes of each that there are already.
    """

    factor: int
    axes: Axes
    precedence: int
    gain: int
    votes: int = 0

    @property
    def key(self) -> tuple[object, ...]:
        return self.votes, self.precedence, self.gain, self.factor, len(self.axes), tuple(map(order, self.axes))


def _elected(projection: Projection, rule: OpShardingRule, sizes: Sequence[int], mesh: Mesh) -> list[Axes]:
    """The candidates with the most votes, one after the other; each takes its axes from those that remain."""
    out: list[Axes] = [()] * len(rule.factors)
    candidates = _candidates(list(projection.tensors), rule, sizes, mesh)
    majors = _majors(rule)
    while candidates:
        free = [c for c in candidates if not majors.get(c.factor)]
        if not free:
            break
        best = max(free, key=lambda c: c.key)
        out[best.factor] = best.axes
        if shard_count(best.axes, mesh.axes) == rule.factors[best.factor].size:
            for factors in majors.values():
                factors.discard(best.factor)
        candidates = [c for c in candidates if _remains(c, best, out, mesh)]
    return out


def _remains(candidate: _Candidate, best: _Candidate, chosen: Sequence[Axes], mesh: Mesh) -> bool:
    """Whether a candidate, cut where it overlaps the one that was chosen, still adds axes to its factor."""
    if candidate.factor == best.factor:
        if not extends(candidate.axes, best.axes):
            return False
        candidate.gain = shard_count(candidate.axes, mesh.axes) // shard_count(best.axes, mesh.axes)
        return True
    left = truncated(candidate.axes, best.axes)
    if left == candidate.axes:
        candidate.gain = shard_count(left, mesh.axes)
        return True
    candidate.axes = left
    candidate.gain = shard_count(left, mesh.axes) // shard_count(chosen[candidate.factor], mesh.axes)
    return left != chosen[candidate.factor]


def _candidates(
    tensors: Sequence[TensorProjection], rule: OpShardingRule, sizes: Sequence[int], mesh: Mesh,
) -> list[_Candidate]:
    found = dict.fromkeys(
        (factor, sharding.axes[:n])
        for tensor in tensors for factor, sharding in tensor.factors.items() for n in range(1, len(sharding.axes) + 1)
    )
    out = [
        _Candidate(factor, axes, _PRECEDENCE[rule.factors[factor].kind], shard_count(axes, mesh.axes))
        for factor, axes in found
    ]
    for tensor, size in zip(tensors, sizes, strict=True):
        for candidate in out:
            sharding = tensor.factors.get(candidate.factor)
            if sharding and (
                    sharding.axes == candidate.axes or extends(sharding.axes, candidate.axes)):
                candidate.votes += size
    return out


def _majors(rule: OpShardingRule) -> dict[int, set[int]]:
    """Per factor those right before it in some dimension: they must be sharded fully before it may be."""
    out: dict[int, set[int]] = {}
    for tensor in rule.tensors:
        for dim in tensor:
            for major, minor in zip(dim, dim[1:], strict=False):
                out.setdefault(minor, set()).add(major)
    return out


def _move_to_batching(chosen: list[Axes], rule: OpShardingRule, mesh: Mesh) -> None:
    """The axes of factors that must be replicated go to pass-through factors of all tensors, where they divide."""
    ranked = [tensor for tensor in rule.tensors if tensor]
    for i in rule.of_kind(NEED_REPLICATION):
        axes, chosen[i] = chosen[i], ()
        if axes and all(any(i in dim for dim in tensor) for tensor in ranked):
            _distribute(axes, rule.batching, chosen, rule, mesh)


def _distribute(
    axes: Axes, factors: Iterable[int], chosen: list[Axes], rule: OpShardingRule, mesh: Mesh,
) -> None:
    left = list(axes)
    for factor in factors:
        size, shards = rule.factors[factor].size, shard_count(chosen[factor], mesh.axes)
        if size == 0 or size % shards:
            continue
        room = size // shards
        while left and room % left[0].devices(mesh.axes) == 0:
            axis = left.pop(0)
            chosen[factor] = joined(chosen[factor], (axis,), mesh)
            room //= axis.devices(mesh.axes)
