"""One step of dual ascent (`selection.bounds.dual`), which updates the dual variables of a block of classes.

The block's charges and shares are set to the best values for the others as they are, softened by a temperature.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from eggshard.selection.bounds.charges import CAP, Block

#: Stands in for a zero sum of shares, to divide by.
_NOTHING = 1e-300


class _Beside(NamedTuple):
    """What consumers pay beside the prices: for each cell ``[J]`` over what they pay without any, that ``[G]``, and
    where a slot is not used, with its price ``[I]``; None where every slot is used.
    """

    more: np.ndarray
    sure: np.ndarray | None
    waste: np.ndarray | None


def balance(slack: np.ndarray, block: Block, up: bool, temperature: float) -> None:
    """Hand what the block's classes are worth to their consumers (``up``), or what these are worth to the classes.

    slack: of all labels, in units of the incumbent's cost; changed in place, as the block's state is.
    """
    state = block.state
    labels = slack.take(block.labels)
    pull = block.pull_up if up else block.pull_down
    own = block.outs.soft_min(labels, temperature) if up else None
    waste = None
    if block.alone and own is not None:  # the one consumer gets all that there is
        change = own
    elif block.alone:
        more = block.needs.soft_min(slack.take(block.users), temperature)
        more = more - state.price
        change = block.by_row.soft_min(state.share + more.take(block.cell), temperature)
        change += state.charge
        change *= -pull.take(block.by_group.segment)
    else:
        more, sure, waste = _beside(slack, block, temperature)
        more = more.take(block.cell)
        best = _best(block, more, temperature)
        if not block.single:
            _reshare(block, more, best)
            best = _best(block, more, temperature)
        best += state.charge
        if sure is not None:
            best += sure.take(block.by_group.segment)
        best *= pull.take(block.by_group.segment)
        change = -best
        if own is not None:
            change += (block.give * (own + block.charged(best))).take(block.out)
    state.charge += change
    labels -= block.at_labels(block.charged(change))
    slack[block.labels] = labels
    none = state.none
    if waste is not None:
        none = _unused(slack, block, pull, waste, temperature)
    price = block.paid(block.by_cell.soft_min(state.charge.take(block.row) + state.across, temperature), none)
    change = price - state.price
    if not block.needs.apart:
        change = change.take(block.needs.segment)
    if block.distinct:
        slack[block.users] += change
    else:
        np.add.at(slack, block.users, change)
    state.price[:], state.none[:] = price, none


def _reshare(block: Block, more: np.ndarray, best: np.ndarray) -> None:
    """Split conversions among groups as these have use for them, who pay ``more`` ``[N]`` and at the least ``best``."""
    useful = best.take(block.by_row.segment)
    useful -= more
    np.maximum(useful, 0.0, out=useful)
    cost = block.cost
    total = block.by_conversion.add(useful.take(block.sharing))
    scale = cost / np.maximum(total, _NOTHING)
    np.minimum(scale, 1.0, out=scale)
    rest = cost - total
    np.maximum(rest, 0.0, out=rest)
    rest *= block.part_of_cost
    useful *= scale.take(block.conversion)
    useful += rest.take(block.conversion)
    useful[block.impossible] = CAP
    block.state.share[:] = useful
    np.take(block.state.share, block.turned, out=block.state.across, mode="clip")  # else a copy is made


def _unused(slack: np.ndarray, block: Block, pull: np.ndarray, waste: np.ndarray, temperature: float) -> np.ndarray:
    """What slots that are not used pay now ``[M]``, paid by the labels that do not use them."""
    idle, none = block.idle, block.state.none.copy()
    group = block.members.segment[idle]
    none[idle] -= pull[group] * waste
    left = (block.by_group.soft_min(block.state.charge, temperature) - block.members.add(none)) / block.size
    none[idle] += left[group]
    np.add.at(slack, block.rest, (none - block.state.none)[idle][block.rests.segment])
    return none


def _beside(slack: np.ndarray, block: Block, temperature: float) -> _Beside:
    more = block.needs.soft_min(slack.take(block.users), temperature) - block.state.price
    sure = waste = None
    if len(block.idle):
        unused = -block.state.none
        waste = block.rests.soft_min(slack.take(block.rest), temperature)
        unused[block.idle] += waste
        more = more - unused[block.slot]
        sure = block.members.add(unused)
    return _Beside(block.cells.soft_min(more, temperature), sure, waste)


def _best(block: Block, more: np.ndarray, temperature: float) -> np.ndarray:
    """The least that a row's consumers pay beside the charge ``[Q]``, over what they pay without using it.

    more: what they pay beside the prices, per row and cell ``[N]``.
    """
    best = block.by_row.soft_min(block.state.share + more, temperature)
    if block.any_free:
        soft = np.minimum(best, 0.0) - temperature * np.log1p(np.exp(-np.abs(best) / temperature))
        best = np.where(block.free, soft, best)
    return best
