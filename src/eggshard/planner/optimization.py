"""The whole way in one screen: program in, cheapest plan out."""

from __future__ import annotations

import gc
import itertools
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from eggshard.costmodel import AlphaBeta, CostModel, named
from eggshard.egraph.saturate import saturate, warm
from eggshard.errors import (
    CostModelError,
    EggshardWarning,
    LimitError,
    MeshError,
    ProgramError,
    RewriteError,
    ShardingError,
)
from eggshard.frontends import load
from eggshard.frontends.jax import is_lowered
from eggshard.limits import Limits
from eggshard.ops.region_builder import RegionBuilder
from eggshard.plan.plan import Plan, Search
from eggshard.planner.baseline import baseline_program
from eggshard.planner.encoding.decode import Decoder
from eggshard.planner.encoding.encode import Encoder
from eggshard.planner.encoding.weighing import Weighing
from eggshard.planner.layers.lifting import Lifted
from eggshard.planner.layers.planning import MANY_OPS, extract_layers, handed, look_across_shards, reaching
from eggshard.planner.layers.shortening import KEPT, shorten
from eggshard.planner.planning import Planning
from eggshard.planner.progress import Bar, Clock, Progress
from eggshard.planner.regions import (
    RegionPlanner,
    RegionProblem,
    begun,
    encoded,
    extraction_seconds,
    ordered,
    solve,
    timed,
    weighted_sums,
)
from eggshard.program.axes import axis_ref
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, is_even, place
from eggshard.program.program import Program, Region
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType, mlir_dtype, static_shape
from eggshard.rewrites import default_rules, select
from eggshard.selection.portfolio import extract
from eggshard.spmd.joining import joined
from eggshard.worker import worker

if TYPE_CHECKING:
    from eggshard.frontends.calling_convention import CallingConvention

#: Errors that are the user's to mend: they are raised, not answered with the baseline.
_USER_ERRORS = (CostModelError, MeshError, ProgramError, RewriteError, ShardingError)


def optimize(
    program: Any,
    *,
    cost_model: CostModel | str | None = None,
    rewrites: Sequence[Any] | None = None,
    limits: Limits | None = None,
    memory_limit: int | None = None,
    exact: bool = False,
    progress: Progress = None,
) -> Plan:
    """The cheapest plan found for a sharded tensor program.

    program: a ``jax.stages.Lowered``, a ``jax.export.Exported`` (read as its text), an MLIR module, StableHLO text, a
    path, or a `Program`. cost_model: anything with ``seconds(step)``, or the name of a shipped one
    (`costmodel.named`); `AlphaBeta` by default. rewrites: rules instead of ``default_rules()``; an empty list turns
    the tensor algebra off. memory_limit: bytes per device that inputs, outputs and temporaries may take
    (`Plan.memory`), by default the cost model's ``capacity`` if it has one; a plan over it is replaced by the cheapest
    one found within it. exact: forbid reassociation of floating-point sums and every rule that NaN, Inf or -0 could
    tell. progress: a bar on stderr with the stages (read, saturate, select, lower) once two seconds have passed; by
    default where stderr is a terminal. True and False force it; a function is called once with every stage as it
    begins, and the seconds since the start.

    Inputs and outputs lie evenly, as JAX arrays do: axes of a stated sharding that do not divide a dimension are left
    out there (``Plan.input_placements`` and ``output_placements`` say what holds). Inside, values may lie unevenly.

    Raises ProgramError, ShardingError, MeshError, CostModelError for bad input, and LimitError if no plan found
    stays under memory_limit. If the search itself fails, warns (EggshardWarning) and returns the baseline plan.
    """
    began = time.perf_counter()
    _check_limits(limits, memory_limit)
    model = named(cost_model) if isinstance(cost_model, str) else AlphaBeta() if cost_model is None else cost_model
    capacity = getattr(model, "capacity", None)
    try:
        with _collector_paused(), Bar(progress) as bar:
            return _optimize(program, began, model, rewrites, limits or Limits(),
                             int(capacity) if memory_limit is None and capacity else memory_limit, exact, bar)
    except LimitError as error:
        if memory_limit is None and capacity is not None:
            raise LimitError(f"{error}; the limit is the capacity of {type(model).__name__}") from None
        raise


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Without Python's cycle collector: planning makes many small objects and hardly a cycle, so its passes, which
    visit whatever the process holds, take a good part of the time and find nothing. What is left at the end counts as
    old, so that the next collection of what is young does not visit all of it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            if not gc.get_freeze_count():  # the user has frozen nothing, which would thaw
                gc.freeze()
                gc.unfreeze()  # into the oldest generation
            gc.enable()


