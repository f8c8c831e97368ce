"""Ops that move elements between shards: the dimensions along which they do, and the ops on shards."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from eggshard.shardy.local.emission import padded, sliced, zero
from eggshard.shardy.local.halo_exchange import Exchange, Grid, Shards, Window
from eggshard.shardy.module import maker, shape

Axes = tuple[Any, ...]


class Pair(NamedTuple):
    """A dimension of an operand and the one of the results that it moves along."""

    operand: int
    dim: int
    result: int


def integers_of(op: Any, name: str, count: int, default: int = 1) -> list[int]:
    """An attribute of integers, or defaults where it is absent."""
    if name not in op.attributes:
        return [default] * count
    return [int(v) for v in ir.DenseI64ArrayAttr(op.attributes[name])]


def edges_of(op: Any, name: str, count: int) -> list[tuple[int, int]]:
    """An attribute of low and high padding, or none."""
    if name not in op.attributes:
        return [(0, 0)] * count
    return [(int(low), int(high)) for low, high in np.array(ir.DenseIntElementsAttr(op.attributes[name]))]


class Permuted:
    """An op with permutation factors."""

    def __init__(self, op: Any) -> None:
        self.op = op
        self.rank = len(shape(op.results[0]))

    @property
    @abstractmethod
    def pairs(self) -> list[Pair]:
        """The dimensions along which elements move."""

    @property
    def tensors(self) -> int:
        """How many operands are sharded like the results; the others are scalars."""
        return len(self.op.operands)

    def whole(self, number: int) -> list[int]:
        """The dimensions of an operand that every element of the results is made of all of, along with moved ones."""
        return []

    def aligned(self, dim: int, operand: int, result: int) -> bool:
        """Whether shards of these sizes need nothing of each other along a dimension, and begin at the same index."""
        return False

    def operand_axes(self, number: int, axes: Sequence[Axes], operand: Sequence[Axes]) -> list[Axes] | None:
        """The axes that an operand must have for the results to have these; None where that cannot be."""
        return list(axes) if number < self.tensors else [()] * len(shape(self.op.operands[number]))

    @abstractmethod
    def on_shards(self, exchange: Exchange, shards: list[Shards], results: list[Grid]) -> list[Any]:
        """The results' shards, of these dimensions."""


class Slice(Permuted):
    """``stablehlo.slice``."""

    def __init__(self, op: Any) -> None:
        super().__init__(op)
        names = ("start_indices", "limit_indices", "strides")
        self.cuts = list(zip(*(integers_of(op, name, self.rank) for name in names), strict=True))

    @property
    def pairs(self) -> list[Pair]:
        return [Pair(0, d, d) for d, n in enumerate(shape(self.op.operands[0])) if self.cuts[d] != (0, n, 1)]

    def aligned(self, dim: int, operand: int, result: int) -> bool:
        return self.cuts[dim][0] == 0 and self.cuts[dim][2] == 1 and operand == result

    def on_shards(self, exchange: Exchange, shards: list[Shards], results: list[Grid]) -> list[Any]:
        x, sharded = shards[0], []
        for d, (start, limit, stride) in enumerate(self.cuts):
            if results[d].shards > 1:
                sharded.append(d)
            else:
                x.value = sliced(x.value, d, start, limit, stride)
        for d in sorted(sharded, key=lambda d: results[d].tile / x.grids[d].tile):
            exchange.strided(x, d, results[d], self.cuts[d][0], self.cuts[d][2])
        return [x.value]


class Pad(Permuted):
    """``stablehlo.pad``."""

    def __init__(self, op: Any) -> None:
        super().__init__(op)
        names = ("edge_padding_low", "edge_padding_high", "interior_padding")
        self.edges = list(zip(*(integers_of(op, name, self.rank) for name in names), strict=True))

    @property
    def tensors(self) -> int:
        return 1

    @property
    def pairs(self) -> list[Pair]:
        return [Pair(0, d, d) for d, edge in enumerate(self.edges) if any(edge)]

    def aligned(self, dim: int, operand: int, result: int) -> bool:
        return self.edges[dim][0] == self.edges[dim][2] == 0 and operand == result

    def on_shards(self, exchange: Exchange, shards: list[Shards], results: list[Grid]) -> list[Any]:
        x, fill = shards[0], shards[1].value
        growth = [results[d].tile / max(1, x.grids[d].tile) for d in range(self.rank)]
        # What shrinks shrinks before anything travels; what is whole and grows, grows behind it.
        order = sorted(range(self.rank), key=lambda d: (results[d].shards == 1 and growth[d] > 1, growth[d]))
        last = max((i for i, d in enumerate(order) if results[d].shards > 1), default=0)
        for i, d in enumerate(order):
            low, high, interior = self.edges[d]
            if results[d].shards > 1:
                window = Window(low, interior=interior)
                exchange.windows(x, d, results[d], window, fill, exact=i < last)
            else:
                x.value = padded(x.value, d, low, high, interior, fill)
        return [x.value]


