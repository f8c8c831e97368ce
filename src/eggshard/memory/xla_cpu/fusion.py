"""Model of XLA's fusion on CPUs, which decides the values of a device program that are written to memory.

The rules are those of XLA's pipeline for CPUs, found in its optimised modules:

- A loop is computed by each of its users, if that repeats nothing dear: not if it is expensive and has several users,
  and not if it reads several large operands and some user cannot take it in, or needs it through memory as well.
- A concatenation with several users is written, and so is padding that would be evaluated twice, by whatever kernels.
- A loop that is expensive is written before its elements are used many times over.
- A reduction takes in what feeds it and nothing else needs. What a library's kernels do is theirs (`library.py`).
- Products, collectives and library calls read and write buffers.
"""

from __future__ import annotations

from dataclasses import dataclass

from eggshard.memory.xla_cpu.graph import Graph, Kind, Node
from eggshard.memory.xla_cpu.libraries import library_kernels

_FUSIBLE = (Kind.LOOP, Kind.JOIN)
#: The most places in one kernel at which XLA evaluates a fused loop anew.
_REPEATED = 15
#: An operand counts as large if it has more than one part in this many of a node's size.
_SMALL = 8


@dataclass
class Fused:
    """Kernels: per node that is written, what is read for it, and whether element by element and in one shape only."""

    reads: dict[int, dict[int, bool]]


def fused(graph: Graph) -> Fused:
    """The kernels of a block, operands first."""
    return Fused(_Fusion(graph).kernels())


