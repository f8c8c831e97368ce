"""Candidate encodings of each tensor in a kernel: those that anchors want and that are given, propagated through ops.

An encoding spells a layout, and one layout has many spellings (a slice, a linear encoding, a blocked one of fewer
dimensions), between which nothing moves. Layouts are what is chosen; spellings are chosen afterwards (`spelling`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from eggshard.triton.classes import CONVERT, Classes
from eggshard.triton.control import holds_tensors, ties
from eggshard.triton.kernels.ir import Kernel, Operation, Value
from eggshard.triton.layouts.encodings import Encoding, read
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import OPERANDS, RESULTS, Option, anchored, current, mixed, options, varied

#: The most layouts per tensor and the most spellings per layout; those met first are kept (`python -m bench triton`).
LAYOUTS, SPELLINGS = 16, 4
#: Number of tensors above which each may have only `FEW` layouts, since most of the time goes into pricing conversions.
MANY, FEW = 200, 8


@dataclass
class Candidates:
    """Per class its encodings, each with the number of its layout; per op that computes classes its options."""

    encodings: list[dict[Encoding, int]]
    options: dict[Operation, dict[Option, None]] = field(default_factory=dict)
    #: Whether some class had more layouts than are kept.
    capped: bool = False

    def layouts(self, c: int) -> list[Encoding]:
        """A spelling of each layout of a class, by its number."""
        found: dict[int, Encoding] = {}
        for encoding, number in self.encodings[c].items():
            found.setdefault(number, encoding)
        return [found[number] for number in range(len(found))]


def encoding_of(value: Value) -> Encoding:
    """The encoding that a tensor has in the text."""
    tensor = value.tensor
    assert tensor is not None and tensor.encoding is not None
    return read(tensor.encoding)


def find_candidates(kernel: Kernel, classes: Classes) -> Candidates:
    """The closure of the kernel's own encodings through the rules of its ops."""
    machine = Machine.of(kernel)
    found = Candidates([{} for _ in classes.types])
    mentions: list[list[tuple[Operation, int, int]]] = [[] for _ in classes.types]
    shared: dict[int, set[int]] = {}
    work: deque[tuple[int, Encoding]] = deque()
    most = LAYOUTS if len(classes.types) <= MANY else FEW
    numbers: list[dict[LinearLayout | Encoding, int]] = [{} for _ in classes.types]
    spelled: list[list[int]] = [[] for _ in classes.types]

    def add(c: int, encoding: Encoding, wanted: bool = False, spread: bool = True) -> bool:
        known = found.encodings[c]
        if encoding in known:
            return True
        which = key(c, encoding)
        number = numbers[c].get(which)
        if number is None:
            if len(numbers[c]) >= most and not wanted:
                found.capped = True
                return False
            number = numbers[c][which] = len(numbers[c])
            spelled[c].append(0)
        elif spelled[c][number] >= SPELLINGS and not wanted:
            return False
        spelled[c][number] += 1
        known[encoding] = number
        if spread:
            work.append((c, encoding))
        return True

    def tensors(op: Operation, option: Option) -> Iterator[tuple[int, Encoding]]:
        for values, encodings in ((op.operands, option.operands), (op.results, option.results)):
            for value, encoding in zip(values, encodings, strict=True):
                if encoding is not None and value in classes.of:
                    yield classes.of[value], encoding

    def take(op: Operation, option: Option, wanted: bool = False, spread: bool = True) -> None:
        if option not in found.options[op] and all([add(c, e, wanted, spread) for c, e in tensors(op, option)]):
            found.options[op][option] = None

    def key(c: int, encoding: Encoding) -> LinearLayout | Encoding:
        layout = linear_layout(encoding, classes.types[c].shape)
        return encoding if layout is None else layout.without_duplicates()

    def only_respelled(op: Operation, option: Option) -> bool:
        """Whether an option has the layouts of the given one."""
        return [(c, key(c, e)) for c, e in tensors(op, option)] == [(c, key(c, e)) for c, e in tensors(op, current(op))]

    def follow() -> None:
        while work:
            c, encoding = work.popleft()
            for op, side, i in mentions[c]:
                for option in options(op, side, i, encoding, machine):
                    if op not in kept or only_respelled(op, option):
                        take(op, option)
            for other in shared.get(c, ()):
                add(other, encoding)

    free: list[Operation] = []
    kept: dict[Operation, None] = {}
    for op in computing(kernel, classes):
        tied = ties(op)
        if tied is not None:
            for tie in tied:
                carried = (*(use.value for use in (*tie.sources, *tie.back)), *tie.targets)
                members = {classes.of[v] for v in carried if v in classes.of}
                for c in members:
                    shared.setdefault(c, set()).update(members - {c})
            continue
        found.options[op] = {}
        if _given(op):
            take(op, current(op), wanted=True)
        elif anchored(op, kernel):
            take(op, current(op), wanted=True)
            kept[op] = None
        else:
            free.append(op)
    for value in fixed_arguments(kernel):
        if value in classes.of:
            add(classes.of[value], encoding_of(value), wanted=True)
    for op in (*free, *kept):
        for side, values in ((OPERANDS, op.operands), (RESULTS, op.results)):
            for i, value in enumerate(values):
                if value in classes.of:
                    mentions[classes.of[value]].append((op, side, i))
    follow()
    # Where no anchor asks for anything, what is there is all that there is to follow.
    unasked = [op for op in free if not any(found.encodings[classes.of[v]] for v in (*op.operands, *op.results)
                                            if v in classes.of)]
    for op in unasked:
        take(op, current(op), wanted=True)
    follow()
    # What is there, of an op and of its repetitions: it is possible, but nothing asks for it.
    for op in free:
        take(op, current(op), wanted=True, spread=False)
    for op, first in classes.same.items():
        if first in found.options:
            take(first, current(op), wanted=True, spread=False)
    for op in filter(varied, free):
        spelled_once: dict[object, Option] = {}
        for option in found.options[op]:
            spelled_once.setdefault(tuple((c, key(c, e)) for c, e in tensors(op, option)), option)
        for option in mixed(op, spelled_once.values()):
            take(op, option, wanted=True, spread=False)
    for value, c in classes.of.items():
        add(c, encoding_of(value), wanted=True, spread=False)
    return found


def computing(kernel: Kernel, classes: Classes) -> Iterator[Operation]:
    """The ops that have to do with tensors, but for conversions, repetitions, and the terminators of blocks."""
    for function in kernel.functions:
        for op in function.walk():
            if op is function or op.name == CONVERT or op in classes.same or op.parent is None:
                continue
            if op is op.parent.terminator and op.parent_op is not None and ties(op.parent_op) is not None:
                continue
            if any(v in classes.of for v in (*op.operands, *op.results)):
                yield op


def fixed_arguments(kernel: Kernel) -> Iterator[Value]:
    """The arguments of functions and of blocks in them that no loop or branch is around: they lie as they are given."""
    for function in kernel.functions:
        for region in function.regions:
            for block in region.blocks:
                yield from block.arguments


def _given(op: Operation) -> bool:
    """Whether an op keeps the very encodings that it has: what blocks of no known meaning give must be what they are
    said to give."""
    if holds_tensors(op):
        return True
    around = op.parent_op
    return op.parent is not None and op is op.parent.terminator and around is not None and holds_tensors(around)
