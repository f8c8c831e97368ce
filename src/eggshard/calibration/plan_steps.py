"""`Plan.measure`: seconds of a plan's steps on the devices at hand, beside what its cost model says of them."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from eggshard.calibration.measuring import measure
from eggshard.calibration.samples import Sample
from eggshard.costmodel.compute import Compute
from eggshard.costmodel.machines.machine import Machine, Protocol
from eggshard.costmodel.pricing import FREE_OPS, Pricer
from eggshard.costmodel.protocol import CostModel, StepInfo
from eggshard.costmodel.table import Measured
from eggshard.errors import CostModelError
from eggshard.plan.record import PlanRecord
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import StepPlan
from eggshard.tables import Shown, duration, render


@dataclass(frozen=True)
class StepTime:
    """What steps of one kind on shards of the same types take: seconds of one, and how many a run of the plan has."""

    step: StepInfo
    count: int
    predicted: float
    measured: float


@dataclass(frozen=True)
class _Exact:
    known: Mapping[StepInfo, float]
    otherwise: CostModel

    def seconds(self, step: StepInfo) -> float:
        return self.known.get(step) or self.otherwise.seconds(step)


@dataclass(frozen=True, repr=False)
class Measurement(Shown):
    """Seconds of a plan's steps, and of the whole plan, compiled: predicted by its cost model, and measured.

    Steps are measured one by one, each in a program of its own. Together they may take more than the whole, of which
    XLA makes fewer kernels, or less: in the whole devices wait for each other.
    """

    model: CostModel
    steps: tuple[StepTime, ...]
    predicted: float
    measured: float

    @property
    def added_up(self) -> float:
        """The measured seconds of all steps of a run."""
        return sum(row.count * row.measured for row in self.steps)

    def refitted(self) -> Machine:
        """The plan's machine with the seconds of each kind of step scaled by what was measured of it, in the median.

        CostModelError where the cost model is no `Machine`.
        """
        if not isinstance(self.model, Machine):
            raise CostModelError(f"a {type(self.model).__name__} has no constants to fit; plan with a Machine")
        return refitted(self.model, [(row.step, row.measured) for row in self.steps])

    def as_model(self) -> CostModel:
        """A cost model of the measured seconds; steps that are not the plan's have the prices of its own model."""
        return _Exact({row.step: row.measured for row in self.steps if row.measured}, self.model)

    def __str__(self) -> str:
        rows = sorted(self.steps, key=lambda row: -row.count * max(row.measured, row.predicted))
        table = Table(box=None, pad_edge=False)
        for name in ("step", "over", "times", "predicted", "measured", "measured / predicted"):
            table.add_column(name, justify="left" if name in ("step", "over") else "right")
        for row in rows:
            seconds = row.count * row.predicted, row.count * row.measured
            table.add_row(_name(row.step), ",".join(row.step.axes), str(row.count), *map(duration, seconds),
                          _ratio(*seconds))
        said = (f"the plan: predicted {duration(self.predicted)}, measured {duration(self.measured)}; its steps one by "
                f"one: {duration(self.added_up)}")
        return render(table, said)


def measured(
    plan: PlanRecord, devices: Sequence[Any], call: Callable[[], Any], repeats: int = 5,
    progress: Callable[[float, float], None] = lambda done, total: None,
) -> Measurement:
    """Time the steps of a plan on as many devices as it has, and ``call``, which runs it and waits for its results.

    progress: called with how many runs of how many are done.
    """
    import jax

    call()
    seconds = []
    for _ in range(max(3, repeats)):
        began = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - began)
    pricer = Pricer(plan.cost_model, plan.mesh)
    counts: Counter[Sample] = Counter()
    for sample, times in _steps(plan.device_program, 1):
        counts[sample] += times
    found = list(counts)
    done, total = 0, len(found) * (repeats + 1)

    def advance(_: str) -> None:
        nonlocal done
        done += 1
        progress(done, total)

    taken = dict(measure(found, devices, repeats, advance).measured)
    rows = [StepTime(s.step, counts[s], pricer(s.action, *s.operands), taken.get(s.step, 0.0)) for s in found]
    return Measurement(plan.cost_model, tuple(rows), plan.cost.total, statistics.median(seconds))


