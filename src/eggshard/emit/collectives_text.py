"""Writer of every collective step as StableHLO text: what one device executes, in shard-local shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from eggshard.emit.body_text import EMITTED, SCALAR, BodyText, Value, integers
from eggshard.emit.carried_wraps import carrying_wraps, middle
from eggshard.emit.convolution_text import features_last
from eggshard.emit.double_buffers import Assembled, assembled, turns_of, written
from eggshard.emit.fences import fenced, written_alone
from eggshard.emit.indexed_text import IndexedText
from eggshard.errors import LoweringError
from eggshard.program import monoids
from eggshard.program.types import TensorType
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective, OnFirstDevice
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import BoxExchange, PieceExchange
from eggshard.steps.moves import Moves
from eggshard.steps.piece_steps import Exchange, Pieces
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    Local,
    Mask,
    ReduceScatter,
    Resize,
    Slice,
    Step,
    StepPlan,
)

#: Bytes of an operand up to which the latency of its own all-reduce on CPUs costs more than copying it: within one
#: process, and over a network.
PACKED, PACKED_FOR_NETWORK = 1 << 14, 1 << 20


class StepText(IndexedText):
    """The body of a device program, written step by step."""

    def program(
        self, plan: StepPlan, arguments: Sequence[Value],
        into: Mapping[int, tuple[Assembled, Value]] = MappingProxyType({}),
    ) -> list[Value]:
        """Append all steps of a device program and return its outputs. LoweringError names the step that failed.

        into: by place the outputs that are written into an array, and how they are put together.
        """
        values: dict[int, Value] = dict(zip(plan.inputs, arguments, strict=True))
        alone_there = {one.value for one, _ in into.values() if one.alone}
        kept = fenced(plan, self.platform) - alone_there if self.platform else frozenset()
        alone = written_alone(plan, kept)
        put_together = {id(laid.step) for one, _ in into.values() for laid in one.then}
        for step in plan.steps:
            if id(step) in put_together:
                continue
            where = " ".join(("step", step.action.kind, step.label or " ".join(f"%{v}" for v in step.results)))
            self.in_place = not alone.isdisjoint(step.results)
            try:
                operands = [values[v] for v in step.operands]
                results = self._in_two_arrays(plan, step, operands) or self.emit(step.action, operands)
            except LoweringError as error:
                raise LoweringError(f"{where}: {error}") from None
            for v, result in zip(step.results, results, strict=True):
                if result.type != plan.types[v]:
                    raise LoweringError(f"{where} makes {result.type}, the plan says {plan.types[v]}")
                values[v] = self.fence(result) if v in kept else result
        for place, (one, array) in into.items():
            values[plan.outputs[place]] = written(self, plan, one, values, array)
        return [values[v] for v in plan.outputs]

    def _in_two_arrays(self, plan: StepPlan, step: Step, operands: Sequence[Value]) -> list[Value]:
        """The results of a loop whose arrays alternate; nothing of other steps."""
        turns = turns_of(plan, step) if self.platform == "cpu" else None
        if turns is None or not isinstance(step.action, Loop):
            return []
        loop, wraps = carrying_wraps(step.action, turns)
        if not (found := assembled(loop, turns)):
            return []
        operands = [self.emit(wraps[i], [x])[0] if i in wraps else x for i, x in enumerate(operands)]
        made = self._by_turns(loop, turns, found, operands)
        return [self.emit(middle(wraps[i]), [x])[0] if i in wraps else x for i, x in enumerate(made)]

    def _by_turns(
        self, loop: Loop, turns: int, found: Mapping[int, Assembled], operands: Sequence[Value]
    ) -> list[Value]:
        """A loop by pairs of iterations, of which each writes into an array that the other reads.

        Where the number of turns is odd the second iteration of the last pair is one too many: what is returned was
        kept from before it.
        """
        body, count = loop.body, len(operands)
        others = [i for i in range(count) if i not in found] if turns % 2 else []
        second = [operands[i] for i in (*found, *others)]
        types = [SCALAR, *(x.type for x in (*operands, *second))]
        goes_on, pair = self.region(), self.region()
        goes_on.end([goes_on.compare("LT", goes_on.arguments(types)[0], goes_on.integer((turns + 1) // 2))])
        number, *given = pair.arguments(types)
        state, arrays = given[:count], given[count : count + len(found)]
        once = pair.program(body, state, dict(zip(found, zip(found.values(), arrays, strict=True), strict=True)))
        twice = pair.program(body, once, {i: (one, state[i]) for i, one in found.items()})
        more = pair.op("add", [number, pair.integer(1)], SCALAR)
        pair.end([more, *twice, *(once[i] for i in (*found, *others))])
        made = self.op_with_regions("while", [self.integer(0), *operands, *second], [goes_on, pair], types)[1:]
        if turns % 2:
            after = dict(zip((*found, *others), made[count:], strict=True))
            return [after[i] for i in range(count)]
        return made[:count]

    def emit(self, action: Action, operands: Sequence[Value]) -> list[Value]:
        """Append the lines of an action and return its results. LoweringError for one that XLA cannot run."""
        return EMITTED.of(action)(self, action, operands)

    @EMITTED.handles(DeviceNumber)
    def _device_number(self, action: DeviceNumber, operands: Sequence[Value]) -> list[Value]:
        return [self.op("convert", [self.per_device(action.numbers)], TensorType((), "ui32"))]

    @EMITTED.handles(Resize)
    def _resize(self, action: Resize, operands: Sequence[Value]) -> list[Value]:
        return [self.resize(operands[0], action.shape)]

    # Collectives.

    def _group(self, axes: tuple[str, ...]) -> str:
        return f"replica_groups = {self.dense(self.mesh.groups(axes).astype(np.int64))}, {self.channel()}"

    @EMITTED.handles(Local)
    def _local(self, action: Local, operands: Sequence[Value]) -> list[Value]:
        if action.name == "convolution" and self.nested and self.platform == "cpu":
            return features_last(self, action, operands)
        return self.local(action, operands)

    @EMITTED.handles(Slice)
    def _slice(self, action: Slice, operands: Sequence[Value]) -> list[Value]:
        (x,) = operands
        sizes, starts = list(x.type.shape), [self.integer(0)] * x.type.rank
        for dim, axes in action.moves:
            sizes[dim] //= self.mesh.count(axes)
            starts[dim] = self.per_device(self.mesh.index(axes) * sizes[dim])
        return [self.dynamic_slice(x, starts, tuple(sizes))]

    @EMITTED.handles(AllGather)
    def _all_gather(self, action: AllGather, operands: Sequence[Value]) -> list[Value]:
        (x,) = operands
        if len(action.moves) == 1:
            return [self._gather_along(x, action.moves[0][0], action.axes)]
        # Not with a dimension of size 1 in front: XLA:CPU updates a tensor in place before that, and may still read it.
        gathered = self._gather_along(x, 0, action.axes)
        blocks = self.reshape(gathered, (self.mesh.count(action.axes), *x.type.shape))
        return [self._digits_into(blocks, action.axes, action.moves)]

    @EMITTED.handles(AllToAll)
    def _all_to_all(self, action: AllToAll, operands: Sequence[Value]) -> list[Value]:
        x = self._digits_in_front(operands[0], action.targets)
        return [self._digits_into(self._exchange_blocks(x, action.axes), action.axes, action.sources)]

    @EMITTED.handles(CollectivePermute)
    def _permute(self, action: CollectivePermute, operands: Sequence[Value]) -> list[Value]:
        return [self.permute(operands[0], action.pairs)]

    def _exchange_blocks(self, x: Value, axes: tuple[str, ...]) -> Value:
        """Block i of the leading dimension goes to group member i; block i of the result comes from it.

        They are sent as rows of the next dimension, which most results have: XLA:CPU concatenates them, by a kernel
        that takes long to compile where it has to reshape them, too.
        """
        attributes = (
            f"split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = {x.type.shape[0]} : i64, "
            f"{self._group(axes)}"
        )
        rows = self.reshape(x, (math.prod(x.type.shape[:2]), *x.type.shape[2:]))
        return self.reshape(self.op("all_to_all", [rows], rows.type, attributes), x.type.shape)

    def _gather_along(self, x: Value, dim: int, axes: tuple[str, ...]) -> Value:
        """Concatenate the group's x along a dimension."""
        shape = list(x.type.shape)
        shape[dim] *= self.mesh.count(axes)
        attributes = f"all_gather_dim = {dim} : i64, {self._group(axes)}, use_global_device_ids"
        return self.op("all_gather", [x], x.type.with_shape(tuple(shape)), attributes)

    @EMITTED.handles(ReduceScatter)
    def _reduce_scatter(self, action: ReduceScatter, operands: Sequence[Value]) -> list[Value]:
        (x,) = operands
        if not monoids.reduced_by_collectives(action.monoid, x.type.dtype):
            blocks = self._digits_in_front(x, action.moves)
            return [self._combine(self._exchange_blocks(blocks, action.axes), action.monoid)]
        dim, shape = action.moves[0][0], list(x.type.shape)
        if len(action.moves) > 1:
            x, dim = self._digits_in_front(x, action.moves), 0
            shape = list(x.type.shape)
        shape[dim] //= self.mesh.count(action.axes)
        attributes = f"scatter_dimension = {dim} : i64, {self._group(action.axes)}, use_global_device_ids"
        result = x.type.with_shape(tuple(shape))
        (out,) = self.op_with_regions("reduce_scatter", [x], [self._monoid(action.monoid, x)], [result], attributes)
        return [out if len(action.moves) == 1 else self.reshape(out, out.type.shape[1:])]

    @EMITTED.handles(AllReduce)
    def _all_reduces(self, action: AllReduce, operands: Sequence[Value]) -> list[Value]:
        """One collective each: XLA combines them, and refuses several operands in a manual region.

        XLA:CPU runs the operands of a combined collective one after the other. There small ones go as one array.
        """
        most = 0 if self.platform != "cpu" else PACKED if self.processes == 1 else PACKED_FOR_NETWORK
        packs: dict[str | int, list[int]] = {}
        for i, x in enumerate(operands):
            reduced = monoids.reduced_by_collectives(action.monoid, x.type.dtype)
            small = reduced and x.type.bytes <= most
            packs.setdefault(x.type.dtype if small else i, []).append(i)
        made: dict[int, Value] = {}
        for pack in packs.values():
            given = [operands[i] for i in pack]
            if len(given) > 1:
                results = self.apart(self._all_reduce(self.in_a_line(given), action), given)
            else:
                results = [self._all_reduce(given[0], action)]
            made.update(zip(pack, results, strict=True))
        return [made[i] for i in range(len(operands))]

    def _all_reduce(self, x: Value, action: AllReduce) -> Value:
        if not monoids.reduced_by_collectives(action.monoid, x.type.dtype):
            count = self.mesh.count(action.axes)
            size = -(-x.type.elements // count)
            blocks = self.reshape(self.resize(self.reshape(x, (x.type.elements,)), (count * size,)), (count, size))
            part = self._combine(self._exchange_blocks(blocks, action.axes), action.monoid)
            whole = self._gather_along(part, 0, action.axes)
            return self.reshape(self.resize(whole, (x.type.elements,)), x.type.shape)
        attributes = f"{self._group(action.axes)}, use_global_device_ids"
        return self.op_with_regions("all_reduce", [x], [self._monoid(action.monoid, x)], [x.type], attributes)[0]

    def _combine(self, x: Value, monoid: str) -> Value:
        """Reduce the leading dimension on the device."""
        initial = self.splat(TensorType((), x.type.dtype), monoid)
        result = x.type.with_shape(x.type.shape[1:])
        body = self._monoid(monoid, x)
        return self.op_with_regions("reduce", [x, initial], [body], [result], f"dimensions = {integers((0,))}")[0]

    def _monoid(self, monoid: str, x: Value) -> BodyText:
        """The region that combines two scalars of the element type of x."""
        scalar = TensorType((), x.type.dtype)
        body = self.region()
        body.end([body.op(monoids.monoid(monoid).op, body.arguments([scalar, scalar]), scalar)])
        return body

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
        """Split the leading dimension, which counts ``group``, and put each move's axes before the move's dimension."""
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

    @EMITTED.handles(Exchange, BoxExchange)
    def _exchange(self, action: PieceExchange, operands: Sequence[Value]) -> list[Value]:
        (x,) = operands
        out = self.splat(x.type.with_shape(action.shape), "add")
        sent, kept = action.tables(self.mesh)
        for pieces in kept:
            out = self._put(out, self._cut(x, pieces, action.piece), pieces)
        for pieces in sent:
            out = self._put(out, self.permute(self._cut(x, pieces, action.piece), pieces.pairs), pieces)
        return [out]

    def _cut(self, x: Value, pieces: Pieces, size: tuple[int, ...]) -> Value:
        return self.dynamic_slice(x, self.corner(pieces.source_starts, pieces.senders), size)

    def _put(self, out: Value, piece: Value, pieces: Pieces) -> Value:
        """Overwrite the round's piece on its targets."""
        receives = np.isin(np.arange(self.mesh.size), pieces.receivers)
        return self.put(out, piece, self.corner(pieces.target_starts, pieces.receivers), receives)

    @EMITTED.handles(KeepFirst)
    def _keep_first(self, action: KeepFirst, operands: Sequence[Value]) -> list[Value]:
        (x,) = operands
        first = self.compare("EQ", self.index(action.over), self.integer(0))
        return [self.select(first, x, self.splat(x.type, action.monoid))]

    @EMITTED.handles(Mask)
    def _mask(self, action: Mask, operands: Sequence[Value]) -> list[Value]:
        (x,) = operands
        tile = x.type.shape[action.dim]
        owned = np.clip(action.size - self.mesh.index(action.shard_axes) * tile, 0, tile)
        if owned.min() == tile:
            return [x]
        identity = self.splat(TensorType((), x.type.dtype), action.monoid)
        return [self.within(x, action.dim, np.zeros_like(owned), owned, identity)]

    # Control flow, and what runs on one device only.

    @EMITTED.handles(GroupCollective)
    def _group_collective(self, action: GroupCollective, operands: Sequence[Value]) -> list[Value]:
        channel = self.channel().partition(" = ")[2]
        attributes = action.attributes.updated(channel_handle=channel)
        return self._local(Local(action.name, attributes, action.result_types, action.regions), operands)

    @EMITTED.handles(OnFirstDevice)
    def _on_first_device(self, action: OnFirstDevice, operands: Sequence[Value]) -> list[Value]:
        types = action.local.result_types
        first = self.compare("EQ", self.index(self.mesh.axes), self.integer(0))
        runs, idles = self.region(), self.region()
        runs.end(runs.emit(action.local, operands))
        idles.end([idles.zeros(t) for t in types])
        return self.op_with_regions("if", [first], [runs, idles], types)

    @EMITTED.handles(Loop)
    def _loop(self, action: Loop, operands: Sequence[Value]) -> list[Value]:
        types = [x.type for x in operands]
        regions = []
        for plan in (action.condition, action.body):
            inner = self.region()
            inner.end(inner.program(plan, inner.arguments(types)))
            regions.append(inner)
        return self.op_with_regions("while", operands, regions, types)

    @EMITTED.handles(Branch)
    def _branch(self, action: Branch, operands: Sequence[Value]) -> list[Value]:
        regions = []
        for plan in action.branches:
            inner = self.region()
            inner.end(inner.program(plan, operands[1:]))
            regions.append(inner)
        first = action.branches[0]
        types = [first.types[v] for v in first.outputs]
        return self.op_with_regions("if" if action.predicate else "case", operands[:1], regions, types)
