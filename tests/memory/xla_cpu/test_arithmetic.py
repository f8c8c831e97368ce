"""Arithmetic as it is simplified before it is fused, on graphs written by hand."""

from __future__ import annotations

from eggshard.memory.xla_cpu.arithmetic import Arithmetic
from eggshard.memory.xla_cpu.graph import Graph, Kind, Node
from eggshard.program.types import TensorType

SHAPE = (64, 64)


def test_a_choice_between_equals_is_none() -> None:
    values, conditions = TensorType(SHAPE, "f32"), TensorType(SHAPE, "i1")
    graph = Graph([Node(Kind.INPUT, (), t.bytes) for t in (conditions, values, values)], (0, 1, 2))
    arithmetic, types = Arithmetic(graph), (conditions, values, values)
    assert arithmetic.elementwise("select", (0, 1, 1), types, values) == 1
    assert graph.nodes[arithmetic.elementwise("select", (0, 1, 2), types, values)].operands == (0, 1, 2)
