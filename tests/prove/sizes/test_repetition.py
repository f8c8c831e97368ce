"""Loops of many iterations are proved by one row of them; how many rows there are, and the rest, is looked at, too."""

from __future__ import annotations

import dataclasses
import random

import pytest
from testing.plan_mutants import mutants
from tests.random_stencils import Argument, lowered

import eggshard as es
from eggshard.api import Plan
from eggshard.ops import Literal
from eggshard.prove.sizes.repetition import rows_of
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import StepPlan

jax = pytest.importorskip("jax")
jnp = jax.numpy
N = 256


def stepped(step, count=20, mesh=None):
    source = lowered(lambda x: jax.lax.fori_loop(0, count, step, x), mesh or {"x": 4},
                     [Argument((N, N), "float32", (("x",), ()))], None)
    return es.optimize(source, cost_model=es.costmodel.AlphaBeta(), limits=es.Limits(proof=0))


def diffused(i, x):
    """One that looks at neighbours along both dimensions, so that no way to cut it goes without exchanges."""
    return x + 0.1 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1) - 4.0 * x)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return stepped(diffused)


def loops(plan: Plan) -> list[int]:
    return [k for k, step in enumerate(plan.steps) if isinstance(step.action, Loop)]


def with_step(plan: Plan, number: int, **changes) -> Plan:
    step = plan.steps[number]
    steps = list(plan.steps)
    steps[number] = dataclasses.replace(step, action=dataclasses.replace(step.action, **changes))
    device_program = dataclasses.replace(plan.device_program, steps=tuple(steps))
    return Plan.of(dataclasses.replace(plan, device_program=device_program))


def limited(condition: StepPlan, by: int) -> StepPlan:
    """A loop's condition with another limit."""
    (number,) = (k for k, s in enumerate(condition.steps) if s.action.name == "constant")
    step = condition.steps[number]
    value = step.action.attributes["value"].array
    action = dataclasses.replace(step.action, attributes=step.action.attributes.updated(value=Literal(value + by)))
    changed = dataclasses.replace(step, action=action)
    return dataclasses.replace(condition, steps=(*condition.steps[:number], changed, *condition.steps[number + 1 :]))


def test_one_row_is_proved(plan):
    proof = plan.prove()
    assert loops(plan) and proof and proof.lemmas and proof.sizes < proof.whole
    shorter, states = rows_of(plan)
    assert states == 2 and len(loops(Plan.of(shorter))) <= len(loops(plan))


def test_another_number_of_rows_is_found(plan):
    (first, *_) = loops(plan)
    for by in (-10, 7, -20):
        assert with_step(plan, first, condition=limited(plan.steps[first].action.condition, by)).prove().equal is False


def test_faults_of_rows_are_found(plan):
    faults = [fault for fault in mutants(plan.device_program) if fault.kind.startswith(("halo", "slab", "scale"))]
    for fault in random.Random(0).sample(faults, 3):
        mutant = Plan.of(dataclasses.replace(plan, device_program=fault.plan))
        assert mutant.prove().equal is False, fault.kind


def test_iterations_that_differ_are_not_one_row():
    assert rows_of(stepped(lambda i, x: jnp.where(i == 7, 2.0 * diffused(i, x), diffused(i, x)))) is None
    counted = stepped(lambda i, x: diffused(i, x) * i.astype("float32"))
    assert rows_of(counted) is None and counted.prove()
