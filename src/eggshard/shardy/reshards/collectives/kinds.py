"""Shardy's collectives as values: what each does to a sharding, its attributes, and reading and creating the op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from eggshard.program.axes import Axes, AxisRef, Sizes, merged, shard_count, without_suffix
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import (
    Exchange,
    axis_list_text,
    axis_lists_text,
    exchanges_text,
    read_all_to_all,
    read_axis_list,
    read_axis_lists,
)
from eggshard.shardy.module import create

#: The attribute with the axes per dimension of these.
PER_DIMENSION = {
    "all_gather": "gathering_axes", "all_slice": "slicing_axes", "reduce_scatter": "reduce_scatter_axes",
    "sharded_to_unreduced": "axes",
}
#: The attribute with the set of axes of these.
PER_TENSOR = {"all_reduce": "reduction_axes", "replicated_to_unreduced": "axes"}
#: Names of the ops, without ``sdy.``.
KINDS = (*PER_DIMENSION, *PER_TENSOR, "all_to_all", "collective_permute")


def well_formed(dims: Sequence[Axes], sizes: Sizes) -> bool:
    """Whether axes are those of one refinement of the mesh, each used once."""
    axes = [axis for d in dims for axis in d]
    return all(a.can_coexist(b) and not a.overlaps(b) for i, a in enumerate(axes) for b in axes[:i])


@dataclass(frozen=True, slots=True)
class Move:
    """A collective without a mesh: its kind, the axes per dimension and partial values after it, and what it moves.

    dims, axes and exchanges are those of `Collective`.
    """

    kind: str
    after: tuple[Axes, ...]
    unreduced: Axes = ()
    dims: tuple[Axes, ...] = ()
    axes: Axes = ()
    exchanges: tuple[Exchange, ...] = ()

    def follows(self, before: Sequence[Axes], sizes: Sizes) -> bool:
        """Whether the op verifies on a sharding of these axes: they move to what is stated, which is well-formed."""
        return well_formed(self.after, sizes) and self._expected(before, sizes) == self.after

    def _expected(self, before: Sequence[Axes], sizes: Sizes) -> tuple[Axes | None, ...]:
        if self.kind == "collective_permute":
            pairs = zip(before, self.after, strict=True)
            return tuple(b if shard_count(a, sizes) == shard_count(b, sizes) else None for a, b in pairs)
        out: list[Axes | None] = list(before)
        if self.kind in ("all_slice", "reduce_scatter"):
            out = [merged((*a, *b), sizes) for a, b in zip(before, self.dims, strict=True)]
        elif self.kind in ("all_gather", "sharded_to_unreduced"):
            out = [without_suffix(a, b, sizes) for a, b in zip(before, self.dims, strict=True)]
        for exchange in self.exchanges:
            out[exchange.source] = without_suffix(before[exchange.source], exchange.axes, sizes)
            out[exchange.target] = merged((*before[exchange.target], *exchange.axes), sizes)
        return tuple(out)

    def on(self, mesh: str | Mesh) -> Collective:
        """The collective on a mesh."""
        to = TensorSharding.closed(mesh, self.after, self.unreduced)
        return Collective(self.kind, to, self.dims, self.axes, self.exchanges)


@dataclass(frozen=True, slots=True)
class Collective:
    """One op ``sdy.<kind>`` and the sharding of its result.

    dims: the axes per dimension that are gathered, sliced or scattered; axes: those that are reduced, or become
    partial values; exchanges: the parameters of an all-to-all. A permute has none of them.
    """

    kind: str
    to: TensorSharding
    dims: tuple[Axes, ...] = ()
    axes: Axes = ()
    exchanges: tuple[Exchange, ...] = ()

    @classmethod
    def read(cls, op: Any) -> Collective | None:
        """The collective that an operation is; None for other ops."""
        kind = op.name.removeprefix("sdy.")
        if kind not in KINDS or kind == op.name:
            return None
        to = TensorSharding.parse(str(op.attributes["out_sharding"]))
        if kind in PER_DIMENSION:
            return cls(kind, to, dims=read_axis_lists(str(op.attributes[PER_DIMENSION[kind]])))
        if kind in PER_TENSOR:
            return cls(kind, to, axes=read_axis_list(str(op.attributes[PER_TENSOR[kind]])))
        if kind == "all_to_all":
            return cls(kind, to, exchanges=read_all_to_all(str(op.attributes["params"])))
        return cls(kind, to)

    def create(self, value: Any, before: Any) -> Any:
        """The result of a new op on a value."""
        attributes = {"out_sharding": str(self.to)}
        if self.kind in PER_DIMENSION:
            attributes[PER_DIMENSION[self.kind]] = axis_lists_text(self.dims)
        elif self.kind in PER_TENSOR:
            attributes[PER_TENSOR[self.kind]] = axis_list_text(self.axes)
        elif self.kind == "all_to_all":
            attributes["params"] = exchanges_text(self.exchanges)
        return create(f"sdy.{self.kind}", [value], [value.type], attributes, before).results[0]

    @property
    def move(self) -> Move:
        """The collective on whatever mesh."""
        return Move(self.kind, self.to.axes, self.to.sharding.unreduced, self.dims, self.axes, self.exchanges)

    @property
    def reduces(self) -> bool:
        """Whether it adds up partial values."""
        return self.kind in ("all_reduce", "reduce_scatter")

    @property
    def moved(self) -> tuple[AxisRef, ...]:
        """Every axis along which devices exchange, none of a permute's."""
        return (*(a for d in self.dims for a in d), *self.axes, *(a for e in self.exchanges for a in e.axes))


