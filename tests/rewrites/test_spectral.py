"""Fourier transforms of several dimensions: each dimension is transformed where it is whole, there and back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard.costmodel import WireBytes


def filtered(x: Any) -> Any:
    """A field whose spectrum is damped."""
    spectrum = jnp.fft.fftn(x)
    return jnp.fft.ifftn(spectrum / (1 + jnp.abs(spectrum)))


@pytest.mark.parametrize(("shape", "axes"), [
    ((32, 64), (("x", "y"), None)),
    ((16, 32, 64), (("x", "y"), None, None)),
    ((16, 32, 64), ("x", "y", None)),
    ((8, 16, 32, 64), (None, "x", "y", None)),
])
def test_one_exchange_there_and_one_back(shape: tuple[int, ...], axes: tuple[Any, ...]) -> None:
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    placed = NamedSharding(mesh, P(*axes))
    field = jax.ShapeDtypeStruct(shape, jnp.complex64)
    plan = es.optimize(jax.jit(filtered, in_shardings=placed, out_shardings=placed).lower(field),
                       cost_model=WireBytes())
    assert plan.collectives == {"all-to-all": 2}
    plan.verify()
    plan.prove()
