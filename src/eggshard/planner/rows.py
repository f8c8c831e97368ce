"""Loops whose iterations access neighbours: several iterations share one halo exchange where that is cheaper.

Several iterations unrolled in a row are one straight-line program, in which extraction weighs a wider window against
another exchange. A counted loop becomes a loop over rows of iterations; the remainder is one more row (or a loop, where
the trip count is unknown).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from eggshard.ops import registry
from eggshard.ops.regions.counted_loops import find_counter, in_a_row, unrolled
from eggshard.program.placement import Placement, replicated
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.steps.assemble import Assembler
from eggshard.steps.control_steps import UNKNOWN_TRIPS, Loop
from eggshard.steps.steps import StepPlan

#: How many iterations are tried in a row, as long as each row pays: what sharing an exchange saves shrinks from one
#: row to the next, and what is computed twice for it grows. Last, as many rows of more even lengths are tried.
ROWS = (2, 4, 8, 16)
#: Fraction of the price that a row of twice the length must save; still longer ones would save less again
#: (`python -m bench stencil`).
WORTH = 4e-3

#: Plans a region between placements of its inputs and outputs, for so many iterations of the loop that it is a body of.
PlanRegion = Callable[[Region, tuple[Placement, ...], tuple[Placement, ...], int], StepPlan]


def with_rows(
    loop: Loop, condition: Region, body: Region, types: Sequence[TensorType], plan: PlanRegion,
    placements: tuple[Placement, ...], price: Callable[[StepPlan], float], saving: float,
) -> Loop | StepPlan:
    """The loop itself, or the cheapest of its forms by rows of iterations.

    Of loops that communicate, look at neighbours and count. Local types are those of the carried shards. A row pays
    that saves more than the part ``saving`` of the price: it makes the program longer.
    """
    counter = find_counter(condition, body)
    if not (loop.body.messages and looks_at_neighbours(body)) or loop.has_effects:
        return loop
    if counter is None or counter.direction == "NE":
        return loop

    def by_rows(times: int) -> StepPlan:
        ahead, row = unrolled(condition, body, counter, loop.trip_count, times)
        conditions = plan(ahead, placements, (replicated(()),), 1)
        parts: list[Loop | StepPlan] = []
        if loop.trip_count is None:
            parts.append(Loop(conditions, plan(row, placements, placements, max(1, UNKNOWN_TRIPS // times)), None))
            parts.append(Loop(loop.condition, loop.body, times // 2))
        else:
            trips, left = divmod(loop.trip_count, times)
            parts.append(Loop(conditions, plan(row, placements, placements, trips), trips))
            if left:
                parts.append(plan(in_a_row(body, left), placements, placements, 1))
        return _program(loop.body, types, parts)

    best: Loop | StepPlan = loop
    cost, chosen = price(_program(loop.body, types, [loop])), 1
    for times in ROWS:
        too_many = loop.trip_count is not None and loop.trip_count < times
        if too_many or not counter.fits(types[counter.position].dtype, times):
            break
        form = by_rows(times)
        price_of_form = price(form)
        if price_of_form >= cost * (1 - saving):
            break
        best, cost, chosen = form, price_of_form, times
    if loop.trip_count is not None and chosen > 1:
        even = -(-loop.trip_count // -(-loop.trip_count // chosen))
        if even < chosen:  # as many rows, the last one about as long as the others
            form = by_rows(even)
            if price(form) < cost * (1 - saving):
                best = form
    return best


def reaching(region: Region) -> Iterator[tuple[int, tuple[bool, ...]]]:
    """The operands of which some op looks beyond an index of its own: the value, and per dimension whether it does."""
    for op in region.ops:
        if not registry.known(op.name):
            continue
        operands, results = (tuple(region.types[v] for v in values) for values in (op.operands, op.results))
        reaches = registry.get(op.name).reaches(op.attributes, operands, results) or ()
        for v, row in zip(op.operands, reaches, strict=False):
            if any(row):
                yield v, tuple([reach is not None for reach in row])


def looks_at_neighbours(body: Region) -> bool:
    """Whether some op of a body reaches beyond an index of its own."""
    return any(reaching(body))


def _program(like: StepPlan, types: Sequence[TensorType], parts: Sequence[Loop | StepPlan]) -> StepPlan:
    """Loops and rows of iterations one after the other on the carried values."""
    assembler = Assembler(like.mesh)
    carried = tuple(assembler.input(t) for t in types)
    for part in parts:
        carried = assembler.emit(part, carried, ("rows of iterations",))
    return assembler.build(carried)
