"""Linear algebra: Fourier transforms, Cholesky factors, triangular systems."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.base import REPLICATE, Arrays, Factor, FactorRule, OpDef, Regions, Results, Types, register
from eggshard.ops.factor_table import labelled_rule
from eggshard.ops.signatures import require_class, require_count
from eggshard.program import codec
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType, mlir_dtype, numpy_dtype

_TRANSFORMS: dict[str, Callable[..., np.ndarray]] = {
    "FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn, "IRFFT": np.fft.irfftn,
}  # fmt: skip


class _Fft(OpDef):
    """The transform of ``fft_type`` FFT, IFFT, RFFT or IRFFT over the last ``len(fft_length)`` dimensions."""

    name = "fft"
    attributes = {"fft_type": codec.FFT_TYPE, "fft_length": codec.Integers()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        x, kind, length = operands[0], attrs["fft_type"], tuple(attrs["fft_length"])
        if kind not in _TRANSFORMS or not 1 <= len(length) <= min(3, x.rank):
            raise ProgramError(f"fft type {kind!r} over lengths {length} does not exist for {x}")
        require_class(x, "f" if kind == "RFFT" else "c")
        if x.dtype not in ("f32", "f64", "complex<f32>", "complex<f64>"):
            raise ProgramError(f"{x} is of neither single nor double precision")
        half = (*length[:-1], length[-1] // 2 + 1)
        if x.shape[-len(length) :] != (half if kind == "IRFFT" else length):
            raise ProgramError(f"the last dimensions of {x} do not fit fft lengths {length}")
        shape = x.shape[: -len(length)] + (half if kind == "RFFT" else length)
        dtype = f"complex<{x.dtype}>" if kind == "RFFT" else x.dtype
        return (TensorType(shape, numerics.part_dtype(dtype) if kind == "IRFFT" else dtype),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        passing = operands[0].rank - len(attrs["fft_length"])
        row = [d if d < passing else None for d in range(operands[0].rank)]
        return labelled_rule(operands, results, (row, row), linear=(("add", (0,)),))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        x, length = arrays[0], tuple(attrs["fft_length"])
        if 0 in x.shape or 0 in length:  # NumPy refuses to transform nothing
            (made,) = self.infer(attrs, (TensorType(x.shape, mlir_dtype(x.dtype)),))
            return (np.zeros(made.shape, numpy_dtype(made.dtype)),)
        with np.errstate(all="ignore"):
            return (_TRANSFORMS[attrs["fft_type"]](x, length, tuple(range(x.ndim - len(length), x.ndim))),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        """5 N log2 N of a complex transform of N points, half of it for a real one (the FFTW benchmark's count)."""
        points = math.prod(attrs["fft_length"])
        count = math.prod(operands[0].shape[: operands[0].rank - len(attrs["fft_length"])])
        real = 0.5 if attrs["fft_type"] in ("RFFT", "IRFFT") else 1.0
        return real * 5.0 * count * points * math.log2(points) if points > 1 else float(count)


def _require_square(a: TensorType) -> None:
    require_class(a, "fc")
    if a.rank < 2 or a.shape[-1] != a.shape[-2]:
        raise ProgramError(f"{a} is no batch of square matrices")


class _Cholesky(OpDef):
    """The triangular factor of Hermitian matrices, of which the ``lower`` (or upper) triangle is read.

    The other triangle of the result is zero here; StableHLO leaves it open. Matrices that are not positive definite
    give NaN.
    """

    name = "cholesky"
    attributes = {"lower": codec.Flag(default=False)}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        _require_square(operands[0])
        return (operands[0],)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        (a,) = operands
        matrix = {d: Factor(a.shape[d], REPLICATE) for d in (a.rank - 2, a.rank - 1)}
        return labelled_rule(operands, results, (range(a.rank),) * 2, matrix)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        a = numerics.widened(arrays[0])
        a = a if attrs["lower"] else _adjoint(a)
        factor = np.zeros_like(a)
        with np.errstate(all="ignore"):
            for j in range(a.shape[-1]):
                done = factor[..., j, :j]
                column = a[..., j:, j] - np.einsum("...ik,...k->...i", factor[..., j:, :j], done.conj())
                # A complex pivot is real but for rounding, and the square root of a negative one is NaN.
                pivot = np.sqrt(column[..., :1].real)
                factor[..., j:, j] = column / pivot
                factor[..., j, j] = pivot[..., 0]
        return (numerics.narrowed(factor if attrs["lower"] else _adjoint(factor), mlir_dtype(arrays[0].dtype)),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return operands[0].elements * operands[0].shape[-1] / 3


class _TriangularSolve(OpDef):
    """X of ``op(a) X = b`` (``left_side``) or ``X op(a) = b`` for triangular ``a``.

    ``transpose_a`` says which op: NO_TRANSPOSE, TRANSPOSE or ADJOINT; ``unit_diagonal`` takes ones for a's diagonal.
    """

    name = "triangular_solve"
    attributes = {
        "left_side": codec.Flag(),
        "lower": codec.Flag(),
        "unit_diagonal": codec.Flag(),
        "transpose_a": codec.TRANSPOSE,
    }

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 2)
        a, b = operands
        _require_square(a)
        if a.dtype != b.dtype:
            raise ProgramError("operands have different element types; convert makes them equal")
        side = -2 if attrs["left_side"] else -1
        if b.rank != a.rank or a.shape[:-2] != b.shape[:-2] or b.shape[side] != a.shape[-1]:
            raise ProgramError(f"{b} is no right-hand side of {a}")
        if attrs["transpose_a"] not in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
            raise ProgramError(f"transpose_a {attrs['transpose_a']!r} is none of NO_TRANSPOSE TRANSPOSE ADJOINT")
        return (b,)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        a, batch = operands[0], tuple(range(operands[0].rank - 2))
        left, transposed = attrs["left_side"], attrs["transpose_a"] != "NO_TRANSPOSE"
        # op(a) X = b is [i, k] [k, j] = [i, j], and X op(a) = b is [j, k] [k, i] = [j, i].
        triangle, right, solution = ("ki" if left == transposed else "ik"), *(("ij", "kj") if left else ("ji", "jk"))
        kinds = {label: Factor(a.shape[-1], REPLICATE) for label in "ik"}
        labels = ((*batch, *matrix) for matrix in (triangle, right, solution))
        return labelled_rule(operands, results, tuple(labels), kinds, (("add", (1,)),), order=(*batch, *right, "k"))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        a, b = (numerics.widened(x) for x in arrays)
        lower = attrs["lower"]
        if attrs["transpose_a"] != "NO_TRANSPOSE":
            a, lower = np.swapaxes(a.conj() if attrs["transpose_a"] == "ADJOINT" else a, -1, -2), not lower
        if not attrs["left_side"]:
            a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
        x = np.array(b)
        n = a.shape[-1]
        with np.errstate(all="ignore"):
            for i in range(n) if lower else reversed(range(n)):
                solved = slice(0, i) if lower else slice(i + 1, n)
                x[..., i, :] -= np.einsum("...k,...kj->...j", a[..., i, solved], x[..., solved, :])
                if not attrs["unit_diagonal"]:
                    x[..., i, :] /= a[..., i, i, None]
        x = x if attrs["left_side"] else np.swapaxes(x, -1, -2)
        return (numerics.narrowed(x, mlir_dtype(arrays[0].dtype)),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return float(operands[1].elements * operands[0].shape[-1])


def _adjoint(a: np.ndarray) -> Any:
    return np.swapaxes(a.conj(), -1, -2)


for _definition in (_Fft(), _Cholesky(), _TriangularSolve()):
    register(_definition)
