"""Tilings on which ops leave values without communication, and the reductions that are computed over such tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from eggshard.egraph.graph import EGraph, ENode
from eggshard.placement.transfer import Strategy
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.planner.encoding.logical_dims import LogicalDims
from eggshard.planner.encoding.views import Views
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, is_standard


class Demand(Protocol):
    """What is known of a graph's classes where windows are looked for (`windows.WindowDemand`)."""

    graph: EGraph
    views: Views
    mesh: Mesh
    dims: LogicalDims
    nodes: dict[int, tuple[int, ENode, WindowTransfer]]

    def at_wanted(self, c: int) -> Iterable[Placement]: ...

    def strategies(self, c: int, placement: Placement) -> Iterable[Strategy]: ...


class Tilings:
    """Tiles that slices, pads and the like leave of tiled values. Keys are groups of views; core placements.

    standard[g], left[g]: the standard tiles that some input or output suggests, and others on which values are left.
    """

    def __init__(self, demand: Demand, inputs: Iterable[tuple[int, Placement]]):
        self.demand = demand
        self.standard: dict[int, dict[Placement, None]] = {}
        self.left: dict[int, dict[Placement, None]] = {}
        for c, p in inputs:
            self._add(self.standard, c, p)

    def _add(self, where: dict[int, dict[Placement, None]], c: int, placement: Placement) -> None:
        where.setdefault(self.demand.views.group[c], {})[self.demand.views.to_core(c, placement)] = None

    def follow(self, members: Iterable[int]) -> None:
        """Find where classes lie whose operands have been followed."""
        views, nodes = self.demand.views, self.demand.nodes
        for c in members:
            if c not in nodes:
                continue
            _, node, transfer = nodes[c]
            for i, child in enumerate(node.children):
                start = [*self.left.get(views.group[child], ())]
                if not start and transfer.windowed:
                    start += self.standard.get(views.group[child], ())
                for p in start:
                    at = transfer.left_on(i, views.from_core(child, p))
                    if at is not None and self._is_new(c, at):
                        self._add(self.left, c, at)
            for p in transfer.standard():
                if p.sharded_axes and not p.partial and self.demand.dims.allows(c, p):
                    self._add(self.standard, c, p)

    def _is_new(self, c: int, placement: Placement) -> bool:
        """Whether no op is known to leave the value on tiles of this size; two grids would need a bounding window."""
        views, shape = self.demand.views, self.demand.graph.classes[c].types[0].shape
        if is_standard(self.demand.mesh, shape, placement) or not views.represents(c, placement):
            return False
        sizes = [(d.axes, d.tile) for d in views.to_core(c, placement).dims]
        return all(sizes != [(d.axes, d.tile) for d in p.dims] for p in self.left.get(views.group[c], ()))

    def reductions(self, c: int) -> Iterator[Strategy]:
        """The strategies that reduce over tiles on which operands are left, to placements that are wanted."""
        views, nodes = self.demand.views, self.demand.nodes
        if c not in nodes or not nodes[c][2].reduces:
            return
        _, node, transfer = nodes[c]
        for placement in self.demand.at_wanted(c):
            for base in self.demand.strategies(c, placement):
                for i, child in enumerate(node.children):
                    for p in self.left.get(views.group[child], ()):
                        found = transfer.reduced_on(base, i, views.from_core(child, p))
                        if found is not None:
                            yield found
