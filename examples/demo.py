"""The main job on a real JAX program: sequence-sharded attention on eight devices, planned and compared with XLA."""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard.hlo.collectives import count_collectives


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Softmax attention; ``[sequence, heads, features]``."""
    scores = jnp.einsum("qhd,khd->hqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("hqk,khd->qhd", jax.nn.softmax(scores, axis=-1), v)


def main() -> None:
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    by_sequence = NamedSharding(mesh, P("x", None, None))
    arrays = [np.random.default_rng(i).standard_normal((1024, 16, 64)).astype(np.float32) for i in range(3)]
    jitted = jax.jit(attention, in_shardings=by_sequence, out_shardings=by_sequence)
    lowered = jitted.lower(*arrays)

    plan = es.optimize(lowered, cost_model=es.costmodel.WireBytes())
    print(plan, "\n")
    print(plan.verify(), "\n")

    theirs = count_collectives(lowered.compile().as_text())
    planned = plan.to_jax()
    ours = count_collectives(planned.lower(*arrays).compile().as_text())
    print("counted in the compiled programs, per device:")
    print(f"  XLA's partitioner  {theirs.wire_bytes / 1024:8.0f} KiB  {theirs.summary}")
    print(f"  eggshard           {ours.wire_bytes / 1024:8.0f} KiB  {ours.summary}")
    difference = np.abs(np.asarray(planned(*arrays)) - np.asarray(jitted(*arrays))).max()
    print(f"  largest difference between the two results: {difference:.1e}")


if __name__ == "__main__":
    main()