def _optimize(
    program: Any, began: float, cost_model: CostModel, rewrites: Sequence[Any] | None, limits: Limits,
    memory_limit: int | None, exact: bool, bar: Bar,
) -> Plan:
    bar.stage("read")
    rules = select(default_rules() if rewrites is None else rewrites, exact)
    if rules and worker().pid is None:
        warm(rules)  # the engine is made while the program is read
    loaded = load(program)
    bodies = RegionPlanner(rules)
    planning = Planning(loaded, cost_model, limits, exact, bodies)
    problems: list[RegionProblem] = []
    clock = Clock(bar.stage)
    clock["load"] = time.perf_counter() - began
    outputs = cache(lambda: _output_options(planning, timed(clock, "propagate", lambda: planning.hints)))
    convention = _convention(program)
    baseline = cache(lambda: _baseline(planning, [o[0] for o in outputs()], convention))
    try:
        by_layers = _search_layers(planning, rules, clock, baseline)
        compared = by_layers is not None and by_layers[1]
        plan = by_layers[0] if by_layers else _search(planning, rules, outputs, clock, problems)
        # A certified plan is not dearer than the baseline, which the search space holds, unless candidates were left
        # out, or conversions of one value may share steps in the baseline: the search pays for each of them whole.
        shares = plan.cost.communication > 0 and _uses_a_value_twice(loaded.region)
        bound = max(plan.search.bound, plan.search.once)
        near = plan.cost.total - bound <= planning.limits.gap * plan.cost.total
        certified = near and not plan.search.capped and not shares
        # Plans by layers were mostly held against the baseline of the short program, by sums of prices.
        sure = certified or (compared and not planning.pricer.overlap)
        if not sure and timed(clock, "baseline", baseline).cost.total < plan.cost.total * (1 - 1e-9):
            plan = _replaced(baseline(), plan.search, "the search found nothing cheaper than the baseline")
        if callable(plan.reasons_factory):
            plan = replace(plan, reasons_factory=bodies.explaining(plan.device_program, plan.reasons_factory))
    except _USER_ERRORS:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f"optimisation failed ({reason}); using the baseline plan", EggshardWarning, stacklevel=3)
        plan = _replaced(baseline(), Search(seconds=clock, exact=exact), reason)
    finally:
        bodies.forget()
    plan = replace(plan, baseline_factory=baseline, calling_convention=convention)
    if memory_limit is None:
        return plan
    placed = zip(loaded.output_types, outputs(), strict=True)
    held = sum(min(p.local_type(t).bytes for p in options) for t, options in placed)
    return _within(plan, memory_limit, held, problems, partial(_at_prices, program, rewrites, limits, exact, bar))


def _at_prices(program: Any, rewrites: Sequence[Any] | None, limits: Limits, exact: bool, bar: Bar,
               model: CostModel) -> Plan:
    """The plan at other prices, without a limit of memory."""
    return _optimize(program, time.perf_counter(), model, rewrites, limits, None, exact, bar)


def _uses_a_value_twice(region: Region) -> bool:
    """Whether some array that depends on an input is used more than once, so that it may be converted twice."""
    varying = set(region.inputs)
    uses: Counter[int] = Counter(region.outputs)
    for op in region.ops:
        uses.update(op.operands)
        if varying.intersection(op.operands):
            varying.update(op.results)
    return any(n > 1 and v in varying and region.types[v].elements > 1 for v, n in uses.items())


def _check_limits(limits: Any, memory_limit: Any) -> None:
    if limits is not None and not isinstance(limits, Limits):
        raise LimitError(f"limits={limits!r} is no eggshard.Limits; give e.g. limits=eggshard.Limits(seconds=10)")
    if memory_limit is not None and not isinstance(memory_limit, Real):
        raise LimitError(f"memory_limit={memory_limit!r} is not a number; give bytes per device")


