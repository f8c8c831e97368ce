"""Choices within a memory limit: against every other one, within loops too, and where there is none."""

import itertools
from dataclasses import replace

import jax.numpy as jnp
import pytest
from tests.planner.choosing.test_choice import LIMITS, descent, f32, looped, program_of
from tests.slowness import some

import eggshard as es
from eggshard.errors import FallbackWarning, LimitError
from eggshard.memory.prediction import memory_of
from eggshard.planner.choosing import choice as choosing
from eggshard.planner.choosing.choice import Chooser
from eggshard.planner.repricing import tradeoff
from eggshard.planner.request import requested
from eggshard.program.program import Program
from eggshard.program.sharding import AUTO, Sharding
from eggshard.spmd.boundaries import even_placements


def chooser(program: Program, carried=None) -> Chooser:
    return Chooser(requested(program, "tpu-v5e", limits=LIMITS), carried or {})


def within(program: Program, limit: int, carried=None):
    """The plan at the choice within a limit."""
    return es.optimize(chooser(program, carried).stated(limit), cost_model="tpu-v5e", limits=LIMITS, memory_limit=limit)


def everywhere(program: Program, carried=None) -> list[tuple[float, int]]:
    """Cost and peak of the plans of all ways to state a program's inputs."""
    found = []
    for way in itertools.product(*(even_placements(program.mesh, t) for t in program.input_types)):
        inputs = tuple(Sharding.from_placement(p, program.mesh) for p in way)
        outputs = [None] * len(program.output_types)
        for o, i in (carried or {}).items():
            outputs[o] = inputs[i]
        stated = replace(program, input_shardings=inputs, output_shardings=tuple(outputs))
        plan = es.optimize(stated, cost_model="tpu-v5e", limits=LIMITS)
        found.append((plan.cost.total, memory_of(plan).peak))
    return found


PRODUCT = lambda x, w: jnp.sin(x @ w), (f32(2048, 512), f32(512, 512)), {}
PROGRAMS = {
    "descent": (descent, (f32(256, 512), f32(128, 256)), {0: 0}),
    "loop": (looped, (f32(256, 256), f32(512, 256)), {}),
    "product": PRODUCT,
    "layers": (lambda x, v, w: jnp.tanh(x @ v) @ w, (f32(64, 256), f32(256, 512), f32(512, 256)), {}),
}


@pytest.mark.parametrize("name", some([*PROGRAMS], 1))
def test_no_choice_within_a_limit_is_cheaper(name):
    function, arguments, carried = PROGRAMS[name]
    program = program_of(function, *arguments)
    known = everywhere(program, carried)
    peaks = sorted({peak for _, peak in known})
    for limit in (peaks[0], peaks[len(peaks) // 3]):
        plan = within(program, limit, carried)
        assert memory_of(plan).peak <= limit
        assert plan.cost.total <= 1.01 * min(cost for cost, peak in known if peak <= limit)


def test_what_a_choice_costs_within_a_limit_is_told():
    program = program_of(PRODUCT[0], *PRODUCT[1])
    search = chooser(program)
    kept = search.within(2_500_000)
    assert search.cheapest.held(program) > 2_500_000 >= kept.held(program)
    assert search.cheapest.cost < kept.cost and kept.bound == search.cheapest.bound


def test_choices_at_prices_hold_less():
    program = program_of(PRODUCT[0], *PRODUCT[1])
    search = chooser(program)
    held = [search.at(price).held(program) for price in (0.0, 1e-12, 1e-6)]
    assert held == sorted(held, reverse=True) and held[-1] < held[0]
    assert held[-1] == sum(type_.bytes // 4 for type_ in (*program.input_types, *program.output_types))


def test_limits_below_what_must_be_held_are_proved_impossible():
    program = program_of(PRODUCT[0], *PRODUCT[1])
    with pytest.raises(LimitError, match=r"outputs take at least 2359296, 1048576 of .*2048x512.*so that no plan can"):
        chooser(program).within(2_300_000)


@pytest.mark.slow
def test_limits_between_proof_and_plans_are_told_so():
    program = program_of(lambda x: x / x.sum(0), f32(256, 64))
    with pytest.raises(LimitError, match=r"the smallest one found takes \d+.*no proof.*every step whole hold at least"):
        chooser(program).within(32_800)


def test_a_search_for_less_memory_that_fails_leaves_the_cheapest_choice(monkeypatch):
    def fail(*_):
        raise RuntimeError("broken")

    program = program_of(PRODUCT[0], *PRODUCT[1])
    search = chooser(program)
    cheapest = search.cheapest
    monkeypatch.setattr(choosing, "LimitedSearch", fail)
    with pytest.warns(FallbackWarning, match="RuntimeError: broken"):
        assert search.within(2_500_000) == cheapest


def test_a_front_over_choices(monkeypatch):
    monkeypatch.setattr(tradeoff, "_LIMITS", ())
    program = program_of(lambda x: x.T @ x, f32(2048, 512))
    front = es.pareto(program, 6, shardings=AUTO, cost_model="tpu-v5e", limits=LIMITS)
    peaks = [plan.memory.peak for plan in front]
    assert len(front) > 1 and peaks == sorted(peaks, reverse=True)
    assert front[0].input_placements != front[-1].input_placements
