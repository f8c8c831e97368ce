"""Plans are proved as they are made, where that is cheap; wrong ones are not handed out."""

from __future__ import annotations

import numpy as np
import pytest

import eggshard as es
from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import rule
from eggshard.planner import proofs


@pytest.fixture
def program() -> es.Program:
    b = es.ProgramBuilder({"x": 4, "y": 2})
    x, w = b.input((16, 32), sharding=("x", "y")), b.input((32, 8), sharding=("y", None))
    b.output(b.op("exponential", b.op("exponential", b.dot(x, w))), sharding=("x", None))
    return b.build()


@pytest.fixture
def patient(monkeypatch):
    """Proofs may take as long as they like."""
    prove = proofs.prove
    monkeypatch.setattr(proofs, "prove", lambda plan, within: prove(plan))


def test_plans_say_what_is_shown_of_them(program, patient):
    plan = es.optimize(program)
    assert plan.proved.equal and plan.proved.bound < 2.0**-40
    assert es.Plan.from_json(plan.to_json()).proved is None


def test_a_proof_that_takes_too_long_is_left_out(program):
    assert es.optimize(program, limits=es.Limits(proof=0)).proved is None
    proof = es.optimize(program, limits=es.Limits(proof=1e-9)).proved
    assert proof.equal is None and "was expected to take" in proof.refused


def test_a_wrong_rule_makes_no_plan(program, patient):
    wrong = rule("exponential(exponential(x)) => exponential(x)", name="a wrong rule",
                 cases=each(x=tensors((2, 3))))(None)
    with pytest.warns(es.EggshardWarning, match="something else than its program: output 0.*a wrong rule"):
        plan = es.optimize(program, rewrites=[wrong])
    assert plan.proved and "something else" in plan.search.fallback
    np.testing.assert_array_equal(plan.verify(engines=("numpy",)).skipped, {})
