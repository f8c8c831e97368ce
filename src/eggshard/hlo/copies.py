"""What the kernels beside a collective copy to lay its operands and results out for it, and in how many pieces.

A gather or reduce-scatter along an inner dimension has that one outermost in memory. An all-to-all takes one slice for
every device and gives one; these are no pieces of memory where they are cut, or put together, along an inner dimension.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from eggshard.hlo.fusions import computed_parts
from eggshard.hlo.text import Instruction, layouts_of, size_of

_JOINING = frozenset({"all-gather", "reduce-scatter"})
_DIMENSION = re.compile(r"\bdimensions=\{(\d+)\}")

Instructions = Mapping[str, Instruction]


class Copied(NamedTuple):
    """An array that is laid out for a kind of collective: bytes read and written, and the pieces copied at a time."""

    kind: str
    memory_bytes: float
    runs: float


def copied_beside_collectives(
    values: Instructions, inside: Callable[[Instruction], Instructions]
) -> dict[str, list[Copied]]:
    """Per instruction of a computation what it copies for collectives. inside: what a fusion fuses."""
    found: dict[str, list[Copied]] = {}

    def note(at: Instruction, kind: str, copies: Iterator[tuple[float, float]]) -> None:
        for memory_bytes, runs in copies:
            found.setdefault(at.name, []).append(Copied(kind, memory_bytes, runs))

    for i in values.values():
        operands = [values[name] for name in dict.fromkeys(i.operands) if name in values]
        kind = i.opcode.removesuffix("-start")
        for operand in operands:
            source = _collective(operand, values)
            taken = source.opcode.removesuffix("-start")
            if kind in _JOINING:
                note(operand, kind, _laid_out(i, operand, [values[n] for n in operand.operands if n in values]))
            elif kind == "all-to-all":
                note(operand, kind, _rearranged(operand, values, inside(operand), "slice"))
            elif taken in _JOINING:
                note(i, taken, _laid_out(source, operand, [i]))
        if any(_collective(operand, values).opcode.startswith("all-to-all") for operand in operands):
            note(i, "all-to-all", _rearranged(i, values, inside(i), "concatenate"))
    return found


def _collective(i: Instruction, values: Instructions) -> Instruction:
    """What an instruction is a result of: its end, an element of its tuple."""
    while (i.opcode == "get-tuple-element" or i.opcode.endswith("-done")) and i.operands[0] in values:
        i = values[i.operands[0]]
    return i


def _laid_out(collective: Instruction, own: Instruction, others: list[Instruction]) -> Iterator[tuple[float, float]]:
    """An operand or result of a collective along an inner dimension, unless what is beside it is laid out so, too."""
    along, mine = _DIMENSION.search(collective.line), layouts_of(own.shape)
    if along is None or len(mine) != 1:
        return
    extents, layout = mine[0]
    outer = math.prod(extents[: int(along[1])])
    beside = [there for i in others for shape, there in layouts_of(i.shape) if shape == extents]
    if outer > 1 and any(there != layout for there in beside):
        yield 2.0 * size_of(own.shape), float(outer * extents[int(along[1])])


def _rearranged(i: Instruction, values: Instructions, fused: Instructions, by: str) -> Iterator[tuple[float, float]]:
    """What is laid out anew, or sliced or concatenated (``by``) along an inner dimension."""
    there, computed = fused or values, computed_parts(fused)
    for j in fused.values() if fused else [i]:
        source = there.get(j.operands[0]) if j.operands else None
        if source is None or j.opcode not in ("copy", by):
            continue
        part, (extents, layout), (whole, before) = computed.get(j.name, 1.0), *_layouts(j, source)
        runs = 1.0
        if j.opcode == "copy":
            same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(layout, before, strict=True))
            runs = math.prod(extents) / math.prod(extents[d] for d, _ in same)
        elif j.opcode == "slice":
            runs = math.prod(extents[: max((d for d, n in enumerate(whole) if n != extents[d]), default=0)])
        elif along := _DIMENSION.search(j.line):
            outer = math.prod(extents[: int(along[1])])
            runs = outer * len(j.operands) if outer > 1 else 1.0
        if runs > 1:
            yield 2.0 * part * size_of(j.shape), part * runs


def _layouts(*instructions: Instruction) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for i in instructions:
        yield next(iter(layouts_of(i.shape)), ((), ()))
