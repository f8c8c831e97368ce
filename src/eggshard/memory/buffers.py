"""Buffers: when each value that is written to memory lives, what it shares, and where in memory it is put.

As XLA does it on CPUs. Kernels are issued breadth first, so that what is ready early is early in memory too. A kernel
that works element by element writes over an operand that nothing needs any more. What is left is put into one block
of memory, the largest first, each where it fits most tightly; an output's memory serves before the output is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from eggshard.memory.fusion import fused
from eggshard.memory.graph import ALIGNED, Graph, Kind

Reads = dict[int, dict[int, bool]]


@dataclass(eq=False)
class Buffer:
    """Bytes that are in use from one kernel to another, both by number and included."""

    size: int
    start: int
    end: int
    offset: int = 0

    def meets(self, other: Buffer) -> bool:
        """Whether both are in use at the same time."""
        return self.start <= other.end and other.start <= self.end


def breadth_first(reads: Reads) -> list[int]:
    """The kernels in the order in which they become ready, first come first served."""
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
        for user in users.get(n, ()):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return order


def temporaries(graph: Graph, carried: Sequence[int] | None = None) -> int:
    """Bytes of memory that a block takes besides its inputs and outputs.

    carried: for a loop's body the positions of the inputs that its outputs replace; then an output that cannot be
    written over the input of its position is a temporary.
    """
    reads = fused(graph).reads
    order = breadth_first(reads)
    at = {n: time for time, n in enumerate(order)}
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
        start = at[node.operands[1]] if node.name == "carried" else at[n]  # a loop has it from its first iteration
        buffer = Buffer(node.bytes, start, len(order) if n in outputs else last[n])
        shared = next((
            old for o in reads[n]
            if (old := buffers.get(o)) is not None and old not in kept and old.end == at[n] == last[o]
            and old.size == buffer.size and _writes_over(graph, reads, n, o)
        ), None)
        if n in outputs and carried is None:
            kept.append(buffer)
            if shared is not None:  # in the output's memory from the beginning
                buffer.start = shared.start
                buffers = {o: buffer if b is shared else b for o, b in buffers.items()}
        elif shared is not None:
            shared.end, buffer = buffer.end, shared
        buffers[n] = buffer
    pieces = {id(b): graph.nodes[n].pieces for n, b in buffers.items()}
    others = {id(b): b for b in buffers.values() if b.size and b not in kept}
    parts = [
        Buffer(b.size // pieces[key], b.start, b.end) for key, b in others.items() for _ in range(pieces[key])
    ]
    return place(parts, kept)


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


def place(buffers: Sequence[Buffer], rooms: Sequence[Buffer] = ()) -> int:
    """The size of the memory that holds all buffers, but for those that fit into ``rooms`` while these are not in use.

    Of buffers of one size the shortest-lived comes first.
    """
    tenants = [(room, [room]) for room in sorted(rooms, key=lambda b: -b.size)]
    placed: list[Buffer] = []
    for b in sorted(buffers, key=lambda b: (-b.size, b.end - b.start, b.start)):
        home = next((others for room, others in tenants
                     if b.size <= room.size and not any(b.meets(o) for o in others)), None)
        if home is not None:
            home.append(b)
            continue
        at, best = 0, None
        for low, high in sorted((p.offset, p.offset + p.size) for p in placed if p.meets(b)):
            if low - at >= b.size and (best is None or low - at < best[0]):
                best = low - at, at
            at = max(at, -(-high // ALIGNED) * ALIGNED)
        b.offset = at if best is None else best[1]
        placed.append(b)
    return max((b.offset + b.size for b in placed), default=0)
