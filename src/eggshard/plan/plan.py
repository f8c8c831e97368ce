"""The plan: what `optimize` returns. A list of steps, its price, its certificate, and what can be done with it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.protocol import CostModel
from eggshard.costmodel.schedule import Schedule
from eggshard.errors import EggshardError, EngineError, LoweringError
from eggshard.plan.naming import class_names
from eggshard.plan.reasons import Reasons, Weigh
from eggshard.planner.progress import Bar
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.program import Program
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Step, StepPlan

if TYPE_CHECKING:
    from networkx import DiGraph

    from eggshard.engines.jax.comparison import Comparison
    from eggshard.engines.mpi.program import MpiProgram
    from eggshard.engines.workspace.steps import PlanWorkspace
    from eggshard.frontends.calling_convention import CallingConvention
    from eggshard.memory.model import Memory
    from eggshard.report.difference import Difference


class Cost(NamedTuple):
    """Seconds under the plan's cost model.

    total: of the plan's schedule; where the model overlaps nothing this is communication + compute.
    """

    total: float
    communication: float
    compute: float

    @property
    def hidden(self) -> float:
        """What the schedule takes less than communication and compute one after the other."""
        return max(0.0, self.communication + self.compute - self.total)

    @property
    def exposed(self) -> float:
        """Communication that nothing hides."""
        return self.communication - self.hidden


@dataclass(frozen=True)
class Search:
    """How a plan was found: what was searched, and what is certified about it.

    bound: seconds that no plan of the saturated e-graph undercuts. once: the same of plans that compute no value twice.
    terms: the same of plans that compute no value twice, and every value that this plan computes by the same op.
    capped: candidate placements were left out (`Limits.placements`), and the bounds are of plans among the others.
    shared: conversions of one value may share steps, and the bounds are of plans whose conversions share none.
    """

    bound: float = 0.0
    once: float = 0.0
    terms: float = 0.0
    method: str = "baseline"
    exact: bool = False
    fallback: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    classes: int = 0
    nodes: int = 0
    rules: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    capped: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Plan:
    """A device program for a sharded tensor program, with its cost and its reasons.

    input_placements and output_placements say how the global arrays lie on the mesh at the boundary (always evenly).
    device_order: of a plan from JSON, how the mesh that it was made for ordered its devices, by their numbers.
    """

    program: Program
    device_program: StepPlan
    input_placements: tuple[Placement, ...]
    output_placements: tuple[Placement, ...]
    cost_model: CostModel
    search: Search = Search()
    baseline_factory: Callable[[], Plan] | None = field(default=None, compare=False, repr=False)
    calling_convention: CallingConvention | None = field(default=None, compare=False, repr=False)
    device_order: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    #: What weighs the plan's decisions against their alternatives, given what the plan calls the tensors of classes
    #: (`plan.naming`), or the outcome, as it was read from JSON.
    reasons_factory: Weigh | Reasons | None = field(default=None, compare=False, repr=False)

    @property
    def mesh(self) -> Mesh:
        return self.device_program.mesh

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.device_program.steps

    @cached_property
    def prices(self) -> tuple[float, ...]:
        """Seconds of each step under the plan's cost model."""
        types = self.device_program.types
        return tuple(self._price(s.action, *(types[v] for v in s.operands)) for s in self.steps)

    @cached_property
    def _price(self) -> Pricer:
        return Pricer(self.cost_model, self.mesh)

    @cached_property
    def schedule(self) -> Schedule:
        """When each step runs. Where the model overlaps nothing (`CostModel`), one after the other."""
        return self._price.schedule(self.device_program)

    @cached_property
    def cost(self) -> Cost:
        """Seconds, and those of communication (steps that issue collectives) and of compute (all others).

        A loop or branch that communicates counts as communication, with the time that its bodies' schedules take.
        """
        communication = sum(p for p, s in zip(self.prices, self.steps, strict=True) if s.action.messages)
        compute = sum(p for p, s in zip(self.prices, self.steps, strict=True) if not s.action.messages)
        total = self.schedule.makespan if self._price.overlap else communication + compute
        return Cost(total, communication, compute)

    @property
    def bound(self) -> float:
        """No plan of the saturated e-graph costs less than this many seconds (certified by the extractor).

        Where only `Search.once` or `Search.terms` is certified the bound is of fewer plans: see `certificate`.
        """
        return min(max(self.search.bound, self.search.once, self.search.terms), self.cost.total)

    @property
    def certificate(self) -> str:
        """Which plans the bound is of: "all plans", "plans that compute nothing twice", or those of them "by the same
        ops" as this plan, where no such bound is known of what the algebra has in their place.

        Bodies of loops and branches are planned on their own; the bound takes them as they are.
        """
        near = self.bound * (1 - 1e-3)
        plans = "all plans" if self.search.bound >= near else "plans that compute nothing twice"
        plans += "" if max(self.search.bound, self.search.once) >= near else ", by the same ops"
        plans += " among the candidates" if self.search.capped else ""
        bodies = any(isinstance(s.action, (Loop, Branch)) for s in self.steps)
        plans += " with these bodies of loops and branches" if bodies else ""
        return plans + (", each conversion paid whole" if self.search.shared and self.cost.communication else "")

    @property
    def gap(self) -> float:
        """(cost - bound) / cost; 0 for a plan that costs nothing."""
        total = self.cost.total
        return 0.0 if total <= 0 else (total - self.bound) / total

    @cached_property
    def received(self) -> np.ndarray:
        """Bytes that each device receives in each step, ``[steps, devices]``."""
        rows = [self.device_program.received(s) for s in self.steps]
        return np.array(rows) if rows else np.zeros((0, self.mesh.size))

    @property
    def wire_bytes(self) -> int:
        """Bytes received by the busiest device over the whole plan (ring formulas)."""
        return int(round(self.received.sum(axis=0).max())) if len(self.steps) else 0

    @property
    def serial_bytes(self) -> int:
        """The busiest device of each collective, added up: what a bulk-synchronous machine waits for."""
        return int(round(self.device_program.serial_bytes))

    @property
    def collectives(self) -> dict[str, int]:
        """How many collectives of each kind the device program issues."""
        return self.device_program.collectives

    @cached_property
    def memory(self) -> Memory:
        """Bytes per device of inputs, outputs and temporaries, as predicted of the compiled program."""
        from eggshard.memory.prediction import predicted

        return predicted(self.device_program)

    @property
    def peak_bytes(self) -> int:
        """All of `memory`: what the compiled program is predicted to take of a device. ``memory_limit`` limits it."""
        return self.memory.peak

    @cached_property
    def flops(self) -> float:
        """Floating-point operations per device."""
        return sum(getattr(s.action, "flops", 0.0) for s in self.steps)

    @cached_property
    def baseline(self) -> Plan:
        """The plan of the propagated shardings, each op resharded on its own: what this plan is compared with.

        The baseline's own baseline is itself, and so is that of a plan read from JSON, which does not hold it.
        """
        return self if self.baseline_factory is None else self.baseline_factory()

    @cached_property
    def reasons(self) -> Reasons:
        """Every decision of the plan: its rules, its alternatives with their prices, and what would change it.

        Found when first asked for. A baseline has none, and says so.
        """
        return self.reasons_for(class_names(self))

    def reasons_for(self, names: Mapping[int, str]) -> Reasons:
        """The same with these names of the tensors of classes (`Held.cls`), as a plan by the same choices has them."""
        if isinstance(self.reasons_factory, Reasons):
            return self.reasons_factory
        if self.reasons_factory is None:
            return Reasons(note=self.search.fallback or "nothing was searched for: this is the baseline")
        return self.reasons_factory(names)

    def run(
        self, *arrays: np.ndarray, engine: str = "numpy", devices: int | Mapping[str, int] | None = None,
        timeout: float | None = None, debug: bool = False,
    ) -> tuple[np.ndarray, ...]:
        """Run on NumPy: global arrays in, global arrays out. No JAX needed.

        engine: ``numpy``, all devices simulated in this process; ``processes``, one process per device on this machine,
        which exchange data through one shared workspace only; ``mpi``, one MPI rank per device on this machine (ranks
        that exist already run plans by `to_mpi`). devices: run on that many, with shards of the same local shapes, as
        `on` has it; the arrays are of the sizes that these make. Of processes and ranks, timeout: seconds for their
        start and for the run; of processes, debug: what nobody wrote is filled with ones, and guards are looked at
        after every step. EngineError where a process dies, does not answer, or writes outside its slice.
        """
        from eggshard.simulate.execution import run_global

        if devices is not None:
            return self.on(devices).run(*arrays, engine=engine, timeout=timeout, debug=debug)
        if engine == "numpy":
            return run_global(self, arrays)
        if engine == "mpi":
            from eggshard.engines.mpi.launching import run_on_ranks

            return run_on_ranks(self, arrays, timeout)
        if engine != "processes":
            raise LoweringError(f"no engine {engine!r} runs plans here; there are numpy, processes and mpi")
        from eggshard.engines.processes.execution import run_on_processes

        return run_on_processes(self, arrays, timeout, debug)[0]

    def verify(
        self, seed: int = 0, engines: tuple[str, ...] = ("numpy", "jax"), inputs: Sequence[Any] | None = None,
        limit: int | None = 1 << 34,
    ) -> Any:
        """Compare with the unsharded program; VerificationError where they differ by more than rounding explains.

        On ``inputs``, one global array each, or on random ones: standard normals, small integers. Deep programs magnify
        rounding on those; give inputs of the size that the program is made for.

        limit: bytes that all devices together may hold at once, as `peak_bytes` counts them; VerificationError before
        anything is run where the plan is larger, since all of it would be simulated on this machine. None: no limit.

        Engines that are not installed, or lack the devices, are skipped and listed as such in the report returned.
        """
        from eggshard.engines.jax.verification import verify

        with Bar(stages=("comparing with the unsharded program",), title="verifying"):
            return verify(self, seed, engines, inputs, limit)

    def compare_with_xla(self) -> Comparison:
        """The plan beside XLA's own program for the same source, both compiled for the devices at hand: print it.

        Wire bytes and collectives counted from the compiled programs, their modelled time under the plan's cost model,
        memory, and seconds to compile. LoweringError where devices are missing, or XLA compiles one of them not.
        """
        from eggshard.engines.jax.comparison import compare_with_xla

        with Bar(stages=("compiling the plan and XLA's program",), title="comparing"):
            return compare_with_xla(self)

    def workspace(self) -> PlanWorkspace:
        """Where every value of the device program lies in one slice of memory per device: print it.

        For engines that own memory.
        """
        from eggshard.engines.workspace.steps import workspace_of

        return workspace_of(self.device_program)

    def to_stablehlo(self) -> str:
        """A StableHLO module with shard-local shapes and explicit collectives."""
        from eggshard.emit.stablehlo import plan_text

        return plan_text(self)

    def to_jax(self) -> Callable[..., Any]:
        """A jittable callable on global arrays with the program's own signature."""
        from eggshard.engines.jax.callable import to_jax

        return to_jax(self)

    def to_mpi(self, comm: Any = None) -> MpiProgram:
        """The plan as a program of MPI ranks: a callable on each rank's shards (``pip install 'eggshard[mpi]'``).

        All ranks of ``comm`` (default ``MPI.COMM_WORLD``) call this together; rank r is logical device r. EngineError
        on all of them where the communicator has another size than the mesh, or ranks hold different plans.
        """
        if importlib.util.find_spec("mpi4py") is None:
            raise EngineError("mpi4py is not installed; pip install 'eggshard[mpi]'")
        from eggshard.engines.mpi.program import MpiProgram

        return MpiProgram(self, comm)

    def on(self, devices: int | Mapping[str, int], program: Any = None) -> Plan:
        """The plan on another number of devices: more or fewer shards of the same local shapes.

        devices: a size per mesh axis (the others stay as they are), or one number for a mesh of one axis. Dimensions
        sharded along these axes grow or shrink with their number. Data-parallel programs, stencils and reductions go
        to any number; LoweringError, naming the step, for a device program whose local shapes depend on the number, or
        whose devices differ by a rule that says nothing of others. Positions near either end of a dimension keep their
        distance from it. A number that the program computed from its sizes, such as a mean's divisor, stays as it is.

        program: the same program at the new sizes, as for `optimize`. It is checked to be that, constants included,
        and is what `verify` compares with; without it there is nothing to compare with.
        """
        from eggshard.plan.scaling import on_devices

        return on_devices(self, devices, program)

    def export(self, platforms: Sequence[str] = ("tpu",)) -> Any:
        """The plan lowered for devices that need not be here: a ``jax.export.Exported`` with the program's signature.

        For a mesh of thousands of devices, on a machine that has none of them::

            blob = plan.export(platforms=("tpu",)).serialize()

        and on the cluster ``jax.export.deserialize(blob).call(*arrays)``, under `jax.jit`, with arrays on a mesh of the
        plan's size (JAX serialises with flatbuffers: ``pip install 'eggshard[export]'``). LoweringError for a plan that
        calls back into Python, or a platform that JAX does not know.
        """
        from eggshard.engines.jax.exporting import export

        return export(self, platforms)

    def to_json(self, reasons: bool = True) -> str:
        """The whole plan as JSON text; `from_json` reads it back. reasons: with the plan's `reasons`, found now if they
        were not asked for before (seconds, for programs of thousands of ops)."""
        from eggshard.plan.serialization import to_json

        return to_json(self, reasons)

    @staticmethod
    def from_json(
        text: str, program: Any = None, mesh: Any = None, cost_model: CostModel | str | None = None
    ) -> Plan:
        """A plan from its JSON text, which may have been written on another machine.

        ProgramError for text of another format, or that another version of eggshard wrote (or of JAX, where the plan
        holds ops as JAX wrote them). program, mesh: what the plan must be for; see `require`. Of a lowered function
        the plan takes over the signature, which JSON does not hold. cost_model: the one that the plan was made under,
        where that is your own: JSON holds its prices of the plan's own steps only, and `compare_with_xla` asks for
        others. CostModelError, naming a step, where it prices them otherwise.
        """
        from eggshard.plan.serialization import from_json

        return from_json(text, program, mesh, cost_model)

    def require(self, program: Any = None, mesh: Any = None) -> Plan:
        """This plan, if it is for this program and this mesh.

        program: as for `optimize`; ProgramError, saying where they differ, if the plan is of one that computes
        something else, or of other sizes or shardings. mesh: MeshError where it has other axes, or orders its devices
        otherwise than the one that was planned for (a mapping from axes to sizes states no order).
        """
        from eggshard.plan.identity import require

        require(self, program, mesh)
        return self

    def agreed(self, timeout: float = 600.0) -> Plan:
        """This plan, if every process of the running JAX program holds it: they all call this.

        Processes that run different plans wait for each other forever. EngineError on all of them where one holds
        another plan, or does not ask within so many seconds. In a program of one process there is nothing to ask.
        """
        if "jax" in sys.modules:
            from eggshard.engines.jax.agreement import agree

            agree(self, timeout=timeout)
        return self

    def explain(self, step: int | str | None = None) -> str:
        """The table of `str(plan)` with the search behind it and the comparison with the baseline.

        Of one step, by its number, or by its address within a loop or branch ("3.body.5"): WHY it is there (the rules
        that led to it), WHAT ELSE there was (alternatives, each with what the plan would cost more), and which prices
        would have to move by how much for the choice to flip (`reasons`).
        """
        from eggshard.report.explanation import explain_step
        from eggshard.report.tables import explain

        return explain(self) if step is None else explain_step(self, step)

    def diff(self, other: Plan, names: tuple[str, str] = ("first", "second")) -> Difference:
        """This plan and another side by side, step by step: print it. EggshardError for what is no plan."""
        from eggshard.report.difference import difference

        if not isinstance(other, Plan):
            raise EggshardError(f"{type(other).__name__} is no plan to compare with; Plan.from_json reads one")

        return difference(self, other, names)

    def to_networkx(self) -> DiGraph:
        """The steps as a ``networkx.DiGraph`` (`report.graphs.to_networkx` lists its attributes)."""
        from eggshard.report.graphs import to_networkx

        return to_networkx(self)

    def to_dot(self) -> str:
        """The steps as text for Graphviz."""
        from eggshard.report.graphs import to_dot

        return to_dot(self)

    def report(self, path: str | Path, comparison: Comparison | None = None) -> Path:
        """Write one HTML page that needs no network: graph, timeline, collectives, who holds what, why, and what else.

        comparison: of `compare_with_xla`, to be shown with the rest. Returns the path.
        """
        from eggshard.report.page_file import write_page

        return write_page(self, path, comparison)

    def _repr_html_(self) -> str:
        from eggshard.report.notebook import plan_html

        return plan_html(self)

    def __repr__(self) -> str:
        from eggshard.report.tables import summary

        return f"<Plan of {summary(self)}>"

    def __str__(self) -> str:
        from eggshard.report.tables import plan_table

        return plan_table(self)
