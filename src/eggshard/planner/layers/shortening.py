"""Shortening of a program of many equal layers to two of them.

Layers are equal if they are equal op by op, whatever they take from elsewhere. The first is kept as it is and the
second stands for the last, so that values between two layers, and values that enter or leave the stack, are all
represented. Values that enter or leave a copy become inputs of their own, so that nothing derived from the short
program can depend on which layers are adjacent.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple, TypeVar

from eggshard.ops import registry
from eggshard.planner.layers.layering import Layering, Place, find_layers
from eggshard.program.program import Program, Region

T = TypeVar("T")

#: The number of equal layers that are kept.
KEPT = 2
#: The part of a program's ops above which its short form is not worth a search of its own.
SHORT = 0.75

#: An operand of a layer's ops: the op's place, and the operand's number.
Port = tuple[Place, int]


class Seam(NamedTuple):
    """A value that enters or leaves a copy: of the whole program, its user's copy (or -1), and there the operand."""

    value: int
    user: int
    port: Port


@dataclass(frozen=True)
class Short:
    """A program of which ``repeats`` equal layers, from layer ``first`` on, are kept in two copies.

    program: the short program as such. region: the same with an input for each of ``seams`` behind its own.
    values: per value of the whole program that is kept the short program's, in order. taken: per seam the value of the
    short program that it stands for. own: per input of the short program the copy that alone uses it, or -1, and where.
    """

    whole: Program
    layering: Layering
    first: int
    repeats: int
    program: Program
    region: Region
    values: dict[int, int]
    seams: list[Seam]
    taken: list[int]
    own: list[tuple[int, Port]]

    def cut_value(self, v: int) -> int:
        """The number in ``region`` of a value of the short program."""
        return v if v < len(self.program.region.inputs) else v + len(self.seams)

    def operand(self, port: Port, layer: int) -> int:
        """What one of the equal layers (0 the first) takes, of the whole program's values."""
        place, k = port
        return self.whole.region.ops[self.layering.at[self.first + layer][place]].operands[k]


def shorten(program: Program) -> Short | None:
    """The short form of a program; None where too few of its ops are in equal layers, or where order matters in it."""
    region = program.region
    if not all(registry.is_pure(op.name, op.regions) for op in region.ops):
        return None
    layering = find_layers(region)
    if layering is None:
        return None
    comparison = _Comparison(program, layering)
    row = comparison.longest()
    short = _Shortening(comparison, row).result() if len(row) > KEPT + 1 else None
    return None if short is None or len(short.program.region.ops) > SHORT * len(region.ops) else short


class _Comparison:
    """Which neighbouring layers are equal: op by op, in what they take of themselves and in what they deliver."""

    def __init__(self, program: Program, layering: Layering):
        self.program, self.layering = program, layering
        region = program.region
        self.maker = {v: (i, k) for i, op in enumerate(region.ops) for k, v in enumerate(op.results)}
        self.sharding = dict(zip(region.inputs, program.input_shardings, strict=True))
        self.delivered: dict[int, list[object]] = {}
        for v, sharding in zip(region.outputs, program.output_shardings, strict=True):
            self.delivered.setdefault(v, []).append(sharding)
        self.users: dict[int, set[int]] = {}
        for i, op in enumerate(region.ops):
            for v in op.operands:
                self.users.setdefault(v, set()).add(layering.layer[i])

    def longest(self) -> range:
        """The longest row of equal layers."""
        best, start = range(0), 0
        shapes = [self._shape(n) for n in range(self.layering.count)]
        for n in range(1, self.layering.count):
            if shapes[n] != shapes[n - 1] or not self._alike(n - 1, n):
                start = n
            if n + 1 - start > len(best):
                best = range(start, n + 1)
        return best

    def _shape(self, n: int) -> list[object]:
        """What equal layers have in common, but for what they take from elsewhere."""
        region, layering = self.program.region, self.layering
        out: list[object] = []
        for place, i in sorted(layering.at[n].items()):
            op = region.ops[i]
            out.append((place, [self.within(n, v) for v in op.operands], [self.delivered.get(v) for v in op.results]))
        return out

    def within(self, n: int, v: int) -> tuple[Place, int] | None:
        """Where in a layer an operand is computed; None for what comes from elsewhere."""
        made = self.maker.get(v)
        if made is None or self.layering.layer[made[0]] != n:
            return None
        return self.layering.place[made[0]], made[1]

    def _alike(self, a: int, b: int) -> bool:
        """Whether what two equal layers take from elsewhere corresponds one to one, inputs of their own to such."""
        region, layering = self.program.region, self.layering
        there: dict[int, int] = {}
        back: dict[int, int] = {}
        for place, i in layering.at[a].items():
            pair = region.ops[i].operands, region.ops[layering.at[b][place]].operands
            for u, v in zip(*pair, strict=True):
                if self.within(a, u) is not None:
                    continue
                if there.setdefault(u, v) != v or back.setdefault(v, u) != u:
                    return False
                own = self.is_own(u, a), self.is_own(v, b)
                if own[0] != own[1] or (own[0] and self.sharding[u] != self.sharding[v]):
                    return False
        return True

    def is_own(self, v: int, layer: int) -> bool:
        """Whether a value is an input that nothing but a layer uses."""
        return v in self.sharding and self.users[v] == {layer} and v not in self.delivered


