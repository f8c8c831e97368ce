"""Loops that count: how often they run, and their iterations in rows, against running them."""

from __future__ import annotations

import numpy as np
import pytest

from eggshard.ops.evaluate import evaluate_region
from eggshard.ops.region_builder import RegionBuilder
from eggshard.ops.regions.counted_loops import Counter, condition_of_rows, find_counter
from eggshard.program.attributes import Literal
from eggshard.program.program import Region
from eggshard.program.types import TensorType, numpy_dtype


def loop(direction: str, step: int, limit: int | None, *, dtype: str = "i32", turned: bool = False,
         subtract: bool = False) -> tuple[Region, Region]:
    """While counter (value 1) ``direction`` limit (a constant, or value 2): value 0 = 3 value 0 + counter."""
    scalar = TensorType((), dtype)
    types = (scalar, scalar, scalar)

    def constant(builder: RegionBuilder, value: int) -> int:
        return builder.add("constant", (), {"value": Literal(np.array(value).astype(numpy_dtype(dtype)))})[0]

    condition = RegionBuilder(types)
    end = condition.inputs[2] if limit is None else constant(condition, limit)
    sides = (end, condition.inputs[1]) if turned else (condition.inputs[1], end)
    names = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}
    kind = "UNSIGNED" if dtype.startswith("ui") else "SIGNED"
    goes_on = condition.add(
        "compare", sides, {"comparison_direction": names[direction] if turned else direction, "compare_type": kind})
    body = RegionBuilder(types)
    value, counter, carried = body.inputs
    (tripled,) = body.add("multiply", (value, constant(body, 3)))
    (changed,) = body.add("add", (tripled, counter))
    by = constant(body, -step if subtract else step)
    (counted,) = body.add("subtract" if subtract else "add", (counter, by))
    return condition.build(goes_on), body.build([changed, counted, carried])


def in_a_row(body: Region, times: int, values: list[np.ndarray]) -> list[np.ndarray]:
    for _ in range(times):
        values = list(evaluate_region(body, values))
    return values


def run(
    condition: Region, body: Region, values: list[np.ndarray], times: int = 1, most: int = 200
) -> tuple[int, list[np.ndarray]]:
    """(rows of so many iterations, values after them)."""
    for trips in range(most):
        if not evaluate_region(condition, values)[0]:
            return trips, values
        values = in_a_row(body, times, values)
    raise AssertionError("does not end")


def start(value: int, counter: int, limit: int, dtype: str = "i32") -> list[np.ndarray]:
    return [np.array(x).astype(numpy_dtype(dtype)) for x in (value, counter, limit)]


DIRECTIONS = [("LT", 1), ("LE", 1), ("LT", 2), ("LE", 3), ("LT", 5), ("GT", -1), ("GE", -1), ("GT", -3), ("GE", -2),
              ("NE", 1), ("NE", -2)]  # fmt: skip


@pytest.mark.parametrize("direction,step", DIRECTIONS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("subtract", [False, True])
def test_trips(direction: str, step: int, turned: bool, subtract: bool) -> None:
    condition, body = loop(direction, step, 4, turned=turned, subtract=subtract)
    counter = find_counter(condition, body)
    assert counter == Counter(1, step, direction, 4)
    for first in range(-6, 14):
        trips = counter.trips(first)
        if direction == "NE" and trips is None:
            continue
        with np.errstate(over="ignore"):
            assert run(condition, body, start(1, first, 0))[0] == trips, first


@pytest.mark.parametrize("direction,step", [d for d in DIRECTIONS if d[0] != "NE"])
@pytest.mark.parametrize("limit", [4, None])
@pytest.mark.parametrize("times", [2, 8])
def test_rows_of_an_unknown_number(direction: str, step: int, limit: int | None, times: int) -> None:
    """Rows while a whole one fits, then the loop itself."""
    condition, body = loop(direction, step, limit)
    counter = find_counter(condition, body)
    assert counter == Counter(1, step, direction, limit)
    ahead = condition_of_rows(condition, counter, times)
    for first in range(-20, 24, 3):
        with np.errstate(over="ignore"):
            trips, want = run(condition, body, start(1, first, 4))
            rounds, values = run(ahead, body, start(1, first, 4), times)
            left, values = run(condition, body, values)
        assert rounds == trips // times and left == trips % times
        assert [int(v) for v in values] == [int(v) for v in want]


@pytest.mark.parametrize("dtype,first,limit,step", [
    ("i8", 120, 127, 1), ("i8", 100, 127, 9), ("i8", -120, -128, -1), ("ui8", 250, 255, 1), ("ui8", 3, 0, -1),
    ("ui8", 200, 240, 20), ("i8", 127, 127, 1), ("ui8", 60, 250, 63), ("i8", 0, 100, 60),
])
def test_near_the_ends_of_the_type(dtype: str, first: int, limit: int, step: int) -> None:
    """A row that the counter would overflow in is not begun."""
    condition, body = loop("LT" if step > 0 else "GT", step, None, dtype=dtype, subtract=step < 0)
    counter = find_counter(condition, body)
    assert counter is not None
    with np.errstate(over="ignore"):
        for times in (2, 4, 8):
            if not counter.fits(dtype, times):
                with pytest.raises(ValueError, match="does not count"):
                    condition_of_rows(condition, counter, times)
                continue
            ahead = condition_of_rows(condition, counter, times)
            trips, want = run(condition, body, start(1, first, limit, dtype))
            rounds, values = run(ahead, body, start(1, first, limit, dtype), times)
            left, values = run(condition, body, values)
            assert rounds * times + left == trips
            assert [int(v) for v in values] == [int(v) for v in want]


def test_what_does_not_count() -> None:
    i32 = TensorType((), "i32")
    condition, body = loop("LT", 1, 4)
    for change in ("limit", "step", "and", "product"):
        c, b = RegionBuilder((i32,) * 3), RegionBuilder((i32,) * 3)
        goes_on = c.add("compare", (c.inputs[1], c.inputs[2]), {"comparison_direction": "LT", "compare_type": "SIGNED"})
        if change == "and":  # another comparison ends it as well
            (other,) = c.add("compare", (c.inputs[0], c.inputs[2]),
                             {"comparison_direction": "LT", "compare_type": "SIGNED"})
            goes_on = c.add("and", (*goes_on, other))
        (one,) = b.add("constant", (), {"value": Literal(np.int32(1))})
        by = b.inputs[0] if change == "step" else one
        (next_,) = b.add("multiply" if change == "product" else "add", (b.inputs[1], by))
        limit = b.add("add", (b.inputs[2], one))[0] if change == "limit" else b.inputs[2]
        assert find_counter(c.build(goes_on), b.build([b.inputs[0], next_, limit])) is None, change
    assert find_counter(condition, body) is not None


@pytest.mark.parametrize("direction,step", [("LT", -1), ("LE", -2), ("GT", 1), ("GE", 3)])
def test_counting_away_from_the_limit(direction: str, step: int) -> None:
    """Such a loop does not run, or until the counter overflows: its last iteration says nothing of the others."""
    for limit in (4, None):
        assert find_counter(*loop(direction, step, limit)) is None


def test_inequality_makes_no_rows() -> None:
    condition, body = loop("NE", 2, 4)
    counter = find_counter(condition, body)
    assert counter is not None and counter.trips(5) is None and counter.trips(0) == 2
    with pytest.raises(ValueError, match="in no rows"):
        condition_of_rows(condition, counter, 2)
