"""Writer of a function's body, op by op, in StableHLO's generic form, and of the values that depend on the device.

A device looks its numbers up by partition id in a table constant: XLA's own partitioner writes offsets in this form,
and its later passes recognise it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple, Self

import numpy as np

from eggshard.errors import LoweringError
from eggshard.ops.spelling import bound, function_type
from eggshard.program import monoids
from eggshard.program.dense import LISTED_ELEMENTS, dense_text
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType, mlir_dtype, numpy_dtype
from eggshard.steps.handlers import Handlers
from eggshard.steps.steps import Pairs

SCALAR = TensorType((), "i32")


class Value(NamedTuple):
    """A value of the module being written: its name with the leading %, and its type."""

    name: str
    type: TensorType


#: What each action is written as: (text, action, operands) to results.
EMITTED: Handlers[list[Value]] = Handlers("emission as StableHLO")


class BodyText:
    """The lines of a body so far, on devices of a mesh. Channel ids are unique within it, counted from 1 or as given.

    tables: names for the long tables of the body, by their text, where the module around it defines attribute aliases.
    identities: names of the functions that return a value as it is, by its type, which the module has to define.
    platform: what it is compiled for, as JAX spells it; empty: text for all of them, without fences. processes: how
    many the devices belong to.
    """

    def __init__(
        self, mesh: Mesh, indent: str = "      ", channels: Iterator[int] | None = None,
        tables: dict[str, str] | None = None, platform: str = "", processes: int = 1,
        identities: dict[TensorType, str] | None = None,
    ):
        self.mesh, self.indent, self.tables, self.platform, self.processes = mesh, indent, tables, platform, processes
        self.identities = {} if identities is None else identities
        self.lines: list[str] = []
        #: Whether this is a region of an op.
        self.nested = False
        #: Whether what is being written ends in memory of its own.
        self.in_place = False
        self._names, self._channels = count(), channels or count(1)
        self._partition: Value | None = None
        self._looked_up: dict[bytes, Value] = {}

    def fresh(self) -> str:
        """A value name that nothing has yet."""
        return f"%{next(self._names)}"

    # Single ops.

    def op(self, name: str, operands: Sequence[Value], result: TensorType, attributes: str = "") -> Value:
        """Append one op with one result; ``attributes`` is the inside of its attribute dictionary."""
        head, (made,) = bound(self.fresh, f"stablehlo.{name}", [x.name for x in operands], 1)
        shown = f" {{{attributes}}}" if attributes else ""
        self.line(f"{head}{shown} : {function_type([x.type for x in operands], [result])}")
        return Value(made, result)

    def constant(self, array: np.ndarray, splat: bool = False) -> Value:
        """A constant; ``splat``: all its elements are the same one."""
        type_ = TensorType(array.shape, mlir_dtype(array.dtype))
        return self.op("constant", (), type_, f"value = {self.dense(array, splat)}")

    def dense(self, array: np.ndarray, splat: bool = False) -> str:
        """An array as an attribute; a long one by its name, if it can have one: many ops have equal ones."""
        text = dense_text(array, splat)
        if self.tables is None or splat or array.size <= LISTED_ELEMENTS:
            return text
        return self.tables.setdefault(text, f"#table{len(self.tables)}")

    def integer(self, value: int) -> Value:
        """A scalar i32 constant."""
        return self.op("constant", (), SCALAR, f"value = dense<{value}> : {SCALAR}")

    def splat(self, type_: TensorType, monoid: str) -> Value:
        """The identity of a monoid in every element."""
        identity = np.asarray(monoids.identity(monoid, type_.dtype)).astype(numpy_dtype(type_.dtype))
        return self.constant(np.broadcast_to(identity, type_.shape), splat=True)

    def zeros(self, type_: TensorType) -> Value:
        """Zero in every element."""
        return self.constant(np.broadcast_to(np.zeros((), numpy_dtype(type_.dtype)), type_.shape), splat=True)

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        """x with the same elements in row-major order; x itself where nothing changes."""
        return x if shape == x.type.shape else self.op("reshape", [x], x.type.with_shape(shape))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """Dimension i of the result is dimension ``order[i]`` of x; x itself where nothing changes."""
        if list(order) == list(range(x.type.rank)):
            return x
        shape = tuple(x.type.shape[d] for d in order)
        return self.op("transpose", [x], x.type.with_shape(shape), f"permutation = {integers(order)}")

    def resize(self, x: Value, shape: tuple[int, ...]) -> Value:
        """Cut or zero-pad the high ends."""
        kept = tuple(min(n, m) for n, m in zip(x.type.shape, shape, strict=True))
        x = self.slice(x, (0,) * len(kept), kept)
        return self.pad(x, (0,) * len(kept), [m - n for n, m in zip(kept, shape, strict=True)])

    def slice(self, x: Value, starts: Sequence[int], limits: Sequence[int]) -> Value:
        """The box from starts up to limits; x itself where it is all of x."""
        shape = tuple(b - a for a, b in zip(starts, limits, strict=True))
        if shape == x.type.shape:
            return x
        attributes = (
            f"start_indices = {integers(starts)}, limit_indices = {integers(limits)}, "
            f"strides = {integers((1,) * len(shape))}"
        )
        return self.op("slice", [x], x.type.with_shape(shape), attributes)

    def pad(self, x: Value, low: Sequence[int], high: Sequence[int]) -> Value:
        """x with zeros around it; x itself where there are none."""
        shape = tuple(n + a + b for n, a, b in zip(x.type.shape, low, high, strict=True))
        if shape == x.type.shape:
            return x
        zero = self.splat(TensorType((), x.type.dtype), "add")
        attributes = (
            f"edge_padding_low = {integers(low)}, edge_padding_high = {integers(high)}, "
            f"interior_padding = {integers((0,) * len(shape))}"
        )
        return self.op("pad", [x, zero], x.type.with_shape(shape), attributes)

    def broadcast(self, x: Value, shape: tuple[int, ...], dims: Sequence[int] = ()) -> Value:
        """x repeated to a shape in which its dimension i is dimension ``dims[i]``."""
        attributes = f"broadcast_dimensions = {integers(dims)}"
        return self.op("broadcast_in_dim", [x], x.type.with_shape(shape), attributes)

    def compare(self, direction: str, a: Value, b: Value) -> Value:
        """Elementwise comparison of signed integers."""
        attributes = (
            f"comparison_direction = #stablehlo<comparison_direction {direction}>, "
            "compare_type = #stablehlo<comparison_type SIGNED>"
        )
        return self.op("compare", [a, b], TensorType(a.type.shape, "i1"), attributes)

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        """yes where the condition (of the same shape, or a scalar) holds, else no."""
        return self.op("select", [condition, yes, no], yes.type)

    def dynamic_slice(self, x: Value, starts: Sequence[Value], sizes: tuple[int, ...]) -> Value:
        """The box of these sizes at these starts; x itself where it is all of x."""
        if sizes == x.type.shape:
            return x
        return self.op("dynamic_slice", [x, *starts], x.type.with_shape(sizes), f"slice_sizes = {integers(sizes)}")

    def dynamic_update_slice(self, x: Value, piece: Value, starts: Sequence[Value]) -> Value:
        """x with a box overwritten; the piece itself where it covers x."""
        if piece.type == x.type:
            return piece
        return self.op("dynamic_update_slice", [x, piece, *starts], x.type)

    # What depends on the device.

    def permute(self, x: Value, pairs: Pairs | np.ndarray) -> Value:
        """Each target gets its source's x; a device that is no target gets zeros."""
        text = self.dense(np.array(pairs, np.int64).reshape(-1, 2))
        return self.op("collective_permute", [x], x.type, f"source_target_pairs = {text}, {self.channel()}")

    def per_device(self, table: Sequence[int] | np.ndarray) -> Value:
        """The scalar i32 that stands in a table at this device's logical id; one look-up per different table."""
        numbers = np.asarray(table, np.int64)
        table = numbers.astype(np.int32)
        if (table != numbers).any():
            raise LoweringError(f"{numbers.max()} is no index that devices can compute with: they have 32 bits")
        key = table.tobytes()
        if key not in self._looked_up:
            self._looked_up[key] = self._look_up(table)
        return self._looked_up[key]

    def _look_up(self, table: np.ndarray) -> Value:
        if (table == table[0]).all():
            return self.integer(int(table[0]))
        row = self.dynamic_slice(self.constant(table), [self._partition_number()], (1,))
        return self.reshape(row, ())

    def _partition_number(self) -> Value:
        if self._partition is None:
            partition = self.op("partition_id", (), TensorType((), "ui32"))
            self._partition = self.op("convert", [partition], SCALAR)
        return self._partition

    def chosen(self, devices: np.ndarray, yes: Value, no: Value) -> Value:
        """yes on the devices marked, no on the others."""
        marked = self.per_device(devices.astype(np.int64))
        return self.select(self.compare("NE", marked, self.integer(0)), yes, no)

    def put(self, x: Value, piece: Value, starts: Sequence[Value], devices: np.ndarray) -> Value:
        """x with a box overwritten on the devices marked; others write back what was there."""
        if not devices.all():
            piece = self.chosen(devices, piece, self.dynamic_slice(x, starts, piece.type.shape))
        return self.dynamic_update_slice(x, piece, starts)

    def index(self, axes: Iterable[str]) -> Value:
        """This device's mixed-radix position along axes."""
        return self.per_device(self.mesh.index(axes))

    def corner(self, starts: np.ndarray, devices: np.ndarray) -> list[Value]:
        """Per dimension this device's start, of those that ``starts`` lists for some devices; others may have any."""
        tables = np.zeros((starts.shape[1], self.mesh.size), np.int64)
        for table, column in zip(tables, starts.T, strict=True):
            if (column == column[:1]).all():
                table[:] = column[:1]
            else:
                table[devices] = column
        return [self.per_device(table) for table in tables]

    def channel(self) -> str:
        """The attribute of a channel that nothing has yet."""
        return f"channel_handle = #stablehlo.channel_handle<handle = {next(self._channels)}, type = 1>"

    def fence(self, x: Value) -> Value:
        """x, to be computed once for all its users.

        XLA expands optimization barriers before it fuses on CPUs. There x is what a function returns that is not to be
        inlined.
        """
        if self.platform != "cpu":
            return self.op("optimization_barrier", [x], x.type)
        name = self.identities.setdefault(x.type, f"identity{len(self.identities)}")
        made = Value(self.fresh(), x.type)
        attributes = f'callee = @{name}, mhlo.frontend_attributes = {{inlineable = "false"}}'
        self.line(f'{made.name} = "func.call"({x.name}) {{{attributes}}} : {function_type([x.type], [x.type])}')
        return made

    def unknown_zero(self) -> Value:
        """Zero on every device, which compilers do not know."""
        return self.op("minimum", [self._partition_number(), self.integer(0)], SCALAR)

    # Regions. They look their own tables up: values of outside are not for them to use.

    def region(self) -> Self:
        """An empty body inside this one, with the same supply of names and channels."""
        inner = type(self)(
            self.mesh, self.indent + "  ", tables=self.tables, platform=self.platform, processes=self.processes,
            identities=self.identities)
        inner.nested = True
        inner._names, inner._channels = self._names, self._channels
        return inner

    def arguments(self, types: Iterable[TensorType]) -> list[Value]:
        """Begin a region with block arguments."""
        values = [Value(self.fresh(), t) for t in types]
        self.line(f"^bb0({', '.join(f'{v.name}: {v.type}' for v in values)}):")
        return values

    def end(self, results: Sequence[Value]) -> None:
        """End a region with its results."""
        types = ", ".join(str(v.type) for v in results)
        self.line(f'"stablehlo.return"({", ".join(v.name for v in results)}) : ({types}) -> ()')

    def op_with_regions(
        self,
        name: str,
        operands: Sequence[Value],
        regions: Sequence[BodyText],
        results: Sequence[TensorType],
        attributes: str = "",
    ) -> list[Value]:
        """Append one op with finished regions."""
        head, names = bound(self.fresh, f"stablehlo.{name}", [x.name for x in operands], len(results))
        self.line(f"{head} ({{")
        for i, region in enumerate(regions):
            if i:
                self.line("}, {")
            self.lines += region.lines
        shown = f" {{{attributes}}}" if attributes else ""
        self.line(f"}}){shown} : {function_type([x.type for x in operands], results)}")
        return [Value(n, t) for n, t in zip(names, results, strict=True)]

    def line(self, text: str) -> None:
        """Append a line as it is."""
        self.lines.append(self.indent + text)


def integers(values: Iterable[int]) -> str:
    items = ", ".join(str(int(v)) for v in values)
    return f"array<i64: {items}>" if items else "array<i64>"
