"""The choice of the open shardings of a program's inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from eggshard.costmodel import CostModel
from eggshard.errors import LimitError, MeshError, ShardingError
from eggshard.frontends.globalization import globalized
from eggshard.limits import EFFORTS, Deadline
from eggshard.memory.search import MemoryPriced
from eggshard.ops.widening import evaluation_bytes
from eggshard.plan.record import PlanRecord
from eggshard.planner.choosing.bounds import exchanges, in_rows, regions_of, without_shared
from eggshard.planner.choosing.ends import Ends, groups_of
from eggshard.planner.choosing.interfaces import METHODS
from eggshard.planner.choosing.known import Known
from eggshard.planner.choosing.latencies import Priced, alike
from eggshard.planner.choosing.limited import Least, LimitedSearch, PricedProblem
from eggshard.planner.choosing.narrowing import Narrowing
from eggshard.planner.choosing.open_problem import Opener, OpenProblem
from eggshard.planner.choosing.preference import most_preference, preference
from eggshard.planner.choosing.seeds import seeds_of
from eggshard.planner.context import Context
from eggshard.planner.encoding.encode import Computed
from eggshard.planner.hints import Hints
from eggshard.planner.layers.planning import MANY_OPS
from eggshard.planner.layers.shortening import Short, shorten
from eggshard.planner.op_plans import OpPlans
from eggshard.planner.optimization import planned, read
from eggshard.planner.pipeline import OTHERWISE, extracted, left_out, saturated
from eggshard.planner.progress import timed
from eggshard.planner.repricing.buckets import LITTLE
from eggshard.planner.request import Request, or_warned
from eggshard.planner.state import Task
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.program import Program
from eggshard.program.sharding import AUTO, Sharding
from eggshard.selection.problem import Extraction, Problem, Selection
from eggshard.selection.search.start import plans_at

#: How many times the work of a selection whose ends are stated that of open ones may take (`python -m bench auto`).
WORK = 4
#: The gap at which a choice is as good as another. Where that does not tell, how many others are planned, and how much
#: more these may cost where exchanges are shared.
CLOSE, FEW, MOST = 1e-2, 4, 1.5
#: How much more others may cost where only latencies are shared, and the part of a cost that latencies have to be for
#: that, unless the e-graph is small.
SOME = 0.05
#: The methods of the portfolio that bound plans.
BOUNDS = ("shards", "dual", "once")
#: The methods by which problems under a memory limit are solved, of which there are many.
QUICK = ("local",)
#: The methods of a search from plans that are known.
AGAIN = ("local", "recombine")
#: What is left out of code per device that is read as global ops, and where candidate placements are too many.
AS_WRITTEN, CAPPED = "per-device code as it is written", "all but {} placements of a value"
#: What a warning says of a failure, and what is done where a search for less memory fails.
FAILED = "the choice of shardings failed"
NO_LESS = "memory is not looked at"


@dataclass(frozen=True)
class Choice:
    """Where a program's inputs and outputs are to lie.

    cost: seconds of the plan by which they were chosen, infinite where the search failed. bound: seconds that no plan
    undercuts, of those that the rewrites derive, whose inputs and outputs lie where `Ends` lets them; 0 where none is
    known. left_out: what else it is not of, in words. clock: seconds by stage. known: what is known of the program with
    these stated.
    """

    inputs: tuple[Placement, ...]
    outputs: tuple[Placement, ...]
    cost: float = 0.0
    bound: float = 0.0
    left_out: tuple[str, ...] = ()
    clock: dict[str, float] = field(default_factory=dict, compare=False)
    known: Known = field(default=Known(), compare=False, repr=False)

    def held(self, program: Program) -> int:
        """Bytes that a device holds of inputs and outputs."""
        placed = (*self.inputs, *self.outputs), (*program.input_types, *program.output_types)
        return sum(p.local_type(t).bytes for p, t in zip(*placed, strict=True))

    def stated(self, program: Program) -> Program:
        """The program with these placements stated."""
        inputs, outputs = (tuple([Sharding.from_placement(p, program.mesh) for p in placements])
                           for placements in (self.inputs, self.outputs))
        return replace(program, input_shardings=inputs, output_shardings=outputs, text=None)


class Chooser:
    """Chooses where the open ends of a request's program lie (`Ends`).

    carried: per output that is fed back the input that it becomes in the next call. narrowing: leaves fewer placements
    to choose from.
    """

    def __init__(self, request: Request, carried: Mapping[int, int], narrowing: Narrowing | None = None):
        self.request = request
        self.program = program = request.loaded or request.read()
        # As for its plan, code per device is searched as the global ops that it is, which may lie anywhere.
        self.reading = or_warned(lambda: globalized(program), None, "per-device code is not read as global ops",
                                 "it is searched as it is written")
        self.task = read(replace(request, loaded=self.reading or program))
        self.context = self.task.plans.context
        ends = Ends.of(self.task.plans, carried)
        self.ends = ends if narrowing is None else narrowing.narrowed(ends, self.context.mesh)

    @cached_property
    def cheapest(self) -> Choice:
        """The choice of the cheapest plan found.

        Where the search fails, warns (FallbackWarning), and takes the first placement that an end may have, which is
        replication unless something else is asked for.
        """
        def search() -> Choice:
            opener, (task, ends) = self._opened.opener, self._form
            found = [self._whole(choice) for choice in _choices(
                task.plans.context, ends, self._opened, WORK * opener.nodes, self._shortened is not None)]
            if len(found) == 1:
                return found[0]
            plans = [(choice, self._planned(choice)) for choice in found]
            return with_plan(*min(plans, key=lambda made: made[1].cost.total))

        inputs, outputs = (tuple([options[0] for options in each]) for each in (self.ends.inputs, self.ends.outputs))
        return or_warned(search, Choice(inputs, outputs, math.inf), FAILED,
                         "what is open is replicated where that may be")

    def at(self, price: float) -> Choice:
        """The choice at a price in seconds per byte that ends hold, or that products and collectives write."""
        cheapest = self.cheapest
        if not price:
            return cheapest
        return or_warned(lambda: self._choice(self._priced.cheapest(price)), cheapest, FAILED, NO_LESS)

    def within(self, memory_limit: float | None) -> Choice:
        """The cheapest choice found at which a plan stays within so many bytes per device; LimitError without one.

        memory_limit: where it is None, the model's ``capacity``, if it has one.
        """
        limit = memory_limit or getattr(self.request.cost_model, "capacity", None)
        if limit is None:
            return self.cheapest
        least = Least.of(self.program, self.ends)
        if least.bytes > limit:
            raise LimitError(least.impossible(limit))
        cheapest = self.cheapest
        if evaluation_bytes(self.program.region) <= limit:  # all values at once, and whole
            return cheapest

        def search() -> tuple[Choice | None, str]:
            whole = least.inputs + self._priced.least_held
            limited = LimitedSearch(int(limit), self._priced, self._choice, lambda choice: choice.held(
                self.program), self._planned, self._time.deadline)
            limited.search(cheapest)
            found = None if limited.best is None else replace(with_plan(*limited.best), cost=limited.cost)
            return found, least.not_found(limit, limited.peak, whole)

        otherwise: tuple[Choice | None, str] = cheapest, ""
        found, reason = or_warned(search, otherwise, FAILED, NO_LESS)
        if found is None:
            raise LimitError(reason)
        return found

    @cached_property
    def _shortened(self) -> tuple[Short, Ends] | None:
        """The short form of a program of many equal layers, and its ends; None where these may not lie alike."""
        program = self.context.program
        short = shorten(program) if len(program.region.ops) > MANY_OPS else None
        ends = None if short is None else self.ends.shortened(short)
        return None if short is None or ends is None else (short, ends)

    @cached_property
    def _form(self) -> tuple[Task, Ends]:
        """What is searched: the program's short form, or all of it."""
        if self._shortened is None:
            return self.task, self.ends
        short, ends = self._shortened
        inner = self.context.of(short.program)
        plans = OpPlans(inner, Hints(inner), self.task.plans.bodies)
        return replace(self.task, plans=plans, region=short.program.region), ends

    @cached_property
    def _opened(self) -> Priced:
        (task, ends), context = self._form, self.context
        opener = Opener(task, timed(task.clock, "saturate", lambda: saturated(context, task.region, task.rules)))
        return Priced.of(opener, ends, _hurried(context))

    @cached_property
    def _priced(self) -> PricedProblem:
        (task, ends), opened = self._form, self._opened.problem
        outputs = [task.region.types[v] for v in task.region.outputs]
        return PricedProblem(opened, ends, task.input_types, outputs, lambda problem: extracted(
            self._time, WORK * self._opened.opener.nodes, problem, True, QUICK).selection)

    @cached_property
    def _time(self) -> Context:
        """The context of the search for less memory, whose time begins with it."""
        known = self.context
        return Context(known.program, known.model, known.limits, known.exact)

    def _choice(self, selection: Selection) -> Choice:
        """The choice that a selection is; the bound of any is its own."""
        known = self.cheapest
        opened = self._opened.problem
        return self._whole(Choice(*opened.placed(selection), self._priced.cost(selection), known.bound, known.left_out,
                                  known.clock, _known(opened, selection)))

    def _whole(self, choice: Choice) -> Choice:
        """The choice for the program of one for what is searched: its short form, or the global reading of it."""
        if self._shortened is not None:
            choice = _lengthened(choice, self._shortened[0], self.ends)
        if self.reading is not None:
            choice = replace(choice, known=Known(), left_out=(*choice.left_out, AS_WRITTEN))
        return choice

    def stated(self, memory_limit: float | None = None, cost_model: CostModel | None = None) -> Program:
        """The program in which the choice within a limit is stated, or at the price of a model of bytes."""
        price = cost_model.price if isinstance(cost_model, MemoryPriced) else None
        return (self.within(memory_limit) if price is None else self.at(price)).stated(self.program)

    def _planned(self, choice: Choice, limit: int | None = None) -> PlanRecord:
        return planned_at(self.request, self.program, choice, limit)


