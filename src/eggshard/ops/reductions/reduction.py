"""Reductions, in a simple form (a named monoid) and a general one (a region).

The simple form has one operand and starts from the monoid's identity; StableHLO's init operand and body are printed
back by `emit`. Readers turn every StableHLO reduction whose body is a monoid into the simple form, and combine the
result with an init that is not the identity by an op of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.arithmetic import current
from eggshard.ops.base import (
    REDUCE,
    REPLICATE,
    Arrays,
    Factor,
    FactorRule,
    OpDef,
    Printed,
    Printer,
    Regions,
    Results,
    Types,
    Values,
    register,
)
from eggshard.ops.evaluate import evaluate_elementwise
from eggshard.ops.factor_table import labelled_rule
from eggshard.ops.region_builder import RegionBuilder
from eggshard.ops.signatures import require_count
from eggshard.program import codec, monoids
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Region
from eggshard.program.types import TensorType, mlir_dtype, numpy_dtype


def identity_literal(monoid: str, dtype: str) -> Literal:
    """The scalar identity element of a monoid."""
    return Literal(np.array(monoids.identity(monoid, dtype)).astype(numpy_dtype(dtype)))


def monoid_region(monoid: str, dtype: str) -> Region:
    """The body of a StableHLO reduction by a monoid: (scalar, scalar) to their combination."""
    scalar = TensorType((), dtype)
    builder = RegionBuilder([scalar, scalar])
    return builder.build(builder.add(monoids.monoid(monoid).op, (0, 1)))


def require_monoid(monoid: str, dtype: str) -> None:
    monoids.monoid(monoid)
    if monoid not in monoids.of_dtype(dtype):
        raise ProgramError(f"reduction kind {monoid!r} is not defined for element type {dtype}")


def emit_by_monoid(
    mlir_name: str,
    attributes: Sequence[tuple[str, str]],
    monoid: str,
    operands: Values,
    results: Types,
    printer: Printer,
) -> Printed:
    """A StableHLO reduction: the identity as a constant, then the op with the monoid's body."""
    dtype = operands[0][1].dtype
    init = TensorType((), dtype)
    lines, names = printer.op("constant", Attributes(value=identity_literal(monoid, dtype)), [], [init])
    body = printer.region(monoid_region(monoid, dtype))
    more, outs = printer.operation(mlir_name, attributes, [*operands, (names[0], init)], results, [body])
    return lines + more, outs


def _kept(shape: tuple[int, ...], dimensions: Sequence[int]) -> tuple[int, ...]:
    if len(set(dimensions)) != len(dimensions) or any(not 0 <= d < len(shape) for d in dimensions):
        raise ProgramError(f"dimensions {tuple(dimensions)} repeat, or do not exist in shape {shape}")
    return tuple(i for i in range(len(shape)) if i not in dimensions)


class _Reduce(OpDef):
    """Combines all elements along ``dimensions`` by ``monoid``; NaN wins in max and min."""

    name = "reduce"
    attributes = {"dimensions": codec.Integers()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        x = operands[0]
        require_monoid(attrs["monoid"], x.dtype)
        return (x.with_shape(tuple(x.shape[i] for i in _kept(x.shape, attrs["dimensions"]))),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        x, dims, monoid = operands[0], attrs["dimensions"], attrs["monoid"]
        kinds = {d: Factor(x.shape[d], REDUCE, monoid) for d in dims}
        return labelled_rule(operands, results, (range(x.rank), _kept(x.shape, dims)), kinds, ((monoid, (0,)),))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        x = arrays[0]
        dtype, dims = mlir_dtype(x.dtype), tuple(attrs["dimensions"])
        wide = numerics.widened(x)
        start = wide.dtype.type(monoids.identity(attrs["monoid"], dtype))
        with np.errstate(all="ignore"):
            out = current().combine(attrs["monoid"]).reduce(wide, axis=dims, dtype=wide.dtype, initial=start)
        return (numerics.narrowed(out, dtype),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return float(max(operands[0].elements - results[0].elements, 0))

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        attributes = codec.encode_attributes(self.attributes, attrs)
        return emit_by_monoid(self.spelling, attributes, attrs["monoid"], operands, results, printer)


def halves(operands: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Operands and their init values."""
    if not operands or len(operands) % 2:
        raise ProgramError(f"takes operands and as many init values, got {len(operands)}")
    half = len(operands) // 2
    return operands[:half], operands[half:]


def check_general(operands: Types, regions: tuple[Region, ...]) -> Types:
    """The operands without the inits; ProgramError unless shapes, inits and the region fit together."""
    xs, inits = halves(operands)
    if any(t.shape != xs[0].shape for t in xs):
        raise ProgramError("operands have different shapes")
    if any(i != TensorType((), x.dtype) for x, i in zip(xs, inits, strict=True)):
        raise ProgramError("an init value is a scalar of its operand's element type")
    if len(regions) != 1 or len(regions[0].inputs) != 2 * len(xs) or len(regions[0].outputs) != len(xs):
        raise ProgramError(f"takes one region of {2 * len(xs)} inputs and {len(xs)} outputs")
    return tuple(xs)


class _ReduceGeneral(OpDef):
    """Combines several operands along ``dimensions`` by a region of (accumulators, elements) to accumulators."""

    name = "reduce_general"
    mlir_name = "stablehlo.reduce"
    attributes = {"dimensions": codec.Integers()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        xs = check_general(operands, regions)
        kept = _kept(xs[0].shape, attrs["dimensions"])
        return tuple(t.with_shape(tuple(t.shape[i] for i in kept)) for t in xs)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        shape, dims, half = operands[0].shape, attrs["dimensions"], len(operands) // 2
        kinds = {d: Factor(shape[d], REPLICATE) for d in dims}
        labels = (*(range(len(shape)),) * half, *((),) * half, *(_kept(shape, dims),) * half)
        return labelled_rule(operands, results, labels, kinds)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        xs, inits = halves(arrays)
        dims, shape = tuple(attrs["dimensions"]), xs[0].shape
        kept = _kept(shape, dims)
        count = math.prod(shape[d] for d in dims)
        parts = [np.transpose(x, (*dims, *kept)).reshape(count, *(shape[i] for i in kept)) for x in xs]
        out = [np.broadcast_to(i, p.shape[1:]) for i, p in zip(inits, parts, strict=True)]
        if count:
            out = list(evaluate_elementwise(regions[0], [*out, *fold(regions[0], parts)]))
        return tuple(out)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return float(operands[0].elements * (len(operands) // 2))


def fold(region: Region, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The elements along the first dimension combined by an associative region, neighbours first, in order."""
    parts = list(parts)
    while (count := parts[0].shape[0]) > 1:
        even = count - count % 2
        pairs = evaluate_elementwise(region, [*(p[0:even:2] for p in parts), *(p[1:even:2] for p in parts)])
        parts = [np.concatenate([new, old[even:]]) for new, old in zip(pairs, parts, strict=True)]
    return [p[0] for p in parts]


for _definition in (_Reduce(), _ReduceGeneral()):
    register(_definition)