class Reverse(Permuted):
    """``stablehlo.reverse``."""

    @property
    def pairs(self) -> list[Pair]:
        return [Pair(0, d, d) for d in integers_of(self.op, "dimensions", 0)]

    def on_shards(self, exchange: Exchange, shards: list[Shards], results: list[Grid]) -> list[Any]:
        exchange.reversed(shards[0], [pair.dim for pair in self.pairs])
        return [shards[0].value]


class Concatenate(Permuted):
    """``stablehlo.concatenate``, of consecutive rows of its sources: operands, or what these are slices of."""

    def __init__(self, op: Any) -> None:
        super().__init__(op)
        self.dim = int(ir.IntegerAttr(op.attributes["dimension"]).value)
        self.cuts = [(0, shape(x)[self.dim]) for x in op.operands]

    @property
    def pairs(self) -> list[Pair]:
        return [Pair(i, self.dim, self.dim) for i in range(len(self.op.operands))]

    def sliced_from(self, number: int) -> tuple[Any, tuple[int, int]] | None:
        """What an operand is consecutive rows of, as it is along other dimensions, and which rows."""
        made = maker(self.op.operands[number], "stablehlo.slice")
        if made is None:
            return None
        cuts, whole = Slice(made).cuts, [(0, n, 1) for n in shape(made.operands[0])]
        start, limit, stride = cuts[self.dim]
        whole[self.dim] = start, limit, 1
        return (made.operands[0], (start, limit)) if stride == 1 and cuts == whole else None

    def on_shards(self, exchange: Exchange, shards: list[Shards], results: list[Grid]) -> list[Any]:
        return [exchange.concatenated(shards, self.cuts, self.dim, results[self.dim])]


class Windowed(Permuted):
    """Ops that slide a window over operands: the window along each dimension, and the op without padding there."""

    padding, base_dilation = "padding", "base_dilations"

    def __init__(self, op: Any) -> None:
        super().__init__(op)
        self.windows: dict[Pair, Window] = {}
        #: Which entry of the attributes belongs to a result dimension.
        self.entry: dict[int, int] = {}

    @property
    def pairs(self) -> list[Pair]:
        """The dimensions in which windows are more than single elements side by side."""
        out = []
        for pair, window in self.windows.items():
            sizes = shape(self.op.operands[pair.operand])[pair.dim], shape(self.op.results[0])[pair.result]
            if window != Window(0) or sizes[0] != sizes[1]:
                out.append(pair)
        return out

    def on_shards(self, exchange: Exchange, shards: list[Shards], results: list[Grid]) -> list[Any]:
        fetched = set()
        for number in sorted({pair.operand for pair in self.pairs}):
            pairs = [p for p in self.pairs if p.operand == number and results[p.result].shards > 1]
            pairs.sort(key=lambda p: results[p.result].tile / max(1, shards[number].grids[p.dim].tile))
            for pair in pairs:
                exchange.windows(shards[number], pair.dim, results[pair.result], self.windows[pair],
                                 self.fill(shards, number), exact=pair is not pairs[-1])
                fetched.add(self.entry[pair.result])
        return self.local(shards, [g.tile for g in results], fetched)

    def fill(self, shards: list[Shards], number: int) -> Any:
        """What lies outside of an operand."""
        return zero(shards[number].value)

    def local(self, shards: list[Shards], sizes: list[int], fetched: set[int]) -> list[Any]:
        """The op on shards, without padding and base dilation in the window dimensions that were fetched."""
        copy = self.op.clone(ip=ir.InsertionPoint.current)
        for i, shard in enumerate(shards):
            copy.operands[i] = shard.value
        count = len(self.entry)
        edges = [(0, 0) if i in fetched else e for i, e in enumerate(edges_of(self.op, self.padding, count))]
        steps = integers_of(self.op, self.base_dilation, count)
        copy.attributes[self.padding] = ir.DenseIntElementsAttr.get(np.array(edges, np.int64).reshape(-1, 2))
        copy.attributes[self.base_dilation] = ir.DenseI64ArrayAttr.get(
            [1 if i in fetched else step for i, step in enumerate(steps)])
        if "sdy.sharding" in copy.attributes:
            del copy.attributes["sdy.sharding"]
        for result in copy.results:
            result.set_type(ir.RankedTensorType.get(sizes, ir.RankedTensorType(result.type).element_type))
        return list(copy.results)


