"""A program of many equal layers made short: two of them stand for all.

The layers between the first and the last ones are equal op by op, take the same of their neighbours, and deliver the
same. Two are kept, so that what passes between two of them has its place; values that pass between layers become
inputs, so nothing that is found out about the short program can depend on which layers are next to one another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from eggshard.layers.layering import Layering, Place, find_layers
from eggshard.program.ops import registry
from eggshard.program.program import Program, Region

T = TypeVar("T")

#: So many of the equal layers are kept.
KEPT = 2


@dataclass(frozen=True)
class Short:
    """A program of which ``repeats`` equal layers, from layer ``first`` on, are kept in two copies.

    program: the short program as such. region: the same with the values that pass from or to a copy as further inputs.
    values[v]: the value of the short program that a value of the whole one is kept as, if it is. copy_of[v]: per value
    of the short program the copy (0, 1) that computes it, or whose own input it is; -1 for others. seams: per further
    input of ``region`` in order, the value of the short program that it stands for, and its user's copy, or -1.
    """

    whole: Program
    layering: Layering
    first: int
    repeats: int
    program: Program
    region: Region
    values: dict[int, int]
    copy_of: list[int]
    seams: list[tuple[int, int]]

    @property
    def weight(self) -> float:
        """For how many layers each copy stands."""
        return self.repeats / KEPT

    def cut_value(self, v: int) -> int:
        """The number in ``region`` of a value of the short program."""
        return v if v < len(self.program.region.inputs) else v + len(self.seams)

    @cached_property
    def origins(self) -> list[int]:
        """Per value of the short program the value of the whole one that it is."""
        return list(self.values)

    @cached_property
    def _own_inputs(self) -> list[dict[int, tuple[Place, int]]]:
        """Per copy and input of the whole program that its ops take, the place of the first such operand."""
        found: list[dict[int, tuple[Place, int]]] = []
        for copy in range(KEPT):
            places: dict[int, tuple[Place, int]] = {}
            for place, i in self.layering.at[self.first + copy].items():
                for k, v in enumerate(self.whole.region.ops[i].operands):
                    places.setdefault(v, (place, k))
            found.append(places)
        return found

    def own_input(self, v: int, copy: int, layer: int) -> int:
        """The input of the whole program that is for equal layer ``layer`` (0 the first) what ``v`` is for a copy."""
        place, k = self._own_inputs[copy][v]
        return self.whole.region.ops[self.layering.at[self.first + layer][place]].operands[k]


def shorten(program: Program) -> Short | None:
    """The short form of a program; None where it has not enough equal layers, or where order matters in it."""
    region = program.region
    if not all(registry.is_pure(op.name, op.regions) for op in region.ops):
        return None
    layering = find_layers(region)
    if layering is None:
        return None
    first, last = _Comparison(program, layering).longest()
    if last - first + 1 <= KEPT + 1:
        return None
    return _shortened(program, layering, first, last)


class _Comparison:
    """Which neighbouring layers are equal: op by op, in what they take and in what is taken of them."""

    def __init__(self, program: Program, layering: Layering):
        self.program, self.layering = program, layering
        region = program.region
        self.maker = {v: (i, k) for i, op in enumerate(region.ops) for k, v in enumerate(op.results)}
        self.sharding = dict(zip(region.inputs, program.input_shardings, strict=True))
        self.delivered: dict[int, list[object]] = {}
        for v, sharding in zip(region.outputs, program.output_shardings, strict=True):
            self.delivered.setdefault(v, []).append(sharding)
        #: Values that ops outside all layers use.
        self.used_outside = {v for i, op in enumerate(region.ops) if layering.layer[i] < 0 for v in op.operands}
        self.users: dict[int, set[int]] = {}
        for i, op in enumerate(region.ops):
            for v in op.operands:
                self.users.setdefault(v, set()).add(layering.layer[i])

    def longest(self) -> tuple[int, int]:
        """The first and the last of the longest row of equal layers."""
        best, start = (0, 0), 0
        shapes = [self._shape(n) for n in range(self.layering.count)]
        for n in range(1, self.layering.count):
            if shapes[n] is None or shapes[n] != shapes[n - 1] or not self._alike(n - 1, n):
                start = n
            if n - start > best[1] - best[0]:
                best = start, n
        return best if shapes[best[0]] is not None else (0, 0)

    def _shape(self, n: int) -> list[object] | None:
        """What equal layers have in common, but for which outside values they take; None for one that is kept."""
        region, layering = self.program.region, self.layering
        out: list[object] = []
        for place, i in sorted(layering.at[n].items()):
            op = region.ops[i]
            out.append(place)
            for v in op.operands:
                source = self._source(n, v)
                if source is not None and abs(source[0]) > 1:
                    return None
                out.append(source)
            for v in op.results:
                users = sorted({user - n for user in self.users.get(v, ())})
                if v in self.used_outside or any(abs(user) > 1 for user in users):
                    return None
                out.append((self.delivered.get(v, ()), users))
        return out

    def _source(self, n: int, v: int) -> tuple[int, Place, int] | None:
        """Where an operand comes from: (layers on, place, result); None for what is outside all layers."""
        made = self.maker.get(v)
        if made is None or self.layering.layer[made[0]] < 0:
            return None
        i, k = made
        return self.layering.layer[i] - n, self.layering.place[i], k

    def _alike(self, a: int, b: int) -> bool:
        """Whether two layers take outside values that correspond one to one: the same, or inputs of their own."""
        region, layering = self.program.region, self.layering
        there: dict[int, int] = {}
        back: dict[int, int] = {}
        for place, i in layering.at[a].items():
            ops = region.ops[i], region.ops[layering.at[b][place]]
            for u, v in zip(ops[0].operands, ops[1].operands, strict=True):
                if self._source(a, u) is not None:
                    continue
                if there.setdefault(u, v) != v or back.setdefault(v, u) != u:
                    return False
                if u != v and not self._own_inputs(u, a, v, b):
                    return False
        return True

    def _own_inputs(self, u: int, a: int, v: int, b: int) -> bool:
        """Whether u and v are alike inputs that nothing but the layers a and b uses."""
        types = self.program.region.types
        return (
            u in self.sharding and v in self.sharding and types[u] == types[v] and self.sharding[u] == self.sharding[v]
            and self.users[u] == {a} and self.users[v] == {b} and u not in self.delivered and v not in self.delivered
        )


def _shortened(program: Program, layering: Layering, first: int, last: int) -> Short:
    region = program.region
    left = _Left(program, layering, first, last)
    ops = [i for i in range(len(region.ops)) if not left.out(layering.layer[i])]
    used = {v for i in ops for v in region.ops[i].operands}
    needless = {v for i, op in enumerate(region.ops) if left.out(layering.layer[i]) for v in op.operands} - used
    inputs = [k for k, v in enumerate(region.inputs) if v not in needless]
    outputs = [k for k, v in enumerate(region.outputs) if not left.out(left.layer_of(v))]
    kept = [*(region.inputs[k] for k in inputs), *(v for i in ops for v in region.ops[i].results)]
    values = {v: short for short, v in enumerate(kept)}
    short = Region(
        tuple(range(len(inputs))),
        tuple([
            replace(op, operands=tuple([values[left.stand_in(v, i)] for v in op.operands]),
                    results=tuple([values[v] for v in op.results]))
            for i in ops for op in (region.ops[i],)
        ]),
        tuple([values[region.outputs[k]] for k in outputs]),
        tuple([region.types[v] for v in kept]),
    )

    def some(items: tuple[T, ...], which: list[int]) -> tuple[T, ...]:
        return tuple([items[k] for k in which]) if items else ()

    smaller = replace(
        program, region=short, text=None,
        input_shardings=some(program.input_shardings, inputs), output_shardings=some(program.output_shardings, outputs),
        input_names=some(program.input_names, inputs), output_names=some(program.output_names, outputs),
    )
    copies = [left.copy(layering.layer[i]) for i in ops]
    in_layer = [layering.layer[i] >= 0 for i in ops]
    cut, seams = _cut(short, copies, in_layer)
    return Short(program, layering, first, last - first + 1, smaller, cut, values, _copy_of(short, copies), seams)


class _Left:
    """Which layers are left out, and what stands for their values."""

    def __init__(self, program: Program, layering: Layering, first: int, last: int):
        self.region, self.layering = program.region, layering
        self.first, self.last = first, last
        self.maker = {v: i for i, op in enumerate(program.region.ops) for v in op.results}

    def out(self, layer: int) -> bool:
        return self.first + KEPT <= layer <= self.last

    def copy(self, layer: int) -> int:
        return layer - self.first if self.first <= layer < self.first + KEPT else -1

    def layer_of(self, v: int) -> int:
        return self.layering.layer[self.maker[v]] if v in self.maker else -1

    def stand_in(self, v: int, user: int) -> int:
        """What a kept op takes for an operand: for one that is left out the same value of the layer next to its own.
        """
        if not self.out(self.layer_of(v)):
            return v
        made = self.maker[v]
        after = self.layering.layer[user] > self.last
        place = self.layering.place[made]
        instead = self.layering.at[self.first + KEPT - 1 if after else self.last + 1][place]
        return self.region.ops[instead].results[self.region.ops[made].results.index(v)]


def _copy_of(region: Region, copies: list[int]) -> list[int]:
    """Per value the copy that computes it, or for an input the only one that uses it; else -1."""
    out = [-1] * len(region.types)
    users: dict[int, set[int]] = {}
    for op, copy in zip(region.ops, copies, strict=True):
        for v in op.operands:
            users.setdefault(v, set()).add(copy)
        for v in op.results:
            out[v] = copy
    for v in region.inputs:
        if v not in region.outputs and len(users.get(v, ())) == 1:
            (out[v],) = users[v]
    return out


def _cut(region: Region, copies: list[int], in_layer: list[bool]) -> tuple[Region, list[tuple[int, int]]]:
    """The region with an input for each value that enters or leaves a copy, and these values with their users' copies.

    What lies outside all layers is the same for every layer, and stays.
    """
    maker = {v: i for i, op in enumerate(region.ops) for v in op.results}
    seams: dict[tuple[int, int], int] = {}
    count = len(region.inputs)

    def operand(v: int, copy: int) -> tuple[int, int] | int:
        made = maker.get(v)
        if made is None or copies[made] == copy or (copy >= 0 and not in_layer[made]):
            return v
        seams.setdefault((v, copy), count + len(seams))
        return v, copy

    taken = [[operand(v, copy) for v in op.operands] for op, copy in zip(region.ops, copies, strict=True)]
    more = len(seams)

    def number(v: tuple[int, int] | int) -> int:
        if isinstance(v, tuple):
            return seams[v]
        return v if v < count else v + more

    ops = [
        replace(op, operands=tuple(map(number, operands)), results=tuple(map(number, op.results)))
        for op, operands in zip(region.ops, taken, strict=True)
    ]
    types = (*region.types[:count], *(region.types[v] for v, _ in seams), *region.types[count:])
    cut = Region(tuple(range(count + more)), tuple(ops), tuple(map(number, region.outputs)), types)
    return cut, list(seams)
