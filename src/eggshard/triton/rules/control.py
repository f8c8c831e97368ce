"""Loops, branches and what ends their blocks: each carried value has one encoding, whatever the others'."""

from __future__ import annotations

from eggshard.kernels.ir import Kernel, Operation, Value
from eggshard.layouts.encodings import Encoding
from eggshard.layouts.machine import Machine
from eggshard.triton.rules.rule import Option, Rule, current


class Carrying(Rule):
    """A region op, or a terminator: operands and results vary by themselves, as far as `ties` lets them."""

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        operands, results = current(op)
        operands = (*operands[:i], encoding, *operands[i + 1:])
        return [Option(operands, _tied(op, op.operands[i], encoding, results))]

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        operands, results = current(op)
        operands = tuple(
            encoding if any(value is v for v in _tie(op, op.results[i])) else e
            for value, e in zip(op.operands, operands, strict=True))
        return [Option(operands, _tied(op, op.results[i], encoding, results))]

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        return False


def _tie(op: Operation, value: Value) -> tuple[Value, ...]:
    return next((tie for tie in ties(op) if any(v is value for v in tie)), ())


def _tied(
    op: Operation, value: Value, encoding: Encoding, results: tuple[Encoding | None, ...]
) -> tuple[Encoding | None, ...]:
    tie = _tie(op, value)
    return tuple(
        encoding if any(result is v for v in tie) else e for result, e in zip(op.results, results, strict=True))


def ties(op: Operation) -> list[tuple[Value, ...]]:
    """Per value that a region op carries: the values that are it, and share one encoding; [] for other ops."""
    find = _TIES.get(op.name)
    return [] if find is None else find(op)


def _for(op: Operation) -> list[tuple[Value, ...]]:
    body = op.body
    return [(op.operands[3 + i], body.arguments[1 + i], body.terminator.operands[i], result)
            for i, result in enumerate(op.results)]


def _while(op: Operation) -> list[tuple[Value, ...]]:
    before, after = (region.blocks[0] for region in op.regions)
    carried = [(op.operands[i], argument, after.terminator.operands[i]) for i, argument in enumerate(before.arguments)]
    passed = [(before.terminator.operands[1 + i], argument, op.results[i])
              for i, argument in enumerate(after.arguments)]
    return [*carried, *passed]


def _branches(op: Operation) -> list[tuple[Value, ...]]:
    ends = [region.blocks[0].terminator for region in op.regions if len(region.blocks) == 1]
    return [(*(end.operands[i] for end in ends), result) for i, result in enumerate(op.results)]


def _specialized(op: Operation) -> list[tuple[Value, ...]]:
    end = op.regions[0].blocks[0].terminator
    return [(end.operands[i], result) for i, result in enumerate(op.results)]


_TIES = {
    "scf.for": _for, "scf.while": _while, "scf.if": _branches, "scf.index_switch": _branches,
    "scf.execute_region": _branches, "ttg.warp_specialize": _specialized,
}
