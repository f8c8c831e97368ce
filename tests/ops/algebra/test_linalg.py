"""Fourier transforms, Cholesky factors, triangular systems."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.family_checks import check_laws, check_spelling, check_xla, samples_of
from tests.ops.oracles import assert_close, function_text, run_xla
from tests.ops.samples import one_op_region, types_of

from eggshard.errors import ProgramError
from eggshard.ops import registry
from eggshard.ops.evaluate import evaluate_region
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

NAMES = ("fft", "cholesky", "triangular_solve")


@pytest.mark.parametrize("name", NAMES)
def test_laws(name: str) -> None:
    assert check_laws(name)


@pytest.mark.parametrize("name", NAMES)
def test_spelling(name: str) -> None:
    check_spelling(name)


@pytest.mark.parametrize("name", ("fft", "triangular_solve"))
def test_xla_agrees(name: str) -> None:
    check_xla(name)


def test_xla_agrees_on_the_triangle_of_cholesky() -> None:
    for attrs, arrays, regions in samples_of("cholesky"):
        region = one_op_region("cholesky", attrs, types_of(arrays), regions)
        triangle = np.tril if attrs["lower"] else np.triu
        (mine,), (theirs,) = evaluate_region(region, arrays), run_xla(function_text(region), arrays)
        assert_close(triangle(mine), triangle(theirs), attrs)


def test_only_one_triangle_is_read() -> None:
    (attrs, (a,), _), *_ = samples_of("cholesky")
    cholesky = registry.get("cholesky")
    (want,), (got,) = cholesky.evaluate(attrs, [a]), cholesky.evaluate(attrs, [np.tril(a)])
    np.testing.assert_array_equal(got, want)


def test_what_is_not_positive_definite_gives_nan() -> None:
    (factor,) = registry.get("cholesky").evaluate(Attributes(lower=True), [np.array([[1, 2], [2, 1]], np.float32)])
    assert factor[0, 0] == 1 and np.isnan(factor[1, 1])


@pytest.mark.parametrize(("kind", "dtype", "shape", "made"), [
    ("FFT", "complex64", (2, 0), (2, 0)), ("RFFT", "float32", (2, 0), (2, 1)), ("IRFFT", "complex64", (0, 3), (0, 4)),
])
def test_what_nothing_is_transformed_to_is_zero(
    kind: str, dtype: str, shape: tuple[int, ...], made: tuple[int, ...]
) -> None:
    attributes = Attributes(fft_type=kind, fft_length=made[1:] if kind == "IRFFT" else shape[1:])
    (result,) = registry.get("fft").evaluate(attributes, [np.zeros(shape, dtype)])
    assert result.shape == made and not result.any()


def test_refusals() -> None:
    a, b = TensorType((4, 4), "f32"), TensorType((3, 2), "f32")
    solve = Attributes(left_side=True, lower=True, unit_diagonal=False, transpose_a="NO_TRANSPOSE")
    with pytest.raises(ProgramError, match="right-hand side"):
        registry.get("triangular_solve").infer(solve, (a, b))
    with pytest.raises(ProgramError, match="square"):
        registry.get("cholesky").infer(Attributes(lower=True), (b,))
    with pytest.raises(ProgramError, match="do not fit fft lengths"):
        registry.get("fft").infer(Attributes(fft_type="RFFT", fft_length=(5,)), (a,))
    with pytest.raises(ProgramError, match="element type"):
        registry.get("fft").infer(Attributes(fft_type="FFT", fft_length=(4,)), (a,))
