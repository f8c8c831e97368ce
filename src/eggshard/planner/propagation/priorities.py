"""Propagation by the priorities of dimensions, in ascending order."""

from __future__ import annotations

from eggshard.planner.propagation.graph import NO_SLOT, Graph
from eggshard.program.axes import AxisRef
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import DimSharding
from eggshard.program.tensor_sharding import TensorSharding


class UserPriorities:
    """The dimensions with a priority above 0: taken away at first, and given back when their turn comes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.waiting: dict[int, list[tuple[int, TensorSharding]]] = {}
        for slot in graph.own_slots:
            sharding = graph.sharding(slot)
            if slot == NO_SLOT or sharding is None:
                continue
            for priority in {d.priority for d in sharding.dims if d.priority}:
                self.waiting.setdefault(priority, []).append((slot, sharding))
            first = at_first(sharding, graph.table.mesh(sharding))
            if first != sharding:
                graph.keep(slot, graph.table.number(first))

    def give_back(self, priority: int) -> None:
        """State the dimensions of a priority as they were at first."""
        for slot, stated in self.waiting[priority]:
            now = self.graph.sharding(slot)
            if now is not None:
                self.graph.keep(slot, self.graph.table.number(given_back(now, stated, priority)))


def at_first(sharding: TensorSharding, mesh: Mesh | None) -> TensorSharding:
    """A sharding in which dimensions of a later priority are unsharded and closed, and their axes kept from others."""
    kept = list(sharding.sharding.replicated)
    dims = []
    for dim in sharding.dims:
        if dim.priority:
            kept.extend(dim.axes)
            dims.append(DimSharding())
        else:
            dims.append(DimSharding(dim.axes, dim.open))
    order = {name: i for i, name in enumerate(mesh.axes if mesh else ())}
    replicated = tuple(sorted(kept, key=lambda axis: (order.get(axis.name, 0), axis.pre)))
    return sharding.updated(dims=tuple(dims), replicated=replicated)


def given_back(now: TensorSharding, stated: TensorSharding, priority: int) -> TensorSharding:
    """A sharding with the dimensions of a priority as they were stated, their axes no longer kept."""
    dims = list(now.dims)
    freed: set[AxisRef] = set()
    for i, dim in enumerate(stated.dims):
        if (dim.priority or 0) == priority:
            dims[i] = DimSharding(dim.axes, dim.open)
            freed.update(dim.axes)
    replicated = tuple(a for a in now.sharding.replicated if a not in freed)
    return now.updated(dims=tuple(dims), replicated=replicated)
