"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.arithmetic import current
from eggshard.ops.base import REDUCE, Arrays, Factor, FactorRule, OpDef, Types, register
from eggshard.ops.signatures import require_count
from eggshard.program import codec
from eggshard.program.attributes import Attributes
from eggshard.program.program import Region
from eggshard.program.types import TensorType, is_float, numpy_dtype


class _DotGeneral(OpDef):
    """Batched products: result dimensions are batch, then lhs free, then rhs free; ``dtype`` is the result's.

    ``dot_dimension_numbers`` holds ``lhs_batching_dimensions``, ``rhs_batching_dimensions``,
    ``lhs_contracting_dimensions`` and ``rhs_contracting_dimensions``.
    """

    name = "dot_general"
    attributes = {
        "dot_dimension_numbers": codec.DOT_DIMENSIONS,
        "precision_config": codec.PRECISION.optional(),
        "algorithm": codec.DOT_ALGORITHM.optional(),
    }

    def dimensions(self, attrs: Attributes, operands: Types) -> Attributes:
        """The dimension numbers."""
        numbers: Attributes = attrs["dot_dimension_numbers"]
        return numbers

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        require_count(operands, 2)
        lhs, rhs = operands
        numbers = self.dimensions(attrs, operands)
        pairs = []
        for kind in ("batching", "contracting"):
            left, right = numbers[f"lhs_{kind}_dimensions"], numbers[f"rhs_{kind}_dimensions"]
            if len(left) != len(right):
                raise ProgramError(f"{kind} dimensions {left} and {right} do not pair up")
            pairs += list(zip(left, right, strict=True))
        for side, t in enumerate(operands):
            dims = [p[side] for p in pairs]
            if len(set(dims)) != len(dims) or any(not 0 <= d < t.rank for d in dims):
                raise ProgramError(f"dimensions {dims} of {t} repeat or do not exist")
        for i, j in pairs:
            if lhs.shape[i] != rhs.shape[j]:
                raise ProgramError(f"dimension {i} of {lhs} and dimension {j} of {rhs} differ in size")
        if (lhs.dtype == "i1") != (rhs.dtype == "i1") or is_float(lhs.dtype) != is_float(rhs.dtype):
            raise ProgramError("operands mix float, integer and i1 element types; convert one of them")
        batch, left_free, right_free, _ = self._roles(numbers, operands)
        shape = [lhs.shape[i] for i in (*batch, *left_free)] + [rhs.shape[j] for j in right_free]
        dtype = attrs.get("dtype") or lhs.dtype
        numpy_dtype(dtype)
        return (TensorType(tuple(shape), dtype),)

    def _roles(self, numbers: Attributes, operands: Types) -> tuple[tuple[int, ...], ...]:
        """Batch dimensions of lhs, free ones of lhs and rhs, contracting ones of lhs."""
        lhs, rhs = operands
        batch, contracting = numbers["lhs_batching_dimensions"], numbers["lhs_contracting_dimensions"]
        taken = (*numbers["rhs_batching_dimensions"], *numbers["rhs_contracting_dimensions"])
        left = tuple(i for i in range(lhs.rank) if i not in batch and i not in contracting)
        right = tuple(j for j in range(rhs.rank) if j not in taken)
        return batch, left, right, contracting

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        numbers = self.dimensions(attrs, operands)
        batch, left_free, right_free, contracting = self._roles(numbers, operands)
        lhs, rhs = operands
        rows: tuple[dict[int, int], dict[int, int]] = ({}, {})
        result: list[tuple[int, ...]] = []
        factors: list[Factor] = []
        for i, j in zip(batch, numbers["rhs_batching_dimensions"], strict=True):
            rows[0][i] = rows[1][j] = len(factors)
            factors.append(Factor(lhs.shape[i]))
        for side, dims in ((0, left_free), (1, right_free)):
            for i in dims:
                rows[side][i] = len(factors)
                factors.append(Factor(operands[side].shape[i]))
        result = [(k,) for k in range(len(factors))]
        for i, j in zip(contracting, numbers["rhs_contracting_dimensions"], strict=True):
            rows[0][i] = rows[1][j] = len(factors)
            factors.append(Factor(lhs.shape[i], REDUCE, "or" if results[0].dtype == "i1" else "add"))
        ins = tuple(tuple((rows[side][i],) for i in range(t.rank)) for side, t in enumerate((lhs, rhs)))
        linear = results[0].dtype != "i1" and numerics.keeps_sums(lhs.dtype, results[0].dtype)
        return FactorRule(tuple(factors), ins, (tuple(result),), (("add", (0,)), ("add", (1,))) if linear else ())

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        types = tuple(TensorType(a.shape, "f32") for a in arrays)
        numbers = self.dimensions(attrs, types)
        batch, left_free, right_free, contracting = self._roles(numbers, types)
        dtype = attrs.get("dtype")
        lhs, rhs = (numerics.widened(a) for a in arrays)
        if dtype:
            wide = numerics.widened(np.zeros((), current().stored(dtype))).dtype
            lhs, rhs = lhs.astype(wide, copy=False), rhs.astype(wide, copy=False)
        lhs_order = (*batch, *left_free, *contracting)
        rhs_order = (*numbers["rhs_batching_dimensions"], *numbers["rhs_contracting_dimensions"], *right_free)
        lhs, rhs = np.transpose(lhs, lhs_order), np.transpose(rhs, rhs_order)
        outer = lhs.shape[: len(batch)]
        rows, columns = lhs.shape[len(batch) : len(batch) + len(left_free)], rhs.shape[rhs.ndim - len(right_free) :]
        inner = math.prod(lhs.shape[len(batch) + len(left_free) :])
        with np.errstate(all="ignore"):
            product = current().matmul(
                lhs.reshape(math.prod(outer), math.prod(rows), inner),
                rhs.reshape(math.prod(outer), inner, math.prod(columns)),
            )
            narrow = current().stored(dtype) if dtype else arrays[0].dtype
            return (product.reshape(outer + rows + columns).astype(narrow),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        numbers = self.dimensions(attrs, operands)
        contracted = math.prod(operands[0].shape[i] for i in numbers["lhs_contracting_dimensions"])
        return float(2 * results[0].elements * contracted)

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        return {**attrs, "dtype": results[0].dtype}


class _Dot(_DotGeneral):
    """The product of vectors and matrices, contracting lhs's last dimension with rhs's first."""

    name = "dot"
    attributes = {"precision_config": codec.PRECISION.optional()}

    def dimensions(self, attrs: Attributes, operands: Types) -> Attributes:
        if not all(1 <= t.rank <= 2 for t in operands):
            raise ProgramError("operands are vectors or matrices; dot_general takes others")
        return Attributes(lhs_batching_dimensions=(), rhs_batching_dimensions=(),
                          lhs_contracting_dimensions=(operands[0].rank - 1,), rhs_contracting_dimensions=(0,))


register(_DotGeneral())
register(_Dot())
