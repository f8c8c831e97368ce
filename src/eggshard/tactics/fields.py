"""Tactics for fields on grids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eggshard.errors import ShardingError
from eggshard.planner.choosing.narrowing import End, Restriction, Tactic
from eggshard.program.mesh import Mesh
from eggshard.tactics.leaves import Of, chosen_by
from eggshard.tactics.primitives import checked, sharded, written


def halo(*axes: str, dims: Sequence[int] | None = None, of: Of = None) -> Tactic:
    """Shard fields in space, so that devices exchange halos: by strips along one mesh axis, by tiles along several.

    dims: per axis the dimension that it shards; by default the first ones, in order. Fields are leaves that have there
    the sizes of the largest leaf. of: other leaves. ShardingError where axes and dims do not match.
    """
    at = tuple(range(len(axes)) if dims is None else dims)
    if not axes or len(at) != len(axes) or min(at) < 0:
        raise ShardingError(f"tactic halo{axes} with dims={dims}: give one dimension, from 0, per mesh axis")

    def restrictions(ends: Sequence[End], mesh: Mesh) -> Iterator[Restriction]:
        able = [end for end in ends if end.type.rank > max(at)]
        largest = max(able, key=lambda end: end.type.bytes, default=None)
        usual = [end for end in able if largest and _sizes(end, at) == _sizes(largest, at)]
        fields = chosen_by(of, ends, usual, f"a field with a dimension {max(at)}")
        for axis, dim in zip(axes, at, strict=True):
            yield from sharded(fields, checked(axis, mesh), dim)

    return Tactic(written("halo", *axes, dims=dims, of=of), restrictions)


def _sizes(end: End, dims: Sequence[int]) -> list[int]:
    return [end.type.shape[dim] for dim in dims]
