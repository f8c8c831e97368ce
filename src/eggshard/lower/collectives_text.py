"""The StableHLO text of every physical step: what one device executes, in shard-local shapes.

`BodyText` collects the lines of a device program's body. What depends on the device is looked up by partition id in a
table constant, the form in which XLA's own partitioner writes offsets and which its later passes recognise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from eggshard.errors import LoweringError
from eggshard.plan.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    Branch,
    CollectivePermute,
    Exchange,
    KeepFirst,
    Local,
    Loop,
    Mask,
    Moves,
    Pairs,
    ReduceScatter,
    Resize,
    Round,
    Slice,
    StepPlan,
)
from eggshard.program import monoids
from eggshard.program.mesh import Mesh
from eggshard.program.ops import spelling
from eggshard.program.ops.dense import dense_text
from eggshard.program.types import TensorType, mlir_dtype, numpy_dtype

SCALAR = TensorType((), "i32")


class Value(NamedTuple):
    """A value of the module being written: its name with the leading %, and its type."""

    name: str
    type: TensorType


class BodyText:
    """Lines of one device program's body. Channel ids are unique within it, counted from 1."""

    def __init__(self, mesh: Mesh, indent: str = "      "):
        self.mesh, self.indent = mesh, indent
        self.lines: list[str] = []
        self._names, self._channels = count(), count(1)
        self._partition: Value | None = None
        self._looked_up: dict[tuple[int, ...], Value] = {}

    def program(self, plan: StepPlan, arguments: Sequence[Value]) -> list[Value]:
        """Append all steps of a device program and return its outputs. LoweringError names the step that failed."""
        values: dict[int, Value] = dict(zip(plan.inputs, arguments, strict=True))
        for step in plan.steps:
            where = f"step {step.action.kind} {step.label or step.results}"
            try:
                results = self.emit(step.action, [values[v] for v in step.operands])
            except LoweringError as error:
                raise LoweringError(f"{where}: {error}") from None
            for v, result in zip(step.results, results, strict=True):
                if result.type != plan.types[v]:
                    raise LoweringError(f"{where} makes {result.type}, the plan says {plan.types[v]}")
                values[v] = result
        return [values[v] for v in plan.outputs]

    def fresh(self) -> str:
        """A value name that nothing has yet."""
        return f"%{next(self._names)}"

    def emit(self, action: Action, operands: Sequence[Value]) -> list[Value]:
        """Append the lines of an action and return its results. LoweringError for one that XLA cannot run."""
        match action:
            case Local():
                return self._local(action, operands)
            case Loop():
                return self._loop(action, operands)
            case Branch():
                return self._branch(action, operands)
            case AllReduce():
                # One collective each: XLA combines them, and refuses several operands in a manual region.
                return [self._all_reduce(x, action) for x in operands]
        (x,) = operands
        match action:
            case Resize():
                return [self.resize(x, action.shape)]
            case Slice():
                return [self._slice(x, action.moves)]
            case AllGather():
                return [self._all_gather(x, action)]
            case AllToAll():
                return [self._all_to_all(x, action)]
            case CollectivePermute():
                return [self.permute(x, action.pairs)]
            case Exchange():
                return [self._exchange(x, action)]
            case ReduceScatter():
                return [self._reduce_scatter(x, action)]
            case KeepFirst():
                first = self.compare("EQ", self.index(action.over), self.integer(0))
                return [self.select(first, x, self.splat(x.type, action.monoid))]
            case Mask():
                return [self._mask(x, action)]
        raise LoweringError(f"step {action.kind!r} has no StableHLO spelling")

    # Single ops.

    def op(self, name: str, operands: Sequence[Value], result: TensorType, attributes: str = "") -> Value:
        """Append one op with one result; ``attributes`` is the inside of its attribute dictionary."""
        out = Value(self.fresh(), result)
        types = function_type([x.type for x in operands], [result])
        self._line(f"{out.name} = {_head(name, operands, attributes)} : {types}")
        return out

    def constant(self, array: np.ndarray, splat: bool = False) -> Value:
        """A constant; ``splat``: all its elements are the same one."""
        type_ = TensorType(array.shape, mlir_dtype(array.dtype))
        return self.op("constant", (), type_, f"value = {dense_text(array, splat)}")

    def integer(self, value: int) -> Value:
        """A scalar i32 constant."""
        return self.op("constant", (), SCALAR, f"value = dense<{value}> : {SCALAR}")

    def splat(self, type_: TensorType, monoid: str) -> Value:
        """The identity of a monoid in every element."""
        identity = np.asarray(monoids.identity(monoid, type_.dtype)).astype(numpy_dtype(type_.dtype))
        return self.constant(np.broadcast_to(identity, type_.shape), splat=True)

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        """x with the same elements in row-major order; x itself where nothing changes."""
        return x if shape == x.type.shape else self.op("reshape", [x], x.type.with_shape(shape))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """Dimension i of the result is dimension ``order[i]`` of x; x itself where nothing changes."""
        if list(order) == list(range(x.type.rank)):
            return x
        shape = tuple(x.type.shape[d] for d in order)
        return self.op("transpose", [x], x.type.with_shape(shape), f"permutation = {_integers(order)}")

    def resize(self, x: Value, shape: tuple[int, ...]) -> Value:
        """Cut or zero-pad the high ends."""
        kept = tuple(min(n, m) for n, m in zip(x.type.shape, shape, strict=True))
        if kept != x.type.shape:
            ones = (1,) * len(kept)
            attributes = (
                f"start_indices = {_integers((0,) * len(kept))}, limit_indices = {_integers(kept)}, "
                f"strides = {_integers(ones)}"
            )
            x = self.op("slice", [x], x.type.with_shape(kept), attributes)
        if kept != shape:
            zeros = _integers((0,) * len(kept))
            high = _integers([m - n for n, m in zip(kept, shape, strict=True)])
            zero = self.splat(TensorType((), x.type.dtype), "add")
            attributes = f"edge_padding_low = {zeros}, edge_padding_high = {high}, interior_padding = {zeros}"
            x = self.op("pad", [x, zero], x.type.with_shape(shape), attributes)
        return x

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
        return self.op("dynamic_slice", [x, *starts], x.type.with_shape(sizes), f"slice_sizes = {_integers(sizes)}")

    def dynamic_update_slice(self, x: Value, piece: Value, starts: Sequence[Value]) -> Value:
        """x with a box overwritten; the piece itself where it covers x."""
        if piece.type == x.type:
            return piece
        return self.op("dynamic_update_slice", [x, piece, *starts], x.type)

    # What depends on the device.

    def per_device(self, table: Sequence[int] | np.ndarray) -> Value:
        """The scalar i32 that stands in a table at this device's logical id; one look-up per different table."""
        key = tuple(int(v) for v in table)
        if key not in self._looked_up:
            self._looked_up[key] = self._look_up(key)
        return self._looked_up[key]

    def _look_up(self, table: tuple[int, ...]) -> Value:
        if len(set(table)) == 1:
            return self.integer(table[0])
        if self._partition is None:
            partition = self.op("partition_id", (), TensorType((), "ui32"))
            self._partition = self.op("convert", [partition], SCALAR)
        row = self.dynamic_slice(self.constant(np.array(table, np.int32)), [self._partition], (1,))
        return self.reshape(row, ())

    def index(self, axes: Iterable[str]) -> Value:
        """This device's mixed-radix position along axes."""
        return self.per_device(self.mesh.index(axes))

    def corner(self, starts: Sequence[Sequence[int]], devices: Sequence[int], rank: int) -> list[Value]:
        """Per dimension this device's start; what the table says of devices that take no part is free."""
        table = np.asarray(starts, np.int64).reshape(self.mesh.size, rank)
        out = []
        for column in table.T:
            used = set(column[list(devices)].tolist())
            out.append(self.per_device((used.pop(),) * self.mesh.size if len(used) == 1 else column))
        return out

    # Collectives.

    def permute(self, x: Value, pairs: Pairs) -> Value:
        """Each target gets its source's x; a device that is no target gets zeros."""
        text = dense_text(np.array(pairs, np.int64).reshape(-1, 2))
        return self.op("collective_permute", [x], x.type, f"source_target_pairs = {text}, {self._channel()}")

    def _channel(self) -> str:
        return f"channel_handle = #stablehlo.channel_handle<handle = {next(self._channels)}, type = 1>"

    def _group(self, axes: tuple[str, ...]) -> str:
        return f"replica_groups = {dense_text(self.mesh.groups(axes).astype(np.int64))}, {self._channel()}"

    def _local(self, action: Local, operands: Sequence[Value]) -> list[Value]:
        lines, names = spelling.emit(
            action.name, action.attributes, operands, action.result_types, action.regions, self.fresh
        )
        for line in lines:
            self._line(line)
        return [Value(name, type_) for name, type_ in zip(names, action.result_types, strict=True)]

    def _slice(self, x: Value, moves: Moves) -> Value:
        sizes, starts = list(x.type.shape), [self.integer(0)] * x.type.rank
        for dim, axes in moves:
            sizes[dim] //= self.mesh.count(axes)
            starts[dim] = self.per_device(self.mesh.index(axes) * sizes[dim])
        return self.dynamic_slice(x, starts, tuple(sizes))

    def _all_gather(self, x: Value, action: AllGather) -> Value:
        dim = action.moves[0][0]
        if len(action.moves) > 1:
            x, dim = self.reshape(x, (1, *x.type.shape)), 0
        shape = list(x.type.shape)
        shape[dim] *= self.mesh.count(action.axes)
        attributes = f"all_gather_dim = {dim} : i64, {self._group(action.axes)}, use_global_device_ids"
        gathered = self.op("all_gather", [x], x.type.with_shape(tuple(shape)), attributes)
        if len(action.moves) == 1:
            return gathered
        return self._digits_into(gathered, action.axes, action.moves)

    def _all_to_all(self, x: Value, action: AllToAll) -> Value:
        x = self._digits_in_front(x, action.targets)
        attributes = (
            f"split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = {x.type.shape[0]} : i64, "
            f"{self._group(action.axes)}"
        )
        return self._digits_into(self.op("all_to_all", [x], x.type, attributes), action.axes, action.sources)

    def _reduce_scatter(self, x: Value, action: ReduceScatter) -> Value:
        dim, shape = action.moves[0][0], list(x.type.shape)
        if len(action.moves) > 1:
            x, dim = self._digits_in_front(x, action.moves), 0
            shape = list(x.type.shape)
        shape[dim] //= self.mesh.count(action.axes)
        attributes = f"scatter_dimension = {dim} : i64, {self._group(action.axes)}, use_global_device_ids"
        out = self._reducer("reduce_scatter", x, x.type.with_shape(tuple(shape)), attributes, action.monoid)
        return out if len(action.moves) == 1 else self.reshape(out, out.type.shape[1:])

    def _all_reduce(self, x: Value, action: AllReduce) -> Value:
        attributes = f"{self._group(action.axes)}, use_global_device_ids"
        return self._reducer("all_reduce", x, x.type, attributes, action.monoid)

    def _reducer(self, name: str, x: Value, result: TensorType, attributes: str, monoid: str) -> Value:
        """One collective whose body combines two scalars. LoweringError for a monoid that XLA does not reduce by."""
        scalar = TensorType((), x.type.dtype)
        if monoid in ("and", "or", "xor") and scalar.dtype != "i1":
            raise LoweringError(
                f"{name}({x.type}) combines by bitwise {monoid!r}, which XLA's collectives do only for i1; "
                "keep the operand replicated over the reduced axes"
            )
        a, b = Value(self.fresh(), scalar), Value(self.fresh(), scalar)
        c, out = self.fresh(), Value(self.fresh(), result)
        combine = f"{_head(monoids.monoid(monoid).op, [a, b])} : {function_type([scalar, scalar], [scalar])}"
        self._line(f"{out.name} = {_head(name, [x])} ({{")
        self._line(f"^bb0({a.name}: {scalar}, {b.name}: {scalar}):")
        self._line(f"  {c} = {combine}")
        self._line(f'  "stablehlo.return"({c}) : ({scalar}) -> ()')
        self._line(f"}}) {{{attributes}}} : {function_type([x.type], [result])}")
        return out

    # Digits: the positions along a collective's axes, as dimensions of their own.

    def _digits_in_front(self, x: Value, moves: Moves) -> Value:
        """Split each move's dimension into (count, rest); flatten the counts in order into one leading dimension."""
        counts = {dim: self.mesh.count(axes) for dim, axes in moves}
        split: list[int] = []
        digit, rest = {}, []
        for dim, n in enumerate(x.type.shape):
            if dim in counts:
                digit[dim] = len(split)
                split.append(counts[dim])
            rest.append(len(split))
            split.append(n // counts.get(dim, 1))
        x = self.transpose(self.reshape(x, tuple(split)), [digit[dim] for dim, _ in moves] + rest)
        return self.reshape(x, (math.prod(counts.values()), *x.type.shape[len(moves) :]))

    def _digits_into(self, x: Value, group: tuple[str, ...], moves: Moves) -> Value:
        """The reverse: put each move's axes, out of a leading dimension that counts ``group``, before its dimension."""
        sizes = tuple(self.mesh.axes[a] for a in group)
        x = self.reshape(x, (*sizes, *x.type.shape[1:]))
        axes_of = dict(moves)
        order: list[int] = []
        shape = []
        for dim, n in enumerate(x.type.shape[len(group) :]):
            axes = axes_of.get(dim, ())
            order += [group.index(a) for a in axes] + [len(group) + dim]
            shape.append(n * self.mesh.count(axes))
        return self.reshape(self.transpose(x, order), tuple(shape))

    # Steps of several ops.

    def _exchange(self, x: Value, action: Exchange) -> Value:
        out = self.splat(x.type.with_shape(action.shape), "add")
        for round_ in action.local:
            out = self._put(out, self._cut(x, round_, action.piece), round_)
        for round_ in action.rounds:
            out = self._put(out, self.permute(self._cut(x, round_, action.piece), round_.pairs), round_)
        return out

    def _cut(self, x: Value, round_: Round, piece: tuple[int, ...]) -> Value:
        starts = self.corner(round_.source_starts, [s for s, _ in round_.pairs], x.type.rank)
        return self.dynamic_slice(x, starts, piece)

    def _put(self, out: Value, piece: Value, round_: Round) -> Value:
        """Overwrite the round's piece on its targets; other devices write back what was there."""
        targets = [t for _, t in round_.pairs]
        starts = self.corner(round_.target_starts, targets, out.type.rank)
        if len(targets) < self.mesh.size:
            receives = np.isin(np.arange(self.mesh.size), targets).astype(np.int64)
            old = self.dynamic_slice(out, starts, piece.type.shape)
            piece = self.select(self.compare("NE", self.per_device(receives), self.integer(0)), piece, old)
        return self.dynamic_update_slice(out, piece, starts)

    def _mask(self, x: Value, action: Mask) -> Value:
        tile = x.type.shape[action.dim]
        owned = np.clip(action.size - self.mesh.index(action.shard_axes) * tile, 0, tile)
        if owned.min() == tile:
            return x
        indices = TensorType(x.type.shape, "i32")
        iota = self.op("iota", (), indices, f"iota_dimension = {action.dim} : i64")
        limit = self.per_device(owned)
        limits = self.op("broadcast_in_dim", [limit], indices, f"broadcast_dimensions = {_integers(())}")
        return self.select(self.compare("LT", iota, limits), x, self.splat(x.type, action.monoid))

    # Control flow. A region looks its own tables up: values of outside are not its to use on every backend.

    def _region(self) -> BodyText:
        """An empty body inside this one: the same supply of names and channels."""
        inner = BodyText(self.mesh, self.indent + "  ")
        inner._names, inner._channels = self._names, self._channels
        return inner

    def _loop(self, action: Loop, operands: Sequence[Value]) -> list[Value]:
        types = [x.type for x in operands]
        texts = []
        for plan in (action.condition, action.body):
            inner = self._region()
            arguments = [Value(self.fresh(), t) for t in types]
            inner.lines.append(f"{self.indent}^bb0({', '.join(f'{v.name}: {v.type}' for v in arguments)}):")
            inner.end(inner.program(plan, arguments))
            texts.append(inner.lines)
        return self._with_regions("while", operands, texts, types)

    def _branch(self, action: Branch, operands: Sequence[Value]) -> list[Value]:
        texts = []
        for plan in action.branches:
            inner = self._region()
            inner.end(inner.program(plan, operands[1:]))
            texts.append(inner.lines)
        first = action.branches[0]
        types = [first.types[v] for v in first.outputs]
        return self._with_regions("if" if action.predicate else "case", operands[:1], texts, types)

    def end(self, results: Sequence[Value]) -> None:
        """Append a region's terminator."""
        types = ", ".join(str(v.type) for v in results)
        self._line(f'"stablehlo.return"({", ".join(v.name for v in results)}) : ({types}) -> ()')

    def _with_regions(
        self, name: str, operands: Sequence[Value], regions: Sequence[list[str]], results: Sequence[TensorType]
    ) -> list[Value]:
        pack = self.fresh()
        names = [pack] if len(results) == 1 else [f"{pack}#{i}" for i in range(len(results))]
        bound = {0: "", 1: f"{pack} = "}.get(len(results), f"{pack}:{len(results)} = ")
        self._line(f"{bound}{_head(name, operands)} ({{")
        for i, region in enumerate(regions):
            if i:
                self._line("}, {")
            self.lines += region
        self._line(f"}}) : {function_type([x.type for x in operands], results)}")
        return [Value(n, t) for n, t in zip(names, results, strict=True)]

    def _line(self, text: str) -> None:
        self.lines.append(self.indent + text)


def function_type(operands: Sequence[TensorType], results: Sequence[TensorType]) -> str:
    """MLIR's type of an op, ``(tensor<4xf32>) -> tensor<2xf32>``."""
    ins = ", ".join(str(t) for t in operands)
    outs = str(results[0]) if len(results) == 1 else f"({', '.join(str(t) for t in results)})"
    return f"({ins}) -> {outs}"


def _head(name: str, operands: Sequence[Value], attributes: str = "") -> str:
    shown = f" {{{attributes}}}" if attributes else ""
    return f'"stablehlo.{name}"({", ".join(x.name for x in operands)}){shown}'


def _integers(values: Iterable[int]) -> str:
    items = ", ".join(str(int(v)) for v in values)
    return f"array<i64: {items}>" if items else "array<i64>"
