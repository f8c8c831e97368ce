"""Convolutions of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.family_checks import check_interpreter, check_laws, check_spelling, check_xla, samples_of
from tests.ops.samples2 import convolution_attributes

from eggshard.errors import ProgramError
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

CONVOLUTION = registry.get("convolution")


def test_laws() -> None:
    assert check_laws("convolution") > 40


def test_spelling() -> None:
    check_spelling("convolution")


def test_xla_agrees() -> None:
    check_xla("convolution")


def test_interpreter_agrees() -> None:
    # It multiplies narrow types in their own, where XLA and the op here do so in f32 or the result's type.
    known = [s for s in samples_of("convolution") if s[1][0].dtype == np.float32]
    check_interpreter("convolution", known)


def kinds(attrs: object, *shapes: tuple[int, ...]) -> tuple[list[list[str]], list[str]]:
    """Factor kinds per dimension of the input, and of the output's dimensions."""
    operands = tuple(TensorType(s, "f32") for s in shapes)
    results = CONVOLUTION.infer(attrs, operands)  # type: ignore[arg-type]
    rule = CONVOLUTION.factors(attrs, operands, results)  # type: ignore[arg-type]
    return ([[rule.factors[f].kind for f in dim] for dim in rule.operands[0]],
            [rule.factors[f].kind for dim in rule.results[0] for f in dim])


def test_factors() -> None:
    same = {"padding": ((1, 1), (1, 1))}
    plain = kinds(convolution_attributes(**same), (2, 6, 5, 6), (4, 6, 3, 3))
    assert plain == ([["pass"], ["reduce"], ["permute"], ["permute"]], ["pass", "pass", "permute", "permute"])
    pointwise = kinds(convolution_attributes(), (2, 6, 5, 6), (4, 6, 1, 1))
    assert pointwise == ([["pass"], ["reduce"], ["pass"], ["pass"]], ["pass", "pass", "pass", "pass"])
    grouped = kinds(convolution_attributes(features=3, **same), (2, 6, 5, 6), (9, 2, 3, 3))
    assert grouped == ([["pass"], ["pass", "reduce"], ["permute"], ["permute"]], ["pass"] * 3 + ["permute"] * 2)
    depthwise = kinds(convolution_attributes(features=6, **same), (2, 6, 5, 6), (6, 1, 3, 3))
    assert depthwise == ([["pass"], ["pass"], ["permute"], ["permute"]], ["pass", "pass", "permute", "permute"])


def test_dimensions_that_are_none_to_slide_along() -> None:
    """Of a batch, of the kernel's free index, of one that is summed; and of one that is nearly a batch's."""
    numbers, window = ("0bf1", "0oi1", "0bf1"), {"padding": ((0, 0), (5, 5)), "window_reversal": (False, True)}
    product = {**window, "lhs_dilation": (5, 1), "window_strides": (4, 1)}
    operands = (TensorType((5, 2, 3, 1), "f32"), TensorType((5, 4, 3, 6), "f32"))

    def labels(attrs: Attributes, operands: tuple[TensorType, ...]) -> list[str]:
        """Each dimension by its factor, in capitals where that passes, in small letters where it is summed."""
        rule = CONVOLUTION.factors(attrs, operands, CONVOLUTION.infer(attrs, operands))
        spelt = {"pass": str.upper, "reduce": str.lower}
        return ["".join(spelt.get(rule.factors[f].kind, lambda _: "-")(chr(ord("a") + f)) for (f,) in row)
                for row in (*rule.operands, *rule.results)]

    assert labels(convolution_attributes(numbers, **product), operands) == ["DAb-", "DCbE", "DACE"]
    summed = (TensorType((3, 4, 5, 2), "f32"), TensorType((3, 4, 5, 2), "f32"))
    assert labels(convolution_attributes(("f01b", "i01o", "01bf")), summed) == ["bdfA", "bdfC", "--AC"]
    near = {**product, "lhs_dilation": (4, 1), "window_strides": (3, 1), "padding": ((0, 3), (5, 5))}
    assert labels(convolution_attributes(numbers, **near), operands)[0][0] == "-"


def test_integer_partial_sums_do_not_pass_where_sums_would_widen() -> None:
    operands = (TensorType((2, 6, 5, 6), "i8"), TensorType((4, 6, 3, 3), "i8"))
    for dtype, entries in (("i8", 2), ("i32", 0)):
        attrs = convolution_attributes(dtype=dtype)
        assert len(CONVOLUTION.factors(attrs, operands, CONVOLUTION.infer(attrs, operands)).linear) == entries


def test_flops_count_multiply_and_add() -> None:
    operands = (TensorType((2, 6, 5, 6), "f32"), TensorType((9, 2, 3, 3), "f32"))
    attrs = convolution_attributes(features=3)
    assert CONVOLUTION.flops(attrs, operands, CONVOLUTION.infer(attrs, operands)) == 2 * (2 * 9 * 3 * 4) * 2 * 9


@pytest.mark.parametrize(
    ("attrs", "kernel", "message"),
    [
        (convolution_attributes(), (4, 5, 3, 3), "input features"),
        (convolution_attributes(features=2, batches=2), (4, 3, 3, 3), "one is 1"),
        (convolution_attributes(features=3), (4, 2, 3, 3), "do not split"),
        (convolution_attributes(window_strides=(1,)), (4, 6, 3, 3), "entries"),
        (convolution_attributes(window_strides=(0, 1)), (4, 6, 3, 3), "at least 1"),
        (convolution_attributes(("bf0", "oi0", "bf0")), (4, 6, 3, 3), "dimension numbers"),
    ],
)
def test_convolution_refuses(attrs: object, kernel: tuple[int, ...], message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        CONVOLUTION.infer(attrs, (TensorType((2, 6, 5, 6), "f32"), TensorType(kernel, "f32")))  # type: ignore[arg-type]
