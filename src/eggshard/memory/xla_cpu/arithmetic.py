"""Arithmetic simplification before fusion, as in XLA: no-ops, ops on broadcasts, quotients, reductions.

- Constants are folded, an op with its neutral element returns its other operand, a choice between equals either.
- An op on broadcasts is done before they are, and a quotient by a broadcast multiplies by its inverse.
- A reduction that no library does, of more than a window of elements, is done within windows first.
"""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.memory.xla_cpu.graph import Graph, Kind, Node
from eggshard.ops import registry
from eggshard.ops.base import Traits
from eggshard.program.types import TensorType

#: Constants, as text, that change nothing: as operand on the right, or of commutative ops on either side.
_NEUTRAL = {
    "add": ("0.0", "-0.0", "0"), "subtract": ("0.0", "0"), "multiply": ("1.0", "1"), "divide": ("1.0", "1"),
    "maximum": ("0xFF800000", "0xFFF0000000000000", "0xFF80", "0xFC00"),
    "minimum": ("0x7F800000", "0x7FF0000000000000", "0x7F80", "0x7C00"),
}  # fmt: skip
_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
#: Element types, and the least number of elements read or made, for which XLA uses its library of vector kernels.
_VECTOR_TYPES = frozenset({"f32", "f64", "bf16", "i8", "ui8"})
#: Elements.
_MANY = 4096
#: Reducers and the element type of the reductions that this library computes.
_REDUCED, _REDUCED_TYPE = (("add",), ("maximum",), ("minimum",)), "f32"
#: Elements per dimension of a window in which XLA reduces large arrays first.
_WINDOW = 32


def is_elementwise(name: str) -> bool:
    """Whether the op of this name is a loop whose elements need their operands' at the same place."""
    return name == "bitcast_convert" or (registry.known(name) and registry.get(name).pointwise)


class Arithmetic:
    """The elementwise ops, broadcasts and reductions of one graph."""

    def __init__(self, graph: Graph):
        self.graph = graph
        #: Of broadcasts: what is spread, and the dimensions along which they differ; of constants: their number.
        self._source: dict[int, int] = {}
        self._along: dict[int, frozenset[int]] = {}
        self._number: dict[int, str] = {}

    def constant(self, type_: TensorType, number: str) -> int:
        """One number, as text (empty: some number) everywhere."""
        size = type_.bytes if type_.rank else 0
        n = self.graph.add(Node(Kind.LOOP, (), size, "constant", elementwise=True, spread=True, vectorised=True))
        self._along[n] = frozenset()
        self._number[n] = number
        return n

    def iota(self, dim: int, type_: TensorType) -> int:
        """The indices along a dimension."""
        n = self.graph.add(Node(Kind.LOOP, (), type_.bytes, "iota", spread=True))
        self._along[n] = frozenset({dim})
        return n

    def broadcast(self, operand: int, type_: TensorType, dims: Sequence[int], result: TensorType) -> int:
        """A broadcast of a broadcast is one."""
        along = self._along.get(operand, frozenset(range(type_.rank)))
        along = frozenset(dims[d] for d in along if type_.shape[d] != 1)
        return self._spread(self._source.get(operand, operand), along, result)

    def elementwise(self, name: str, operands: Sequence[int], types: Sequence[TensorType], result: TensorType) -> int:
        """An elementwise op, done as early and on as few elements as it can be."""
        if operands and all(o in self._number for o in operands):
            return self.constant(result, "")
        if name == "select" and operands[1] == operands[2]:
            return operands[1]
        for k, o in enumerate(operands):
            if len(operands) == 2 and self._number.get(o) in _NEUTRAL.get(name, ()) and (k or name in _COMMUTATIVE):
                return operands[1 - k]
        along = self._differ_along(operands)
        if along is not None and len(along) < result.rank:
            sources = [self._source.get(o, o) for o in operands]
            inner = self.elementwise(name, sources, [_before(t, along) for t in types], _before(result, along))
            return self._spread(inner, along, result)
        divisor = operands[1] if name == "divide" else None
        if divisor in self._number:
            name = "multiply"
        elif divisor in self._source:
            along = self._along[divisor]
            inverse = self._op("divide", (self._source[divisor],), (), _before(result, along))
            name, operands = "multiply", (operands[0], self._spread(inverse, along, result))
        return self._op(name, operands, types, result)

    def reduced(
        self, reducer: Sequence[str], operands: Sequence[int], type_: TensorType, dims: Sequence[int], size: int
    ) -> int:
        """A reduction, by these ops, along some dimensions of its first operand, to so many bytes."""
        if tuple(reducer) in _REDUCED and type_.dtype == _REDUCED_TYPE and _many(type_):
            return self.graph.add(Node(Kind.SUM, tuple(operands), size, "reduce", vectorised=True))
        if len(operands) == 2 and any(type_.shape[d] > _WINDOW for d in dims):
            shape = tuple(-(-n // _WINDOW) if d in dims else n for d, n in enumerate(type_.shape))
            windows = Node(Kind.CALL, tuple(operands), type_.with_shape(shape).bytes, "reduce_window")
            operands = (self.graph.add(windows), operands[1])
        return self.graph.add(Node(Kind.SUM, tuple(operands), size, "reduce"))

    def _op(self, name: str, operands: Sequence[int], types: Sequence[TensorType], result: TensorType) -> int:
        traits = registry.get(name).traits
        return self.graph.add(Node(
            Kind.LOOP, tuple(operands), result.bytes, name, elementwise=True, expensive=bool(traits & Traits.DEAR),
            vectorised=Traits.VECTORISED in traits and _many(result, *types),
        ))  # fmt: skip

    def _spread(self, source: int, along: frozenset[int], result: TensorType) -> int:
        if source in self._number:
            return self.constant(result, self._number[source])
        n = self.graph.add(Node(
            Kind.LOOP, (source,), result.bytes, "broadcast_in_dim", spread=True,
            vectorised=result.dtype in _VECTOR_TYPES,
        ))  # fmt: skip
        self._along[n], self._source[n] = along, source
        return n

    def _differ_along(self, operands: Sequence[int]) -> frozenset[int] | None:
        """The dimensions along which operands that are all broadcasts differ; None where they are not."""
        if not all(o in self._source or o in self._number for o in operands):
            return None
        along = {self._along[o] for o in operands if self._along[o]}
        return None if len(along) > 1 else next(iter(along), frozenset())


def _before(type_: TensorType, along: frozenset[int]) -> TensorType:
    """The type of what is spread to be a broadcast of this type."""
    return type_.with_shape(tuple(type_.shape[d] for d in sorted(along)))


def _many(*types: TensorType) -> bool:
    """Whether the library of vector kernels takes such operands and results."""
    return all(t.dtype in _VECTOR_TYPES for t in types) and max(t.elements for t in types) >= _MANY
