"""Logical dimensions: classes of dimensions of a graph's tensors that are the same dimension."""

from __future__ import annotations

from collections.abc import Iterable

from eggshard.egraph.graph import ENode
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.planner.encoding.views import Views
from eggshard.program.placement import Placement

#: Axes that shard one dimension, major to minor.
Axes = tuple[str, ...]


class LogicalDims:
    """Which dimensions of a graph's tensors are one: joined by factors, by reaches (summed ones too), and by equality.

    A dimension is worth sharding as some input or output shards it (or leaves it whole): ``allowed(c, d)``.
    """

    def __init__(self, views: Views, pinned: Iterable[tuple[int, Placement]],
                 nodes: Iterable[tuple[int, ENode, WindowTransfer]]):
        self.views = views
        self._parent: dict[tuple[int, int], tuple[int, int]] = {}
        for c, node, transfer in nodes:
            of_factor: dict[int, tuple[int, int]] = {}
            rows = [(c, transfer.rule.results[0]), *zip(node.children, transfer.rule.operands, strict=True)]
            for cls, row in rows:
                for d, factors in enumerate(row):
                    for f in factors:
                        here = self._find(cls, d)
                        if here is not None and transfer.rule.factors[f].size != 1:
                            self._parent[here] = self._root(of_factor.setdefault(f, here))
            for child, reaches in zip(node.children, transfer.summed_reaches, strict=True):
                for d, reach in enumerate(reaches):
                    ends = (self._find(child, d), self._find(node.children[-1], reach.dim)) if reach else (None, None)
                    if ends[0] is not None and ends[1] is not None:
                        self._parent[self._root(ends[0])] = self._root(ends[1])
        self._axes: dict[tuple[int, int], set[Axes]] = {}
        for cls, placement in pinned:
            for d, dim in enumerate(placement.dims):
                here = self._find(cls, d)
                if here is not None:
                    self._axes.setdefault(here, set()).add(dim.axes)

    def _find(self, cls: int, dim: int) -> tuple[int, int] | None:
        """The representative of a dimension; None for one of size 1."""
        shape = self.views.graph.classes[cls].types[0].shape
        if shape[dim] == 1:
            return None
        core = self.views.order[cls][sum(n != 1 for n in shape[:dim])]
        return self._root((self.views.group[cls], core))

    def _root(self, key: tuple[int, int]) -> tuple[int, int]:
        while (up := self._parent.get(key, key)) != key:
            self._parent[key] = self._parent.get(up, up)
            key = up
        return key

    def allows(self, cls: int, placement: Placement) -> bool:
        """Whether every dimension lies as on some input or output that it is joined to."""
        for d, dim in enumerate(placement.dims):
            here = self._find(cls, d)
            if dim.axes not in self._axes.get(here, {()}) if here is not None else dim.axes:
                return False
        return True
