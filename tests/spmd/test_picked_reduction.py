"""Reductions that pick elements, over sharded dimensions: on the simulator, on XLA, and in plans."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tests.ops.samples import Sample, array, types_of
from tests.ops.samples2 import argmax_update_region
from tests.spmd.on_xla import Form, results_on_xla

import eggshard as es
from eggshard.ops import registry
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.simulate import simulator
from eggshard.simulate.simulator import gather_from_devices, scatter_to_devices
from eggshard.spmd.picked_reduction import NAME, picked, picking_strategies, picks

MESHES = (Mesh({"x": 4}), Mesh({"x": 2, "y": 3}), Mesh({"x": 2, "y": 2}, device_ids=(2, 0, 3, 1)))


def sample(shape: tuple[int, ...], dimensions: tuple[int, ...]) -> Sample:
    """The largest value and its tag; equal values occur, and what is past the end would win."""
    rng = np.random.default_rng(0)
    values = rng.integers(-9, 3, shape).astype(np.float32)
    inits = [np.array(-np.inf, np.float32), np.array(-1, np.int32)]
    return Attributes(dimensions=dimensions), [values, array(rng, shape, "i32"), *inits], (argmax_update_region(),)


@pytest.mark.parametrize(("shape", "dimensions"), [((11,), (0,)), ((3, 12), (1,)), ((7, 2, 5), (0,)), ((4, 9), (0, 1))])
def test_every_strategy(shape: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    attrs, arrays, regions = made = sample(shape, dimensions)
    operands, definition = types_of(arrays), registry.get(NAME)
    results, whole = definition.infer(attrs, operands, regions), definition.evaluate(attrs, arrays, regions)
    rule = definition.factors(attrs, operands, results)
    assert picks(NAME, regions)
    for mesh in MESHES:
        ways = list(picking_strategies(mesh, attrs, rule, frozenset(), 99))
        if len(dimensions) > 1:  # which of equal values wins is a matter of the order, and that of the devices
            ways = [s for s in ways if sum(bool(s.operands[0].dims[d].axes) for d in dimensions[1:]) == 0]
        forms = [Form(NAME, made, s, picked(mesh, attrs, regions, operands, results, s)) for s in ways]
        assert forms
        for form, shards in zip(forms, results_on_xla(mesh, forms), strict=True):
            given = [scatter_to_devices(mesh, a, p) for a, p in zip(arrays, form.strategy.operands, strict=True)]
            for found in (shards, simulator.run(form.action, given)):
                for got, want, placement in zip(found, whole, form.strategy.results, strict=True):
                    np.testing.assert_array_equal(gather_from_devices(mesh, got, want.shape, placement), want)


def test_sums_do_not_pick() -> None:
    scalar = TensorType((), "f32")
    builder = RegionBuilder((scalar, scalar))
    assert not picks(NAME, (builder.build(builder.add("add", (0, 1))),))


PICKED: dict[str, Callable[[jax.Array], jax.Array]] = {
    "argmax": lambda a: jnp.argmax(a, -1), "argmin": lambda a: jnp.argmin(a, 1),
    "of a flat field": lambda a: jnp.argmax(a.reshape(-1)),
}


@pytest.mark.parametrize("name", PICKED)
def test_what_devices_picked_is_sent(name: str) -> None:
    mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((None, "x"), ()))
    if name == "of a flat field":
        split = NamedSharding(mesh, PartitionSpec("x"))
    logits = np.random.default_rng(0).integers(-99, 99, (16, 4096)).astype(np.float32)
    logits[3, 77] = logits[3, 3000] = np.nan
    function = PICKED[name]
    lowered = jax.jit(function, in_shardings=split, out_shardings=whole).lower(logits)
    for model in (None, es.costmodel.WireBytes()):
        plan = es.optimize(lowered, cost_model=model)
        assert plan.wire_bytes <= 3 * 16 * 8
        for got in (plan.run(logits)[0], plan.to_jax()(logits)):
            np.testing.assert_array_equal(got, jax.jit(function)(logits))
