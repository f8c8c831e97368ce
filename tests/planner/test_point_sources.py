"""What is changed at single indices of a sharded array is changed where it lies, and nothing is sent."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tests.slowness import some

import eggshard as es

CHANGES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "point added": lambda a: a.at[30, 40].add(1.0),
    "point set": lambda a: a.at[30, 40].set(1.0),
    "row added": lambda a: a.at[5].add(1.0),
    "row by elements": lambda a: a.at[5].multiply(jnp.arange(64.0)),
    "column set": lambda a: a.at[:, 5].set(2.0),
    "box added": lambda a: a.at[30:34, 40:44].add(1.0),
    "row's largest": lambda a: a.at[63].max(0.5),
    "part of a row negated": lambda a: a.at[9, 8:40].set(-a[9, 8:40]),
    "two points": lambda a: a.at[3, 60].add(1.0).at[40, 2].add(-1.0),
}


@pytest.mark.parametrize("name", some(CHANGES, 4))
def test_nothing_is_sent(name: str) -> None:
    devices = jax.devices()[:4]
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=devices)
    tiled, array = NamedSharding(mesh, PartitionSpec("x", "y")), np.random.default_rng(0).random((64, 64), np.float32)
    changed = CHANGES[name]
    lowered = jax.jit(changed, in_shardings=tiled, out_shardings=tiled).lower(array)
    for model in (None, es.costmodel.WireBytes()):
        plan = es.optimize(lowered, cost_model=model)
        assert plan.wire_bytes == 0
        np.testing.assert_array_equal(plan.run(array)[0], jax.jit(changed)(array))
