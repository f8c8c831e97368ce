"""`eggshard.partition`: the plain program of a device, and the same program run under JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard.costmodel import AlphaBeta, WireBytes
from eggshard.shardy.partitioning import MODES


def network(x: jax.Array, w: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    hidden = jax.nn.gelu(x @ w)
    return hidden @ v, jnp.roll(x, 1, axis=0)


SPECS = P("x"), P(None, "y"), P("y")
SHAPES = (16, 8), (8, 32), (32, 8)


def placed(spec: P) -> NamedSharding:
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    return NamedSharding(mesh, spec)


@pytest.fixture(scope="module")
def lowered() -> jax.stages.Lowered:
    types = [jax.ShapeDtypeStruct(shape, np.float32) for shape in SHAPES]
    jitted = jax.jit(network, in_shardings=tuple(map(placed, SPECS)), out_shardings=(placed(P("x")), placed(P("x"))))
    return jitted.lower(*types)


@pytest.mark.parametrize("mode", MODES)
def test_programs_of_a_device_run_under_jax(lowered: jax.stages.Lowered, mode: str) -> None:
    made = es.partition(lowered, mode=mode)
    assert "sdy" not in made.text and "tensor<4x8xf32>" in made.text and made.mesh.size == 8
    assert [(str(e.type), str(e.local)) for e in made.inputs][0] == ("tensor<16x8xf32>", "tensor<4x8xf32>")
    assert [e.sharding for e in made.outputs] == ['[{"x"}, {}]'] * 2
    assert made.bytes.busiest > 0 and sum(made.collectives.values()) >= 2
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in SHAPES]
    results = jax.jit(made.to_jax())(*map(jax.device_put, arrays, map(placed, SPECS)))
    for result, wanted in zip(results, network(*arrays), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)
        assert result.sharding.is_equivalent_to(placed(P("x")), 2)


def test_the_whole_program_is_never_dearer_than_op_by_op(lowered: jax.stages.Lowered) -> None:
    for model in (WireBytes(), AlphaBeta()):
        by_op, whole = es.partition(lowered), es.partition(lowered, mode="global", cost_model=model)
        assert whole.mode == "global" and whole.seconds(model) <= by_op.seconds(model)


def test_text_says_how_much_is_sent_and_how_ends_are_cut(lowered: jax.stages.Lowered) -> None:
    shown = str(es.partition(lowered))
    assert "mode=shardy" in shown and "received by the busiest device" in shown and "argument 2" in shown


def test_programs_without_a_mesh_stay_whole() -> None:
    made = es.partition("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")
    assert made.mesh.size == 1 and not made.collectives and made.inputs[0].local == made.inputs[0].type


def test_programs_with_collectives_are_refused() -> None:
    """What devices hold of the operand is not said, and arguments are whole."""
    with pytest.raises(es.errors.ProgramError, match="explicit collectives already .sdy.all_reduce"):
        es.partition("""sdy.mesh @mesh = <["x"=4]>
          func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
            %0 = sdy.all_reduce {"x"} %a out_sharding=<@mesh, [{}]> : tensor<4xf32>
            return %0 : tensor<4xf32> }""")


def test_programs_whose_shardings_are_of_gspmd_are_refused() -> None:
    with pytest.raises(es.errors.ProgramError, match="lower it with Shardy enabled"):
        es.partition("""func.func @main(%a: tensor<4xf32> {mhlo.sharding = "{devices=[4]<=[4]}"}) -> tensor<4xf32> {
            return %a : tensor<4xf32> }""")


@pytest.mark.parametrize("options, error, words", [
    ({"mode": "fast"}, es.errors.ProgramError, "shardy, global"),
    ({"cost_model": "h100-node"}, es.errors.CostModelError, "mode='global'"),
    ({"mode": "global", "cost_model": "abacus"}, es.errors.CostModelError, "h100-node"),
])  # fmt: skip
def test_mistakes_are_named(lowered: jax.stages.Lowered, options: dict[str, str], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        es.partition(lowered, **options)
