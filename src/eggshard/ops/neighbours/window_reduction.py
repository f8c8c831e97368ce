"""Ops on sliding windows: reductions (a named monoid, or a region) and select_and_scatter, the gradient of one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.arithmetic import current
from eggshard.ops.base import (
    PASS,
    PERMUTE,
    REPLICATE,
    Arrays,
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
from eggshard.ops.factor_table import FactorTable, Row
from eggshard.ops.reductions.reduction import check_general, emit_by_monoid, halves, require_monoid
from eggshard.ops.shapes.slicing import padded
from eggshard.ops.signatures import require_count, require_regions, require_signature
from eggshard.ops.windowing import Box, Filled, Reach, Reaches, Window, Windowed, WindowForm, padding_on_windows
from eggshard.program import codec, monoids
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType, mlir_dtype

_WINDOW_ATTRIBUTES: dict[str, codec.Codec] = {
    "window_dimensions": codec.Integers(),
    "window_strides": codec.Integers().optional(),
    "base_dilations": codec.Integers().optional(),
    "window_dilations": codec.Integers().optional(),
    "padding": codec.Matrix().optional(),
}


def windows(attrs: Attributes) -> list[Window]:
    """The window of each dimension."""
    ones = (1,) * len(attrs["window_dimensions"])
    names = ("window_strides", "base_dilations", "window_dilations")
    columns = (attrs["window_dimensions"], *(attrs.get(name, ones) for name in names))
    return [Window(*row, *edge) for *row, edge in zip(*columns, attrs["padding"], strict=True)]


def window_shape(attrs: Attributes, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the result; ProgramError for attributes that do not fit the shape."""
    if any(len(attrs[name]) != len(shape) for name in _WINDOW_ATTRIBUTES if name in attrs):
        raise ProgramError(f"needs window size, stride, dilations and padding for each of {len(shape)} dimensions")
    if any(min(window[:4]) < 1 for window in windows(attrs)):
        raise ProgramError("window sizes, strides and dilations are at least 1")
    return tuple(window.result_size(n) for n, window in zip(shape, windows(attrs), strict=True))


def _window_factors(attrs: Attributes, operand: TensorType, result: TensorType) -> tuple[FactorTable, Row, Row]:
    """Dimensions without a window pass; the others are permute factors of either side."""
    table = FactorTable()
    row, out = [], []
    for n, m, window in zip(operand.shape, result.shape, windows(attrs), strict=True):
        row.append(table.new(n, PASS if window.passes else PERMUTE))
        out.append(row[-1] if n == m else table.new(m, PERMUTE))
    return table, tuple(row), tuple(out)


def _window_reaches(attrs: Attributes, operand: TensorType) -> tuple[Reach | None, ...]:
    """The reach along each dimension of an operand."""
    return tuple(window.reach(d, n) for d, (n, window) in enumerate(zip(operand.shape, windows(attrs), strict=True)))


def _on_windows(attrs: Attributes, operand: TensorType, windowed: Windowed) -> tuple[Attributes, Box]:
    """The attributes on shards along some dimensions, and the box around which there is padding instead."""
    own = [(window, d, n, d) for d, (n, window) in enumerate(zip(operand.shape, windows(attrs), strict=True))]
    widths, box = padding_on_windows(own, windowed)
    return attrs.updated(padding=widths), box


def _window_defaults(names: Mapping[str, codec.Codec], attrs: dict[str, Any], operands: Types) -> dict[str, Any]:
    """The attributes with what the text left out; where there is one element at most, nothing is between elements."""
    shape = operands[0].shape
    missing = {name: ((0, 0) if name == "padding" else 1,) * len(shape) for name in names if attrs.get(name) is None}
    found = {**attrs, **missing}
    if "base_dilations" in found:
        base = zip(found["base_dilations"], shape, strict=True)
        found["base_dilations"] = tuple(spread if n > 1 else 1 for spread, n in base)
    return found


def window_elements(x: np.ndarray, attrs: Attributes) -> list[np.ndarray]:
    """Per position in the window (row-major) what of a padded array lies there, one element per window: views."""
    parts = [x]
    for dim, window in enumerate(windows(attrs)):
        parts = [piece for part in parts for piece in _along(part, dim, window)]
    return parts


def _along(x: np.ndarray, dim: int, window: Window) -> list[np.ndarray]:
    count = window.unpadded.result_size(x.shape[dim])
    last = (count - 1) * window.stride + 1 if count else 0
    starts = [k * window.dilation for k in range(window.size)]
    return [x[(slice(None),) * dim + (slice(start, start + last, window.stride),)] for start in starts]


