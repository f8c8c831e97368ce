"""Library kernels of XLA on CPUs: a reduction, and the arithmetic around it that one kernel can hold.

XLA for CPUs extracts them before it fuses loops (the pass is called library rewriter, the library YNNPACK). Starting
from each reduction, the last first, a kernel grows by producers that nothing else needs, and by its result's user as
long as there is only one. A softmax is thus one kernel: its operands are read from memory and its result is written.
"""

from __future__ import annotations

from collections import deque

from eggshard.memory.xla_cpu.graph import Graph, Kind


def library_kernels(graph: Graph, users: list[list[int]]) -> dict[int, int]:
    """Per node that such a kernel computes the node whose value it writes."""
    found: dict[int, int] = {}
    needed = {graph.base(o) for o in graph.outputs}
    for n in range(len(graph.nodes) - 1, -1, -1):
        node = graph.nodes[n]
        if node.kind is Kind.SUM and node.vectorised and n not in found and (users[n] or n in needed):
            last, members = _grown(n, graph, users, needed, found)
            found.update((member, last) for member in members)
    return found


def _grown(
    n: int, graph: Graph, users: list[list[int]], needed: set[int], taken: dict[int, int]
) -> tuple[int, set[int]]:
    """The last node and all nodes of the kernel that grows around a reduction."""
    members, last = {n}, n

    def feeding(nodes: list[int]) -> list[int]:
        """What these nodes read and only members use."""
        return [
            o for m in nodes for o in graph.reads(m)
            if o not in members and o not in needed and members.issuperset(users[o])
        ]

    while True:
        seen: set[int] = set()
        queue = deque((o, False) for o in feeding(sorted(members)))
        if last not in needed and len(users[last]) == 1:
            queue.append((users[last][0], True))
        grew = False
        while queue:
            m, after = queue.popleft()
            if m in seen or m in members or m in taken or not graph.nodes[m].vectorised:
                continue
            seen.add(m)
            members.add(m)
            grew = True
            if not after:
                queue.extend((o, False) for o in feeding([m]))
                continue
            last = m
            if m not in needed and len(users[m]) == 1:
                queue.append((users[m][0], True))
        if not grew:
            return last, members
