"""Stretching of tables over positions along mesh axes to another number of positions.

What a device does may depend on its distance from either end, and otherwise must not depend on its position: the values
in the middle are all equal, and those before and after them keep their distance from their end. A table that can be
read in several such ways is refused, as is one that can be read in none.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby, permutations
from typing import TypeVar

import numpy as np

from eggshard.errors import LoweringError
from eggshard.placement.slabs import Slab
from eggshard.program.placement import Dim
from eggshard.steps.steps import Pairs

T = TypeVar("T", bound=Hashable)


def middle_of(table: Sequence[T]) -> tuple[int, int]:
    """Where the middle of a table begins and ends: its longest run of equal values. LoweringError without just one."""
    runs, start = [], 0
    for _, values in groupby(table):
        stop = start + sum(1 for _ in values)
        runs.append((start, stop))
        start = stop
    longest = max((stop - start for start, stop in runs), default=0)
    found = [(start, stop) for start, stop in runs if stop - start == longest]
    if longest < 2 or len(found) > 1:
        raise LoweringError(
            f"of {len(table)} positions no two or more in the middle are alike ({_listed(table)}), so that it does not "
            "tell what others would do; plan for more devices along these axes"
        )
    return found[0]


def stretched(table: Sequence[T], count: int) -> list[T]:
    """The table for so many positions. LoweringError where its ends would not fit, or it has no middle."""
    if count == len(table):
        return list(table)
    start, stop = middle_of(table)
    head, tail = list(table[:start]), list(table[stop:])
    if len(head) + len(tail) > count:
        raise LoweringError(
            f"{len(head)} positions at one end and {len(tail)} at the other differ from those between them, and there "
            f"are to be {count} positions in all; take at least {len(head) + len(tail)}"
        )
    return [*head, *[table[start]] * (count - len(head) - len(tail)), *tail]


def constant(table: Sequence[T], count: int) -> tuple[T, ...]:
    """A table of equal values for so many positions; LoweringError for another one."""
    if len(set(table)) > 1:
        raise LoweringError(f"it is another at each position ({_listed(table)}), so the sizes of its shards depend on "
                            "their number; plan for that number of devices")
    return (table[0],) * count


def anchored(index: int, window: Dim, old: int, new: int) -> int:
    """A global index of a dimension that ``old`` devices hold by this window, where ``new`` of them do.

    It keeps its distance from the end that it lies near: where it falls in the devices' shards is a table like others.
    LoweringError for an index that is more than a tile away from either end, or near both.
    """
    if old == new:
        return index
    tile, place = window.tile, index - window.low  # counted from where the first shard begins
    low, high = (min(place, index) <= tile, max(place, index) >= (old - 1) * tile)
    if old == 2:  # a table of two has no middle
        low, high = place <= tile, place >= tile

    def falls(at: int, count: int) -> list[int]:
        return [min(max(at - window.low - p * tile, 0), window.size) for p in range(count)]

    fitting = [at for near, at in ((high, index + (new - old) * tile), (low, index)) if near]
    if old > 2:
        table = stretched(falls(index, old), new)
        fitting = [at for at in fitting if falls(at, new) == table]
    if not fitting or (old == 2 and len(fitting) > 1):
        raise LoweringError(
            f"index {index} of {old} parts of {tile} does not lie near one end, so that it is not known where it lies "
            f"among {new} parts; plan for that number of devices"
        )
    return fitting[0]


def stretched_pairs(pairs: Pairs, old: int, new: int) -> Pairs:
    """Senders and receivers among ``new`` positions instead of ``old``; see `stretched_slab`."""
    if old > 1 and len(pairs) == old and all(s + r == old - 1 for s, r in pairs) and old != 2:
        return tuple((p, new - 1 - p) for p in range(new))
    none = (0,) * old
    return stretched_slab(Slab(pairs, 0, none, none), old, new).pairs


def stretched_slab(slab: Slab, old: int, new: int, ends: bool = True) -> Slab:
    """The round of an exchange among ``new`` positions instead of ``old``.

    All of its senders in the middle send over one distance; where some send around the end, they do so again. Where
    ``ends`` is true a single position near an end may be the only one that sends: there is nothing in the exchange that
    goes farther than to the next position, of which this could be the last. LoweringError for other rounds.
    """
    if old == new:
        return slab
    sent: dict[int, dict[int, tuple[int, int]]] = {}
    around: set[int] = set()
    for sender, receiver in slab.pairs:
        distance = receiver - sender
        if 2 * abs(distance) == old:
            raise LoweringError(
                f"position {sender} sends to position {receiver} of {old}, as far in one direction as around the end "
                "in the other; plan for more devices along these axes"
            )
        if 2 * abs(distance) > old:
            distance -= old if distance > 0 else -old
            around.add(distance)
        sent.setdefault(distance, {})[sender] = slab.source_starts[sender], slab.target_starts[receiver]
    source, target = [0] * new, [0] * new
    pairs = []
    for distance, starts in sent.items():
        table = [starts.get(p) for p in range(old)]
        if table[middle_of(table)[0]] is None and not (ends and old > 3 and len(starts) == 1):
            raise LoweringError(
                f"only some positions of {old} send over {distance} ({_listed(sorted(starts))}), which does not tell "
                "what others would do; plan for more devices along these axes"
            )
        for sender, place in enumerate(stretched(table, new)):
            if place is None:
                continue
            receiver = sender + distance
            if not 0 <= receiver < new and distance not in around:
                raise LoweringError(f"position {sender} of {new} would send to position {receiver}, which is not there")
            pairs.append((sender, receiver % new))
            source[sender], target[receiver % new] = place
    for end in (0, 1):
        if len({pair[end] for pair in pairs}) < len(pairs):
            raise LoweringError(f"some position of {new} would {('send', 'receive')[end]} twice in one round")
    return Slab(tuple(sorted(pairs)), slab.width, tuple(source), tuple(target))


def next_only(slabs: Iterable[Slab], count: int) -> bool:
    """Whether slabs go to the next of so many positions only, on either side and around the end, or stay."""
    return all(abs(r - s) in (0, 1, count - 1) for slab in slabs for s, r in slab.pairs)


def stretched_numbers(numbers: np.ndarray, names: Sequence[str], counts: Sequence[int]) -> np.ndarray:
    """Numbers at the points of a grid, for a grid of other ``counts``: multiples of one tile along its dimensions.

    The dimensions are numbered in some order, first is major, and number p gets ``p * tile + low``, which may be modulo
    the size of what the tiles make up. LoweringError for other numbers; ``names`` of dimensions are for its message.
    """
    fitting = []
    for order in permutations(range(numbers.ndim)):
        table = numbers.transpose(order).reshape(-1).tolist()
        made = _stretched_progression(table, int(np.prod(counts)))
        if made is not None:
            shape = [counts[i] for i in order]
            fitting.append(np.array(made).reshape(shape).transpose(np.argsort(order)))
    if not fitting or any((other != fitting[0]).any() for other in fitting[1:]):
        raise LoweringError(
            f"its numbers along {', '.join(names)} ({_listed(numbers.reshape(-1).tolist())}) are not multiples of a "
            "tile, so that they do not tell what others would be; plan for that number of devices"
        )
    return fitting[0]


def _stretched_progression(table: list[int], count: int) -> list[int] | None:
    """``p * tile + low``, modulo a size or not, at so many positions; None where the table is nothing of the kind."""
    differences = [b - a for a, b in zip(table, table[1:], strict=False)]
    rising = {d for d in differences if d > 0}
    falls = [i for i, d in enumerate(differences) if d <= 0]
    if len(rising) != 1 or len(falls) > 1:
        return None
    (tile,) = rising
    if not falls:
        return [table[0] + tile * p for p in range(count)]
    size = tile - differences[falls[0]]
    if abs(size - tile * len(table)) >= tile:
        return None
    low = table[0] if 2 * (falls[0] + 1) > len(table) else table[0] - size
    return [(low + tile * p) % (size + tile * (count - len(table))) for p in range(count)]


def _listed(table: Sequence[object]) -> str:
    shown = ", ".join("-" if value is None else str(value) for value in table[:8])
    return shown + (", ..." if len(table) > 8 else "")
