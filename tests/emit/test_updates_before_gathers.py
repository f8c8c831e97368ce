"""XLA:CPU updates in place what a dimension of size 1 is then put in, though the update reads it elsewhere."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from tests.slowness import some

import eggshard as es

X = np.random.default_rng(0).integers(-3, 4, (4, 8, 4)).astype(np.float32)


def stencil(x):
    y = x * -1
    return y.at[1:-1].set(y[2:] + y[:-2] - 2 * y[1:-1])


@pytest.mark.parametrize("into", [(None, None, None), (None, "a", None), (None, None, "c"), ("a", None, None)])
def test_updates_are_right_before_any_gather(into) -> None:
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    mesh = jax.make_mesh((2, 2), ("a", "c"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:4])
    given, wanted = (NamedSharding(mesh, PartitionSpec(*dims)) for dims in ((None, "a", "c"), into))
    plan = es.optimize(jax.jit(stencil, in_shardings=given, out_shardings=wanted).lower(jnp.asarray(X)))
    assert np.array_equal(np.asarray(plan.to_jax()(X)), np.asarray(jax.jit(stencil)(X)))


@pytest.mark.parametrize("after", [
    lambda y: y[None], lambda y: y[..., None], lambda y: y.reshape(1, -1, 1),
    lambda y: y.at[jnp.array([3, 0, 2, 1])].set(y * 2, unique_indices=True),
    lambda y: jnp.zeros_like(y).at[jnp.array([3, 0, 2, 1])].set(y, unique_indices=True),
    lambda y: y[jnp.array([3, 0, 2, 1])], lambda y: jnp.broadcast_to(y[:, None], (4, 2, 8, 4)),
], ids=["before", "behind", "around", "scattered on itself", "scattered", "picked", "spread"])
@pytest.mark.parametrize("spec", some([(None, None, None), (None, "a", "c")], 1))
def test_updates_are_right_before_other_shapes(after, spec) -> None:
    """Held against NumPy: `jax.jit` of the first ones is wrong in JAX 0.10.2."""
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    mesh = jax.make_mesh((2, 2), ("a", "c"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:4])
    given = NamedSharding(mesh, PartitionSpec(*spec))
    plan = es.optimize(jax.jit(lambda x: after(stencil(x)), in_shardings=given).lower(jnp.asarray(X)))
    y = X * -1
    y[1:-1] = y[2:] + y[:-2] - 2 * y[1:-1]
    assert np.array_equal(np.asarray(plan.to_jax()(X)), np.asarray(after(jnp.asarray(y))))
