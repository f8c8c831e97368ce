"""Reductions over parts of a domain: tiles that a slice leaves shifted are as good as any, and nothing is moved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import Array  # noqa: E402
from tests.planner.test_stencils import PLANE, X8, argument, check  # noqa: E402

SCALAR = 2 * 4 * 7 / 8  # bytes of an all-reduce of one number over eight devices

#: On 64x8 by rows: what is computed, and bytes.
CASES: dict[str, tuple[Callable[[Array], Array], float]] = {
    "sum of the interior": (lambda u: jnp.sum(u[1:-1] * u[1:-1]), SCALAR),
    "far cut": (lambda u: jnp.sum(u[13:-9]), SCALAR),
    "maximum": (lambda u: jnp.max(jnp.abs(u[3:])), SCALAR),
    "minimum of both dimensions": (lambda u: jnp.min(u[2:-3, 1:-1]), SCALAR),
    "columns": (lambda u: jnp.sum(u[2:-2], axis=0), 8 * SCALAR),
    "product of interiors": (lambda u: jnp.tensordot(u[1:-1], u[1:-1], 2), SCALAR),
    "transposed": (lambda u: jnp.sum(u[1:-1].T, axis=1), 8 * SCALAR),
    "differences": (lambda u: jnp.sum((u[1:] - u[:-1]) * 3), SCALAR + 8 * 4),
    "cut twice": (lambda u: jnp.sum(u[5:][:-7]), SCALAR),
}


@pytest.mark.parametrize("name", CASES)
def test_least_bytes_and_the_right_bits(name: str) -> None:
    function, known = CASES[name]
    plan = check(function, X8, argument((64, 8), "x -"), results=None)
    assert plan.serial_bytes <= known


def test_what_lies_outside_is_not_seen() -> None:
    """Special values beside the part, and in it."""
    for function in (lambda u: jnp.max(u[3:-2]), lambda u: jnp.min(u[9:])):
        check(function, X8, argument((64, 8), "x -", "float32"), special=True, results=None)


def test_both_dimensions_are_sharded() -> None:
    plan = check(lambda u: jnp.sum(u[1:-1, 2:-1]), PLANE, argument((64, 8), "x y"), results=None)
    assert plan.serial_bytes <= 2 * SCALAR


@pytest.mark.parametrize("shape", [(24, 8), (64, 8), (16, 8)])
def test_parts_of_any_size(shape: tuple[int, int]) -> None:
    """Parts that some devices hold nothing of, too."""
    for low, high in ((0, 7), (9, 1), (5, 5)):
        check(lambda u, a=low, b=shape[0] - high: jnp.sum(u[a:b]), X8, argument(shape, "x -"), results=None)


def test_a_step_and_the_norm_of_its_interior() -> None:
    def function(u: Array) -> tuple[Array, Array]:
        v = u + 3 * jnp.roll(u, 1, 0)
        return v, jnp.sum(v[1:-1] * v[1:-1])

    plan = check(function, X8, argument((64, 8), "x -"), results=None)
    assert plan.serial_bytes <= 8 * 4 + SCALAR
