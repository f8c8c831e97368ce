"""Redistribution of rows along a dimension: every device gets exactly the range of rows that it needs.

Rows are numbered by *coordinates* of the tensor, devices by their position along the dimension's axes. A device holds
consecutive coordinates in its buffer and needs consecutive ones. It keeps what it has; all else comes in rounds of
collective-permutes, whose slabs (halo regions) are as wide as the longest run among them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from eggshard.placement.edge_colouring import colour_edges

Ints = tuple[int, ...]


class Held(NamedTuple):
    """What devices hold: row r of the buffer of device d is coordinate ``starts[d] + r``.

    Of the ``size`` rows of a buffer those with coordinates in ``lows[d]`` up to ``highs[d]`` are data. No coordinate is
    held twice.
    """

    starts: Ints
    size: int
    lows: Ints
    highs: Ints


class Wanted(NamedTuple):
    """What devices need: row r of the new buffer of device d is coordinate ``starts[d] + r``, of ``size`` rows."""

    starts: Ints
    size: int


class Piece(NamedTuple):
    """A slab of rows for every device, from its own buffer or from another's.

    pairs: (sender, receiver), which may be one device; empty: everyone keeps their own. width: rows of a slab. sends:
    per device where the slab that it gives begins in its buffer. places: per device where the slab that it takes
    begins in its new buffer, which may be outside of it. lows, highs: per device the rows of the new buffer that are
    taken from the slab.
    """

    pairs: tuple[tuple[int, int], ...]
    width: int
    sends: Ints
    places: Ints
    lows: Ints
    highs: Ints

    @property
    def takers(self) -> list[int]:
        """The devices that take something."""
        return [d for d, (low, high) in enumerate(zip(self.lows, self.highs, strict=True)) if low < high]

    @property
    def place(self) -> int | None:
        """Where the slab begins in the new buffer, if that is the same for everyone who takes some of it."""
        found = {self.places[d] for d in self.takers}
        return found.pop() if len(found) == 1 else None


class _Run(NamedTuple):
    """Coordinates ``low`` up to ``high`` that one device needs from another, where they begin at ``row``."""

    sender: int
    receiver: int
    low: int
    high: int
    row: int


def redistribution(held: Sequence[Held], wanted: Wanted) -> list[Piece]:
    """What everyone keeps (if anyone does), then the rounds. Coordinates that no device holds are in no piece.

    held: what one buffer holds, as what it is taken: a tensor that is joined with itself has its rows at several
    coordinates, and a round serves them together.
    """
    size, count = held[0].size, len(wanted.starts)
    pieces, runs = list[Piece](), list[_Run]()
    for each in held:
        found = _runs(each, wanted)
        kept = [run for run in found if run.sender == run.receiver]
        runs += [run for run in found if run.sender != run.receiver]
        pieces += [_piece(size, wanted, kept, size, own=True)] if kept else []
    return pieces + min(
        ([_piece(size, wanted, group, max(r.high - r.low for r in group)) for group in groups] for groups in (
            _by_distance(runs, count), _by_colour(runs, count))),
        key=lambda rounds: (sum(piece.width for piece in rounds), len(rounds)),
    )


def mirrored(held: Held, wanted: Wanted) -> list[Piece]:
    """Plan the rounds that redistribute a reversed dimension, between devices at (nearly) mirrored positions.

    What a device keeps is also part of a round, so that rounds along several dimensions can be combined.
    """
    groups: dict[int, list[_Run]] = {}
    for run in _runs(held, wanted):
        groups.setdefault(run.sender + run.receiver, []).append(run)
    return [_piece(held.size, wanted, runs, max(r.high - r.low for r in runs)) for runs in groups.values()]


def _runs(held: Held, wanted: Wanted) -> list[_Run]:
    runs = []
    for d, first in enumerate(wanted.starts):
        last = first + wanted.size
        for e in _holders(held, first, last):
            low = max(first, held.lows[e])
            runs.append(_Run(e, d, low, min(last, held.highs[e]), low - held.starts[e]))
    return runs


def _holders(held: Held, first: int, last: int) -> list[int]:
    """The devices that hold some of these coordinates."""
    order = sorted((d for d in range(len(held.starts)) if held.lows[d] < held.highs[d]), key=held.lows.__getitem__)
    begin = bisect_right(order, first, key=held.highs.__getitem__)
    end = bisect_left(order, last, key=held.lows.__getitem__)
    return order[begin:end]


def _by_distance(runs: list[_Run], count: int) -> list[list[_Run]]:
    """Groups of runs between devices at one distance, around the end: no device sends or takes twice in a group."""
    half = count // 2
    groups: dict[tuple[int, int], list[_Run]] = {}
    met: dict[tuple[int, int], int] = {}
    for run in runs:
        again = met[run.sender, run.receiver] = met.get((run.sender, run.receiver), -1) + 1
        distance = (run.sender - run.receiver + half) % count - half
        groups.setdefault((distance, again), []).append(run)
    return [groups[key] for key in sorted(groups)]


def _by_colour(runs: list[_Run], count: int) -> list[list[_Run]]:
    groups: dict[int, list[_Run]] = {}
    colours = colour_edges([r.sender for r in runs], [r.receiver for r in runs], count) if runs else ()
    for run, colour in zip(runs, colours, strict=True):
        groups.setdefault(int(colour), []).append(run)
    return list(groups.values())


def _piece(size: int, wanted: Wanted, runs: list[_Run], width: int, own: bool = False) -> Piece:
    """The slabs of a buffer of that size that carry these runs. Devices without one have the commonest numbers, so that
    all may be equal."""
    count = len(wanted.starts)
    longest = max(runs, key=lambda r: r.high - r.low)
    usual = 0 if own else longest.row
    sends, lows, highs = [min(usual, size - width)] * count, [0] * count, [0] * count
    places: dict[int, int] = {}
    for run in runs:
        fits = usual <= run.row and run.row + run.high - run.low <= usual + width <= size
        send = usual if fits else min(run.row, size - width)
        sends[run.sender] = send
        places[run.receiver] = run.low - run.row + send - wanted.starts[run.receiver]
        lows[run.receiver] = run.low - wanted.starts[run.receiver]
        highs[run.receiver] = run.high - wanted.starts[run.receiver]
    common = places[longest.receiver]
    return Piece(
        () if own else tuple(sorted((r.sender, r.receiver) for r in runs)), width, tuple(sends),
        tuple(places.get(d, common) for d in range(count)), tuple(lows), tuple(highs),
    )
