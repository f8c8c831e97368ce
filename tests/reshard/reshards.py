"""Helpers of the reshard tests: placements from short texts, running steps, and data to run them on."""

from dataclasses import replace

import numpy as np

from eggshard.program import monoids
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, place
from eggshard.program.types import TensorType, numpy_dtype
from eggshard.reshard.conversions import changed_axes
from eggshard.reshard.states import all_states, axis_lists
from eggshard.simulate.simulator import gather_from_devices, run, scatter_to_devices
from eggshard.steps.exchange import exchange, missing_cells
from eggshard.steps.steps import Step, StepPlan


def placed(mesh, shape, text, monoid="add"):
    """``placed(mesh, (8, 8), "xy|z+w")``: dimension 0 over x and y, dimension 1 over z, partial over w."""
    dims, _, partial = text.partition("+")
    return place(mesh, shape, tuple(tuple(d) for d in dims.split("|")), tuple(partial), monoid)


def all_placements(mesh, shape, partials=(((), ""),)):
    """Every placement of a shape over whole axes, for each of these partial axes and monoids."""
    states = all_states((axis_lists(tuple(mesh.axes)),) * len(shape), tuple(partials))
    return [place(mesh, shape, s.axes, s.partial, s.monoid) for s in states]


def random_shards(mesh, type_, placement, rng):
    """(shards, tensor): random data at a placement, small integers so that every sum is exact.

    Each part of a partial placement is an partial sum of its own.
    """
    dtype = numpy_dtype(type_.dtype)
    parts = mesh.count(placement.partial)
    low, high = (0, 2) if type_.dtype == "i1" else (1, 4) if placement.monoid == "mul" else (0, 50)
    partial_sums = rng.integers(low, high, (parts, *type_.shape)).astype(dtype)
    whole = Placement(placement.dims)
    each = np.stack([scatter_to_devices(mesh, a, whole) for a in partial_sums])
    shards = each[mesh.index(placement.partial), np.arange(mesh.size)]
    if not placement.partial:
        return shards, partial_sums[0]
    combined = monoids.monoid(placement.monoid).ufunc.reduce(partial_sums, axis=0)
    return shards, combined.astype(dtype)


def plan_of(mesh: Mesh, type_: TensorType, source: Placement, steps) -> StepPlan:
    """The device program of reshard steps."""
    types = [source.local_type(type_), *(after.local_type(type_) for _, after in steps)]
    made = tuple(Step(action, (i,), (i + 1,)) for i, (action, _) in enumerate(steps))
    return StepPlan(mesh, (0,), made, (len(types) - 1,), tuple(types))


def check_steps(mesh, type_, source, target, steps, rng):
    """Run steps on random data at the source: the target's devices must hold the same tensor."""
    shards, tensor = random_shards(mesh, type_, source, rng)
    (result,) = run(plan_of(mesh, type_, source, steps), [shards])
    got = gather_from_devices(mesh, result, type_.shape, target)
    np.testing.assert_array_equal(got, tensor, err_msg=f"{source} -> {target}")


def serial_bytes(mesh, type_, source, steps):
    """The sum over steps of what the busiest device receives."""
    plan = plan_of(mesh, type_, source, steps)
    return sum(plan.received(step).max() for step in plan.steps)


def between(mesh, shape, source, target):
    """The exchange from one placement to the other, by hand: counted from what devices do."""
    action = exchange(mesh, shape, source, target, changed_axes(mesh, source, target), 0, 0)
    cells = missing_cells(mesh, shape, action.source, action.target).max()
    return replace(action, cells=int(cells), rounds=len(action.tables(mesh).sent))
