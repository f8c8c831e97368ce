"""Loops whose iterations access neighbours: several iterations share one halo exchange where that is cheaper.

A row of k iterations begins with an exchange of halos that are k times as wide as one iteration reaches. Then k
iterations run on shards of one size without communication. Each leaves the outermost part of the halo behind: it holds
values of earlier iterations, which the tile never comes to depend on. So one body is planned per width, whatever the
number of iterations, and the compiled program is no longer for a longer row. A counted loop becomes a loop over rows;
the remainder is a shorter row, or a loop where the trip count is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from eggshard.ops import registry
from eggshard.ops.regions.counted_loops import condition_of_rows, find_counter
from eggshard.placement.halos import Demanded, Halos, Placements
from eggshard.program.attributes import Attributes
from eggshard.program.placement import replicated
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.steps.assemble import Assembler, Conversions
from eggshard.steps.control_steps import Loop
from eggshard.steps.held import Held, Origin
from eggshard.steps.steps import Local, StepPlan
from eggshard.steps.window_steps import Crop

#: How many iterations are tried in a row, as long as each row pays: what sharing an exchange saves shrinks from one
#: row to the next, and what is computed twice for it grows. Last, as many rows of more even lengths are tried.
ROWS = (2, 4, 8, 16, 32, 64)
#: Fraction of the price that a row of twice the length must save; still longer ones would save less again
#: (`python -m bench stencil`).
WORTH = 4e-3
#: What rows add was chosen for no class of a selection problem.
_CHOSEN = (Origin(-1, op="rows of iterations"),)


class Planning(NamedTuple):
    """What rows are planned with.

    plan: a region between placements of its inputs and outputs. price: a program's seconds. saving: a row pays that
    saves more than this part of the price.
    """

    demanded: Demanded
    plan: Callable[[Region, Placements, Placements], StepPlan]
    conversions: Conversions
    price: Callable[[StepPlan], float]
    saving: float


def with_rows(
    loop: Loop, condition: Region, body: Region, tiles: Placements, planning: Planning
) -> Loop | StepPlan:
    """The loop itself, or the cheapest of its forms by rows of iterations; of loops that communicate, look at
    neighbours and count."""
    plan, price = planning.plan, planning.price
    counter = find_counter(condition, body)
    if not (loop.body.messages and looks_at_neighbours(body)) or loop.has_effects:
        return loop
    if counter is None or counter.direction == "NE":
        return loop
    halos = Halos(body, tiles, planning.demanded)
    types = [loop.body.types[v] for v in loop.body.inputs]
    best: Loop | StepPlan = loop
    cost, chosen = price(_program(loop.body, types, [loop])), 1

    def by_rows(times: int) -> StepPlan | None:
        wide = halos.held(times)
        if wide is None:
            return None
        iteration = plan(body, wide, halos.left(times))
        if iteration.messages:
            return None

        def row(trips: int) -> StepPlan:
            return _row(body, iteration, halos, times, trips, planning.conversions)

        parts: list[Loop | StepPlan] = []
        if loop.trip_count is None:
            ahead = plan(condition_of_rows(condition, counter, times), tiles, (replicated(()),))
            parts.append(Loop(ahead, row(times), None))
            parts.append(Loop(loop.condition, loop.body, times // 2))
        else:
            rows, left = divmod(loop.trip_count, times)
            parts.append(_repeated(row(times), rows) if rows > 1 else row(times))
            if left:
                parts.append(loop.body if left == 1 else row(left))
        return _program(loop.body, types, parts)

    def better(times: int) -> StepPlan | None:
        fits = counter.fits(body.types[body.inputs[counter.position]].dtype, times)
        form = by_rows(times) if fits and (loop.trip_count is None or loop.trip_count >= times) else None
        return form if form is not None and price(form) < cost * (1 - planning.saving) else None

    for times in ROWS:
        form = better(times)
        if form is None:
            break
        best, cost, chosen = form, price(form), times
    if loop.trip_count is not None and chosen > 1:
        even = -(-loop.trip_count // -(-loop.trip_count // chosen))
        best = (better(even) if even < chosen else None) or best  # as many rows, the last one about as long as others
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


def _row(
    body: Region, iteration: StepPlan, halos: Halos, times: int, trips: int, conversions: Conversions
) -> StepPlan:
    """Exchange halos for ``times`` iterations, run ``trips`` of them on what is held then, and return to the tiles."""
    types = [body.types[v] for v in body.inputs]
    wide, left = halos.held(times), halos.left(times)
    assert wide is not None
    row = Assembler(iteration.mesh, conversions, _CHOSEN)
    given = [row.input(p.local_type(t)) for p, t in zip(halos.tiles, types, strict=True)]
    row.held |= {v: Held(-1, -1, t, p) for v, t, p in zip(given, types, halos.tiles, strict=True)}
    carried = [
        row.convert(v, t, p, [q])[q] for v, t, p, q in zip(given, types, halos.tiles, wide, strict=True)
    ]
    local = [p.local_type(t) for p, t in zip(wide, types, strict=True)]
    results = row.emit(_counted(iteration, local, wide, left, trips), (row.scalar(0, "i32"), *carried),
                       (f"{trips} iterations after one exchange",))[1:]
    returned = [
        given[i] if i in halos.fixed else row.convert(v, t, q, [p])[p]
        for i, (v, t, p, q) in enumerate(zip(results, types, halos.tiles, wide, strict=True))
    ]
    row.held |= {v: Held(-1, -1, t, p) for v, t, p in zip(returned, types, halos.tiles, strict=True)}
    return row.build(returned)


def _counted(
    iteration: StepPlan, types: Sequence[TensorType], wide: Placements, left: Placements, trips: int
) -> Loop:
    """So many iterations on shards of one size, counted by a carried value of their own in front."""
    number = TensorType((), "i32")
    goes_on, next_ = (Assembler(iteration.mesh, None, _CHOSEN) for _ in range(2))
    count = goes_on.input(number)
    for t in types:
        goes_on.input(t)
    compare = Local("compare", Attributes(comparison_direction="LT", compare_type="SIGNED"), (TensorType((), "i1"),))
    (holds,) = goes_on.emit(compare, (count, goes_on.scalar(trips, "i32")))
    count = next_.input(number)
    operands = tuple(next_.input(t) for t in types)
    results = list(next_.emit(iteration, operands))
    next_.hold_as(iteration, dict(zip(iteration.inputs, operands, strict=True)), iteration.inputs)
    next_.hold_as(iteration, dict(zip(iteration.outputs, results, strict=True)), iteration.outputs)
    for i, (p, q) in enumerate(zip(wide, left, strict=True)):
        for dim, (a, b) in enumerate(zip(p.dims, q.dims, strict=True)):
            if a != b:
                offsets = (b.low - a.low,) * iteration.mesh.count(a.axes)
                (results[i],) = next_.emit(Crop(dim, a.axes, a.size, offsets), (results[i],), ("stale rim",))
    (more,) = next_.emit(Local("add", Attributes(), (number,)), (count, next_.scalar(1, "i32")))
    return Loop(goes_on.build([holds]), next_.build([more, *results]), trips)


def _repeated(row: StepPlan, rows: int) -> StepPlan:
    """So many rows: a loop with a counter of its own. How often one runs that rows count for, compilers do not see."""
    assembler = Assembler(row.mesh, None, _CHOSEN)
    types = [row.types[v] for v in row.inputs]
    carried = [assembler.input(t) for t in types]
    loop = _counted(row, types, (), (), rows)
    return assembler.build(assembler.emit(loop, (assembler.scalar(0, "i32"), *carried))[1:])


def _program(like: StepPlan, types: Sequence[TensorType], parts: Sequence[Loop | StepPlan]) -> StepPlan:
    """Loops and rows of iterations one after the other on the carried values."""
    assembler = Assembler(like.mesh)
    carried = tuple(assembler.input(t) for t in types)
    for part in parts:
        carried = assembler.emit(part, carried, ("iterations in rows",))
    return assembler.build(carried)
