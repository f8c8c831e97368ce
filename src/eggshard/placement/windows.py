"""Windows (tiles with halos) along one dimension: their algebra, and the messages that turn one window into another.

All functions treat one dimension of global size n that ``count`` devices share, numbered along its axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from eggshard.ops.windowing import Reach
from eggshard.placement.edge_colouring import colour_edges
from eggshard.placement.slabs import Slab, SlabExchange, repetition
from eggshard.program.placement import Dim


def reached(dim: Dim, reach: Reach, count: int, size: int, operand_size: int) -> Dim:
    """What of an operand a result's shards need along one dimension, of these sizes in result and operand.

    Where the reach is mirrored, the device at position d needs what the one at ``count - 1 - d`` holds of it. The
    reach's divisor must divide its scale times the tile. Of indices modulo the size those are needed that the indices
    specified of the result reach.
    """
    low, high = dim.low, dim.tile + dim.high
    if reach.mirrored:  # minus the indices of the device at d, by the number of the other one
        low, high = (count - 1) * -dim.tile + 1 - high, (count - 1) * -dim.tile + 1 - low
    tile, rest = divmod(reach.scale * dim.tile, reach.divisor)
    assert not rest, "tiles that begin between elements"
    start, stop = reach.elements(low, high)
    wrapped = None
    if reach.wrapped or dim.wrapped:
        first, last = dim.specified(size)
        wrapped = _wrapped(reach.elements(*((1 - last, 1 - first) if reach.mirrored else (first, last))), operand_size)
    return Dim(dim.axes, tile, start, stop - tile, wrapped)


def bounding_window(windows: Iterable[Dim], n: int) -> Dim:
    """The narrowest window of one grid that contains all of these, which have one tile and the same axes."""
    first, *rest = windows
    low, high, (start, stop) = first.low, first.high, first.specified(n)
    for dim in rest:
        assert (dim.axes, dim.tile) == (first.axes, first.tile), "windows of different grids"
        low, high = min(low, dim.low), max(high, dim.high)
        start, stop = min(start, dim.specified(n)[0]), max(stop, dim.specified(n)[1])
    return Dim(first.axes, first.tile, low, high, _wrapped((start, stop), n))


def _wrapped(specified: tuple[int, int], n: int) -> tuple[int, int] | None:
    """A range of indices as windows name it: what lies just in the tensor needs no name."""
    return None if specified == (0, n) else specified


def inside(n: int, count: int, narrow: Dim, wide: Dim) -> bool:
    """Whether every device that holds ``wide`` holds what it needs for ``narrow``."""
    found = slab_exchange(n, count, wide, narrow)
    return found is not None and not found.rounds


def trimmed(n: int, count: int, dim: Dim) -> Dim:
    """The narrowest window of the same grid in which every device holds what of a small tensor it holds in this one.

    Of a tensor that fits into a tile few devices hold any of it, and at places that a window for all of them would
    not need. Windows of larger tensors, wrapped ones, and those that hold nothing, are left as they are.
    """
    if not dim.axes or dim.wrapped is not None or n > dim.tile:
        return dim
    held = [(d, s) for d in range(count) for s in segments(n, dim, d)]
    low = min((s.first - d * dim.tile for d, s in held), default=dim.low)
    high = max((s.first + s.length - (d + 1) * dim.tile for d, s in held), default=dim.high)
    return dim._replace(low=low, high=high)


class Segment(NamedTuple):
    """Consecutive indices of the tensor in a shard: where they begin in the shard and in the tensor, and how many."""

    position: int
    first: int
    length: int


def segments(n: int, dim: Dim, device: int) -> list[Segment]:
    """What a device holds of the tensor, in local order; what it holds outside the tensor is left out."""
    start, (least, most) = device * dim.tile + dim.low, dim.specified(n)
    here, end = max(least, start), min(most, start + dim.size)
    out = []
    while here < end:
        index = here % n
        length = min(end - here, n - index)
        out.append(Segment(here - start, index, length))
        here += length
    return out


@lru_cache(maxsize=1024)
def _all_segments(n: int, dim: Dim, count: int) -> list[list[Segment]]:
    """What each of so many devices holds."""
    return [segments(n, dim, d) for d in range(count)]


def covers(n: int, count: int, dim: Dim) -> bool:
    """Whether the devices together hold every index."""
    held = sorted((s.first, s.first + s.length) for d in range(count) for s in segments(n, dim, d))
    reach = 0
    for low, high in held:
        if low > reach:
            return False
        reach = max(reach, high)
    return reach >= n


@lru_cache(maxsize=65536)
def slab_exchange(n: int, count: int, source: Dim, target: Dim) -> SlabExchange | None:
    """The messages that turn shards with window ``source`` into shards with window ``target`` over the same axes.

    Every device keeps what it has and needs; each other run of needed indices comes from the nearest device that holds
    it. A round is a collective-permute of equal slabs: by distance between sender and receiver (a halo: one round a
    direction), or by an edge colouring of the bipartite graph of runs, whichever is fewer indices. Devices that do
    alike are looked at once where rounds by distance are the fewest possible. None where some needed index is held by
    no one, or a slab would carry unspecified data over needed ones.
    """
    short = repetition(n, count, source, target)
    if short is not None:
        some = count - short.extra
        held, runs = _needed(n - short.extra * short.tile, some, short.shortened(source), short.shortened(target))
        if runs is None:
            return None
        rounds = _by_distance(some, runs, held)
        if rounds is not None and _least(runs, rounds):
            return SlabExchange(short.stretched(rounds), (source.low - target.low,) * count)
    held, runs = _needed(n, count, source, target)
    if runs is None:
        return None
    plans = [_by_distance(count, runs, held)]
    if plans[0] is None or not _least(runs, plans[0]):
        plans.append(_by_colour(count, runs, held))
    offsets = tuple(d * (source.tile - target.tile) + source.low - target.low for d in range(count))
    found = [SlabExchange(rounds, offsets) for rounds in plans if rounds is not None]
    return min(found, key=lambda plan: (plan.width, len(plan.rounds)), default=None)


def _needed(n: int, count: int, source: Dim, target: Dim) -> tuple[_Held, list[_Run] | None]:
    """What devices hold before and after an exchange, and the runs that it has to send, as `_missing_runs`."""
    held = _Held(_all_segments(n, source, count), _all_segments(n, target, count), (source.size, target.size))
    return held, _missing_runs(n, count, source, target, held)


def _by_distance(count: int, runs: list[_Run], held: _Held) -> tuple[Slab, ...] | None:
    """Rounds by distance between sender and receiver."""
    groups: dict[object, list[_Run]] = {}
    seen: Counter[object] = Counter()
    for run in runs:
        key = (run.receiver - run.sender, run.above)
        groups.setdefault((key, seen[key, run.receiver]), []).append(run)
        seen[key, run.receiver] += 1
    return _rounds(count, list(groups.values()), held)


def _by_colour(count: int, runs: list[_Run], held: _Held) -> tuple[Slab, ...] | None:
    """Rounds by an edge colouring of the graph of runs."""
    groups: dict[object, list[_Run]] = {}
    colours = colour_edges([r.sender for r in runs], [r.receiver for r in runs], count)
    for run, colour in zip(runs, colours.tolist(), strict=True):
        groups.setdefault(colour, []).append(run)
    return _rounds(count, list(groups.values()), held)


def _least(runs: list[_Run], rounds: tuple[Slab, ...]) -> bool:
    """Whether no rounds are fewer indices or messages: some device sends or receives as many one after the other."""
    indices: Counter[tuple[str, int]] = Counter()
    messages: Counter[tuple[str, int]] = Counter()
    for run in runs:
        for end in (("from", run.sender), ("to", run.receiver)):
            indices[end] += run.length
            messages[end] += 1
    width = sum(slab.width for slab in rounds)
    return width == max(indices.values(), default=0) and len(rounds) == max(messages.values(), default=0)


class _Held(NamedTuple):
    """What devices hold of the tensor before and after an exchange, and the sizes of their shards."""

    sent: list[list[Segment]]
    needed: list[list[Segment]]
    sizes: tuple[int, int]


class _Run(NamedTuple):
    """Consecutive indices that a device needs from another: where they begin in either shard, and how many.

    ``above``: whether they lie above what the receiver keeps.
    """

    sender: int
    receiver: int
    source_start: int
    target_start: int
    length: int
    above: bool


def _missing_runs(n: int, count: int, source: Dim, target: Dim, held: _Held) -> list[_Run] | None:
    """What each device needs and does not have, by runs of one sender; None if no device has some of it.

    A device has an index where its old shard, laid over the new one, has it at the same place.
    """
    runs: list[_Run] = []
    for d in range(count):
        shift = d * (source.tile - target.tile) + source.low - target.low
        own = [(s.position + shift, s.position + shift + s.length) for s in held.sent[d]]
        for needed in held.needed[d]:
            position, end = needed.position, needed.position + needed.length
            while position < end:
                mine = next((high for low, high in own if low <= position < high), None)
                if mine is not None:
                    position = mine
                    continue
                stop = min([end, *(low for low, _ in own if low > position)])
                found = _sender(n, count, source, held, d, needed.first + position - needed.position)
                if found is None:
                    return None
                sender, place, length = found
                length = min(length, stop - position)
                above = any(high <= position for _, high in own)
                runs.append(_Run(sender, d, place, position, length, above))
                position += length
    return runs


def _sender(
    n: int, count: int, source: Dim, held: _Held, receiver: int, index: int
) -> tuple[int, int, int] | None:
    """The device nearest to the receiver that holds an index: (device, position there, indices from it on)."""
    found, (least, most) = [], source.specified(n)
    for image in range(least + (index - least) % n, most, n):
        first = -((source.tile + source.high - 1 - image) // source.tile) if source.tile else 0
        last = (image - source.low) // source.tile if source.tile else 0
        for d in range(max(0, first), min(count - 1, last) + 1):
            for s in held.sent[d]:
                if s.first <= index < s.first + s.length:
                    skipped = index - s.first
                    found.append((abs(d - receiver), d, s.position + skipped, s.length - skipped))
    return min(found)[1:] if found else None


class _Round(NamedTuple):
    """Runs that share a round, and how long before each of them a slab of this width begins."""

    width: int
    runs: list[_Run]
    shifts: list[int]

    def joins(self, other: _Round) -> bool:
        """Whether slabs are of one width, and no device sends or receives in both."""
        return self.width == other.width and all(
            {run[end] for run in self.runs}.isdisjoint(run[end] for run in other.runs) for end in (0, 1))


def _rounds(count: int, groups: list[list[_Run]], held: _Held) -> tuple[Slab, ...] | None:
    """A round for each group of runs; groups without a device in common on either side may share one.

    Runs that cannot be as long as the longest of their group go in a round of their own.
    """
    rounds: list[_Round] = []
    waiting = sorted(groups, key=lambda runs: max(run.length for run in runs))
    while waiting:
        group = waiting.pop()
        longest = max(run.length for run in group)
        shifts = _shifts(group, longest, held)
        if shifts is None:
            shorter = [r for r in group if r.length < longest]
            if not shorter:
                return None
            waiting += [shorter, [r for r in group if r.length == longest]]
            continue
        new = _Round(longest, group, shifts)
        shared = next((old for old in rounds if old.joins(new)), None)
        if shared is None:
            rounds.append(new)
        else:
            shared.runs.extend(group)
            shared.shifts.extend(shifts)
    return tuple(_slab(count, r) for r in rounds)


def _shifts(runs: list[_Run], width: int, held: _Held) -> list[int] | None:
    """How long before each run a slab of this width begins; None where one cannot be lengthened as much.

    What a lengthened slab carries besides its run must be the same tensor elements, or fall where nothing is needed.
    """
    out = []
    for run in runs:
        most = min(run.source_start, run.target_start, width - run.length)
        least = max(0, run.source_start + width - held.sizes[0], run.target_start + width - held.sizes[1])
        shift = next((s for s in range(least, most + 1) if _harmless(run, s, width, held)), None)
        if shift is None:
            return None
        out.append(shift)
    return out


def _slab(count: int, shared: _Round) -> Slab:
    """A round as what its devices send."""
    source, target = [0] * count, [0] * count
    for run, shift in zip(shared.runs, shared.shifts, strict=True):
        source[run.sender] = run.source_start - shift
        target[run.receiver] = run.target_start - shift
    pairs = tuple(sorted((run.sender, run.receiver) for run in shared.runs))
    return Slab(pairs, shared.width, tuple(source), tuple(target))


def _harmless(run: _Run, shift: int, width: int, held: _Held) -> bool:
    """Whether a slab that begins ``shift`` before its run carries nothing wrong to where something is needed."""
    if width == run.length:
        return True
    first, second = run.source_start - shift, run.target_start - shift
    sent = held.sent[run.sender]
    for needed in held.needed[run.receiver]:
        low, high = max(needed.position, second), min(needed.position + needed.length, second + width)
        while low < high:
            index, place = needed.first + low - needed.position, first + low - second
            same = [s for s in sent if s.position <= place < s.position + s.length
                    and s.first + place - s.position == index]
            if not same:
                return False
            low += same[0].position + same[0].length - place
    return True
