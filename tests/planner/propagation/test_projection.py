from __future__ import annotations

import random

import pytest

from eggshard.planner.propagation.projection import Projection, project
from eggshard.program.axes import AxisRef
from eggshard.program.mesh import Mesh
from eggshard.program.op_sharding_rule import OpShardingRule
from eggshard.program.tensor_sharding import TensorSharding

MESH = Mesh({"w": 3, "x": 4, "y": 2, "z": 8})


def _rule(text: str) -> OpShardingRule:
    return OpShardingRule.parse(f"#sdy.op_sharding_rule<{text}>")


def _sharding(text: str) -> TensorSharding:
    return TensorSharding.parse(f"#sdy.sharding<@mesh, {text}>")


def _axes(text: str) -> tuple[AxisRef, ...]:
    return _sharding(f"[{text}]").axes[0]


@pytest.mark.parametrize(("rule", "stated", "factors", "overflow"), [
    ("([ij])->([i, j]) {i=2, j=16}", '[{"x", "y"}]', ['{"x":(1)2}', '{"x":(2)2, "y"}'], []),
    ("([ij])->([i, j]) {i=8, j=16}", '[{"x", "z"}]', ['{"x", "z":(1)2}', '{"z":(2)4}'], []),
    ("([ij])->([i, j]) {i=2, j=12}", '[{"w", "x"}]', ["{}", "{}"], ['{"w", "x"}']),
    ("([ijk])->([i, j, k]) {i=2, j=3, k=4}", '[{"y", "w", "x"}]', ['{"y"}', '{"w"}', '{"x"}'], []),
    ("([ij])->([i, j]) {i=6, j=4}", '[{"z"}]', ['{"z":(1)2}', "{}"], ['{"z":(2)4}']),
    ("([i])->([i]) {i=5}", '[{"z", "x"}]', ['{"z", "x"}'], []),
])
def test_axes_are_dealt_out_to_factors(rule: str, stated: str, factors: list[str], overflow: list[str]) -> None:
    read = _rule(rule)
    tensor = project(_sharding(stated), read.operands[0], read, MESH)
    assert [tensor.factors[i].axes for i in range(len(factors))] == [_axes(f) for f in factors]
    assert [f.overflow for f in tensor.factors.values() if f.overflow] == [_axes(o) for o in overflow]
    assert tensor.sharding(read.operands[0], read, MESH, "mesh").axes == _sharding(stated).axes


def test_factors_become_dimensions_of_other_tensors() -> None:
    rule = _rule("([ij])->([i, j]) {i=2, j=16}")
    projection = Projection.of(rule, [_sharding('[{"x", "y"}]')], [None], MESH)
    for factor, own in list(projection.operands[0].factors.items()):
        projection.expand(factor, own.axes)
    result = projection.results[0].sharding(rule.results[0], rule, MESH, "mesh")
    assert str(result) == '#sdy.sharding<@mesh, [{"x":(1)2, ?}, {"x":(2)2, "y", ?}]>'


def test_a_factor_behind_one_that_is_not_fully_sharded_would_be_strided() -> None:
    rule = _rule("([i, j])->([ij]) {i=4, j=8}")
    projection = Projection.of(rule, [_sharding('[{"y"}, {"x"}]')], [None], MESH)
    assert projection.expand(0, _axes('{"y"}')) == [False, True]
    assert projection.expand(1, _axes('{"x"}')) == [False, True]
    assert projection.results[0].sharding(rule.results[0], rule, MESH, "mesh").axes == (_axes('{"y"}'),)


def test_expanding_keeps_what_is_there_and_updating_does_not() -> None:
    rule = _rule("([i])->([i]) {i=64}")
    projection = Projection.of(rule, [_sharding('[{"x"}]')], [_sharding("[{}]")], MESH, closed_if_missing=True)
    assert projection.expand(0, _axes('{"z"}')) == [False, True]
    assert projection.update(0, _axes('{"y"}')) == [True, True]
    assert projection.results[0].factors[0].closed


def test_projecting_there_and_back_is_the_same() -> None:
    draw = random.Random(0)
    for _ in range(300):
        sizes = [draw.choice((2, 3, 4, 6, 8)) for _ in range(draw.randint(1, 3))]
        symbols = "ijk"[: len(sizes)]
        listed = ", ".join(f"{s}={n}" for s, n in zip(symbols, sizes, strict=True))
        rule = _rule(f"([{symbols}])->([{', '.join(symbols)}]) {{{listed}}}")
        axes = [AxisRef("w"), AxisRef("x", 1, 2), AxisRef("y"), AxisRef("z", 1, 2), AxisRef("z", 4, 2)]
        draw.shuffle(axes)
        stated = TensorSharding.closed("mesh", [tuple(axes[: draw.randint(0, 4)])])
        tensor = project(stated, rule.operands[0], rule, MESH)
        assert tensor.sharding(rule.operands[0], rule, MESH, "mesh") == stated
