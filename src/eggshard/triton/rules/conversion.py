"""Rules of layout conversions, and of changes in how elements are packed."""

from __future__ import annotations

from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.encodings import Encoding, make
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import structure
from eggshard.triton.rules.costs import arithmetic, registers
from eggshard.triton.rules.movement import Relabelled
from eggshard.triton.rules.rule import Option, Rule, current


class Conversion(Rule):
    """The identity, from any encoding to any."""

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return [Option((encoding,), current(op).results)]

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return [Option(current(op).operands, (encoding,))]

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        return False

    def movable(self, op: Operation) -> bool:
        return True


class Unpacking(Relabelled):
    """Two elements of four bits out of each byte, neighbours along a dimension, in neighbouring registers.

    Four bytes of a thread are unpacked at a time: there must be so many.
    """

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return self._lowered(op, super().from_operand(op, i, encoding, machine), machine)

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return self._lowered(op, super().from_result(op, i, encoding, machine), machine)

    def _lowered(self, op: Operation, options: list[Option], machine: Machine) -> list[Option]:
        return [option for option in options
                if option == current(op) or registers(op.operands[0], option.operands[0], machine) % 4 == 0]

    def renamed(self, op: Operation, layout: LinearLayout) -> LinearLayout:
        axis = op.integer("axis") or 0
        shape = tuple(2 * n if d == axis else n for d, n in enumerate(layout.shape))
        wider = [[tuple(2 * n if d == axis else n for d, n in enumerate(layout.coordinates(basis))) for basis in bases]
                 for bases in layout.hardware()]
        first = tuple(int(d == axis) for d in range(len(shape)))
        return LinearLayout.of(shape, [first, *wider[0]], *wider[1:])

    def restored(self, op: Operation, layout: LinearLayout) -> LinearLayout | None:
        axis = op.integer("axis") or 0
        first = tuple(int(d == axis) for d in range(len(layout.shape)))
        bases = [[layout.coordinates(basis) for basis in some] for some in layout.hardware()]
        if not bases[0] or bases[0][0] != first:
            return None
        bases[0] = bases[0][1:]
        if any(basis[axis] % 2 for some in bases for basis in some):
            return None
        shape = tuple(n // 2 if d == axis else n for d, n in enumerate(layout.shape))
        return LinearLayout.of(
            shape, *([tuple(n // 2 if d == axis else n for d, n in enumerate(b)) for b in some] for some in bases))

    def forward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        if encoding.kind == structure.DOT_OPERAND:
            return _scaled(encoding, op, 2, 1)
        return super().forward(op, encoding, machine)

    def backward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        if encoding.kind == structure.DOT_OPERAND:
            return _scaled(encoding, op, 1, 2)
        return super().backward(op, encoding, machine)

    def work(self, op: Operation, option: Option, machine: Machine) -> Counts:
        return arithmetic("conversion", op, option, machine)


def _scaled(encoding: Encoding, op: Operation, factor: int, divisor: int) -> Encoding | None:
    """The fragment of a matrix product with so many times as many neighbours in the depth; None if that is none."""
    if encoding.get("kWidth") is None:
        return None
    tensor = op.operands[0].tensor
    assert tensor is not None
    width = encoding.integer("kWidth") * factor
    depth = len(tensor.shape) - (1 if encoding.integer("opIdx") == 0 else 2)
    if depth != op.integer("axis") or width % divisor:
        return None
    return make(structure.DOT_OPERAND, opIdx=encoding.integer("opIdx"), parent=encoding.parent, kWidth=width // divisor)
