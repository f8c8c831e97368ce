"""`eggshard.explain_propagation`: who decided where each value lies, and what is moved where decisions differ."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

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
    assert (first.value, first.sharding, dict(first.axes)) == ("argument 0 (x)", '[{"x"}, {}]', {"x": "itself"})
    product = next(row for row in found.values if row.value == "dot_general")
    assert product.sharding == '[{"x"}, {"y"}]' and product.where.startswith("test_explanation.py:")
    assert set(product.axes.values()) == {f"constraint at test_explanation.py:{int(product.where.split(':')[1]) + 1}"}
    last = [row for row in found.values if row.value == "dot_general"][-1]
    assert dict(last.axes) == {"x": "result 0", "y": "argument 2"}


def test_reshards_say_what_is_moved_for_whom(lowered: jax.stages.Lowered) -> None:
    found = es.explain_propagation(lowered)
    assert [move.op for move in found.moved] and all(move.bytes >= 0 for move in found.moved)
    assert any(move.bytes > 0 and move.where.startswith("test_explanation.py:") for move in found.moved)
    shown = str(found)
    assert "constraint at" in shown and "where decisions differ" in shown
    assert not found.of("no such line").values and found.of("dot_general").values


def test_modules_without_lines_and_without_shardings() -> None:
    found = es.explain_propagation("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")
    assert not found.values and not found.moved and "no reshards" in str(found)
    with pytest.raises(es.EggshardError):
        es.explain_propagation("no module")
