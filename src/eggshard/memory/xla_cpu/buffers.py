"""Buffers: when each value that is written to memory lives, and what it shares with others.

As XLA does it on CPUs. Kernels are issued breadth first, so that what is ready early is early in memory too; copies in
another layout come after what else is ready then, as they were made last. A kernel that works element by element on
one shape writes over an operand that nothing needs any more. What a loop or branch does comes before it, kernel by
kernel, so that what is inside and what is around share one memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

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


def lifetimes(graph: Graph, carried: Sequence[int] | None = None) -> Lives:
    """When a block needs which memory besides its inputs and outputs.

    carried: for a loop's body the positions of the inputs that its outputs replace; then an output that cannot be
    written over the input of its position is a temporary.
    """
    reads = fused(graph).reads
    order = breadth_first(reads, {n for n in reads if graph.nodes[n].name == "transpose"})
    at: dict[int, int] = {}
    begin: dict[int, int] = {}
    inner: list[Buffer] = []
    time = 0
    for n in order:
        begin[n] = time
        if (inside := graph.inside.get(n)) is not None:
            inner += (b.later(time) for b in inside.buffers)
            time += inside.length
        at[n] = time
        time += 1
    last = dict(at)
    for n, operands in reads.items():
        for o in operands:
            last[o] = max(last.get(o, -1), at[n])
    outputs = {graph.base(o) for o in graph.outputs}
    over = _over_inputs(graph, reads, at, last, carried or ())
    buffers: dict[int, Buffer] = {}
    kept: list[Buffer] = []
    for n in order:
        if n in over:
            continue
        node = graph.nodes[n]
        start = begin[node.operands[1] if node.name == "carried" else n]  # a loop has it from its first iteration
        buffer = Buffer(node.bytes, start, time if n in outputs else last[n])
        shared = next((
            old for o in reads[n]
            if (old := buffers.get(o)) is not None and old not in kept and old.end == at[n] == last[o]
            and old.size == buffer.size and _writes_over(graph, reads, n, o)
            and (n in outputs or node.kind is graph.nodes[o].kind or graph.nodes[o].kind is not Kind.UPDATE)
        ), None)  # what was replaced in place, as what loops carry is, only outputs and replacements write over
        if n in outputs and carried is None:
            kept.append(buffer)
            if shared is not None:  # in the output's memory from the beginning
                buffer.start = shared.start
                buffers = {o: buffer if b is shared else b for o, b in buffers.items()}
        elif shared is not None:
            shared.changes += (shared.end,)
            shared.end, buffer = buffer.end, shared
        buffers[n] = buffer
    pieces = {id(b): graph.nodes[n].pieces for n, b in buffers.items()}
    others = {id(b): b for b in buffers.values() if b.size and b not in kept}
    parts = [
        Buffer(b.size // pieces[key], b.start, b.end, b.changes)
        for key, b in others.items() for _ in range(pieces[key])
    ]
    return Lives([*inner, *parts], kept, time)


def _over_inputs(
    graph: Graph, reads: Reads, at: dict[int, int], last: dict[int, int], carried: Sequence[int]
) -> set[int]:
    """The outputs of a loop's body that are written over the inputs that they replace."""
    found = set()
    for k in carried:
        n, out = graph.inputs[k], graph.base(graph.outputs[k])
        if out in at:
            dead = last.get(n, -1)
            if at[out] > dead or (at[out] == dead and n in reads[out] and _writes_over(graph, reads, out, n)):
                found.add(out)
    return found


def _writes_over(graph: Graph, reads: Reads, n: int, operand: int) -> bool:
    """Whether a kernel can write its result where an operand of the same size is."""
    node = graph.nodes[n]
    if node.kind is Kind.UPDATE:
        return graph.base(node.operands[0]) == operand
    return node.kind is Kind.LOOP and reads[n][operand]
