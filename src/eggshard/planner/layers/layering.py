"""Assignment of ops to the layers of a program that repeats layers.

The forward ops of a layer, their transposes and its weight updates are in different runs, one of which goes through the
layers backwards. Data flow between the ops says which of their blocks belong to one layer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from eggshard.planner.layers.runs import Run, Stretch, stretches
from eggshard.program.program import Region

#: The least number of layers for planning by layers (`python -m bench layers`).
LEAST = 5
#: The most blocks by which a run may differ from the number of layers, since the first and the last may differ.
SLACK = 2
#: The most ops that may use an input for it to belong to their layer.
FEW = 16
#: The number of blocks of a run that are examined to find where blocks begin.
SAMPLE = 8

#: Where an op stands in its layer: the run, and its number in a block of that.
Place = tuple[int, int]


@dataclass(frozen=True)
class Layering:
    """layer[i]: the layer of op i, or -1; place[i]: where in it; at[layer][place]: the op; ``count`` layers."""

    layer: list[int]
    place: list[Place]
    at: list[dict[Place, int]]

    @property
    def count(self) -> int:
        return len(self.at)


def find_layers(region: Region) -> Layering | None:
    """The layers of a region; None where too little of it repeats."""
    kinds: dict[object, int] = {}
    types = region.types
    ids = [
        kinds.setdefault((op.name, op.attributes, op.regions, op.shardings, tuple([types[v] for v in op.operands]),
                          tuple([types[v] for v in op.results])), len(kinds))
        for op in region.ops
    ]
    found = _of_one_count(stretches(ids, LEAST))
    if not found:
        return None
    search = _Layers(region)
    added: list[Stretch] = []
    while len(added) < len(found):
        # The one that has most to do with those before it: their layers say which its own are.
        stretch = max((s for s in found if s not in added), key=lambda s: (search.links(s), s.stop - s.start, -s.start))
        added.append(stretch)
        # Where runs are cut may have to change for the new one, before others come to agree with what is wrong.
        for known in (stretch, *added):
            search.add(known)
    return search.result()


def _of_one_count(found: list[Stretch]) -> list[Stretch]:
    """Disjoint stretches of about as many blocks each, those that cover most ops; the most blocks."""
    best: list[Stretch] = []
    most = 0
    for count in sorted({(s.stop - s.start) // s.period for s in found}):
        chosen: list[Stretch] = []
        for s in found:
            apart = all(s.stop <= other.start or other.stop <= s.start for other in chosen)
            if apart and abs((s.stop - s.start) // s.period - count) <= SLACK:
                chosen.append(s)
        covered = sum(s.stop - s.start for s in chosen)
        if covered >= most:
            best, most = chosen, covered
    return best


class _Layers:
    """Runs put into layers one after the other."""

    def __init__(self, region: Region):
        maker = {v: i for i, op in enumerate(region.ops) for v in op.results}
        users: dict[int, list[int]] = {}
        for i, op in enumerate(region.ops):
            for v in op.operands:
                users.setdefault(v, []).append(i)
        # What takes one weight belongs to one layer; a value is one however many ops of another layer take it.
        edges = [pair for v, found in users.items() if v in maker or len(found) <= FEW
                 for pair in itertools.pairwise([maker[v], *found] if v in maker else found)]
        self.size = len(region.ops)
        self.edges = np.array(edges, np.int64).reshape(-1, 2)
        self.known = np.zeros(self.size, bool)
        self.layer = np.zeros(self.size, np.int64)
        self.runs: dict[Stretch, tuple[Run, np.ndarray]] = {}

    def links(self, stretch: Stretch) -> int:
        """How many values pass between a stretch and the layers known so far."""
        inside = (self.edges >= stretch.start) & (self.edges < stretch.stop)
        return int((inside & self.known[self.edges[:, ::-1]]).sum())

    def add(self, stretch: Stretch) -> None:
        """Cut a stretch into blocks, and number them by layers, so that fewest values pass from one to another.

        Once more for a stretch that was there before: by what is known now of the others.
        """
        self.known[stretch.start : stretch.stop] = False
        self.runs.pop(stretch, None)
        source, target = self.edges.T
        stop = min(stretch.stop, stretch.start + SAMPLE * stretch.period)
        inside = (self.edges >= stretch.start) & (self.edges < stop)
        own = self.edges[inside.all(axis=1)]
        out, into = inside[:, 0] & self.known[target], inside[:, 1] & self.known[source]
        mine = np.concatenate([source[out], target[into]])
        others = np.concatenate([self.layer[target[out]], self.layer[source[into]]])
        best: tuple[int, int, int, int] | None = None
        for run in stretch.runs():
            own_blocks = (own - run.start) // run.period
            cut = int((own_blocks[:, 0] != own_blocks[:, 1]).sum())
            blocks = (mine - run.start) // run.period
            for sign in (1, -1):
                offset, agreeing = _commonest(others - sign * blocks)
                score = (agreeing - cut, -run.start, sign, offset)
                if best is None or score > best:
                    best = score
                if not self.runs:
                    break
        assert best is not None
        _, start, sign, offset = best
        run = next(r for r in stretch.runs() if r.start == -start)
        numbers = offset + sign * np.arange(run.blocks)
        self.runs[stretch] = run, numbers
        self.known[run.start : run.stop] = True
        self.layer[run.start : run.stop] = np.repeat(numbers, run.period)

    def result(self) -> Layering:
        first = min(int(numbers.min()) for _, numbers in self.runs.values())
        count = 1 + max(int(numbers.max()) for _, numbers in self.runs.values()) - first
        layer, place = [-1] * self.size, [(-1, -1)] * self.size
        at: list[dict[Place, int]] = [{} for _ in range(count)]
        for r, (run, numbers) in enumerate(self.runs.values()):
            for block, number in enumerate((numbers - first).tolist()):
                for k in range(run.period):
                    op = run.start + block * run.period + k
                    layer[op], place[op] = number, (r, k)
                    at[number][r, k] = op
        return Layering(layer, place, at)


def _commonest(values: np.ndarray) -> tuple[int, int]:
    """The commonest value, the least of several, and how often it occurs; (0, 0) of none."""
    if not len(values):
        return 0, 0
    found, counts = np.unique(values, return_counts=True)
    i = int(counts.argmax())
    return int(found[i]), int(counts[i])
