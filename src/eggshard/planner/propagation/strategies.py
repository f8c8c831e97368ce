"""Propagation strategies for one step at one op: factor shardings flow between its operands and results.

All tensors of the op can agree, along a factor, on the longest list of axes of which every tensor's own list is a
prefix; where two lists diverge, on their common prefix. The *basic* strategy propagates the part of it to which no
tensor objects. The *aggressive* one asks each tensor by itself: factors that compete for an axis are served in the
order of the sizes of the tensors that they come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from eggshard.planner.propagation.projection import FactorSharding, Projection, TensorProjection
from eggshard.program.axes import Axes, AxisRef, begins_with, shard_count
from eggshard.program.mesh import Mesh
from eggshard.program.op_sharding_rule import OpShardingRule

#: Which way shardings flow along a factor, numbered as Shardy does; of two directions | allows what either does.
NOWHERE, FORWARD, BACKWARD, BOTH = 0, 1, 2, 3


@dataclass(frozen=True, eq=False)
class Step:
    """What a strategy knows of an op; compared by identity, since steps are looked up all the time.

    directions: per factor. conservative: no sub-axes are propagated. elementwise: of equal sources, the factor that
    more axes shard goes first, and operands take from each other only what the results take too.
    """

    rule: OpShardingRule
    directions: tuple[int, ...]
    conservative: bool = False
    elementwise: bool = False

    @cached_property
    def moves(self) -> bool:
        """Whether anything flows."""
        return any(self.directions)

    def truncated(self, axes: Axes, mesh: Mesh, allowed: Callable[[AxisRef, int], AxisRef | None]) -> Axes:
        """The longest prefix in which every axis is allowed, given the number of shards before it.

        The last may be a prefix of what it was.
        """
        size = 1
        for i, axis in enumerate(axes):
            kept = allowed(axis, size)
            if kept is None or (self.conservative and kept.size):
                return axes[:i]
            if kept != axis:
                return (*axes[:i], kept)
            size *= axis.devices(mesh.axes)
        return axes


#: Changes a projection on a mesh; which tensors changed, operands first.
Strategy = Callable[[Step, Projection, Mesh], list[bool]]


def basic(step: Step, projection: Projection, mesh: Mesh) -> list[bool]:
    """Along each factor the axes that fit every tensor of the op."""
    changed = [False] * (len(projection.operands) + len(projection.results))
    for factor, direction in enumerate(step.directions):
        axes = agreed_axes(projection, factor, direction)
        if not axes:
            continue
        size = step.rule.factors[factor].size

        def fits_all(axis: AxisRef, shards: int, factor: int = factor, size: int = size) -> AxisRef | None:
            found: AxisRef | None = axis
            for tensor in projection.tensors:
                found = apart_from_other_factors(found, tensor, factor)
                own = tensor.factors.get(factor)
                if found is not None and own is not None:
                    found = fits_factor(found, tensor, own, shards, size, mesh)
                if found is None:
                    return None
            return found

        axes = step.truncated(axes, mesh, fits_all)
        for i, grown in enumerate(projection.expand(factor, axes)):
            changed[i] |= grown
    return changed


def aggressive(step: Step, projection: Projection, mesh: Mesh) -> list[bool]:
    """Along each factor what fits each tensor, the factors of the largest sources first."""
    wanted = [agreed_axes(projection, factor, direction) for factor, direction in enumerate(step.directions)]
    changed = [False] * (len(projection.operands) + len(projection.results))
    if not any(wanted):
        return changed
    order = [f for f in _by_source(step, projection, wanted, mesh) if wanted[f]]
    first_result = len(projection.operands)
    numbered = [*enumerate(projection.results, first_result), *enumerate(projection.operands)]
    for number, tensor in numbered:
        for factor in order:
            axes = _fitting(step, tensor, factor, wanted[factor], mesh)
            if axes and number < first_result and step.elementwise:
                for result in projection.results:
                    own = result.factors.get(factor)
                    if own is not None and own.axes != axes and begins_with(axes, own.axes):
                        axes = own.axes
            changed[number] |= bool(axes) and tensor.expand(factor, axes)
    return changed


def agreed_axes(projection: Projection, factor: int, direction: int) -> Axes:
    """The axes on which all tensors agree along a factor; those from which nothing flows only object."""
    if direction == NOWHERE:
        return ()
    sources, others = projection.operands, projection.results
    if direction == BACKWARD:
        sources, others = others, sources
    axes: Axes = ()
    grows = True
    for tensors in (sources, others):
        for tensor in tensors:
            found = tensor.factors.get(factor)
            if found is not None:
                axes, grows = _agreed(axes, found.axes, grows)
        grows = grows and direction == BOTH
    return axes


def _agreed(axes: Axes, more: Axes, grows: bool) -> tuple[Axes, bool]:
    """What two lists agree on, at most the first unless it `grows`; and whether it may grow further."""
    for i, (axis, other) in enumerate(zip(axes, more, strict=False)):
        if axis == other:
            continue
        if other.is_prefix_of(axis):
            if i + 1 < len(more):
                return (*axes[:i], other), False
        elif axis.is_prefix_of(other):
            if not grows or i + 1 < len(axes):
                return axes[: i + 1], False
            axes = (*axes[:i], other)
        else:
            return axes[:i], False
    return (axes + more[len(axes) :] if grows else axes), grows


def apart_from_other_factors(axis: AxisRef | None, tensor: TensorProjection, factor: int) -> AxisRef | None:
    """The longest prefix of an axis that shards no other factor of a tensor."""
    for number, other in tensor.factors.items():
        if axis is None:
            return None
        if number != factor:
            if other.overflow:
                axis = axis.prefix_without_overlap(other.overflow)
            if axis is not None and other.axes:
                axis = axis.prefix_without_overlap(other.axes)
    return axis


def fits_factor(
    axis: AxisRef, tensor: TensorProjection, own: FactorSharding, shards: int, size: int, mesh: Mesh
) -> AxisRef | None:
    """The longest prefix of an axis that a tensor's factor may be sharded by, behind others that make `shards`."""
    found: AxisRef | None = axis
    if tensor.replicated:
        found = axis.prefix_without_overlap(tensor.replicated)
    if found is not None and tensor.unreduced:
        found = found.prefix_without_overlap(tensor.unreduced)
    if found is None:
        return None
    for present in own.axes:
        if present.contains(found):
            return found
    if not own.closed and not own.overflow:
        if own.minor_most:
            return found
        if size % shards == 0:
            count = found.devices(mesh.axes)
            common = math.gcd(size // shards, count)
            if common == count:
                return found
            if common > 1:
                return found.split(common, mesh.axes)[0]
    if own.axes and own.axes[-1].is_prefix_of(found):
        return own.axes[-1]
    return None


def _fitting(step: Step, tensor: TensorProjection, factor: int, wanted: Axes, mesh: Mesh) -> Axes:
    """What of the wanted axes a tensor's factor may be sharded by; nothing if that would not be more than now."""
    own = tensor.factors.get(factor)
    if own is None:
        return ()
    size = step.rule.factors[factor].size
    axes = step.truncated(wanted, mesh, lambda axis, shards: fits_factor(axis, tensor, own, shards, size, mesh))
    if own.axes == axes or not begins_with(axes, own.axes):
        return ()
    return step.truncated(axes, mesh, lambda axis, _: apart_from_other_factors(axis, tensor, factor))


def _by_source(step: Step, projection: Projection, wanted: Sequence[Axes], mesh: Mesh) -> list[int]:
    """The factors, those that come from the largest tensors first; a source is sharded by all that is wanted."""
    sources = [(-1, -1)] * len(wanted)
    for number, tensor in enumerate(projection.tensors):
        size = math.prod(step.rule.factors[f].size for f in tensor.factors)
        for factor, own in tensor.factors.items():
            if wanted[factor] and begins_with(own.axes, wanted[factor]) and size > sources[factor][0]:
                sources[factor] = size, number

    def rank(factor: int) -> tuple[int, int, int, int]:
        size, number = sources[factor]
        shards = shard_count(wanted[factor], mesh.axes) if step.elementwise else 0
        return -size, -shards, number, factor

    return sorted(range(len(wanted)), key=rank)
