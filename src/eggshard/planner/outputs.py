"""Candidate placements of a program's outputs."""

from __future__ import annotations

import itertools

from eggshard.planner.op_plans import OpPlans
from eggshard.program.axes import axis_ref
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, is_even, place
from eggshard.program.types import TensorType


def output_options(plans: OpPlans) -> list[list[Placement]]:
    """Where each output may lie: where it was stated, else anywhere that a JAX array can; the propagated place first.

    A constraint on the very value that is returned states the output's sharding: there it is observable. So does a
    sharding group: its members lie where propagation puts them all.
    """
    context, propagated = plans.context, plans.hints.used
    program, options = context.program, []
    constrained = {
        op.results[0]: op.attributes["sharding"] for op in program.region.ops if op.name == "sharding_constraint"
    }
    grouped = {op.operands[0] for op in program.region.ops if op.name == "sharding_group"}
    for v, stated, type_ in zip(
        program.region.outputs, program.output_shardings, program.output_types, strict=True
    ):
        stated = constrained.get(v) if stated is None else stated
        first = context.boundary(propagated[v] if stated is None else stated, type_)
        free = [] if stated is not None or v in grouped else _boundary_placements(context.mesh, type_)
        options.append(list(dict.fromkeys([first, *free])))
    return options


def _boundary_placements(mesh: Mesh, type_: TensorType) -> list[Placement]:
    """All even placements by whole axes in mesh order."""
    axes = [a for a, n in mesh.axes.items() if n > 1]
    if any(axis_ref(a).size for a in axes):
        return []
    found = []
    for where in itertools.product(range(-1, type_.rank), repeat=len(axes)):
        dims = tuple(tuple(a for a, d in zip(axes, where, strict=True) if d == i) for i in range(type_.rank))
        placement = place(mesh, type_.shape, dims)
        if is_even(type_.shape, placement, mesh):
            found.append(placement)
    return found
