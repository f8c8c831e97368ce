"""Which ops go first: the schedule by kinds of op, and the order that priorities of dimensions ask for."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.program.axes import AxisRef
from eggshard.program.mesh import Mesh
from eggshard.program.op_sharding_rule import PASS_THROUGH, OpShardingRule
from eggshard.program.sharding import DimSharding
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.edges import EDGE, FUNCTION_EDGE
from eggshard.shardy.propagation.factors import BACKWARD, BOTH, FORWARD, NOWHERE
from eggshard.shardy.propagation.graph import NO_SLOT, Graph
from eggshard.shardy.traits import is_elementwise

#: The phases by kinds of op: first what keeps the shape, where its operands have no other uses, then wherever; then
#: factors that no op reduces, gathers or shifts along; then all of them, but not from an operand to its broadcast; then
#: everything. A direction once allowed stays so.
PHASES = 5
ANYTHING = PHASES - 1
_SAME_SHAPE = frozenset(("stablehlo.reshape", "stablehlo.transpose", EDGE, FUNCTION_EDGE))
_OFFLOADS = frozenset(("MoveToDevice", "MoveToHost"))
_DYNAMIC_SLICES = frozenset(("stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"))


def schedule(op: Any, rule: OpShardingRule) -> tuple[tuple[int, ...], ...]:
    """Per phase the directions per factor in which shardings flow through an op; blocked factors never do.

    In the first phase they hold only if no operand, but for scalars, has other uses.
    """
    early = BOTH if _keeps_shape(op) else FORWARD if op.name in _DYNAMIC_SLICES else NOWHERE
    late = BACKWARD if op.name == "stablehlo.broadcast_in_dim" else BOTH

    def directions(phase: int) -> tuple[int, ...]:
        out = []
        for factor in rule.factors:
            found = early
            if phase >= 3 or (phase == 2 and factor.kind == PASS_THROUGH):
                found |= late
            out.append(NOWHERE if factor.blocked else BOTH if phase == ANYTHING else found)
        return tuple(out)

    return tuple(map(directions, range(PHASES)))


def _keeps_shape(op: Any) -> bool:
    if op.name == "stablehlo.custom_call":
        return ir.StringAttr(op.attributes["call_target_name"]).value in _OFFLOADS
    return op.name in _SAME_SHAPE or is_elementwise(op)


class UserPriorities:
    """The dimensions with a priority above 0: taken away at first, and given back when their turn comes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.waiting: dict[int, list[tuple[int, TensorSharding]]] = {}
        for slot in graph.slots:
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
