"""Padded values of a function: what is known of their padding's content, and the ops that change it.

A tensor's own elements stay in front, at their indices, and padding follows them. Every function here keeps the
module's meaning as a program on whole tensors, whatever the shardings are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from eggshard.errors import ShardingError
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import axis_lists_text
from eggshard.shardy.local.emission import integers, scalar, typed, zero_text
from eggshard.shardy.local.halo_exchange import Exchange, Shards, Window, grids, is_outermost, on_shards, refined
from eggshard.shardy.module import ShardyModule, create, shape

Sizes = tuple[int, ...]


class PaddedValues:
    """The values of a function: their own sizes, and the scalar that their padding is known to hold."""

    def __init__(self, module: ShardyModule, channel: Iterator[int]) -> None:
        self.module = module
        self.channel = channel
        self._own: dict[Any, Sizes] = {}
        self._kinds: dict[Any, str] = {}
        self._masked: dict[object, Any] = {}
        self._counts: dict[TensorSharding, list[int]] = {}

    # -- what is known of a value ------------------------------------------------------------------------------------

    def own(self, value: Any) -> Sizes:
        """The sizes of the tensor without its padding."""
        return self._own.get(value, shape(value))

    def kind(self, value: Any) -> str | None:
        """What the padding holds, as MLIR writes it; None if that is not known."""
        return self._kinds.get(value)

    def is_padded(self, value: Any) -> bool:
        return self.own(value) != shape(value)

    def record(self, value: Any, own: Sizes, kind: str | None = None) -> None:
        """Note a value's own sizes and what its padding holds."""
        self._own[value] = tuple(own)
        self._kinds.pop(value, None)
        if kind is not None:
            self._kinds[value] = kind

    def sharding(self, value: Any) -> TensorSharding | None:
        """The sharding of a value if it says how the tensor is cut."""
        found = self.module.sharding(value) if isinstance(value.type, ir.RankedTensorType) else None
        return None if found is None or found.sharding.device is not None or not any(found.axes) else found

    def shards(self, sharding: TensorSharding | None, rank: int) -> list[int]:
        """Per dimension into how many shards it is cut."""
        if sharding is None:
            return [1] * rank
        if sharding not in self._counts:
            mesh = refined(self.module.mesh(sharding), [sharding])
            self._counts[sharding] = [grid.shards for grid in grids(mesh, sharding, [1] * rank)]
        return self._counts[sharding]

    def even(self, value: Any, own: Sizes) -> Sizes:
        """The sizes at which the shards of a value are equal."""
        counts = self.shards(self.sharding(value), len(own))
        if any(n < 0 < count - 1 for n, count in zip(own, counts, strict=True)):
            raise ShardingError(f"{value.type} is sharded {self.sharding(value)} along a dimension of unknown size; "
                                "give the program fixed shapes")
        return tuple(-(-n // count) * count for n, count in zip(own, counts, strict=True))

    # -- changing it -------------------------------------------------------------------------------------------------

    def resized(self, value: Any, sizes: Sequence[int], before: Any) -> Any:
        """The value with other padding, zeros where there is more of it; none where the size is the tensor's own."""
        sharding, rank = self.sharding(value), len(shape(value))
        counts = self.shards(sharding, rank)
        for dim, size in enumerate(sizes):
            if shape(value)[dim] != size and counts[dim] > 1 and sharding is not None:
                value = self._retiled(value, dim, size, counts[dim], before)
        for larger in (False, True):
            now = shape(value)
            new = [size if (size > n) == larger else n for size, n in zip(sizes, now, strict=True)]
            value = self._edge(value, new, before)
        sharding = sharding if sharding is not None else self.sharding(value)
        for dim, size in enumerate(sizes):
            if counts[dim] > 1 and size % counts[dim] == 0 and sharding is not None:
                held = self.sharding(value)
                axes = held.axes if held is not None else ((),) * rank
                if axes[dim] != sharding.axes[dim]:
                    out = sharding.with_axes(sharding.axes[d] if d == dim else axes[d] for d in range(rank))
                    value = self.cut(value, dim, out, before)
        return value

    def _retiled(self, value: Any, dim: int, size: int, count: int, before: Any) -> Any:
        """A sharded dimension at another size, if its shards are equal then; otherwise made whole."""
        sharding = self.sharding(value)
        assert sharding is not None
        if size % count == 0 and shape(value)[dim] % count == 0 and is_outermost(before):
            return self._exchanged(value, dim, size, sharding, before)
        whole = sharding.with_axes(() if d == dim else axes for d, axes in enumerate(sharding.axes))
        return self._collective("sdy.all_gather", "gathering_axes", value, dim, sharding.axes[dim], whole, before)

    def cut(self, value: Any, dim: int, sharding: TensorSharding, before: Any) -> Any:
        """A value that is whole along a dimension, sharded there."""
        return self._collective("sdy.all_slice", "slicing_axes", value, dim, sharding.axes[dim], sharding, before)

    def _collective(
        self, name: str, axes_name: str, value: Any, dim: int, axes: Any, out: TensorSharding, before: Any
    ) -> Any:
        lists = axis_lists_text(axes if d == dim else () for d in range(len(shape(value))))
        op = create(name, [value], [value.type], {axes_name: lists, "out_sharding": str(out)}, before)
        self.record(op.results[0], self.own(value), self.kind(value))
        return op.results[0]

    def _edge(self, value: Any, sizes: Sequence[int], before: Any) -> Any:
        """The value with zeros behind it, or cut off."""
        old, zeros, rank = shape(value), [0] * len(sizes), len(sizes)
        if tuple(sizes) == old:
            return value
        element_type, sharding = ir.RankedTensorType(value.type).element_type, self.module.sharding(value)
        with ir.InsertionPoint(before):
            if any(size > n for size, n in zip(sizes, old, strict=True)):
                edges, kind = [size - n for size, n in zip(sizes, old, strict=True)], self._kind_with_zeros(value)
                out = stablehlo.pad(value, scalar(element_type, zero_text(element_type)), zeros, edges, zeros)
            else:
                kind = self.kind(value)
                out = stablehlo.slice(value, zeros, list(sizes), [1] * rank)
        self.record(out, self.own(value), kind)
        if sharding is not None and any(sharding.axes):
            self.module.set_sharding(out, sharding)
        return out

    def _exchanged(self, value: Any, dim: int, size: int, sharding: TensorSharding, before: Any) -> Any:
        """The value in tiles of another size: the rows that change devices are exchanged."""
        sizes = [size if d == dim else n for d, n in enumerate(shape(value))]
        closed = TensorSharding.closed(sharding.mesh, sharding.axes, sharding.sharding.unreduced)
        element_type = ir.RankedTensorType(value.type).element_type
        with ir.InsertionPoint(before):
            fill = scalar(element_type, zero_text(element_type))
        mesh = refined(self.module.mesh(closed), [closed])
        target = grids(mesh, closed, sizes)[dim]

        def body(exchange: Exchange, shards: list[Shards]) -> list[Any]:
            exchange.windows(shards[0], dim, target, Window(0), shards[1].value, exact=False)
            return [shards[0].value]

        operands = [(value, closed), (fill, TensorSharding.closed(sharding.mesh, ()))]
        out, = on_shards(self.module, self.channel, operands, [(typed(value, sizes), closed)], body, before)
        self.record(out, self.own(value), self._kind_with_zeros(value))
        return out

    def _kind_with_zeros(self, value: Any) -> str | None:
        """What the padding holds when zeros are added to it."""
        zero = constant_text(value, zero_text(ir.RankedTensorType(value.type).element_type))
        return zero if not self.is_padded(value) or self.kind(value) == zero else None

    def masked(self, value: Any, dims: Collection[int], fill: Any, before: Any) -> Any:
        """The value with a scalar in its padding along some dimensions, which is a value or MLIR's text of one."""
        own, sizes = self.own(value), shape(value)
        padded = [d for d in range(len(sizes)) if own[d] != sizes[d]]
        wrong = [d for d in padded if d in dims]
        kind = constant_text(value, fill) if isinstance(fill, str) else scalar_text(fill)
        if not wrong or (kind is not None and self.kind(value) == kind):
            return value
        key = before.block, value, tuple(wrong), fill if kind is None else kind
        if key not in self._masked:
            self._masked[key] = self._mask(value, wrong, fill, before)
            self.record(self._masked[key], own, kind if wrong == padded else None)
        return self._masked[key]

    def _mask(self, value: Any, dims: Sequence[int], fill: Any, before: Any) -> Any:
        sizes, made, inside = list(shape(value)), [], None
        numbers = ir.RankedTensorType.get(sizes, ir.IntegerType.get_signless(32))
        with ir.InsertionPoint(before):
            for dim in dims:
                index = stablehlo.iota(numbers, dim)
                limit = stablehlo.broadcast_in_dim(numbers, integers(self.own(value)[dim]), [])
                below = stablehlo.compare(index, limit, stablehlo.ComparisonDirectionAttr.get("LT"))
                made += [index, limit, below]
                if inside is not None:
                    below = stablehlo.and_(inside, below)
                    made.append(below)
                inside = below
            if isinstance(fill, str):
                fill = scalar(ir.RankedTensorType(value.type).element_type, fill)
            other = stablehlo.broadcast_in_dim(value.type, fill, [])
            out = stablehlo.select(inside, value, other)
        sharding = self.sharding(value)
        if sharding is not None:
            plain = TensorSharding.closed(sharding.mesh, sharding.axes)
            for each in (*made, other):
                self.module.set_sharding(each, plain)
            self.module.set_sharding(out, sharding)
        return out

    def must_be_even(self, name: str, sizes: Sizes, sharding: TensorSharding | None, remedy: str) -> None:
        """ShardingError unless the shards of a tensor that others see are equal."""
        counts = self.shards(sharding, len(sizes))
        for dim, (n, count) in enumerate(zip(sizes, counts, strict=True)):
            if n % count:
                raise ShardingError(
                    f"{name} of shape {list(sizes)} is sharded {sharding}: dimension {dim} of size {n} is not "
                    f"divisible by its {count} shards; {remedy}"
                )


def constant_text(value: Any, text: str) -> str:
    """How MLIR prints a scalar of a value's element type; complex numbers stay as they are."""
    element_type = ir.RankedTensorType(value.type).element_type
    if isinstance(element_type, ir.ComplexType):
        return text
    return _printed(ir.Attribute.parse(f"dense<{text}> : tensor<{element_type}>"))


def scalar_text(value: Any) -> str | None:
    """How MLIR prints a scalar value that is a constant."""
    if isinstance(value.owner, ir.Block) or value.owner.name != "stablehlo.constant":
        return None
    return splat_text(value.owner)


def splat_text(constant: Any) -> str | None:
    """How MLIR prints the one scalar of a constant; None if it has several."""
    if isinstance(ir.RankedTensorType(constant.results[0].type).element_type, ir.ComplexType):
        return None
    attribute = constant.attributes["value"]
    return _printed(attribute) if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat else None


def _printed(attribute: Any) -> str:
    text = str(attribute)
    return text[text.index("<") + 1 : text.rindex(">", 0, text.rindex(": tensor<"))]
