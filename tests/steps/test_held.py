"""What the values of a device program are said to be is what they are: shards of that tensor at that placement."""

from __future__ import annotations

import random

import pytest
from tests.random_programs import random_case
from tests.random_stencils import random_stencil
from tests.slowness import some

import eggshard
from eggshard.api import Plan


def check(plan: Plan) -> int:
    program = plan.device_program
    assert len(program.held) == len(program.types)
    known = 0
    for type_, tensor in zip(program.types, program.held, strict=True):
        if tensor is not None:
            known += 1
            assert tensor.placement.local_type(tensor.type) == type_
            if tensor.value >= 0:
                assert plan.program.region.types[tensor.value].elements == tensor.type.elements
    for v, placement in zip(program.outputs, plan.output_placements, strict=True):
        tensor = program.held[v]
        assert tensor is not None and tensor.placement == placement
    return known


@pytest.mark.parametrize("seed", some(range(12), 5))
def test_random_programs(seed: int) -> None:
    plan = eggshard.optimize(random_case(random.Random(seed)).program)
    assert check(plan)
    check(plan.baseline)


@pytest.mark.parametrize("seed", some(range(6), 3))
def test_random_stencils(seed: int) -> None:
    plan = eggshard.optimize(random_stencil(random.Random(seed)).lower())
    assert check(plan)
    for i in range(len(plan.steps)):
        assert "WHY" in plan.explain(i)
    assert eggshard.Plan.from_json(plan.to_json()).reasons == plan.reasons
