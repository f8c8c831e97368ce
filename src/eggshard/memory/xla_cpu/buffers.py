"""Buffers of XLA on CPUs: when each value written to memory is live, and with which others it shares a buffer.

Kernels are issued breadth first, so that what is ready early is early in memory, too; layout-changing copies come after
other ready kernels, since they were added last. An elementwise kernel overwrites a dead operand of the same shape. The
kernels of a loop's or branch's body come before it, one by one, so that inside and outside share one memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from eggshard.memory.xla_cpu.fusion import fused
from eggshard.memory.xla_cpu.graph import Graph, Kind
from eggshard.memory.xla_cpu.packing import Buffer, Lives, place

Reads = dict[int, dict[int, bool]]


def breadth_first(reads: Reads, late: Collection[int] = ()) -> list[int]:
    """The kernels in the order in which they become ready, first come first served.

    Of those that one kernel makes ready, the ``late`` ones come last.
    """
    users: dict[int, list[int]] = {}
    for n, operands in reads.items():
        for o in operands:
            users.setdefault(o, []).append(n)
    missing = {n: len(operands) for n, operands in reads.items()}
    ready = deque([*sorted(o for o in users if o not in reads), *(n for n, count in missing.items() if not count)])
    order = []
    while ready:
        n = ready.popleft()
        if n in reads:
            order.append(n)
        for user in sorted(users.get(n, ()), key=late.__contains__):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return order


def temporaries(graph: Graph) -> int:
    """Bytes of memory that a program takes besides its inputs and outputs."""
    lives = lifetimes(graph)
    return place(lives.buffers, lives.kept)


class Times(NamedTuple):
    """When kernels run. begin: per kernel when what is inside it begins; at: when it itself runs; end: of the block."""

    order: list[int]
    begin: dict[int, int]
    at: dict[int, int]
    end: int


def scheduled(graph: Graph, reads: Reads) -> tuple[Times, list[Buffer]]:
    """When kernels run, breadth first, and the buffers of what loops and branches do, which comes before them."""
    order = breadth_first(reads, {n for n in reads if graph.nodes[n].name == "transpose"})
    begin: dict[int, int] = {}
    at: dict[int, int] = {}
    inner: list[Buffer] = []
    time = 0
    for n in order:
        begin[n] = time
        if (inside := graph.inside.get(n)) is not None:
            inner += (b.later(time) for b in inside.buffers)
            time += inside.length
        at[n] = time
        time += 1
    return Times(order, begin, at, time), inner


def lifetimes(graph: Graph, carried: Sequence[int] | None = None) -> Lives:
    """When a block needs which memory besides its inputs and outputs.

    carried: for a loop's body the positions of the inputs that its outputs replace; then an output that cannot be
    written over the input of its position is a temporary.
    """
    reads = fused(graph).reads
    times, inner = scheduled(graph, reads)
    last = _last_reads(reads, times.at)
    outputs = {graph.base(o) for o in graph.outputs}
    over = _over_inputs(graph, reads, times.at, last, carried or ())
    buffers: dict[int, Buffer] = {}
    kept: list[Buffer] = []

    def shared(n: int, size: int) -> Buffer | None:
        """The buffer of an operand that a kernel writes its result over."""
        for o in reads[n]:
            old, kind = buffers.get(o), graph.nodes[o].kind
            if old is None or old in kept or not old.end == times.at[n] == last[o] or old.size != size:
                continue
            # What was replaced in place, as what loops carry is, only outputs and replacements write over.
            fits = n in outputs or graph.nodes[n].kind is kind or kind is not Kind.UPDATE
            if fits and _writes_over(graph, reads, n, o):
                return old
        return None

    for n in times.order:
        if n in over:
            continue
        node = graph.nodes[n]
        # A loop has what it carries from its first iteration.
        start = times.begin[node.operands[1] if node.name == "carried" else n]
        buffer = Buffer(node.bytes, start, times.end if n in outputs else last[n])
        old = shared(n, buffer.size)
        if n in outputs and carried is None:
            kept.append(buffer)
            if old is not None:  # in the output's memory from the beginning
                buffer.start = old.start
                buffers = {o: buffer if b is old else b for o, b in buffers.items()}
        elif old is not None:
            old.changes += (old.end,)
            old.end, buffer = buffer.end, old
        buffers[n] = buffer
    return Lives([*inner, *_in_pieces(graph, buffers, kept)], kept, times.end)


def _last_reads(reads: Reads, at: dict[int, int]) -> dict[int, int]:
    """When each kernel's result is read last; when it is made, if no one does."""
    last = dict(at)
    for n, operands in reads.items():
        for o in operands:
            last[o] = max(last.get(o, -1), at[n])
    return last


def _in_pieces(graph: Graph, buffers: dict[int, Buffer], kept: list[Buffer]) -> list[Buffer]:
    """The buffers but those that are kept, each once, in as many pieces as its last writer makes."""
    pieces = {id(b): graph.nodes[n].pieces for n, b in buffers.items()}
    others = {id(b): b for b in buffers.values() if b.size and b not in kept}
    return [
        Buffer(b.size // pieces[key], b.start, b.end, b.changes)
        for key, b in others.items() for _ in range(pieces[key])
    ]


def _over_inputs(
    graph: Graph, reads: Reads, at: dict[int, int], last: dict[int, int], carried: Sequence[int]
) -> set[int]:
    """The outputs of a loop's body that are written over the inputs that they replace, and what becomes them there."""
    found = set()
    for k in carried:
        n, out = graph.inputs[k], graph.base(graph.outputs[k])
        if out in at:
            dead = last.get(n, -1)
            if at[out] > dead or (at[out] == dead and n in reads[out] and _writes_over(graph, reads, out, n)):
                found.add(out)
            found.update(_updates(graph, at, last, n, out))
    return found


def _updates(graph: Graph, at: Mapping[int, int], last: Mapping[int, int], n: int, out: int) -> list[int]:
    """The updates that lead in place from an input to an output, if there are no others between."""
    found = [out]
    while graph.nodes[found[-1]].kind is Kind.UPDATE:
        operand = graph.base(graph.nodes[found[-1]].operands[0])
        if last.get(operand, -1) > at[found[-1]]:
            break
        if operand == n:
            return found
        if operand not in at:
            break
        found.append(operand)
    return []


def _writes_over(graph: Graph, reads: Reads, n: int, operand: int) -> bool:
    """Whether a kernel can write its result where an operand of the same size is."""
    node = graph.nodes[n]
    if node.kind is Kind.UPDATE:
        return graph.base(node.operands[0]) == operand
    return node.kind is Kind.LOOP and reads[n][operand]
