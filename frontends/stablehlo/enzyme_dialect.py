"""Readers of the ``enzymexla`` dialect, in which Reactant's and Enzyme's modules state communication in generic form.

The dialect is not registered with JAX's MLIR, so its ops are read from their attributes alone. Each means a few
slices, pads, rotations, extensions and updates, which are what a Program gets. A sharding stated on an op is that of
its results.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.frontends.stablehlo.region_reader import Handler, RegionReader
from eggshard.ops import registry
from eggshard.ops.op_writer import OpWriter
from eggshard.ops.windowing import Run
from eggshard.program.attributes import Attributes
from eggshard.program.program import Region
from eggshard.program.types import TensorType


class _Reader(OpWriter[int]):
    """One op while it is read: its integer attributes, and ops to append for it."""

    def __init__(self, reader: RegionReader, operation: Any, operands: int):
        self._reader, self._operation = reader, operation
        self._items = _attributes(operation)
        self.operands = reader.operands(operation)
        self.result_types = reader.result_types(operation)
        if len(self.operands) != operands:
            raise ProgramError(f"takes {operands} operand(s), got {len(self.operands)}")
        self.x = self.operands[0]
        self.shape = self.type_of(self.x).shape

    def type_of(self, value: int) -> TensorType:
        return self._reader.builder.types[value]

    def has(self, name: str) -> bool:
        return name in self._items

    def integer(self, name: str) -> int:
        """An attribute that is an integer of any width."""
        text = self._text(name)
        found = re.match(r"-?\d+\b", text)
        if found is None:
            raise ProgramError(f"attribute {name} = {text} is no integer")
        return int(found[0])

    def amount(self, name: str) -> int:
        """An attribute that is not negative."""
        found = self.integer(name)
        if found < 0:
            raise ProgramError(f"attribute {name} is {found}, but must not be negative")
        return found

    def widths(self, dim: int) -> dict[str, int]:
        """How many elements ``lhs`` and ``rhs`` put around a dimension of the first operand: parts of it."""
        found, n = {side: self.amount(side) for side in ("lhs", "rhs")}, self.shape[dim]
        if max(found.values()) > n:
            listed = " and ".join(f"{side} {width}" for side, width in found.items())
            raise ProgramError(f"{listed} must not exceed the size {n} of dimension {dim}")
        return found

    def dimension(self, name: str = "dimension") -> int:
        """An attribute that names a dimension of the first operand."""
        found = self.integer(name)
        if not 0 <= found < len(self.shape):
            raise ProgramError(f"{name} {found} does not exist in {self.type_of(self.x)}")
        return found

    def integers(self, name: str) -> tuple[int, ...]:
        """An attribute that is an array of integers."""
        text = self._text(name)
        body = text.partition(":")[2] if text.startswith("array<") else text
        return tuple(int(i) for i in re.findall(r"-?\d+", body.partition("]")[0]))

    def _text(self, name: str) -> str:
        try:
            return self._items[name]
        except KeyError:
            raise ProgramError(f"attribute {name} is missing") from None

    def emit(
        self, name: str, operands: Sequence[int], attributes: Attributes, regions: tuple[Region, ...] = ()
    ) -> tuple[int, ...]:
        types = registry.get(name).infer(attributes, self._reader.types_of(operands), regions)
        return self._reader.append(name, tuple(operands), types, attributes, regions)

    def rotate(self, dim: int, amount: int) -> int:
        """The operand rotated to the left."""
        amount %= max(self.shape[dim], 1)
        return self.op("rotate", self.x, dimension=dim, amount=amount) if amount else self.x

    def results(self, values: list[int]) -> None:
        """Name the op's results, and put its shardings on the ops that make them."""
        made = tuple(self.type_of(v) for v in values)
        if made != self.result_types:
            shown = ", ".join(map(str, made)), ", ".join(map(str, self.result_types))
            raise ProgramError(f"its attributes make ({shown[0]}), but it states ({shown[1]})")
        self._reader.bind(self._operation, values)
        self._reader.state(self._operation, values)


def _attributes(operation: Any) -> dict[str, str]:
    """The texts of all attributes. Properties of an unregistered op are found in its text only."""
    items = {name: str(attribute) for name, attribute in attributes_of(operation).items()}
    properties = re.search(r"<(\{[^{}]*\})>", operation.get_asm(print_generic_op_form=True))
    if properties is not None:
        for named in ir.DictAttr(ir.Attribute.parse(properties[1], operation.context)):
            items.setdefault(named.name, str(named.attr))
    return items


