"""Redistribution of rows along a dimension: every device gets exactly the range of rows that it needs.

Rows are numbered by *coordinates* of the tensor, devices by their position along the dimension's axes. A device holds
consecutive coordinates in its buffer and needs consecutive ones. It keeps what it has; all else comes in rounds of
collective-permutes, whose slabs (halo regions) are as wide as the longest run among them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
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
    """Coordinates ``low`` up to ``high`` that one device needs from another."""

    sender: int
    receiver: int
    low: int
    high: int


def redistribution(held: Held, wanted: Wanted) -> list[Piece]:
    """What everyone keeps (if anyone does), then the rounds. Coordinates that no device holds are in no piece."""
    found = _runs(held, wanted)
    kept = [run for run in found if run.sender == run.receiver]
    runs = [run for run in found if run.sender != run.receiver]
    pieces = [_piece(held, wanted, kept, held.size, own=True)] if kept else []
    return pieces + min(
        ([_piece(held, wanted, group, max(r.high - r.low for r in group)) for group in groups] for groups in (
            _by_distance(runs), _by_colour(runs, len(held.starts)))),
        key=lambda rounds: (sum(piece.width for piece in rounds), len(rounds)),
    )


def mirrored(held: Held, wanted: Wanted) -> list[Piece]:
    """Plan the rounds that redistribute a reversed dimension, between devices at (nearly) mirrored positions.

    What a device keeps is also part of a round, so that rounds along several dimensions can be combined.
    """
    groups: dict[int, list[_Run]] = {}
    for run in _runs(held, wanted):
        groups.setdefault(run.sender + run.receiver, []).append(run)
    return [_piece(held, wanted, runs, max(r.high - r.low for r in runs)) for runs in groups.values()]


def _runs(held: Held, wanted: Wanted) -> list[_Run]:
    runs = []
    for d, first in enumerate(wanted.starts):
        last = first + wanted.size
        for e in _holders(held, first, last):
            runs.append(_Run(e, d, max(first, held.lows[e]), min(last, held.highs[e])))
    return runs


def _holders(held: Held, first: int, last: int) -> list[int]:
    """The devices that hold some of these coordinates."""
    order = sorted((d for d in range(len(held.starts)) if held.lows[d] < held.highs[d]), key=held.lows.__getitem__)
    begin = bisect_right(order, first, key=held.highs.__getitem__)
    end = bisect_left(order, last, key=held.lows.__getitem__)
    return order[begin:end]


def _by_distance(runs: list[_Run]) -> list[list[_Run]]:
    groups: dict[int, list[_Run]] = {}
    for run in runs:
        groups.setdefault(run.sender - run.receiver, []).append(run)
    return [groups[distance] for distance in sorted(groups)]


def _by_colour(runs: list[_Run], count: int) -> list[list[_Run]]:
    groups: dict[int, list[_Run]] = {}
    colours = colour_edges([r.sender for r in runs], [r.receiver for r in runs], count) if runs else ()
    for run, colour in zip(runs, colours, strict=True):
        groups.setdefault(int(colour), []).append(run)
    return list(groups.values())


def _piece(held: Held, wanted: Wanted, runs: list[_Run], width: int, own: bool = False) -> Piece:
    """The slabs that carry these runs. Devices without one have the commonest numbers, so that all may be equal."""
    count = len(held.starts)
    longest = max(runs, key=lambda r: r.high - r.low)
    usual = 0 if own else longest.low - held.starts[longest.sender]
    sends, lows, highs = [min(usual, held.size - width)] * count, [0] * count, [0] * count
    places: dict[int, int] = {}
    for run in runs:
        first = run.low - held.starts[run.sender]
        fits = usual <= first and run.high - held.starts[run.sender] <= usual + width <= held.size
        send = usual if fits else min(first, held.size - width)
        sends[run.sender] = send
        places[run.receiver] = held.starts[run.sender] + send - wanted.starts[run.receiver]
        lows[run.receiver] = run.low - wanted.starts[run.receiver]
        highs[run.receiver] = run.high - wanted.starts[run.receiver]
    common = places[longest.receiver]
    return Piece(
        () if own else tuple(sorted((r.sender, r.receiver) for r in runs)), width, tuple(sends),
        tuple(places.get(d, common) for d in range(count)), tuple(lows), tuple(highs),
    )
