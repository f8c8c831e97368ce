"""Programs of equal layers: planned by two of them, they compute what the whole program means, at the same price."""

from __future__ import annotations

import dataclasses
import random
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.random_layers import Design, design_of_parts, layered, random_design
from tests.random_programs import random_inputs
from tests.slowness import some

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.errors import EggshardWarning
from eggshard.ops.evaluate import evaluate_program
from eggshard.planner.layers import planning as layers_planning
from eggshard.planner.layers.lifting import Lift
from eggshard.planner.layers.parts import find_parts
from eggshard.planner.layers.runs import Stretch, stretches
from eggshard.planner.layers.shortening import shorten
from eggshard.selection.problem import Selection

PLAIN = Design({"x": 4, "y": 2}, 8, 8, 8, 2, ("add", "multiply", "add"), False, True, True, False, False, False, False)

slowly = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def planned(program, by_layers=True, **options):
    """A plan that was found without falling back on an error."""
    many, layers_planning.MANY_OPS = layers_planning.MANY_OPS, 0 if by_layers else 10**9
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", EggshardWarning)
            return es.optimize(program, **{"cost_model": WireBytes(), **options})
    finally:
        layers_planning.MANY_OPS = many


def check(program, plan):
    inputs = random_inputs(program, np.random.default_rng(0), False)
    for got, want in zip(plan.run(*inputs), evaluate_program(program, inputs), strict=True):
        np.testing.assert_array_equal(got, want)


def test_stretches_are_found_by_their_period():
    kinds = [9, *[1, 2, 3, 2] * 6, 8, *[4, 5] * 7, 7]
    assert stretches(kinds)[0] == Stretch(1, 25, 4)
    assert Stretch(26, 40, 2) in stretches(kinds)


def test_a_sequence_without_repetition_has_no_stretches():
    assert stretches(list(range(50))) == []
    assert stretches([]) == []


def test_runs_of_a_stretch_are_of_whole_blocks():
    runs = Stretch(3, 14, 4).runs()
    assert [(r.start, r.blocks) for r in runs] == [(3, 2), (4, 2), (5, 2), (6, 2)]
    assert all(r.stop <= 14 for r in runs)


def test_forward_backward_and_updates_of_a_layer_belong_together():
    program = layered(PLAIN, random.Random(0))
    found = find_parts(program)
    assert found is not None and len(found.rows) == 1 and len(found.rows[0]) >= 6
    maker = {v: i for i, op in enumerate(program.region.ops) for v in op.results}
    apart = [
        abs(found.part[maker[v]] - found.part[i]) for i, op in enumerate(program.region.ops) for v in op.operands
        if v in maker and found.part[i] >= 0 and found.part[maker[v]] >= 0
    ]
    assert max(apart) <= 1


def test_the_short_form_keeps_two_layers():
    program = layered(PLAIN, random.Random(0))
    short = shorten(program)
    assert short is not None and len(short.parts.rows[0]) >= 6
    assert len(short.program.region.ops) < 0.6 * len(program.region.ops)
    # Only the activation and its cotangent pass from layer to layer.
    assert sorted(seam.user for seam in short.seams) == [-1, -1, 0, 0, 1, 1]


def test_layers_of_different_widths_are_not_equal():
    b = es.ProgramBuilder({"x": 2})
    x = b.input((4, 4), "i32")
    for n in range(5, 12):
        w = b.input((x.shape[1], n), "i32")
        x = b.dot(x, w) * 2
    b.output(x)
    assert shorten(b.build()) is None


@pytest.mark.parametrize("others", [8, 80])
def test_a_program_of_which_few_ops_are_in_equal_layers_is_planned_whole(others):
    b = es.ProgramBuilder({"x": 2})
    x = b.input((4, 4), "i32")
    for _ in range(8):
        x = b.dot(x, b.input((4, 4), "i32")) * 2
    for n in range(others):
        x = b.dot(x, b.input((x.shape[1], 5 + n), "i32"))
    b.output(x)
    assert (shorten(b.build()) is None) == (others == 80)


def test_layers_with_different_shardings_of_weights_are_not_equal():
    b = es.ProgramBuilder({"x": 2})
    x = b.input((4, 4), "i32")
    for n in range(8):
        x = b.dot(x, b.input((4, 4), "i32", ("x", None) if n % 3 else (None, "x"))) * 2
    b.output(x)
    assert shorten(b.build()) is None


@pytest.mark.parametrize("feature", some(["skip", "auxiliary", "tied", "first_differs", "free_outputs"], 1))
def test_plans_of_layered_programs(feature):
    program = layered(dataclasses.replace(PLAIN, **{feature: True}), random.Random(1))
    assert shorten(program) is not None
    plan = planned(program)
    assert "layers" in plan.search.seconds
    check(program, plan)
    assert plan.cost.total <= 1.2 * planned(program, by_layers=False).cost.total


@settings(max_examples=4, derandomize=True, **slowly)
@given(st.randoms(use_true_random=False))
def test_random_programs_of_layers(rng):
    program = layered(random_design(rng), rng)
    check(program, planned(program))


@pytest.mark.slow
@settings(max_examples=24, derandomize=True, **slowly)
@given(st.randoms(use_true_random=False))
def test_random_programs_of_layers_often(rng):
    program = layered(random_design(rng), rng)
    check(program, planned(program))


@pytest.mark.slow
@settings(max_examples=24, derandomize=True, **slowly)
@given(st.randoms(use_true_random=False))
def test_random_programs_of_equal_parts_that_are_no_row_of_layers(rng):
    program = layered(design_of_parts(random_design(rng), rng), rng)
    check(program, planned(program))


def test_a_run_that_only_other_runs_join_to_the_layers_finds_its_place():
    """Updates that take gradients by way of another run: numbered by that one, and not by themselves."""
    b = es.ProgramBuilder({"x": 2})
    x = b.input((4, 4), "i32")
    weights = [b.input((4, 4), "i32") for _ in range(7)]
    saved = []
    for w in weights:
        saved.append(x)
        x = b.dot(x, w) * 2
    d, gradients = x, []
    for w, value in zip(reversed(weights), reversed(saved), strict=True):
        gradients.append(b.dot_general(value, d, ((0,), (0,))))
        d = b.dot_general(d, w, ((1,), (1,)))
    moments = [g * 3 + 1 for g in reversed(gradients)]
    updates = [(m * m + 5) * 7 - 1 for m in moments]
    for value in updates:
        b.output(value)
    short = shorten(b.build())
    assert short is not None and sorted(seam.user for seam in short.seams) == [-1, -1, 0, 0, 1, 1]


@pytest.mark.slow
def test_what_a_lifted_plan_costs_is_known_before_it_is_made(monkeypatch: pytest.MonkeyPatch):
    compared = []
    price = Lift.price

    def both(lift: Lift, selection: Selection, follow: tuple[int, ...]) -> float | None:
        found, made = price(lift, selection, follow), lift.lift(selection, follow)
        compared.append((found, made and made.selection.cost))
        return found

    monkeypatch.setattr(Lift, "price", both)
    for seed in range(6):
        planned(layered(random_design(random.Random(seed)), random.Random(seed)))
    assert compared and all(found == made for found, made in compared)
