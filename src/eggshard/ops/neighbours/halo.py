"""Stencil ops along a dimension: rotate, wrap, extend, update_slice.

StableHLO spells them as slices and concatenations, which hide which elements are neighbours. Rules recognise them, and
`emit` writes them out as slices and concatenations again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import base
from eggshard.ops.base import PASS, PERMUTE, Arrays, FactorRule, OpDef, Printed, Printer, Types, Values, register
from eggshard.ops.factor_table import FactorTable
from eggshard.ops.shapes.movement import changed_rule, moves_addends
from eggshard.ops.signatures import require_count
from eggshard.ops.windowing import EDGE_MODES, Filled, Layer, Reach, Reaches, Windowed, WindowForm, repeated_index
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Region
from eggshard.program.types import TensorType

if TYPE_CHECKING:
    from eggshard.program.placement import Dim


class _Lines:
    """Collects the lines of the StableHLO ops that one op is printed as."""

    def __init__(self, printer: Printer):
        self.printer, self.lines = printer, list[str]()

    def op(self, name: str, operands: Values, **attributes: object) -> tuple[str, TensorType]:
        """One more op, and its result."""
        attrs = Attributes(attributes)
        results = base.get(name).infer(attrs, tuple(t for _, t in operands))
        lines, names = self.printer.op(name, attrs, operands, results)
        self.lines += lines
        return names[0], results[0]

    def slice(self, x: tuple[str, TensorType], dim: int, start: int, stop: int) -> tuple[str, TensorType]:
        """Indices [start, stop) of one dimension."""
        shape = x[1].shape
        if (start, stop) == (0, shape[dim]):
            return x
        starts = tuple(start if d == dim else 0 for d in range(len(shape)))
        stops = tuple(stop if d == dim else n for d, n in enumerate(shape))
        return self.op("slice", [x], start_indices=starts, limit_indices=stops, strides=(1,) * len(shape))

    def concatenate(self, parts: Values, dim: int) -> Printed:
        """The parts one after the other: the printed op."""
        name, _ = self.op("concatenate", parts, dimension=dim)
        return self.lines, [name]

    def slices(self, x: tuple[str, TensorType], dim: int, bounds: Sequence[tuple[int, int]]) -> Printed:
        """Ranges of indices of one dimension, one after the other: the printed op."""
        parts = [self.slice(x, dim, start, stop) for start, stop in bounds if start < stop]
        return self.concatenate(parts or [x], dim)


class _AlongDimension(OpDef):
    """Base of ops that move elements along ``dimension`` alone."""

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return 0.0

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        return changed_rule(operands[0], results[0], [d == attrs["dimension"] for d in range(operands[0].rank)])

    def reach(self, attrs: Attributes, n: int) -> Reach:
        """The reach along the dimension, of size n in the operand."""
        raise NotImplementedError(self.name)

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        (x,), dim = operands, attrs["dimension"]
        return (tuple(self.reach(attrs, n) if d == dim else None for d, n in enumerate(x.shape)),)

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        return WindowForm() if attrs["dimension"] in windowed else WindowForm(attrs)


def _require_dimension(attrs: Attributes, operands: Types) -> int:
    """The operand's size along ``dimension``."""
    require_count(operands, 1)
    dim: int = attrs["dimension"]
    if not 0 <= dim < operands[0].rank:
        raise ProgramError(f"dimension {dim} does not exist in {operands[0]}")
    return operands[0].shape[dim]


def _longer(attrs: Attributes, operands: Types, most: int, why: str) -> Types:
    """The result with ``lhs`` and ``rhs`` more elements; ProgramError where one is not within [0, most]."""
    (x,), dim, lhs, rhs = operands, attrs["dimension"], attrs["lhs"], attrs["rhs"]
    if not (0 <= lhs <= most and 0 <= rhs <= most):
        raise ProgramError(f"lhs {lhs} and rhs {rhs} must lie between 0 and {most}: {why} dimension {dim} of {x}")
    return (x.with_shape(tuple(n + lhs + rhs if d == dim else n for d, n in enumerate(x.shape))),)


