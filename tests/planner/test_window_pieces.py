"""Rows of a domain's own beside it, and fields whose stencils look different ways: least bytes, and the right bits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.slowness import some

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import Array  # noqa: E402
from tests.planner.test_stencils import PLANE, X2, X8, argument, check  # noqa: E402

from eggshard.limits import Limits  # noqa: E402

ROW = 4 * 8  # bytes of a row of eight


def extended(low: int, high: int) -> Callable[[Array], Array]:
    """Sums over neighbouring rows of a domain that repeats its first and last rows."""
    def function(u: Array) -> Array:
        p = jnp.concatenate([u[:low], u, u[u.shape[0] - high :]], axis=0)
        return sum(k * p[k : k + u.shape[0]] for k in range(low + high + 1))  # type: ignore[return-value]

    return function


def folded(height: int, negative: bool = False) -> Callable[[Array], Array]:
    """Beyond the last row the domain goes on with its last rows in opposite order, as on a tripolar grid."""
    def function(u: Array) -> Array:
        beyond = u[-height:, ::-1]
        p = jnp.concatenate([jnp.zeros_like(u[:1]), u, -beyond if negative else beyond], axis=0)
        return p[: u.shape[0]] + 3 * p[1 + height :] + 5 * u

    return function


def fluxes(u: Array, mask: Array) -> Array:
    """Differences between neighbours that are both inside: a flux is needed from both of its sides."""
    p, m = jnp.pad(u, ((1, 0), (0, 0))), jnp.pad(mask, ((1, 0), (0, 0)))
    south = (p[1:] - p[:-1]) * m[1:] * m[:-1]
    return u + jnp.pad(south, ((0, 1), (0, 0)))[1:] - south


def staggered(u: Array, v: Array) -> tuple[Array, Array]:
    """u looks one way, v at the new u the other way."""
    u = u + 3 * jnp.pad(v, ((0, 1), (0, 0)))[1:]
    v = v - 5 * jnp.pad(u, ((1, 0), (0, 0)))[:-1]
    return u, v + 7 * jnp.pad(v, ((0, 1), (0, 0)))[1:]


@pytest.mark.parametrize("low, high", some([(2, 2), (1, 3), (4, 1)], 2, rows=True))
@pytest.mark.parametrize("mesh", [X8, X2], ids=["8", "2"])
def test_extended_by_rows_of_its_own(mesh: dict[str, int], low: int, high: int) -> None:
    """The repeated rows are where they are needed; only neighbours' rows travel."""
    plan = check(extended(low, high), mesh, argument((64, 8), "x -"))
    assert plan.serial_bytes <= (low + high) * ROW  # on two devices slabs of one width travel together


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("height", [1, 2, 3])
def test_folds(height: int, negative: bool) -> None:
    plan = check(folded(height, negative), X8, argument((64, 8), "x -"))
    assert plan.serial_bytes == (1 + height) * ROW


@pytest.mark.parametrize("height", [1, 2])
def test_folds_over_both_dimensions(height: int) -> None:
    """The row lies mirrored over another axis: it is sent there, and to no others."""
    plan = check(folded(height), PLANE, argument((64, 8), "x y"))
    assert plan.serial_bytes <= (1 + height + 2) * ROW / 2


def test_a_single_row_before_and_after() -> None:
    def function(u: Array) -> Array:
        p = jnp.concatenate([u[3:4], u, u[60:61]], axis=0)
        return p[:-2] + 3 * p[2:] + 5 * u

    check(function, X8, argument((64, 8), "x -"))
    check(function, PLANE, argument((64, 8), "x y"))


def test_fluxes_are_sent_rather_than_computed_twice() -> None:
    """One row each of the field, of the mask and of the fluxes: computing them again takes two of field and mask."""
    plan = check(fluxes, X8, argument((64, 8), "x -"), argument((64, 8), "x -"))
    assert plan.serial_bytes == 3 * ROW


def test_fields_that_look_different_ways() -> None:
    plan = check(staggered, X8, argument((64, 8), "x -"), argument((64, 8), "x -"), results=None)
    assert plan.serial_bytes == 2 * ROW


@pytest.mark.parametrize("mesh", some([X2, {"x": 2, "u": 2}, {"x": 4, "u": 2}], 2), ids=str)
@pytest.mark.parametrize("low, high", [(1, 3), (2, 1)])
def test_a_value_that_is_its_own_window_is_taken_from_where_it_was_asked_for(
    low: int, high: int, mesh: dict[str, int]
) -> None:
    """The middle of an extended array is the array: at its tiles, although they are one of its windows, too."""
    def plain(u: Array) -> Array:
        p = jnp.concatenate([u[:low], u, u[-high:]], axis=0)
        return sum(p[k : k + u.shape[0]] for k in range(low + high + 1))  # type: ignore[return-value]

    check(plain, mesh, argument((16, 8), "x -"), limits=Limits(proof=0))
