"""The entry to planning: from a source program to its cheapest plan, by layers or as a whole, against the baseline."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from numbers import Real
from typing import TYPE_CHECKING, Any

from eggshard.costmodel import CostModel, at_hand, named
from eggshard.egraph.saturate import warm
from eggshard.errors import (
    CostModelError,
    FallbackWarning,
    LimitError,
    MeshError,
    ProgramError,
    RewriteError,
    ShardingError,
)
from eggshard.frontends import frontend_of
from eggshard.limits import Deadline, Limits
from eggshard.memory.prediction import fits, memory_of
from eggshard.ops.region_builder import RegionBuilder
from eggshard.plan.identity import plan_fingerprint
from eggshard.plan.plan_cache import PlanCache, key_of
from eggshard.plan.reasons import Reasons
from eggshard.plan.record import PlanRecord, Search
from eggshard.planner import pipeline
from eggshard.planner.baseline import baseline_program
from eggshard.planner.bodies import plans_of
from eggshard.planner.context import Context
from eggshard.planner.layers.planning import plan_by_layers
from eggshard.planner.op_plans import BodyPlans
from eggshard.planner.outputs import output_options
from eggshard.planner.pipeline import encode, ordered, saturate, solve
from eggshard.planner.progress import Bar, Clock, Progress, timed
from eggshard.planner.proofs import proved
from eggshard.planner.state import Scheduled, Task
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, is_even
from eggshard.program.program import Program
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType, mlir_dtype, static_shape
from eggshard.rewrites import default_rules, select
from eggshard.settings import LOGGER, config
from eggshard.tables import duration
from eggshard.worker import worker

if TYPE_CHECKING:
    from eggshard.frontends.protocol import CallingConvention

_NOTHING_CHEAPER = "the search found nothing cheaper than the baseline"
_TOO_DEEP = "the program's regions are nested too deeply to be planned"
#: Errors that are the user's to mend: they are raised, not answered with the baseline.
_USER_ERRORS = (CostModelError, MeshError, ProgramError, RewriteError, ShardingError)


@dataclass(frozen=True)
class Request:
    """The arguments of `optimize` except for the memory limit. loaded: the program, where it was read already."""

    program: Any
    cost_model: CostModel
    rewrites: Sequence[Any] | None
    limits: Limits
    exact: bool
    bar: Bar = field(default_factory=lambda: Bar(False), compare=False)
    loaded: Program | None = None

    @property
    def rules(self) -> Sequence[Any]:
        return select(default_rules() if self.rewrites is None else self.rewrites, self.exact)

    @property
    def own_rules(self) -> Sequence[Any]:
        """The rules that are not eggshard's."""
        return [rule for rule in self.rules if rule not in default_rules()] if self.rewrites else ()


def optimize(
    program: Any, *, memory_limit: int | None = None, progress: Progress = None, **options: Any
) -> PlanRecord:
    """Return the cheapest plan found for a sharded tensor program; see `eggshard.optimize`."""
    request = requested(program, **options)
    if memory_limit is not None and not isinstance(memory_limit, Real):
        raise LimitError(f"memory_limit={memory_limit!r} is not a number; give bytes per device")
    capacity, deadline = getattr(request.cost_model, "capacity", None), Deadline(request.limits.seconds)
    began = time.perf_counter()
    try:
        with _collector_paused(), Bar(progress) as bar:
            limit = int(capacity) if memory_limit is None and capacity else memory_limit
            plan = _kept_or_made(replace(request, bar=bar), limit, deadline)
            _log(plan, time.perf_counter() - began)
            return plan
    except RecursionError:
        raise ProgramError(_TOO_DEEP) from None
    except LimitError as error:
        if memory_limit is None and capacity is not None:
            raise LimitError(f"{error}; the limit is the capacity of {type(request.cost_model).__name__}") from None
        raise


