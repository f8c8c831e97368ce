"""Reductions and products over all of a field that is tiled both ways send what they reduce to, and no field."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import eggshard as es

REDUCED: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "inner product": jnp.vdot,
    "product of flat fields": lambda a, b: a.ravel() @ b.ravel(),
    "tensor product": lambda a, b: jnp.tensordot(a, b, 2),
    "sum of products": lambda a, b: jnp.sum(a * b),
    "norm of the flat field": lambda a, b: jnp.linalg.norm((a - b).ravel()),
    "largest of the flat field": lambda a, b: jnp.max(jnp.abs(a - b).reshape(-1)),
    "products of rows": lambda a, b: a.reshape(1, -1) @ b.reshape(-1, 1),
}


@pytest.mark.parametrize("name", REDUCED)
def test_a_scalar_is_sent(name: str) -> None:
    devices = jax.devices()[:4]
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=devices)
    tiled, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("x", "y"), ()))
    rng, reduced = np.random.default_rng(0), REDUCED[name]
    a, b = (rng.integers(-2, 3, (512, 512)).astype(np.float32) for _ in range(2))
    lowered = jax.jit(reduced, in_shardings=(tiled, tiled), out_shardings=whole).lower(a, b)
    for model in (None, es.costmodel.WireBytes()):
        plan = es.optimize(lowered, cost_model=model)
        assert plan.wire_bytes <= 16
        np.testing.assert_allclose(plan.run(a, b)[0], jax.jit(reduced)(a, b), rtol=1e-6)
