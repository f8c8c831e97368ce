"""XLA:CPU updates in place what a dimension of size 1 is then put in front of, though the update reads it elsewhere."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

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
