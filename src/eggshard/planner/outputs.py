"""Candidate placements of a program's outputs."""

from __future__ import annotations

from eggshard.planner.op_plans import OpPlans
from eggshard.program.axes import axis_ref
from eggshard.program.placement import Placement
from eggshard.spmd.boundaries import even_placements


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
    refined = any(axis_ref(a).size for a in context.mesh.axes)
    for v, stated, type_ in zip(
        program.region.outputs, program.output_shardings, program.output_types, strict=True
    ):
        stated = constrained.get(v) if stated is None else stated
        first = context.boundary(propagated[v] if stated is None else stated, type_)
        fixed = refined or stated is not None or v in grouped
        options.append(list(dict.fromkeys([first, *(() if fixed else even_placements(context.mesh, type_))])))
    return options