class _Fusion:
    def __init__(self, graph: Graph):
        self.graph, self.nodes = graph, graph.nodes
        self.users = graph.users()
        self.outputs = {graph.base(o) for o in graph.outputs}
        self.by_library = library_kernels(graph, self.users)
        self.single = self._single()
        #: Nodes that are written; those of them that users compute again all the same; reductions not of the library.
        self.written: set[int] = set()
        self.again: set[int] = set()
        self.sums: set[int] = set()
        #: Per node the kernels that compute it, and how often each does.
        self.homes: list[dict[int, int]] = [{} for _ in self.nodes]
        #: Per node the kernels that read each of its elements at many places.
        self.many: list[set[int]] = [set() for _ in self.nodes]
        #: Per node and kernel the nodes that say where it is needed.
        self.places: list[dict[int, set[int]]] = [{} for _ in self.nodes]
        for n in range(len(self.nodes) - 1, -1, -1):
            if self.nodes[n].kind not in (Kind.VIEW, Kind.INPUT) and (self.users[n] or n in self.outputs):
                self._decide(n)

    def kernels(self) -> dict[int, dict[int, bool]]:
        return {n: self._read_for(n) for n in sorted(self.written)}

    # -- what is written -----------------------------------------------------------------------------------------------

    def _decide(self, n: int) -> None:
        node = self.nodes[n]
        if n in self.by_library:
            kernel = self.by_library[n]
            self.homes[n], self.places[n] = {kernel: 1}, {kernel: {kernel}}
            if kernel == n:
                self.written.add(n)
            return
        homes = self._evaluated(n)
        places = self.places[n]
        if n not in self.outputs and self._taken_in(n, homes):
            self.homes[n] = homes
            return
        self.written.add(n)
        self.homes[n], self.places[n], self.many[n] = {n: 1}, {n: {n}}, set()
        if node.kind is Kind.SUM:
            self.sums.add(n)
        cheap = node.kind is Kind.LOOP and not node.expensive and node.name not in ("pad", "blocks")
        if cheap and node.bytes and n not in self.single:
            self.again.add(n)
            for k in {k for u in self.users[n] if self._may_fuse(n, u) for k in self.homes[u] if k not in self.sums}:
                if homes[k] <= _REPEATED:
                    self.homes[n][k], self.places[n][k] = homes[k], places[k]

    def _evaluated(self, n: int) -> dict[int, int]:
        """Per kernel that would compute a node, at how many places: elementwise users need it where they are needed."""
        places: dict[int, set[int]] = {}
        for u in self.users[n]:
            for kernel in self.homes[u]:
                through = self.places[u][kernel] if self.nodes[u].elementwise else {u}
                places[kernel] = places.get(kernel, set()) | through
        self.places[n] = places
        self.many[n] = {k for u in self.users[n] for k in self.homes[u]
                        if k in self.many[u] or self.nodes[u].name == "broadcast_in_dim"}
        times = {u: sum(self.graph.base(o) == n for o in self.nodes[u].operands)
                 for u in self.users[n] if self.nodes[u].kind is Kind.JOIN}
        return {k: sum(self.homes[w][k] * times.get(w, 1) for w in found) for k, found in places.items()}

    def _taken_in(self, n: int, homes: dict[int, int]) -> bool:
        """Whether all users of a node compute it themselves."""
        node = self.nodes[n]
        if node.kind not in _FUSIBLE:
            return False
        if not node.bytes:
            return True
        if not all(self._takes(u, n) for u in self.users[n]) or (node.expensive and self.many[n] - self.sums):
            return False
        in_a_sum = len(homes) == 1 and homes.keys() <= self.sums
        if in_a_sum or sum(count * self.nodes[k].pieces for k, count in homes.items()) < 2:
            return True
        if node.kind is Kind.JOIN or node.name == "pad" or homes.keys() & self.sums:
            return False
        if max(homes.values()) > _REPEATED:
            return False
        return not node.expensive and n not in self.single

    def _takes(self, user: int, n: int) -> bool:
        """Whether a user computes a loop itself if nothing speaks against it."""
        node = self.nodes[user]
        if user in self.by_library:
            return False
        if node.kind is Kind.UPDATE:
            return self._updates(user, n)
        return node.kind in (Kind.LOOP, Kind.JOIN, Kind.SUM)

    # -- what is not computed twice ------------------------------------------------------------------------------------

    def _single(self) -> set[int]:
        """Loops that are not computed twice, because of what they read and of who needs them."""
        found: set[int] = set()
        for n, node in enumerate(self.nodes):
            if node.kind is not Kind.LOOP or n in self.by_library or self._reads_one(node):
                continue
            if len(self.users[n]) + (n in self.outputs) < 2:
                continue
            fusible = n not in self.outputs and all(self._may_fuse(n, u) for u in self.users[n])
            if not fusible or self._through_memory(n, found):
                found.add(n)
        return found

    def _reads_one(self, node: Node) -> bool:
        """Whether repeating a node reads no more than one operand of its size again."""
        operands = [self.nodes[b] for b in {self.graph.base(o) for o in node.operands}]
        sizes = [o.bytes for o in operands if not o.spread]
        return sum(size * _SMALL > node.bytes for size in sizes) <= 1 or sum(sizes) <= node.bytes

    def _may_fuse(self, n: int, user: int) -> bool:
        if n in self.by_library or user in self.by_library:
            return False
        return self.nodes[n].kind in _FUSIBLE and (
            self.nodes[user].kind in (*_FUSIBLE, Kind.SUM) or self._updates(user, n))

    def _updates(self, user: int, n: int) -> bool:
        """Whether a node is what a user puts into an array."""
        node = self.nodes[user]
        return node.name == "dynamic_update_slice" and self.graph.base(node.operands[0]) != n

    def _through_memory(self, n: int, single: set[int]) -> bool:
        """Whether a node reaches some user of it another way, on which something is written to memory."""
        together, apart = {n}, set()
        for w in range(n + 1, max(self.users[n]) + 1):
            if self.nodes[w].kind is Kind.VIEW:
                continue
            for o in self.graph.reads(w):
                if o in apart or (o in together and not (self._may_fuse(o, w) and (o == n or o not in single))):
                    apart.add(w)
                elif o in together:
                    together.add(w)
        return any(u in apart for u in self.users[n])

    # -- what is read --------------------------------------------------------------------------------------------------

    def _read_for(self, kernel: int) -> dict[int, bool]:
        node = self.nodes[kernel]
        reads: dict[int, bool] = {}
        first = node.kind is Kind.LOOP and node.elementwise and kernel not in self.by_library
        stack = [(self.graph.base(o), first and not self.graph.reshaped(o), kernel) for o in reversed(node.operands)]
        seen: set[tuple[int, bool]] = set()
        while stack:
            n, same, user = stack.pop()
            if (n, same) in seen:
                continue
            seen.add((n, same))
            repeated = n in self.again and kernel in self.homes[n] and self._may_fuse(n, user)
            if self.nodes[n].kind is Kind.INPUT or (n in self.written and not repeated):
                reads[n] = reads.get(n, True) and same
            else:
                inner = same and self.nodes[n].elementwise
                stack.extend(
                    (self.graph.base(o), inner and not self.graph.reshaped(o), n)
                    for o in reversed(self.nodes[n].operands)
                )
        return reads
