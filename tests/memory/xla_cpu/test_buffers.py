"""Fusion, schedule and lifetimes of buffers on small graphs written by hand."""

from __future__ import annotations

from eggshard.memory.xla_cpu.buffers import breadth_first, lifetimes, temporaries
from eggshard.memory.xla_cpu.fusion import fused
from eggshard.memory.xla_cpu.graph import Graph, Kind, Node
from eggshard.memory.xla_cpu.packing import Buffer, Lives

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


def test_padding_is_computed_by_one_kernel_once_or_written() -> None:
    pad = Node(Kind.LOOP, (0,), SIZE, "pad")
    assert sorted(fused(graph(INPUT, pad, loop(1), outputs=(2,))).reads) == [2]
    assert sorted(fused(graph(INPUT, pad, loop(1), loop(1), outputs=(2, 3))).reads) == [1, 2, 3]
    apart = (Node(Kind.LOOP, (1,), SIZE, "dynamic_slice"), Node(Kind.LOOP, (1,), SIZE, "reverse"))
    assert sorted(fused(graph(INPUT, pad, *apart, loop(2, 3), outputs=(4,))).reads) == [1, 4]


def test_a_loop_of_two_operands_that_its_user_needs_through_memory_too_is_kept() -> None:
    g = graph(INPUT, INPUT, loop(0, 1), call(2), loop(2, 3), outputs=(4,))
    assert sorted(fused(g).reads) == [2, 3, 4]
    assert fused(g).reads[4] == {2: True, 3: True}


def test_a_kernel_writes_over_an_operand_that_dies() -> None:
    g = graph(INPUT, call(0), loop(1), call(2), call(3), outputs=(4,))
    # The loop's result is where the first call's was; the output's memory holds it until the output is made.
    assert temporaries(g) == SIZE


def test_what_is_written_over_has_the_same_shape() -> None:
    reshaped = Node(Kind.VIEW, (2,))
    g = graph(INPUT, call(0), call(1), reshaped, loop(3), call(4), outputs=(5,))
    assert fused(g).reads[4] == {2: False}
    assert len(lifetimes(g).buffers) == 3  # the loop's result is not where the second call's was


def test_what_is_replaced_in_place_is_written_over_by_outputs_only() -> None:
    update = Node(Kind.UPDATE, (1, 0), SIZE, "dynamic_update_slice")
    g = graph(INPUT, call(0), update, loop(2), call(3), outputs=(4,))
    assert len(lifetimes(g).buffers) == 2  # the replaced array's, and the loop's
    assert not lifetimes(graph(INPUT, call(0), update, loop(2), outputs=(3,))).buffers


def test_what_is_dear_is_not_computed_for_each_element_of_a_broadcast() -> None:
    small = Node(Kind.LOOP, (1,), 10, "rsqrt", elementwise=True, expensive=True)
    spread = Node(Kind.LOOP, (2,), SIZE, "broadcast_in_dim", spread=True)
    g = graph(INPUT, Node(Kind.CALL, (0,), 10), small, spread, loop(0, 3), outputs=(4,))
    assert sorted(fused(g).reads) == [1, 2, 4]


def test_kernels_are_issued_as_they_become_ready() -> None:
    assert breadth_first({3: {0: True}, 4: {0: True}, 5: {3: True}, 6: {4: True, 5: True}}) == [3, 4, 5, 6]
    assert breadth_first({3: {0: True}, 4: {0: True}}, {3}) == [4, 3]


def test_what_a_loop_does_inside_shares_memory_with_what_is_around_it() -> None:
    g = graph(INPUT, call(0), call(1), call(2), outputs=(3,))
    g.inside[2] = Lives([Buffer(SIZE, 0, 0), Buffer(2 * SIZE, 2, 2)], [], 3)
    lives = lifetimes(g)
    assert lives.length == 6
    assert [(b.size, b.start, b.end) for b in lives.buffers] == [
        (SIZE, 1, 1), (2 * SIZE, 3, 3),  # inside
        (SIZE, 0, 4), (SIZE, 1, 5),  # the operand lives through the loop, whose result is there while it runs
    ]  # fmt: skip


def test_an_output_written_over_the_input_it_replaces_is_no_temporary() -> None:
    inplace = Graph([INPUT, loop(0)], (0,), (1,))
    assert not lifetimes(inplace, [0]).buffers
    apart = Graph([INPUT, Node(Kind.LOOP, (0,), SIZE, "reverse")], (0,), (1,))
    assert [b.size for b in lifetimes(apart, [0]).buffers] == [SIZE]
