"""Exchanges of several values at once on XLA, and on the simulator as if they were sent apart."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.emit.devices import plan_of, run_on_xla
from tests.emit.windows import DTYPES, random_array, random_exchange, shards_of, specified, step_between
from tests.slowness import some

from eggshard.costmodel import Messages, WireBytes
from eggshard.costmodel.pricing import Pricer
from eggshard.errors import LoweringError
from eggshard.hlo.collectives import count_collectives
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.simulate.simulator import perform
from eggshard.spmd.sharing import cheapest_joint
from eggshard.steps.window_steps import HaloExchange, JointExchange

LINE = Mesh({"x": 8})


def checked_on_xla(action, found, shards):
    """The plan of one joint step, after its results and the bytes counted on XLA are checked.

    found: per value what `random_exchange` draws. shards: of each value.
    """
    mesh, parts = found[0][0], [case[-1] for case in found]
    plan = plan_of(mesh, [TensorType(s.shape[1:], mlir_dtype(s.dtype)) for s in shards], action)
    got, hlo = run_on_xla(plan, shards)
    for out, want, part, x, case in zip(got, perform(mesh, action, tuple(shards)), parts, shards, found, strict=True):
        known = specified(mesh, [part], case[2], case[1])
        np.testing.assert_array_equal(want[known], perform(mesh, part, (x,))[0][known])
        np.testing.assert_array_equal(out.reshape(want.shape)[known], want[known])
    count = count_collectives(hlo, mesh.size)
    factor = 2 if shards[0].dtype == ml_dtypes.bfloat16 else 1  # XLA:CPU sends bfloat16 as float32
    assert count.by_kind == plan.collectives
    assert count.wire_bytes == factor * plan.serial_bytes
    assert count.busiest_device_bytes == factor * plan.total_received.max()
    return plan


@pytest.mark.parametrize("seed", some(range(24), 5))
def test_joint_exchange_on_xla(seed):
    """Several values, along any dimensions; a value may have rounds of its own, or none."""
    rng = np.random.default_rng(3000 + seed)
    dtype, found = DTYPES[seed % len(DTYPES)], []
    while len(found) < 2 + seed % 3:
        case = random_exchange(rng)
        if case is None or not case[-1].messages:
            continue
        if not found or (case[0], case[-1].over) == (found[0][0], found[0][-1].over):
            found.append(case)
    if seed % 2:  # one that has all pairs in common with another
        found.append(found[0])
    mesh, parts = found[0][0], tuple(case[-1] for case in found)
    arrays = [random_array(rng, case[1], dtype) for case in found]
    shards = [shards_of(mesh, a, case[2])[0] for a, case in zip(arrays, found, strict=True)]
    types = [TensorType(s.shape[1:], mlir_dtype(s.dtype)) for s in shards]
    action = cheapest_joint(mesh, parts, types, Pricer(Messages(), mesh))
    plan = checked_on_xla(action, found, shards)
    assert plan.messages <= sum(part.messages for part in parts)
    assert not seed % 2 or plan.messages < sum(part.messages for part in parts)


@pytest.mark.parametrize("seed", range(12))
def test_values_that_share_permutes_on_xla(seed):
    """Each device sends a slab of its own value in a permute; on the simulator and on devices as if sent apart."""
    rng = np.random.default_rng(4000 + seed)
    dtype, found = DTYPES[seed % len(DTYPES)], []
    while True:
        case = random_exchange(rng, same_grid=0.2)
        if case is None or not isinstance(case[-1], HaloExchange):
            continue
        if not found or (case[0], case[-1].over) == (found[0][0], found[0][-1].over):
            found.append(case)
        if len(found) > 3:
            found = found[1:]
        mesh, parts = found[0][0], tuple(case[-1] for case in found)
        arrays = [random_array(rng, case[1], dtype) for case in found]
        shards = [shards_of(mesh, a, case[2])[0] for a, case in zip(arrays, found, strict=True)]
        types = tuple(TensorType(s.shape[1:], mlir_dtype(s.dtype)) for s in shards)
        action = cheapest_joint(mesh, parts, types, Pricer(WireBytes(), mesh))
        if isinstance(action, JointExchange) and action.shared:
            break
    assert action.serial_bytes(mesh, types) < JointExchange(parts).serial_bytes(mesh, types)
    checked_on_xla(action, found, shards)


def test_values_that_cannot_be_exchanged_together():
    types = [TensorType((4,), "f32"), TensorType((4,), "i32")]
    action = step_between(LINE, 32, 0, Dim(("x",), 4), Dim(("x",), 4, -1, 1))
    with pytest.raises(LoweringError, match="one element type"):
        JointExchange((action, action)).result(LINE, tuple(types))
    with pytest.raises(LoweringError, match="one list of axes"):
        JointExchange((action, HaloExchange(0, ("y",), 6, action.offsets, action.rounds)))