class _Rotate(_AlongDimension):
    """Element i along ``dimension`` is operand element ``(i + amount) mod n``: a rotation to the left."""

    name = "rotate"
    mlir_name = "eggshard.rotate"

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        n, amount = _require_dimension(attrs, operands), attrs["amount"]
        if not 0 <= amount < max(n, 1):
            raise ProgramError(f"amount {amount} is not within [0, {n}); state it modulo the size of the dimension")
        return operands

    def reach(self, attrs: Attributes, n: int) -> Reach:
        # The shorter way round, so that windows of rotations to the left and to the right lie next to each other.
        amount = attrs["amount"] if 2 * attrs["amount"] <= n else attrs["amount"] - n
        return Reach(attrs["dimension"], amount, amount, wrapped=True)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        return (np.roll(arrays[0], -attrs["amount"], attrs["dimension"]),)

    def emit(
        self, attrs: Attributes, operands: Values, results: Types, regions: tuple[Region, ...], printer: Printer
    ) -> Printed:
        (x,), dim, amount = operands, attrs["dimension"], attrs["amount"]
        return _Lines(printer).slices(x, dim, [(amount, x[1].shape[dim]), (0, amount)])


class _Wrap(_AlongDimension):
    """The operand with its last ``lhs`` elements along ``dimension`` before it, and its first ``rhs`` after it."""

    name = "wrap"
    mlir_name = "eggshard.wrap"

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        return _longer(attrs, operands, _require_dimension(attrs, operands), "each is a part of")

    def reach(self, attrs: Attributes, n: int) -> Reach:
        return Reach(attrs["dimension"], -attrs["lhs"], -attrs["lhs"], wrapped=True)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        (x,), dim = arrays, attrs["dimension"]
        n = x.shape[dim]
        return (np.take(x, np.arange(-attrs["lhs"], n + attrs["rhs"]) % max(n, 1), axis=dim),)

    def emit(
        self, attrs: Attributes, operands: Values, results: Types, regions: tuple[Region, ...], printer: Printer
    ) -> Printed:
        (x,), dim = operands, attrs["dimension"]
        n = x[1].shape[dim]
        return _Lines(printer).slices(x, dim, [(n - attrs["lhs"], n), (0, n), (0, attrs["rhs"])])


class _Extend(_AlongDimension):
    """The operand with ``lhs`` and ``rhs`` elements around it along ``dimension``, which repeat its own.

    ``mode``, as in `numpy.pad`: ``edge`` repeats the end elements, ``reflect`` mirrors at them, ``symmetric`` beyond
    them.
    """

    name = "extend"
    mlir_name = "eggshard.extend"

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        n, mode = _require_dimension(attrs, operands), attrs["mode"]
        if mode not in EDGE_MODES:
            raise ProgramError(f"mode {mode!r} is unknown; one of {', '.join(EDGE_MODES)} is meant")
        if mode == "edge":
            most = max(attrs["lhs"], attrs["rhs"]) if n else 0
            return _longer(attrs, operands, most, "there is nothing to repeat along")
        most = n if mode == "symmetric" else max(n - 1, 0)
        return _longer(attrs, operands, most, f"mode {mode} mirrors a part of")

    def reach(self, attrs: Attributes, n: int) -> Reach:
        return Reach(attrs["dimension"], -attrs["lhs"], -attrs["lhs"])

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        dim = attrs["dimension"]
        if dim not in windowed:
            return WindowForm(attrs)
        return WindowForm(fills=(Filled(0, ((dim, 0, operands[0].shape[dim]),), attrs["mode"]),))

    def window_allowed(
        self, attrs: Attributes, operands: Types, results: Types, windows: Mapping[int, tuple[Dim, int]]
    ) -> bool:
        """Every shard that reaches beyond an end must hold the elements that are repeated there."""
        if attrs["dimension"] not in windows:
            return True
        n, (window, count) = operands[0].shape[attrs["dimension"]], windows[attrs["dimension"]]
        starts = np.arange(count) * window.tile + window.low - attrs["lhs"]
        stops = starts + window.size
        # What is farthest from an end, of the indices beyond it that a shard stands for, repeats what is farthest in.
        below, above = np.maximum(starts, -attrs["lhs"]), np.minimum(stops, n + attrs["rhs"]) - 1
        lowest, highest = (repeated_index(index, n, attrs["mode"]) for index in (above, below))
        holds_low = (below >= np.minimum(stops, 0)) | (highest < stops)
        holds_high = (above < np.maximum(starts, n)) | (lowest >= starts)
        return bool(np.all(holds_low & holds_high))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        (x,), dim = arrays, attrs["dimension"]
        n = x.shape[dim]
        return (np.take(x, repeated_index(np.arange(-attrs["lhs"], n + attrs["rhs"]), n, attrs["mode"]), axis=dim),)

    def emit(
        self, attrs: Attributes, operands: Values, results: Types, regions: tuple[Region, ...], printer: Printer
    ) -> Printed:
        (x,), dim, mode, out = operands, attrs["dimension"], attrs["mode"], _Lines(printer)
        n, lhs, rhs = x[1].shape[dim], attrs["lhs"], attrs["rhs"]
        skipped = 1 if mode == "reflect" else 0
        parts = [x]
        for side, width in ((0, lhs), (1, rhs)):
            if not width:
                continue
            if mode == "edge":
                end = out.slice(x, dim, n - 1 if side else 0, n if side else 1)
                shape = tuple(width if d == dim else m for d, m in enumerate(x[1].shape))
                part = out.op("broadcast_in_dim", [end], broadcast_dimensions=tuple(range(len(shape))), shape=shape)
            else:
                start = n - skipped - width if side else skipped
                part = out.op("reverse", [out.slice(x, dim, start, start + width)], dimensions=(dim,))
            parts.insert(len(parts) if side else 0, part)
        return out.concatenate(parts, dim)