class _Shortening:
    """Two of a row of equal layers kept."""

    def __init__(self, comparison: _Comparison, row: range):
        self.comparison, self.row = comparison, row
        self.program, self.layering = comparison.program, comparison.layering
        self.region, layers = self.program.region, self.layering.layer
        self.copies = [n - row.start if row.start <= n < row.start + KEPT else -1 for n in layers]
        self.ops = [i for i in range(len(self.region.ops)) if not self._left_out(layers[i])]

    def result(self) -> Short | None:
        """The short form; None where the copies cannot stand for what other ops take of the layers."""
        region = self.region
        operands = {i: self._operands(i) for i in self.ops}
        if any(v is None for found in operands.values() for v in found):
            return None
        stands = {i: [v for v in found if v is not None] for i, found in operands.items()}
        order = self._order(stands)
        if order is None:
            return None
        inputs = [k for k, v in enumerate(region.inputs) if not self._left_out(self._owner(v))]
        outputs = [k for k, v in enumerate(region.outputs) if not self._left_out(self._layer_of(v))]
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
        own = [(self._owner(region.inputs[k]), region.inputs[k]) for k in inputs]
        return Short(program, self.layering, self.row.start, len(self.row), smaller, cut, values, seams, taken,
                     [self._own(layer - self.row.start, v) if layer in self.row else (-1, ((-1, -1), -1))
                      for layer, v in own])

    def _left_out(self, layer: int) -> bool:
        return layer in self.row and layer >= self.row.start + KEPT

    def _layer_of(self, v: int) -> int:
        made = self.comparison.maker.get(v)
        return -1 if made is None else self.layering.layer[made[0]]

    def _owner(self, v: int) -> int:
        """The layer that an input belongs to, or -1."""
        users = self.comparison.users.get(v, set())
        return next((n for n in users if n in self.row and self.comparison.is_own(v, n)), -1)

    def _own(self, copy: int, v: int) -> tuple[int, Port]:
        at = self.layering.at[self.row.start + copy]
        return copy, next((place, k) for place, i in at.items()
                          for k, operand in enumerate(self.region.ops[i].operands) if operand == v)

    def _operands(self, i: int) -> list[int | None]:
        """What a kept op takes, values of layers left out replaced; None for what nothing can stand for."""
        return [self._stand_in(v, self.copies[i], (self.layering.place[i], k))
                for k, v in enumerate(self.region.ops[i].operands)]

    def _stand_in(self, v: int, user: int, port: Port) -> int | None:
        """Return the value that replaces operand ``v`` of a left-out layer in the shortened program.

        Ops outside the layers take it from the second copy; the second copy itself takes what the last layer takes.
        """
        if not self._left_out(self._layer_of(v)):
            return v
        if user < 0:
            return self._in_copy(v, KEPT - 1)
        if user == KEPT - 1:
            place, k = port
            last = self.region.ops[self.layering.at[self.row[-1]][place]].operands[k]
            return None if self._layer_of(last) in self.row else last
        return None

    def _in_copy(self, v: int, copy: int) -> int:
        i, k = self.comparison.maker[v]
        return self.region.ops[self.layering.at[self.row.start + copy][self.layering.place[i]]].results[k]

    def _order(self, operands: dict[int, list[int]]) -> list[int] | None:
        """The kept ops with operands first, otherwise in the program's order; None where there is none."""
        maker = self.comparison.maker
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

        What is the same for every layer stays as it is.
        """
        count = len(short.inputs)
        seams: dict[tuple[int, int], tuple[Seam, int]] = {}
        operands: list[list[tuple[int, int] | int]] = []
        for i in order:
            user = self.copies[i]
            found: list[tuple[int, int] | int] = []
            for k, v in enumerate(self.region.ops[i].operands):
                port = self.layering.place[i], k
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
        """Whether an operand is of the user's own copy, or outside the row of layers and the same for every user."""
        layer = self._layer_of(v)
        if user < 0:
            return layer not in self.row
        if layer == self.row.start + user or self.comparison.is_own(v, self.row.start + user):
            return True
        if layer in self.row:
            return False
        place, k = port
        return all(self.region.ops[self.layering.at[n][place]].operands[k] == v for n in self.row)


def _some(items: tuple[T, ...], which: Iterable[int]) -> tuple[T, ...]:
    return tuple([items[k] for k in which]) if items else ()
