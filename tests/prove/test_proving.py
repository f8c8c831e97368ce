"""Proofs of plans: equal where a plan is its program, different where it has a fault, refused where it is unknown."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from testing.plan_mutants import mutants
from tests.random_programs import random_case
from tests.slowness import some

import eggshard as es
from eggshard.api import Plan
from eggshard.ops import registry
from eggshard.ops.elementwise.table import Elementwise
from eggshard.prove import field
from eggshard.steps.steps import StepPlan


def normalised() -> es.Program:
    """A layer norm between two products, on shards that divide nothing evenly inside."""
    b = es.ProgramBuilder({"x": 4, "y": 2})
    x, w = b.input((12, 20), sharding=("x", "y")), b.input((20, 8), sharding=("y", None))
    mean = b.sum(x, 1, keep=True) / 20.0
    apart = x - b.broadcast(mean, x.shape)
    spread = b.op("rsqrt", b.sum(apart * apart, 1, keep=True) / 20.0 + 1e-6)
    b.output(b.dot(apart * b.broadcast(spread, x.shape), w), sharding=("x", None))
    return b.build()


def with_steps(plan: Plan, steps: StepPlan) -> Plan:
    return Plan.of(dataclasses.replace(plan, device_program=steps))


def test_every_op_is_accounted_for():
    """A new op keeps its meaning over a field, gets one, or is refused: `prove.field` says which.

    Rows of the elementwise table are random functions where it says nothing; integers keep their own meaning.
    """
    ours = {n for n in registry.names() if type(registry.get(n)).__module__.startswith("eggshard.")}
    left = {n for n in ours - field.accounted() if not isinstance(registry.get(n), Elementwise)}
    assert not left and field.accounted() <= {*registry.names()}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return es.optimize(normalised(), cost_model=es.costmodel.WireBytes())


def test_a_plan_is_its_program(plan):
    proof = plan.prove()
    assert proof and proof.equal and not proof.undecided and proof.runs >= 2


def test_faults_are_found(plan):
    """A third of all mutants of one plan."""
    found = {m.kind: bool(with_steps(plan, m.plan).prove()) for m in list(mutants(plan.device_program))[::3]}
    assert found and not any(found.values())


@pytest.mark.parametrize("seed", some(range(100, 112), 5))
def test_random_plans_are_their_programs(seed):
    proof = es.optimize(random_case(random.Random(seed)).program).prove()
    assert proof, str(proof)


def test_a_loop_that_does_not_end_is_a_difference():
    """A plan's loop may turn as often as the program's, and not much more often."""
    jax = pytest.importorskip("jax")
    function = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda i, a: a * 2.0 + x, x))
    plan = es.optimize(function.lower(jax.ShapeDtypeStruct((4, 6), "float32")), limits=es.Limits(proof=0))
    dropped = [fault.plan for fault in mutants(plan.device_program) if fault.kind == "term dropped"]
    proofs = [es.Plan.of(dataclasses.replace(plan, device_program=steps)).prove() for steps in dropped]
    assert proofs and not any(proofs)
    assert any("not ended" in str(proof) for proof in proofs)


def test_a_program_that_does_not_end_over_a_field_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newton's iteration until little changes, which numbers do and elements of a field do not."""
    monkeypatch.setattr(field, "MOST_TURNS", 20)
    text = """
    func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
      %half = stablehlo.constant dense<0.5> : tensor<8xf32>
      %small = stablehlo.constant dense<1.0e-6> : tensor<8xf32>
      %no = stablehlo.constant dense<false> : tensor<i1>
      %r:2 = stablehlo.while(%y = %x, %old = %half) : tensor<8xf32>, tensor<8xf32>
        cond {
          %d = stablehlo.subtract %y, %old : tensor<8xf32>
          %a = stablehlo.abs %d : tensor<8xf32>
          %far = stablehlo.compare GT, %a, %small : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
          %any = stablehlo.reduce(%far init: %no) applies stablehlo.or across dimensions = [0]
            : (tensor<8xi1>, tensor<i1>) -> tensor<i1>
          stablehlo.return %any : tensor<i1>
        } do {
          %q = stablehlo.divide %x, %y : tensor<8xf32>
          %s = stablehlo.add %y, %q : tensor<8xf32>
          %m = stablehlo.multiply %half, %s : tensor<8xf32>
          stablehlo.return %m, %y : tensor<8xf32>, tensor<8xf32>
        }
      return %r#0 : tensor<8xf32>
    }"""
    plan = es.optimize(f"sdy.mesh @mesh = <[\"x\"=2]>\n{text}", limits=es.Limits(proof=0.0))
    proof = plan.prove()
    assert proof.equal is None and proof.late and "after 21 turns" in proof.refused


def test_what_is_not_chosen_may_be_no_number() -> None:
    """As where `jnp.take` has NaN for indices out of range: by truth values in a field nothing is decided there."""
    b = es.ProgramBuilder({"x": 4})
    x = b.input((8, 8), sharding=("x", None))
    y = b.op("tanh", x)
    larger = b.op("compare", x, y, comparison_direction="GE", compare_type="FLOAT")
    b.output(b.op("select", larger, y, b.broadcast(b.constant(np.float32("nan")), (8, 8))), sharding=(None, None))
    proof = es.optimize(b.build(), limits=es.Limits(proof=0)).prove()
    assert proof and proof.undecided < proof.elements and proof.choices


def test_what_is_no_number_is_no_proof() -> None:
    b = es.ProgramBuilder({"x": 4})
    x = b.input((8, 8), sharding=("x", None))
    b.output(x * b.broadcast(b.constant(np.float32("nan")), (8, 8)), sharding=(None, None))
    proof = es.optimize(b.build(), limits=es.Limits(proof=0)).prove()
    assert proof.equal is None and "no element" in str(proof)
