"""rotate, wrap, extend and update_slice: meaning, spelling, laws and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.family_checks import check_interpreter, check_laws, check_xla, samples_of

from eggshard.errors import ProgramError
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

NAMES = ("rotate", "wrap", "extend", "update_slice")
X = TensorType((4, 6), "f32")


@pytest.mark.parametrize("name", NAMES)
def test_laws(name: str) -> None:
    assert check_laws(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_spelling_means_the_op(name: str) -> None:
    check_xla(name)
    check_interpreter(name)


@pytest.mark.parametrize(("before", "after"), [(0, 4), (3, 9), (13, 0), (8, 8)])
def test_wraps_go_around_as_often_as_is_asked(before: int, after: int) -> None:
    x = np.arange(8).reshape(4, 2)
    (got,) = registry.get("wrap").evaluate(Attributes(dimension=0, lhs=before, rhs=after), [x])
    np.testing.assert_array_equal(got, np.pad(x, ((before, after), (0, 0)), mode="wrap"))


def test_meaning_by_numpy() -> None:
    for attrs, (x,), _ in samples_of("rotate"):
        (got,) = registry.get("rotate").evaluate(attrs, [x])
        np.testing.assert_array_equal(got, np.roll(x, -attrs["amount"], attrs["dimension"]))
    for name in ("wrap", "extend"):
        for attrs, (x,), _ in samples_of(name):
            (got,) = registry.get(name).evaluate(attrs, [x])
            if 0 in x.shape:
                np.testing.assert_array_equal(got, x)
                continue
            widths = [(attrs["lhs"], attrs["rhs"]) if d == attrs["dimension"] else (0, 0) for d in range(x.ndim)]
            np.testing.assert_array_equal(got, np.pad(x, widths, mode=attrs.get("mode", "wrap")))


@pytest.mark.parametrize("name, operands, attrs, message", [
    ("rotate", [X], {"dimension": 2, "amount": 0}, "dimension 2 does not exist"),
    ("rotate", [X], {"dimension": 0, "amount": 4}, "modulo the size"),
    ("rotate", [X], {"dimension": 0, "amount": -1}, "modulo the size"),
    ("rotate", [X, X], {"dimension": 0, "amount": 1}, "takes 1 operand"),
    ("wrap", [X.with_shape((0, 2))], {"dimension": 0, "lhs": 5, "rhs": 0}, "lhs 5 and rhs 0 .* nothing to repeat"),
    ("wrap", [X], {"dimension": 0, "lhs": 1, "rhs": -1}, "lhs 1 and rhs -1 must not be negative"),
    ("extend", [X], {"dimension": 1, "lhs": 6, "rhs": 0, "mode": "reflect"}, "between 0 and 5: mode reflect mirrors"),
    ("extend", [X], {"dimension": 1, "lhs": 0, "rhs": 7, "mode": "symmetric"}, "between 0 and 6"),
    ("extend", [X], {"dimension": 1, "lhs": -1, "rhs": 7, "mode": "edge"}, "must not be negative"),
    ("extend", [X.with_shape((0, 2))], {"dimension": 0, "lhs": 1, "rhs": 0, "mode": "edge"}, "nothing to repeat"),
    ("extend", [X], {"dimension": 1, "lhs": 0, "rhs": 1, "mode": "mean"}, "edge, reflect, symmetric is meant"),
    ("update_slice", [X, TensorType((1, 1), "i32")], {"start_indices": (0, 0)}, "convert it"),
    ("update_slice", [X, X.with_shape((6,))], {"start_indices": (0, 0)}, "rank 2"),
    ("update_slice", [X, X.with_shape((2, 6))], {"start_indices": (3, 0)}, r"\[3:5\] does not lie within"),
])  # fmt: skip
def test_refusals(name: str, operands: list[TensorType], attrs: dict, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        registry.get(name).infer(Attributes(attrs), tuple(operands))
