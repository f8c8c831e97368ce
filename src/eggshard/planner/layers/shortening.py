"""Shortening of a program of many equal parts to two of each row.

The first of a row is kept as it is and the second stands for the last, so that values between two parts, and values
that enter or leave the row, are all represented. Values that enter or leave a copy become inputs of their own, so that
nothing derived from the short program can depend on which parts are adjacent.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple, TypeVar

from eggshard.ops import registry
from eggshard.planner.layers.layering import KEPT, Place
from eggshard.planner.layers.parts import Flow, Parts, find_parts
from eggshard.program.program import Program, Region

T = TypeVar("T")

#: The part of a program's ops above which its short form is not worth a search of its own.
SHORT = 0.75

#: An operand of a part's ops: the op's place, and the operand's number.
Port = tuple[Place, int]


class Seam(NamedTuple):
    """A value that enters or leaves a copy: of the whole program, its user's copy (or -1), and there the operand."""

    value: int
    user: int
    port: Port


@dataclass(frozen=True)
class Short:
    """A program of which two parts are kept of each row of equal ones. Copies number these, row by row.

    program: the short program as such. region: the same with an input for each of ``seams`` behind its own.
    values: per value of the whole program that is kept the short program's, in order. taken: per seam the value of the
    short program that it stands for. own: per input of the short program the copy that alone uses it, or -1, and where.
    """

    whole: Program
    parts: Parts
    program: Program
    region: Region
    values: dict[int, int]
    seams: list[Seam]
    taken: list[int]
    own: list[tuple[int, Port]]

    def row(self, copy: int) -> range:
        """The parts that are equal to a copy."""
        return self.parts.rows[copy // KEPT]

    def part(self, copy: int) -> int:
        """The part that a copy is."""
        return self.row(copy).start + copy % KEPT

    def follows(self) -> list[tuple[int, ...]]:
        """The copies that the parts of all rows may follow: the first of each row, the second, ..."""
        return [tuple([KEPT * r + k for r in range(len(self.parts.rows))]) for k in range(KEPT)]

    def cut_value(self, v: int) -> int:
        """The number in ``region`` of a value of the short program."""
        return v if v < len(self.program.region.inputs) else v + len(self.seams)

    @cached_property
    def _rows(self) -> list[int]:
        """Per part the number of its row."""
        return [r for r, row in enumerate(self.parts.rows) for _ in row]

    @cached_property
    def _made(self) -> dict[int, tuple[int, int]]:
        """Per value of the whole program that is computed the op, and which of its results it is."""
        return {v: (i, k) for i, op in enumerate(self.whole.region.ops) for k, v in enumerate(op.results)}

    def part_of(self, v: int) -> int:
        """The part that computes a value of the whole program, or -1."""
        made = self._made.get(v)
        return -1 if made is None else self.parts.part[made[0]]

    def stand_in(self, v: int, follow: Sequence[int]) -> int:
        """The value of the whole program, in the copy that its row follows, that ``v`` is planned as."""
        part = self.part_of(v)
        if part < 0:
            return v
        i, k = self._made[v]
        copy = self.parts.at[self.part(follow[self._rows[part]])]
        return self.whole.region.ops[copy[self.parts.place[i]]].results[k]

    def operand(self, port: Port, part: int) -> int:
        """What one of the equal parts takes, of the whole program's values."""
        place, k = port
        return self.whole.region.ops[self.parts.at[part][place]].operands[k]


def shorten(program: Program) -> Short | None:
    """The short form of a program; None where too few of its ops are in equal parts, or where order matters in it."""
    region = program.region
    if not all(registry.is_pure(op.name, op.regions) for op in region.ops):
        return None
    parts = find_parts(program)
    if parts is None or parts.spared() < (1 - SHORT) * len(region.ops):
        return None
    return _Shortening(program, parts).result()


class _Shortening:
    """Two parts of each row kept."""

    def __init__(self, program: Program, parts: Parts):
        self.program, self.parts, self.region = program, parts, program.region
        self.flow = Flow(program, parts.part)
        #: Per part the copy that it is, -1 for what is left out, and the row that it is in.
        self.copy = [KEPT * r + k if k < KEPT else -1 for r, row in enumerate(parts.rows) for k in range(len(row))]
        self.row = [r for r, row in enumerate(parts.rows) for _ in row]
        self.copies = [self.copy[part] if part >= 0 else -1 for part in parts.part]
        self.ops = [i for i in range(len(self.region.ops)) if not self._left_out(parts.part[i])]

    def result(self) -> Short | None:
        """The short form; None where the copies cannot stand for what other ops take of the parts."""
        region = self.region
        operands = {i: self._operands(i) for i in self.ops}
        if any(v is None for found in operands.values() for v in found):
            return None
        stands = {i: [v for v in found if v is not None] for i, found in operands.items()}
        order = self._order(stands)
        if order is None:
            return None
        owners = [self._owner(v) for v in region.inputs]
        inputs = [k for k, owner in enumerate(owners) if not self._left_out(owner)]
        outputs = [k for k, v in enumerate(region.outputs) if not self._left_out(self.flow.part_of(v))]
        kept = [*(region.inputs[k] for k in inputs), *(v for i in order for v in region.ops[i].results)]
        values = {v: number for number, v in enumerate(kept)}
        short = Region(
            tuple(range(len(inputs))),
            tuple([replace(region.ops[i], operands=tuple([values[v] for v in stands[i]]),
                           results=tuple([values[v] for v in region.ops[i].results])) for i in order]),
            tuple([values[region.outputs[k]] for k in outputs]),
            tuple([region.types[v] for v in kept]),
        )
        program = self.program
        smaller = replace(
            program, region=short, text=None,
            input_shardings=_some(program.input_shardings, inputs),
            output_shardings=_some(program.output_shardings, outputs),
            input_names=_some(program.input_names, inputs), output_names=_some(program.output_names, outputs),
        )
        cut, seams, taken = self._cut(short, order, values, stands)
        own = [self._own(owners[k], region.inputs[k]) for k in inputs]
        return Short(program, self.parts, smaller, cut, values, seams, taken, own)

    def _left_out(self, part: int) -> bool:
        return part >= 0 and self.copy[part] < 0

    def _owner(self, v: int) -> int:
        """The part that an input belongs to, or -1."""
        return next((n for n in self.flow.users.get(v, ()) if n >= 0 and self.flow.is_own(v, n)), -1)

    def _own(self, part: int, v: int) -> tuple[int, Port]:
        if part < 0:
            return -1, ((-1, -1), -1)
        return self.copy[part], next((place, k) for place, i in self.parts.at[part].items()
                                     for k, operand in enumerate(self.region.ops[i].operands) if operand == v)

    def _operands(self, i: int) -> list[int | None]:
        """What a kept op takes, values of parts left out replaced; None for what nothing can stand for."""
        return [self._stand_in(v, self.copies[i], (self.parts.place[i], k))
                for k, v in enumerate(self.region.ops[i].operands)]

    def _stand_in(self, v: int, user: int, port: Port) -> int | None:
        """Return the value that replaces operand ``v`` of a left-out part in the shortened program.

        Other ops take it from the second copy; the second copy itself takes what the last part of its row takes.
        """
        part = self.flow.part_of(v)
        if not self._left_out(part):
            return v
        row = self.row[part]
        if user < 0 or user // KEPT != row:
            return self._in_copy(v, row)
        if user % KEPT < KEPT - 1:
            return None
        place, k = port
        last = self.region.ops[self.parts.at[self.parts.rows[row][-1]][place]].operands[k]
        there = self.flow.part_of(last)
        if there in self.parts.rows[row]:
            return None
        return self._in_copy(last, self.row[there]) if self._left_out(there) else last

    def _in_copy(self, v: int, row: int) -> int:
        """The value of the last copy in place of one of a part of its row."""
        i, k = self.flow.maker[v]
        return self.region.ops[self.parts.at[self.parts.rows[row][KEPT - 1]][self.parts.place[i]]].results[k]

    def _order(self, operands: dict[int, list[int]]) -> list[int] | None:
        """The kept ops with operands first, otherwise in the program's order; None where there is none."""
        maker = self.flow.maker
        sorter = TopologicalSorter({i: {maker[v][0] for v in operands[i] if v in maker} for i in self.ops})
        try:
            sorter.prepare()
        except CycleError:
            return None
        ready: list[int] = []
        order = []
        while sorter:
            for i in sorter.get_ready():
                heapq.heappush(ready, i)
            order.append(heapq.heappop(ready))
            sorter.done(order[-1])
        return order

    def _cut(
        self, short: Region, order: list[int], values: dict[int, int], stands: dict[int, list[int]]
    ) -> tuple[Region, list[Seam], list[int]]:
        """The region with an input for each value that enters or leaves a copy; these, and what they stand for.

        What is the same for every part of a row stays as it is.
        """
        count = len(short.inputs)
        seams: dict[tuple[int, int], tuple[Seam, int]] = {}
        operands: list[list[tuple[int, int] | int]] = []
        for i in order:
            user = self.copies[i]
            found: list[tuple[int, int] | int] = []
            for k, v in enumerate(self.region.ops[i].operands):
                port = self.parts.place[i], k
                if self._stays(v, user, port):
                    found.append(values[v])
                    continue
                seams.setdefault((v, user), (Seam(v, user, port), values[stands[i][k]]))
                found.append((v, user))
            operands.append(found)
        number = {key: count + n for n, key in enumerate(seams)}

        def cut(v: int) -> int:
            return v if v < count else v + len(seams)

        ops = [
            replace(op, operands=tuple([number[v] if isinstance(v, tuple) else cut(v) for v in taken]),
                    results=tuple(map(cut, op.results)))
            for op, taken in zip(short.ops, operands, strict=True)
        ]
        more = [short.types[v] for _, v in seams.values()]
        types = (*short.types[:count], *more, *short.types[count:])
        region = Region(tuple(range(count + len(seams))), tuple(ops), tuple(map(cut, short.outputs)), types)
        return region, [seam for seam, _ in seams.values()], [v for _, v in seams.values()]

    def _stays(self, v: int, user: int, port: Port) -> bool:
        """Whether an operand is of the user's own copy, or of no part and the same for every part like the user."""
        part = self.flow.part_of(v)
        if user < 0:
            return part < 0
        row = self.parts.rows[user // KEPT]
        if part == row[user % KEPT] or self.flow.is_own(v, row[user % KEPT]):
            return True
        place, k = port
        return part < 0 and all(self.region.ops[self.parts.at[n][place]].operands[k] == v for n in row)


def _some(items: tuple[T, ...], which: Iterable[int]) -> tuple[T, ...]:
    return tuple([items[k] for k in which]) if items else ()
