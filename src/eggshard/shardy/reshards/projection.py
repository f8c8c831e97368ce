"""The shardings of an op's tensors, seen as shardings of its rule's factors, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from eggshard.placement.sharding import DimSharding, Sharding
from eggshard.program.mesh import AxisRef, Mesh
from eggshard.shardy.attributes import Axes, TensorSharding
from eggshard.shardy.reshards.axis_lists import count_of, joined, size_of, sub_axis
from eggshard.shardy.rules import OpShardingRule
from eggshard.shardy.rules.rule import TensorFactors


@dataclass
class FactorSharding:
    """The axes that shard one factor in one tensor.

    overflow: axes that follow in its dimension and divide neither it nor, without strides, the factors after it.
    """

    axes: Axes = ()
    overflow: Axes = ()
    closed: bool = True


@dataclass
class TensorProjection:
    """The shardings of a tensor's factors, and the fields of its sharding that have none.

    Factors that stand in a dimension beyond one with overflow axes are left out, but for the first of them.
    """

    factors: dict[int, FactorSharding] = field(default_factory=dict)
    replicated: Axes = ()
    unreduced: Axes = ()
    reduction: str = "add"

    @property
    def overflows(self) -> bool:
        return any(factor.overflow for factor in self.factors.values())

    def shards(self, mesh: Mesh) -> int:
        """The number of shards that all factors' axes make."""
        return math.prod(count_of((*f.axes, *f.overflow), mesh) for f in self.factors.values())

    def update(self, factor: int, axes: Axes, overflow: Axes = ()) -> bool:
        """Give a factor these axes; whether that changed the tensor."""
        found = self.factors.get(factor)
        if found is None or (found.axes, found.overflow) == (axes, overflow):
            return False
        found.axes, found.overflow = axes, overflow
        return True

    def sharding(self, dims: TensorFactors, rule: OpShardingRule, mesh_name: str | Mesh, mesh: Mesh) -> TensorSharding:
        """The tensor's sharding. Axes of factors after one that is not fully sharded are not written."""
        return TensorSharding(mesh_name, Sharding(
            tuple(self._dimension(dim, rule, mesh) for dim in dims), self.replicated, self.unreduced, self.reduction))

    def _dimension(self, dim: Sequence[int], rule: OpShardingRule, mesh: Mesh) -> DimSharding:
        axes: Axes = ()
        closed = False
        for factor in dim:
            found = self.factors.get(factor, FactorSharding())
            closed |= found.closed
            axes = joined(axes, (*found.axes, *found.overflow), mesh)
            if found.overflow or count_of(found.axes, mesh) < rule.factors[factor].size:
                break
        return DimSharding(axes, not closed)


@dataclass
class Projection:
    """An op's operands and results."""

    operands: list[TensorProjection]
    results: list[TensorProjection]

    @property
    def tensors(self) -> list[TensorProjection]:
        return self.operands + self.results

    def agreed(self, factor: int) -> Axes | None:
        """The axes that shard a factor in all tensors that have it; None if they differ."""
        found = {tensor.factors[factor].axes for tensor in self.tensors if factor in tensor.factors}
        return None if len(found) > 1 else found.pop() if found else ()


def project(
    operands: Iterable[TensorSharding | None], results: Iterable[TensorSharding | None], rule: OpShardingRule,
    mesh: Mesh,
) -> Projection:
    """The factors' shardings; a tensor without a sharding is closed and replicated."""
    sides = (operands, rule.operands), (results, rule.results)
    projected = [
        [project_tensor(sharding, dims, rule, mesh) for sharding, dims in zip(shardings, tensors, strict=True)]
        for shardings, tensors in sides
    ]
    return Projection(*projected)


def project_tensor(
    sharding: TensorSharding | None, dims: TensorFactors, rule: OpShardingRule, mesh: Mesh,
) -> TensorProjection:
    """A dimension's axes go to its factors, the first one first, each until it is fully sharded; axes may be split.

    The last factor of a dimension takes all that is left, whether it divides it or not.
    """
    out = TensorProjection()
    for i, dim in enumerate(dims):
        stated = sharding.dims[i] if sharding else DimSharding()
        _project_dimension(stated, dim, rule, mesh, out.factors)
    if sharding:
        stated_all = sharding.sharding
        out.replicated, out.unreduced, out.reduction = (
            stated_all.replicated, stated_all.unreduced, stated_all.reduction)
    return out


def _project_dimension(
    stated: DimSharding, dim: Sequence[int], rule: OpShardingRule, mesh: Mesh, out: dict[int, FactorSharding],
) -> None:
    left = list(reversed(stated.axes))  # the next axis is the last
    overflown = False
    for factor in dim:
        found = out.setdefault(factor, FactorSharding())
        if overflown:
            found.closed = True
            return
        found.closed = not stated.open
        if factor == dim[-1]:
            found.axes = joined(found.axes, reversed(left), mesh)
            return
        size = rule.factors[factor].size
        size = fill(found, size, left, mesh)
        if size > 1 and left:
            overflown = True
            found.overflow = joined(found.overflow, reversed(left), mesh)
            left.clear()


def fill(found: FactorSharding, size: int, left: list[AxisRef], mesh: Mesh) -> int:
    """Move axes from the end of ``left`` to a factor while they divide what is left of its size, which is returned."""
    while left:
        axis = left[-1]
        count = size_of(axis, mesh)
        common = math.gcd(size, count)
        if common == 1 and count > 1:
            break
        left.pop()
        if count > common:
            left.append(sub_axis(axis.name, axis.pre * common, count // common, mesh))
            axis = sub_axis(axis.name, axis.pre, common, mesh)
        found.axes = (*found.axes, axis)
        size //= common
    return size
