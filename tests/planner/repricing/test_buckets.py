"""All-reduces that share a latency: what plans cost with them, and that bounds hold of plans that join them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard.costmodel import AlphaBeta, WireBytes, preset, presets
from eggshard.costmodel.pricing import Pricer
from eggshard.planner.repricing.buckets import Shared
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.steps import AllReduce

MESH = Mesh({"x": 8})


def data_parallel(layers: int, width: int = 64, rows: int = 512) -> str:
    """The gradients of layers with weights and biases, of which every device has a part of the batch."""
    mesh = AbstractMesh((8,), ("x",), axis_types=(AxisType.Auto,))
    whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("x"))

    def loss(weights, biases, x):
        for w, b in zip(weights, biases, strict=True):
            x = jnp.tanh(x @ w + b)
        return (x**2).mean()

    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((width, width), (width,), (rows, width))]
    some = [whole] * layers
    function = jax.jit(jax.grad(loss, (0, 1)), in_shardings=(some, some, cut), out_shardings=(some, some))
    arguments = [shapes[0]] * layers, [shapes[1]] * layers, shapes[2]
    return function.trace(*arguments).lower(lowering_platforms=("cpu",)).as_text()


@pytest.mark.parametrize("model", [AlphaBeta(), "tpu-v5e", "cpu-host", AlphaBeta(overlap=1.0)], ids=str)
def test_gradients_of_all_layers_share_a_latency(model) -> None:
    plan = es.optimize(data_parallel(4), cost_model=model)
    assert sum(plan.collectives.values()) == 1 or getattr(model, "overlap", 0.0)
    assert plan.cost.total <= plan.baseline.cost.total * (1 + 1e-9)
    assert plan.bound <= plan.cost.total and (plan.gap is None or 0 <= plan.gap < 1)
    plan.verify()


def test_joined_reductions_are_one_step_of_several_values() -> None:
    plan = es.optimize(data_parallel(3), cost_model="tpu-v5e")
    (step,) = [s for s in plan.steps if isinstance(s.action, AllReduce)]
    assert len(step.operands) == len(step.results) == 6
    assert any("share latencies" in note for note in plan.search.notes)
    assert es.Plan.from_json(plan.to_json()).cost == plan.cost


@pytest.mark.parametrize("model", [AlphaBeta(), WireBytes(), *map(preset, presets())], ids=str)
def test_no_bucket_costs_less_than_its_data(model) -> None:
    apart, shared = Pricer(model, MESH), Shared(Pricer(model, MESH))
    rng = np.random.default_rng(0)
    for _ in range(20):
        types = [TensorType((int(n),), "f32") for n in 2 ** rng.integers(3, 22, rng.integers(1, 9))]
        reduce = AllReduce(("x",), "add")
        least = sum(shared(reduce, t) for t in types)
        assert 0 <= least + shared.latency(("x",)) <= apart(reduce, *types) * (1 + 1e-9)
        assert all(shared(reduce, t) <= apart(reduce, t) for t in types)
