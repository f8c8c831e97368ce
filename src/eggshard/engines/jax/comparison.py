"""Comparison of a plan with XLA's own partitioning of the same program: both compiled, counted and priced alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from rich.table import Table

from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.units import SECONDS, Unit
from eggshard.engines.jax.callable import PlannedFunction
from eggshard.errors import LoweringError
from eggshard.frontends.jax.calling_convention import JaxCallingConvention
from eggshard.hlo.collectives import count_collectives
from eggshard.hlo.kernels import count_kernels
from eggshard.hlo.pricing import collective_seconds, communication_seconds, compute_seconds
from eggshard.hlo.xla_program import compile_by_xla
from eggshard.limits import Guard
from eggshard.program.mesh import Mesh
from eggshard.steps.control_steps import UNKNOWN_TRIPS
from eggshard.tables import Shown, duration, render, size

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord


class CompiledCollective(NamedTuple):
    """A collective of a compiled program: its result on a device, and of one execution bytes received and seconds.

    origin: what of the source it was made of, by JAX's name; in a plan, its step.
    """

    kind: str
    dtypes: str
    result_bytes: int
    group_size: int
    wire_bytes: float
    seconds: float
    times: int
    origin: str


@dataclass(frozen=True)
class CompiledFigures:
    """One compiled program. All figures are per device."""

    wire_bytes: float
    """Bytes received, counted from the compiled program: the busiest device of each collective, added up."""
    busiest_device_bytes: float
    """Bytes received over the whole program by the device that receives most."""
    collectives: Mapping[str, int]
    """How many collectives of each kind are executed; one that XLA made of several counts once."""
    communication: float
    """Seconds of the collectives under the plan's cost model, one after the other."""
    compute: float
    """Seconds of the kernels under the plan's cost model, one after the other."""
    flops: float
    """Floating-point operations of the kernels."""
    memory_traffic: float
    """Bytes that the kernels read and write."""
    temporary_bytes: int
    """Bytes of temporaries, by the compiled program's own memory analysis."""
    peak_bytes: int
    """Arguments, results and temporaries, by the same."""
    compile_seconds: float
    """Wall time that compiling took."""
    steps: tuple[CompiledCollective, ...] = ()
    """The collectives in the order of the program."""

    @property
    def modelled_seconds(self) -> float:
        """Seconds under the plan's cost model: communication and compute."""
        return self.communication + self.compute


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """A plan beside XLA's own program, both compiled for the devices at hand; printed as a table.

    Both are counted from their compiled text by the same reader and priced by the plan's cost model, so differences to
    ``predicted_seconds``, which prices ops one by one, are what the compiler fuses. Loops of unknown length count as
    often as plans assume. What a back end compiles is what is compared: XLA for CPUs makes no reduce-scatters.
    """

    name: str
    plan: CompiledFigures
    xla: CompiledFigures
    predicted_bytes: float
    """The plan's wire bytes before compiling."""
    predicted_seconds: float
    """The plan's cost before compiling."""
    unit: Unit = SECONDS
    """What modelled times are, where they are none."""

    @property
    def modelled(self) -> str:
        """What the cost model's prices are called."""
        return "time" if self.unit == SECONDS else "cost"

    @property
    def plan_is_worse(self) -> bool:
        """Whether XLA's own program is better by the default `Guard`."""
        return bool(self.excesses(Guard()))

    def excesses(self, guard: Guard) -> tuple[str, ...]:
        """In what the plan is worse than XLA's program by more than a guard allows, in words; nothing where it is not.

        The modelled time decides: it may not exceed XLA's, however little, where more bytes are received, too.
        """
        plan, xla, found = self.plan, self.xla, []
        ours, theirs = plan.modelled_seconds, xla.modelled_seconds
        more_bytes = plan.wire_bytes > xla.wire_bytes + 0.5
        if ours > theirs * min(guard.time, 1 + 1e-9 if more_bytes else math.inf):
            found.append(f"modelled {self.modelled} ({self.unit.text(ours)} to XLA's {self.unit.text(theirs)})")
        if ours > theirs * guard.worth or not theirs:
            if plan.flops > xla.flops * guard.flops:
                found.append(f"flops ({plan.flops:.4g} to XLA's {xla.flops:.4g})")
            if plan.peak_bytes > xla.peak_bytes * guard.memory:
                found.append(f"memory ({size(plan.peak_bytes)} to XLA's {size(xla.peak_bytes)})")
        return tuple(found)

    def __str__(self) -> str:
        return comparison_table(self)

    def step_by_step(self) -> str:
        """Both programs' collectives as tables, in the order in which they are executed."""
        sides = ("the plan", self.plan), ("XLA", self.xla)
        return "\n\n".join(f"{title}\n{_steps_table(figures, self)}" for title, figures in sides)


