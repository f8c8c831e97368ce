"""Ops that take tensors apart and put them together: slice, pad, concatenate."""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops.base import PERMUTE, REDUCE, Arrays, Factor, FactorRule, Regions, Results, Types, register
from eggshard.ops.factor_table import Label, labelled_rule
from eggshard.ops.shapes.movement import Movement, changed_rule, moves_partial_sums
from eggshard.ops.shard_program import MOST_PLACES, PLACE, ShardProgram, owner_monoid
from eggshard.ops.signatures import require_count
from eggshard.ops.windowing import Filled, Layer, Reach, Reaches, Windowed, WindowForm
from eggshard.program import codec, monoids
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType


class _Slice(Movement):
    """Elements ``start, start + stride, ...`` below ``limit`` of each dimension.

    Of a dimension of which at most half is left, each device gives what it has of that, and the results are partial
    values.
    """

    name = "slice"
    read_in_place = True
    windows_by_place = True
    attributes = {
        "start_indices": codec.Integers(),
        "limit_indices": codec.Integers(),
        "strides": codec.Integers().optional(),
    }

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        x = operands[0]
        bounds = (attrs["start_indices"], attrs["limit_indices"], attrs["strides"])
        if any(len(b) != x.rank for b in bounds):
            raise ProgramError(f"needs a start, a limit and a stride for each of the {x.rank} dimensions")
        for n, start, limit, stride in zip(x.shape, *bounds, strict=True):
            if not 0 <= start <= limit <= n or stride < 1:
                raise ProgramError(f"slice [{start}:{limit}:{stride}] does not lie within a dimension of size {n}")
        return (x.with_shape(tuple(-(-(b - a) // s) for a, b, s in zip(*bounds, strict=True))),)

    def _changed(self, attrs: Attributes, shape: tuple[int, ...]) -> list[bool]:
        bounds = zip(shape, attrs["start_indices"], attrs["limit_indices"], attrs["strides"], strict=True)
        return [(start, limit, stride) != (0, n, 1) for n, start, limit, stride in bounds]

    def _owned(self, attrs: Attributes, operand: TensorType, result: TensorType) -> dict[int, int]:
        """The dimensions of which at most half is left, and how far apart the first and the last element are there."""
        sizes = zip(result.shape, attrs["strides"], operand.shape, strict=True)
        spans = [((m - 1) * stride + 1, n) for m, stride, n in sizes]
        return {d: span for d, (span, n) in enumerate(spans) if 0 < 2 * span <= n <= MOST_PLACES}

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        (x,), (y,) = operands, results
        rule = changed_rule(x, y, self._changed(attrs, x.shape))
        factors = list(rule.factors)
        for d in self._owned(attrs, x, y):
            factors[rule.operands[0][d][0]] = Factor(x.shape[d], REDUCE, owner_monoid(x.dtype), positional=True)
        return replace(rule, factors=tuple(factors))

    def _local(self, attrs: Attributes, operand: TensorType, local: TensorType, held: Container[int]) -> Attributes:
        """The slice of a shard that holds, along ``held``, what is wanted and what lies between that."""
        changed = self._changed(attrs, operand.shape)
        bounds = zip(attrs["limit_indices"], local.shape, changed, strict=True)
        return attrs.updated(
            start_indices=tuple(0 if d in held else start for d, start in enumerate(attrs["start_indices"])),
            limit_indices=tuple(limit if moved and d not in held else n for d, (limit, n, moved) in enumerate(bounds)),
        )

    def localize(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types
    ) -> Attributes:
        return self._local(attrs, operands[0], local_operands[0], ())

    def on_shards(self, attrs: Attributes, program: ShardProgram, regions: Regions = ()) -> tuple[int, ...]:
        (x,), (y,), (value,) = program.operands, program.results, program.values
        spans = self._owned(attrs, x.type, y.type)
        owned = {d: span for d, span in spans.items() if x.cut(d) and not y.cut(d)}
        held = [d for d, moved in enumerate(self._changed(attrs, x.type.shape)) if moved and x.cut(d)]
        # Along dimensions of which each device gives what it has all is kept at first, between what adds nothing.
        strides = tuple(1 if d in owned else stride for d, stride in enumerate(attrs["strides"]))
        value = program.op("slice", value, **self._local(attrs, x.type, x.local, held).updated(strides=strides))
        widths = tuple(owned.get(d, 0) for d in range(x.type.rank))
        nothing = program.scalar(monoids.identity(owner_monoid(x.type.dtype), x.type.dtype), x.type.dtype)
        value = program.op(
            "pad", value, nothing, edge_padding_low=widths, edge_padding_high=widths,
            interior_padding=(0,) * x.type.rank)
        places = [program.scalar(0, PLACE)] * x.type.rank
        for d, span in owned.items():
            wanted = program.scalar(attrs["start_indices"][d] + span, PLACE)
            places[d] = program.op("subtract", wanted, program.start(x, d))
        kept = tuple(owned.get(d, n) for d, n in enumerate(program.type_of(value).shape))
        value = program.op("dynamic_slice", value, *places, slice_sizes=kept)
        bounds = zip(kept, attrs["strides"], strict=True)
        return (program.slice(value, [(0, n, stride if d in owned else 1) for d, (n, stride) in enumerate(bounds)]),)

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        changed, (y,) = self._changed(attrs, operands[0].shape), results
        bounds = enumerate(zip(attrs["start_indices"], attrs["strides"], changed, y.shape, strict=True))
        return (tuple(Reach(d, a, a, stride) if moved and m != 1 else None for d, (a, stride, moved, m) in bounds),)

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        return WindowForm(self._local(attrs, operands[0], local_operands[0], windowed))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        bounds = zip(attrs["start_indices"], attrs["limit_indices"], attrs["strides"], strict=True)
        return (arrays[0][tuple(slice(*b) for b in bounds)],)

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        """Along a dimension that stays as it is, a stride says nothing."""
        (x,), (y,) = operands, results
        strides = zip(attrs["strides"] or (1,) * x.rank, x.shape, y.shape, strict=True)
        return {**attrs, "strides": tuple(1 if n == m else stride for stride, n, m in strides)}


class _Pad(Movement):
    """``edge_padding_low`` and ``high`` elements (negative: cut) around, ``interior_padding`` between elements."""

    name = "pad"
    attributes = {
        "edge_padding_low": codec.Integers(),
        "edge_padding_high": codec.Integers(),
        "interior_padding": codec.Integers(),
    }

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 2)
        x, value = operands
        if value != TensorType((), x.dtype):
            raise ProgramError(f"the padding value is a scalar of element type {x.dtype}")
        widths = (attrs["edge_padding_low"], attrs["edge_padding_high"], attrs["interior_padding"])
        if any(len(w) != x.rank for w in widths):
            raise ProgramError(f"needs low, high and interior padding for each of the {x.rank} dimensions")
        sizes = zip(x.shape, *widths, strict=True)
        shape = tuple(low + n + max(n - 1, 0) * inner + high for n, low, high, inner in sizes)
        if min(widths[2], default=0) < 0 or min(shape, default=0) < 0:
            raise ProgramError("interior padding is negative, or negative edge padding cuts more than there is")
        return (x.with_shape(shape),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        widths = zip(attrs["edge_padding_low"], attrs["edge_padding_high"], attrs["interior_padding"], strict=True)
        return changed_rule(operands[0], results[0], [any(w) for w in widths], scalars=1)

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        widths = zip(attrs["edge_padding_low"], attrs["edge_padding_high"], attrs["interior_padding"], strict=True)
        return tuple(
            Reach(d, -low, -low, divisor=inner + 1) if low or high or inner else None
            for d, (low, high, inner) in enumerate(widths)
        ), ()

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        names = ("edge_padding_low", "edge_padding_high")
        box = tuple((d, 0, operands[0].shape[d]) for d in sorted(windowed) if any(attrs[name][d] > 0 for name in names))
        reaches = self.reaches(attrs, operands, results)[0]
        edges = {d: r.edges(windowed[d]) for d, r in enumerate(reaches) if r is not None and d in windowed}
        widths = {
            name: tuple(edges[d][side] if d in edges else w for d, w in enumerate(attrs[name]))
            for side, name in enumerate(names)
        }
        return WindowForm(attrs.updated(**widths), (Filled(0, box, 1),) if box else ())

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        widths = zip(attrs["edge_padding_low"], attrs["edge_padding_high"], attrs["interior_padding"], strict=True)
        return (padded(arrays[0], arrays[1], tuple(widths)),)

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        """Where there is one element at most, nothing is between elements."""
        interior = zip(attrs["interior_padding"], operands[0].shape, strict=True)
        return {**attrs, "interior_padding": tuple(inner if n > 1 else 0 for inner, n in interior)}


def padded(x: np.ndarray, value: np.ndarray, widths: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """``x`` with (low, high, interior) padding of each dimension; negative low and high cut."""
    grown = tuple(
        max(low, 0) + n + max(n - 1, 0) * inner + max(high, 0)
        for n, (low, high, inner) in zip(x.shape, widths, strict=True)
    )
    out = np.full(grown, value, x.dtype)
    put = tuple(
        slice(max(low, 0), max(low, 0) + max(n + (n - 1) * inner, 0), inner + 1)
        for n, (low, _, inner) in zip(x.shape, widths, strict=True)
    )
    out[put] = x
    keep = tuple(
        slice(max(-low, 0), size - max(-high, 0)) for size, (low, high, _) in zip(grown, widths, strict=True)
    )
    return out[keep]


class _Concatenate(Movement):
    """Operands one after the other along ``dimension``."""

    name = "concatenate"
    attributes = {"dimension": codec.Integer()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        if not operands:
            raise ProgramError("takes at least one operand")
        dim, first = attrs["dimension"], operands[0]
        if not 0 <= dim < first.rank:
            raise ProgramError(f"dimension {dim} does not exist in {first}")
        rest = [(t.shape[:dim], t.shape[dim + 1 :], t.dtype, t.rank) for t in operands]
        if any(r != rest[0] for r in rest):
            raise ProgramError(f"operands differ in more than dimension {dim}")
        shape = list(first.shape)
        shape[dim] = sum(t.shape[dim] for t in operands)
        return (first.with_shape(tuple(shape)),)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        dim, (y,) = attrs["dimension"], results
        joined = range(y.rank)
        labels = [
            [("part", i) if d == dim and n != y.shape[dim] else d for d, n in enumerate(t.shape)]
            for i, t in enumerate(operands)
        ]
        kinds: dict[Label, Factor] = {("part", i): Factor(t.shape[dim], PERMUTE) for i, t in enumerate(operands)}
        kinds[dim] = Factor(y.shape[dim], PERMUTE)
        linear = moves_partial_sums(y.dtype, len(operands))
        return labelled_rule(operands, results, (*labels, joined), kinds, linear, order=joined)

    def _offsets(self, attrs: Attributes, operands: Types) -> list[int]:
        """Where each operand begins along ``dimension`` of the result."""
        return list(itertools.accumulate((t.shape[attrs["dimension"]] for t in operands[:-1]), initial=0))

    def reaches(self, attrs: Attributes, operands: Types, results: Types) -> Reaches:
        dim, rank = attrs["dimension"], results[0].rank
        offsets = self._offsets(attrs, operands)
        return tuple(tuple(Reach(d, -at, -at) if d == dim else None for d in range(rank)) for at in offsets)

    def window_form(
        self, attrs: Attributes, operands: Types, results: Types, local_operands: Types, local_results: Types,
        windowed: Windowed,
    ) -> WindowForm:
        dim = attrs["dimension"]
        if dim not in windowed:
            return WindowForm(attrs)
        parts = enumerate(zip(self._offsets(attrs, operands), operands, strict=True))
        layers = [Layer(k, ((dim, at, at + t.shape[dim]),)) for k, (at, t) in parts]
        return WindowForm(layers=tuple(layer for layer in layers if layer.box[0][1] < layer.box[0][2]) or (layers[0],))

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        return (np.concatenate(arrays, axis=attrs["dimension"]),)


for _definition in (_Slice(), _Pad(), _Concatenate()):
    register(_definition)
