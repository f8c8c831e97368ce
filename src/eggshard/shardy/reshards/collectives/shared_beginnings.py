"""Sharing of the common prefix of several reshards of one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.reshards.collectives.kinds import Collective
from eggshard.shardy.wire_bytes import WireBytes

#: A sequence of collectives on a value.
Way = tuple[Collective, ...]
#: The price of a step from the sharding before it, None for the value's own.
Price = Callable[[TensorSharding | None, Collective], WireBytes]


def cheapest_together(ways: Sequence[Sequence[Way]], price: Price) -> list[Way]:
    """One way for each reshard, so that all together are cheap; equal beginnings are paid for once.

    The first way of each is Shardy's, the second the same with its collectives fused: what jaxlib makes of them
    together, and by neither count of bytes is the choice dearer. From the best of these, and of the last ways of
    all, one reshard's way at a time is changed for a cheaper one.
    """
    if not ways:
        return []
    starts = [[options[min(i, len(options) - 1)] for options in ways] for i in range(max(map(len, ways)))]
    totals = [_total(chosen, price) for chosen in starts]
    given = min(totals[:2], key=_key)
    _, best = min(
        ((total, chosen) for total, chosen in zip(totals, starts, strict=True) if _fits(total, given)),
        key=lambda found: _key(found[0]))
    improved = len(ways) > 1
    while improved:
        improved = False
        for i, options in enumerate(ways):
            for option in options:
                other = [*best[:i], option, *best[i + 1 :]]
                total = _total(other, price)
                if _fits(total, given) and _key(total) < _key(_total(best, price)):
                    best, improved = other, True
    return best


def _total(chosen: Sequence[Way], price: Price) -> WireBytes:
    total, paid = WireBytes(), set()
    for way in chosen:
        for n in range(1, len(way) + 1):
            if way[:n] not in paid:
                paid.add(way[:n])
                total = total.plus(price(way[n - 2].to if n > 1 else None, way[n - 1]))
    return total


def _key(total: WireBytes) -> tuple[float, float, int]:
    return round(total.busiest, 6), round(total.average, 6), total.collectives


def _fits(total: WireBytes, given: WireBytes) -> bool:
    return _key(total)[0] <= _key(given)[0] and _key(total)[1] <= _key(given)[1]
