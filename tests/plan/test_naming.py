"""What plans call their values: inputs by name, the rest by one numbering."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from tests.report.samples import chain

import eggshard as es
from eggshard.plan.naming import LONGEST, ProgramNames, class_names, output_names, value_names


@cache
def gathered() -> es.Plan:
    b = es.ProgramBuilder(mesh={"x": 4})
    x = b.input((64, 1024), "f32", ("x", None), "activations")
    w = b.input((1024, 1024), "f32", ("x", None), "params['w']")
    b.output(b.tanh(x @ w), ("x", None), "predictions")
    return es.optimize(b.build(), cost_model="alpha-beta")


def test_inputs_have_their_names_and_other_values_the_plans_numbers() -> None:
    plan = gathered()
    names = value_names(plan)
    assert names[:2] == ["activations", "params['w']"] and names[2:] == [f"%{v}" for v in range(2, len(names))]
    assert output_names(plan) == ["predictions"]
    assert any("activations" in line.split() for line in str(plan).splitlines())


def test_names_that_two_inputs_share_are_no_names() -> None:
    plan = gathered()
    same = replace(plan, program=replace(plan.program, input_names=("x", "x"), output_names=()))
    assert value_names(same)[:2] == ["%0", "%1"] and output_names(same) == ["0"]


def test_long_names_are_cut_to_their_end_and_stay_apart() -> None:
    plan = gathered()
    layers = tuple(f"params['layers'][{i}]['attention']['query']" for i in range(2))
    names = value_names(replace(plan, program=replace(plan.program, input_names=layers)))
    assert names[:2] == ["%0...tion']['query']", "%1...tion']['query']"]
    assert all(len(name) <= LONGEST for name in names)


def test_explanations_name_what_the_table_shows() -> None:
    """No number of the program's, none of classes: every %n of an explanation is in the plan's table, or an input."""
    for plan in (gathered(), chain()):
        known = set(re.findall(r"%\d+", str(plan)))
        for i in range(len(plan.steps)):
            text = plan.explain(i)
            assert set(re.findall(r"%\d+", text)) <= known and not re.search(r"\bclass \d", text)
    assert "%2 holds input params['w'], tensor<1024x1024xf32>, at (-, -)" in gathered().explain(0)


def test_values_of_the_program_are_named_by_their_ops() -> None:
    program = gathered().program
    names = ProgramNames(program)
    assert names.of(program.region.inputs[1]) == "input params['w']"
    assert names.of(program.region.ops[0].results[0]) == "op 0 of the program (dot_general)"
    assert names.of(-1) == "a tensor that the algebra made"
    located = replace(program.region.ops[0], location="jit(f)/dot_general at f.py:3")
    region = replace(program.region, ops=(located, *program.region.ops[1:]))
    assert "f.py:3" in ProgramNames(replace(program, region=region)).of(located.results[0])


def test_classes_are_called_by_the_first_value_that_holds_them() -> None:
    plan = gathered()
    names = class_names(plan)
    for value, tensor in reversed(list(zip(value_names(plan), plan.device_program.held, strict=True))):
        if tensor is not None and tensor.cls >= 0:
            first = names[tensor.cls]
            assert first in value_names(plan)[: value_names(plan).index(value) + 1]
