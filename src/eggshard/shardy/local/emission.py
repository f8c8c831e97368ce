"""Writer of StableHLO at an insertion point: ops along one dimension at a time, and device-dependent numbers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from eggshard.errors import ProgramError
from eggshard.program.mesh import Mesh
from eggshard.shardy.module import ShardyModule, shape

I32 = np.int32


def typed(like: Any, sizes: Sequence[int]) -> Any:
    """The tensor type of a value's elements with another shape."""
    return ir.RankedTensorType.get(list(sizes), ir.RankedTensorType(like.type).element_type)


def integers(values: Any) -> Any:
    """A constant of 32-bit integers."""
    return stablehlo.constant(ir.DenseElementsAttr.get(np.asarray(values, I32)))


def zero_text(element_type: Any) -> str:
    """How MLIR writes zero of an element type; ProgramError for types whose zero it cannot write."""
    if isinstance(element_type, ir.ComplexType):
        part = zero_text(ir.ComplexType(element_type).element_type)
        return f"({part}, {part})"
    if isinstance(element_type, ir.IntegerType):
        return "false" if str(element_type) == "i1" else "0"
    if isinstance(element_type, ir.FloatType):
        return "0.0"
    raise ProgramError(f"there is no constant to pad elements of type {element_type} with; convert the tensor first")


def scalar(element_type: Any, text: str) -> Any:
    """A constant scalar, its value as MLIR writes it; of complex numbers ``(0.0, 0.0)``."""
    if isinstance(element_type, ir.ComplexType):  # MLIR's bindings cannot hold constants of these
        part = ir.ComplexType(element_type).element_type
        return stablehlo.complex(*(scalar(part, number.strip(" ()")) for number in text.split(",")))
    return stablehlo.constant(ir.Attribute.parse(f"dense<{text}> : tensor<{element_type}>"))


def zero(like: Any) -> Any:
    """Zero of a value's element type."""
    element_type = ir.RankedTensorType(like.type).element_type
    return scalar(element_type, zero_text(element_type))


def filled(like: Any, sizes: Sequence[int], value: Any) -> Any:
    """A tensor of one scalar."""
    return stablehlo.broadcast_in_dim(typed(like, sizes), value, [])


def sliced(x: Any, dim: int, start: int, limit: int, stride: int = 1) -> Any:
    """``x[start:limit:stride]`` along a dimension."""
    sizes = shape(x)
    if (start, limit, stride) == (0, sizes[dim], 1):
        return x
    starts, limits, strides = [0] * len(sizes), list(sizes), [1] * len(sizes)
    starts[dim], limits[dim], strides[dim] = start, limit, stride
    return stablehlo.slice(x, starts, limits, strides)


def padded(x: Any, dim: int, low: int, high: int, interior: int, value: Any) -> Any:
    """The tensor with padding along a dimension; edges may be negative."""
    rank = len(shape(x))
    if not (low or high or interior):
        return x
    edges = [[0] * rank for _ in range(3)]
    edges[0][dim], edges[1][dim], edges[2][dim] = low, high, interior
    return stablehlo.pad(x, value, *edges)


def within(sizes: Sequence[int], dim: int, low: Any, high: Any) -> Any:
    """Which elements have an index from ``low`` up to ``high`` along a dimension; None, or scalars of i32."""
    rows = ir.RankedTensorType.get([sizes[dim]], ir.IntegerType.get_signless(32))
    index, found = stablehlo.iota(rows, 0), None
    for bound, direction in ((low, "GE"), (high, "LT")):
        if bound is not None:
            compared = stablehlo.compare(
                index, stablehlo.broadcast_in_dim(rows, bound, []), stablehlo.ComparisonDirectionAttr.get(direction))
            found = compared if found is None else stablehlo.and_(found, compared)
    type_ = ir.RankedTensorType.get(list(sizes), ir.IntegerType.get_signless(1))
    return stablehlo.broadcast_in_dim(type_, found, [dim])


