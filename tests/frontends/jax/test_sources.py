"""What JAX lowers and exports is read with its meaning, its shardings and its size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from tests.frontends.jax_programs import X, sharded

import eggshard
from eggshard.frontends import frontend_of, load


def test_exported_means_what_its_text_does() -> None:
    function = jax.jit(lambda x: jnp.tanh(x) @ x.T, in_shardings=sharded("x", "y"), out_shardings=sharded("x"))
    exported = jax.export.export(function, platforms=("tpu",))(jax.ShapeDtypeStruct((64, 32), jnp.float32))
    program, from_text = load(exported), load(exported.mlir_module())
    assert program == from_text
    assert program.input_shardings[0] is not None
    plan = eggshard.optimize(exported)
    assert str(plan) == str(eggshard.optimize(exported.mlir_module()))
    plan.verify(engines=("numpy",))


def test_about_how_many_ops_a_source_holds_is_known_before_it_is_read() -> None:
    def steps(x: jax.Array) -> jax.Array:
        for _ in range(50):
            x = jnp.sin(x) * 2
        return x

    def op_count(source: object) -> int:
        return frontend_of(source).op_count(source)

    lowered = jax.jit(steps).lower(X)
    program = load(lowered)
    assert 100 <= op_count(lowered) <= 2 * len(program.region.ops) + 10
    assert op_count(program) == len(program.region.ops)
    assert op_count(lowered.as_text()) == op_count("no module") == 0
