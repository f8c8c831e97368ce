"""Shardings of values, including those of regions, and the meshes that they are on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from jaxlib.mlir import ir

from eggshard.program.axes import AxisRef, any_overlap
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import read_per_value
from eggshard.shardy.edges import DATA_FLOW, IF, edge_of, edge_owner, edge_owners, owner_of, source_operands
from eggshard.shardy.module import ShardyModule, manual_axes, rank

BARRIER = "sdy.propagation_barrier"


class OnMesh(NamedTuple):
    """A mesh and what shardings call it; a mesh without axes on one device is maximal."""

    name: str | Mesh
    mesh: Mesh
    maximal: bool = False

    @property
    def empty(self) -> bool:
        return not self.mesh.axes and not self.maximal


class Values:
    """The values of a module: their shardings as they are now, its meshes as they were at the start."""

    def __init__(self, module: ShardyModule) -> None:
        self.module, self._meshes = module, module.meshes

    # -- shardings ---------------------------------------------------------------------------------------------------

    def sharding(self, value: Any) -> TensorSharding | None:
        """The sharding of a value: its own, that of its data-flow edge, or that of what flows into it."""
        op = owner_of(value)
        if op.name in DATA_FLOW:
            value = edge_owner(value)
            edge = edge_of(value)
            value = value if edge is None else edge.results[0]
        elif op.name == "stablehlo.async_start" and isinstance(value, ir.BlockArgument):
            return self.sharding(op.operands[value.arg_number])
        return self.module.sharding(value)

    def beyond_barriers(self, values: Iterable[Any]) -> list[TensorSharding | None]:
        """Values' shardings; of one that is only kept from propagation, that of what it is."""
        out = []
        for value in values:
            while (op := owner_of(value)).name == BARRIER:
                value = op.operands[0]
            out.append(self.sharding(value))
        return out

    def set_sharding(self, value: Any, sharding: TensorSharding) -> None:
        """State a result's sharding."""
        self.module.set_sharding(value, sharding)

    # -- meshes ------------------------------------------------------------------------------------------------------

    def on_mesh(self, sharding: TensorSharding) -> OnMesh:
        """The mesh of a sharding. ProgramError if the module does not define it."""
        name = sharding.mesh
        if isinstance(name, Mesh):
            return OnMesh(name, name, sharding.sharding.device is not None)
        found = self._meshes.get(name)
        if isinstance(found, int):
            return OnMesh(name, Mesh({}), True)
        return OnMesh(name, self.module.mesh(sharding) if found is None else found)

    def common_mesh(self, shardings: Sequence[TensorSharding | None]) -> OnMesh | None:
        """The mesh of all that are sharded, in the order of devices that most of them have.

        None if none has a sharding, they are on different meshes, or on a single device.
        """
        common: OnMesh | None = None
        for sharding in shardings:
            if sharding is None:
                continue
            other = self.on_mesh(sharding)
            if common is None or common.empty:
                common = other
            elif not other.empty:
                if other.maximal != common.maximal or list(other.mesh.axes.items()) != list(common.mesh.axes.items()):
                    return None
                if other.mesh.device_ids is None:
                    common = other
        if common is None or common.maximal:
            return None
        counts: Counter[str | Mesh] = Counter()
        most = 0
        for sharding in shardings:
            if sharding is not None and not replicated(sharding):
                counts[sharding.mesh] += 1
                if counts[sharding.mesh] > most:
                    most, common = counts[sharding.mesh], self.on_mesh(sharding)
        return common


def replicated(sharding: TensorSharding | None) -> bool:
    """Whether no dimension is sharded."""
    return sharding is None or not any(sharding.axes)


def equivalent(first: TensorSharding | None, second: TensorSharding | None) -> bool:
    """Whether two shardings lay the same shards on the same devices; what is unreduced is left aside."""
    if replicated(first) or replicated(second):
        return replicated(first) and replicated(second)
    assert first is not None and second is not None
    return first.mesh == second.mesh and first.axes == second.axes


def fully_closed(mesh: str | Mesh, value: Any) -> TensorSharding:
    """The closed sharding of a replicated value."""
    return TensorSharding.closed(mesh, [()] * rank(value))


def allowing(sharding: TensorSharding, axes: Sequence[AxisRef] | None = None) -> TensorSharding:
    """Remove axes from a sharding's replicated list: the given ones, by default those that shard its dimensions."""
    used = [axis for dim in sharding.axes for axis in dim] if axes is None else axes
    banned = tuple(axis for axis in sharding.sharding.replicated if not any_overlap((axis,), used))
    return sharding.updated(replicated=banned)


class Edge(NamedTuple):
    """A data-flow edge: the sharding of its targets, as its sources have it, and the operands that are the sources."""

    sharding: TensorSharding | None
    sources: list[tuple[Any, int]]


def data_flow_edges(values: Values, op: Any) -> list[Edge] | None:
    """The edges into an op and its regions, results first; None if it is no such op."""
    if op.name not in (*DATA_FLOW, IF):
        return None
    arguments, results = edge_owners(op)
    stated = values.module.result_shardings(op) or [None] * len(results)
    inner = [s and _within(s, manual_axes(op)) for s in stated]
    given: Sequence[TensorSharding | None] = [None] * len(arguments)
    if "in_shardings" in op.attributes:
        given = read_per_value(str(op.attributes["in_shardings"]))
    pairs = zip((*results, *arguments), (*inner, *given), strict=True)
    return [Edge(sharding, source_operands(owner)) for owner, sharding in pairs]


def _within(sharding: TensorSharding, manual: tuple[str, ...]) -> TensorSharding:
    """A sharding without manual axes; dimensions that no other axis shards lose their priority."""
    inner = sharding.sharding.without(manual)
    dims = tuple(replace(d, priority=d.priority if d.axes or d.open else None) for d in inner.dims)
    return TensorSharding(sharding.mesh, replace(inner, dims=dims))
