"""Transfer rules: the encodings at which each op runs, the ops that keep theirs, and the cost of running them so.

There is one file per family of ops and one table by name (`table`); the functions below put the questions to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from eggshard.triton.control import is_sealed
from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules.cloning import with_option
from eggshard.triton.rules.rule import OPERANDS, RESULTS, Option, current
from eggshard.triton.rules.table import TABLE, rule_of

__all__ = [
    "OPERANDS", "RESULTS", "Option", "anchored", "current", "has_effects", "is_known", "mixed", "movable", "options",
    "repeatable", "varied", "with_option", "work",
]


def options(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """The options in which operand (or result: ``side``) ``i`` has an encoding, or one that lies equal where the op
    asks for a certain spelling (a slice); [] if there are none. Of options that differ in spelling alone, the given
    one."""
    return rule_of(op.name).options(op, side, i, encoding, machine)


def varied(op: Operation) -> bool:
    """Whether the op has parts whose encodings vary by themselves."""
    return bool(rule_of(op.name).parts(op))


def mixed(op: Operation, options: Iterable[Option]) -> list[Option]:
    """The options of such an op in which each part is as in any of these."""
    some, parts = list(options), rule_of(op.name).parts(op)
    found = []
    for picked in product(*(dict.fromkeys(part.of(option) for option in some) for part in parts)):
        option = current(op)
        for part, encodings in zip(parts, picked, strict=True):
            option = part.put(option, encodings)
        found.append(option)
    return found


def anchored(op: Operation, kernel: Kernel) -> bool:
    """Whether the op runs at no option but the given one.

    So does everything in the partitions of a specialised kernel, whose warps are not the module's.
    """
    return is_sealed(op) or rule_of(op.name).anchored(op, kernel)


def movable(op: Operation) -> bool:
    """Whether the op is a function of its operands, the same at each of its options: equal ones are one, and it may be
    computed again."""
    return rule_of(op.name).movable(op)


def is_known(op: Operation) -> bool:
    """Whether there is a rule for the op, if only that it stays as it is."""
    return op.name in TABLE


def has_effects(op: Operation) -> bool:
    """Whether the op runs though nothing needs its results; so do ops that are not understood."""
    rule = rule_of(op.name)
    return not rule.movable(op) if rule.effects is None else rule.effects(op)


def repeatable(op: Operation, kernel: Kernel) -> bool:
    """Whether the op may be computed several times at its place: movable ones, and reads of memory that are cheap."""
    rule = rule_of(op.name)
    return rule.movable(op) if rule.repeatable is None else rule.repeatable(op, kernel)


def work(op: Operation, option: Option, machine: Machine) -> Counts:
    """What running the op at an option costs a thread block, once; nothing for ops that are not understood."""
    return rule_of(op.name).work(op, option, machine)
