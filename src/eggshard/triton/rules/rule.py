"""The rule interface: the encodings at which an op runs, and what it costs there.

An `Option` is one consistent assignment of encodings to an op's tensors. A rule gives the options in which a given
operand or result has a given encoding; a row of the table (`table`) says the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from eggshard.triton.kernels.ir import Kernel, Operation, Value
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.encodings import Encoding, read
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.machine import Machine

#: The places of a tensor in an option: ``option[side][i]``.
OPERANDS, RESULTS = 0, 1


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
        operands, results = list(option.operands), list(option.results)
        for i, encoding in zip(self.operands, encodings.operands, strict=True):
            operands[i] = encoding
        for i, encoding in zip(self.results, encodings.results, strict=True):
            results[i] = encoding
        return Option(tuple(operands), tuple(results))


def is_laid(value: Value) -> bool:
    """Whether a value is a tensor that has a layout."""
    tensor = value.tensor
    return tensor is not None and tensor.encoding is not None


def encoding_of(value: Value) -> Encoding | None:
    """The encoding of a tensor as the kernel has it; None for what is no tensor, or has no layout."""
    tensor = value.tensor
    return None if tensor is None or tensor.encoding is None else read(tensor.encoding)


def current(op: Operation) -> Option:
    """The op as it is given."""
    return Option(tuple(map(encoding_of, op.operands)), tuple(map(encoding_of, op.results)))


def both(op: Operation, operand: Encoding, result: Encoding) -> Option:
    """The option in which all tensor operands have one encoding and all tensor results another."""
    return Option(
        tuple(operand if is_laid(v) else None for v in op.operands),
        tuple(result if is_laid(v) else None for v in op.results))


def uniform(op: Operation, encoding: Encoding) -> Option:
    """The option in which all tensors have an encoding."""
    return both(op, encoding, encoding)


#: The options of an op in which the operand (or result: ``side``) of a number has an encoding, or one that lies equal
#: where the op asks for a certain spelling; [] if there are none.
Options = Callable[[Operation, int, int, Encoding, Machine], list[Option]]


def as_given(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """The options of unknown ops: they run as they are given."""
    given = current(op)
    return [given] if given[side][i] == encoding else []


def at_any(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """All tensors of the op have one encoding, whichever."""
    return [uniform(op, encoding)]


@dataclass(frozen=True)
class Rule:
    """A row of the table; by default that of unknown ops, which run once, as they are given, at an unknown cost.

    anchored: whether the op runs at no option but the given one. movable: whether it is a function of its operands,
    whatever its option: equal ones are one, and it may be computed again, and elsewhere. repeatable: whether it may be
    computed several times at its place; by default as movable. work: what running it at an option costs a thread block.
    effects: whether the op runs though nothing needs its results; by default where it is not movable.
    parts: groups of tensors, alike in each, whose encodings vary by themselves; () where all hang together. renamed: of
    an op that gives elements other indices and leaves them in their registers, the layout of the first result where the
    first operand has one; None where it has none.
    """

    options: Options = as_given
    work: Callable[[Operation, Option, Machine], Counts] = lambda op, option, machine: Counts()
    anchored: Callable[[Operation, Kernel], bool] = lambda op, kernel: True
    movable: Callable[[Operation], bool] = lambda op: False
    repeatable: Callable[[Operation, Kernel], bool] | None = None
    effects: Callable[[Operation], bool] | None = None
    parts: Callable[[Operation], tuple[Part, ...]] = lambda op: ()
    renamed: Callable[[Operation, LinearLayout], LinearLayout | None] | None = None


def pure(op: Operation) -> bool:
    """An op that is a function of its operands: `Rule.movable`."""
    return True


def droppable(op: Operation) -> bool:
    """An op that runs only where its results are needed: `Rule.effects`."""
    return False


def free(op: Operation, kernel: Kernel) -> bool:
    """An op that asks for nothing: `Rule.anchored`."""
    return False


def in_clusters(op: Operation, kernel: Kernel) -> bool:
    """An op that uses the block's own shared memory, which lacks other blocks' elements: `Rule.anchored`."""
    return kernel.num_ctas > 1
