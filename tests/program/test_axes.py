from __future__ import annotations

from itertools import pairwise, product

import pytest

from eggshard.errors import ShardingError
from eggshard.program.axes import (
    Axes,
    AxisRef,
    append,
    axis_ref,
    begins_with,
    difference,
    in_mesh_order,
    merged,
    shard_count,
    split_at,
    union,
    without_suffix,
)

SIZES = {"x": 16, "y": 2, "v": 36}


def _axes(text: str) -> Axes:
    return tuple(map(axis_ref, text.split()))


def _pair(text: str) -> tuple[AxisRef, AxisRef]:
    first, second = _axes(text)
    return first, second


@pytest.mark.parametrize("text", ["x", "x:(1)2", "x:(4)4"])
def test_axes_are_spelled_as_they_are_read(text: str) -> None:
    assert str(axis_ref(text)).replace('"', "") == text


def test_names_are_written_with_escapes() -> None:
    assert str(AxisRef('a"b', 2, 4)) == '"a\\22b":(2)4'


@pytest.mark.parametrize(("axis", "devices", "span"), [("x", 16, (1, 16)), ("x:(2)4", 4, (2, 8)), ("y", 2, (1, 2))])
def test_an_axis_has_so_many_devices_between_its_ends(axis: str, devices: int, span: tuple[int, int]) -> None:
    assert axis_ref(axis).devices(SIZES) == devices and axis_ref(axis).span(SIZES) == span
    assert AxisRef.between(axis_ref(axis).name, *span, SIZES) == axis_ref(axis)


@pytest.mark.parametrize(("pair", "expected"), [
    ("x x:(2)2", True), ("x:(1)8 x:(1)4", True), ("x:(2)8 x:(4)2", True), ("x x", True), ("x:(2)2 x:(2)2", True),
    ("x:(1)4 x:(2)4", False), ("x:(2)4 x:(1)2", False), ("x:(2)2 x", False), ("x y", False), ("x y:(1)2", False),
])
def test_contains(pair: str, expected: bool) -> None:
    axis, other = _pair(pair)
    assert axis.contains(other) == expected


@pytest.mark.parametrize(("pair", "expected"), [
    ("x:(1)2 x", True), ("x:(2)2 x:(2)4", True), ("x x", True), ("x:(2)4 x:(2)4", True),
    ("x:(1)4 x:(1)2", False), ("x:(1)4 x:(2)8", False), ("x:(4)2 x:(2)4", False), ("x x:(1)4", False), ("x y", False),
])
def test_is_prefix_of(pair: str, expected: bool) -> None:
    axis, other = _pair(pair)
    assert axis.is_prefix_of(other) == expected


@pytest.mark.parametrize(("pair", "overlaps", "coexist", "overlap"), [
    ("x x", True, True, "x"), ("x x:(2)2", True, True, "x:(2)2"), ("x:(2)2 x:(2)2", True, True, "x:(2)2"),
    ("x:(1)4 x:(2)4", True, True, "x:(2)2"), ("x:(2)8 x:(4)2", True, True, "x:(4)2"),
    ("x:(1)4 x:(4)2", False, True, None), ("x:(1)2 x:(4)2", False, True, None), ("x y", False, True, None),
    ("v:(1)2 v:(3)2", False, False, None), ("v:(1)2 v:(1)3", True, False, None), ("v:(1)6 v:(4)9", True, False, None),
    ("v:(2)3 v:(3)2", True, False, None), ("v:(1)6 v:(2)9", True, True, "v:(2)3"),
])
def test_overlaps_is_about_ranges_and_overlap_about_a_common_refinement(
    pair: str, overlaps: bool, coexist: bool, overlap: str | None
) -> None:
    first, second = _pair(pair)
    for axis, other in ((first, second), (second, first)):
        assert axis.overlaps(other) == overlaps
        assert axis.can_coexist(other) == coexist
        assert axis.overlap(other) == (axis_ref(overlap) if overlap else None)