def chooser_of(request: Request, shardings: Any, mesh: Any, carry: Mapping[int, int] | None) -> Chooser:
    """What chooses for a program whose open ends are stated by argument: shardings, mesh, carry as of
    `eggshard.optimize`.

    MeshError where the program states another mesh, or none and none is given; ShardingError for shardings that do not
    fit.
    """
    program = request.read()
    if mesh is not None:
        given = Mesh.of(mesh)
        if program.mesh.size > 1 and program.mesh.axes != given.axes:
            raise MeshError(f"the program states a mesh {program.mesh.axes}, and the one given is {given.axes}")
        program = replace(program, mesh=given) if program.mesh.size == 1 else program
    elif not program.mesh.axes:
        raise MeshError("the program states no mesh to choose shardings on; give mesh={'x': 4} with axes of your own, "
                        "or --mesh x=4 on the command line")
    program = with_open_inputs(program, shardings)
    return Chooser(replace(request, loaded=program), {o: i for i, o in (carry or {}).items()})


def with_open_inputs(program: Program, shardings: Any) -> Program:
    """The program whose inputs are open as these shardings say (`eggshard.optimize`)."""
    types = program.input_types
    each = [AUTO] * len(types) if shardings is AUTO else list(shardings)
    if len(each) != len(types):
        raise ShardingError(f"{len(each)} shardings for {len(types)} inputs; give one per input, or eggshard.AUTO")
    inputs = []
    for i, (spec, stated, type_) in enumerate(zip(each, program.input_shardings, types, strict=True)):
        sharding = stated
        if spec is not AUTO:
            sharding = stated if spec is None else Sharding.of(spec, type_.rank, program.mesh)
        elif stated is None:
            sharding = Sharding.fully_open(type_.rank)
        if sharding is not None:
            sharding.validate(program.mesh, type_, f"input {i}")
        inputs.append(sharding)
    return replace(program, input_shardings=tuple(inputs))


