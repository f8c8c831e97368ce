"""Rules of matrix products: the result's encoding determines the operands'."""

from __future__ import annotations

from eggshard.triton.kernels.ir import Operation
from eggshard.triton.layouts.encodings import Encoding, make
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import structure
from eggshard.triton.rules.rule import Option, Rule, current


class Dot(Rule):
    """The accumulator and the result at one encoding, the operands ``dot_op`` over it. An anchor."""

    def _at(self, op: Operation, parent: Encoding) -> list[Option]:
        given = current(op)
        old = given.results[0]
        if parent == old:
            return [given]
        if old is None or parent.kind != structure.BLOCKED or old.kind != structure.BLOCKED:
            return []  # a matrix instruction's fragments fit element types and shapes: not for us to choose
        sides = [make(structure.DOT_OPERAND, opIdx=i, parent=parent) for i in (0, 1)]
        return [Option((*sides, parent), (parent,))]

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        if i == 2:
            return self._at(op, encoding)
        if encoding.kind != structure.DOT_OPERAND or encoding.integer("opIdx") != i:
            return []
        return [option for option in self._at(op, encoding.parent) if option.operands[i] == encoding]

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return self._at(op, encoding)