class ReduceWindow(Windowed):
    """``stablehlo.reduce_window``."""

    def __init__(self, op: Any) -> None:
        super().__init__(op)
        names = ("window_dimensions", "window_strides", "window_dilations", self.base_dilation)
        attributes = [integers_of(op, name, self.rank) for name in names]
        for d, (size, stride, dilation, base) in enumerate(zip(*attributes, strict=True)):
            low = edges_of(op, self.padding, self.rank)[d][0]
            self.entry[d] = d
            for i in range(self.tensors):
                self.windows[Pair(i, d, d)] = Window(low, (size - 1) * dilation + 1, stride, base - 1)

    @property
    def tensors(self) -> int:
        return len(self.op.operands) // 2

    def fill(self, shards: list[Shards], number: int) -> Any:
        return shards[self.tensors + number].value


class Convolution(Windowed):
    """``stablehlo.convolution``; only along its spatial dimensions."""

    base_dilation = "lhs_dilation"

    def __init__(self, op: Any) -> None:
        super().__init__(op)
        self.numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        spatial, kernel = list(self.numbers.input_spatial_dimensions), shape(op.operands[1])
        names = ("window_strides", "rhs_dilation", self.base_dilation)
        attributes = [integers_of(op, name, len(spatial)) for name in names]
        edges = edges_of(op, self.padding, len(spatial))
        for i, (d, result) in enumerate(zip(spatial, self.numbers.output_spatial_dimensions, strict=True)):
            stride, dilation, base = (attribute[i] for attribute in attributes)
            size = (kernel[self.numbers.kernel_spatial_dimensions[i]] - 1) * dilation + 1
            self.entry[result] = i
            self.windows[Pair(0, d, result)] = Window(edges[i][0], size, stride, base - 1)

    def whole(self, number: int) -> list[int]:
        return list(self.numbers.kernel_spatial_dimensions) if number else []

    def operand_axes(self, number: int, axes: Sequence[Axes], operand: Sequence[Axes]) -> list[Axes] | None:
        """As the results' batch, spatial and feature dimensions; contracted ones must not be sharded."""
        numbers = self.numbers
        groups = [ir.IntegerAttr(self.op.attributes[n]).value for n in ("feature_group_count", "batch_group_count")]
        batch, feature = axes[numbers.output_batch_dimension], axes[numbers.output_feature_dimension]
        out: list[Axes] = [()] * len(operand)
        contracted = numbers.kernel_input_feature_dimension if number else numbers.input_feature_dimension
        if operand[contracted] or (max(groups) > 1 and (batch or feature)):
            return None
        if number:
            out[numbers.kernel_output_feature_dimension] = feature
        else:
            out[numbers.input_batch_dimension] = batch
            for d, result in zip(numbers.input_spatial_dimensions, numbers.output_spatial_dimensions, strict=True):
                out[d] = axes[result]
        return out


class SelectAndScatter(Windowed):
    """``stablehlo.select_and_scatter``: its dimensions are only ever made whole."""

    def __init__(self, op: Any) -> None:
        super().__init__(op)
        for d, n in enumerate(shape(op.operands[0])):
            size, stride = integers_of(op, "window_dimensions", self.rank), integers_of(op, "window_strides", self.rank)
            edge = edges_of(op, self.padding, self.rank)
            self.windows[Pair(0, d, d)] = Window(edge[d][0], size[d], stride[d])
            self.windows[Pair(1, d, d)] = Window(0 if n == shape(op.operands[1])[d] else 1, stride[d])

    def operand_axes(self, number: int, axes: Sequence[Axes], operand: Sequence[Axes]) -> list[Axes] | None:
        return None


PERMUTED: dict[str, type[Permuted]] = {
    "stablehlo.slice": Slice, "stablehlo.pad": Pad, "stablehlo.reverse": Reverse,
    "stablehlo.concatenate": Concatenate, "stablehlo.reduce_window": ReduceWindow,
    "stablehlo.convolution": Convolution, "stablehlo.select_and_scatter": SelectAndScatter,
}
