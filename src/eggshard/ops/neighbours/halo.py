"""Stencil ops along a dimension: rotate, wrap, extend, update_slice.

StableHLO spells them as slices and concatenations, which hide which elements are neighbours. Front ends and rules
recognise them, and `emit` writes them out as slices and concatenations again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import base
from eggshard.ops.base import (
    PERMUTE,
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
from eggshard.ops.factor_table import Label, labelled_rule
from eggshard.ops.shapes.movement import changed_rule, moves_partial_sums
from eggshard.ops.signatures import require_count
from eggshard.ops.spelling import PrintedOps
from eggshard.ops.windowing import (
    EDGE_MODES,
    Filled,
    Layer,
    Reach,
    Reaches,
    Run,
    Windowed,
    WindowForm,
    extension,
    repeated_index,
)
from eggshard.program.attributes import Attributes

if TYPE_CHECKING:
    from eggshard.program.placement import Dim


class AlongDimension(OpDef):
    """Base of ops that put the operand's elements along ``dimension`` in another order, repeated or not."""

    computes = False

    def runs(self, attrs: Attributes, n: int) -> tuple[Run, ...]:
        """The indices along the dimension, of size n in the operand, that make up the result; ProgramError if n is
        too small for them."""
        raise NotImplementedError(self.name)

    def indices(self, attrs: Attributes, n: int) -> np.ndarray:
        """The index in the operand of every element along the dimension."""
        return np.concatenate([run.indices for run in self.runs(attrs, n)])

    def reach(self, attrs: Attributes, n: int) -> Reach:
        """The reach along the dimension."""
        raise NotImplementedError(self.name)

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        (x,), dim = operands, attrs["dimension"]
        if not 0 <= dim < x.rank:
            raise ProgramError(f"dimension {dim} does not exist in {x}")
        size = sum(run.length for run in self.runs(attrs, x.shape[dim]))
        return (x.with_shape((*x.shape[:dim], size, *x.shape[dim + 1 :])),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        return changed_rule(operands[0], results[0], [d == attrs["dimension"] for d in range(operands[0].rank)])

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        (x,), dim = operands, attrs["dimension"]
        return (tuple(self.reach(attrs, n) if d == dim else None for d, n in enumerate(x.shape)),)

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        return WindowForm() if attrs["dimension"] in windowed else WindowForm(attrs)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        (x,), dim = arrays, attrs["dimension"]
        return (np.take(x, self.indices(attrs, x.shape[dim]), axis=dim),)

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        (x,), dim, out = operands, attrs["dimension"], PrintedOps(printer)
        name, _ = out.picked(x, dim, self.runs(attrs, x[1].shape[dim]))
        return out.lines, [name]


def _widths(attrs: Attributes, most: int, why: str) -> tuple[int, int]:
    """``lhs`` and ``rhs``; ProgramError where one is not within [0, most]."""
    lhs, rhs = attrs["lhs"], attrs["rhs"]
    if min(lhs, rhs) < 0:
        raise ProgramError(f"lhs {lhs} and rhs {rhs} must not be negative")
    if max(lhs, rhs) > most:
        raise ProgramError(f"lhs {lhs} and rhs {rhs} must lie between 0 and {most}: {why} the dimension")
    return lhs, rhs


class _Rotate(AlongDimension):
    """Element i along ``dimension`` is operand element ``(i + amount) mod n``: a rotation to the left."""

    name = "rotate"
    mlir_name = "eggshard.rotate"

    def runs(self, attrs: Attributes, n: int) -> tuple[Run, ...]:
        amount = attrs["amount"]
        if not 0 <= amount < max(n, 1):
            raise ProgramError(f"amount {amount} is not within [0, {n}); state it modulo the size of the dimension")
        return Run(amount, 1, n - amount), Run(0, 1, amount)

    def reach(self, attrs: Attributes, n: int) -> Reach:
        # The shorter way round, so that windows of rotations to the left and to the right lie next to each other.
        amount = attrs["amount"] if 2 * attrs["amount"] <= n else attrs["amount"] - n
        return Reach(attrs["dimension"], amount, amount, wrapped=True)


class _Wrap(AlongDimension):
    """The operand with ``lhs`` elements before it along ``dimension`` and ``rhs`` after it.

    Element i is operand element ``(i - lhs) mod n``.
    """

    name = "wrap"
    mlir_name = "eggshard.wrap"

    def runs(self, attrs: Attributes, n: int) -> tuple[Run, ...]:
        lhs, rhs = _widths(attrs, max(attrs["lhs"], attrs["rhs"]) if n else 0, "there is nothing to repeat along")
        whole = Run(0, 1, n)
        before, after = (divmod(width, n) if n else (0, 0) for width in (lhs, rhs))
        return (
            Run(n - before[1], 1, before[1]), *(whole,) * (before[0] + 1 + after[0]), Run(0, 1, after[1]))

    def reach(self, attrs: Attributes, n: int) -> Reach:
        return Reach(attrs["dimension"], -attrs["lhs"], -attrs["lhs"], wrapped=True)


class _Extend(AlongDimension):
    """The operand with ``lhs`` and ``rhs`` elements around it along ``dimension``, which repeat its own.

    ``mode``, as in `numpy.pad`: ``edge`` repeats the end elements, ``reflect`` mirrors at them, ``symmetric`` beyond
    them.
    """

    name = "extend"
    mlir_name = "eggshard.extend"

    def runs(self, attrs: Attributes, n: int) -> tuple[Run, ...]:
        mode, lhs, rhs = attrs["mode"], attrs["lhs"], attrs["rhs"]
        if mode not in EDGE_MODES:
            raise ProgramError(f"mode {mode!r} is unknown; one of {', '.join(EDGE_MODES)} is meant")
        if mode == "edge":
            _widths(attrs, max(lhs, rhs) if n else 0, "there is nothing to repeat along")
        else:
            _widths(attrs, n if mode == "symmetric" else max(n - 1, 0), f"mode {mode} mirrors a part of")
        low, high = extension(mode, n, lhs, rhs)
        return low, Run(0, 1, n), high

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


class _UpdateSlice(OpDef):
    """Operand 0 with the box at ``start_indices``, which lies within it, set to operand 1."""

    name = "update_slice"
    computes = False
    mlir_name = "eggshard.update_slice"

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
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
        (x, update), changed = operands, self._changed(operands)
        kinds: dict[Label, Factor] = {d: Factor(x.shape[d], PERMUTE) for d in changed}
        kinds |= {("update", d): Factor(update.shape[d], PERMUTE) for d in changed}
        row = range(x.rank)
        labels = (row, [("update", d) if d in changed else d for d in row], row)
        return labelled_rule(operands, results, labels, kinds, moves_partial_sums(x.dtype, 2))

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

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        out = np.array(arrays[0])
        box = zip(attrs["start_indices"], arrays[1].shape, strict=True)
        out[tuple(slice(start, start + m) for start, m in box)] = arrays[1]
        return (out,)

    def touched(self, operands: Types, results: Types) -> float:
        """The update, read and written: compilers update in place what nothing else reads."""
        return float(2 * operands[1].bytes)

    def emit(self, attrs: Attributes, operands: Values, results: Types, regions: Regions, printer: Printer) -> Printed:
        out = PrintedOps(printer)
        starts = [out.scalar(start, "i64") for start in attrs["start_indices"]]
        name, _ = out.op("dynamic_update_slice", *operands, *starts)
        return out.lines, [name]


def makes(name: str, attributes: Mapping[str, Any], n: int, indices: np.ndarray) -> bool:
    """Whether an op here puts a dimension of size n in the order of these indices."""
    definition = base.get(name)
    assert isinstance(definition, AlongDimension)
    try:
        runs = definition.runs(Attributes(attributes), n)
    except ProgramError:
        return False
    return np.array_equal(indices, np.concatenate([run.indices for run in runs]))


for _definition in (_Rotate(), _Wrap(), _Extend(), _UpdateSlice()):
    register(_definition)
