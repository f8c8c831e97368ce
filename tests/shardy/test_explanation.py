"""`eggshard.explain_propagation`: who decided where each value lies, and what is moved where decisions differ."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.report.samples import propagation
from tests.shardy.modules import random_module

import eggshard as es


@pytest.fixture(scope="module")
def lowered() -> jax.stages.Lowered:
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)

    def network(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(x @ w)
        hidden = jax.lax.with_sharding_constraint(hidden, NamedSharding(mesh, P("x", "y")))
        return hidden @ v

    shapes, specs = ((16, 8), (8, 32), (32, 8)), (P("x"), P(), P(None, "y"))
    types = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    placed = [NamedSharding(mesh, spec) for spec in specs]
    return jax.jit(network, in_shardings=tuple(placed), out_shardings=NamedSharding(mesh, P("x"))).lower(*types)


def test_every_axis_has_who_decided_it_and_the_line(lowered: jax.stages.Lowered) -> None:
    found = es.explain_propagation(lowered)
    first = found.values[0]
    assert (first.value, first.sharding, dict(first.axes)) == ("argument 0 (x)", '[{"x"}, {}]', {"x": "argument 0 (x)"})
    product = next(row for row in found.values if row.value == "dot_general")
    assert product.sharding == '[{"x"}, {"y"}]' and product.where.startswith("test_explanation.py:")
    assert set(product.axes.values()) == {f"constraint at test_explanation.py:{int(product.where.split(':')[1]) + 1}"}
    last = [row for row in found.values if row.value == "dot_general"][-1]
    assert dict(last.axes) == {"x": "result 0", "y": "argument 2 (v)"}


def test_reshards_say_what_is_moved_for_whom(lowered: jax.stages.Lowered) -> None:
    found = es.explain_propagation(lowered)
    assert [move.op for move in found.moved] and all(move.bytes >= 0 for move in found.moved)
    assert any(move.bytes > 0 and move.where.startswith("test_explanation.py:") for move in found.moved)
    shown = str(found)
    assert "constraint at" in shown and "where decisions differ" in shown
    none = found.of("no such line")
    assert not none.values and not none.conflicts and not none.moved and found.of("dot_general").values


def test_modules_without_lines_and_without_shardings() -> None:
    found = es.explain_propagation("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")
    assert not found.values and not found.moved and "no conflicts" in str(found) and "no reshards" in str(found)
    with pytest.raises(es.EggshardError):
        es.explain_propagation("no module")


def test_conflicts_say_who_won_and_who_lost() -> None:
    first, second = propagation().conflicts
    place = first.where.rpartition(":")
    constraint = f"constraint at {place[0]}:{int(place[2]) + 1}"
    assert (first.op, first.what, first.sharding, first.used) == (
        "dot_general", "operand 1", '[{}, {"data"}]', '[{}, {"model"}]')
    assert first.kept == {"data": ("argument 0 (x)", constraint), "model": (constraint,)}, "rows, and columns"
    assert first.rejected == {"data": ("argument 1 (w)",)} and first.bytes == 512 << 10
    assert (second.what, second.kept, second.rejected) == (
        "result 0", {"data": (constraint,)}, {"data": ("result 0",)})


MESH = 'sdy.mesh @mesh = <["x"=4, "y"=2]>'
ROWS, COLUMNS, WHOLE = (f"#sdy.sharding<@mesh, [{dims}]>" for dims in ('{"x"}, {}', '{}, {"x"}', "{}, {}"))


def conflicts_of(body: str, argument: str = ROWS, result: str = ROWS) -> list[tuple[object, ...]]:
    explained = es.explain_propagation(f"""{MESH}
        func.func @main(%a: tensor<8x8xf32> {{sdy.sharding = {argument}}})
            -> (tensor<8x8xf32> {{sdy.sharding = {result}}}) {{ {body} }}""")
    return [(row.op, row.what, dict(row.kept), dict(row.rejected)) for row in explained.conflicts]


def test_a_result_conflicts_with_the_argument() -> None:
    body = "return %a : tensor<8x8xf32>"
    assert conflicts_of(body) == []
    assert conflicts_of(body, result=COLUMNS) == [
        ("program", "result 0", {"x": ("result 0",)}, {"x": ("argument 0",)})]
    assert conflicts_of(body, argument=WHOLE) == [], "to cut a whole value moves nothing"


def test_a_constraint_conflicts_with_what_it_moves() -> None:
    body = """%0 = sdy.sharding_constraint %a <@mesh, [{}, {"x"}]> : tensor<8x8xf32>
        return %0 : tensor<8x8xf32>"""
    assert conflicts_of(body, result=COLUMNS) == [
        ("constraint", "operand 0", {"x": ("constraint 0",)}, {"x": ("argument 0",)})]


def test_an_op_that_needs_whole_rows_rejects_them_by_itself() -> None:
    body = """%0 = stablehlo.cholesky %a, lower = true : tensor<8x8xf32>
        return %0 : tensor<8x8xf32>"""
    assert conflicts_of(body) == [
        ("cholesky", "operand 0", {}, {"x": ("argument 0",)}), ("cholesky", "result 0", {}, {"x": ("result 0",)})]


def test_what_a_loop_carries_has_an_origin() -> None:
    body = """%n = stablehlo.constant dense<3> : tensor<i32>
        %r:2 = stablehlo.while(%c = %a, %i = %n) : tensor<8x8xf32>, tensor<i32>
        cond {
          %z = stablehlo.constant dense<0> : tensor<i32>
          %p = stablehlo.compare GT, %i, %z : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        } do {
          %t = stablehlo.transpose %c, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
          stablehlo.return %t, %i : tensor<8x8xf32>, tensor<i32>
        }
        return %r#0 : tensor<8x8xf32>"""
    assert conflicts_of(body) == [
        ("while", "result 0 of its body", {"x": ("result 0",)}, {"x": ("result 0",)})], "every iteration turns it"


@pytest.mark.parametrize("seed", range(12))
def test_rejected_axes_are_those_of_the_value_and_not_of_the_op(seed: int) -> None:
    for row in es.explain_propagation(random_module(seed)).conflicts:
        assert row.sharding != row.used and (row.rejected or '"' in row.used), row
        assert all(f'"{axis}"' in row.sharding for axis in row.rejected), row