def _kept_or_made(request: Request, limit: int | None, deadline: Deadline) -> PlanRecord:
    """The plan from the plan cache, or a new one, which is kept there unless the search failed."""
    began = time.perf_counter()
    plans, key = PlanCache.configured(), None
    if plans is not None:
        program = _loaded(request)
        request, key = replace(request, loaded=program), _key(program, request, limit)
        if key is not None and (found := plans.find(key, program, request.cost_model)):
            return _completed(found, request, limit)
    plan = _plan(request, limit, deadline)
    plan = proved(plan, request.own_rules, request.limits.proof * (time.perf_counter() - began), limit)
    if plans is not None and key is not None and plan.search.fallback in ("", _NOTHING_CHEAPER):
        plans.keep(key, plan)
    return plan


def _key(program: Program, request: Request, limit: int | None) -> str | None:
    """What a request's plan is kept under; None where its rules or its prices cannot be told from others."""
    if request.own_rules:
        LOGGER.debug("plans by rules of your own are not kept")
        return None
    key = key_of(program, {
        "cost model": request.cost_model, "rules": [rule.name for rule in request.rules],
        "limits": asdict(request.limits), "exact": request.exact, "memory limit": limit})
    if key is None:
        LOGGER.debug("plans under a %s are not kept: it cannot be written down", type(request.cost_model).__name__)
    return key


def _completed(found: PlanRecord, request: Request, limit: int | None) -> PlanRecord:
    """A kept plan with what is made when first asked for: its baseline, and its reasons, by planning anew."""
    convention = frontend_of(request.program).calling_convention(request.program)

    @cache
    def baseline() -> PlanRecord:
        task = read(request)
        return _baseline(task, output_options(task.plans), convention)

    def reasons(names: Mapping[int, str]) -> Reasons:
        again = _plan(replace(request, bar=Bar(False)), limit, Deadline(request.limits.seconds))
        if plan_fingerprint(again) != plan_fingerprint(found):
            return Reasons(note="the plan was kept, and planned anew it is another one: another search weighed it")
        return again.reasons_for(names)

    return replace(found, baseline_factory=baseline, calling_convention=convention, reasons_factory=reasons)


def requested(
    program: Any, cost_model: CostModel | str | None = None, rewrites: Sequence[Any] | None = None,
    limits: Limits | None = None, exact: bool = False, effort: str | None = None,
) -> Request:
    """Build the request from arguments of `eggshard.optimize`; LimitError for limits of another type."""
    if limits is not None and not isinstance(limits, Limits):
        raise LimitError(f"limits={limits!r} is no eggshard.Limits; give e.g. limits=eggshard.Limits(seconds=10)")
    if cost_model is None:
        cost_model = at_hand(frontend_of(program).devices(program))
    model = named(cost_model) if isinstance(cost_model, str) else cost_model
    limits = limits or Limits(seconds=config.seconds, effort=config.effort)
    return Request(program, model, rewrites, replace(limits, effort=effort) if effort else limits, exact)


def _log(plan: PlanRecord, seconds: float) -> None:
    search = plan.search
    LOGGER.info("planned %s in %s: %s under %s, found by %s", plan.program.name, duration(seconds),
                plan.unit.text(plan.cost.total), type(plan.cost_model).__name__, search.method)
    LOGGER.debug("stages: %s", ", ".join(f"{name} {duration(spent)}" for name, spent in search.seconds.items()))