def _rotate(reader: RegionReader, operation: Any, name: str) -> None:
    """``x[amount:] ++ x[:amount]``"""
    op = _Reader(reader, operation, 1)
    op.results([op.rotate(op.dimension(), op.integer("amount"))])


def _wrap(reader: RegionReader, operation: Any, name: str) -> None:
    """``x[-lhs:] ++ x ++ x[:rhs]``"""
    op = _Reader(reader, operation, 1)
    dim = op.dimension()
    op.results([op.op("wrap", op.x, dimension=dim, **op.widths(dim))])


def _extend(reader: RegionReader, operation: Any, name: str) -> None:
    """``x[:lhs] ++ x ++ x[-rhs:]``: the first and last elements in their own order, not the end ones repeated."""
    op = _Reader(reader, operation, 1)
    dim = op.dimension()
    lhs, rhs = op.widths(dim).values()
    n = op.shape[dim]
    if max(lhs, rhs) <= 1:
        op.results([op.op("extend", op.x, dimension=dim, lhs=lhs, rhs=rhs, mode="edge")])
        return
    op.results([op.picked(op.x, dim, (Run(0, 1, lhs), Run(0, 1, n), Run(n - rhs, 1, rhs)))])


def _multi_rotate(reader: RegionReader, operation: Any, name: str) -> None:
    """Rotations by ``left_amount`` to the left, one less, and so on, until ``right_amount`` to the right."""
    op = _Reader(reader, operation, 1)
    dim, left, right = op.dimension(), op.amount("left_amount"), op.amount("right_amount")
    op.results([op.rotate(dim, left - j) for j in range(left + right + 1)])


def _multi_slice(reader: RegionReader, operation: Any, name: str) -> None:
    """A slice, and the same one moved by 1, ..., ``amount`` along the dimension.

    Older modules state how often it is moved to the left and to the right instead.
    """
    op = _Reader(reader, operation, 1)
    dim = op.dimension()
    left, right = (
        (op.amount("left_amount"), op.amount("right_amount")) if op.has("left_amount") else (0, op.amount("amount"))
    )
    starts, limits, strides = (op.integers(name) for name in ("start_indices", "limit_indices", "strides"))

    def moved(indices: tuple[int, ...], by: int) -> tuple[int, ...]:
        return tuple(i + by if d == dim else i for d, i in enumerate(indices))

    op.results([
        op.op("slice", op.x, start_indices=moved(starts, j), limit_indices=moved(limits, j), strides=strides)
        for j in range(-left, right + 1)
    ])


def _multi_pad(reader: RegionReader, operation: Any, name: str) -> None:
    """``amount`` elements of padding in all: all before, then one less before and one after, until all after."""
    op = _Reader(reader, operation, 2)
    dim, amount = op.dimension(), op.amount("amount")

    def width(value: int) -> tuple[int, ...]:
        return tuple(value if d == dim else 0 for d in range(len(op.shape)))

    op.results([
        op.op("pad", *op.operands, edge_padding_low=width(amount - j), edge_padding_high=width(j),
               interior_padding=width(0))
        for j in range(amount + 1)
    ])


def _update_without_corners(reader: RegionReader, operation: Any, name: str) -> None:
    """The second operand where index X lies in [x1, x2) or index Y in [y1, y2), and the first one in the corners."""
    op = _Reader(reader, operation, 2)
    made = op.x
    if op.type_of(op.operands[1]) != op.type_of(op.x):
        shown = " and ".join(str(op.type_of(v)) for v in op.operands)
        raise ProgramError(f"its operands are {shown}; they must be of one type")
    for axis in "XY":
        dim = op.dimension(f"dimension{axis}")
        start, limit = (op.integer(f"{axis.lower()}{k}") for k in (1, 2))
        start, limit = max(start, 0), min(limit, op.shape[dim])
        if start < limit:
            band = op.part(op.operands[1], dim, start, limit)
            starts = tuple(start if d == dim else 0 for d in range(len(op.shape)))
            made = op.op("update_slice", made, band, start_indices=starts)
    op.results([made])


HANDLERS: dict[str, Handler] = {
    f"enzymexla.{read.__name__.removeprefix('_')}": read
    for read in (_rotate, _wrap, _extend, _multi_rotate, _multi_slice, _multi_pad, _update_without_corners)
}
