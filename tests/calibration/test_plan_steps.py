"""`Plan.measure`: seconds of steps, predicted and measured, and machines refitted to them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec as P

import eggshard
from eggshard.calibration.plan_steps import refitted
from eggshard.costmodel import WireBytes
from eggshard.costmodel.machines.machine_files import preset
from eggshard.costmodel.protocol import StepInfo
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh

MESH = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:4])
HOST = preset("cpu-host")


def lowered(function, *arrays, at):
    lie = [NamedSharding(MESH, P(*spec)) for spec in at]
    return jax.jit(function, in_shardings=tuple(lie), out_shardings=NamedSharding(MESH, P())).lower(*arrays)


def test_steps_are_timed_beside_their_prices():
    a, b = np.ones((64, 128), np.float32), np.ones((128, 64), np.float32)
    plan = eggshard.optimize(lowered(lambda a, b: a @ b, a, b, at=[(None, "x"), ("x",)]), cost_model=HOST)
    found = plan.measure(a, b, repeats=1)
    assert {row.step.op or row.step.kind for row in found.steps} >= {"dot_general", "all-reduce"}
    assert found.predicted == plan.cost.total
    assert found.measured > 0
    assert all(row.count == 1 and row.predicted > 0 for row in found.steps)
    assert "dot_general" in str(found)
    assert "one by one" in str(found)
    assert plan.cost.total != eggshard.optimize(plan.program, cost_model=found.refitted()).cost.total


def test_steps_of_loops_are_counted_by_trips():
    def f(a):
        return jax.lax.fori_loop(0, 5, lambda i, a: jnp.tanh(a) + jnp.sum(a), a)

    a = np.ones((64,), np.float32)
    plan = eggshard.optimize(lowered(f, a, at=[("x",)]), cost_model=HOST)
    counts = {row.step.op or row.step.kind: row.count for row in plan.measure(a, repeats=1).steps}
    assert counts["tanh"] == 5


def test_a_model_without_constants_is_not_refitted():
    a = np.ones((64,), np.float32)
    plan = eggshard.optimize(lowered(jnp.sum, a, at=[("x",)]), cost_model=WireBytes())
    with pytest.raises(CostModelError, match="WireBytes has no constants"):
        plan.measure(a, repeats=1).refitted()


@pytest.mark.parametrize("machine", ["cpu-host", "cpu-cluster", "h100-node", "tpu-v5e"])
def test_refitted_prices_are_what_was_measured(machine):
    machine, mesh = preset(machine), Mesh({"x": 8})
    steps = [
        StepInfo("all-reduce", mesh, axes=("x",), group=8, wire_bytes=3e6, memory_bytes=6e6, messages=1),
        StepInfo("all-gather", mesh, axes=("x",), group=8, wire_bytes=2e6, memory_bytes=4e6, messages=1),
        StepInfo("local", mesh, op="dot_general", flops=1e9, memory_bytes=1e6, dtype="f32"),
        StepInfo("local", mesh, op="logistic", flops=1e6, memory_bytes=4e6, dtype="f32"),
    ]
    wanted = [machine.seconds(step) * factor for step, factor in zip(steps, (3.0, 0.5, 1.7, 9.0), strict=True)]
    found = refitted(machine, list(zip(steps, wanted, strict=True)))
    assert [found.seconds(step) for step in steps] == pytest.approx(wanted, rel=1e-6)
    other = StepInfo("all-to-all", mesh, axes=("x",), group=8, wire_bytes=2e6, memory_bytes=4e6, messages=7)
    assert found.seconds(other) == machine.seconds(other)