class _ReduceWindow(OpDef):
    """Combines the elements in each window by ``monoid``; ``padding`` holds (low, high) per dimension."""

    name = "reduce_window"
    attributes = _WINDOW_ATTRIBUTES

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        require_monoid(attrs["monoid"], operands[0].dtype)
        return (operands[0].with_shape(window_shape(attrs, operands[0].shape)),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        table, row, out = _window_factors(attrs, operands[0], results[0])
        return table.rule((row,), (out,), ((attrs["monoid"], (0,)),))

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        return (_window_reaches(attrs, operands[0]),)

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        local, box = _on_windows(attrs, operands[0], windowed)
        return WindowForm(local, (Filled(0, box, attrs["monoid"]),) if box else ())

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        dtype = mlir_dtype(arrays[0].dtype)
        combine = current().combine(attrs["monoid"])
        out = numerics.widened(arrays[0])
        start = np.asarray(monoids.identity(attrs["monoid"], dtype)).astype(out.dtype)
        with np.errstate(all="ignore"):
            # A window is a product of intervals, so its dimensions combine one after the other.
            for dim, window in enumerate(windows(attrs)):
                if window.passes:
                    continue
                if window == Window(window.size, low=window.size - 1) and window.size >= out.shape[dim] > 0:
                    out = combine.accumulate(out, axis=dim, dtype=out.dtype)
                    continue
                edges = [window.edges if i == dim else (0, 0, 0) for i in range(out.ndim)]
                first, *rest = _along(padded(out, start, edges), dim, window)
                for part in rest:
                    first = combine(first, part)
                out = first
        return (numerics.narrowed(out, dtype),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return float(results[0].elements * (math.prod(attrs["window_dimensions"]) - 1))

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        return _window_defaults(self.attributes, attrs, operands)

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        attributes = codec.encode_attributes(self.attributes, attrs)
        return emit_by_monoid(self.spelling, attributes, attrs["monoid"], operands, results, printer)


class _ReduceWindowGeneral(OpDef):
    """Combines the elements of several operands in each window by a region, from init values, which also pad."""

    name = "reduce_window_general"
    mlir_name = "stablehlo.reduce_window"
    attributes = _WINDOW_ATTRIBUTES

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        xs = check_general(operands, regions)
        return tuple(t.with_shape(window_shape(attrs, t.shape)) for t in xs)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        half = len(operands) // 2
        table, row, out = _window_factors(attrs, operands[0], results[0])
        return table.rule((row,) * half + ((),) * half, (out,) * half)

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        half = len(operands) // 2
        return (_window_reaches(attrs, operands[0]),) * half + ((),) * half

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        half = len(operands) // 2
        local, box = _on_windows(attrs, operands[0], windowed)
        return WindowForm(local, tuple(Filled(i, box, half + i) for i in range(half)) if box else ())

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        xs, inits = halves(arrays)
        edges = [window.edges for window in windows(attrs)]
        slices = [window_elements(padded(x, init, edges), attrs) for x, init in zip(xs, inits, strict=True)]
        out: Sequence[np.ndarray] = [np.broadcast_to(i, s[0].shape) for i, s in zip(inits, slices, strict=True)]
        for position in zip(*slices, strict=True):
            out = evaluate_elementwise(regions[0], [*out, *position])
        return tuple(out)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return float(results[0].elements * math.prod(attrs["window_dimensions"]) * len(results))

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        return _window_defaults(self.attributes, attrs, operands)


class _SelectAndScatter(OpDef):
    """In each window of the operand, the element that the first region selects receives the window's source element.

    Operands: (operand, source, init). The first region says whether to keep the first of two elements; padding is
    never selected. The second combines what an element receives, from init: the gradient of a maximum over windows.
    """

    name = "select_and_scatter"
    attributes = {
        "window_dimensions": codec.Integers().optional(),
        "window_strides": codec.Integers().optional(),
        "padding": codec.Matrix().optional(),
    }

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 3)
        x, source, init = operands
        scalar = TensorType((), x.dtype)
        if source != x.with_shape(window_shape(attrs, x.shape)):
            raise ProgramError(f"the source must be {x.with_shape(window_shape(attrs, x.shape))}, one element a window")
        if init != scalar:
            raise ProgramError(f"the init value is a scalar of element type {x.dtype}")
        require_regions(regions, 2)
        require_signature(regions[0], (scalar, scalar), (TensorType((), "i1"),), "the selection")
        require_signature(regions[1], (scalar, scalar), (scalar,), "the combination")
        return (x,)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        """Windows that lie in blocks, one each, as of a pooling without overlaps, are shared out block by block."""
        table = FactorTable()
        row, source = [], []
        for n, m, window in zip(operands[0].shape, operands[1].shape, windows(attrs), strict=True):
            block = window.stride
            if window.low == 0 and window.size <= block and n == m * block:
                source.append(table.new(m))
                row.append(source[-1] + table.new(block, REPLICATE) if block > 1 else source[-1])
            else:
                row.append(table.new(n, PERMUTE))
                source.append(table.new(m, REPLICATE))
        return table.rule((tuple(row), tuple(source), ()), (tuple(row),))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        x, source, init = arrays
        edges = [window.edges for window in windows(attrs)]
        elements = window_elements(padded(x, init, edges), attrs)
        inside = window_elements(padded(np.ones(x.shape, np.bool_), np.array(False), edges), attrs)
        best, chosen, found = elements[0], np.zeros(source.shape, np.int64), inside[0]
        for k, (element, real) in enumerate(zip(elements, inside, strict=True)):
            (keep,) = evaluate_elementwise(regions[0], [best, element])
            take = real & ~(found & current().truths(keep))
            best, chosen, found = np.where(take, element, best), np.where(take, k, chosen), found | real
        out = padded(np.broadcast_to(init, x.shape), init, edges)
        # The windows' elements at one position are distinct, so each position is scattered at once.
        for k, target in enumerate(window_elements(out, attrs)):
            (combined,) = evaluate_elementwise(regions[1], [target, source])
            target[...] = np.where(found & (chosen == k), combined, target)
        return (padded(out, init, [(-low, -high, 0) for low, high, _ in edges]),)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return float(operands[1].elements * math.prod(attrs["window_dimensions"]))

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        return _window_defaults(self.attributes, attrs, operands)


for _definition in (_ReduceWindow(), _ReduceWindowGeneral(), _SelectAndScatter()):
    register(_definition)