@pytest.mark.parametrize(("axis", "others", "prefix"), [
    ("x", "x:(2)2", "x:(1)2"), ("x:(2)2", "x:(2)2", None), ("x:(1)4", "x:(2)4", "x:(1)2"), ("x:(2)4", "x:(1)4", None),
    ("x:(2)8", "x:(4)2", "x:(2)2"), ("x:(1)4", "x:(4)2", "x:(1)4"), ("x:(1)4", "y", "x:(1)4"), ("x", "", "x"),
    ("x", "x:(8)2 x:(2)2", "x:(1)2"), ("x", "x:(8)2 y x:(4)2", "x:(1)4"), ("v:(1)2", "v:(3)2", None),
])
def test_prefix_without_overlap(axis: str, others: str, prefix: str | None) -> None:
    assert axis_ref(axis).prefix_without_overlap(_axes(others)) == (axis_ref(prefix) if prefix else None)


@pytest.mark.parametrize(("axis", "other", "suffix"), [
    ("x", "x", None), ("x", "x:(2)4", "x:(8)2"), ("x:(2)4", "x", None), ("x:(1)4", "x:(2)4", None),
    ("x:(2)4", "x:(1)4", "x:(4)2"), ("x:(4)2", "x:(1)4", "x:(4)2"), ("x", "y", "x"), ("v:(1)3", "v:(1)2", None),
])
def test_suffix_without_overlap(axis: str, other: str, suffix: str | None) -> None:
    found = axis_ref(axis).suffix_without_overlap(axis_ref(other), SIZES)
    assert found == (axis_ref(suffix) if suffix else None)


@pytest.mark.parametrize(("pair", "expected"), [
    ("x:(2)4 x:(8)2", "x:(2)8"), ("x:(1)2 x:(2)8", "x"), ("x:(1)2 x:(4)2", None), ("x:(2)4 x:(1)2", None),
    ("x:(1)2 y", None), ("x y", None),
])
def test_merging(pair: str, expected: str | None) -> None:
    major, minor = _pair(pair)
    assert major.can_merge(minor) == (expected is not None)
    if expected:
        assert major.merge(minor, SIZES) == axis_ref(expected)


@pytest.mark.parametrize(("axes", "normal"), [
    ("x:(1)2 x:(2)8", "x"), ("x:(1)2 x:(2)2 x:(4)2 y", "x:(1)8 y"), ("x:(2)8 x:(1)2", "x:(2)8 x:(1)2"),
    ("x:(1)16 y", "x y"), ("x y", "x y"), ("", ""), ("z:(1)2 z:(2)2", "z:(1)4"),
])
def test_lists_in_normal_form(axes: str, normal: str) -> None:
    assert merged(_axes(axes), SIZES | {"z": 8}) == _axes(normal)


def test_appending_merges_with_the_last_axis_only() -> None:
    out = list(_axes("x:(1)2 x:(2)2"))
    append(out, axis_ref("x:(4)4"), SIZES)
    assert tuple(out) == _axes("x:(1)2 x:(2)8")


@pytest.mark.parametrize(("axes", "expected"), [
    ("x:(4)4 y x:(1)4", "x y"), ("y x", "x y"), ("x:(8)2 x:(2)2", "x:(2)2 x:(8)2"), ("unknown y", "y unknown")])
def test_sets_are_in_the_order_of_the_mesh(axes: str, expected: str) -> None:
    assert in_mesh_order(_axes(axes), SIZES) == _axes(expected)


@pytest.mark.parametrize(("axes", "prefix", "expected"), [
    ("x y", "x", True), ("x y", "", True), ("y x", "y x:(1)4", True), ("y x", "y x:(4)4", False), ("x", "x y", False),
    ("x:(1)4 y", "x:(1)2 y", False), ("x y", "y", False),
])
def test_begins_with(axes: str, prefix: str, expected: bool) -> None:
    assert begins_with(_axes(axes), _axes(prefix)) == expected


@pytest.mark.parametrize(("axes", "suffix", "kept"), [
    ("x y", "y", "x"), ("y x", "x:(4)4", "y x:(1)4"), ("y x", "y x", ""), ("x y", "x", None), ("x", "x:(1)4", None),
    ("x:(4)2", "x:(2)4", None), ("", "x", None), ("v:(2)18", "v:(3)12", None),
])
def test_without_suffix(axes: str, suffix: str, kept: str | None) -> None:
    assert without_suffix(_axes(axes), _axes(suffix), SIZES) == (None if kept is None else _axes(kept))