def planned_at(request: Request, program: Program, choice: Choice, limit: int | None = None) -> PlanRecord:
    """The plan that is made at a choice, within a limit of memory; LimitError where none is found."""
    limits = replace(request.limits, proof=0.0)
    asked = replace(request, limits=limits, loaded=choice.stated(program), known=choice.known)
    return planned(asked, limit, Deadline(limits.seconds))


def _choices(context: Context, ends: Ends, priced: Priced, nodes: int, short: bool) -> list[Choice]:
    """The choice at which a plan costs least, and others where the problem does not tell all that they cost: what looks
    at neighbours shares exchanges and wrap-arounds, iterations run in rows (`planner.rows`), and all-reduces share some
    latencies, and not all.

    short: for the short form of a program, whose plans are not compared, nor bounds of the whole one's. In a hurry,
    neither are there others, nor bounds.
    """
    opener, opened, clock = priced.opener, priced.problem, priced.opener.task.clock
    search = _quickly if short else _searched
    found = timed(clock, "select", lambda: search(context, nodes, opened, ends))
    alone = short or _hurried(context)
    bound = 0.0 if alone else _bound(context, priced, nodes, found)

    def choice(selection: Selection) -> Choice:
        return Choice(*opened.placed(selection), selection.cost - preference(opened, selection), bound,
                      _left_out(opener, opened), clock, _known(opened, selection))

    first = choice(found.selection)
    shared = opened.has_body(in_rows) or _exchanges(opened, found.selection)
    if alone or not (shared or priced.latencies(found.selection) > first.cost * (SOME if priced.large else LITTLE)):
        return [first]
    others = timed(clock, "select", lambda: _elsewhere(context, opened, ends))
    most = (MOST if shared else 1 + SOME) * found.selection.cost
    near = (choice(selection) for selection in others if selection.cost <= most)
    elsewhere = {(c.inputs, c.outputs): c for c in near if (c.inputs, c.outputs) != (first.inputs, first.outputs)}
    return [first, *list(elsewhere.values())[:FEW]]


