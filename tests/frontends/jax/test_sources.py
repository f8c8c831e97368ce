"""What JAX lowers and exports is read with its meaning, its shardings and its size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from tests.frontends.jax_programs import sharded

import eggshard
from eggshard.frontends import load


def test_exported_means_what_its_text_does() -> None:
    function = jax.jit(lambda x: jnp.tanh(x) @ x.T, in_shardings=sharded("x", "y"), out_shardings=sharded("x"))
    exported = jax.export.export(function, platforms=("tpu",))(jax.ShapeDtypeStruct((64, 32), jnp.float32))
    program, from_text = load(exported), load(exported.mlir_module())
    assert program == from_text
    assert program.input_shardings[0] is not None
    plan = eggshard.optimize(exported)
    assert str(plan) == str(eggshard.optimize(exported.mlir_module()))
    plan.verify(engines=("numpy",))
