"""Gathers and scatters of rows that random modules are made of: most look up each row at its own position."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tests.shardy.module_ops import array, family, scalar_region

LESS = "comparison_direction = #stablehlo<comparison_direction LT>"


class Lookup(NamedTuple):
    """A table, indices of its dimensions `mapped`, in vectors along dimension `along`, and slices of `sizes`.

    shape: of what is looked up; windows: its dimensions that are the slices', without `single`, which are dropped.
    """

    table: Any
    indices: Any
    mapped: list[int]
    along: int
    sizes: list[int]
    shape: tuple[int, ...]
    windows: list[int]
    single: list[int]


def number(w: Any, value: int, *shape: int) -> Any:
    """A constant without a sharding: jaxlib takes constants for equal whatever their shardings."""
    text = f"value = dense<{value}> : tensor<{'x'.join([*map(str, shape), 'i32'])}>"
    return w.emit("stablehlo.constant", [], [(shape, "i32")], text, stated=False)[0]


def row_index(w: Any, rows: int, shape: tuple[int, ...], kind: str) -> Any:
    """An index of that shape for each row: its position in the way of that kind, or something else."""
    if kind == "looked up":
        return w.argument(shape, "i32")
    if kind in ("whole", "last dimension"):
        dim = 0 if kind == "whole" else len(shape) - 1
        return w.emit("stablehlo.iota", [], [(shape, "i32")], f"iota_dimension = {dim} : i64")[0]
    (index,) = w.emit("stablehlo.iota", [], [((rows,), "i32")], "iota_dimension = 0 : i64")
    if kind == "wrapped":
        zero, size = number(w, 0), number(w, rows, rows)
        (zeros,) = w.emit("stablehlo.broadcast_in_dim", [zero], [((rows,), "i32")], "broadcast_dimensions = array<i64>")
        (negative,) = w.emit("stablehlo.compare", [index, zeros], [((rows,), "i1")], LESS)
        (more,) = w.emit("stablehlo.add", [index, size], [((rows,), "i32")])
        (index,) = w.emit("stablehlo.select", [negative, more, index], [((rows,), "i32")])
    if kind == "clamped":
        low, high = number(w, 0), number(w, rows - 1)
        (index,) = w.emit("stablehlo.clamp", [low, index, high], [((rows,), "i32")])
    if kind == "reshaped" and math.prod(shape) == rows:
        return w.emit("stablehlo.reshape", [index], [(shape, "i32")])[0]
    return w.emit("stablehlo.broadcast_in_dim", [index], [(shape, "i32")], "broadcast_dimensions = array<i64: 0>")[0]


def lookup(w: Any) -> Lookup:
    """Indices into a table by its rows and other dimensions, in any order, windows of any sizes."""
    rng = w.rng
    rows, rank = w.size() or 1, rng.randint(2, 4)
    table = w.argument((rows, *(w.size() or 1 for _ in range(rank - 1))))
    mapped = [0, *rng.sample(range(1, rank), k=rng.randint(1, rank - 1))]
    rng.shuffle(mapped)
    more = [rng.choice((1, 2, 4)) for _ in range(rng.randrange(3))]
    batch = [rows if w.maybe(0.9) else 2 * rows, *more]
    along = rng.randint(1, len(batch))
    indices = _indices(w, rows, batch, along, mapped)
    sizes = [rng.randint(1, n) for n in table.shape]
    single = [d for d in range(rank) if w.maybe(0.95 if d == 0 else 0.5)]
    for d in {0, *single}:
        sizes[d] = 1
    kept = [n for d, n in enumerate(sizes) if d not in single]
    windows = sorted(rng.sample(range(len(batch) + len(kept)), k=len(kept)))
    left, inside = iter(batch), iter(kept)
    shape = tuple(next(inside) if d in windows else next(left) for d in range(len(batch) + len(kept)))
    return Lookup(table, indices, mapped, along, sizes, shape, windows, single)


def _indices(w: Any, rows: int, batch: list[int], along: int, mapped: list[int]) -> Any:
    kind = w.rng.choice(
        ("whole", "all", "wide", "reshaped", "broadcast", "wrapped", "clamped", "looked up", "last dimension"))

    def shape(size: int) -> tuple[int, ...]:
        return (*batch[:along], size, *batch[along:])

    if kind == "all":
        return row_index(w, rows, shape(len(mapped)), "whole")
    if batch[0] != rows and kind not in ("looked up", "last dimension"):
        kind = "whole"
    wide = 2 if kind == "wide" and mapped[0] == 0 and len(mapped) > 2 else 1
    index = row_index(w, rows, shape(wide), "whole" if kind == "wide" else kind)
    at = mapped.index(0)
    parts = [index if i == at else w.argument(shape(1), "i32") for i in range(len(mapped) - wide + 1)]
    (indices,) = w.emit(
        "stablehlo.concatenate", parts, [(shape(len(mapped)), "i32")], f"dimension = {along} : i64")
    return indices


def _dims(**dims: list[int]) -> str:
    return ", ".join(f"{name} = [{', '.join(map(str, listed))}]" for name, listed in dims.items() if listed)


@family
def row_gather(w: Any) -> None:
    of = lookup(w)
    numbers = _dims(offset_dims=of.windows, collapsed_slice_dims=of.single, start_index_map=of.mapped)
    attributes = (
        f"dimension_numbers = #stablehlo.gather<{numbers}, index_vector_dim = {of.along}>, "
        f"slice_sizes = {array(of.sizes)}"
    )
    for _ in range(w.rng.choice((1, 1, 2))):
        w.emit("stablehlo.gather", [of.table, of.indices], [(of.shape, "f32")], attributes)


@family
def row_scatter(w: Any) -> None:
    of = lookup(w)
    numbers = _dims(
        update_window_dims=of.windows, inserted_window_dims=of.single, scatter_dims_to_operand_dims=of.mapped)
    attributes = f"scatter_dimension_numbers = #stablehlo.scatter<{numbers}, index_vector_dim = {of.along}>"
    combine = [scalar_region(f"stablehlo.{w.rng.choice(('add', 'maximum', 'minimum'))}")]
    w.emit("stablehlo.scatter", [of.table, of.indices, w.argument(of.shape)], [(of.table.shape, "f32")], attributes,
           combine)