def _bound(context: Context, priced: Priced, nodes: int, found: Extraction) -> float:
    """What no plan costs less than, of those that the rewrites derive, whatever its steps share."""
    none = priced.none
    relaxed = without_shared(none, priced.opener.plans)
    if relaxed is not None or none is not priced.problem:
        seeds = _seeds(found) if alike(none, priced.problem) else []
        problem = replace(none.problem if relaxed is None else relaxed, seeds=seeds)
        found = timed(priced.opener.task.clock, "select", lambda: extracted(context, nodes, problem, True, BOUNDS))
    return max(0.0, max(found.bound, found.once) - most_preference(none))


def _hurried(context: Context) -> bool:
    """Whether a search is to take no patience."""
    return not (context.limits.patience and EFFORTS[context.limits.effort].patience)


def _exchanges(opened: OpenProblem, selection: Selection) -> bool:
    """Whether a selection exchanges halos, or rotates."""
    return any(exchanges(opened, opened.problem.choices[c][n])
               for c, chosen in selection.chosen.items() for n in chosen)


def _elsewhere(context: Context, opened: OpenProblem, ends: Ends) -> list[Selection]:
    """The cheapest plans found at each placement of the largest input that is open."""
    types = context.program.input_types
    largest = max((i for i, options in enumerate(ends.inputs) if len(options) > 1), key=lambda i: types[i].bytes,
                  default=None)
    if largest is None:
        return []
    found = plans_at(opened.problem, opened.stores[largest], context.deadline.at)
    return sorted(found, key=lambda selection: selection.cost)


def _left_out(opener: Opener, opened: OpenProblem) -> tuple[str, ...]:
    """What the bound of a choice is not of, but for other placements of inputs and outputs."""
    context = opener.plans.context
    found = [what for what in left_out(opener.plans, opened.graph, bool(opened.encoding.windows)) if what != OTHERWISE]
    found.append("plans that compute something twice")
    if any(part.encoding.shared for part, *_ in regions_of(opened)):
        found.append("steps that conversions of one value share")
    if context.pricer.overlap:
        found.append("what is computed while messages are on their way")
    if opened.bodies:
        found.append("work that is taken out of loops in part")
    if opened.encoding.capped:
        found.append(CAPPED.format(context.limits.placements))
    return tuple(found)


def _searched(context: Context, nodes: int, opened: OpenProblem, ends: Ends) -> Extraction:
    """The cheapest plan found, by itself or, unless in a hurry, from what propagation makes of single shardings."""
    problem = opened.problem
    found = extracted(context, nodes, problem, True)
    if found.gap <= CLOSE or _hurried(context) or context.deadline.passed:
        return found

    def begun(found: Extraction, seeds: list[dict[int, int]]) -> Problem:
        return replace(problem, seeds=[*_seeds(found), *seeds])

    other = extracted(context, nodes, begun(found, seeds_of(opened, context, ends)), True, AGAIN)
    if other.selection.cost >= found.selection.cost * (1 - context.limits.gap):
        return found
    last = extracted(context, nodes, begun(other, []), True)
    return replace(last, bound=max(last.bound, found.bound), once=max(last.once, found.once))


def _quickly(context: Context, nodes: int, opened: OpenProblem, ends: Ends) -> Extraction:
    """The cheapest plan found where no bound is asked for."""
    seeds = [] if _hurried(context) else seeds_of(opened, context, ends)
    return extracted(context, nodes, replace(opened.problem, seeds=seeds), True, METHODS)


def _seeds(found: Extraction) -> list[dict[int, int]]:
    return [{c: some[0] for c, some in found.selection.chosen.items()}]


def _lengthened(choice: Choice, short: Short, ends: Ends) -> Choice:
    """The choice for a whole program, of whose equal parts the short form has two."""
    region = short.whole.region
    groups = groups_of(short)
    kept = [k for k, v in enumerate(region.inputs) if v in short.values]
    at = {groups[k]: p for k, p in zip(kept, choice.inputs, strict=True)}
    inputs = tuple(at[group] for group in groups)
    follow = short.follows()[-1]
    delivered = dict(zip((v for v in region.outputs if v in short.values), choice.outputs, strict=True))
    outputs = tuple(inputs[ends.carried[o]] if o in ends.carried else
                    delivered.get(v) or delivered[short.stand_in(v, follow)] for o, v in enumerate(region.outputs))
    return replace(choice, inputs=inputs, outputs=outputs, bound=0.0, known=Known())


def _known(opened: OpenProblem, selection: Selection) -> Known:
    tags = ((c, opened.problem.choices[c][chosen[0]].tag) for c, chosen in selection.chosen.items())
    return Known(computed={c: tag for c, tag in tags if isinstance(tag, Computed)})


def with_plan(choice: Choice, plan: PlanRecord) -> Choice:
    """The choice with the plan that was made at it."""
    return replace(choice, known=replace(choice.known, plan=plan))
