"""Builders of the ops that steps on strips consist of: parts of arrays at positions that differ between iterations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.memory.strips.spans import Span
from eggshard.memory.strips.strips import Strip
from eggshard.ops import registry
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.types import TensorType, numpy_dtype
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import Local

COUNTER = TensorType((), "i32")
WHY = ("in strips",)


class Writer:
    """Appends ops to a program. ``counter``: the iteration's number; None where there is one iteration only."""

    def __init__(self, out: Assembler, counter: int | None = None):
        self.out, self.counter = out, counter

    def op(self, name: str, attributes: Attributes, type_: TensorType, *operands: int) -> int:
        """One op."""
        types = tuple(self.out.types[v] for v in operands)
        flops = registry.get(name).flops(attributes, types, (type_,))
        return self.out.emit(Local(name, attributes, (type_,), (), flops), operands, WHY)[0]

    def constant(self, value: np.ndarray, dtype: str) -> int:
        """A literal."""
        literal = Literal(np.asarray(value).astype(numpy_dtype(dtype)))
        return self.op("constant", Attributes(value=literal), TensorType(np.shape(value), dtype))

    def empty(self, type_: TensorType) -> int:
        """Memory for a result, which a loop fills."""
        return self.broadcast(self.constant(np.zeros(()), type_.dtype), type_)

    def number(self, table: Sequence[int]) -> int:
        """This iteration's number of a table."""
        if len(set(table)) == 1:
            return self.constant(np.asarray(table[0]), "i32")
        assert self.counter is not None, "of several iterations one has a number"
        taken = self.op("dynamic_slice", Attributes(slice_sizes=(1,)), TensorType((1,), "i32"),
                        self.constant(np.asarray(table), "i32"), self.counter)
        return self.shaped(taken, COUNTER)

    def places(self, rank: int, dim: int, table: Sequence[int]) -> list[int]:
        """Where a part begins: at this iteration's number of a table along a dimension, at 0 along the others."""
        return [self.number(table) if d == dim else self.number([0]) for d in range(rank)]

    def shaped(self, value: int, type_: TensorType) -> int:
        """Return the value reshaped to ``type_``, or the value itself if it already has that type."""
        if self.out.types[value] == type_:
            return value
        return self.op("reshape", Attributes(shape=type_.shape), type_, value)

    def sliced(self, value: int, dim: int, start: int, stop: int) -> int:
        """A range of indices of one dimension."""
        type_ = self.out.types[value]
        strip = Strip(dim, 1, type_.shape[dim])
        return self.cut(value, strip, Span((0,), strip.length), Span((start,), stop - start))

    def joined(self, parts: Sequence[int], dim: int) -> int:
        """Values one after the other."""
        if len(parts) == 1:
            return parts[0]
        type_ = long(self.out.types[parts[0]], dim, sum(self.out.types[v].shape[dim] for v in parts))
        return self.op("concatenate", Attributes(dimension=dim), type_, *parts)

    def broadcast(self, value: int, type_: TensorType, dims: tuple[int, ...] = ()) -> int:
        """A value whose dimensions are these of the type, repeated along the others."""
        if self.out.types[value] == type_:
            return value
        return self.op("broadcast_in_dim", Attributes(broadcast_dimensions=dims, shape=type_.shape), type_, value)

    def cut(self, value: int, strip: Strip, held: Span, span: Span) -> int:
        """A part of a part of an array."""
        if held.width == span.width:
            return value
        type_ = self.out.types[value]
        seen = seen_as(type_, strip, held.width)
        window = seen_as(type_, strip, span.width)
        starts = [a - b for a, b in zip(span.starts, held.starts, strict=True)]
        seen_value = self.shaped(value, seen)
        if len(set(starts)) == 1:
            first = [starts[0] if d == strip.dim + 1 else 0 for d in range(seen.rank)]
            bounds = Attributes(start_indices=tuple(first), strides=(1,) * seen.rank,
                                limit_indices=tuple(a + n for a, n in zip(first, window.shape, strict=True)))
            taken = self.op("slice", bounds, window, seen_value)
        else:
            at = self.places(seen.rank, strip.dim + 1, starts)
            taken = self.op("dynamic_slice", Attributes(slice_sizes=window.shape), window, seen_value, *at)
        return self.shaped(taken, strip.of(type_, span.width))

    def within(self, starts: Sequence[int], width: int, start: int, stop: int) -> int:
        """Which of so many indices from a place on lie in a range: ``[width]``, true and false."""
        places = TensorType((width,), "i32")
        index = self.op("iota", Attributes(iota_dimension=0, shape=(width,), dtype="i32"), places)
        first = self.broadcast(self.number(starts), places)
        index = self.op("add", Attributes(), places, index, first)
        found = []
        for direction, bound in (("GE", start), ("LT", stop)):
            limit = self.broadcast(self.number([bound]), places)
            compare = Attributes(comparison_direction=direction, compare_type="SIGNED")
            found.append(self.op("compare", compare, TensorType((width,), "i1"), index, limit))
        return self.op("and", Attributes(), TensorType((width,), "i1"), *found)

    def chosen(self, where: int, dim: int, inside_: int, outside: int) -> int:
        """The first where a condition on the index along a dimension holds, elsewhere the second, maybe a scalar."""
        type_ = self.out.types[inside_]
        condition = self.broadcast(where, TensorType(type_.shape, "i1"), (dim,))
        if self.out.types[outside] != type_:
            outside = self.broadcast(outside, type_)
        return self.op("select", Attributes(), type_, condition, inside_, outside)


def seen_as(type_: TensorType, strip: Strip, width: int) -> TensorType:
    """A part of an array, its cut dimension in three."""
    shape = type_.shape
    return type_.with_shape((*shape[: strip.dim], strip.outer, width, strip.inner, *shape[strip.dim + 1 :]))


def long(type_: TensorType, dim: int, length: int) -> TensorType:
    """The type with another length of a dimension."""
    return type_.with_shape(tuple(length if d == dim else n for d, n in enumerate(type_.shape)))
