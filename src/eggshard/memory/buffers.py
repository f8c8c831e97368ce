"""Buffers of materialised values: lifetimes in the compiler's schedule, sharing, and a place in memory for each."""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from eggshard.memory.kernels import CALL, JOIN, LOOP, SUM, UPDATE, VIEW, Nodes


KEY = lambda b: (-b.size, b.start)


@dataclass
class Buffer:
    size: int
    start: int
    end: int
    offset: int = 0
    uses: int = 1


#: Loops that a reduction's kernel can hold.
_ARITHMETIC = frozenset({
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "exponential", "negate", "abs", "square", "sqrt",
    "rsqrt", "broadcast_in_dim", "constant", "convert", "tanh", "log",
})
KEEP = {"pad"}


def _unary(nodes: Nodes, n: int) -> bool:
    """Whether computing a value twice reads no more than one operand of its size twice."""
    N, node = nodes.nodes, nodes.nodes[n]
    sizes = [N[b].bytes for b in {nodes.base(o) for o in node.operands}
             if N[b].name not in ("broadcast_in_dim", "constant")]
    large = sum(size * 8 > node.bytes for size in sizes)
    return large <= 1 or sum(sizes) <= node.bytes


def single(nodes: Nodes, users: list[list[int]]) -> set[int]:
    """Loops that are not computed twice: with several large operands, and a user that they also reach through memory."""
    N = nodes.nodes
    found: set[int] = set()
    for n, node in enumerate(N):
        if node.kind != LOOP or len(users[n]) < 2 or _unary(nodes, n):
            continue
        last = max(users[n])
        fused, through = {n}, set()
        for w in range(n + 1, last + 1):
            if N[w].kind == VIEW:
                continue
            for o in N[w].operands:
                o = nodes.base(o)
                if o in through or (o in fused and not (_fuses(nodes, o, w) and (o == n or o not in found))):
                    through.add(w)
                elif o in fused:
                    fused.add(w)
        if any(u in through for u in users[n]):
            found.add(n)
    return found


def _fuses(nodes: Nodes, n: int, w: int) -> bool:
    N = nodes.nodes
    if N[n].kind not in (LOOP, JOIN):
        return False
    return N[w].kind in (LOOP, JOIN) or (N[w].kind == SUM and N[w].name != "f32")


def materialised(nodes: Nodes) -> set[int]:
    """The nodes that are written to memory."""
    N = nodes.nodes
    users: list[list[int]] = [[] for _ in N]
    live = {nodes.base(o) for o in nodes.outputs}
    for n in range(len(N) - 1, -1, -1):
        if n in live:
            live.update(nodes.base(o) for o in N[n].operands)
    for n, node in enumerate(N):
        if node.kind != VIEW and n in live:
            for o in dict.fromkeys(nodes.base(o) for o in node.operands):
                users[o].append(n)
    kept = {nodes.base(o) for o in nodes.outputs}
    alone = single(nodes, users)
    #: Per node the kernels that compute it, and how often each does; kernels that hold a reduction.
    homes: list[dict[int, int]] = [{} for _ in N]
    sums: set[int] = set()

    def keep(n: int) -> None:
        kept.add(n)
        homes[n] = {n: 1}
        if N[n].kind == SUM:
            sums.add(n)

    for n in range(len(N) - 1, -1, -1):
        node = N[n]
        if node.kind in (VIEW, "input"):
            continue
        if n in kept:
            keep(n)
            continue
        if not users[n]:
            continue
        at: dict[int, int] = {}
        for u in users[n]:
            uses = sum(nodes.base(o) == n for o in N[u].operands) if N[u].kind == JOIN else 1
            for k, times in homes[u].items():
                at[k] = at.get(k, 0) + times * uses
        count = sum(times * N[k].pieces for k, times in at.items())
        inline = False
        if node.kind in (LOOP, JOIN):
            inline = node.bytes == 0 or all(_takes_in(nodes, u, n, kept, homes, sums) for u in users[n])
            if inline and count > 1 and node.bytes and not (len(at) == 1 and set(at) <= sums):
                if node.kind == JOIN or at.keys() & sums:
                    inline = False
                elif node.name in KEEP:
                    inline = max(at.values()) < 2
                else:
                    inline = not node.expensive and n not in alone
        elif len(at) == 1 and node.kind == SUM and node.name == "f32" and node.operands:
            (k,) = at
            x = nodes.base(node.operands[0])
            inline = N[k].kind in (LOOP, SUM) and N[k].elementwise and all(
                N[u].kind in (LOOP, SUM) and N[u].name in _ARITHMETIC for u in users[n]) and any(
                u != n and set(homes[u]) == set(at) for u in users[x]) and count == 1
            if inline:
                sums.add(k)
        elif len(at) == 1 and set(at) <= sums and node.name == "dot_general":
            inline = all(N[u].kind in (LOOP, SUM) for u in users[n])
        if inline:
            homes[n] = at
        else:
            keep(n)
    return kept


