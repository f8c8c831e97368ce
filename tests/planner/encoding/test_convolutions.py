"""Convolutions whose kernel is sharded along its window, that are products, whose input lies elsewhere; poolings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import Array, lax  # noqa: E402
from tests.planner.test_stencils import X4, Argument, argument, check  # noqa: E402

WINDOW = ("NHWC", "HWIO", "NHWC")
IMAGE, GRADIENT = argument((2, 16, 8, 2), "- x - -", "float32"), argument((2, 16, 8, 3), "- x - -", "float32")
HALF = argument((2, 8, 4, 3), "- x - -", "float32")


def gradient(strides: int) -> Callable[[Array, Array], Array]:
    """A kernel's gradient, in which the gradient of the image is the kernel."""
    def of_kernel(image: Array, out: Array) -> Array:
        def loss(kernel: Array) -> Array:
            made = lax.conv_general_dilated(image, kernel, (strides,) * 2, "SAME", dimension_numbers=WINDOW)
            return jnp.sum(out * made)

        return jax.grad(loss)(jnp.zeros((3, 3, 2, 3)))

    return of_kernel


def batched(image: Array, out: Array) -> Array:
    """A product of the images' rows with those of others, as XLA writes it."""
    return lax.conv_general_dilated(
        image, out, (15, 1), ((0, 0), (0, 0)), lhs_dilation=(16, 1), dimension_numbers=("NHWC", "OHWI", "NHWC"))


def pooled(image: Array, out: Array) -> Array:
    """The gradient of a maximum over blocks."""
    def loss(image: Array) -> Array:
        return jnp.sum(out * lax.reduce_window(image, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))

    return jax.grad(loss)(image)


#: What all devices but one receive of a row of an image, and what an all-reduce of the gradient takes.
ROW, SUM = 4 * 2 * 8 * 2, 2 * 4 * 9 * 2 * 3 * 3 / 4

CASES: dict[str, tuple[Callable[..., Array], tuple[Argument, ...], float]] = {
    "gradient": (gradient(1), (IMAGE, GRADIENT), 2 * ROW + SUM),
    "gradient of strides": (gradient(2), (IMAGE, HALF), ROW + SUM),
    "pooling": (pooled, (GRADIENT, HALF), 0),
    "batch": (batched, (argument((2, 16, 8, 2), "- x - -"), argument((3, 16, 8, 2), "- x - -")), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_bytes(name: str) -> None:
    function, arguments, known = CASES[name]
    plan = check(function, X4, *arguments, results=None)
    assert plan.wire_bytes <= known


def test_an_input_over_other_axes_is_not_gathered() -> None:
    """It is brought to the window's tiles, and then exchanged."""
    def function(bias: Array, image: Array) -> Array:
        return bias + lax.conv_general_dilated(
            image, jnp.ones((3, 3, 2, 6)), (1, 1), "SAME", dimension_numbers=WINDOW)

    bias, image = argument((4, 16, 8, 6), "- x - -", "float32"), argument((4, 16, 8, 2), "x - - -", "float32")
    plan = check(function, X4, bias, image)
    assert plan.collectives == {"all-to-all": 1, "collective-permute": 2}


@pytest.mark.parametrize("cut", [1, 4])
def test_a_kernel_that_is_cut_out_of_tiles(cut: int) -> None:
    """The slice lies on tiles that begin elsewhere, and the windows of the image with it."""
    def function(image: Array, out: Array) -> Array:
        return gradient(1)(image[:, : 16 - cut], out[:, cut:])

    plan = check(function, X4, IMAGE, GRADIENT, results=None)
    assert not plan.collectives.keys() & {"all-gather", "all-to-all"}
