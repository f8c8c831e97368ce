"""Fourier transforms of several dimensions: each dimension is transformed where it is whole, there and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.slowness import some

import eggshard as es
from eggshard.costmodel import WireBytes


def filtered(x: Any) -> Any:
    """A field whose spectrum is damped."""
    spectrum = jnp.fft.fftn(x)
    return jnp.fft.ifftn(spectrum / (1 + jnp.abs(spectrum)))


@pytest.mark.parametrize(("shape", "axes"), some([
    ((32, 64), (("x", "y"), None)),
    ((16, 32, 64), (("x", "y"), None, None)),
    ((16, 32, 64), ("x", "y", None)),
    ((8, 16, 32, 64), (None, "x", "y", None)),
], 2, rows=True))
def test_one_exchange_there_and_one_back(shape: tuple[int, ...], axes: tuple[Any, ...]) -> None:
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    placed = NamedSharding(mesh, P(*axes))
    field = jax.ShapeDtypeStruct(shape, jnp.complex64)
    plan = es.optimize(jax.jit(filtered, in_shardings=placed, out_shardings=placed).lower(field),
                       cost_model=WireBytes())
    assert plan.collectives == {"all-to-all": 2}
    plan.verify()
    plan.prove()


def laplacian(x: Any) -> Any:
    """By a real filter that differs at every frequency."""
    squares = [jnp.fft.fftfreq(n).reshape([-1 if d == dim else 1 for d in range(x.ndim)]) ** 2
               for dim, n in enumerate(x.shape)]
    return jnp.real(jnp.fft.ifftn(-sum(squares) * jnp.fft.fftn(x)))


def derivative(x: Any) -> Any:
    """By a complex filter, which is not conjugate at the highest frequency."""
    return jnp.real(jnp.fft.ifftn(1j * jnp.fft.fftfreq(x.shape[-1]) * jnp.fft.fftn(x)))


def solution(x: Any) -> Any:
    """By division."""
    return jnp.real(jnp.fft.ifftn(jnp.fft.fftn(x) / (1 + jnp.arange(x.shape[-1]))))


def convolution(x: Any) -> Any:
    """Of a field with another one."""
    return jnp.real(jnp.fft.ifftn(jnp.fft.fftn(x) * jnp.fft.fftn(jnp.tanh(x))))


@pytest.mark.parametrize("function", some([laplacian, derivative, solution, convolution], 2))
@pytest.mark.parametrize(("shape", "axes"), some([
    ((16, 15), (("x", "y"), None)), ((16, 24, 32), ("x", "y", None)), ((4, 8, 15, 16), ("y", "x", None, None)),
], 1, rows=True))
def test_half_of_the_spectrum_of_what_is_real(
    function: Callable[[Any], Any], shape: tuple[int, ...], axes: tuple[Any, ...]
) -> None:
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    placed = NamedSharding(mesh, P(*axes))
    if len(shape) > 3:
        function = jax.vmap(function)
    lowered = jax.jit(function, in_shardings=placed, out_shardings=placed).lower(
        jax.ShapeDtypeStruct(shape, jnp.float32))
    plan = es.optimize(lowered, cost_model=WireBytes())
    assert "RFFT" in plan.to_stablehlo()
    plan.verify()
    plan.prove()
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    found = jax.jit(plan.to_jax())(jax.device_put(x, placed))
    wanted = jax.jit(function)(x)  # unsharded: XLA:CPU fails on some of its own
    np.testing.assert_allclose(found, wanted, atol=1e-6 * float(jnp.abs(wanted).max()))
