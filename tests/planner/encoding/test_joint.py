"""Values widened together: what the problem offers, at which price, and the plans that come of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.planner.encoding.window_problems import LINE, encoding_of, line_program

import eggshard as es
from eggshard.api import Plan
from eggshard.costmodel import AlphaBeta, WireBytes
from eggshard.frontends.builder import ProgramBuilder
from eggshard.planner.encoding.encode import Joined, Jointly, Widened
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program
from eggshard.steps.window_steps import JointExchange

EIGHT = Mesh({"x": 8})
DEAR_MESSAGES = AlphaBeta(launch=1.0, latency=0.0, bandwidth=1e12)


def concatenated(mesh: Mesh = LINE, n: int = 64) -> Program:
    b = ProgramBuilder(dict(mesh.axes))
    u, v = (b.input((n, 3), "f32", ("x", None)) for _ in range(2))
    b.output(b.concatenate([u, v], 0), ("x", None))
    return b.build()


def halves(mesh: Mesh = LINE, n: int = 64) -> Program:
    b = ProgramBuilder(dict(mesh.axes))
    u = b.input((n, 3), "f32", ("x", None))
    first, second = (b.slice(u, (at, 0), (at + n // 2, 3)) for at in (0, n // 2))
    b.output(first + second, ("x", None))
    return b.build()


def chunks(mesh: Mesh = LINE, n: int = 48, chained: int = 0) -> Program:
    """Three parts of a value, and what comes of them."""
    b = ProgramBuilder(dict(mesh.axes))
    u = b.input((n, 5), "f32", ("x", None))
    for _ in range(chained):
        u = b.tanh(u * 2.0)
    for k in range(3):
        b.output(b.slice(u, (k * n // 3, 0), ((k + 1) * n // 3, 5)), ("x", None))
    return b.build()


def beside(mesh: Mesh = LINE, n: int = 64) -> Program:
    """The beginnings and ends of different values."""
    b = ProgramBuilder(dict(mesh.axes))
    u, v = (b.input((n, 3), "f32", ("x", None)) for _ in range(2))
    b.output(b.slice(u, (0, 0), (n // 2, 3)) * b.slice(v, (n // 2, 0), (n, 3)), ("x", None))
    return b.build()


@pytest.mark.parametrize("program", [halves, chunks])
def test_what_is_offered(program: object) -> None:
    """A class with one choice, which needs the values and costs less than their widenings; and what comes of it."""
    encoding, _, graph = encoding_of(program(), WireBytes())  # type: ignore[operator]
    choices = encoding.problem.choices
    joint = {c: made for c, made in enumerate(choices) if any(isinstance(choice.tag, Jointly) for choice in made)}
    assert joint
    for c, made in joint.items():
        (choice,) = made
        assert c >= len(graph.classes) and len(encoding.placements[c]) == 1
        assert len(choice.needs) <= len(choice.tag.parts)
        alone, taken = [], set()
        for number, others in enumerate(choices):
            for other in others:
                if other.needs == ((c, 0),):
                    assert isinstance(other.tag, Joined) and other.cost == 0
                    group, source, target = choice.tag.parts[other.tag.number]
                    assert group == other.tag.group and encoding.placements[number][other.out] == target
                    taken.add(other.tag.number)
                    alone += [w.cost for w in others if isinstance(w.tag, Widened) and w.out == other.out
                              and w.tag.source == source]
        assert taken == set(range(len(choice.tag.parts))) and len(alone) == len(taken)
        assert 0 < choice.cost < math.fsum(alone)


def test_halos_are_left_alone() -> None:
    for wrapped in (False, True):
        encoding, _, _ = encoding_of(line_program(3, wrapped=wrapped), WireBytes())
        assert not any(isinstance(choice.tag, Jointly) for made in encoding.problem.choices for choice in made)


@pytest.mark.parametrize(
    ("program", "messages", "rows"),
    [(concatenated, 2, 2 * 3 * 8), (halves, 2, 2 * 3 * 4), (chunks, 3, 3 * 5 * 2), (beside, 2, 2 * 3 * 4)],
)
def test_plans(program: object, messages: int, rows: int) -> None:
    plan = es.optimize(program(EIGHT), cost_model=WireBytes())  # type: ignore[operator]
    assert plan.collectives == {"collective-permute": messages} and plan.serial_bytes == 4 * rows
    assert plan.search_gap < 1e-3
    (action,) = (step.action for step in plan.steps if step.action.messages)
    assert isinstance(action, JointExchange) and action.shared
    assert set(plan.verify(seed=1).differences) == {"numpy", "jax"}
    assert Plan.from_json(plan.to_json()) == plan
    assert all(np.isfinite(value) for value in (plan.bound, plan.cost.total))


@pytest.mark.parametrize("program", [concatenated, halves, chunks, beside])
def test_where_messages_are_dear_there_are_few(program: object) -> None:
    plan = es.optimize(program(EIGHT), cost_model=DEAR_MESSAGES)  # type: ignore[operator]
    cheap = es.optimize(program(EIGHT), cost_model=WireBytes())  # type: ignore[operator]
    assert sum(plan.collectives.values()) <= sum(cheap.collectives.values())
    assert plan.verify().differences == {"numpy": 0.0, "jax": 0.0} or program is halves
    assert plan.cost.total <= sum(plan.collectives.values()) * 1.001 and plan.cost.total >= 1


def test_behind_other_ops() -> None:
    """A value that is computed first is cut into parts as an input is."""
    plan = es.optimize(chunks(EIGHT, chained=6), cost_model=WireBytes())
    assert plan.collectives == {"collective-permute": 3} and plan.serial_bytes == 4 * 3 * 5 * 2
