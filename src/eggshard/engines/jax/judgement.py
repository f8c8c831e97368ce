"""Judgement whether rounding explains a plan's errors, measured on the unsharded program itself.

Both are compared with the unsharded program in double precision. A plan sums in another order and rounds other
intermediate results, so its errors are another draw from the program's distribution. They may be `FACTOR` times as
large, plus `UNITS` units in the last place of the largest magnitude for programs that happen to be exact. This bounds
both the largest and the mean error of an output: where loops magnify rounding, a few elements are far off in any order
of summation, but only a few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import ml_dtypes
import numpy as np

from eggshard.errors import VerificationError
from eggshard.ops.numerics import part_dtype
from eggshard.program.types import TensorType, is_float, mlir_dtype, numpy_dtype

#: Errors of a plan may be this many times the unsharded program's own.
FACTOR = 8.0
#: Units in the last place that an output may err besides.
UNITS = 4.0
#: The largest difference where rounding is not measured, in machine epsilons: of f32 and f64, and of narrower types.
ROUNDING, NARROW_ROUNDING = 512.0, 8.0
#: Runs of the unsharded program on inputs one rounding away, before a plan is called wrong.
RUNS = 3
#: Stands for the largest magnitude of outputs that are all zero.
LEAST = 1e-30

Arrays = Sequence[np.ndarray]


def epsilon(dtype: str) -> float:
    """The distance from 1 to the next number of a float type, or of a complex type's parts."""
    return float(ml_dtypes.finfo(numpy_dtype(part_dtype(dtype))).eps)


def tolerance(dtype: str) -> float:
    """The largest `difference` that is taken for rounding of any program; 0 for integers and booleans."""
    if not is_float(dtype):
        return 0.0
    return (ROUNDING if part_dtype(dtype) in ("f32", "f64") else NARROW_ROUNDING) * epsilon(dtype)


class Errors(NamedTuple):
    """Distances from an output's exact elements, relative to its largest magnitude."""

    largest: float
    mean: float

    def within(self, allowed: Errors) -> bool:
        return self.largest <= allowed.largest and self.mean <= allowed.mean

    def __str__(self) -> str:
        return f"{self.largest:.1e} (mean {self.mean:.1e})"


class Judgement(NamedTuple):
    """An output held against its exact value: errors of the plan, of the unsharded program, and those allowed.

    difference: between plan and program. exact: whether the program in double precision was the measure, or itself.
    telling: False where even zeros would have passed.
    """

    difference: float
    plan: Errors
    program: Errors
    allowed: Errors
    exact: bool
    telling: bool

    @property
    def why(self) -> str:
        """The errors in words."""
        if not self.exact:
            return f"at most {self.allowed.largest:.1e} is rounding"
        return (f"off the exact result: the plan by {self.plan}, the unsharded program by {self.program}; "
                f"up to {self.allowed} is rounding")


class Reference:
    """What a plan is judged by on one engine: the outputs of the unsharded program there, and in double precision.

    exact: the latter, None where there are none. rerun: the former from other inputs. jumps: roundings of which the
    program's own run may show none can change a few elements by far more; they get `tolerance` at least.
    """

    def __init__(self, inputs: Arrays, outputs: Arrays, exact: Arrays | None, rerun: Callable[[Arrays], Arrays],
                 jumps: bool):
        self.inputs, self.outputs, self.exact, self._rerun = inputs, list(map(np.asarray, outputs)), exact, rerun
        self._jumps = jumps
        self._neighbours: list[Arrays] | None = None

    def judge(self, number: int, type_: TensorType, got: np.ndarray) -> Judgement:
        """Judge output ``number`` of a plan."""
        want = self.outputs[number]
        exact = want if self.exact is None else self.exact[number]
        apart = difference(got, want)
        if not is_float(type_.dtype) or got.shape != want.shape or got.dtype != want.dtype:
            none = Errors(0.0, 0.0)
            return Judgement(apart, Errors(apart, apart), none, none, False, True)
        error, own = errors(got, want, exact), errors(want, want, exact)
        allowed = self._allowed(own, type_.dtype)
        if not error.within(allowed) and np.isfinite(error.largest):
            near = [errors(np.asarray(run[number]), want, exact) for run in self._near()]
            own = Errors(*(max([a, *(b for b in found if np.isfinite(b))])
                           for a, found in zip(own, zip(*near, strict=True), strict=True)))
            allowed = self._allowed(own, type_.dtype)
        zeros = errors(np.zeros_like(want), want, exact)
        telling = allowed.largest < 1 or not zeros.within(allowed)
        return Judgement(apart, error, own, allowed, self.exact is not None, telling)

    def _allowed(self, own: Errors, dtype: str) -> Errors:
        least = tolerance(dtype) if self.exact is None or self._jumps else 0.0
        return Errors(*(max(FACTOR * e + UNITS * epsilon(dtype), least) for e in own))

    def _near(self) -> list[Arrays]:
        if self._neighbours is None:
            rng = np.random.default_rng(0)
            self._neighbours = [self._rerun([neighbour(a, rng) for a in self.inputs]) for _ in range(RUNS)]
        return self._neighbours


