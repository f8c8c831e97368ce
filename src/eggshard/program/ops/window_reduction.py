"""Ops on sliding windows: reductions (a named monoid, or a region) and select_and_scatter, the gradient of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.program import monoids
from eggshard.program.evaluate import evaluate_elementwise
from eggshard.program.ops import codec, numerics
from eggshard.program.ops.base import PASS, PERMUTE, REPLICATE, Arrays, Factor, FactorRule, OpDef, Types, Values, register
from eggshard.program.ops.elementwise import require_count
from eggshard.program.ops.movement import padded
from eggshard.program.ops.reduction import check_general, emit_by_monoid, halves, require_monoid
from eggshard.program.program import Attributes, Region
from eggshard.program.types import TensorType, mlir_dtype

_WINDOW_ATTRIBUTES: dict[str, codec.Codec] = {
    "window_dimensions": codec.Integers(),
    "window_strides": codec.Integers().optional(),
    "base_dilations": codec.Integers().optional(),
    "window_dilations": codec.Integers().optional(),
    "padding": codec.Matrix().optional(),
}

#: (window size, stride, base dilation, window dilation, low padding, high padding) of one dimension.
_Window = tuple[int, int, int, int, int, int]
_TRIVIAL: _Window = (1, 1, 1, 1, 0, 0)


def windows(attrs: Attributes) -> list[_Window]:
    columns = [attrs[name] for name in list(_WINDOW_ATTRIBUTES)[:4]]
    return [(*row, *edge) for *row, edge in zip(*columns, attrs["padding"], strict=True)]


def _window_shape(attrs: Attributes, shape: tuple[int, ...]) -> tuple[int, ...]:
    if any(len(attrs[name]) != len(shape) for name in _WINDOW_ATTRIBUTES):
        raise ProgramError(f"needs window size, stride, dilations and padding for each of {len(shape)} dimensions")
    out = []
    for n, (size, stride, base, dilation, low, high) in zip(shape, windows(attrs), strict=True):
        if min(size, stride, base, dilation) < 1:
            raise ProgramError("window sizes, strides and dilations are at least 1")
        dilated = low + (max(n - 1, 0) * base + 1 if n else 0) + high
        reach = (size - 1) * dilation + 1
        out.append((dilated - reach) // stride + 1 if dilated >= reach else 0)
    return tuple(out)


def _window_factors(attrs: Attributes, operand: TensorType, result: TensorType) -> tuple[tuple[Factor, ...],
                                                                                         tuple[tuple[int, ...], ...],
                                                                                         tuple[tuple[int, ...], ...]]:
    factors: list[Factor] = []
    row, out = [], []
    for n, m, window in zip(operand.shape, result.shape, windows(attrs), strict=True):
        moved = window != _TRIVIAL
        row.append((len(factors),))
        factors.append(Factor(n, PERMUTE if moved else PASS))
        if n != m:
            factors.append(Factor(m, PERMUTE))
        out.append((len(factors) - 1,))
    return tuple(factors), tuple(row), tuple(out)


def _window_defaults(attrs: dict[str, Any], operands: Types) -> dict[str, Any]:
    rank = operands[0].rank
    ones = ("window_strides", "base_dilations", "window_dilations")
    defaults = {**{name: (1,) * rank for name in ones}, "padding": ((0, 0),) * rank}
    return {**attrs, **{name: value for name, value in defaults.items() if attrs.get(name) is None}}


def _window_slices(x: np.ndarray, dim: int, window: _Window) -> list[np.ndarray]:
    """Per position in the window of one dimension, what of the (padded, dilated) array lies there for each result."""
    size, stride, _, dilation, _, _ = window
    reach = (size - 1) * dilation + 1
    count = max((x.shape[dim] - reach) // stride + 1, 0)
    before = (slice(None),) * dim
    return [
        x[(*before, slice(k * dilation, k * dilation + max((count - 1) * stride + 1, 0) if count else 0, stride))]
        for k in range(size)
    ]


class _ReduceWindow(OpDef):
    """Combines the elements in each window by ``monoid``; ``padding`` holds (low, high) per dimension."""

    name = "reduce_window"
    attributes = _WINDOW_ATTRIBUTES

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        require_count(operands, 1)
        require_monoid(attrs["monoid"], operands[0].dtype)
        return (operands[0].with_shape(_window_shape(attrs, operands[0].shape)),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        factors, row, out = _window_factors(attrs, operands[0], results[0])
        return FactorRule(factors, (row,), (out,), ((attrs["monoid"], (0,)),))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        dtype = mlir_dtype(arrays[0].dtype)
        ufunc = monoids.monoid(attrs["monoid"]).ufunc
        out = numerics.widened(arrays[0])
        start = np.asarray(monoids.identity(attrs["monoid"], dtype)).astype(out.dtype)
        with np.errstate(all="ignore"):
            # A window is a product of intervals, so its dimensions combine one after the other.
            for dim, window in enumerate(windows(attrs)):
                if window == _TRIVIAL:
                    continue
                size, stride, base, dilation, low, high = window
                if (stride, base, dilation, high, low) == (1, 1, 1, 0, size - 1) and size >= out.shape[dim] > 0:
                    out = ufunc.accumulate(out, axis=dim, dtype=out.dtype)
                    continue
                edges = [(low, high, base - 1) if i == dim else (0, 0, 0) for i in range(out.ndim)]
                first, *rest = _window_slices(padded(out, start, edges), dim, window)
                for part in rest:
                    first = ufunc(first, part)
                out = first
        return (numerics.narrowed(out, dtype),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return float(results[0].elements * (math.prod(attrs["window_dimensions"]) - 1))

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        return _window_defaults(attrs, operands)

    def emit(
        self, attrs: Attributes, operands: Values, results: Types, regions: tuple[Region, ...], fresh: Callable[[], str]
    ) -> tuple[list[str], list[str]]:
        attributes = codec.encode_attributes(self.attributes, attrs)
        return emit_by_monoid(self.spelling, attributes, attrs["monoid"], operands, results, fresh)


class _ReduceWindowGeneral(OpDef):
    """Combines the elements of several operands in each window by a region, from init values, which also pad."""

    name = "reduce_window_general"
    mlir_name = "stablehlo.reduce_window"
    attributes = _WINDOW_ATTRIBUTES

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        xs = check_general(operands, regions)
        return tuple(t.with_shape(_window_shape(attrs, t.shape)) for t in xs)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        half = len(operands) // 2
        factors, row, out = _window_factors(attrs, operands[0], results[0])
        return FactorRule(factors, (row,) * half + ((),) * half, (out,) * half)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        xs, inits = halves(arrays)
        windows = windows(attrs)
        edges = [(low, high, base - 1) for _, _, base, _, low, high in windows]
        slices: list[list[np.ndarray]] = []
        for x, init in zip(xs, inits, strict=True):
            parts = [padded(x, init, edges)]
            for dim, window in enumerate(windows):
                parts = [piece for part in parts for piece in _window_slices(part, dim, window)]
            slices.append(parts)
        out: Sequence[np.ndarray] = [np.broadcast_to(i, s[0].shape) for i, s in zip(inits, slices, strict=True)]
        for position in zip(*slices, strict=True):
            out = evaluate_elementwise(regions[0], [*out, *position])
        return tuple(out)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return float(results[0].elements * math.prod(attrs["window_dimensions"]) * len(results))

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        return _window_defaults(attrs, operands)


