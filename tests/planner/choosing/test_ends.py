"""Open ends of programs of equal layers, some of which tactics narrow."""

from dataclasses import replace

import jax
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, PartitionSpec as P
from tests.planner.choosing.test_choice import LIMITS, f32, program_of

from eggshard.frontends import load
from eggshard.planner.choosing.choice import Chooser
from eggshard.planner.choosing.ends import Ends
from eggshard.planner.choosing.narrowing import End, Narrowing
from eggshard.planner.layers.shortening import shorten
from eggshard.planner.optimization import read
from eggshard.planner.request import requested
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType
from eggshard.tactics import shard

COUNT = 90


def deep(x, *ws):
    for w in ws:
        x = jnp.tanh(x @ w) + jnp.exp(-x) * jnp.cos(x)
    return x


@pytest.fixture(scope="module")
def program():
    return program_of(deep, f32(256, 64), *[f32(64, 64)] * COUNT)


def test_equal_layers_lie_where_all_of_them_may(program):
    short = shorten(program)
    whole = Ends.of(read(requested(program, "tpu-v5e")).plans, {})
    inputs = list(whole.inputs)
    inputs[40] = [p for p in inputs[40] if p.dims[1].axes]
    found = replace(whole, inputs=tuple(inputs)).shortened(short)
    assert found is not None
    groups = [options for options in found.inputs if list(options) == inputs[40]]
    assert len(groups) >= 2 and len(found.inputs) < COUNT
    inputs[41] = [p for p in inputs[41] if not p.dims[1].axes]
    assert replace(whole, inputs=tuple(inputs)).shortened(short) is None


def test_a_tactic_for_one_of_equal_layers_moves_all(program):
    ends = [End(f"args[{i}]", TensorType(tuple(t.shape), t.dtype)) for i, t in enumerate(program.input_types)]
    narrowing = Narrowing([shard("x", 1, of="args[40]")], ends, [None])
    found = Chooser(requested(program, "tpu-v5e", limits=LIMITS), {}, narrowing).cheapest
    assert {p.dims[1].axes for p in found.inputs[3:-2]} == {("x",)} and narrowing.by.keys() == {"args[40]"}


def test_ends_lie_where_the_program_has_them_too():
    """Axes in another order than the mesh's, which no other end is offered."""
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:4])
    doubled = jax.shard_map(lambda v: 2 * v, mesh=mesh, in_specs=P(("y", "x")), out_specs=P(("y", "x")))
    program = load(jax.jit(doubled).lower(f32(64)))
    program = replace(program, input_shardings=(Sharding.fully_open(1),), output_shardings=(None,), text=None)
    ends = Ends.of(read(requested(program, "tpu-v5e")).plans, {})
    stated = Sharding.of((("y", "x"),), 1, program.mesh).to_placement(program.mesh, program.input_types[0])
    assert ends.inputs[0][-1] == ends.outputs[0][-1] == stated
