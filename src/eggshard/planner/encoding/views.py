"""Classes that are views of one another: the same elements in other dimension order, or with other unit dimensions.

A transpose, a reshape that only adds or drops unit dimensions, and a broadcast that only adds unit dimensions move no
data between devices: a placement of the operand is a placement of the result with its dimensions renamed. All classes
connected by such nodes share one set of *core* dimensions (those larger than one), and extraction treats them as one
class: it neither chooses among the views nor pays for them. (Local views cost nothing in pricing either.)
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property

from eggshard.egraph.graph import EGraph, ENode
from eggshard.program.placement import Dim, Placement
from eggshard.program.types import TensorType

#: Per core dimension of a class (in the class's order), the core dimension of its group that it is.
Order = tuple[int, ...]


@dataclass(frozen=True)
class Views:
    """group[c]: the representative of class c. order[c]: class c's core dimensions in terms of the group's."""

    graph: EGraph
    group: list[int]
    order: list[Order]

    @cached_property
    def _is_core(self) -> list[bool]:
        """Per class whether its placements are its group's as they are."""
        return [
            not eclass.is_tuple and order == tuple(range(eclass.type.rank))
            for eclass, order in zip(self.graph.classes, self.order, strict=True)
        ]

    def core_type(self, cls: int) -> TensorType:
        """The type of a class's group: core dimensions only, in the group's order."""
        root = self.graph.classes[self.group[cls]].types[0]
        return TensorType(tuple(n for n in root.shape if n != 1), root.dtype)

    def to_core(self, cls: int, placement: Placement) -> Placement:
        """A class's placement as one of its group."""
        if self._is_core[cls]:
            return placement
        shape = self.graph.classes[cls].types[0].shape
        dims = [d for n, d in zip(shape, placement.dims, strict=True) if n != 1]
        core: list[Dim] = [Dim((), 1)] * len(dims)
        for i, dim in zip(self.order[cls], dims, strict=True):
            core[i] = dim
        return Placement(tuple(core), placement.partial, placement.monoid)

    def from_core(self, cls: int, placement: Placement) -> Placement:
        """A group's placement as one of the class."""
        if self._is_core[cls]:
            return placement
        dims = iter(self.order[cls])
        shape = self.graph.classes[cls].types[0].shape
        placed = tuple(placement.dims[next(dims)] if n != 1 else Dim((), 1) for n in shape)
        return Placement(placed, placement.partial, placement.monoid)

    def represents(self, cls: int, placement: Placement) -> bool:
        """Whether a class's placement is one of its group: it holds dimensions that are not core whole."""
        shape = self.graph.classes[cls].types[0].shape
        return all(n != 1 or not d.axes for n, d in zip(shape, placement.dims, strict=True))

    def is_view(self, cls: int, node: ENode) -> bool:
        """Whether the node only renames dimensions of a class of the same group."""
        return view_order(self.graph, cls, node) is not None and self.group[cls] == self.group[node.children[0]]


def view_order(graph: EGraph, cls: int, node: ENode) -> Order | None:
    """Per core dimension of the class, the core dimension of the node's operand that it is; None if it is no view."""
    if node.op not in ("transpose", "reshape", "broadcast_in_dim"):
        return None
    source, result = graph.type_of(node.children[0]).shape, graph.classes[cls].types[0].shape
    if sorted(n for n in source if n != 1) != sorted(n for n in result if n != 1):
        return None
    if node.op == "reshape":
        core = tuple(n for n in source if n != 1)
        return tuple(range(len(core))) if core == tuple(n for n in result if n != 1) else None
    if node.op == "transpose":
        of_result = list(node.attributes["permutation"])
    else:
        of_result = [-1] * len(result)
        for j, i in enumerate(node.attributes["broadcast_dimensions"]):
            of_result[i] = j
    number = {d: i for i, d in enumerate(d for d, n in enumerate(source) if n != 1)}
    order = tuple(number.get(of_result[d], -1) for d, n in enumerate(result) if n != 1)
    return None if -1 in order else order


def find_views(graph: EGraph) -> Views:
    """Group the classes of a graph; a view that contradicts its group (a tensor equals its transpose) is ignored."""
    neighbours: list[list[tuple[int, Order]]] = [[] for _ in graph.classes]
    for c, eclass in enumerate(graph.classes):
        for node in eclass.nodes:
            order = None if eclass.is_tuple else view_order(graph, c, node)
            if order is not None:
                child = node.children[0]
                neighbours[child].append((c, order))
                neighbours[c].append((child, tuple(map(order.index, range(len(order))))))
    group = [-1] * len(graph.classes)
    orders: list[Order] = [()] * len(graph.classes)
    for start, eclass in enumerate(graph.classes):
        if group[start] >= 0:
            continue
        group[start] = start
        if eclass.is_tuple:
            continue
        orders[start] = tuple(range(sum(n != 1 for n in eclass.types[0].shape)))
        queue = deque([start])
        while queue:
            here = queue.popleft()
            for other, order in neighbours[here]:
                if group[other] < 0:
                    group[other] = start
                    orders[other] = tuple(orders[here][j] for j in order)
                    queue.append(other)
    return Views(graph, group, orders)