#: What each stage makes of what the one before it made, in order.
STAGES: dict[str, Callable[[Any], Any]] = {
    "read": lambda request: read(request), "saturate": saturate, "encode": encode, "select": pipeline.select,
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


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause Python's cycle collector within the context.

    Planning makes many small objects, so that the collector's passes over the whole heap take a good part of the time.
    Afterwards all that was made meanwhile, by the caller too, is young to the collector and visited by its next pass.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read(request: Request) -> Task:
    """The program of a request, as a task of planning."""
    request.bar.stage("read")
    clock = Clock(request.bar.stage)
    rules = request.rules
    if rules and worker().pid is None:
        warm(rules)  # the engine is made while the program is read
    program = request.loaded or timed(clock, "read", lambda: _loaded(request))
    context = Context(program, request.cost_model, request.limits, request.exact)
    return Task(plans=plans_of(context, rules), rules=rules, region=program.region, inputs=context.inputs,
                outputs=None, clock=clock)


def _loaded(request: Request) -> Program:
    """The program of a request."""
    return frontend_of(request.program).read(request.program)


def propagated_outputs(program: Any) -> tuple[Program, list[Placement]]:
    """Return a source's program, and where Shardy's propagation puts each of its outputs that is not stated."""
    with _collector_paused():
        task = read(requested(program))
        return task.plans.context.program, [options[0] for options in output_options(task.plans)]


def _plan(request: Request, memory_limit: int | None, deadline: Deadline) -> PlanRecord:
    task = read(request)
    plans, context, program = task.plans, task.plans.context, task.plans.context.program
    bodies = plans.bodies
    convention = frontend_of(request.program).calling_convention(request.program)
    outputs = cache(lambda: timed(task.clock, "propagate", lambda: output_options(plans)))
    baseline = cache(lambda: _baseline(task, outputs(), convention))
    searched: Scheduled | None = None
    try:
        layered = plan_by_layers(task)
        if layered is None:
            searched = solve(encode(saturate(task)))
        made = layered.made if layered else searched
        assert made is not None
        if layered and layered.baseline:
            plan = _replaced(timed(task.clock, "baseline", baseline), made.search, _NOTHING_CHEAPER)
        else:
            plan = PlanRecord(program, made.steps, context.inputs, made.placements, context.model, made.search,
                              reasons_factory=bodies.explaining(made.steps, made.reasons))
        # No bound stands in for the comparison: what it is of may lack the baseline, or the clock have ended its proof.
        # Only plans by layers were held against it before, in the short program, by sums of prices.
        compared = layered is not None and layered.compared and not context.pricer.overlap
        if not compared or context.deadline.missed:
            least = timed(task.clock, "baseline", baseline).cost.total
            if least < plan.cost.total * (1 - 1e-9):
                plan = _replaced(baseline(), plan.search, _NOTHING_CHEAPER)
    except _USER_ERRORS:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f"optimisation failed ({reason}); using the baseline plan", FallbackWarning, stacklevel=4)
        plan = _replaced(baseline(), Search(seconds=task.clock, exact=context.exact), reason)
    finally:
        inside = _gaps_inside(bodies, searched)
        bodies.forget()
    search = replace(plan.search, late=tuple(context.deadline.missed), left_out=(*plan.search.left_out, *inside))
    plan = replace(plan, search=search, baseline_factory=baseline, calling_convention=convention)
    if memory_limit is None:
        return plan
    placed = zip(program.output_types, outputs(), strict=True)
    held = sum(min(p.local_type(t).bytes for p in options) for t, options in placed)

    def planner(model: CostModel) -> PlanRecord:
        limits = replace(request.limits, seconds=deadline.left)
        return _plan(replace(request, cost_model=model, limits=limits), None, deadline)

    return _within(plan, memory_limit, held, searched, planner, deadline)


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
    from eggshard.planner.memory_bound import least_held

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


def plan_reshard(
    shape: Sequence[int], dtype: Any, mesh: Any, source: Any, target: Any, *,
    cost_model: CostModel | str | None = None, limits: Limits | None = None,
) -> PlanRecord:
    """Return the cheapest plan that takes one tensor from one sharding to another; see `eggshard.plan_reshard`."""
    resolved, type_ = Mesh.of(mesh), TensorType(static_shape(shape), mlir_dtype(dtype))
    stated = [Sharding.of(s, type_.rank, resolved) for s in (source, target)]
    for sharding, name in zip(stated, ("source", "target"), strict=True):
        sharding.validate(resolved, type_, name)
    builder = RegionBuilder([type_])
    cuts: dict[str, set[int]] = {}
    for sharding in stated:
        for axis, points in sharding.cuts(resolved).items():
            cuts.setdefault(axis, set()).update(points)
    program = Program(resolved.refined(cuts), builder.build([0]), (stated[0],), (stated[1],), "reshard")
    for sharding, name in zip(stated, ("source", "target"), strict=True):
        if not is_even(type_.shape, sharding.to_placement(program.mesh, type_), program.mesh):
            raise ShardingError(
                f"sharding {sharding} of {name} ({type_}) cuts a dimension into shards of different sizes; pad it to a "
                "multiple of the axes' sizes, or shard another dimension"
            )
    return optimize(program, cost_model=cost_model, limits=limits)
