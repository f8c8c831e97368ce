"""Plans cut at what their steps hold: equal layers are proved once, wrong ones are found, notes are not trusted."""

from __future__ import annotations

import dataclasses
import random

import pytest
from testing.plan_mutants import mutants

import eggshard as es
from eggshard.api import Plan
from eggshard.frontends.builder import ProgramBuilder
from eggshard.limits import Deadline
from eggshard.prove import proving
from eggshard.prove.sizes.lemmas import cut_at_lemmas
from eggshard.prove.sizes.shrinking import elements_of

N = 128


def layered(layers: int) -> Plan:
    """So many equal layers, each of two products and nonlinear functions."""
    b = ProgramBuilder({"x": 4, "y": 2})
    x = b.input((N, N), sharding=("x", None))
    weights = [b.input((N, N), sharding=s) for _ in range(layers) for s in ((None, "y"), ("y", None))]
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        x = b.op("tanh", b.dot(b.op("tanh", b.dot(x, up)), down))
    b.output(x, sharding=("x", None))
    return es.optimize(b.build(), cost_model=es.costmodel.WireBytes(), limits=es.Limits(proof=0))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return layered(6)


def test_equal_layers_are_proved_once(plan):
    (few,), _, *_ = cut_at_lemmas(plan)
    (many,), count, *_ = cut_at_lemmas(layered(12))
    assert elements_of(few.program.region) == elements_of(many.program.region) < elements_of(plan.program.region)
    assert len(few.device_program.steps) == len(many.device_program.steps) < len(plan.steps) and count >= 36


def test_plans_are_proved_by_their_lemmas(plan):
    proof = plan.prove()
    assert proof and proof.lemmas >= 18 and proof.sizes < proof.whole / 20 and proof.bound < 2.0**-40
    assert "step by step" in str(proof) and not plan.prove(shrink=False).lemmas


@pytest.mark.parametrize(("besides", "proofs"), [(False, [True]), (True, [False, False, True])])
def test_what_holds_only_of_what_a_value_is_made_of_is_cut_at_fewer_values(
    monkeypatch: pytest.MonkeyPatch, besides: bool, proofs: list[bool]
) -> None:
    """The plan squares the exponential, which the program multiplies by an equal one: equal not for every value.

    That the program makes it of something once more is seen before, unless both need that besides.
    """
    b = ProgramBuilder({"x": 4})
    a, w = b.input((N, N), sharding=("x", None)), b.input((N, N), sharding=("x", None))
    z = b.tanh(a)
    sides = [b.exp(b.transpose(z)), b.transpose(b.exp(z))]
    if besides:
        sides = [b.slice(b.concatenate([side, b.transpose(z)], 1), (0, 0), (N, N + 8)) for side in sides]
    squared = b.slice(sides[0] * sides[1], (0, 8 * besides), (N, N + 8 * besides))
    b.output(b.tanh(b.dot(b.tanh(b.dot(squared, w)), w)), sharding=("x", None))
    plan = es.optimize(b.build(), cost_model=es.costmodel.WireBytes(), limits=es.Limits(proof=0))
    found = []
    of_parts = proving._of_parts

    def noted(*args):
        found.append(of_parts(*args))
        return found[-1]

    monkeypatch.setattr(proving, "_of_parts", noted)
    proof = plan.prove()
    assert proof and proof.lemmas
    assert [part.equal for part, _ in found] == proofs


@pytest.mark.parametrize("count", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_faults_of_any_layer_are_found(plan, count):
    faults = list(mutants(plan.device_program))
    for fault in random.Random(0).sample(faults, count):
        mutant = Plan.of(dataclasses.replace(plan, device_program=fault.plan))
        assert mutant.prove().equal == mutant.prove(shrink=False).equal, fault.kind


def test_notes_are_not_trusted(plan):
    """A value that is noted to be another one is no difference of results."""
    held = list(plan.device_program.held)
    noted = [v for v, h in enumerate(held) if h and h.value >= len(plan.program.region.inputs)]
    first, last = (held[v] for v in (noted[0], noted[-1]))
    assert first.type == last.type
    held[noted[0]], held[noted[-1]] = first._replace(value=last.value), last._replace(value=first.value)
    steps = dataclasses.replace(plan.device_program, held=tuple(held))
    assert Plan.of(dataclasses.replace(plan, device_program=steps)).prove()


def test_cuts_end_with_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the proof that wanted them then shows nothing, and says why."""
    plan = layered(12)
    with pytest.raises(TimeoutError):
        cut_at_lemmas(plan, Deadline(0))
    monkeypatch.setattr(proving, "cut_at_lemmas", lambda plan, deadline: cut_at_lemmas(plan, Deadline(0)))
    late = proving.prove(plan, within=60)
    assert late.late and late.equal is None and "to cut the plan takes longer" in late.refused


def test_values_that_travel_together_are_cut_apart() -> None:
    """Sums of all layers in one all-reduce: none is made of what the others are."""
    b = ProgramBuilder({"x": 4})
    x = b.input((N, N), sharding=("x", None))
    for _ in range(6):
        x = b.op("tanh", b.dot(x, b.input((N, N), sharding=(None, None))))
        b.output(b.op("reduce", x, dimensions=(0,), monoid="add"), sharding=(None,))
    plan = es.optimize(b.build(), limits=es.Limits(proof=0))
    joint = [step for step in plan.steps if len(step.results) > 1]
    assert [len(step.results) for step in joint] == [6]
    (cut,), count, *_ = cut_at_lemmas(plan)
    assert count >= 12 and max(len(step.results) for step in cut.device_program.steps) == 1
    assert plan.prove().equal
    steps = tuple(dataclasses.replace(s, operands=s.operands[::-1]) if s is joint[0] else s for s in plan.steps)
    wrong = Plan.of(dataclasses.replace(plan, device_program=dataclasses.replace(plan.device_program, steps=steps)))
    assert wrong.prove().equal is False


def test_more_runs_are_made_only_of_what_integers_decide() -> None:
    """An embedding, whose indices are integers, below layers of floats."""
    n = 128
    b = ProgramBuilder({"x": 4})
    tokens, table = b.input((n,), "i32", sharding=("x",)), b.input((n, n), sharding=(None, None))
    one_hot = b.op("compare", b.op("broadcast_in_dim", tokens, shape=(n, n), broadcast_dimensions=(0,)),
                   b.op("iota", shape=(n, n), dtype="i32", iota_dimension=1), comparison_direction="EQ")
    x = b.dot(b.op("convert", one_hot, dtype="f32"), table)
    for _ in range(3):
        x = b.op("tanh", b.dot(x, b.input((n, n), sharding=(None, None))))
    b.output(x, sharding=("x", None))
    plan = es.optimize(b.build(), limits=es.Limits(proof=0))
    parts = cut_at_lemmas(plan).parts
    assert len(parts) == 2
    proof = plan.prove()
    assert proof and proof.runs < 5 and proof.choices == 1 and proof.choice_runs >= proving.CHOICES
    assert proof.choice_bound < 2.0**-40
