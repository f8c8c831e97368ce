"""Ops that keep all elements and move them: transpose, reshape, broadcast, reverse, bitcast."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eggshard.errors import LoweringError, ProgramError
from eggshard.ops import numerics
from eggshard.ops.base import (
    PERMUTE,
    Arrays,
    Factor,
    FactorRule,
    OpDef,
    Regions,
    Results,
    Types,
    register,
    replicated_rule,
)
from eggshard.ops.elementwise.pointwise import Linear
from eggshard.ops.factor_table import Label, common_factors, labelled_rule
from eggshard.ops.signatures import require_count
from eggshard.ops.windowing import Reach, Reaches
from eggshard.program import codec, monoids
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType, element_bytes, mlir_dtype, numpy_dtype


def moves_partial_sums(dtype: str, operands: int = 1) -> Linear:
    """Linear entries of an op that only moves elements: every monoid, all its operands together."""
    return tuple((name, tuple(range(operands))) for name in monoids.of_dtype(dtype))


class Movement(OpDef):
    """Base of ops without arithmetic."""

    computes = False


class _Transpose(Movement):
    """Result dimension i is operand dimension ``permutation[i]``."""

    name = "transpose"
    attributes = {"permutation": codec.Integers()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        permutation = attrs["permutation"]
        if sorted(permutation) != list(range(operands[0].rank)):
            raise ProgramError(f"permutation {permutation} is none of {operands[0].rank} dimensions")
        return (operands[0].with_shape(tuple(operands[0].shape[i] for i in permutation)),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        (x,) = operands
        return labelled_rule(
            operands, results, (range(x.rank), attrs["permutation"]), linear=moves_partial_sums(x.dtype))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return (np.transpose(arrays[0], attrs["permutation"]),)


class _Reshape(Movement):
    """Reshape to ``shape``, keeping the elements in row-major order."""

    name = "reshape"
    stated = ("shape",)

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        shape = tuple(attrs["shape"])
        if math.prod(shape) != operands[0].elements:
            raise ProgramError(f"shape {shape} has {math.prod(shape)} elements, the operand {operands[0].elements}")
        return (operands[0].with_shape(shape),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        x, y = operands[0], results[0]
        if not x.elements:
            return replicated_rule(operands, results)
        factors, row, result = common_factors(x.shape, y.shape)
        return FactorRule(factors, (row,), (result,), moves_partial_sums(x.dtype))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return (np.reshape(arrays[0], attrs["shape"]),)


class _BroadcastInDim(Movement):
    """Operand dimension i becomes result dimension ``broadcast_dimensions[i]``; sizes 1 and new dimensions expand."""

    name = "broadcast_in_dim"
    read_in_place = True
    stated = ("shape",)
    attributes = {"broadcast_dimensions": codec.Integers()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        x, dims, shape = operands[0], attrs["broadcast_dimensions"], tuple(attrs["shape"])
        if len(dims) != x.rank or len(set(dims)) != len(dims) or any(not 0 <= d < len(shape) for d in dims):
            raise ProgramError(f"broadcast_dimensions {dims} do not map {x} into shape {shape}")
        for i, d in enumerate(dims):
            if x.shape[i] not in (1, shape[d]):
                raise ProgramError(f"operand dimension {i} of size {x.shape[i]} does not expand to size {shape[d]}")
        return (x.with_shape(shape),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        (x,), (y,), dims = operands, results, attrs["broadcast_dimensions"]
        row, out = [d if n == y.shape[d] else ... for n, d in zip(x.shape, dims, strict=True)], range(y.rank)
        return labelled_rule(operands, results, (row, out), linear=moves_partial_sums(x.dtype), order=out)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        x, dims, shape = arrays[0], attrs["broadcast_dimensions"], attrs["shape"]
        order = sorted(range(len(dims)), key=lambda i: dims[i])
        kept = {dims[i]: x.shape[i] for i in order}
        x = np.transpose(x, order).reshape(tuple(kept.get(d, 1) for d in range(len(shape))))
        return (np.broadcast_to(x, shape),)


def changed_rule(operand: TensorType, result: TensorType, changed: Sequence[bool], scalars: int = 0) -> FactorRule:
    """Dimensions that an op leaves alone pass; a changed one is a permute factor on either side.

    ``scalars``: further operands of rank 0, which belong to no factor.
    """
    row, out, kinds = list[Label](), list[Label](), dict[Label, Factor]()
    for d, (n, m, moved) in enumerate(zip(operand.shape, result.shape, changed, strict=True)):
        row.append(d)
        out.append(("made", d) if moved and n != m else d)
        if moved:
            kinds |= {d: Factor(n, PERMUTE), ("made", d): Factor(m, PERMUTE)}
    order = [label for pair in zip(row, out, strict=True) for label in pair]
    operands = (operand, *(TensorType((), operand.dtype),) * scalars)
    linear = moves_partial_sums(operand.dtype, 1 + scalars)
    return labelled_rule(operands, (result,), (row, *((),) * scalars, out), kinds, linear, order)


class _Reverse(Movement):
    """Elements in opposite order along ``dimensions``."""

    name = "reverse"
    read_in_place = True
    attributes = {"dimensions": codec.Integers()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        dims = attrs["dimensions"]
        if len(set(dims)) != len(dims) or any(not 0 <= d < operands[0].rank for d in dims):
            raise ProgramError(f"dimensions {dims} repeat, or do not exist in {operands[0]}")
        return operands

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        changed = [i in attrs["dimensions"] for i in range(operands[0].rank)]
        return changed_rule(operands[0], results[0], changed)

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        ends = [n - 1 if d in attrs["dimensions"] else None for d, n in enumerate(operands[0].shape)]
        return (tuple(None if e is None else Reach(d, e, e, mirrored=True) for d, e in enumerate(ends)),)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return (np.flip(arrays[0], attrs["dimensions"]),)


class _BitcastConvert(Movement):
    """Reinterpret the bits as element type ``dtype``; other widths join or split elements along a last dimension."""

    name = "bitcast_convert"
    stated = ("shape", "dtype")

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        x, dtype = operands[0], attrs["dtype"]
        old, new = numerics.bit_width(x.dtype), numerics.bit_width(dtype)
        if numerics.is_complex(x.dtype) != numerics.is_complex(dtype):
            raise ProgramError(f"a complex type has no bitcast to {dtype}; take real and imag first")
        shape = x.shape
        if old > new:
            shape = (*shape, old // new)
        elif old < new:
            if not shape or shape[-1] * old != new:
                raise ProgramError(f"the last dimension of {x} does not make up one {dtype}")
            shape = shape[:-1]
        return (TensorType(shape, dtype),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        rank = min(operands[0].rank, results[0].rank)
        labels = ([d if d < rank else None for d in range(t.rank)] for t in (*operands, *results))
        return labelled_rule(operands, results, tuple(labels))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        x, dtype = arrays[0], attrs["dtype"]
        source = mlir_dtype(x.dtype)
        old, new = numerics.bit_width(source), numerics.bit_width(dtype)
        if source == dtype:
            return (x,)
        if old < 8 or new < 8:
            if old != new:
                raise LoweringError(f"the simulator lacks the bitcast from {source} to {dtype}")
            return (x.astype(numpy_dtype(dtype)),)
        (result,) = self.infer(attrs, (TensorType(x.shape, source),))
        raw = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
        count = raw.size // element_bytes(dtype)
        return (raw.view(numpy_dtype(dtype))[:count].reshape(result.shape),)


for _definition in (
    _Transpose(),
    _Reshape(),
    _BroadcastInDim(),
    _Reverse(),
    _BitcastConvert(),
):
    register(_definition)
