"""Plans to begin with: what propagation makes of one sharding that is stated, as users state them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eggshard.planner.choosing.ends import Ends
from eggshard.planner.choosing.open_problem import OpenProblem
from eggshard.planner.context import Context
from eggshard.planner.encoding.encode import where_stated
from eggshard.planner.propagation.propagated import Propagated, propagated
from eggshard.program.program import Program, Region
from eggshard.program.sharding import Sharding
from eggshard.selection.portfolio.state import flow_count
from eggshard.selection.search.start import plan_by_way_of

#: How many flows of a problem all plans to begin with may have together, and the most and the fewest plans.
FLOWS, MOST, FEWEST = 2_000_000, 48, 6


def seeds_of(opened: OpenProblem, context: Context, ends: Ends) -> list[dict[int, int]]:
    """Plans to begin with."""
    count = min(MOST, max(FEWEST, FLOWS // max(1, flow_count(opened.problem))))
    seeds = []
    for number, program in enumerate(_stated(context.program, ends)):
        if number == count or context.deadline.passed:
            break
        seed = seed_of(opened, context, program.region, propagated(program))
        if seed is not None:
            seeds.append(seed)
    return seeds


def seed_of(opened: OpenProblem, context: Context, region: Region, found: Propagated) -> dict[int, int] | None:
    """The plan of a region's problem that goes by way of what propagation found; None where there is none."""
    places: dict[int, list[int]] = {}
    _place(places, opened, context, region, found, 0)
    plan = plan_by_way_of(opened.problem, places)
    return None if plan is None else {c: chosen[0] for c, chosen in plan.chosen.items()}


def _stated(program: Program, ends: Ends) -> Iterator[Program]:
    """Programs of which one input's sharding is stated: those of more bytes, and over more axes, before others."""
    first = {group: i for i, group in reversed(list(enumerate(ends.groups)))}
    types = program.input_types
    found = [(-len(p.used_axes), sum(1 for d in p.dims if d.axes), -types[i].bytes, i, p)
             for i in first.values() if len(ends.inputs[i]) > 1 for p in ends.inputs[i] if p.used_axes]
    for *_, i, placement in sorted(found, key=lambda item: item[:4]):
        sharding = Sharding.from_placement(placement, program.mesh)
        inputs = [sharding if group == ends.groups[i] else None if s is None or s.is_open else s
                  for group, s in zip(ends.groups, program.input_shardings, strict=True)]
        outputs = [inputs[ends.carried[o]] if o in ends.carried else s for o, s in enumerate(program.output_shardings)]
        yield replace(program, input_shardings=tuple(inputs), output_shardings=tuple(
            None if s is None or s.is_open else s for s in outputs))


def _place(
    places: dict[int, list[int]], part: OpenProblem, context: Context, region: Region, found: Propagated, first: int
) -> None:
    """Note where propagation has the classes of a region, and of those inside it, in the problem.

    first: the number of the region's first class there.
    """
    at = [None if s is None else context.resolve(s, t) for s, t in zip(found.values, region.types, strict=True)]
    known = [(part.graph.values[v], p) for v, p in enumerate(at) if p is not None and part.graph.values[v] >= 0]
    places.update((first + group, numbers) for group, numbers in where_stated(part.encoding, known).items())
    stores = list(zip(region.inputs, part.stores, strict=True))
    for i, inside in found.regions.items():
        op = region.ops[i]
        for body in part.bodies:
            if (body.node.op, body.node.attributes, body.node.regions) == (op.name, op.attributes, op.regions):
                stores += zip(op.operands[-len(body.entering):], body.entering, strict=True)
                stores += zip(op.results, body.leaving, strict=True)
                for (number, inner), of_region, values in zip(body.parts, op.regions, inside, strict=True):
                    _place(places, inner, context, of_region, values, first + number)
    for v, store in stores:
        placement = at[v]
        if placement is not None and placement in part.encoding.index[store]:
            places[first + store] = [part.encoding.index[store][placement]]
