"""Sorting and the largest elements."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.family_checks import check_interpreter, check_laws, check_spelling, check_xla, samples_of
from tests.ops.samples2 import comparator

from eggshard.errors import ProgramError
from eggshard.ops import registry
from eggshard.ops.arithmetic import Arithmetic, using
from eggshard.ops.reductions.sorting import _key, _network_order, _sorted_order
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.prove.field import Field
from eggshard.prove.residues import PRIMES, Residues

NAMES = ("sort", "chlo.top_k")


@pytest.mark.parametrize("name", NAMES)
def test_laws(name: str) -> None:
    assert check_laws(name)


@pytest.mark.parametrize("name", NAMES)
def test_spelling(name: str) -> None:
    check_spelling(name)


def test_xla_agrees_on_top_k() -> None:
    check_xla("chlo.top_k")


def test_xla_agrees_on_sort() -> None:
    # The sample of i64 has a comparator that holds of equal elements too; their order is then anybody's.
    check_xla("sort", [s for s in samples_of("sort") if s[1][0].dtype != np.int64])


def test_interpreter_agrees() -> None:
    strict = [s for s in samples_of("sort") if s[1][0].dtype.kind == "i" and s[1][0].dtype != np.int64]
    check_interpreter("sort", strict)


def test_sorts_any_length_stably() -> None:
    rng = np.random.default_rng(0)
    attrs = Attributes(dimension=1, is_stable=True)
    for n in range(18):
        keys = rng.integers(0, 4, (3, n)).astype(np.int32)
        tags = np.broadcast_to(np.arange(n, dtype=np.int32), (3, n))
        region = comparator(("i32", "i32"))
        got, order = registry.get("sort").evaluate(attrs, [keys, tags], (region,))
        want = np.argsort(keys, axis=1, kind="stable")
        np.testing.assert_array_equal(order, want)
        np.testing.assert_array_equal(got, np.take_along_axis(keys, want, axis=1))


def of_function(dtype: str, direction: str, kind: str | None, swapped: bool) -> Region:
    """Compares the absolute values of operand 1, of b with a if swapped."""
    builder = RegionBuilder([TensorType((), d) for d in ("f32", dtype) for _ in range(2)])
    sides = [builder.add("abs", (v,))[0] for v in ((3, 2) if swapped else (2, 3))]
    return builder.build(builder.add("compare", sides, {"comparison_direction": direction, "compare_type": kind}))


@pytest.mark.parametrize("arithmetic", [Arithmetic(), *(Field(Residues(PRIMES[0]), 0, loose) for loose in (0, 1))])
@pytest.mark.parametrize("kind", [None, "TOTALORDER"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "i64"])
def test_the_order_of_keys_is_that_of_the_network(dtype: str, kind: str | None, arithmetic: Arithmetic) -> None:
    if kind and dtype.startswith("i"):
        return
    rng = np.random.default_rng(0)
    values = rng.choice([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 100.0, np.inf], (2, 21))
    values = np.where(np.isinf(values) & (dtype[0] == "i"), -128, values)
    fields = isinstance(arithmetic, Field)
    own = arithmetic.residues.of_numbers(rng.integers(0, 9, (2, 21)) * 1e6) if fields else values
    taken = np.where(rng.integers(0, 2, own.shape), own, values) if dtype[0] != "i" else values
    columns = [np.zeros((2, 21), arithmetic.stored("f32")), taken.astype(arithmetic.stored(dtype))]
    for direction in ("LT", "LE", "GT", "GE"):
        for region in [of_function(dtype, direction, kind, swapped) for swapped in (False, True)]:
            with using(arithmetic), np.errstate(all="ignore"):
                assert _key(region, columns) is not None
                np.testing.assert_array_equal(_sorted_order(region, columns), _network_order(region, columns))


def test_what_is_no_order_of_keys_is_compared_pair_by_pair() -> None:
    x = np.float32([3, np.nan, 1])
    assert _key(comparator(("f32",)), [x]) is None
    assert _key(comparator(("f32",), kind="TOTALORDER"), [x]) is not None
    assert _key(comparator(("f32", "f32"), keys=2), [x, x]) is None
    builder = RegionBuilder([TensorType((), "f32")] * 2)
    own = builder.build(builder.add("compare", (0, 0), {"comparison_direction": "LT"}))
    assert _key(own, [x]) is None
    builder = RegionBuilder([TensorType((), "f32")] * 2)
    halved = builder.add("multiply", (1, builder.add("constant", (), {"value": Literal(np.float32(0.5))})[0]))
    assert _key(builder.build(builder.add("compare", (0, *halved), {"comparison_direction": "LT"})), [x]) is None


def test_sort_refuses() -> None:
    x, y = TensorType((4, 3), "f32"), TensorType((3, 4), "f32")
    sort, attrs = registry.get("sort"), Attributes(dimension=0, is_stable=False)
    with pytest.raises(ProgramError, match="different shapes"):
        sort.infer(attrs, (x, y), (comparator(("f32", "f32")),))
    with pytest.raises(ProgramError, match="comparator takes"):
        sort.infer(attrs, (x,), (comparator(("i32",)),))
    with pytest.raises(ProgramError, match="dimension 2"):
        sort.infer(attrs.updated(dimension=2), (x,), (comparator(("f32",)),))
    with pytest.raises(ProgramError, match="k = 4"):
        registry.get("chlo.top_k").infer(Attributes(k=4), (x,))