def neighbour(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Floats of f32 or more moved to one of the next numbers, at random, as if they had been rounded otherwise.

    Numbers of few digits stay: they are meant.
    """
    if array.dtype.kind == "c":
        parts = np.ascontiguousarray(array).reshape(-1).view(array.real.dtype)
        return neighbour(parts, rng).view(array.dtype).reshape(array.shape)
    if array.dtype.kind != "f" or array.dtype.itemsize < 4:
        return array
    short = array.astype(ml_dtypes.bfloat16).astype(array.dtype) == array
    towards = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    return np.where(short | ~np.isfinite(array), array, np.nextafter(array, towards))


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def difference(got: np.ndarray, want: np.ndarray) -> float:
    """Largest absolute difference over the largest finite magnitude of ``want``; inf where NaN or infinities differ."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return np.inf
    if not is_float(mlir_dtype(got.dtype)):
        return 0.0 if np.array_equal(got, want) else np.inf
    return errors(got, want, want).largest


def errors(got: np.ndarray, want: np.ndarray, exact: np.ndarray) -> Errors:
    """How far ``got`` is from ``exact``, where the program's own run ``want`` and that are finite.

    Elsewhere ``got`` may be what either is (infinite, or NaN), or near the one that is finite; else the errors are inf.
    """
    if not got.size:
        return Errors(0.0, 0.0)
    found, own, aim = _wide(got), _wide(want), _wide(exact)
    both = np.isfinite(own) & np.isfinite(aim)
    aim = np.where(np.isfinite(aim), aim, own)
    with np.errstate(all="ignore"):
        apart = np.abs(found - aim)
        stored = _wide(aim.astype(want.dtype))
    for odd in (own, stored):
        same = (found == odd) | (np.isnan(found) & np.isnan(odd))
        apart = np.where(~np.isfinite(odd) & same, 0, apart)
    if not np.isfinite(apart).all():
        return Errors(np.inf, np.inf)
    measured = np.abs(aim)[both if both.any() else np.isfinite(aim)]
    scale = max(float(measured.max(initial=0)), LEAST)
    return Errors(float(apart.max()) / scale, float(apart.mean()) / scale)


def judged(engine: str, got: Arrays, types: Sequence[TensorType], reference: Reference) -> list[Judgement]:
    """The judgements of a plan's outputs; VerificationError for one that rounding does not explain."""
    found = []
    for i, (array, type_) in enumerate(zip(got, types, strict=True)):
        judgement = reference.judge(i, type_, np.asarray(array))
        if not judgement.plan.within(judgement.allowed):
            raise VerificationError(
                f"output {i} ({type_}) on {engine} differs from the unsharded program by {judgement.difference:.3e} of "
                f"its largest magnitude; {judgement.why}")
        found.append(judgement)
    if found and not any(judgement.telling for judgement in found):
        raise VerificationError(
            f"these inputs tell nothing of the plan on {engine}: zeros would be as near to the exact outputs as the "
            f"unsharded program is; give verify inputs of the size that the program is made for")
    return found