def fused(moves: Sequence[Move], sizes: Sizes, source: Sequence[Axes], reordered: bool) -> list[Move]:
    """Fuse consecutive slices, all-to-alls between different dimensions, and reductions that are then sliced.

    Permutes that change nothing are dropped. reordered: the first permute leads to another order of devices.
    """
    out: list[Move] = []
    at = tuple(source)
    for move in moves:
        idle = move.kind == "collective_permute" and not reordered and move.after == at
        reordered, at = reordered and move.kind != "collective_permute", move.after
        if idle:
            continue
        together = fused_pair(out[-1], move, sizes) if out else None
        out[len(out) - bool(together):] = together or [move]
    return out


def fused_pair(first: Move, second: Move, sizes: Sizes) -> list[Move] | None:
    """What two moves in a row come to: one, or a reduce-scatter and the slice that is left; None if they stay."""
    if first.kind == second.kind == "all_slice":
        pairs = zip(first.dims, second.dims, strict=True)
        return [replace(second, dims=tuple(merged((*a, *b), sizes) for a, b in pairs))]
    if first.kind == second.kind == "all_to_all":
        touched = [{dim for e in move.exchanges for dim in (e.source, e.target)} for move in (first, second)]
        if touched[0] & touched[1]:
            return None
        exchanges = sorted(first.exchanges + second.exchanges, key=lambda e: e.source)
        return [replace(second, exchanges=tuple(exchanges))]
    if (first.kind, second.kind) != ("all_reduce", "all_slice"):
        return None
    scattered, rest = _leading(second.dims, first.axes)
    if sum(map(len, scattered)) < len(first.axes):  # the slices do not begin with all axes that are reduced
        return None
    after = tuple(merged((*a, *b), sizes) for a, b in zip(first.after, scattered, strict=True))
    scatter = Move("reduce_scatter", after, first.unreduced, dims=scattered)
    return [scatter, replace(second, dims=rest)] if any(rest) else [scatter]


def _leading(dims: Sequence[Axes], axes: Axes) -> tuple[tuple[Axes, ...], tuple[Axes, ...]]:
    """Split each dimension's axes into the longest prefix whose axes are all among ``axes``, and the rest."""
    lengths = [next((n for n, axis in enumerate(d) if axis not in axes), len(d)) for d in dims]
    return (
        tuple(d[:n] for d, n in zip(dims, lengths, strict=True)),
        tuple(d[n:] for d, n in zip(dims, lengths, strict=True)),
    )
