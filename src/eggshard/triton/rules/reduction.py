"""Ops that combine elements along a dimension, or that look elements up."""

from __future__ import annotations

from eggshard.kernels.ir import Kernel, Operation
from eggshard.layouts.encodings import Encoding
from eggshard.layouts.machine import Machine
from eggshard.triton.rules import structure
from eggshard.triton.rules.movement import shape_of
from eggshard.triton.rules.rule import Mapped, Option, Rule, Uniform, both, current, uniform

#: A dimension longer than this is not gathered in single threads in order to reduce it there.
MOST_IN_A_THREAD = 8


class Reduce(Mapped):
    """The results are slices of the operands' encoding, in that spelling; scalars of tensors of one dimension.

    Where the results' encoding is no slice, the dimension that is reduced may lie in each thread's registers.
    """

    def forward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding:
        return structure.sliced(op.integer("axis") or 0, encoding)

    def backward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        if encoding.kind == structure.SLICE and encoding.integer("dim") == op.integer("axis"):
            return encoding.parent
        return None

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        found = super().from_result(op, i, encoding, machine)
        if found:
            return found
        axis = op.integer("axis") or 0
        size = shape_of(op, True)[axis]
        parent = structure.opened(encoding, axis, size) if size <= MOST_IN_A_THREAD else None
        return [] if parent is None else [both(op, parent, self.forward(op, parent, machine))]


class Scan(Uniform):
    """All tensors at one encoding, a blocked one: others verify, but are not lowered."""

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return [uniform(op, encoding)] if encoding.kind == structure.BLOCKED else []

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return self.from_operand(op, i, encoding, machine)

    def movable(self, op: Operation) -> bool:
        return True


class Histogram(Rule):
    """Operand (and mask) and result at one encoding each, whichever."""

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return [Option((encoding,) * len(op.operands), current(op).results)]

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return [Option(current(op).operands, (encoding,))]

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        return False

    def movable(self, op: Operation) -> bool:
        return True


class Gather(Rule):
    """Indices and result at one encoding, the tensor that is looked up in at another."""

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        operands, results = current(op)
        if i == 0:
            return [Option((encoding, operands[1]), results)]
        return [Option((operands[0], encoding), (encoding,))]

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return [Option((current(op).operands[0], encoding), (encoding,))]

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        return op.attribute("efficient_layout") is not None

    def movable(self, op: Operation) -> bool:
        return True
