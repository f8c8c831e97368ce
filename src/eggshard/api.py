"""The public `Plan`: what planning returns, and what can be done with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eggshard.costmodel.protocol import CostModel
from eggshard.errors import EggshardError, LoweringError
from eggshard.extras import named_extras
from eggshard.plan.record import PlanRecord
from eggshard.planner.progress import Bar

if TYPE_CHECKING:
    from networkx import DiGraph

    from eggshard.calibration.plan_steps import Measurement
    from eggshard.engines.jax.comparison import Comparison
    from eggshard.engines.mpi.program import MpiProgram
    from eggshard.engines.workspace.steps import PlanWorkspace
    from eggshard.memory.model import Memory
    from eggshard.plan.proof import Proof
    from eggshard.report.difference import Difference
    from eggshard.report.drawing import Drawings

#: Seconds that the proof of a plan on other devices may take.
_PROOF = 10.0


class Plan(PlanRecord):
    """A plan (`PlanRecord`), and what can be done with it: run, verified, lowered, explained, written."""

    @staticmethod
    def of(record: PlanRecord) -> Plan:
        """Return the plan that a record describes, with what the record has computed already."""
        if isinstance(record, Plan):
            return record
        plan = object.__new__(Plan)
        plan.__dict__.update(record.__dict__)
        return plan

    @cached_property
    def baseline(self) -> Plan:
        """The plan that this one is compared with: propagated shardings, with every op resharded independently.

        The baseline of a baseline is itself, and so is that of a plan read from JSON, which does not hold it.
        """
        return self if self.baseline_factory is None else Plan.of(self.baseline_factory())

    @property
    def memory(self) -> Memory:
        """Bytes per device of inputs, outputs and temporaries, as predicted of the compiled program."""
        from eggshard.memory.prediction import memory_of

        return memory_of(self)

    @property
    def peak_bytes(self) -> int:
        """The bytes of a device that the compiled program is predicted to take; ``memory_limit`` limits them."""
        return self.memory.peak

    def run(
        self, *arrays: np.ndarray, engine: str = "numpy", devices: int | Mapping[str, int] | None = None,
        timeout: float | None = None, debug: bool = False,
    ) -> tuple[np.ndarray, ...]:
        """Run on NumPy: global arrays in, global arrays out. No JAX needed.

        arrays: the program's inputs, or the arguments of the function that it was read from.
        engine: ``numpy``, all devices simulated in this process; ``processes``, one process per device on this machine,
        which exchange data through one shared workspace only; ``mpi``, one MPI rank per device on this machine (ranks
        that exist already run plans by `to_mpi`). devices: run on that many, with shards of the same local shapes, as
        `on` has it; the arrays are of the sizes that these make. Of processes and ranks, timeout: seconds for their
        start and for the run; of processes, debug: what no process wrote is filled with ones, and guards are looked at
        after every step. EngineError where a process dies, does not answer, or writes outside its slice.
        """
        from eggshard.engines.running import run

        return run(self if devices is None else self.on(devices), arrays, engine, timeout, debug)

    def verify(
        self, seed: int = 0, engines: tuple[str, ...] = ("numpy", "jax"), inputs: Sequence[Any] | None = None,
        limit: int | None = 1 << 34,
    ) -> Any:
        """Compare with the unsharded program; VerificationError where they differ by more than rounding explains.

        On ``inputs``, one global array each, or on random ones: standard normals, small integers. What rounding does on
        them is measured: plan and program are compared with the program in double precision, and the plan may be off by
        a small multiple of what the program is. VerificationError, too, where that is so much that it tells nothing;
        give inputs of the size that the program is made for. Programs of f64 are held to a fixed tolerance at first.

        limit: bytes that all devices together may hold at once, as `peak_bytes` counts them, and that the program in
        double precision may; VerificationError before anything is run where either is more, since all of it would be
        on this machine. None: no limit.

        Engines that are not installed, or lack the devices, are skipped and listed as such in the report returned.
        """
        from eggshard.engines.jax.verification import verify

        with Bar(stages=("comparing with the unsharded program",), title="verifying"):
            return verify(self, seed, engines, inputs, limit)

    def prove(self, runs: int | None = None, seed: int = 0, shrink: bool = True, exponents: bool = False) -> Proof:
        """Compare with the program without a tolerance, by evaluating both on random elements of prime fields.

        Sums, products and quotients are exact there; other functions are random ones, equal for equal arguments. So
        equal results show, but for a stated chance (`Proof.bound`), that the plan computes the same expression.
        Rounding, precision and overflow are not looked at, nor what lowering and compiling do: `verify` tests those.

        runs: with other primes and elements; None: as many as bring the chance below 2^-40, also that of elements which
        bits decide (`Proof.choices`) as far as 20 seconds suffice, and at least two. shrink: run at reduced sizes.
        exponents: where the two differ, exp(x + y) is also tried as exp(x) exp(y), with which softmaxes are equal
        whatever is subtracted. Calls of what is not known are refused: the proof then shows nothing, and says why.
        """
        from eggshard.prove.proving import prove

        with Bar(stages=("comparing over prime fields",), title="proving"):
            return prove(self, runs, seed, shrink, exponents=exponents)

    @named_extras()
    def compare_with_xla(self) -> Comparison:
        """Compile the plan and XLA's own program for the devices at hand and return a printable comparison.

        It has wire bytes and collectives counted from the compiled programs, their modelled time under the plan's cost
        model, memory, and seconds to compile. LoweringError where devices are missing, or XLA fails to compile one.
        """
        from eggshard.engines.jax.comparison import compare_with_xla

        with Bar(stages=("compiling the plan and XLA's program",), title="comparing"):
            return compare_with_xla(self)

    @named_extras()
    def measure(self, *args: Any, repeats: int = 5) -> Measurement:
        """Time every step of the plan on the devices at hand, and the whole plan on these arguments.

        The result prints the seconds of each step, predicted and measured; its `refitted` is the machine with what was
        measured. args: as `to_jax` takes them. repeats: how often each step is timed; the median counts. LoweringError
        where devices are missing.
        """
        from eggshard.calibration.plan_steps import measured
        from eggshard.engines.jax.meshes import mesh_of

        function, devices = self.to_jax(), list(mesh_of(self).devices.flat)
        with Bar(stages=("timing the plan's steps",), title="measuring") as bar:
            return measured(self, devices, lambda: function(*args), repeats, bar.part)

    def workspace(self) -> PlanWorkspace:
        """Return the printable workspace: the address of every value in one slice of memory per device.

        It serves engines that own memory.
        """
        from eggshard.engines.workspace.steps import workspace_of

        return workspace_of(self.device_program)

    def to_stablehlo(self) -> str:
        """Return the plan as a StableHLO module with shard-local shapes and explicit collectives."""
        from eggshard.emit.stablehlo import plan_text

        return plan_text(self)

    @named_extras()
    def to_jax(self) -> Callable[..., Any]:
        """Return the plan as a jittable callable on global arrays, with the program's own signature."""
        from eggshard.engines.jax.callable import to_jax

        return to_jax(self)

    @named_extras()
    def to_mpi(self, comm: Any = None) -> MpiProgram:
        """Return the plan as a program of MPI ranks: a callable on a rank's shards (``pip install 'eggshard[mpi]'``).

        All ranks of ``comm`` (default ``MPI.COMM_WORLD``) call this together; rank r is logical device r. EngineError
        on all of them where the communicator has another size than the mesh, or ranks hold different plans.
        """
        from eggshard.engines.mpi.program import MpiProgram

        return MpiProgram(self, comm)

    def on(self, devices: int | Mapping[str, int], program: Any = None) -> Plan:
        """Return the plan for another number of devices, with more or fewer shards of the same local shapes.

        devices: a size per mesh axis (the others stay as they are), or one number for a mesh of one axis. Dimensions
        sharded along these axes grow or shrink with their number. Data-parallel programs, stencils and reductions go
        to any number; LoweringError, naming the step, for a device program whose local shapes depend on the number, or
        whose devices differ by a rule that says nothing of others. Positions near either end of a dimension keep their
        distance from it. A number that the program computed from its sizes, such as a mean's divisor, stays as it is.

        program: the same program at the new sizes, as for `optimize`. It is checked to be that, constants included,
        and is what `verify` compares with; without it there is nothing to compare with. LoweringError, too, where the
        steps are proved to compute something else, such as the sum of a constant over what has grown.
        """
        from eggshard.plan.scaling import on_devices

        plan = Plan.of(on_devices(self, devices, program))
        if program is not None:
            from eggshard.prove.proving import prove

            proof = prove(plan, within=_PROOF)
            if proof.equal is False:
                raise LoweringError(
                    f"the steps compute something else than {plan.program.name} on {plan.mesh}: {proof.difference}; "
                    "plan for that number of devices")
        return plan

    @named_extras()
    def export(self, platforms: Sequence[str] = ("tpu",)) -> Any:
        """Lower the plan for devices that need not be present, to a ``jax.export.Exported`` of the same signature.

        For a mesh of thousands of devices, on a machine that has none of them::

            blob = plan.export(platforms=("tpu",)).serialize()

        and on the cluster ``jax.export.deserialize(blob).call(*arrays)``, under `jax.jit`, with arrays on a mesh of the
        plan's size (JAX serialises with flatbuffers: ``pip install 'eggshard[export]'``). LoweringError for a plan that
        calls back into Python, or a platform that JAX does not know.
        """
        from eggshard.engines.jax.exporting import export

        return export(self, platforms)

    def to_json(self, reasons: bool = True) -> str:
        """Write the whole plan as JSON text, which `from_json` reads back.

        reasons: include the plan's `reasons`, which are computed now if they were not before (this takes seconds for
        programs of thousands of ops).
        """
        from eggshard.plan.serialization import to_json

        return to_json(self, reasons)

    @staticmethod
    def from_json(
        text: str | Path, program: Any = None, mesh: Any = None, cost_model: CostModel | str | None = None
    ) -> Plan:
        """Read a plan from its JSON text, or the path of a file of it, which may have been written on another machine.

        ProgramError for text of another format, or that another version of eggshard wrote (or of JAX, where the plan
        holds ops as JAX wrote them). program, mesh: what the plan must be for; see `require`. Of a lowered function
        the plan takes over the signature, which JSON does not hold. cost_model: the one that the plan was made under,
        where that is your own: JSON holds its prices of the plan's own steps only, and `compare_with_xla` asks for
        others. CostModelError, naming a step, where it prices them otherwise.
        """
        from eggshard.plan.serialization import from_json

        return Plan.of(from_json(text, program, mesh, cost_model))

    def require(self, program: Any = None, mesh: Any = None) -> Plan:
        """Return this plan if it was made for this program and this mesh.

        program: as for `optimize`; ProgramError, saying where they differ, if the plan is of one that computes
        something else, or of other sizes or shardings. mesh: MeshError where it has other axes, or orders its devices
        otherwise than the one that was planned for (a mapping from axes to sizes states no order).
        """
        from eggshard.plan.identity import require

        require(self, program, mesh)
        return self

    def agreed(self, timeout: float = 600.0) -> Plan:
        """Return this plan if every process of the running JAX program holds it; all of them must call this.

        Processes that run different plans would wait for each other forever. EngineError on all of them if one holds
        another plan, or does not call within ``timeout`` seconds. In a program of one process nothing is exchanged.
        """
        if "jax" in sys.modules:
            from eggshard.engines.jax.agreement import agree

            agree(self, timeout=timeout)
        return self

    def explain(self, step: int | str | None = None) -> str:
        """Explain the plan: the table of `str(plan)`, the search behind it, and the comparison with the baseline.

        For one step, given by its number or by its address within a loop or branch ("3.body.5"), explain WHY it is
        there (the rules that led to it), WHAT ELSE there was (alternatives, each with the plan's extra cost), and which
        prices would have to change by how much for the choice to flip (`reasons`).
        """
        from eggshard.report.explanation import explain_step
        from eggshard.report.tables import explain

        return explain(self) if step is None else explain_step(self, step)

    def diff(self, other: PlanRecord, names: tuple[str, str] = ("first", "second")) -> Difference:
        """Return a printable step-by-step comparison with another plan. EggshardError for anything that is no plan."""
        from eggshard.report.difference import difference

        if not isinstance(other, PlanRecord):
            raise EggshardError(f"{type(other).__name__} is no plan to compare with; Plan.from_json reads one")

        return difference(self, other, names)

    def to_networkx(self) -> DiGraph:
        """Return the steps as a ``networkx.DiGraph`` (`report.graphs.to_networkx` lists its attributes)."""
        from eggshard.report.graphs import to_networkx

        return to_networkx(self)

    def to_dot(self) -> str:
        """Return the steps as text for Graphviz."""
        from eggshard.report.graphs import to_dot

        return to_dot(self)

    def to_model_explorer(self, path: str | Path) -> Path:
        """Write the steps, and those of loops' and branches' bodies, as JSON for Model Explorer. Returns the path."""
        from eggshard.report.model_explorer import write_model_explorer

        return write_model_explorer(self, path)

    def visualize_sharding(self, name: str | None = None) -> Drawings:
        """Draw which devices hold which block of a tensor, as `jax.debug.visualize_array_sharding` does.

        name: of an input, an output, or a value such as ``%3``, as ``print(plan)`` has it; None: all inputs and
        outputs. The result prints as text, and in notebooks in colours. EggshardError for a name that there is not.
        """
        from eggshard.report.drawing import drawings

        return drawings(self, name)

    def to_perfetto(self, path: str | Path, measurement: Measurement | None = None) -> Path:
        """Write when each step runs on a device and its links, to be opened in Perfetto or XProf. Returns the path.

        path: ends in ``.pftrace`` (``pip install 'eggshard[perfetto]'``), or in ``.json`` or ``.json.gz`` for trace
        events, which both read. measurement: of `measure`, beside the prices. EggshardError where the cost model counts
        something else than seconds.
        """
        from eggshard.report.trace import write_trace

        return write_trace(self, path, measurement)

    def report(self, path: str | Path, comparison: Comparison | None = None) -> Path:
        """Write one HTML page that needs no network: graph, timeline, collectives, who holds what, why, and what else.

        comparison: of `compare_with_xla`, to be shown with the rest. Returns the path.
        """
        from eggshard.report.page_file import page, write_page

        return write_page(page(self, comparison), path)

    def _repr_html_(self) -> str:
        from eggshard.report.notebook import plan_html

        return plan_html(self)

    def __repr__(self) -> str:
        from eggshard.report.tables import summary

        return f"<Plan of {summary(self)}>"

    def __str__(self) -> str:
        from eggshard.report.tables import plan_table

        return plan_table(self)
