"""Projections: tensor shardings seen as shardings of an op's factors, and the way back.

A dimension of factors ``ij`` is the index ``i * size(j) + j``: axes that shard the dimension shard ``i`` first, as far
as its size goes, then ``j``. With ``i=2, j=4`` and axis ``"x"`` of size 4, ``[{"x"}]`` is ``i: {"x":(1)2}`` and
``j: {"x":(2)2}``. Axes that can shard no more of a factor that others follow, since their sizes have no divisor in
common, *overflow*: they stay on the dimension, and what follows cannot be sharded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from eggshard.program.axes import Axes, AxisRef, append, begins_with
from eggshard.program.mesh import Mesh
from eggshard.program.op_sharding_rule import OpShardingRule, TensorFactors
from eggshard.program.sharding import DimSharding, Sharding
from eggshard.program.tensor_sharding import TensorSharding


@dataclass(frozen=True, slots=True)
class FactorSharding:
    """The axes that shard a factor of one tensor, major to minor.

    closed: propagation may add none. minor_most: no factor follows in its dimension, so any number of
    shards is possible.
    """

    axes: Axes = ()
    overflow: Axes = ()
    closed: bool = False
    minor_most: bool = True


@dataclass(slots=True)
class TensorProjection:
    """The shardings of the factors of one tensor, by number; a factor behind one that overflows may be missing."""

    factors: dict[int, FactorSharding] = field(default_factory=dict)
    replicated: Axes = ()
    unreduced: Axes = ()
    reduction: str = "add"

    def expand(self, factor: int, axes: Axes) -> bool:
        """Shard a factor by more axes, of which those that it has are a prefix; False, and no change, otherwise."""
        found = self.factors.get(factor)
        if found is None or found.axes == axes or not begins_with(axes, found.axes):
            return False
        self.factors[factor] = replace(found, axes=axes)
        return True

    def update(self, factor: int, axes: Axes, overflow: Axes = ()) -> bool:
        """Shard a factor by other axes; False if the tensor does not have it, or if it is so sharded."""
        found = self.factors.get(factor)
        if found is None or (found.axes, found.overflow) == (axes, overflow):
            return False
        self.factors[factor] = replace(found, axes=axes, overflow=overflow)
        return True

    def sharding(self, dims: TensorFactors, rule: OpShardingRule, mesh: Mesh, mesh_name: str | Mesh) -> TensorSharding:
        """The tensor's sharding. Factors behind one that is not sharded fully are dropped: shards would be strided."""
        out = []
        for factors in dims:
            axes: list[AxisRef] = []
            closed = False
            for factor in factors:
                found = self.factors[factor]
                closed |= found.closed
                size = _add(axes, found.axes, mesh)
                if found.overflow:
                    _add(axes, found.overflow, mesh)
                    break
                if size < rule.factors[factor].size:
                    break
            out.append(DimSharding(tuple(axes), not closed))
        return TensorSharding(mesh_name, Sharding(tuple(out), self.replicated, self.unreduced, self.reduction))


@dataclass(slots=True)
class Projection:
    """The factor shardings of an op's operands and results."""

    operands: list[TensorProjection]
    results: list[TensorProjection]

    @classmethod
    def of(
        cls, rule: OpShardingRule, operands: Sequence[TensorSharding | None], results: Sequence[TensorSharding | None],
        mesh: Mesh, closed_if_missing: bool = False,
    ) -> Projection:
        """The projection of stated shardings; a tensor without one is open, or closed if `closed_if_missing`."""
        def each(stated: Sequence[TensorSharding | None], mappings: Sequence[TensorFactors]) -> list[TensorProjection]:
            return [project(s, m, rule, mesh, closed_if_missing) for s, m in zip(stated, mappings, strict=True)]

        return cls(each(operands, rule.operands), each(results, rule.results))

    @property
    def tensors(self) -> Iterator[TensorProjection]:
        """The projections of all tensors, operands first."""
        yield from self.operands
        yield from self.results

    def expand(self, factor: int, axes: Axes) -> list[bool]:
        """Shard a factor by more axes wherever that extends its sharding; which tensors changed."""
        return [tensor.expand(factor, axes) for tensor in self.tensors]

    def update(self, factor: int, axes: Axes, overflow: Axes = ()) -> list[bool]:
        """Shard a factor by these axes everywhere; which tensors changed."""
        return [tensor.update(factor, axes, overflow) for tensor in self.tensors]


def project(
    sharding: TensorSharding | None, dims: TensorFactors, rule: OpShardingRule, mesh: Mesh,
    closed_if_missing: bool = False,
) -> TensorProjection:
    """The factor shardings of one tensor, whose dimensions have the factors `dims`."""
    if sharding is None:
        closed = closed_if_missing
        return TensorProjection({
            f: FactorSharding(closed=closed, minor_most=f == factors[-1]) for factors in dims for f in factors})
    found: dict[int, FactorSharding] = {}
    for factors, stated in zip(dims, sharding.dims, strict=True):
        if len(factors) == 1:
            found[factors[0]] = FactorSharding(stated.axes, (), not stated.open, True)
        else:
            _split(stated, factors, rule, mesh, found)
    stated_axes = sharding.sharding
    return TensorProjection(found, stated_axes.replicated, stated_axes.unreduced, stated_axes.reduction)


def _split(
    stated: DimSharding, factors: Sequence[int], rule: OpShardingRule, mesh: Mesh, found: dict[int, FactorSharding]
) -> None:
    """The factor shardings of a dimension of several factors: each takes of the axes what divides its size."""
    closed = not stated.open
    rest = list(reversed(stated.axes))
    for factor in factors[:-1]:
        left, axes = rule.factors[factor].size, []
        while rest:
            axis = rest[-1]
            size = axis.devices(mesh.axes)
            common = math.gcd(left, size)
            if common == 1 < size:
                break
            rest.pop()
            if common < size:
                axis, minor = axis.split(common, mesh.axes)
                rest.append(minor)
            axes.append(axis)
            left //= common
        overflow = tuple(reversed(rest)) if left > 1 else ()
        found[factor] = FactorSharding(tuple(axes), overflow, closed, False)
        if overflow:
            after = factors[factors.index(factor) + 1]
            found[after] = FactorSharding(closed=True, minor_most=after == factors[-1])
            return
    found[factors[-1]] = FactorSharding(tuple(reversed(rest)), (), closed, True)


def _add(axes: list[AxisRef], more: Axes, mesh: Mesh) -> int:
    """Append a factor's axes to its dimension's; the number of shards that they make."""
    size = 1
    for i, axis in enumerate(more):
        size *= axis.devices(mesh.axes)
        if i:
            axes.append(axis)
        else:
            append(axes, axis, mesh.axes)
    return size
