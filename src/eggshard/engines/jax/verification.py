"""Checking a plan against its program: the same random inputs through both, on every engine at hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eggshard.engines.running import ENGINES, run
from eggshard.errors import LoweringError, VerificationError
from eggshard.memory.prediction import memory_of
from eggshard.ops.evaluate import evaluate_program
from eggshard.program.types import TensorType, is_float, numpy_dtype

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Largest difference allowed where sums may be reassociated, in units of machine epsilon times the largest magnitude.
ROUNDING = 512.0


@dataclass(frozen=True)
class Verification:
    """What was compared: per engine the largest difference relative to the largest magnitude, or why it was skipped."""

    differences: dict[str, float]
    skipped: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{engine}: equal to the unsharded program" + ("" if d == 0 else f" to {d:.1e}")
                 for engine, d in self.differences.items()]
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


def difference(got: np.ndarray, want: np.ndarray) -> float:
    """Largest absolute difference over the largest finite magnitude of ``want``; inf where NaN or infinities differ."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return np.inf
    if got.dtype.kind not in "fcV" and not np.issubdtype(got.dtype, np.inexact):
        try:
            wide_got, wide_want = got.astype(np.float64), want.astype(np.float64)
        except (TypeError, ValueError):
            return 0.0 if np.array_equal(got, want) else np.inf
        if got.dtype.kind in "iub":
            return 0.0 if np.array_equal(got, want) else np.inf
    else:
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        wide_got, wide_want = got.astype(wide), want.astype(wide)
    finite = np.isfinite(wide_want)
    same = (wide_got == wide_want) | (np.isnan(wide_got) & np.isnan(wide_want))
    if not same[~finite].all() or not np.isfinite(wide_got[finite]).all():
        return np.inf
    if not finite.any():
        return 0.0
    return float(np.abs(wide_got[finite] - wide_want[finite]).max() / max(np.abs(wide_want[finite]).max(), 1e-30))


def tolerance(dtype: str) -> float:
    """The largest `difference` that rounding explains; 0 for integers and booleans."""
    if not is_float(dtype):
        return 0.0
    base = {"complex<f32>": "f32", "complex<f64>": "f64"}.get(dtype, dtype)
    if base == "f64":
        return float(ROUNDING * np.finfo(np.float64).eps)
    if base == "f32":
        return float(ROUNDING * np.finfo(np.float32).eps)
    import ml_dtypes

    return float(8 * ml_dtypes.finfo(numpy_dtype(base)).eps)


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


def verify(
    plan: PlanRecord, seed: int, engines: Sequence[str], inputs: Sequence[Any] | None, limit: int | None = None
) -> Verification:
    """Run plan and program on the same inputs. See `Plan.verify`."""
    peak = memory_of(plan).peak
    held = plan.mesh.size * peak
    if limit is not None and held > limit:
        raise VerificationError(
            f"{plan.mesh.size} devices with {peak / 2**30:.3g} GiB each would hold {held / 2**30:.3g} GiB "
            f"at once, more than the limit of {limit / 2**30:.3g} GiB; verify a plan of the same program with smaller "
            "sizes or on a smaller mesh, or give verify(limit=None) to go on"
        )
    rng = np.random.default_rng(seed)
    program = plan.program
    if inputs is None:
        inputs = [random_array(t, rng) for t in program.input_types]
    else:
        inputs = given_inputs(program.input_types, inputs)
    got: Sequence[np.ndarray]
    want: Sequence[np.ndarray]
    differences: dict[str, float] = {}
    skipped: dict[str, str] = {}
    for engine in engines:
        if engine in ENGINES:
            if engine == "mpi" and importlib.util.find_spec("mpi4py") is None:
                skipped[engine] = "mpi4py is not installed"
                continue
            try:
                want = evaluate_program(program, inputs)
                got = run(plan, inputs, engine)
            except LoweringError as error:
                skipped[engine] = str(error)
                continue
        elif engine == "jax":
            if importlib.util.find_spec("jax") is None:
                skipped[engine] = "JAX is not installed"
                continue
            from eggshard.engines.jax.callable import run_on_devices, run_unsharded

            try:
                got = run_on_devices(plan, inputs)
                want = run_unsharded(program, inputs)
            except LoweringError as error:
                skipped[engine] = str(error)
                continue
        else:
            raise LoweringError(f"no engine {engine!r}; there are {', '.join(ENGINES)} and jax")
        differences[engine] = compare(engine, got, want, program.output_types)
    if not differences:
        raise VerificationError("nothing was compared: " + "; ".join(f"{e}: {why}" for e, why in skipped.items()))
    return Verification(differences, skipped)
