"""What is known of a program before it is planned: plans that are not made twice, and selections to begin with."""

from dataclasses import replace

import numpy as np
from tests.planner.choosing.test_choice import LIMITS, descent, f32, program_of

import eggshard as es
from eggshard.planner import optimization
from eggshard.planner.choosing.choice import Chooser
from eggshard.planner.choosing.known import Known
from eggshard.planner.pipeline import first_problem, saturate
from eggshard.planner.request import requested
from eggshard.planning import optimized
from eggshard.program.sharding import Sharding


def chosen():
    """A program, its choice, and the program where it is stated."""
    program = program_of(descent, f32(256, 512), f32(128, 256))
    found = Chooser(requested(program, "tpu-v5e", limits=LIMITS), {0: 0}).cheapest
    return program, found, found.stated(program)


def test_a_plan_is_not_made_again(monkeypatch):
    _, _, stated = chosen()
    plan = optimized(stated, cost_model="tpu-v5e", limits=LIMITS)

    def again(*args):
        raise AssertionError("planned again")

    monkeypatch.setattr(optimization, "_plan", again)
    known = optimized(stated, cost_model="tpu-v5e", limits=LIMITS, known=Known(plan))
    assert known.device_program == plan.device_program and known.cost == plan.cost
    proved = optimized(stated, cost_model="tpu-v5e", known=Known(plan)).proved
    assert proved is not None and proved.equal


def test_plans_of_other_programs_and_over_the_limit_are_not_taken():
    program, _, stated = chosen()
    plan = optimized(stated, cost_model="tpu-v5e", limits=LIMITS)
    known = Known(plan)
    assert known.plan_of(stated, None) is not None and known.plan_of(stated, plan.memory.peak) is not None
    assert known.plan_of(stated, plan.memory.peak - 1) is None
    elsewhere = replace(stated, input_shardings=(Sharding.of((None, None), 2, program.mesh),) * 2)
    assert known.plan_of(elsewhere, None) is None


def test_a_selection_is_among_the_plans_to_begin_with():
    _, found, stated = chosen()
    assert found.known.plan is None and found.known.computed
    request = requested(stated, "tpu-v5e", limits=LIMITS)
    first = first_problem(saturate(optimization.read(request)))
    begun = found.known.begun(first)
    assert len(begun.problem.seeds) == len(first.problem.seeds) + 1
    for c, n in begun.problem.seeds[-1].items():
        assert begun.problem.choices[c][n].tag == found.known.computed[c]
    assert Known().begun(first) is first


def test_a_choice_within_a_limit_comes_with_its_plan():
    program, found, stated = chosen()
    peak = optimized(stated, cost_model="tpu-v5e", limits=LIMITS).memory.peak
    limited = Chooser(requested(program, "tpu-v5e", limits=LIMITS), {0: 0}).within(peak)
    plan = limited.known.plan
    assert plan is not None and plan.cost.total == limited.cost
    made = es.optimize(program, shardings=es.AUTO, carry={0: 0}, cost_model="tpu-v5e", limits=LIMITS, memory_limit=peak)
    assert made.cost.total <= limited.cost * (1 + 1e-9) and made.memory.peak <= peak
    w, x = (np.random.default_rng(0).normal(size=t.shape).astype(np.float32) for t in program.input_types)
    np.testing.assert_allclose(made.run(w, x)[0], descent(w, x), rtol=1e-3, atol=1e-4)
