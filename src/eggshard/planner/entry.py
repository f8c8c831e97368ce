"""The entry to planning: a plan from the plan cache, or a new one. A kept plan needs nothing that searches."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from numbers import Real
from typing import Any

from eggshard.collector import collector_paused
from eggshard.costmodel import CostModel
from eggshard.egraph.saturate import warm
from eggshard.errors import LimitError, ProgramError, ShardingError
from eggshard.frontends import frontend_of
from eggshard.limits import Deadline, Limits
from eggshard.ops.region_builder import RegionBuilder
from eggshard.plan.identity import plan_fingerprint
from eggshard.plan.plan_cache import PlanCache, key_of
from eggshard.plan.reasons import Reasons
from eggshard.plan.record import PlanRecord
from eggshard.planner.progress import Bar, Progress
from eggshard.planner.request import Request, requested
from eggshard.program.mesh import Mesh
from eggshard.program.placement import is_even
from eggshard.program.program import Program
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType, mlir_dtype, static_shape
from eggshard.settings import LOGGER
from eggshard.tables import duration
from eggshard.worker import worker

_TOO_DEEP = "the program's regions are nested too deeply to be planned"


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
        with collector_paused(), Bar(progress) as bar:
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
    plans, key = PlanCache.configured(), None
    if plans is not None:
        program = request.loaded or request.read()
        request, key = replace(request, loaded=program), _key(program, request, limit)
        if key is not None and (found := plans.find(key, program, request.cost_model)):
            return _completed(found, request, limit)
    if worker().unasked and request.rules:
        warm(request.rules)  # the engine is made while the planner is imported and the program is read
    from eggshard.planner import optimization

    plan = optimization.planned(request, limit, deadline)
    if plans is not None and key is not None and plan.search.fallback in optimization.SOUND:
        plans.keep(key, plan)
    return plan


def _key(program: Program, request: Request, limit: int | None) -> str | None:
    """What a request's plan is kept under; None where its rules or its prices cannot be told from others."""
    if request.own_rules:
        LOGGER.debug("plans by rules of your own are not kept")
        return None
    key = key_of(program, {
        "cost model": request.cost_model,
        "rules": None if request.rewrites is None else [rule.name for rule in request.rules],
        "limits": asdict(request.limits), "exact": request.exact, "memory limit": limit})
    if key is None:
        LOGGER.debug("the plan of %s under a %s is not kept: one of them cannot be written down", program.name,
                     type(request.cost_model).__name__)
    return key


def _completed(found: PlanRecord, request: Request, limit: int | None) -> PlanRecord:
    """A kept plan with its reasons and its baseline, which takes the bodies of loops that a search plans: both are made
    by planning anew when first asked for."""

    @cache
    def again() -> PlanRecord:
        from eggshard.planner.optimization import planned

        return planned(replace(request, bar=Bar(False)), limit, Deadline(request.limits.seconds))

    def reasons(names: Mapping[int, str]) -> Reasons:
        if plan_fingerprint(again()) != plan_fingerprint(found):
            return Reasons(note="the plan was kept, and planned anew it is another one: another search weighed it")
        return again().reasons_for(names)

    convention = frontend_of(request.program).calling_convention(request.program)
    return replace(found, baseline_factory=lambda: again().baseline, calling_convention=convention,
                   reasons_factory=reasons)


def _log(plan: PlanRecord, seconds: float) -> None:
    if not LOGGER.isEnabledFor(logging.INFO):
        return
    search = plan.search
    LOGGER.info("planned %s in %s: %s under %s, found by %s", plan.program.name, duration(seconds),
                plan.unit.text(plan.cost.total), type(plan.cost_model).__name__, search.method)
    LOGGER.debug("stages: %s", ", ".join(f"{name} {duration(spent)}" for name, spent in search.seconds.items()))


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
