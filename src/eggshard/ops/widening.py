"""Conversion of a program to double precision, which gives its meaning without the rounding of its own arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from eggshard.errors import LoweringError
from eggshard.ops.numerics import is_complex, part_dtype
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Op, Program, Region
from eggshard.program.types import TensorType, element_bytes, is_float, mlir_dtype, numpy_dtype

#: Ops on the bits of their operands, which depend on the element type.
_BITWISE = ("bitcast_convert", "chlo.next_after")


#: Ops whose results jump.
_JUMPING = (
    "ceil", "compare", "floor", "reduce_precision", "remainder", "round_nearest_afz", "round_nearest_even", "sign",
)


def wide_dtype(dtype: str) -> str:
    """``f64`` and ``complex<f64>`` for floats of any precision; other element types themselves."""
    if not is_float(dtype):
        return dtype
    return "complex<f64>" if is_complex(dtype) else "f64"


def widened(program: Program) -> Program:
    """The program on inputs of double precision, computed in it; LoweringError where it has that precision already.

    Ops that look at bits, and conversions to a narrower type than f32, are the program's meaning and round as they say.
    So do the conditions of loops: they end on values that the program itself could tell apart.
    """
    return replace(program, region=_region(program.region), text=None)


def _wide(type_: TensorType) -> TensorType:
    return TensorType(type_.shape, wide_dtype(type_.dtype))


def _region(region: Region, stated: bool = False) -> Region:
    """The region on wide inputs; ``stated``: computed in its own precision, its outputs too."""
    double = {t.dtype for t in region.types if t.dtype in ("f64", "complex<f64>")}
    if double:
        raise LoweringError(f"it computes in {' and '.join(sorted(double))} itself")
    builder = RegionBuilder([_wide(region.types[v]) for v in region.inputs])
    values = dict(zip(region.inputs, builder.inputs, strict=True))
    if stated:
        values = {v: _converted(builder, values[v], region.types[v]) for v in region.inputs}
    for op in region.ops:
        operands = tuple(region.types[v] for v in op.operands)
        results = tuple(region.types[v] for v in op.results)
        add = partial(builder.add, op.name, shardings=op.shardings, location=op.location)
        given = [values[v] for v in op.operands]
        if stated:
            made = add(given, op.attributes, op.regions)
        elif op.name in _BITWISE or op.name == "convert" and _narrows(operands[0].dtype, results[0].dtype):
            kept = add([_converted(builder, v, t) for v, t in zip(given, operands, strict=True)], op.attributes)
            made = tuple(_converted(builder, v, _wide(t)) for v, t in zip(kept, results, strict=True))
        else:
            made = add(given, _attributes(op), [
                _region(inner, stated=op.name == "while" and i == 0) for i, inner in enumerate(op.regions)])
        values.update(zip(op.results, made, strict=True))
    return builder.build([values[v] for v in region.outputs])


def _converted(builder: RegionBuilder, value: int, type_: TensorType) -> int:
    if builder.types[value] == type_:
        return value
    return builder.op("convert", value, dtype=type_.dtype)


def _narrows(source: str, target: str) -> bool:
    """Whether a conversion rounds to a float type of less than f32's precision."""
    if not is_float(target) or element_bytes(part_dtype(target)) >= 4:
        return False
    return not is_float(source) or element_bytes(source) > element_bytes(target)


def jumps(region: Region) -> bool:
    """Whether the smallest change of a float can change others by far more: by steps, comparisons, stated roundings."""
    for op in region.ops:
        source = region.types[op.operands[0]].dtype if op.operands else ""
        if is_float(source) and (op.name in (*_BITWISE, *_JUMPING) or op.name == "convert" and (
                not is_float(op.attributes["dtype"]) or _narrows(source, op.attributes["dtype"]))):
            return True
    return any(jumps(inner) for op in region.ops for inner in op.regions)


def _attributes(op: Op) -> Attributes:
    return Attributes({key: _attribute(key, value) for key, value in op.attributes.items()})


def _attribute(key: str, value: Any) -> Any:
    if key == "dtype" and value:
        return wide_dtype(value)
    if key == "result_types":
        return tuple(map(_wide, value))
    if isinstance(value, Literal):
        array = value.array
        (wide,) = widened_arrays([array[(0,) * array.ndim] if value.splat else array])
        return Literal(np.broadcast_to(wide, array.shape))
    return value


def widened_arrays(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Inputs for a `widened` program."""
    return [np.asarray(a, numpy_dtype(wide_dtype(mlir_dtype(a.dtype)))) for a in arrays]


def evaluation_bytes(region: Region) -> int:
    """The most bytes that are alive while a region is evaluated op by op, its inputs' included."""
    last = {v: i for i, op in enumerate(region.ops) for v in (*op.operands, *op.results)}
    last.update(dict.fromkeys(region.outputs, len(region.ops)))
    alive = peak = sum(region.types[v].bytes for v in region.inputs)
    dying: dict[int, list[int]] = {}
    for v, i in last.items():
        dying.setdefault(i, []).append(v)
    for i, op in enumerate(region.ops):
        inner = max((evaluation_bytes(r) - sum(r.types[v].bytes for v in r.inputs) for r in op.regions), default=0)
        alive += sum(region.types[v].bytes for v in op.results)
        peak = max(peak, alive + inner)
        alive -= sum(region.types[v].bytes for v in dying.get(i, ()))
    return peak
