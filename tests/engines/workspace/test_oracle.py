"""Device programs run inside their workspace, every byte tagged with its owner, against the device simulator."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tests.engines.workspace.oracle import ForeignData, Run
from tests.engines.workspace.programs import branching, swapping_loop
from tests.random_programs import random_case, random_inputs, random_model
from tests.slowness import some

import eggshard
from eggshard.costmodel import WireBytes
from eggshard.engines.jax.verification import difference, tolerance
from eggshard.engines.workspace.steps import programs, workspace_of
from eggshard.ops.evaluate import evaluate_program
from eggshard.simulate import simulator
from eggshard.simulate.device_arrays import same_bits
from eggshard.steps.control_steps import Branch, Loop


def rows(count=1, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((4, 6)).astype(np.float32) for _ in range(count)]


def assert_as_simulated(plan, shards, **options):
    outputs = Run(workspace_of(plan, guard=64), **options)(shards)
    for got, want in zip(outputs, simulator.run(plan, shards), strict=True):
        assert same_bits(got, want).all()
    return outputs


def assert_computes_the_program(plan, inputs):
    """The device program in its workspace with the simulator, and with the unsharded program."""
    shards = [
        simulator.scatter_to_devices(plan.mesh, array, placement)
        for array, placement in zip(inputs, plan.input_placements, strict=True)
    ]
    program = plan.program
    outputs = assert_as_simulated(plan.device_program, shards)
    wanted = evaluate_program(program, inputs)
    for got, want, type_, placement in zip(outputs, wanted, program.output_types, plan.output_placements, strict=True):
        whole = simulator.gather_from_devices(plan.mesh, got, type_.shape, placement)
        assert difference(whole, want) <= tolerance(type_.dtype)
    workspace_of(plan.device_program).proof().check()


def test_a_loop_that_swaps_its_state_and_talks():
    assert_as_simulated(swapping_loop(), rows(2))


@pytest.mark.parametrize("selector", [0, 1, 7, -1])
def test_branches(selector):
    assert_as_simulated(branching(), [np.full(4, selector, np.int32), *rows()])


def test_faults_are_found():
    """One block's workspace for all (each device at device 0's slice), and buffers on top of each other."""
    plan = swapping_loop()
    layout = workspace_of(plan, guard=64).layout

    def alone(name, device, devices, **index):
        return layout.address(name, 0, devices, **index)

    def one_slot(name, device, devices, slot=0):
        return layout.address(name, device, devices)

    def overlapping(name, device, devices, slot=0):
        return layout.address(name, device, devices, slot=slot) // 4

    for wrong in (alone, one_slot, overlapping):
        with pytest.raises(ForeignData):
            assert_as_simulated(plan, rows(2), address=wrong)


@pytest.mark.parametrize("seed", some(range(10), 4))
def test_random_plans(seed):
    rng = random.Random(seed)
    case = random_case(rng)
    plan = eggshard.optimize(case.program, cost_model=random_model(rng), exact=True)
    inputs = random_inputs(case.program, np.random.default_rng(seed))
    with np.errstate(all="ignore"):
        assert_computes_the_program(plan, inputs)


def rotated(x, w):
    def step(carry, _):
        h, before = carry
        return (jnp.tanh(h @ w), h), before.sum()

    return lax.scan(step, (x, x + 1), None, length=3)


def nested(x, w):
    def inner(h):
        return lax.cond(h[0, 0] > 0, lambda h: jnp.tanh(h @ w), lambda h: h + 1, h)

    return lax.fori_loop(0, 2, lambda _, h: lax.fori_loop(0, 2, lambda _, h: inner(h), h) @ w, x)


@pytest.mark.parametrize("function", [rotated, nested])
def test_loops_and_branches_from_jax(function):
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    shardings = NamedSharding(mesh, PartitionSpec("x")), NamedSharding(mesh, PartitionSpec(None, "y"))
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    plan = eggshard.optimize(jax.jit(function, in_shardings=shardings).lower(shape, shape), cost_model=WireBytes())
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2))
    kinds = {type(step.action) for _, part in programs(plan.device_program) for step in part.steps}
    assert Loop in kinds and (function is rotated or Branch in kinds)
    assert_computes_the_program(plan, (x, w))
    workspace = plan.workspace()
    assert workspace.total_bytes == 4 * workspace.stride and workspace.peak_bytes <= workspace.stride
