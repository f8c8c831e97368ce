"""Verification of a plan against its program: equal random inputs through both, on every available engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from eggshard.engines.jax.judgement import LEAST, Arrays, Judgement, Reference, difference, judged, tolerance
from eggshard.engines.running import ENGINES, run
from eggshard.errors import EggshardError, LoweringError, VerificationError
from eggshard.memory.prediction import memory_of
from eggshard.ops.evaluate import evaluate_program
from eggshard.ops.widening import evaluation_bytes, jumps, widened, widened_arrays
from eggshard.program.program import Program
from eggshard.program.types import TensorType, is_float, numpy_dtype
from eggshard.tables import Shown

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord


@dataclass(frozen=True, repr=False)
class Verification(Shown):
    """What was compared: per engine the judgement of every output, or why it was skipped.

    fixed: why rounding was taken for what it is of any program, where it could not be measured; else empty.
    """

    judgements: dict[str, list[Judgement]]
    skipped: dict[str, str]
    fixed: str = ""

    @property
    def differences(self) -> dict[str, float]:
        """Per engine the largest difference from the unsharded program, relative to an output's largest magnitude."""
        return {engine: max((j.difference for j in found), default=0.0) for engine, found in self.judgements.items()}

    def __str__(self) -> str:
        lines = []
        for engine, apart in self.differences.items():
            lines.append(f"{engine}: equal to the unsharded program" + (f" to {apart:.1e}" if apart else ""))
            found = self.judgements[engine]
            if apart:
                nearest = max(found, key=lambda j: j.plan.largest / max(j.allowed.largest, LEAST))
                lines[-1] += f"; {nearest.why}"
            silent = [str(i) for i, j in enumerate(found) if not j.telling]
            if silent:
                lines[-1] += f"; of output {', '.join(silent)} this says nothing, rounding alone makes it"
        if self.fixed and any(self.differences.values()):
            lines.append(f"rounding was not measured: {self.fixed}")
        return "\n".join(lines + [f"{engine}: skipped, {why}" for engine, why in self.skipped.items()])


def random_array(type_: TensorType, rng: np.random.Generator) -> np.ndarray:
    """Values that a program of this input type can usually take: standard normals, small non-negative integers."""
    dtype = numpy_dtype(type_.dtype)
    if type_.dtype == "i1":
        return np.asarray(rng.integers(0, 2, type_.shape), dtype)
    if type_.dtype.startswith("complex"):
        return np.asarray(rng.standard_normal(type_.shape) + 1j * rng.standard_normal(type_.shape), dtype)
    if is_float(type_.dtype):
        return np.asarray(rng.standard_normal(type_.shape), dtype)
    return np.asarray(rng.integers(0, 4, type_.shape), dtype)


def compare(
    engine: str, got: Sequence[np.ndarray], want: Sequence[np.ndarray], types: Sequence[TensorType]
) -> float:
    """The largest difference over all outputs; VerificationError where one is larger than rounding explains."""
    worst = 0.0
    for i, (g, w, t) in enumerate(zip(got, want, types, strict=True)):
        d = difference(np.asarray(g), np.asarray(w))
        allowed = tolerance(t.dtype)
        if not d <= allowed:
            raise VerificationError(
                f"output {i} ({t}) on {engine} differs from the unsharded program by {d:.3e} of its largest magnitude; "
                f"at most {allowed:.1e} is rounding"
            )
        worst = max(worst, d)
    return worst


def given_inputs(types: Sequence[TensorType], inputs: Sequence[Any]) -> list[np.ndarray]:
    """The inputs as arrays; VerificationError unless there is one for each type, of its shape and element type."""
    arrays = [np.asarray(value) for value in inputs]
    if len(arrays) != len(types):
        raise VerificationError(f"{len(arrays)} inputs for a program that takes {len(types)}; give one array for each")
    for i, (array, type_) in enumerate(zip(arrays, types, strict=True)):
        if array.shape != type_.shape or array.dtype != numpy_dtype(type_.dtype):
            raise VerificationError(f"input {i} is {array.dtype}{list(array.shape)}; the program takes {type_}")
    return arrays


def _widened(program: Program) -> tuple[Program | None, str]:
    """The program in double precision; else None, and why not."""
    try:
        return widened(program), ""
    except EggshardError as error:
        return None, str(error)


def _exact(program: Program, inputs: Arrays) -> tuple[Arrays | None, str]:
    """The outputs of a widened program; else None, and why there are none."""
    try:
        with np.errstate(all="ignore"):
            return evaluate_program(program, widened_arrays(inputs)), ""
    except EggshardError as error:
        return None, str(error)


def _runs(plan: PlanRecord, engine: str) -> tuple[Callable[[Arrays], Arrays], Callable[[Arrays], Arrays]]:
    """How an engine runs the plan, and the unsharded program; LoweringError where it is not here."""
    if engine in ENGINES:
        if engine == "mpi" and importlib.util.find_spec("mpi4py") is None:
            raise LoweringError("mpi4py is not installed")
        return partial(run, plan, engine=engine), partial(evaluate_program, plan.program)
    if importlib.util.find_spec("jax") is None:
        raise LoweringError("JAX is not installed")
    from eggshard.engines.jax.callable import run_on_devices, run_unsharded

    return partial(run_on_devices, plan), partial(run_unsharded, plan.program)


def verify(
    plan: PlanRecord, seed: int, engines: Sequence[str], inputs: Sequence[Any] | None, limit: int | None = None
) -> Verification:
    """Run plan and program on the same inputs. See `Plan.verify`."""
    program = plan.program
    wide, fixed = _widened(program)
    peak, whole = memory_of(plan).peak, evaluation_bytes((wide or program).region)
    held = max(plan.mesh.size * peak, whole)
    if limit is not None and held > limit:
        raise VerificationError(
            f"{plan.mesh.size} devices with {peak / 2**30:.3g} GiB each, or the unsharded program in double precision "
            f"with {whole / 2**30:.3g} GiB, would hold {held / 2**30:.3g} GiB at once, more than the limit of "
            f"{limit / 2**30:.3g} GiB; verify a plan of the same program with smaller sizes or on a smaller mesh, or "
            "give verify(limit=None) to go on"
        )
    unknown = [engine for engine in engines if engine not in (*ENGINES, "jax")]
    if unknown:
        raise LoweringError(f"no engine {unknown[0]!r}; there are {', '.join(ENGINES)} and jax")
    rng = np.random.default_rng(seed)
    arrays = ([random_array(t, rng) for t in program.input_types] if inputs is None
              else given_inputs(program.input_types, inputs))
    exact: Arrays | None = None
    if wide is not None:
        exact, fixed = _exact(wide, arrays)
    judgements: dict[str, list[Judgement]] = {}
    skipped: dict[str, str] = {}
    references: dict[bool, Reference] = {}
    for engine in engines:
        xla = engine == "jax"
        try:
            planned, unsharded = _runs(plan, engine)
            if xla not in references:
                references[xla] = Reference(arrays, unsharded(arrays), exact, unsharded, jumps(program.region))
            got = planned(arrays)
        except LoweringError as error:
            skipped[engine] = str(error)
            continue
        judgements[engine] = judged(engine, got, program.output_types, references[xla])
    if not judgements:
        raise VerificationError("nothing was compared: " + "; ".join(f"{e}: {why}" for e, why in skipped.items()))
    return Verification(judgements, skipped, fixed)
