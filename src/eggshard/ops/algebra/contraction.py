"""Matrix products."""

from __future__ import annotations

import math

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.arithmetic import current
from eggshard.ops.base import REDUCE, Arrays, Factor, FactorRule, OpDef, Regions, Results, Types, register
from eggshard.ops.factor_table import Label, labelled_rule
from eggshard.ops.signatures import require_count
from eggshard.program import codec
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType, is_float, numpy_dtype


def _is_complex(t: TensorType) -> bool:
    return numerics.is_complex(t.dtype)


class _DotGeneral(OpDef):
    """Batched products: result dimensions are batch, then lhs free, then rhs free; ``dtype`` is the result's.

    ``dot_dimension_numbers`` holds ``lhs_batching_dimensions``, ``rhs_batching_dimensions``,
    ``lhs_contracting_dimensions`` and ``rhs_contracting_dimensions``.
    """

    name = "dot_general"
    stated = ("dtype",)
    attributes = {
        "dot_dimension_numbers": codec.DOT_DIMENSIONS,
        "precision_config": codec.PRECISION.optional(),
        "algorithm": codec.DOT_ALGORITHM.optional(),
    }

    def dimensions(self, attrs: Attributes, operands: Types) -> Attributes:
        """The dimension numbers."""
        numbers: Attributes = attrs["dot_dimension_numbers"]
        return numbers

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
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
        if is_float(lhs.dtype) and not is_float(dtype) or any(map(_is_complex, operands)) > numerics.is_complex(dtype):
            raise ProgramError(f"a product of {lhs.dtype} and {rhs.dtype} is none of {dtype}")
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
        lhs: dict[int, Label] = {d: ("left", d) for d in left_free} | {d: d for d in (*batch, *contracting)}
        rhs: dict[int, Label] = {d: ("right", d) for d in right_free}
        rhs.update(zip(numbers["rhs_batching_dimensions"], batch, strict=True))
        rhs.update(zip(numbers["rhs_contracting_dimensions"], contracting, strict=True))
        out = (*(lhs[d] for d in (*batch, *left_free)), *(rhs[d] for d in right_free))
        monoid = "or" if results[0].dtype == "i1" else "add"
        kinds = {d: Factor(operands[0].shape[d], REDUCE, monoid) for d in contracting}
        linear = monoid == "add" and numerics.keeps_sums(operands[0].dtype, results[0].dtype)
        labels = ([side[d] for d in range(t.rank)] for side, t in zip((lhs, rhs), operands, strict=True))
        either = (("add", (0,)), ("add", (1,))) if linear else ()
        return labelled_rule(operands, results, (*labels, out), kinds, either, order=(*out, *contracting))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
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
