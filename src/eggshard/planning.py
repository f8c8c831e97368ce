"""The public functions that plan: `optimize`, `plan_reshard`, `pareto`; and `equivalent`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from eggshard.errors import Interrupted, MeshError
from eggshard.limits import Limits
from eggshard.program.sharding import AUTO
from eggshard.settings import config
from eggshard.worker import worker

if TYPE_CHECKING:
    from eggshard.api import Plan
    from eggshard.costmodel.protocol import CostModel
    from eggshard.plan.proof import Proof
    from eggshard.planner.progress import Progress
    from eggshard.planner.repricing.tradeoff import Front


@overload
def optimize(
    program: Any, *, cost_model: CostModel | str | None = None, rewrites: Sequence[Any] | None = None,
    limits: Limits | None = None, effort: str | None = None, memory_limit: int | None = None, exact: bool = False,
    progress: Progress = None, shardings: Any = None, mesh: Any = None, devices: int | None = None,
    carry: Mapping[int, int] | None = None,
) -> Plan: ...


@overload
def optimize(
    program: Any, *, cost_model: CostModel | str | None = None, rewrites: Sequence[Any] | None = None,
    limits: Limits | None = None, effort: str | None = None, exact: bool = False, until: str,
) -> Any: ...


def optimize(
    program: Any,
    *,
    cost_model: CostModel | str | None = None,
    rewrites: Sequence[Any] | None = None,
    limits: Limits | None = None,
    effort: str | None = None,
    memory_limit: int | None = None,
    exact: bool = False,
    progress: Progress = None,
    until: str | None = None,
    shardings: Any = None,
    mesh: Any = None,
    devices: int | None = None,
    carry: Mapping[int, int] | None = None,
) -> Any:
    """The cheapest plan found for a sharded tensor program.

    program: a ``jax.stages.Lowered``, a ``jax.export.Exported`` (read as its text), an MLIR module, StableHLO text, a
    path, or a `Program`. cost_model: anything with ``seconds(step)``, or the name of a shipped one (`costmodel.named`);
    by default the machine at hand (`costmodel.at_hand`). rewrites: rules instead of ``default_rules()``; an empty list
    turns the tensor algebra off. effort: ``fast`` for the first good plan, ``certify`` for ten times the work on the
    gap; by default as `eggshard.config.effort` says. memory_limit: bytes per device that inputs, outputs and
    temporaries may take (`Plan.memory`), by default the cost model's ``capacity`` if it has one; a plan over it is
    replaced by the cheapest one found within it. exact: forbid reassociation of floating-point sums and every rule that
    NaN, Inf or -0 could tell. progress: a bar on stderr with the stages (read, saturate, select, lower) once two
    seconds have passed; by default where stderr is a terminal. True and False force it; a function is called once with
    every stage as it begins, and the seconds since the start. until: stop after a stage of planning, ``read``,
    ``saturate``, ``encode``, ``select``, ``decode`` or ``schedule``, and return what it made (`planner.state`), without
    memory_limit, comparison with the baseline, or the short form of programs of equal layers. shardings:
    `eggshard.AUTO` to choose where inputs and outputs lie, where nothing is stated of them or dimensions are stated
    open; or one per input, of which some are, or contain, AUTO. mesh: of a program that states none; AUTO to choose
    it, too, of so many ``devices``. carry: {input: output that becomes it in the next call}, which lies where that
    does.

    Inputs and outputs lie evenly, as JAX arrays do: axes of a stated sharding that do not divide a dimension are left
    out there (``Plan.input_placements`` and ``output_placements`` say what holds). Inside, values may lie unevenly.

    Raises ProgramError, ShardingError, MeshError, CostModelError for bad input, and LimitError if no plan found stays
    under memory_limit. Ctrl-C raises Interrupted, whose ``plan`` is the best one so far or the baseline. If the search
    itself fails, warns (EggshardWarning) and returns the baseline plan.
    """
    options: dict[str, Any] = {
        "cost_model": cost_model, "rewrites": rewrites, "limits": limits, "effort": effort, "exact": exact,
    }
    begin(rewrites)  # while the planner is imported
    if until is not None:
        from eggshard.planner.optimization import stage_of
        from eggshard.planner.request import requested

        return stage_of(requested(program, **options), until)
    if (devices is not None) != (mesh is AUTO) or mesh is AUTO and shardings is None:
        raise MeshError(
            "a mesh is chosen with mesh=eggshard.AUTO, devices=N and shardings=eggshard.AUTO; give all three")
    if shardings is not None:
        from eggshard.planner.choosing.choice import chooser_of
        from eggshard.planner.choosing.meshes import stated_on_mesh
        from eggshard.planner.request import requested

        asked = requested(program, **options)
        if devices is None:
            chooser = chooser_of(asked, shardings, mesh, carry)
            choice = chooser.within(memory_limit)
            options |= {"loaded": choice.stated(chooser.context.program), "known": choice.known}
        else:
            options["loaded"] = stated_on_mesh(asked, shardings, devices, carry, memory_limit)
    return optimized(program, memory_limit=memory_limit, progress=progress, **options)


def optimized(program: Any, **options: Any) -> Plan:
    """What `optimize` returns. options: its own, and those of `planner.request.requested`."""
    from eggshard.api import Plan
    from eggshard.planner import entry

    try:
        return Plan.of(entry.optimize(program, **options))
    except Interrupted as interrupted:
        raise Interrupted(interrupted.plan and Plan.of(interrupted.plan)) from None


def equivalent(first: Any, second: Any, *args: Any, mesh: Any = None, runs: int | None = None, seed: int = 0) -> Proof:
    """Compare two programs without a tolerance, by evaluating both on random elements of prime fields (`Plan.prove`).

    first, second: two JAX functions of ``args``, arrays or their shapes, for instance code under `jax.shard_map` and
    the plain function that it is to compute; or, without args, any two sources that `load` reads. What is written per
    device runs on simulated devices, by the collectives that it states. mesh: that the functions are traced under; a
    mapping from axis names to sizes needs no devices. A ``jax.stages.Compiled`` stands for what XLA's partitioner made:
    compare it with its function, or with what XLA compiled for one device, as it rounds constants on the way.

    ProgramError where the two do not take and return the same types. What has no meaning over a field, or on simulated
    devices, is refused: the proof then shows nothing, and says why.
    """
    from eggshard.prove.equivalence import equivalent

    return equivalent(first, second, *args, mesh=mesh, runs=runs, seed=seed)


def plan_reshard(
    shape: Sequence[int], dtype: Any, mesh: Any, source: Any, target: Any, *,
    cost_model: CostModel | str | None = None, limits: Limits | None = None,
) -> Plan:
    """The cheapest plan that takes one tensor from one sharding to another.

    shape, dtype: of the global tensor. mesh: a `Mesh`, a dict, or a JAX mesh. source, target: a PartitionSpec, a tuple
    like ``("x", None)``, or Shardy's text. The default cost model is that of `optimize`.

    ShardingError for shardings that do not fit the tensor, and for ones that cut a dimension into shards of different
    sizes, which no JAX array has.
    """
    begin()
    from eggshard.api import Plan
    from eggshard.planner import entry

    return Plan.of(entry.plan_reshard(
        shape, dtype, mesh, source, target, cost_model=cost_model, limits=limits))


def pareto(program: Any, points: int = 8, **options: Any) -> Front[Plan]:
    """The plans found that no other one undercuts both in cost and in memory, cheapest first.

    points: how many prices of memory are tried; plans that come out twice or are undercut are left out, so that the
    front may have fewer. options: as for `optimize`; ``memory_limit`` leaves out what takes more, and with
    ``shardings=eggshard.AUTO`` each plan has inputs and outputs where these are best for it.

    LimitError for fewer than one point, and if no plan found stays under the limit; else as `optimize`.
    """
    begin(options.get("rewrites"))
    from eggshard.api import Plan
    from eggshard.planner.repricing.tradeoff import Front, pareto

    return Front([Plan.of(plan) for plan in pareto(program, points, **options)])


def begin(rewrites: Sequence[Any] | None = None) -> None:
    """Start the engine's process, unless there are no rules or a kept plan may do without it."""
    if not config.plan_cache and (rewrites is None or rewrites):
        worker().start()
