"""What the examples of cost models share: a small program, and two plans of it side by side."""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es


def lowered() -> jax.stages.Lowered:
    """Two layers with their weights cut by rows over eight devices, and rows of inputs cut likewise."""
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:8])

    def layers(x: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.tanh(x @ a) @ b

    def sharded(*axes: str | None) -> NamedSharding:
        return NamedSharding(mesh, P(*axes))

    arguments = [np.ones(shape, np.float32) for shape in ((256, 512), (512, 512), (512, 256))]
    function = jax.jit(layers, in_shardings=(sharded("x", "y"), sharded("y", "x"), sharded("x", "y")),
                       out_shardings=sharded("x", "y"))
    return function.lower(*arguments)


def compare(model: object, name: str) -> tuple[es.Plan, es.Plan]:
    """Print the plan by default and the one by a model; give both."""
    program = lowered()
    usual, own = es.optimize(program), es.optimize(program, cost_model=model)
    for title, plan in (("by default", usual), (name, own)):
        print(f"{title}: {plan.collectives}, {plan.wire_bytes / 1024:.0f} KiB received by a device")
    return usual, own
