"""Equal parts of a program: rows of layers that are equal op by op, whatever they take from elsewhere.

A program may have several rows: the layers of an encoder and of a decoder, the blocks of every stage of a network, the
experts of every mixture. Each row is of parts that follow one another in the order of their layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eggshard.planner.layers.layering import KEPT, Layering, LayerSearch, Place
from eggshard.program.program import Program

#: The part of all ops that a further row has to spare for it to be one.
WORTH = 0.05


@dataclass(frozen=True)
class Parts:
    """part[i]: the part of op i, or -1; place[i]: where in it; at[part][place]: the op; rows: parts of each row."""

    part: list[int]
    place: list[Place]
    at: list[dict[Place, int]] = field(default_factory=list)
    rows: list[range] = field(default_factory=list)

    def added(self, layering: Layering, rows: list[range]) -> Parts:
        """These parts, and rows of layers of ops that are of none of them."""
        part, place, at, all_ = list(self.part), list(self.place), list(self.at), list(self.rows)
        first = 1 + max((run for found in self.at for run, _ in found), default=-1)
        for row in rows:
            all_.append(range(len(at), len(at) + len(row)))
            for n in row:
                at.append({(first + run, k): i for (run, k), i in layering.at[n].items()})
                for there, i in at[-1].items():
                    part[i], place[i] = len(at) - 1, there
        return Parts(part, place, at, all_)

    def spared(self) -> int:
        """The number of ops that are not kept."""
        return sum((len(row) - KEPT) * len(self.at[row.start]) for row in self.rows)


def find_parts(program: Program) -> Parts | None:
    """The rows of equal parts; None where nothing repeats.

    Those that spare most first, then what is found among the ops of none.
    """
    count = len(program.region.ops)
    search = LayerSearch(program.region)
    found = Parts([-1] * count, [(-1, -1)] * count)
    while True:
        best = found
        for most, way in search.ways(np.array(found.part) >= 0):
            if found.spared() + most <= best.spared():
                break
            layering = search.layering(way)
            parts = found.added(layering, _Comparison(program, search.exact, layering).rows())
            best = max(best, parts, key=Parts.spared)
        if best.spared() - found.spared() <= WORTH * count:
            return found if found.rows else None
        found = best


class Flow:
    """What makes and uses the values of a program, and which inputs are a part's own."""

    def __init__(self, program: Program, part: list[int]):
        self.program, self.part = program, part
        region = program.region
        self.maker = {v: (i, k) for i, op in enumerate(region.ops) for k, v in enumerate(op.results)}
        self.sharding = dict(zip(region.inputs, program.input_shardings, strict=True))
        self.delivered: dict[int, list[object]] = {}
        for v, sharding in zip(region.outputs, program.output_shardings, strict=True):
            self.delivered.setdefault(v, []).append(sharding)
        self.users: dict[int, set[int]] = {}
        for i, op in enumerate(region.ops):
            for v in op.operands:
                self.users.setdefault(v, set()).add(part[i])

    def part_of(self, v: int) -> int:
        """The part that computes a value, or -1."""
        made = self.maker.get(v)
        return -1 if made is None else self.part[made[0]]

    def is_own(self, v: int, part: int) -> bool:
        """Whether a value is an input that nothing but a part uses."""
        return v in self.sharding and self.users[v] == {part} and v not in self.delivered


class _Comparison:
    """Which neighbouring layers are equal: op by op, in what they take of themselves and in what they deliver."""

    def __init__(self, program: Program, exact: list[int], layering: Layering):
        self.region, self.exact, self.layering = program.region, exact, layering
        self.flow = Flow(program, layering.layer)

    def rows(self) -> list[range]:
        """The rows of equal layers that are long enough to be shortened."""
        layers = self.layering.count
        shapes = [self._shape(n) for n in range(layers)]
        ends = [n for n in range(1, layers) if shapes[n] != shapes[n - 1] or not self._alike(n - 1, n)]
        rows = [range(a, b) for a, b in zip([0, *ends], [*ends, layers], strict=True)]
        return [row for row in rows if len(row) > KEPT + 1 and self.layering.at[row.start]]

    def _shape(self, n: int) -> list[object]:
        """What equal layers have in common, but for what they take from elsewhere."""
        ops, delivered = self.region.ops, self.flow.delivered
        return [
            (place, self.exact[i], [self._within(n, v) for v in ops[i].operands],
             [delivered.get(v) for v in ops[i].results])
            for place, i in sorted(self.layering.at[n].items())
        ]

    def _within(self, n: int, v: int) -> tuple[Place, int] | None:
        """Where in a layer an operand is computed; None for what comes from elsewhere."""
        made = self.flow.maker.get(v)
        if made is None or self.layering.layer[made[0]] != n:
            return None
        return self.layering.place[made[0]], made[1]

    def _alike(self, a: int, b: int) -> bool:
        """Whether what two equal layers take from elsewhere corresponds one to one, inputs of their own to such."""
        region, layering, flow = self.region, self.layering, self.flow
        there: dict[int, int] = {}
        back: dict[int, int] = {}
        for place, i in layering.at[a].items():
            pair = region.ops[i].operands, region.ops[layering.at[b][place]].operands
            for u, v in zip(*pair, strict=True):
                if self._within(a, u) is not None:
                    continue
                if there.setdefault(u, v) != v or back.setdefault(v, u) != u:
                    return False
                own = flow.is_own(u, a), flow.is_own(v, b)
                if own[0] != own[1] or (own[0] and flow.sharding[u] != flow.sharding[v]):
                    return False
        return True
