"""The kernels that XLA's library of vector operations takes, on graphs and in compiled programs."""

from __future__ import annotations

import re

import pytest
from bench.memory import compiled_memory
from bench.peers import compile_text

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.memory.xla_cpu.graph import Graph, Kind, Node
from eggshard.memory.xla_cpu.libraries import library_kernels

SIZE = 1000


def softmax(product: bool = True) -> Graph:
    """A product, its rows' maximum, the exponential of the difference; their sum; the quotient."""

    def loop(*operands: int, name: str) -> Node:
        return Node(Kind.LOOP, operands, SIZE, name, elementwise=True, vectorised=True)

    nodes = [
        Node(Kind.INPUT, (), SIZE), Node(Kind.CALL, (0,), SIZE, "dot_general", vectorised=product),
        Node(Kind.SUM, (1,), 10, "reduce", vectorised=True), loop(2, name="broadcast_in_dim"),
        loop(1, 3, name="subtract"), loop(4, name="exponential"), Node(Kind.SUM, (5,), 10, "reduce", vectorised=True),
        loop(6, name="broadcast_in_dim"), loop(5, 7, name="multiply"),
    ]  # fmt: skip
    return Graph(nodes, (0,), (8,))


def test_a_softmax_is_one_kernel() -> None:
    graph = softmax()
    assert library_kernels(graph, graph.users()) == dict.fromkeys(range(1, 9), 8)


def test_what_others_need_is_written_before() -> None:
    graph = softmax(product=False)
    graph.outputs = (8, 5)
    assert library_kernels(graph, graph.users()) == {**dict.fromkeys((2, 3, 4, 5), 5), **dict.fromkeys((6, 7, 8), 8)}


@pytest.mark.parametrize(("rows", "kernels"), [(64, 2), (4096, 1)])
def test_few_elements_are_not_for_the_library(rows: int, kernels: int) -> None:
    """The sums of 4,096 rows are divided by in the kernel that makes them; those of fewer rows are not."""
    b = es.ProgramBuilder({"a": 8})
    x, w = b.input((8 * rows, 128), "f32", ("a", None)), b.input((128, 64), "f32")
    e = b.exp(b.tanh(x))
    sums = b.broadcast(b.sum(e, 1), (8 * rows, 128), (0,))
    b.output(b.dot(e / sums, w), ("a", None))
    plan = es.optimize(b.build(), cost_model=WireBytes())
    compiled = compile_text(plan.to_stablehlo()).hlo_modules()[0].to_string()
    assert len(re.findall(r"fusion\(.*kind=kCustom", compiled)) == kernels
    assert plan.memory.temporaries == pytest.approx(compiled_memory(plan)[0], rel=0.01, abs=128)