def _takes_in(nodes, user, n, kept, homes, sums) -> bool:
    node = nodes.nodes[user]
    if node.kind in (LOOP, SUM):
        if node.kind == SUM and node.name == "f32" or homes[user].keys() & sums:
            return nodes.nodes[n].name in _ARITHMETIC
        return True
    if node.kind == JOIN:
        return True
    if node.kind == UPDATE and node.name == "dynamic_update_slice":
        return nodes.base(node.operands[0]) != n
    return False


def kernels(nodes: Nodes, kept: set[int]) -> dict[int, dict[int, bool]]:
    """Per materialised node what it reads: nodes in memory, and whether element by element only."""
    N = nodes.nodes
    found: dict[int, dict[int, bool]] = {}
    for n in sorted(kept):
        if N[n].kind == "input":
            continue
        reads: dict[int, bool] = {}
        seen: set[tuple[int, bool]] = set()
        first = N[n].kind == LOOP and N[n].elementwise
        stack = [(o, first) for o in reversed(N[n].operands)]
        while stack:
            o, same = stack.pop()
            o = nodes.base(o)
            if (o, same) in seen:
                continue
            seen.add((o, same))
            if o in kept or N[o].kind == "input":
                reads[o] = reads.get(o, True) and same
            else:
                stack.extend((p, same and N[o].elementwise) for p in reversed(N[o].operands))
        found[n] = reads
    return found


def breadth_first(reads: dict[int, dict[int, bool]]) -> list[int]:
    """The order in which the compiler's scheduler issues kernels: as they become ready, first come first served."""
    users: dict[int, list[int]] = {}
    waiting = {}
    for n, operands in reads.items():
        waiting[n] = 0
        for o in operands:
            users.setdefault(o, []).append(n)
            waiting[n] += 1
    sources = [o for o in users if o not in reads]
    ready = deque(sorted(sources) + [n for n, k in waiting.items() if not k])
    order = []
    while ready:
        n = ready.popleft()
        if n in reads:
            order.append(n)
        for u in users.get(n, ()):
            waiting[u] -= 1
            if not waiting[u]:
                ready.append(u)
    return order


def temporaries(nodes: Nodes, carried: Sequence[int] | None = None) -> int:
    """carried: None: the program itself; else numbers of inputs that are overwritten by the outputs with the same."""
    N = nodes.nodes
    kept = materialised(nodes)
    reads = kernels(nodes, kept)
    order = breadth_first(reads)
    at = {n: t for t, n in enumerate(order)}
    last = dict(at)
    for n, operands in reads.items():
        for o in operands:
            last[o] = max(last.get(o, -1), at[n])
    end = len(order)
    outputs = {nodes.base(o) for o in nodes.outputs}
    buffers: dict[int, Buffer] = {}
    live_out = []
    if carried is not None:
        for k in carried:
            n = nodes.inputs[k]
            buffers[n] = Buffer(N[n].bytes, -1, last.get(n, -1))
    for n in order:
        t, size = at[n], N[n].bytes
        if n in outputs and carried is None:
            b = Buffer(size, t, end)
            live_out.append(b)
        else:
            b = Buffer(size, t, end if n in outputs else last[n], uses=sum(n in r for r in reads.values()))
        shared = None
        for o, same in reads[n].items():
            old = buffers.get(o)
            if old is not None and old.end == t and last[o] == t and old.size == size and _may_share(N[n], o, same, nodes):
                shared = old
                break
        if shared is not None and b not in live_out:
            shared.end = b.end
            b = shared
        elif shared is not None:  # the output's own memory, earlier
            b.start = shared.start
            for o, x in list(buffers.items()):
                if x is shared:
                    buffers[o] = b
        buffers[n] = b
    unique = {id(b): b for b in buffers.values()}
    pieces = {id(b): N[n].pieces for n, b in buffers.items()}
    heap = []
    for b in unique.values():
        if b.size and all(b is not x for x in live_out):
            k = pieces[id(b)]
            heap += [Buffer(b.size // k, b.start, b.end, uses=b.uses) for _ in range(k)]
    total = place(heap, live_out)
    if carried is not None:
        total -= sum(N[nodes.inputs[k]].bytes for k in carried)
    return max(total, 0)


def _may_share(node, operand, same, nodes) -> bool:
    if node.kind == LOOP:
        return same
    return node.kind == UPDATE and nodes.base(node.operands[0]) == operand


def place(buffers: list[Buffer], live_out: list[Buffer]) -> int:
    """Best fit, the largest first; in the memory of an output while that is not yet needed."""
    rooms = [(b, [b]) for b in sorted(live_out, key=lambda b: -b.size)]
    placed: list[Buffer] = []
    top = 0
    for b in sorted(buffers, key=KEY):
        for room, tenants in rooms:
            if b.size <= room.size and all(b.end < t.start or t.end < b.start for t in tenants):
                tenants.append(b)
                break
        else:
            busy = sorted(((p.offset, p.offset + p.size) for p in placed if not (b.end < p.start or p.end < b.start)))
            where, best, at = 0, None, 0
            for lo, hi in busy:
                if lo - at >= b.size and (best is None or lo - at < best):
                    where, best = at, lo - at
                at = max(at, hi)
            b.offset = where if best is not None else at
            placed.append(b)
            top = max(top, b.offset + b.size)
    return top