def channels(module: ShardyModule) -> Iterator[int]:
    """Channel handles that no op of the module has."""
    handles = (str(op.attributes["channel_handle"]) for op in module.walk() if "channel_handle" in op.attributes)
    used = [int(number) for text in handles for number in re.findall(r"\bhandle = (\d+)", text)]
    return itertools.count(max(used, default=0) + 1)


class Devices:
    """The devices of a mesh as ops inside a computation that is manual over all its axes tell them apart."""

    def __init__(self, mesh: Mesh, channel: Iterator[int]) -> None:
        self.mesh = mesh
        self.channel = channel
        self._known: dict[object, Any] = {}

    def number(self, axes: Sequence[str], by_position: Sequence[int]) -> Any:
        """A scalar i32 that depends on the device's position along some axes: constant, linear, or looked up."""
        key = tuple(axes), tuple(by_position)
        if key not in self._known:
            self._known[key] = self._number(*key)
        return self._known[key]

    def _number(self, axes: tuple[str, ...], values: tuple[int, ...]) -> Any:
        first, step = values[0], values[1] - values[0] if len(values) > 1 else 0
        if not step and values == (first,) * len(values):
            return integers(first)
        if values == tuple(range(len(values))):
            return self._looked_up(self.mesh.index(axes), self._device())
        position = self.number(axes, range(len(values)))
        if all(value == first + step * d for d, value in enumerate(values)):
            scaled = stablehlo.multiply(position, integers(step)) if step != 1 else position
            return stablehlo.add(scaled, integers(first)) if first else scaled
        return self._looked_up(values, position)

    def _device(self) -> Any:
        if "device" not in self._known:
            i32 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))
            self._known["device"] = stablehlo.convert(i32, stablehlo.partition_id())
        return self._known["device"]

    def _looked_up(self, values: Any, index: Any) -> Any:
        found = stablehlo.dynamic_slice(integers(values), [index], [1])
        return stablehlo.reshape(typed(found, ()), found)

    def moved(self, x: Any, links: Sequence[tuple[Sequence[str], Sequence[tuple[int, int]]]]) -> Any:
        """The tensor that another device has: along some axes, pairs of sender and receiver by their positions."""
        used = [axis for axes, _ in links for axis in axes]
        groups = self.mesh.groups(used).reshape(-1, *(self.mesh.count(axes) for axes, _ in links))
        senders, receivers = (
            groups[np.ix_(range(len(groups)), *([pair[end] for pair in pairs] for _, pairs in links))]
            for end in (0, 1))
        if np.array_equal(senders, receivers):
            return x
        table = np.stack([senders.reshape(-1), receivers.reshape(-1)], 1)
        return stablehlo.collective_permute(
            x, ir.DenseIntElementsAttr.get(np.ascontiguousarray(table, np.int64)),
            channel_handle=stablehlo.ChannelHandle.get(next(self.channel), 1))

    def cut(self, x: Any, dim: int, axes: Sequence[str], starts: Sequence[int], size: int) -> Any:
        """``size`` indices of a dimension from those on that the device's position tells."""
        if len(set(starts)) == 1:
            return sliced(x, dim, starts[0], starts[0] + size)
        sizes = list(shape(x))
        sizes[dim] = size
        where = [integers(0)] * len(sizes)
        where[dim] = self.number(axes, starts)
        return stablehlo.dynamic_slice(x, where, sizes)

    def placed(
        self, x: Any, dim: int, axes: Sequence[str], places: Sequence[int], size: int, fill: Any, interior: int = 0
    ) -> Any:
        """A buffer of ``size`` indices in which x begins where the device's position tells, cut off at its ends."""
        rows = shape(x)[dim]
        rows = rows + max(0, rows - 1) * interior
        most, least = max(places), min(places)
        wide = padded(x, dim, most, size - least - rows, interior, fill)
        return self.cut(wide, dim, axes, [most - place for place in places], size)
