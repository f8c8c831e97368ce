"""Rotations that are cut out of one wrap-around: the same values, and one copy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.simulate.simulator import run
from eggshard.spmd.wrapping import wrapped
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import Local, StepPlan

FIELD = TensorType((5, 7), "f32")


def rotated(a: Assembler, value: int, dim: int, amount: int) -> int:
    attributes = Attributes(dimension=dim, amount=amount)
    results = registry.get("rotate").infer(attributes, (a.types[value],))
    return a.emit(Local("rotate", attributes, results), (value,))[0]


def program(*turns: tuple[int, int]) -> StepPlan:
    a = Assembler(Mesh({"x": 2}))
    x = a.input(FIELD)
    return a.build([rotated(a, x, dim, amount) for dim, amount in turns])


def ops(plan: StepPlan) -> list[str]:
    return [step.action.name for step in plan.steps if isinstance(step.action, Local)]


def same(plan: StepPlan) -> StepPlan:
    """What a program becomes, which computes the same on the simulator."""
    shards = [np.random.default_rng(0).normal(size=(2, *FIELD.shape)).astype(np.float32)]
    out = wrapped(plan)
    for got, want in zip(run(out, shards), run(plan, shards), strict=True):
        np.testing.assert_array_equal(got, want)
    return out


@pytest.mark.parametrize(("dim", "amounts"), [
    *((dim, pair) for dim in (0, 1) for pair in itertools.combinations(range(1, FIELD.shape[dim]), 2)),
    (1, (1, 6, 2, 5)), (1, (0, 3)),
])  # fmt: skip
def test_rotations_along_a_dimension_share_a_copy(dim: int, amounts: tuple[int, ...]) -> None:
    out = same(program(*((dim, amount) for amount in amounts)))
    assert ops(out).count("wrap") == 1 and "rotate" not in ops(out)


def test_the_shorter_way_round() -> None:
    (wrap, cut) = same(program((1, 6))).steps
    assert wrap.action.result_types[0].shape == (5, 8) and cut.action.result_types == (FIELD,)


def test_dimensions_and_values_have_copies_of_their_own() -> None:
    assert ops(same(program((0, 1), (0, 4), (1, 1)))).count("wrap") == 2
    a = Assembler(Mesh({"x": 2}))
    once = rotated(a, a.input(FIELD), 1, 1)
    assert ops(same(a.build([once, rotated(a, once, 1, 6)]))).count("wrap") == 2


def test_what_does_not_rotate_stays() -> None:
    a = Assembler(Mesh({"x": 2}))
    plan = a.build(a.emit(Local("tanh", Attributes(), (FIELD,)), (a.input(FIELD),)))
    assert wrapped(plan) is plan
