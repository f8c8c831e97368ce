"""Plans for machines that compute while they communicate: what is chosen, what is certified, what is printed."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from tests.random_programs import random_case

import eggshard as es
from eggshard.costmodel import AlphaBeta, StepInfo
from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.schedule import COMPUTE, scheduled
from eggshard.errors import CostModelError
from eggshard.frontends.builder import ProgramBuilder
from eggshard.planner.repricing.overlapped import LEAST, exposed, longest_chain, weigh
from eggshard.program.program import Program
from eggshard.selection.problem import Choice, Problem

#: Computing is dear, and messages take long.
SLOW = AlphaBeta(launch=1e-7, latency=0.0, bandwidth=3e10, flops=1e12, memory=1e14)


def beside_a_product(large: int) -> Program:
    """A small product wanted everywhere, which needs no messages if all devices compute it; and a sharded one."""
    b = ProgramBuilder(mesh={"x": 8})
    u, v = b.input((256, 64), "f32", (None, None)), b.input((64, 64), "f32", (None, None))
    p, q = b.input((8 * large, large), "f32", ("x", None)), b.input((large, large), "f32", (None, None))
    b.output(b.tanh(u @ v), (None, None))
    b.output(p @ q, ("x", None))
    return b.build()


def sharded_weights(layers: int = 4) -> Program:
    """A chain of layers whose weights are gathered."""
    b = ProgramBuilder(mesh={"x": 8})
    h = b.input((4096, 512), "f32", ("x", None))
    for _ in range(layers):
        h = b.tanh(h @ b.input((512, 512), "f32", ("x", None)))
    b.output(h, ("x", None))
    return b.build()


def test_a_hidden_gather_is_cheaper_than_computing_everywhere() -> None:
    """A part and a gather cost more than all of a product, unless another product hides the gather."""
    program = beside_a_product(256)
    added, hidden = (es.optimize(program, cost_model=replace(SLOW, overlap=f)) for f in (0.0, 1.0))
    assert added.collectives == {} and hidden.collectives == {"all-gather": 1}
    assert hidden.cost.communication + hidden.cost.compute > added.cost.total > hidden.cost.total
    assert hidden.cost.exposed == pytest.approx(0.0, abs=1e-12)
    assert hidden.search_gap <= 1e-3
    hidden.verify(engines=("numpy",))
    alone = es.optimize(beside_a_product(8), cost_model=replace(SLOW, overlap=1.0))
    assert alone.collectives == {}, "nothing is there to hide the gather"


def test_weights_are_gathered_while_the_layer_before_computes() -> None:
    model = replace(SLOW, bandwidth=5e9)
    program = sharded_weights()
    plan = es.optimize(program, cost_model=replace(model, overlap=1.0))
    off = es.optimize(program, cost_model=model)
    assert off.cost.hidden == 0 and off.cost.total == off.cost.communication + off.cost.compute
    assert off.schedule.makespan == pytest.approx(off.cost.total)
    assert plan.cost.total < 0.9 * off.cost.total
    assert plan.cost.total == plan.schedule.makespan
    assert plan.cost.exposed + plan.cost.compute == pytest.approx(plan.cost.total)
    kinds = [step.action.kind for step in plan.steps]
    assert kinds[:2] == ["all-gather", "all-gather"] and kinds[-1] == "local"
    assert "hidden" in str(plan) and "awaited by" in plan.explain() and "awaited by" not in off.explain()
    assert es.Plan.from_json(plan.to_json()) == plan
    plan.verify(engines=("numpy",))


@pytest.mark.parametrize("overlap", [0.5, 1.0])
def test_a_part_of_the_overlap_is_between_none_and_all(overlap: float) -> None:
    program = sharded_weights()
    none, some = (es.optimize(program, cost_model=replace(SLOW, overlap=f)).cost.total for f in (0.0, overlap))
    assert some <= none
    assert some >= none / (1 + overlap)


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(n, marks=pytest.mark.slow) for n in range(5, 14))])
def test_no_plan_known_is_faster_than_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    case = random_case(rng)
    topology = rng.choice(("switch", "torus", "ring"))
    model = AlphaBeta(topology, 1e-8, 1e-8, 10 ** rng.uniform(7, 10), 10 ** rng.uniform(8, 11), 1e10,
                      overlap=rng.choice((0.4, 1.0)))
    plan, added = (es.optimize(case.program, cost_model=m) for m in (model, replace(model, overlap=0.0)))
    price = Pricer(model, plan.mesh)
    there = price.program(scheduled(added.device_program, price))
    assert plan.cost.total <= min(there, plan.baseline.cost.total) * (1 + 1e-9)
    if not (plan.search.shared or plan.search.capped):
        assert plan.search.bound <= min(there, plan.cost.total, plan.baseline.cost.total) * (1 + 1e-9)
    plan.verify(engines=("numpy",))


def test_bodies_of_loops_are_scheduled() -> None:
    jax = pytest.importorskip("jax")
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    mesh = jax.sharding.AbstractMesh((8,), ("x",), axis_types=(AxisType.Auto,))

    def layers(h, weights):
        return jax.lax.scan(lambda h, w: (jax.numpy.tanh(jax.numpy.tanh(h @ w[0]) @ w[1]), None), h, weights)[0]

    def array(shape, spec):
        return jax.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, PartitionSpec(*spec)))

    lowered = jax.jit(layers).trace(
        array((4096, 512), ("x",)), array((3, 2, 512, 512), (None, None, "x"))).lower(lowering_platforms=("cpu",))
    model = replace(SLOW, bandwidth=5e9)
    off, on = (es.optimize(lowered, cost_model=replace(model, overlap=f)) for f in (0.0, 1.0))
    assert on.cost.total < 0.95 * off.cost.total
    assert "with these bodies" in on.certificate and on.search_gap < 0.6
    on.verify(engines=("numpy",))


class Machine:
    """A user's model with one link per axis."""

    def __init__(self, overlap: object = 1.0, links: object = None):
        self.overlap, self.links = overlap, links

    def seconds(self, step: StepInfo) -> float:
        return 1e-9 * step.wire_bytes + 1e-12 * (step.flops + step.memory_bytes) + 1e-7 * step.messages

    def channels(self, axes: tuple[str, ...], mesh: object) -> object:
        return axes if self.links is None else self.links