def _steps(plan: StepPlan, times: int) -> Iterator[tuple[Sample, int]]:
    """The steps of a device program and how often a run of it does each: those of loops by their trips, and those
    of the branch that sends the most messages. Steps that are free, or that do more than to compute, are left out."""
    for step in plan.steps:
        action, operands = step.action, tuple(plan.types[v] for v in step.operands)
        if isinstance(action, Loop):
            yield from _steps(action.condition, times * (action.trips + 1))
            yield from _steps(action.body, times * action.trips)
        elif isinstance(action, Branch):
            yield from _steps(max(action.branches, key=lambda branch: branch.messages), times)
        else:
            sample = Sample(plan.mesh, action, operands)
            if _takes_time(sample.step) and not action.has_effects:
                yield sample, times


def _takes_time(step: StepInfo) -> bool:
    return step.communicates or (step.op not in FREE_OPS and step.memory_bytes > 0)


def _name(step: StepInfo) -> str:
    return step.kind if step.communicates else step.op or step.kind


def _ratio(predicted: float, measured: float) -> str:
    return f"{measured / predicted:.2f}" if predicted > 0 and measured > 0 else "-"


def refitted(machine: Machine, found: Sequence[Measured]) -> Machine:
    """The machine with the prices of each measured kind of step scaled by the median of measured over predicted."""
    off: dict[bool, dict[str, list[float]]] = {True: {}, False: {}}
    for step, seconds in found:
        price = machine.seconds(step)
        if price > 0 and seconds > 0:
            off[step.communicates].setdefault(_name(step), []).append(seconds / price)
    sent, local = ({name: statistics.median(ratios) for name, ratios in off[c].items()} for c in (True, False))
    return replace(machine, protocols=_protocols(machine, sent), compute=_compute(machine.compute, local),
                   origin="measured steps", disagreements=())


def _protocols(machine: Machine, factors: Mapping[str, float]) -> tuple[Protocol, ...]:
    """The machine's protocols, those of scaled kinds by themselves."""
    levels = [level.name for level in machine.levels]
    named = {kind for p in machine.protocols for kind in p.kinds}
    kept = [replace(p, kinds=left) if p.kinds else p for p in machine.protocols
            if not p.kinds or (left := tuple(k for k in p.kinds if k not in factors))]
    return (*kept, *(replace(_slower(p, factor, levels), name=f"{kind}, {p.name}", kinds=(kind,))
                     for kind, factor in factors.items() for p in machine.protocols
                     if (kind in p.kinds if kind in named else not p.kinds)))


def _slower(protocol: Protocol, factor: float, levels: Sequence[str]) -> Protocol:
    """The protocol with all its seconds times a factor."""

    def times(value: float | Mapping[str, float], by: float) -> float | dict[str, float]:
        return {k: by * value.get(k, 1.0) for k in levels} if isinstance(value, Mapping) else by * value

    return replace(protocol, launch=factor * protocol.launch, latency=times(protocol.latency, factor),
                   bandwidth=times(protocol.bandwidth, 1 / factor), memory=protocol.memory / factor,
                   run=factor * protocol.run, channel=protocol.channel / factor)


def _compute(compute: Compute, factors: Mapping[str, float]) -> Compute:
    """The compute with rates of their own for scaled ops."""
    own = {}
    for op, factor in factors.items():
        as_op = compute.ops.get(compute.like.get(op, op), compute)
        own[op] = Compute({dtype: rate / factor for dtype, rate in as_op.flops.items()}, as_op.memory / factor,
                          as_op.launch * factor, cache=as_op.cache, spill=as_op.spill)
    like = {op: other for op, other in compute.like.items() if op not in own}
    return replace(compute, ops={**compute.ops, **own}, like=like)
