"""Tilings on which ops leave values without communication, and the reductions that are computed over such tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eggshard.egraph.graph import ENode
from eggshard.placement.transfer import Strategy
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.planner.encoding.logical_dims import LogicalDims
from eggshard.planner.encoding.views import Views
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, is_standard

#: Per class the node that computes it on windows: its number, and its transfer.
WindowNodes = Mapping[int, tuple[int, ENode, WindowTransfer]]


class Tilings:
    """Tiles that slices, pads and the like leave of tiled values. Keys are groups of views; core placements.

    standard[g], left[g]: the standard tiles that some input or output suggests, and others on which values are left.
    """

    def __init__(self, views: Views, mesh: Mesh, inputs: Iterable[tuple[int, Placement]]):
        self.views, self.mesh = views, mesh
        self.standard: dict[int, dict[Placement, None]] = {}
        self.left: dict[int, dict[Placement, None]] = {}
        for c, p in inputs:
            self._add(self.standard, c, p)

    def _add(self, where: dict[int, dict[Placement, None]], c: int, placement: Placement) -> None:
        where.setdefault(self.views.group[c], {})[self.views.to_core(c, placement)] = None

    def follow(self, members: Iterable[int], nodes: WindowNodes, dims: LogicalDims) -> None:
        """Find where classes lie whose operands have been followed."""
        for c in members:
            if c not in nodes:
                continue
            _, node, transfer = nodes[c]
            for i, child in enumerate(node.children):
                start = [*self.left.get(self.views.group[child], ())]
                if not start and transfer.windowed:
                    start += self.standard.get(self.views.group[child], ())
                for p in start:
                    at = transfer.left_on(i, self.views.from_core(child, p))
                    if at is not None and self._is_new(c, at):
                        self._add(self.left, c, at)
            for p in transfer.standard():
                if p.sharded_axes and not p.partial and dims.allows(c, p):
                    self._add(self.standard, c, p)

    def _is_new(self, c: int, placement: Placement) -> bool:
        """Whether no op is known to leave the value on tiles of this size; two grids would need a bounding window."""
        views, shape = self.views, self.views.graph.classes[c].types[0].shape
        if is_standard(self.mesh, shape, placement) or not views.represents(c, placement):
            return False
        sizes = [(d.axes, d.tile) for d in views.to_core(c, placement).dims]
        return all(sizes != [(d.axes, d.tile) for d in p.dims] for p in self.left.get(views.group[c], ()))

    def reduced(self, node: ENode, transfer: WindowTransfer, bases: Iterable[Strategy]) -> Iterator[Strategy]:
        """The strategies that reduce over tiles on which a node's operands are left, instead of over standard ones."""
        for base in bases:
            for i, child in enumerate(node.children):
                for p in self.left.get(self.views.group[child], ()):
                    found = transfer.reduced_on(base, i, self.views.from_core(child, p))
                    if found is not None:
                        yield found
