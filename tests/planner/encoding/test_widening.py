"""Windows in the selection problem: choices that widen, conversions that cut, and what is found with them."""

from __future__ import annotations

import math

import pytest
from tests.planner.encoding.window_problems import encoding_of, line_program
from tests.slowness import some

import eggshard as es
from eggshard.costmodel import AlphaBeta, WireBytes
from eggshard.limits import Limits
from eggshard.planner.encoding.encode import Computed, Widened
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType
from eggshard.reshard.window_routes import contains, rewindowed
from eggshard.selection.verify import complete
from eggshard.steps.window_steps import Crop

LATENCY = AlphaBeta(launch=1e-3, latency=0, bandwidth=5e6, flops=1e15, memory=1e15)
COMPUTE = AlphaBeta(launch=1e-9, latency=0, bandwidth=1e12, flops=1e5, memory=1e5)


@pytest.mark.parametrize("wrapped", [False, True])
def test_what_widening_adds(wrapped: bool) -> None:
    """Choices of a class of windows widen a shard over the same axes; conversions there send nothing."""
    encoding, plans, graph = encoding_of(line_program(3, wrapped=wrapped), WireBytes())
    assert encoding.windows and encoding.widens
    held = dict.fromkeys((group, number) for group, found in encoding.windows.items() for number, _ in found.values())
    for group, number in held:
        shape = encoding.views.core_type(group).shape
        placements = encoding.placements[number]
        table = encoding.problem.conversions[number]
        for choice in encoding.problem.choices[number]:
            assert isinstance(choice.tag, Widened) and choice.tag.group == group
            ((needed, at),) = choice.needs
            assert needed == group or (group, needed) in held
            assert encoding.placements[needed][at] == choice.tag.source
            target = placements[choice.out]
            assert isinstance(target, Placement)
            steps = rewindowed(plans.mesh, shape, choice.tag.source, target)
            assert steps is not None and math.isfinite(choice.cost)
            free, held_there = True, choice.tag.source.local_type(TensorType(shape, "f32"))
            for action, _ in steps:
                free &= isinstance(action, Crop) and action.cuts(held_there)
                (held_there,) = action.result(plans.mesh, (held_there,))
            assert (choice.cost == 0) == free
        for i, wide in enumerate(placements):
            for j, narrow in enumerate(placements):
                assert isinstance(wide, Placement) and isinstance(narrow, Placement)
                if i != j and math.isfinite(table[i, j]):
                    assert contains(plans.mesh, shape, wide, narrow)
                    steps = rewindowed(plans.mesh, shape, wide, narrow)
                    assert steps is not None and all(action.messages == 0 for action, _ in steps)
        made = [p for choice in encoding.problem.choices[number] for p in [placements[choice.out]]]
        for p in placements:  # every window is had somehow
            assert any(q == p or contains(plans.mesh, shape, q, p) for q in made)  # type: ignore[arg-type]
    for choices in encoding.problem.choices:
        for choice in choices:
            if isinstance(choice.tag, Computed):
                assert graph.classes[choice.tag.cls].nodes[choice.tag.node].op


def test_no_windows() -> None:
    """None where they are switched off, and none for programs that do not look at neighbours."""
    assert not encoding_of(line_program(2, wrapped=False), WireBytes(), limit=0)[0].windows
    assert not encoding_of(line_program(0, wrapped=False), WireBytes())[0].windows


@pytest.mark.parametrize("model", [WireBytes(), LATENCY, COMPUTE], ids=["bytes", "latency", "compute"])
def test_schedules_are_plans(model: object) -> None:
    """What the search starts from can be completed to plans."""
    encoding, _, _ = encoding_of(line_program(3, wrapped=False), model)  # type: ignore[arg-type]
    plans = [complete(encoding.problem, {c: (i,) for c, i in chosen.items()}) for chosen in encoding.problem.seeds]
    assert plans and all(plan is not None for plan in plans)


@pytest.mark.parametrize("model", some([WireBytes(), LATENCY, COMPUTE, AlphaBeta()], 2),
                         ids=["bytes", "latency", "compute", "default"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_no_dearer_than_without_windows(model: object, wrapped: bool) -> None:
    for steps in (1, 3, 6):
        program = line_program(steps, wrapped=wrapped, n=64)
        plan = es.optimize(program, cost_model=model)  # type: ignore[arg-type]
        plain = es.optimize(program, cost_model=model, limits=Limits(windows=0))  # type: ignore[arg-type]
        assert plan.cost.total <= plain.cost.total * (1 + 1e-9)
        assert not plan.search.fallback


@pytest.mark.parametrize("wrapped", [False, True])
def test_least_bytes(wrapped: bool) -> None:
    """A row from either side per step, however it is spread over exchanges."""
    for steps in (1, 2, 5):
        plan = es.optimize(line_program(steps, wrapped=wrapped, n=64), cost_model=WireBytes())
        assert plan.serial_bytes == 2 * 4 * steps
