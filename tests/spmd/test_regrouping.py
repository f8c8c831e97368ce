"""Reshapes by exchanges of pieces: the elements where they belong, and no byte too many."""

import math

import numpy as np
import pytest
from tests.emit.devices import run_on_xla

import eggshard as es
from eggshard.costmodel import AlphaBeta, WireBytes
from eggshard.costmodel.pricing import step_info
from eggshard.frontends.builder import ProgramBuilder
from eggshard.limits import Limits
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import place
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import gather_from_devices, run, scatter_to_devices
from eggshard.spmd.regrouping import regrouped
from eggshard.steps.exchange import BoxExchange

FOUR, GRID = Mesh({"x": 4}), Mesh({"x": 4, "y": 2}, device_ids=(3, 1, 0, 2, 7, 6, 4, 5))


def program(mesh, shape, new, source, target, max_rounds=16):
    """The device program of a reshape between placements by axes, and what it takes to check it."""
    operand, result = TensorType(shape, "f32"), TensorType(new, "f32")
    rule = registry.get("reshape").factors(Attributes(shape=new), (operand,), (result,))
    ends = place(mesh, shape, source), place(mesh, new, target)
    return regrouped(mesh, rule, operand, result, *ends, max_rounds), ends


CASES = [
    (FOUR, (8, 6), (2, 4, 6), (("x",), ()), ((), ("x",), ())),
    (FOUR, (2, 4, 6), (8, 6), ((), ("x",), ()), (("x",), ())),
    (FOUR, (32, 2), (4, 4, 2, 2), (("x",), ()), ((), ("x",), (), ())),
    (FOUR, (5, 24), (5, 2, 12), ((), ("x",)), ((), (), ("x",))),
    (GRID, (16, 4), (2, 8, 4), (("x",), ("y",)), ((), ("x",), ("y",))),
    (GRID, (16, 4), (2, 8, 4), (("x", "y"), ()), (("y",), ("x",), ())),
    (GRID, (16, 4), (2, 8, 4), (("x", "y"), ()), ((), ("x", "y"), ())),
    (GRID, (2, 8, 4), (16, 4), ((), ("x",), ()), (("x",), ())),
    (GRID, (4, 6, 8), (24, 8), (("y",), (), ("x",)), (("x", "y"), ())),
]


@pytest.mark.parametrize(("mesh", "shape", "new", "source", "target"), CASES, ids=str)
def test_elements_come_where_they_belong(mesh, shape, new, source, target):
    plan, (held, needed) = program(mesh, shape, new, source, target)
    array = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    shards = scatter_to_devices(mesh, array, held)
    (out,) = run(plan, [shards])
    np.testing.assert_array_equal(gather_from_devices(mesh, out, new, needed), array.reshape(new))
    (got,), _ = run_on_xla(plan, [shards])
    np.testing.assert_array_equal(got.reshape(out.shape), out)
    # What is priced is what is sent.
    (step,) = (s for s in plan.steps if isinstance(s.action, BoxExchange))
    types = tuple(plan.types[v] for v in step.operands)
    assert step_info(mesh, step.action, types) == step_info(mesh, step.action.listed(mesh), types)
    # Nobody receives what it had, and no permute is there for less than a piece of the busiest.
    flat, wanted = (a.reshape(mesh.size, -1) for a in (shards, out))
    missing = [4 * len(set(w) - set(h)) for h, w in zip(flat.tolist(), wanted.tolist(), strict=True)]
    np.testing.assert_array_equal(plan.total_received, missing)


def test_what_is_no_box_of_factors():
    assert program(FOUR, (12, 2), (2, 6, 2), (("x",), ()), (("x",), (), ()))[0] is None  # tiles that are not full
    assert program(FOUR, (12, 2), (3, 4, 2), (("x",), ()), ((), ("x",), ()))[0] is None  # shards across two rows
    assert program(FOUR, (24,), (8, 3), (("x",),), (("x",), ()))[0] is not None
    assert program(FOUR, (36,), (4, 9), (("x",),), ((), ("x",)))[0] is None
    assert program(FOUR, (64,), (2, 32), (("x",),), ((), ("x",)), max_rounds=1)[0] is None


def split(shape, new, source, target, mesh=FOUR):
    b = ProgramBuilder(dict(mesh.axes))
    b.output(b.reshape(b.input(shape, "f32", source), new) * 2.0, target)
    return b.build()


def test_the_selection_finds_it():
    """Half of what an all-to-all on either side of the reshape sends."""
    built = split((8, 64, 16), (2, 4, 64, 16), ("x", None, None), (None, "x", None, None))
    plan = es.optimize(built, cost_model=WireBytes())
    assert any(isinstance(step.action, BoxExchange) for step in plan.steps)
    assert plan.wire_bytes == 2 * 64 * 16 * 4 and plan.search_gap < 1e-3
    assert set(plan.verify().differences) == {"numpy", "jax"}
    without = es.optimize(built, cost_model=WireBytes(), limits=Limits(permutes=1))
    assert without.wire_bytes == 3 * 64 * 16 * 4
    assert set(without.verify().differences) == {"numpy", "jax"}


def test_messages_are_priced():
    """Two permutes against two collectives of half as many bytes more, and one all-gather of far more."""
    built = split((8, 64, 16), (2, 4, 64, 16), ("x", None, None), (None, "x", None, None))
    dear = es.optimize(built, cost_model=AlphaBeta(launch=1.0, latency=0.0, bandwidth=1e12))
    assert dear.collectives == {"all-gather": 1}
    assert es.optimize(built, cost_model=AlphaBeta(launch=1e-9)).collectives == {"collective-permute": 2}