class _UpdateSlice(OpDef):
    """Operand 0 with the box at ``start_indices``, which lies within it, set to operand 1."""

    name = "update_slice"
    mlir_name = "eggshard.update_slice"

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        require_count(operands, 2)
        (x, update), starts = operands, attrs["start_indices"]
        if update.dtype != x.dtype:
            raise ProgramError("the update has another element type; convert it")
        if update.rank != x.rank or len(starts) != x.rank:
            raise ProgramError(f"needs an update of rank {x.rank}, and a start for each of the {x.rank} dimensions")
        for n, m, start in zip(x.shape, update.shape, starts, strict=True):
            if not 0 <= start <= n - m:
                raise ProgramError(f"the update [{start}:{start + m}] does not lie within a dimension of size {n}")
        return (x,)

    def _changed(self, operands: Types) -> list[int]:
        """The dimensions along which the update covers a part."""
        x, update = operands
        return [d for d, (n, m) in enumerate(zip(x.shape, update.shape, strict=True)) if n != m]

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        x, update = operands
        table, changed = FactorTable(), self._changed(operands)
        row = tuple(table.new(n, PERMUTE if d in changed else PASS) for d, n in enumerate(x.shape))
        other = table.row(update, {d: f for d, f in enumerate(row) if d not in changed}, PERMUTE)
        return table.rule((row, other), (row,), moves_addends(x.dtype, 2))

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        changed = self._changed(operands)
        starts = (tuple(0 for _ in attrs["start_indices"]), attrs["start_indices"])
        return tuple(tuple(Reach(d, -a, -a) if d in changed else None for d, a in enumerate(row)) for row in starts)

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        changed, starts, update = self._changed(operands), attrs["start_indices"], operands[1]
        if not any(d in windowed for d in changed):
            return WindowForm(attrs)
        box = tuple((d, starts[d], starts[d] + update.shape[d]) for d in changed)
        return WindowForm(layers=(Layer(0, ()), Layer(1, box)))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        out = np.array(arrays[0])
        box = zip(attrs["start_indices"], arrays[1].shape, strict=True)
        out[tuple(slice(start, start + m) for start, m in box)] = arrays[1]
        return (out,)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return 0.0

    def emit(
        self, attrs: Attributes, operands: Values, results: Types, regions: tuple[Region, ...], printer: Printer
    ) -> Printed:
        out = _Lines(printer)
        starts = [out.op("constant", [], value=Literal(np.array(start, np.int64))) for start in attrs["start_indices"]]
        name, _ = out.op("dynamic_update_slice", [*operands, *starts])
        return out.lines, [name]


for _definition in (_Rotate(), _Wrap(), _Extend(), _UpdateSlice()):
    register(_definition)
