"""Fusion, schedule and placement of buffers on small graphs written by hand."""

from __future__ import annotations

import random

from eggshard.memory.buffers import Buffer, breadth_first, place, temporaries
from eggshard.memory.fusion import fused
from eggshard.memory.graph import Graph, Kind, Node

SIZE = 1000


def graph(*nodes: Node, outputs: tuple[int, ...]) -> Graph:
    inputs = tuple(n for n, node in enumerate(nodes) if node.kind is Kind.INPUT)
    return Graph(list(nodes), inputs, outputs)


def loop(*operands: int, name: str = "add", **more: bool) -> Node:
    return Node(Kind.LOOP, operands, SIZE, name, elementwise=True, **more)


def call(*operands: int) -> Node:
    return Node(Kind.CALL, operands, SIZE, "dot_general")


INPUT = Node(Kind.INPUT, (), SIZE)


def test_a_chain_is_one_kernel() -> None:
    g = graph(INPUT, loop(0), loop(1), loop(2), outputs=(3,))
    assert fused(g).reads == {3: {0: True}}
    assert temporaries(g) == 0


def test_cheap_loops_are_computed_again_and_dear_ones_are_not() -> None:
    cheap = graph(INPUT, loop(0), loop(1), loop(1), outputs=(2, 3))
    assert sorted(fused(cheap).reads) == [2, 3]
    dear = graph(INPUT, loop(0, name="exponential", expensive=True), loop(1), loop(1), outputs=(2, 3))
    assert sorted(fused(dear).reads) == [1, 2, 3]


def test_a_loop_of_two_operands_that_its_user_needs_through_memory_too_is_kept() -> None:
    g = graph(INPUT, INPUT, loop(0, 1), call(2), loop(2, 3), outputs=(4,))
    assert sorted(fused(g).reads) == [2, 3, 4]
    assert fused(g).reads[4] == {2: True, 3: True}


def test_a_kernel_writes_over_an_operand_that_dies() -> None:
    g = graph(INPUT, call(0), loop(1), call(2), call(3), outputs=(4,))
    # The loop's result is where the first call's was; the output's memory holds it until the output is made.
    assert temporaries(g) == SIZE


def test_a_softmax_is_one_kernel() -> None:
    g = graph(
        INPUT, call(0), Node(Kind.SUM, (1,), 10, "reduce", vectorised=True),
        Node(Kind.LOOP, (2,), SIZE, "broadcast_in_dim"), loop(1, 3, name="subtract"),
        loop(4, name="exponential", expensive=True), outputs=(5,),
    )
    assert fused(g).reads == {5: {0: False}}  # the product as well


def test_kernels_are_issued_as_they_become_ready() -> None:
    assert breadth_first({3: {0: True}, 4: {0: True}, 5: {3: True}, 6: {4: True, 5: True}}) == [3, 4, 5, 6]


def test_buffers_in_use_together_do_not_overlap() -> None:
    draw = random.Random(0)
    for _ in range(50):
        buffers = []
        for _ in range(20):
            start = draw.randrange(30)
            buffers.append(Buffer(draw.randrange(1, 100), start, start + draw.randrange(6)))
        size = place(buffers)
        live = max(sum(b.size for b in buffers if b.start <= t <= b.end) for t in range(40))
        assert live <= size <= sum(b.size for b in buffers)
        for i, a in enumerate(buffers):
            for b in buffers[:i]:
                assert not a.meets(b) or a.offset + a.size <= b.offset or b.offset + b.size <= a.offset


def test_a_buffer_goes_where_an_output_will_be() -> None:
    assert place([Buffer(10, 0, 1)], [Buffer(10, 2, 5)]) == 0
    assert place([Buffer(10, 0, 2)], [Buffer(10, 2, 5)]) == 10


def test_an_output_written_over_the_input_it_replaces_is_no_temporary() -> None:
    inplace = Graph([INPUT, loop(0)], (0,), (1,))
    assert temporaries(inplace, [0]) == 0
    apart = Graph([INPUT, Node(Kind.LOOP, (0,), SIZE, "reverse")], (0,), (1,))
    assert temporaries(apart, [0]) == SIZE
