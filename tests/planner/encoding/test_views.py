"""Views: which classes are one for extraction, and how placements translate between them."""

from __future__ import annotations

import numpy as np
import pytest

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.egraph.graph import EClass, EGraph, ENode
from eggshard.frontends.builder import ProgramBuilder
from eggshard.planner.encoding.views import find_views
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Dim, Placement
from eggshard.program.types import TensorType


def graph(*classes: tuple[tuple[int, ...], str, tuple[int, ...], dict]) -> EGraph:
    """Classes in order: shape, op, children, attributes."""
    made = [
        EClass((TensorType(shape, "f32"),), [ENode(op, Attributes(attributes), (), children)])
        for shape, op, children, attributes in classes
    ]
    return EGraph(made, list(range(len(made))))


X = ((4, 6, 8), "input", (), {"index": 0})


def test_transposes_and_unit_dimensions_share_a_group() -> None:
    g = graph(
        X,
        ((8, 4, 6), "transpose", (0,), {"permutation": (2, 0, 1)}),
        ((8, 1, 4, 6), "reshape", (1,), {"shape": (8, 1, 4, 6)}),
        ((4, 6, 8, 1), "broadcast_in_dim", (0,), {"broadcast_dimensions": (0, 1, 2), "shape": (4, 6, 8, 1)}),
        ((24, 8), "reshape", (0,), {"shape": (24, 8)}),
        ((4, 6, 8), "tanh", (0,), {}),
    )
    views = find_views(g)
    assert views.group == [0, 0, 0, 0, 4, 5]
    assert views.core_type(2) == TensorType((4, 6, 8), "f32")


def test_placements_translate_both_ways() -> None:
    g = graph(X, ((8, 1, 4, 6), "reshape", (2,), {"shape": (8, 1, 4, 6)}),
              ((8, 4, 6), "transpose", (0,), {"permutation": (2, 0, 1)}))
    views = find_views(g)
    placement = Placement((Dim(("x",), 2), Dim((), 1), Dim((), 4), Dim(("y",), 3)), ("z",), "add")
    core = views.to_core(1, placement)
    assert core == Placement((Dim((), 4), Dim(("y",), 3), Dim(("x",), 2)), ("z",), "add")
    assert views.from_core(1, core) == placement


def test_a_tensor_equal_to_its_own_transpose_keeps_one_order() -> None:
    g = graph(((4, 4), "input", (), {"index": 0}))
    g.classes[0].nodes.append(ENode("transpose", Attributes(permutation=(1, 0)), (), (0,)))
    views = find_views(g)
    assert views.group == [0] and views.order[0] == (0, 1)
    assert views.is_view(0, g.classes[0].nodes[1])


@pytest.mark.parametrize("target", [("x", None, "y"), (None, ("x", "y"), None), (None, None, "x")])
def test_plans_with_many_views_are_right(target: tuple) -> None:
    b = ProgramBuilder(mesh={"x": 2, "y": 2})
    x = b.input((4, 8, 6), "f32", (None, "x", None))
    y = b.transpose(x, (2, 0, 1))
    z = b.transpose(b.tanh(b.reshape(y, (6, 1, 4, 8, 1))), (4, 2, 3, 1, 0))
    b.output(b.reshape(z, (4, 8, 6)) + x * x, target)
    b.output(y, (None, "y", None))
    plan = es.optimize(b.build(), cost_model=WireBytes())
    plan.verify()
    assert plan.search_gap <= 0.01 and not plan.search.fallback
    values = np.random.default_rng(0).standard_normal((4, 8, 6)).astype(np.float32)
    np.testing.assert_array_equal(plan.run(values)[1], values.transpose(2, 0, 1))
