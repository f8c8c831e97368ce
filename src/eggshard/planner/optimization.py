"""From a request to its cheapest plan: by layers or as a whole, against the baseline, within a memory limit."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from eggshard.collector import collector_paused
from eggshard.costmodel import CostModel
from eggshard.errors import FallbackWarning, Interrupted, LimitError
from eggshard.frontends import frontend_of
from eggshard.frontends.globalization import globalized
from eggshard.limits import PROVED_SECONDS, Deadline
from eggshard.memory.prediction import fits, memory_of
from eggshard.plan.record import PlanRecord, Search
from eggshard.planner import pipeline
from eggshard.planner.baseline import baseline_program
from eggshard.planner.bodies import plans_of
from eggshard.planner.choosing.interfaces import with_interfaces
from eggshard.planner.context import Context
from eggshard.planner.layers.planning import plan_by_layers
from eggshard.planner.op_plans import BodyPlans
from eggshard.planner.outputs import output_options
from eggshard.planner.pipeline import encode, first_problem, saturate, solve
from eggshard.planner.progress import Clock, timed
from eggshard.planner.proofs import proved
from eggshard.planner.repricing.buckets import part_paid
from eggshard.planner.repricing.overlapped import ordered
from eggshard.planner.repricing.thrift import NOTHING_THRIFTY, thrifty
from eggshard.planner.request import USER_ERRORS, Request, requested
from eggshard.planner.state import Scheduled, Task
from eggshard.program.placement import Placement
from eggshard.program.program import Program

if TYPE_CHECKING:
    from eggshard.frontends.protocol import CallingConvention

#: Why a plan may be its baseline without any failure.
NOTHING_CHEAPER = "the search found nothing cheaper than the baseline"
#: What a plan of per-device code may take of memory: so many times as much as the code as it is written, or so many
#: bytes more.
MOST_MEMORY, LITTLE_MEMORY = 2.0, 2**24
#: What a plan notes whose program was read so.
AS_GLOBAL = "manual computations are planned as the global ops that they are"
#: Reasons that say of a search which did all that it was to do.
SOUND = ("", NOTHING_CHEAPER, NOTHING_THRIFTY)


#: What each stage makes of what the one before it made, in order.
STAGES: dict[str, Callable[[Any], Any]] = {
    "read": lambda request: read(request), "saturate": saturate,
    "encode": lambda state: encode(with_interfaces(state)), "select": pipeline.select,
    "decode": pipeline.decode, "schedule": pipeline.schedule,
}


def stage_of(request: Request, until: str) -> Task:
    """Run the stages of a request up to a given one and return its state; LimitError for an unknown stage."""
    if until not in STAGES:
        raise LimitError(f"until={until!r} is no stage of planning; those are {', '.join(STAGES)}")
    made: Any = request
    for name, stage in STAGES.items():
        made = stage(made)
        if name == until:
            break
    task: Task = made
    return task


def read(request: Request) -> Task:
    """The program of a request, as a task of planning."""
    request.bar.stage("read")
    clock = Clock(request.bar.stage)
    rules = request.rules
    program = request.loaded or timed(clock, "read", request.read)
    context = Context(program, request.cost_model, request.limits, request.exact)
    return Task(plans=plans_of(context, rules), rules=rules, region=program.region, inputs=context.inputs,
                outputs=None, clock=clock)


def propagated_outputs(program: Any) -> tuple[Program, list[Placement]]:
    """Return a source's program, and where Shardy's propagation puts each of its outputs that is not stated."""
    with collector_paused():
        task = read(requested(program))
        return task.plans.context.program, [options[0] for options in output_options(task.plans)]


def planned(request: Request, memory_limit: int | None, deadline: Deadline) -> PlanRecord:
    """The cheapest plan found for a request, with the proof that its limits leave time for.

    `Interrupted`, with the best plan so far or the baseline, where the user ends it.
    """
    began = time.perf_counter()
    plan = _known(request, memory_limit)
    if plan is None:
        plan = _plan(request, memory_limit, deadline)
        if memory_limit is None and not plan.search.fallback:
            plan = _thrifty(plan, request, deadline)
        plan = _cheaper_as_global(plan, request, memory_limit, deadline)
    share, took = request.limits.proof, time.perf_counter() - began
    within = share and min(share * max(PROVED_SECONDS, took), max(share * PROVED_SECONDS, deadline.left))
    try:
        return proved(plan, request.own_rules, within, memory_limit)
    except KeyboardInterrupt:
        raise Interrupted(plan) from None


def _known(request: Request, memory_limit: int | None) -> PlanRecord | None:
    """The plan that was made already."""
    if request.known is None or request.known.plan is None:
        return None
    plan = request.known.plan_of(request.loaded or request.read(), memory_limit)
    convention = frontend_of(request.program).calling_convention(request.program)
    return None if plan is None else replace(plan, calling_convention=convention)


def _thrifty(plan: PlanRecord, request: Request, deadline: Deadline) -> PlanRecord:
    """The plan, or one that computes less and costs little more (`thrift`); `Interrupted` with the plan."""
    try:
        return thrifty(plan, request.limits.flops, _planner(replace(request, loaded=plan.program), deadline))
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted(plan) from None


def _cheaper_as_global(
    plan: PlanRecord, request: Request, memory_limit: int | None, deadline: Deadline
) -> PlanRecord:
    """The plan, or a cheaper one of the program in which per-device code is read as global ops (`globalized`).

    Who writes per device says what devices hold: a plan that takes much more memory is none. `Interrupted`, with the
    plan, where the user ends the search for it.
    """
    try:
        reading = globalized(plan.program)
        if reading is None:
            return plan
        if deadline.ends("as global"):
            return replace(plan, search=replace(plan.search, late=(*plan.search.late, "as global")))
        request = replace(request, loaded=reading, known=None, limits=replace(request.limits, seconds=deadline.left))
        found = replace(_plan(request, memory_limit, deadline), baseline_factory=plan.baseline_factory)
        if memory_limit is None and not found.search.fallback:
            found = _thrifty(found, request, deadline)
    except LimitError:
        return plan
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted(plan) from None
    except Exception as error:  # what is wrong with the reading is not the user's to mend
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f"per-device code is planned as it is written ({reason})", FallbackWarning, stacklevel=4)
        return plan
    written = memory_of(plan).peak
    within = fits(found, max(int(MOST_MEMORY * written), written + LITTLE_MEMORY))
    if found.search.fallback or found.cost.total >= plan.cost.total or not within:
        return plan
    seconds = {stage: plan.search.seconds.get(stage, 0.0) + found.search.seconds.get(stage, 0.0)
               for stage in {**plan.search.seconds, **found.search.seconds}}
    search = replace(found.search, seconds=seconds, notes=(*found.search.notes, AS_GLOBAL))
    return replace(found, program=plan.program, search=search)


def _planner(request: Request, deadline: Deadline) -> Callable[[CostModel], PlanRecord]:
    """What plans a request under other models, in the time that is left."""
    def planner(model: CostModel) -> PlanRecord:
        limits = replace(request.limits, seconds=deadline.left)
        return _plan(replace(request, cost_model=model, limits=limits), None, deadline)

    return planner


def _plan(request: Request, memory_limit: int | None, deadline: Deadline) -> PlanRecord:
    task = read(request)
    plans, context, program = task.plans, task.plans.context, task.plans.context.program
    bodies = plans.bodies
    convention = frontend_of(request.program).calling_convention(request.program)
    outputs = cache(lambda: timed(task.clock, "propagate", lambda: output_options(plans)))
    baseline = cache(lambda: _baseline(task, outputs(), convention))
    searched: Scheduled | None = None
    part = cache(lambda: part_paid(timed(task.clock, "baseline", baseline).device_program))
    try:
        made = plan_by_layers(task, part)
        if made is None:
            first = first_problem(with_interfaces(saturate(task)), part)
            made = searched = solve(first if request.known is None else request.known.begun(first))
        plan = PlanRecord(program, made.steps, context.inputs, made.placements, context.model, made.search,
                          reasons_factory=bodies.explaining(made.steps, made.reasons))
        # No bound stands in for the comparison: what it is of may lack the baseline, or the clock have ended its proof.
        if timed(task.clock, "baseline", baseline).cost.total < plan.cost.total * (1 - 1e-9):
            plan = _replaced(baseline(), plan.search, NOTHING_CHEAPER)
    except USER_ERRORS:
        raise
    except KeyboardInterrupt:
        context.deadline.interrupt()
        plan = _replaced(baseline(), Search(seconds=task.clock, exact=context.exact), "planning was interrupted")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f"optimisation failed ({reason}); using the baseline plan", FallbackWarning, stacklevel=4)
        plan = _replaced(baseline(), Search(seconds=task.clock, exact=context.exact), reason)
    finally:
        inside = _gaps_inside(bodies, searched)
        bodies.forget()
    search = replace(plan.search, late=tuple(context.deadline.missed), left_out=(*plan.search.left_out, *inside))
    plan = replace(plan, search=search, baseline_factory=baseline, calling_convention=convention)
    if context.deadline.interrupted:
        raise Interrupted(plan if memory_limit is None or fits(plan, memory_limit) else None)
    if memory_limit is None:
        return plan
    placed = zip(program.output_types, outputs(), strict=True)
    held = sum(min(p.local_type(t).bytes for p in options) for t, options in placed)

    try:
        return _within(plan, memory_limit, held, searched, _planner(request, deadline), deadline)
    except KeyboardInterrupt:
        raise Interrupted(plan if fits(plan, memory_limit) else None) from None


def _baseline(task: Task, outputs: Sequence[Sequence[Placement]], convention: CallingConvention | None) -> PlanRecord:
    context, first = task.plans.context, tuple(options[0] for options in outputs)
    steps = baseline_program(task.plans, task.region, task.plans.hints.propagated, context.inputs, first)
    return PlanRecord(context.program, ordered(steps, context.pricer), context.inputs, first, context.model,
                      Search(exact=context.exact), calling_convention=convention)


def _gaps_inside(bodies: BodyPlans, searched: Scheduled | None) -> tuple[str, ...]:
    """What to say of the plans of loops' and branches' bodies, which the bound of the whole takes as they are."""
    gap = 0.0 if searched is None else bodies.gap(searched.steps)
    return (f"other plans of these bodies, whose own gap is up to {100 * gap:.2f} %",) if gap > 1e-3 else ()


def _replaced(baseline: PlanRecord, search: Search, reason: str) -> PlanRecord:
    """The baseline standing in for a plan, saying why."""
    return replace(baseline, search=replace(search, method="baseline", fallback=reason))


def _within(plan: PlanRecord, memory_limit: int, outputs: int, searched: Scheduled | None,
            planner: Callable[[CostModel], PlanRecord], deadline: Deadline) -> PlanRecord:
    """Return the cheapest plan found within the memory limit. outputs: the least bytes that the outputs take."""
    from eggshard.memory.search import cheapest_within
    from eggshard.planner.repricing.memory_bound import least_held

    if fits(plan, memory_limit):
        return plan
    least = memory_of(plan).arguments + outputs
    held = least_held(searched.graph, searched.encoding) if searched else 0
    whole = max(least, memory_of(plan).arguments + held)
    found, peak = None, memory_of(plan).peak
    if least <= memory_limit:
        found, peak = cheapest_within(memory_limit, plan, planner, whole, deadline)
    if found is not None:
        return found
    proof = "so that no plan can" if least > memory_limit else "which is no proof that no plan can"
    raise LimitError(
        f"no plan found stays under memory_limit={memory_limit} bytes per device; the smallest one found takes {peak}: "
        f"try memory_limit={peak} or more. Inputs and outputs take at least {least}, {proof}"
        + ("; the time limit ended the search: give more with Limits(seconds=...)" if deadline.passed else "")
        + (f"; candidates that do every step whole hold at least {whole}" if whole > least else "")
    )