@pytest.mark.parametrize(("axes", "count", "major", "minor"), [
    ("x y", 16, "x", "y"), ("x y", 4, "x:(1)4", "x:(4)4 y"), ("y x", 8, "y x:(1)4", "x:(4)4"), ("x", 1, "", "x"),
    ("x y", 32, "x y", ""),
])
def test_lists_are_split_at_a_number_of_shards(axes: str, count: int, major: str, minor: str) -> None:
    assert split_at(_axes(axes), count, SIZES) == (_axes(major), _axes(minor))
    assert shard_count(_axes(major), SIZES) == count


@pytest.mark.parametrize(("axes", "count"), [("x", 3), ("y", 4), ("x y", 48)])
def test_lists_that_cannot_be_split_so(axes: str, count: int) -> None:
    assert split_at(_axes(axes), count, SIZES) is None


def test_axes_that_cannot_coexist_have_no_difference() -> None:
    with pytest.raises(ShardingError, match="cannot be parts of one refinement"):
        difference(_axes("v:(1)2"), _axes("v:(1)3"), SIZES)


# -- the same by definition: an axis is a set of digits of the coordinate ---------------------------------------------


def _sub_axes(size: int) -> list[AxisRef]:
    parts = [(p, k) for p in range(1, size + 1) for k in range(2, size + 1) if size % (p * k) == 0 and p * k > 1]
    return [AxisRef("x"), *(AxisRef("x", p, k) for p, k in parts if (p, k) != (1, size))]


def _digits(axes: Axes, size: int) -> tuple[set[int], ...] | None:
    """The digits of each axis, where one choice of digits of the coordinate spells all of them; else None."""
    ends = sorted({1, size, *(end for axis in axes for end in axis.span({"x": size}))})
    if any(high % low for low, high in pairwise(ends)):
        return None
    spans = (axis.span({"x": size}) for axis in axes)
    return tuple({i for i, end in enumerate(ends[:-1]) if low <= end < high} for low, high in spans)


@pytest.mark.parametrize("size", [2, 4, 8, 6, 12, 16, 24, 36])
def test_relations_are_those_of_sets_of_digits(size: int) -> None:
    sizes = {"x": size}
    for axis, other in product(_sub_axes(size), repeat=2):
        (low, high), (other_low, other_high) = axis.span(sizes), other.span(sizes)
        assert axis.overlaps(other) == (max(low, other_low) < min(high, other_high))
        found = _digits((axis, other), size)
        assert axis.can_coexist(other) == (found is not None)
        if found is None:
            assert axis.overlap(other) is None and axis.prefix_without_overlap([other]) is None
            continue
        here, there = found
        assert axis.contains(other) == (here >= there)
        assert axis.overlaps(other) == bool(here & there)
        assert axis.is_prefix_of(other) == (here <= there and min(here) == min(there))
        assert axis.can_merge(other) == (max(here) + 1 == min(there))
        for part, digits in (
            (axis.overlap(other), here & there),
            (axis.prefix_without_overlap([other]), here if not here & there else {d for d in here if d < min(there)}),
            (axis.suffix_without_overlap(other, sizes),
             here if not here & there else {d for d in here if d > max(there)}),
        ):
            assert (part is not None) == bool(digits)
            if part is not None:
                assert _digits((axis, other, part), size) == (here, there, digits)
        left, both = difference([axis], [other], sizes), union([axis], [other], sizes)
        spelled = _digits((axis, other, *left, *both), size)
        assert spelled is not None
        assert set().union(*spelled[2 : 2 + len(left)]) == here - there
        assert set().union(*spelled[2 + len(left) :]) == here | there
        assert begins_with((other,), (axis,)) == axis.is_prefix_of(other)
        without = without_suffix((axis,), (other,), sizes)
        assert (without is not None) == (here >= there and max(here) == max(there))
        assert without is None or merged((*without, other), sizes) == (axis,)


@pytest.mark.parametrize("size", [8, 24, 36])
def test_cuts_and_splits_are_the_axis_again(size: int) -> None:
    sizes = {"x": size}
    for axis in _sub_axes(size):
        begin, end = axis.span(sizes)
        for count in range(2, axis.devices(sizes)):
            if axis.devices(sizes) % count == 0:
                parts = axis.split(count, sizes)
                assert parts == axis.cut([begin * count], sizes) and parts[0].devices(sizes) == count
                assert merged(parts, sizes) == (axis,)
        assert axis.cut([1, begin, end, 7 * size], sizes) == (axis,)