def _baseline(planning: Planning, outputs: Sequence[Placement], convention: CallingConvention | None) -> Plan:
    program = planning.program
    steps = baseline_program(planning, program.region, planning.propagated, planning.inputs, outputs)
    steps = ordered(planning, steps)
    return Plan(program, steps, planning.inputs, tuple(outputs), planning.model, Search(exact=planning.exact),
                calling_convention=convention)


def _search_layers(
    planning: Planning, rules: Sequence[Any], clock: dict[str, float], baseline: Callable[[], Plan]
) -> tuple[Plan, bool] | None:
    """The plan of a large program of many equal layers, by its short form, and whether it was held against the
    baseline; None for any other program."""
    program = planning.program
    many = len(program.region.ops) > MANY_OPS
    short = timed(clock, "layers", lambda: shorten(program)) if many else None
    if short is None:
        return None
    small = planning.of(short.program)
    # Two processes at work, and this one meanwhile at what needs neither.
    region = short.region
    hinted = begun(lambda: small.hints)
    reached = reaching(short.program.region)
    if reached and look_across_shards(reached, timed(clock, "propagate", hinted)):
        return None  # layers share exchanges of halos
    saturated = begun(lambda: saturate(region, rules, planning.limits, planning.mesh))
    hints = timed(clock, "propagate", hinted)
    timed(clock, "price", lambda: small.price_ahead(short.program.region))
    outputs = _output_options(small, hints)
    plain = timed(clock, "price", lambda: baseline_program(
        small, short.program.region, small.propagated, small.inputs, [o[0] for o in outputs]))
    graph = timed(clock, "saturate", saturated)
    roots = [(graph.values[v], o) for v, o in zip(region.outputs, outputs, strict=True)]

    def propagated() -> list[tuple[int, Placement]]:
        placed = ((short.cut_value(v), s) for v, s in enumerate(small.hints) if s is not None)
        return [(graph.values[v], small.resolve(s, region.types[v])) for v, s in placed if graph.values[v] >= 0]

    encoder = Encoder(graph, partial(small.strategies, bodies="planned"), small.router, planning.limits)
    encoding = timed(clock, "encode", lambda: encoder.encode(
        dict(enumerate(small.inputs)), roots, propagated, handed(short, graph)))
    seconds, most = extraction_seconds(planning, clock, graph)
    found = timed(clock, "extract", lambda: extract_layers(
        short, graph, encoding, small.router, roots,
        lambda problem: extract(problem, seconds=seconds, gap=planning.limits.gap, most=most),
        planning.pricer.total(plain), time.monotonic() + seconds, time.monotonic() + most))
    if found is None:
        return None
    search = Search(
        0.0, 0.0, found.terms, found.extraction.method, planning.exact, "", clock, len(graph.classes), graph.size,
        dict(graph.report.matches), tuple(found.extraction.notes), encoding.capped, True)
    if found.alike and planning.pricer.total(plain) < found.extraction.selection.cost * (1 - 1e-9):
        reason = "the search found nothing cheaper than the baseline"
        return _replaced(timed(clock, "baseline", baseline), search, reason), True
    lifted = found.lifted
    decoder = Decoder(planning.mesh, lifted.graph, lifted.encoding, lifted.selection, small.router, small.action)
    steps, placements = timed(clock, "assemble", lambda: decoder.decode(
        program.input_types, planning.inputs, lifted.roots))
    steps = timed(clock, "join", lambda: ordered(planning, joined(steps, planning.pricer)))
    held = tuple(h and h._replace(cls=_followed(lifted, h.cls)) for h in steps.held)
    steps = replace(steps, held=held, steps=tuple(
        replace(s, origins=tuple(o if o.problem else o._replace(cls=_followed(lifted, o.cls)) for o in s.origins))
        for s in steps.steps))
    note, unit = weighted_sums(planning.pricer)
    weighing = Weighing(
        graph, encoding, lifted.source, small.router, planning.pricer, _whole_values(lifted),
        f"priced in the program of {KEPT} layers that stand for {short.repeats} equal ones, each of which does as one "
        f"of them{note and '; ' + note}", unit=unit,
        followed=frozenset(o.cls for s in steps.steps for o in s.origins if not o.problem))
    plan = Plan(
        program, steps, planning.inputs, placements, planning.model, search, reasons_factory=weighing.reasons)
    return plan, found.alike


