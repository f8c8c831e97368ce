"""Margins: the halo regions that a shard receives beyond its ends, exchanged separately from the shard.

Strips of an exchange's result are strips of its operand except for the margins. These are thin, so they are received
once before the loop over strips; everything sent of the operand is near its two ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from eggshard.program.types import TensorType
from eggshard.steps.window_steps import HaloExchange


class Margins(NamedTuple):
    """An exchange of margins alone.

    first, last: so many indices of the operand at its two ends, one after the other, are what is exchanged; low, high:
    so many of the result, one after the other, lie below and above what it keeps of the operand.
    """

    action: HaloExchange
    first: int
    last: int
    low: int
    high: int


def margins_of(action: HaloExchange, operand: TensorType) -> Margins | None:
    """The exchange of an exchange's margins; None where devices keep their shards at different places, or receive
    something elsewhere than beyond the ends of what they keep."""
    n, offset = operand.shape[action.dim], action.offsets[0]
    low, high = max(0, offset), max(0, action.new - n - offset)
    sent = [(slab.source_starts[s], slab.width) for slab in action.rounds for s, _ in slab.pairs]
    put = [(slab.target_starts[r], slab.width) for slab in action.rounds for _, r in slab.pairs]
    beyond = all(at + width <= offset or at >= offset + n for at, width in put)
    first = max((at + width for at, width in sent if 2 * at + width < n), default=0)
    last = max((n - at for at, width in sent if 2 * at + width >= n), default=0)
    if len(set(action.offsets)) > 1 or not beyond or first + last > n:
        return None
    rounds = []
    for slab in action.rounds:
        rows = (
            tuple(at if 2 * at + slab.width < n else at - n + first + last for at in slab.source_starts),
            tuple(at if at + slab.width <= offset else at - n - offset + low for at in slab.target_starts),
        )
        used = ({s for s, _ in slab.pairs}, {r for _, r in slab.pairs})
        rounds.append(slab._replace(
            source_starts=tuple(at if d in used[0] else 0 for d, at in enumerate(rows[0])),
            target_starts=tuple(at if d in used[1] else 0 for d, at in enumerate(rows[1])),
        ))
    nothing = (-first - last,) * len(action.offsets)
    exchange = replace(action, new=low + high, offsets=nothing, rounds=tuple(rounds))
    return Margins(exchange, first, last, low, high)