def test_a_users_model_may_overlap_and_is_written_to_json() -> None:
    plan = es.optimize(sharded_weights(2), cost_model=Machine())
    assert set(plan.schedule.busy) == {COMPUTE, "x"}
    back = es.Plan.from_json(plan.to_json())
    assert back.cost == plan.cost and back.schedule == plan.schedule


@pytest.mark.parametrize("model, words", [
    (Machine(overlap=2.0), "overlap 2.0"), (Machine(overlap="all"), "overlap 'all'"), (Machine(links=()), "channels"),
    (Machine(links=("compute",)), "compute"), (Machine(links=(3,)), "names"),
])
def test_a_model_that_overlaps_oddly_is_named(model: Machine, words: str) -> None:
    with pytest.raises(CostModelError, match=words):
        es.optimize(sharded_weights(1), cost_model=model)
    with pytest.raises(CostModelError, match="overlap is a part"):
        AlphaBeta(overlap=-0.1)


def test_weights_are_those_at_which_the_known_plans_promise_most() -> None:
    names = (COMPUTE, "x")
    first = weigh([{COMPUTE: 1.0, "x": 3.0}], names)
    assert first["x"] == pytest.approx(1 - LEAST)
    both = weigh([{COMPUTE: 1.0, "x": 3.0}, {COMPUTE: 4.0, "x": 0.0}], names)
    assert both[COMPUTE] == pytest.approx(0.5)  # where w + 3 (1 - w) = 4 w
    assert sum(weigh([{COMPUTE: 1.0}], (COMPUTE, "x", "y")).values()) == pytest.approx(1.0)


def test_exposed_resources_weigh_most() -> None:
    plan = es.optimize(sharded_weights(), cost_model=replace(SLOW, bandwidth=5e9, overlap=1.0))
    weights = exposed(plan.schedule, (COMPUTE, "switch"))
    hidden = plan.cost.hidden
    assert weights[COMPUTE] / weights["switch"] == pytest.approx(
        (1 - hidden / (2 * plan.cost.compute)) / (1 - hidden / (2 * plan.cost.communication)))


def test_chains_end_with_the_last_root() -> None:
    """Operands are waited for together, conversions and choices one after the other; cycles are gone round."""
    near = np.array([[0.0, 2.0], [2.0, 0.0]])
    problem = Problem(
        [[Choice(0, 1.0, ())], [Choice(0, 4.0, ()), Choice(0, 0.5, ((2, 0),))],
         [Choice(0, 3.0, ((0, 1), (1, 0))), Choice(1, 1.0, ((2, 0),))]],
        [near, near, np.array([[0.0, np.inf], [np.inf, 0.0]])], [(2, 1), (0, 1)])
    assert longest_chain(problem) == pytest.approx(4.0 + 3.0 + 1.0)