def _whole_values(lifted: Lifted) -> list[int]:
    """Per value of the whole program the class of the short one's problem that it follows."""
    return [_followed(lifted, c) for c in lifted.graph.values]


def _followed(lifted: Lifted, c: int) -> int:
    return lifted.follows[c] if c >= 0 else -1


def _search(planning: Planning, rules: Sequence[Any], outputs: Callable[[], list[list[Placement]]],
            clock: dict[str, float], problems: list[RegionProblem]) -> Plan:
    """The plan, and among the ``problems`` that of the program itself."""
    region = planning.program.region
    hints = begun(lambda: planning.hints)
    graph = timed(clock, "saturate", lambda: saturate(region, rules, planning.limits, planning.mesh))
    timed(clock, "propagate", hints)
    wanted = outputs()
    encoder = Encoder(graph, planning.strategies, planning.router, planning.limits)
    problem = timed(clock, "encode", lambda: encoded(planning, encoder, region, planning.inputs, wanted))
    problems.append(problem)
    found = solve(planning, problem, clock)
    return Plan(planning.program, found.steps, planning.inputs, found.placements, planning.model, found.search,
                reasons_factory=found.reasons)


def _output_options(planning: Planning, propagated: Sequence[Sharding | None]) -> list[list[Placement]]:
    """Where each output may lie: where it was stated, else anywhere that a JAX array can; the propagated place first.

    A constraint on the very value that is returned states the output's sharding: there it is observable. So does a
    sharding group: its members lie where propagation puts them all.
    """
    program, options = planning.program, []
    constrained = {
        op.results[0]: op.attributes["sharding"] for op in program.region.ops if op.name == "sharding_constraint"
    }
    grouped = {op.operands[0] for op in program.region.ops if op.name == "sharding_group"}
    for v, stated, type_ in zip(
        program.region.outputs, program.output_shardings, program.output_types, strict=True
    ):
        stated = constrained.get(v) if stated is None else stated
        first = planning.boundary(propagated[v] if stated is None else stated, type_)
        free = [] if stated is not None or v in grouped else _boundary_placements(planning.mesh, type_)
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


def _replaced(baseline: Plan, search: Search, reason: str) -> Plan:
    """The baseline standing in for a plan, saying why."""
    return replace(baseline, search=replace(search, method="baseline", fallback=reason))


def _within(plan: Plan, memory_limit: int, outputs: int, problems: Sequence[RegionProblem],
            planner: Callable[[CostModel], Plan]) -> Plan:
    """The cheapest plan found within the limit. outputs: the bytes that they take at least."""
    from eggshard.memory.search import cheapest_within
    from eggshard.planner.memory_bound import least_held

    if plan.memory.peak <= memory_limit:
        return plan
    least = plan.memory.arguments + outputs
    held = [least_held(problem.graph, problem.encoding) for problem in problems]
    whole = max(least, plan.memory.arguments + max(held, default=0))
    found, peak = None, plan.memory.peak
    if least <= memory_limit:
        found, peak = cheapest_within(memory_limit, plan, planner, whole)
    if found is not None:
        return found
    proof = "so that no plan can" if least > memory_limit else "which is no proof that no plan can"
    raise LimitError(
        f"no plan found stays under memory_limit={memory_limit} bytes per device; the least peak found is {peak}; "
        f"inputs and outputs take at least {least}, {proof}"
        + (f"; candidates that do every step whole hold at least {whole}" if whole > least else "")
    )


def _convention(program: Any) -> CallingConvention | None:
    """How a JAX function's arguments map to the program's inputs, if it came from one."""
    if not is_lowered(program) or not hasattr(program, "out_tree"):
        return None
    from eggshard.frontends.calling_convention import CallingConvention

    return CallingConvention.of(program)


def plan_reshard(
    shape: Sequence[int], dtype: Any, mesh: Any, source: Any, target: Any, *,
    cost_model: CostModel | str | None = None, limits: Limits | None = None,
) -> Plan:
    """The cheapest plan that takes one tensor from one sharding to another.

    shape, dtype: of the global tensor. mesh: a `Mesh`, a dict, or a JAX mesh. source, target: a PartitionSpec, a tuple
    like ``("x", None)``, or Shardy's text. The default cost model is `AlphaBeta`.

    ShardingError for shardings that do not fit the tensor, and for ones that cut a dimension into shards of different
    sizes, which no JAX array has.
    """
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
