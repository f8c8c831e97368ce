"""Plans lowered for devices that are not here, and for those that are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard.errors import LoweringError


def lowered(sizes, n, platform):
    """A program with a keyword argument and trees, lowered on a mesh without devices."""
    mesh = AbstractMesh(sizes, ("x", "y", "z"), axis_types=(AxisType.Auto,) * 3)

    def model(x, weights, *, scale):
        return {"y": jax.nn.relu(x @ weights["up"]) @ weights["down"] * scale}

    def array(*spec):
        return jax.ShapeDtypeStruct((n, n), jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    with jax.sharding.use_abstract_mesh(mesh):
        traced = jax.jit(model, out_shardings=NamedSharding(mesh, P("x", None))).trace(
            array("x"), {"up": array("x", "y"), "down": array("y", "x")}, scale=jax.ShapeDtypeStruct((), jnp.float32)
        )
        return traced.lower(lowering_platforms=(platform,)), model


def test_an_exported_plan_runs_where_its_devices_are():
    program, model = lowered((2, 2, 2), 64, "cpu")
    blob = es.optimize(program).export(platforms=("cpu", "tpu")).serialize()
    loaded = jax.export.deserialize(blob)
    assert loaded.platforms == ("cpu", "tpu") and loaded.nr_devices == 8
    mesh = jax.make_mesh((2, 2, 2), ("x", "y", "z"))
    x, up, down = np.random.default_rng(0).standard_normal((3, 64, 64)).astype(np.float32)

    def put(value, *spec):
        return jax.device_put(value, NamedSharding(mesh, P(*spec)))

    found = jax.jit(loaded.call)(
        put(x, "x"), {"up": put(up, "x", "y"), "down": put(down, "y", "x")}, scale=put(np.float32(2))
    )
    assert found["y"].sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2)
    np.testing.assert_allclose(found["y"], model(x, {"up": up, "down": down}, scale=2)["y"], rtol=1e-4, atol=1e-3)


def test_a_plan_for_thousands_of_tpus():
    program, _ = lowered((16, 16, 16), 8192, "tpu")
    plan = es.optimize(program)
    exported = plan.export()
    assert exported.platforms == ("tpu",) and exported.nr_devices == plan.mesh.size == 4096
    assert "num_partitions = 4096" in exported.mlir_module() and sum(plan.collectives.values()) > 0
    assert jax.export.deserialize(exported.serialize()).in_tree == exported.in_tree


def test_programs_from_text_take_their_inputs_one_by_one():
    b = es.ProgramBuilder({"x": 4, "y": 2})
    b.output(b.input((8, 8), "f32", ("x", "y")) * 2.0, ("y", None))
    exported = es.optimize(b.build()).export(("cuda",))
    assert exported.nr_devices == 8 and [a.shape for a in exported.in_avals] == [(8, 8)]


@pytest.mark.parametrize("platforms", ["tpu", (), ("abacus",)])
def test_platforms_are_names(platforms):
    b = es.ProgramBuilder({"x": 2})
    b.output(b.input((4,), "f32", ("x",)) * 2.0)
    with pytest.raises(LoweringError, match="cpu, cuda, rocm, tpu"):
        es.optimize(b.build()).export(platforms)


def test_callbacks_stay_where_they_are():
    def show(x):
        jax.debug.callback(lambda value: None, x)
        return x + 1

    plan = es.optimize(jax.jit(show).lower(jnp.zeros(4)))
    with pytest.raises(LoweringError, match="calls back into Python"):
        plan.export(("cpu",))
