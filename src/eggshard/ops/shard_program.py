"""A builder of device programs for ops whose local computation depends on the shard's position: `OpDef.on_shards`.

The result is a program of registry ops in shard-local shapes, equal on all devices. The only number that differs
between devices is the global index of a shard's first element.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from eggshard.ops.op_writer import OpWriter
from eggshard.ops.windows import Windows
from eggshard.program import monoids
from eggshard.program.types import TensorType, integer_limits

if TYPE_CHECKING:
    pass

#: The element type of places: indices along a dimension of a tensor or of a shard.
PLACE = "i32"

#: Dimensions up to this size may be sharded positionally: the end of every shard is a place, and so are differences.
MOST_PLACES = 2**30


def owner_monoid(dtype: str) -> str:
    """Return the monoid that combines shards where one device has an element and the others the monoid's identity."""
    return "or" if dtype == "i1" else "add"


class Shard(NamedTuple):
    """A tensor of an op, and what each device holds of it; numbered through operands and results.

    ``sharded``: the dimensions of which it is a part or a window; ``wrapped``: those of them whose indices count modulo
    their size.
    """

    number: int
    type: TensorType
    local: TensorType
    sharded: frozenset[int]
    wrapped: frozenset[int] = frozenset()

    def cut(self, dim: int) -> bool:
        """Whether the dimension is sharded."""
        return dim in self.sharded


class ShardProgram(OpWriter[int]):
    """A device program that is being written over the shards of an op's operands. Values are numbers.

    ``operands`` and ``results`` are the op's tensors, ``values`` the shards of its operands.
    """

    operands: tuple[Shard, ...]
    results: tuple[Shard, ...]
    values: tuple[int, ...]

    @abstractmethod
    def start(self, shard: Shard, dim: int) -> int:
        """A scalar of type `PLACE`: the index in its tensor at which the device's shard begins along a dimension.

        Of a window it may be below zero, of a wrapped one it is taken modulo the tensor's size.
        """

    def counter(self, shape: tuple[int, ...], dim: int) -> int:
        """Each element's index along a dimension, as places."""
        return self.op("iota", iota_dimension=dim, shape=shape, dtype=PLACE)

    def indices(self, shard: Shard, dim: int) -> int:
        """The indices in its tensor of the elements of the device's shard along a dimension, ``[local size]``."""
        n, size = shard.type.shape[dim], shard.local.shape[dim]
        found = self.combine("add", self.counter((size,), 0), self.start(shard, dim))
        return self.op("remainder", found, self.splat(n, self.type_of(found))) if dim in shard.wrapped else found

    def places(self, x: int, low: int, high: int) -> int:
        """Integers of any type as places, those below ``low`` or above ``high`` as these (where x can be such)."""
        type_ = self.type_of(x)
        least, most = integer_limits(type_.dtype)
        bounds = [self.splat(min(max(b, least), most), type_.with_shape(())) for b in (low, high)]
        x = self.op("clamp", bounds[0], x, bounds[1])
        return x if type_.dtype == PLACE else self.op("convert", x, dtype=PLACE)

    def combine(self, name: str, a: int, b: int) -> int:
        """A pointwise op of two operands; a scalar stands for a tensor of its value."""
        shape = max(self.type_of(a).shape, self.type_of(b).shape, key=len)
        return self.op(name, self.broadcast(a, shape), self.broadcast(b, shape))

    def within(self, places: int, size: int) -> int:
        """Return a boolean tensor that is true where ``places`` are in ``[0, size)``."""
        type_ = self.type_of(places)
        at_least, below = (
            self.op("compare", places, self.splat(bound, type_), comparison_direction=direction, compare_type="SIGNED")
            for direction, bound in (("GE", 0), ("LT", size))
        )
        return self.op("and", at_least, below)

    def take(self, x: int, places: int, dim: int) -> int:
        """The elements of x at places (``[count]``) along a dimension, of places out of range the nearest."""
        type_, (count,) = self.type_of(x), self.type_of(places).shape
        others = tuple(d for d in range(type_.rank) if d != dim)
        windows = Windows(others, (dim,), (), (), (dim,), 1)
        sizes = tuple(1 if d == dim else n for d, n in enumerate(type_.shape))
        return self.op(
            "gather", x, self.reshape(places, (count, 1)), dimension_numbers=windows.gather_numbers,
            slice_sizes=sizes, indices_are_sorted=False,
        )

    def select(self, condition: int, dims: Sequence[int], yes: int, no: int) -> int:
        """yes where the condition, whose dimension i is dimension ``dims[i]`` of it, holds, and else no."""
        if self.type_of(condition).rank:
            condition = self.broadcast(condition, self.type_of(yes).shape, dims)
        return self.op("select", condition, yes, no)

    def owned(self, condition: int, dims: Sequence[int], x: int) -> int:
        """Partial sums of the elements of which one device each has the condition; see `owner_monoid`."""
        return self.partial_sums(condition, dims, x, owner_monoid(self.type_of(x).dtype))

    def partial_sums(self, condition: int, dims: Sequence[int], x: int, monoid: str) -> int:
        """x where the condition holds, and else what adds nothing; compare `select`."""
        type_ = self.type_of(x)
        return self.select(condition, dims, x, self.splat(monoids.identity(monoid, type_.dtype), type_))
