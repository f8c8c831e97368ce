"""Sorting and the largest elements."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.family_checks import check_interpreter, check_laws, check_spelling, check_xla, samples_of
from tests.ops.samples2 import comparator

from eggshard.errors import ProgramError
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

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
