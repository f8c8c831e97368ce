"""The law of windows: an op's form on what its result reaches is the op on the whole, wherever the result exists."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.ops.samples import argmax_region, array, types_of
from tests.ops.samples2 import convolution_numbers
from tests.ops.window_forms import apply_form, corner, shard

from eggshard.ops import registry
from eggshard.ops.base import PASS
from eggshard.ops.windowing import repeated_index
from eggshard.placement.windows import reached
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Dim
from eggshard.program.program import Region

CASES = 90
Case = tuple[Attributes, list[np.ndarray], tuple[Region, ...]]
MAKERS: dict[str, Callable[[np.random.Generator], Case]] = {}
#: A NaN that no data holds, so that what is unspecified is told from it bit by bit.
POISON: dict[np.dtype, np.generic] = {
    np.dtype(np.float32): np.array(0x7FDEAD01, np.uint32).view(np.float32)[()],
    np.dtype(np.int32): np.int32(-77777),
}


def maker(function: Callable[[np.random.Generator], Case]) -> Callable[[np.random.Generator], Case]:
    MAKERS[function.__name__.rstrip("_")] = function
    return function


def whole(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number within [low, high]."""
    return int(rng.integers(low, high + 1))


def data(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return array(rng, shape, str(rng.choice(["f32", "i32"])), special=True)


def sizes(rng: np.random.Generator, least: int = 1, most: int = 13) -> tuple[int, ...]:
    return tuple(whole(rng, least, most) for _ in range(whole(rng, 1, 2)))


@maker
def slice_(rng: np.random.Generator) -> Case:
    shape = sizes(rng)
    starts = tuple(whole(rng, 0, n - 1) if rng.random() < 0.8 else 0 for n in shape)
    limits = tuple(whole(rng, a, n) if rng.random() < 0.6 else n for a, n in zip(starts, shape, strict=True))
    strides = tuple(whole(rng, 1, 3) for _ in shape)
    return Attributes(start_indices=starts, limit_indices=limits, strides=strides), [data(rng, shape)], ()


@maker
def pad(rng: np.random.Generator) -> Case:
    shape = sizes(rng, 3)
    low, high = (tuple(whole(rng, -1, 3) if rng.random() < 0.8 else 0 for _ in shape) for _ in range(2))
    interior = tuple(whole(rng, 1, 2) if rng.random() < 0.3 else 0 for _ in shape)
    x = data(rng, shape)
    value = array(rng, (), "f32" if x.dtype == np.float32 else "i32", special=True)
    return Attributes(edge_padding_low=low, edge_padding_high=high, interior_padding=interior), [x, value], ()


@maker
def concatenate(rng: np.random.Generator) -> Case:
    shape = sizes(rng)
    dim = whole(rng, 0, len(shape) - 1)
    xs = [data(rng, shape)]
    for _ in range(whole(rng, 0, 3)):
        part = tuple(whole(rng, 0, 5) if d == dim else n for d, n in enumerate(shape))
        xs.insert(whole(rng, 0, 1), array(rng, part, "f32" if xs[0].dtype == np.float32 else "i32", special=True))
    return Attributes(dimension=dim), xs, ()


@maker
def reverse(rng: np.random.Generator) -> Case:
    shape = sizes(rng)
    dims = tuple(d for d in range(len(shape)) if rng.random() < 0.7)
    return Attributes(dimensions=dims), [data(rng, shape)], ()


@maker
def rotate(rng: np.random.Generator) -> Case:
    shape = sizes(rng)
    dim = whole(rng, 0, len(shape) - 1)
    return Attributes(dimension=dim, amount=whole(rng, 0, shape[dim] - 1)), [data(rng, shape)], ()


@maker
def wrap(rng: np.random.Generator) -> Case:
    shape = sizes(rng)
    dim = whole(rng, 0, len(shape) - 1)
    low, high = (whole(rng, 0, min(shape[dim], 4)) for _ in range(2))
    return Attributes(dimension=dim, lhs=low, rhs=high), [data(rng, shape)], ()


@maker
def extend(rng: np.random.Generator) -> Case:
    shape = sizes(rng)
    dim, mode = whole(rng, 0, len(shape) - 1), str(rng.choice(["edge", "reflect", "symmetric"]))
    most = min(3, shape[dim] - 1 if mode == "reflect" else shape[dim] if mode == "symmetric" else 3)
    low, high = (whole(rng, 0, most) for _ in range(2))
    return Attributes(dimension=dim, lhs=low, rhs=high, mode=mode), [data(rng, shape)], ()


@maker
def update_slice(rng: np.random.Generator) -> Case:
    shape = sizes(rng)
    part = tuple(whole(rng, 0, n) if rng.random() < 0.8 else n for n in shape)
    starts = tuple(whole(rng, 0, n - m) for n, m in zip(shape, part, strict=True))
    x = data(rng, shape)
    update = array(rng, part, "f32" if x.dtype == np.float32 else "i32", special=True)
    return Attributes(start_indices=starts), [x, update], ()


def window_attributes(rng: np.random.Generator, rank: int) -> dict[str, tuple]:
    return {
        "window_dimensions": tuple(whole(rng, 1, 4) for _ in range(rank)),
        "window_strides": tuple(whole(rng, 1, 3) for _ in range(rank)),
        "base_dilations": tuple(whole(rng, 1, 3) if rng.random() < 0.3 else 1 for _ in range(rank)),
        "window_dilations": tuple(whole(rng, 1, 2) for _ in range(rank)),
        "padding": tuple((whole(rng, -1, 3), whole(rng, -1, 3)) for _ in range(rank)),
    }


@maker
def reduce_window(rng: np.random.Generator) -> Case:
    shape = sizes(rng, 5, 14)
    attrs = window_attributes(rng, len(shape))
    if rng.random() < 0.5:
        monoid, x = str(rng.choice(["max", "min"])), data(rng, shape)
    else:  # small whole floats, whose sums are exact
        monoid, x = str(rng.choice(["add", "mul"])), rng.integers(-3, 4, shape).astype(np.float32)
    return Attributes(attrs, monoid=monoid), [x], ()


@maker
def reduce_window_general(rng: np.random.Generator) -> Case:
    shape = sizes(rng, 5, 14)
    x, index = rng.integers(-3, 4, shape).astype(np.float32), rng.integers(0, 9, shape).astype(np.int32)
    inits = [np.array(rng.integers(-3, 4), np.float32), np.array(3, np.int32)]
    return Attributes(window_attributes(rng, len(shape))), [x, index, *inits], (argmax_region(),)


@maker
def convolution(rng: np.random.Generator) -> Case:
    rank = whole(rng, 1, 2)
    letters = "01"[:rank]
    kernel = tuple(whole(rng, 1, 4) for _ in range(rank))
    groups = whole(rng, 1, 2)
    attrs = Attributes(
        dimension_numbers=convolution_numbers(f"b{letters}f", f"{letters}io", f"bf{letters}"),
        feature_group_count=groups, batch_group_count=1, precision_config=None, dtype="f32",
        window_strides=tuple(whole(rng, 1, 3) for _ in range(rank)),
        padding=tuple((whole(rng, -1, 3), whole(rng, -1, 3)) for _ in range(rank)) if rng.random() < 0.9 else None,
        lhs_dilation=tuple(whole(rng, 1, 3) if rng.random() < 0.3 else 1 for _ in range(rank)), rhs_dilation=None,
        window_reversal=tuple(bool(rng.random() < 0.5) for _ in range(rank)),
    )
    shape = (2, *(whole(rng, 7, 14) for _ in range(rank)), 2 * groups)
    x = rng.integers(-3, 4, shape).astype(np.float32)
    x = np.where(rng.random(shape) < 0.03, rng.choice([np.nan, np.inf]), x).astype(np.float32)
    return attrs, [x, rng.integers(-2, 3, (*kernel, 2, 2 * groups)).astype(np.float32)], ()


def window(rng: np.random.Generator, n: int, axis: str, wrapped: bool, tiles: int = 1) -> tuple[Dim, int]:
    """A window of a dimension of size n, and over how many devices: covering or not, narrower than its halo or not.

    tiles: what the tile is a multiple of.
    """
    count = whole(rng, 1, 5)
    tile = tiles * max(1, whole(rng, -(-n // (count * tiles)) - 1, -(-n // (count * tiles)) + 1))
    low = whole(rng, -3, 3)
    specified = (whole(rng, -4, 0), n + whole(rng, 0, 4)) if wrapped else None
    return Dim((axis,), tile, low, whole(rng, max(-3, low - tile + 1), 3), specified), count


def check(name: str, case: Case, rng: np.random.Generator) -> bool:
    """One random placement of an op; whether any dimension was computed through its reaches."""
    attrs, arrays, regions = case
    definition, operands = registry.get(name), types_of(arrays)
    results = definition.infer(attrs, operands, regions)
    want = definition.evaluate(attrs, arrays, regions)
    rule, reaches = definition.factors(attrs, operands, results), definition.reaches(attrs, operands, results)
    assert reaches is not None and [len(row) for row in reaches] == [t.rank for t in operands]
    y = results[0]
    reaching = {reach.dim: reach for row in reaches for reach in row if reach is not None}
    placed: dict[int, tuple[Dim, int]] = {}
    for r, (n, factors) in enumerate(zip(y.shape, rule.results[0], strict=True)):
        passing = len(factors) == 1 and rule.factors[factors[0]].kind == PASS
        assert not (passing and r in reaching), "a dimension passes, or is reached along"
        if n and rng.random() < 0.8 and (passing or r in reaching):
            periodic = r in reaching and (reaching[r].wrapped or reaching[r].mirrored)
            same = periodic and all(t.shape[r] == n for t in operands)
            tiles = math.lcm(*(reach.divisor for row in reaches for reach in row if reach and reach.dim == r))
            placed[r] = window(rng, n, "xyzw"[r], same and bool(rng.random() < 0.5), tiles)
    windowed = frozenset(placed) & frozenset(reaching)
    if not definition.window_allowed(attrs, operands, results, {r: placed[r] for r in windowed}):
        return False
    dims = []
    for t, row, reach_row in zip(operands, rule.operands, reaches, strict=True):
        found = []
        for n, factors, reach in zip(t.shape, row, reach_row, strict=True):
            alike = [r for r in placed if r not in windowed and rule.results[0][r] == factors]
            if reach is not None and reach.dim in placed:
                found.append(reached(placed[reach.dim][0], reach, placed[reach.dim][1], y.shape[reach.dim], n))
            else:
                found.append(placed[alike[0]][0] if alike else Dim((), n))
        dims.append(tuple(found))
    out = tuple(placed[r][0] if r in placed else Dim((), n) for r, n in enumerate(y.shape))
    axes = sorted(axis for dim, _ in placed.values() for axis in dim.axes)
    counts = {dim.axes[0]: count for dim, count in placed.values()}
    for position in itertools.product(*(range(counts[axis]) for axis in axes)):
        at = dict(zip(axes, position, strict=True))
        devices = [[at[d.axes[0]] if d.axes else 0 for d in row] for row in (*dims, out)]
        for row, placed_row, reach_row in zip(devices, dims, reaches, strict=False):
            for i, (dim, reach) in enumerate(zip(placed_row, reach_row, strict=True)):
                if reach is not None and reach.mirrored and dim.axes:  # what the device at the other end sends
                    row[i] = counts[dim.axes[0]] - 1 - row[i]
        shards = [shard(a, row, where, POISON[a.dtype]) for a, row, where in zip(arrays, dims, devices, strict=False)]
        local_results = tuple(t.with_shape(tuple(d.size for d in out)) for t in results)
        windows = {d: placed[d][0] for d in windowed}
        form = definition.window_form(attrs, operands, results, types_of(shards), local_results, windows)
        corners = [corner(row, where) for row, where in zip((*dims, out), devices, strict=True)]
        got = apply_form(definition, form, shards, corners[:-1], corners[-1], windowed, regions)
        for mine, t, theirs in zip(got, local_results, want, strict=True):
            assert mine.shape == t.shape, (name, attrs, operands, placed)
            poison = POISON[mine.dtype]
            expected = shard(theirs, out, devices[-1], poison)
            exists = shard(np.ones(theirs.shape, np.int32), out, devices[-1], np.int32(0)) == 1
            same = _bits(name, mine[exists]) == _bits(name, expected[exists])
            assert same.all(), (name, attrs, operands, placed, position, mine, expected)
    return bool(windowed)


def _bits(name: str, x: np.ndarray) -> np.ndarray:
    """The elements' bits; all NaNs are alike, and zeros, where there is arithmetic."""
    if name in ("convolution", "reduce_window") and x.dtype == np.float32:
        x = np.where(np.isnan(x), np.float32(np.nan), x)
        x = x + np.float32(0) if name == "convolution" else x
    return x.view(np.int32)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_window_is_the_op_on_what_it_reaches(name: str) -> None:
    rng = np.random.default_rng(sum(map(ord, name)))
    checked = sum(check(name, MAKERS[name](rng), rng) for _ in range(CASES))
    assert checked > CASES / 3


def test_every_op_that_reaches_is_checked() -> None:
    base = type(registry.get("add")).reaches
    assert {n for n in registry.names() if type(registry.get(n)).reaches is not base} == set(MAKERS)


def test_windows_of_extend_are_allowed_where_shards_hold_what_they_repeat() -> None:
    rng = np.random.default_rng(3)
    seen = {True: 0, False: 0}
    for _ in range(400):
        attrs, arrays, _ = extend(rng)
        operands, dim = types_of(arrays), attrs["dimension"]
        results = registry.get("extend").infer(attrs, operands)
        n, held = operands[0].shape[dim], True
        placed, count = window(rng, results[0].shape[dim], "x", False)
        for d in range(count):
            index = d * placed.tile + placed.low + np.arange(placed.size) - attrs["lhs"]
            needed = repeated_index(index[(index >= -attrs["lhs"]) & (index < n + attrs["rhs"])], n, attrs["mode"])
            held &= set(needed.tolist()) <= set(index.tolist())
        seen[held] += 1
        assert registry.get("extend").window_allowed(attrs, operands, results, {dim: (placed, count)}) == held
    assert min(seen.values()) > 50


def test_windows_that_span_half_of_a_dimension_are_not_reached() -> None:
    (x,) = types_of([np.zeros(8, np.float32)])
    definition = registry.get("reduce_window")
    for size, found in ((5, True), (6, False), (8, False)):
        attrs = Attributes(window_dimensions=(size,), window_strides=(1,), base_dilations=(1,), window_dilations=(1,),
                           padding=((size - 1, 0),), monoid="add")
        ((reach,),) = definition.reaches(attrs, (x,), definition.infer(attrs, (x,))) or ((None,),)
        assert (reach is not None) == found


def test_rotations_reach_the_shorter_way_round() -> None:
    (x,) = types_of([np.zeros(8, np.float32)])
    for amount, first in ((0, 0), (3, 3), (4, 4), (5, -3), (7, -1)):
        ((reach,),) = registry.get("rotate").reaches(Attributes(dimension=0, amount=amount), (x,), (x,)) or ((None,),)
        assert reach is not None and (reach.first, reach.last, reach.wrapped) == (first, first, True)
