"""Assignment of ops to the layers of a program that repeats layers.

The forward ops of a layer, their transposes and its weight updates are in different runs, one of which goes through the
layers backwards. Data flow between the ops says which of their blocks belong to one layer.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from eggshard.planner.layers.runs import Run, Stretch, stretches
from eggshard.program.program import Region

#: The least number of layers for planning by layers (`python -m bench layers`).
LEAST = 4
#: The most blocks by which a run may differ from the number of layers, since the first and the last may differ.
SLACK = 2
#: The most ops that may use an input for it to belong to their layer.
FEW = 16
#: The number of blocks of a run that are examined to find where blocks begin.
SAMPLE = 8
#: The part of all ops below which nothing is told from a stretch of them.
LITTLE = 0.01
#: The number of equal layers of a row that are kept in the short form.
KEPT = 2
#: The number of ways of seeing layers that are compared, of which one may see two layers as one, or a part of each.
WAYS = 4

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


class LayerSearch:
    """Looks for layers in a region. exact: per op a number, equal for equal ops."""

    def __init__(self, region: Region):
        types = region.types
        signatures = [
            (op.name, tuple([types[v] for v in op.operands]), tuple([types[v] for v in op.results]))
            for op in region.ops
        ]
        self.alike = _numbered(signatures)
        self.exact = _numbered(
            [(kind, op.attributes, op.regions, op.shardings) for kind, op in zip(self.alike, region.ops, strict=True)])
        maker = {v: i for i, op in enumerate(region.ops) for v in op.results}
        users: dict[int, list[int]] = {}
        for i, op in enumerate(region.ops):
            for v in op.operands:
                users.setdefault(v, []).append(i)
        # What takes one weight belongs to one layer; a value is one however many ops of another layer take it.
        edges = [pair for v, found in users.items() if v in maker or len(found) <= FEW
                 for pair in itertools.pairwise([maker[v], *found] if v in maker else found)]
        self.edges = np.array(edges, np.int64).reshape(-1, 2)

    def ways(self, taken: np.ndarray) -> list[tuple[int, list[Stretch]]]:
        """Ways of seeing layers in the ops that are not taken, of different numbers of them: how many ops a short form
        would spare at most, and the stretches; those first that would spare most.

        Ops are compared by names and types alone. What differs between layers in anything else, as slices of one array
        at several places do, is of none.
        """
        kinds = np.where(taken, -1 - np.arange(len(taken)), self.alike)
        return _by_count(stretches(kinds.tolist(), LEAST), len(kinds))

    def layering(self, found: list[Stretch]) -> Layering:
        """The layers of the longest stretch, and of those that belong to the same ones."""
        search = _Layers(self.edges, len(self.exact))
        added: list[Stretch] = []
        waiting = list(found)
        while waiting:
            # The one that has most to do with those before it: their layers say which its own are.
            stretch = max(waiting, key=lambda s: (search.links(s), s.stop - s.start, -s.start))
            waiting.remove(stretch)
            if search.add(stretch):
                added.append(stretch)
                # Where runs are cut may have to change for the new one, before others come to agree with what is wrong.
                for known in added:
                    search.add(known)
        return search.result(self.exact)


def _numbered(kinds: Sequence[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(kind, len(numbers)) for kind in kinds]


def _by_count(found: list[Stretch], size: int) -> list[tuple[int, list[Stretch]]]:
    """Disjoint stretches of about as many blocks each: those first of which the most ops are not kept, and how many."""
    found = [s for s in found if s.stop - s.start >= LITTLE * size]
    ways: dict[tuple[Stretch, ...], tuple[int, int]] = {}
    for count in sorted({_blocks(s) for s in found}):
        chosen: list[Stretch] = []
        for s in found:
            # What repeats with a period repeats with twice that.
            s = s._replace(period=s.period * max(1, round(_blocks(s) / count)))
            if abs(_blocks(s) - count) <= SLACK:
                others = [_longer(_beside(o, [s]), o) for o in chosen]
                rest = _beside(s, others)
                if _blocks(rest) >= max(LEAST, count - SLACK):
                    chosen = [*others, rest]
        ways[tuple(chosen)] = sum(s.stop - s.start - KEPT * s.period for s in chosen), count
    return [(ways[way][0], list(way)) for way in sorted(ways, key=ways.__getitem__, reverse=True)[:WAYS]]


def _beside(s: Stretch, others: Sequence[Stretch]) -> Stretch:
    """The longest part of a stretch that has nothing of others, which repeat as it does where one ends."""
    inside = sorted((o.start, o.stop) for o in others if o.start < s.stop and s.start < o.stop)
    gaps = zip([s.start, *(stop for _, stop in inside)], [*(start for start, _ in inside), s.stop], strict=True)
    start, stop = max(gaps, key=lambda gap: gap[1] - gap[0])
    return Stretch(start, stop, s.period)


def _longer(part: Stretch, whole: Stretch) -> Stretch:
    """A part of a stretch, if it has as many blocks as the whole."""
    return part if _blocks(part) == _blocks(whole) else whole


def _blocks(s: Stretch) -> int:
    return (s.stop - s.start) // s.period


class _Layers:
    """Runs put into layers one after the other."""

    def __init__(self, edges: np.ndarray, size: int):
        self.size, self.edges = size, edges
        self.known = np.zeros(size, bool)
        self.layer = np.zeros(size, np.int64)
        self.runs: dict[Stretch, tuple[Run, np.ndarray]] = {}

    def links(self, stretch: Stretch) -> int:
        """How many values pass between a stretch and the layers known so far."""
        inside = (self.edges >= stretch.start) & (self.edges < stretch.stop)
        return int((inside & self.known[self.edges[:, ::-1]]).sum())

    def add(self, stretch: Stretch) -> bool:
        """Cut a stretch into blocks, and number them by layers, so that fewest values pass from one to another.

        Once more for a stretch that was there before: by what is known now of the others. False, and nothing is added,
        where its blocks have too little to do with the layers known: a decoder has layers beside those of its encoder.
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
        best: tuple[int, int, int, int, int] | None = None
        for run in stretch.runs():
            own_blocks = (own - run.start) // run.period
            cut = int((own_blocks[:, 0] != own_blocks[:, 1]).sum())
            blocks = (mine - run.start) // run.period
            for sign in (1, -1):
                offset, agreeing = _commonest(others - sign * blocks)
                score = (agreeing - cut, -run.start, sign, offset, agreeing)
                if best is None or score > best:
                    best = score
                if not self.runs:
                    break
        assert best is not None
        _, start, sign, offset, agreeing = best
        run = next(r for r in stretch.runs() if r.start == -start)
        if self.runs and 2 * agreeing < min(run.blocks, SAMPLE):
            return False
        numbers = offset + sign * np.arange(run.blocks)
        self.runs[stretch] = run, numbers
        self.known[run.start : run.stop] = True
        self.layer[run.start : run.stop] = np.repeat(numbers, run.period)
        return True

    def result(self, exact: Sequence[int]) -> Layering:
        """The layers that most ops are in, of the runs that go through all of these.

        Of places at which no op is equal in most layers, ops are of none.
        """
        first, last = self._span()
        layer, place = [-1] * self.size, [(-1, -1)] * self.size
        at: list[dict[Place, int]] = [{} for _ in range(first, last + 1)]
        for r, (run, numbers) in enumerate(self.runs.values()):
            if not numbers.min() <= first <= last <= numbers.max():
                continue
            blocks = [(block, n - first) for block, n in enumerate(numbers.tolist()) if first <= n <= last]
            for k in range(run.period):
                ops = [(run.start + block * run.period + k, n) for block, n in blocks]
                if 2 * Counter(exact[i] for i, _ in ops).most_common(1)[0][1] <= len(ops):
                    continue
                for op, n in ops:
                    layer[op], place[op] = n, (r, k)
                    at[n][r, k] = op
        return Layering(layer, place, at)

    def _span(self) -> tuple[int, int]:
        """The first and the last of the layers of which the most ops are not kept."""
        spans = [(int(numbers.min()), int(numbers.max()), run.period) for run, numbers in self.runs.values()]

        def spared(span: tuple[int, int]) -> int:
            first, last = span
            return (last + 1 - first - KEPT) * sum(period for a, b, period in spans if a <= first and last <= b)

        return max(((a, b) for a, _, _ in spans for _, b, _ in spans if a <= b), key=lambda span: (spared(span), span))


def _commonest(values: np.ndarray) -> tuple[int, int]:
    """The commonest value, the least of several, and how often it occurs; (0, 0) of none."""
    if not len(values):
        return 0, 0
    found, counts = np.unique(values, return_counts=True)
    i = int(counts.argmax())
    return int(found[i]), int(counts[i])
