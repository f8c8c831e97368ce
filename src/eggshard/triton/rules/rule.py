"""The rule interface: the encodings at which an op runs, and what it costs there.

An `Option` is one consistent assignment of encodings to an op's tensors. A rule gives the options in which a given
operand or result has a given encoding. The base class is the rule of unknown ops: they run as they are given.
"""

from __future__ import annotations

from typing import NamedTuple

from eggshard.triton.kernels.ir import Kernel, Operation, Value
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.encodings import Encoding, read
from eggshard.triton.layouts.machine import Machine


class Option(NamedTuple):
    """Encodings per operand and per result; None for what is no tensor, and for operands of which any will do."""

    operands: tuple[Encoding | None, ...]
    results: tuple[Encoding | None, ...]


class Part(NamedTuple):
    """Some of an op's operands and results, by their numbers."""

    operands: tuple[int, ...] = ()
    results: tuple[int, ...] = ()

    def of(self, option: Option) -> Option:
        """An option's encodings of these tensors alone."""
        return Option(tuple(option.operands[i] for i in self.operands), tuple(option.results[i] for i in self.results))

    def put(self, option: Option, encodings: Option) -> Option:
        """An option with other encodings of these tensors."""
        operands, results = dict(enumerate(option.operands)), dict(enumerate(option.results))
        operands.update(zip(self.operands, encodings.operands, strict=True))
        results.update(zip(self.results, encodings.results, strict=True))
        return Option(tuple(operands.values()), tuple(results.values()))


def encoding_of(value: Value) -> Encoding | None:
    """The encoding of a tensor as the kernel has it; None for what is no tensor, or has no layout."""
    tensor = value.tensor
    return None if tensor is None or tensor.encoding is None else read(tensor.encoding)


def current(op: Operation) -> Option:
    """The op as it is given."""
    return Option(tuple(map(encoding_of, op.operands)), tuple(map(encoding_of, op.results)))


class Rule:
    """The rule of unknown ops, and the base of all others: an op runs once, as it is given, at an unknown cost."""

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        """The options in which operand ``i`` has an encoding, or one that lies equal where the op asks for a certain
        spelling; [] if there are none."""
        given = current(op)
        return [given] if given.operands[i] == encoding else []

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        """The options in which result ``i`` has an encoding, or one that lies equal; [] if there are none."""
        given = current(op)
        return [given] if given.results[i] == encoding else []

    def parts(self, op: Operation) -> tuple[Part, ...]:
        """Groups of tensors, alike in each, whose encodings vary by themselves; () where all hang together."""
        return ()

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        """Whether the op runs at no option but the given one."""
        return True

    def movable(self, op: Operation) -> bool:
        """Whether the op is a function of its operands, whatever its option: equal ones are one, and it may be computed
        again, and elsewhere."""
        return False

    def repeatable(self, op: Operation, kernel: Kernel) -> bool:
        """Whether the op may be computed several times at its place."""
        return self.movable(op)

    def work(self, op: Operation, option: Option, machine: Machine) -> Counts:
        """What running the op so costs a thread block."""
        return Counts()


class Uniform(Rule):
    """All tensors of the op have one encoding, whichever."""

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return [uniform(op, encoding)]

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return [uniform(op, encoding)]

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        return False


def uniform(op: Operation, encoding: Encoding) -> Option:
    """The option in which all tensors have an encoding."""
    return both(op, encoding, encoding)


class Mapped(Rule):
    """The results' encoding is a function of the operands', which have one encoding, and the other way round."""

    def forward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        """The results' encoding where the operands have one; None if they cannot have it."""
        raise NotImplementedError

    def backward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        """The operands' encoding where the results have one; None if they cannot have it."""
        raise NotImplementedError

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        given = current(op)
        if given.operands[i] == encoding:
            return [given]
        result = self.forward(op, encoding, machine)
        return [] if result is None else [both(op, encoding, result)]

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        given = current(op)
        if given.results[i] == encoding:
            return [given]
        operand = self.backward(op, encoding, machine)
        return [] if operand is None else [both(op, operand, encoding)]

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        return False

    def movable(self, op: Operation) -> bool:
        return True


def both(op: Operation, operand: Encoding, result: Encoding) -> Option:
    """The option in which all tensor operands have one encoding and all tensor results another."""
    operands, results = current(op)
    return Option(
        tuple(None if e is None else operand for e in operands), tuple(None if e is None else result for e in results))