def comparison_table(comparison: Comparison) -> str:
    """A plan and XLA's own program side by side, and which is better."""
    plan, xla, price = comparison.plan, comparison.xla, comparison.unit.text
    table = Table(box=None, padding=(0, 2), show_edge=False)
    for name in ("", "plan", "XLA", "plan / XLA"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)

    def row(name: str, ours: float, theirs: float, shown: Callable[[float], str]) -> None:
        ratio = f"{ours / theirs:.2f}" if theirs else "1.00" if not ours else "-"
        table.add_row(name, shown(ours), shown(theirs), ratio)

    row("wire bytes, step by step", plan.wire_bytes, xla.wire_bytes, size)
    row("wire bytes, busiest device", plan.busiest_device_bytes, xla.busiest_device_bytes, size)
    for kind in sorted({*plan.collectives, *xla.collectives}):
        row(kind, plan.collectives.get(kind, 0), xla.collectives.get(kind, 0), "{:.0f}".format)
    row(f"modelled {comparison.modelled}, as compiled", plan.modelled_seconds, xla.modelled_seconds, price)
    row("  communication", plan.communication, xla.communication, price)
    row("  compute", plan.compute, xla.compute, price)
    row("flops", plan.flops, xla.flops, "{:.4g}".format)
    row("memory traffic", plan.memory_traffic, xla.memory_traffic, size)
    row("temporaries", plan.temporary_bytes, xla.temporary_bytes, size)
    row("arguments, results, temporaries", plan.peak_bytes, xla.peak_bytes, size)
    row("compile time", plan.compile_seconds, xla.compile_seconds, duration)
    return "\n".join([
        f"{comparison.name}: the plan and XLA's own program, compiled (per device)",
        render(table),
        f"predicted for the plan before it was compiled: {size(comparison.predicted_bytes)}, "
        f"{price(comparison.predicted_seconds)}",
    ])


def _steps_table(figures: CompiledFigures, comparison: Comparison) -> str:
    table = Table(box=None, padding=(0, 2), show_edge=False)
    for name in ("collective", "result", "devices", "times", "bytes", comparison.modelled, "made of"):
        table.add_column(name, justify="left" if name in ("collective", "result", "made of") else "right", no_wrap=True)
    for step in figures.steps:
        table.add_row(step.kind, f"{step.dtypes} {size(step.result_bytes)}", str(step.group_size), str(step.times),
                      size(step.wire_bytes), comparison.unit.text(step.seconds), step.origin)
    return render(table) if figures.steps else "no collectives"


def compare_with_xla(plan: PlanRecord) -> Comparison:
    """Compile a plan and the program that it was made from, and compare. See `Plan.compare_with_xla`."""
    convention = JaxCallingConvention.to_call(plan.program, plan.calling_convention)
    planned = PlannedFunction(plan, convention)
    arguments = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in convention.arguments]
    args, kwargs = jax.tree.unflatten(convention.in_tree, arguments)
    mesh = plan.mesh
    with jax.enable_x64(True):
        lowered = planned.lower(*args, **kwargs)
        began = time.perf_counter()
        try:
            compiled = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            raise LoweringError(f"XLA does not compile the plan of {plan.program.name}: {error}") from None
    seconds = time.perf_counter() - began
    # Its partitions are numbered by their places in the mesh's grid.
    ours = _figures(compiled.as_text(), compiled.memory_analysis(), seconds, Pricer(plan.cost_model, Mesh(mesh.axes)))
    executable, seconds = compile_by_xla(plan.program, convention.callbacks)
    text = executable.hlo_modules()[0].to_string()
    theirs = _figures(text, executable.get_compiled_memory_stats(), seconds, Pricer(plan.cost_model, mesh))
    return Comparison(convention.name, ours, theirs, float(plan.serial_bytes), plan.cost.total, plan.unit)


def _figures(text: str, memory: Any, seconds: float, pricer: Pricer) -> CompiledFigures:
    count = count_collectives(text, pricer.mesh.size, UNKNOWN_TRIPS)
    kernels = count_kernels(text, UNKNOWN_TRIPS)
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return CompiledFigures(
        wire_bytes=count.wire_bytes,
        busiest_device_bytes=count.busiest_device_bytes,
        collectives=count.by_kind,
        communication=communication_seconds(count, pricer),
        compute=compute_seconds(kernels, pricer),
        flops=sum(k.flops * k.trip_count for k in kernels),
        memory_traffic=sum(k.memory_bytes * k.trip_count for k in kernels),
        temporary_bytes=memory.temp_size_in_bytes,
        peak_bytes=held + memory.temp_size_in_bytes,
        compile_seconds=seconds,
        steps=tuple(
            CompiledCollective(op.kind, ", ".join(dict.fromkeys(op.dtypes)), op.result_bytes, op.group_size,
                               op.wire_bytes, collective_seconds(op, pricer), op.trip_count, op.origin)
            for op in count.ops
        ),
    )
