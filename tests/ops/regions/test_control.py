"""Control flow, barriers and annotations."""

from __future__ import annotations

import pytest
from tests.ops.family_checks import check_interpreter, check_laws, check_spelling, check_xla
from tests.ops.oracles import function_text, parse
from tests.ops.samples2 import branch, countdown_regions

from eggshard.errors import ProgramError
from eggshard.ops import registry
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

NAMES = ("while", "case", "if", "optimization_barrier")


@pytest.mark.parametrize("name", NAMES)
def test_xla_agrees(name: str) -> None:
    check_xla(name)


@pytest.mark.parametrize("name", NAMES)
def test_interpreter_agrees(name: str) -> None:
    check_interpreter(name)


@pytest.mark.parametrize("name", NAMES)
def test_spelling(name: str) -> None:
    check_spelling(name)


def test_control_flow_is_replicated_and_barriers_pass() -> None:
    assert [check_laws(name) for name in ("while", "case", "if")] == [0, 0, 0]
    assert check_laws("optimization_barrier") == 3


def test_a_sharding_constraint_changes_nothing_and_prints_nothing() -> None:
    assert check_laws("sharding_constraint") == 6
    builder = RegionBuilder((TensorType((4,), "f32"),))
    region = builder.build(builder.add("sharding_constraint", (0,), {"sharding": "x"}))
    assert "sharding_constraint" not in function_text(region)
    parse(function_text(region))


def test_nested_control_flow_prints_distinct_names() -> None:
    types = (TensorType((), "i1"), TensorType((4,), "f32"), TensorType((2,), "i32"))
    inner = RegionBuilder(types)
    branches = (branch("negate"), branch("abs"))
    nested = inner.build(inner.add("if", (0, 1, 2), {}, branches))
    outer = RegionBuilder(types)
    region = outer.build(outer.add("if", (0, 0, 1, 2), {}, (nested, nested)))
    text = function_text(region)
    parse(text)  # refuses a name that is defined twice in one scope
    assert text.count("stablehlo.if") == 3


def test_refusals() -> None:
    condition, body = countdown_regions()
    counter, vector = TensorType((), "i32"), TensorType((3,), "f32")
    with pytest.raises(ProgramError, match="the condition takes"):
        registry.get("while").infer(Attributes(), (counter, vector), (condition, body))
    with pytest.raises(ProgramError, match="the condition returns"):
        registry.get("while").infer(Attributes(), (counter, vector, vector), (body, body))
    with pytest.raises(ProgramError, match="2 regions"):
        registry.get("if").infer(Attributes(), (TensorType((), "i1"),), (body,))
    with pytest.raises(ProgramError, match="operand 0 selects"):
        registry.get("case").infer(Attributes(), (vector,), (body,))
    with pytest.raises(ProgramError, match="branch 1"):
        registry.get("case").infer(Attributes(), (counter, counter, vector, vector), (body, condition))
