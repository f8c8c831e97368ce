"""Dominated-column elimination: drops choices that another choice makes redundant."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from eggshard.selection.problem import Choice


def dominated(
    choices: Sequence[Choice], conversions: np.ndarray, needed: set[int], once: bool = False
) -> dict[int, int]:
    """{a: b} where choice b makes choice a needless: b's needs are among a's and cost(b) + detour(b, a) <= cost(a).

    In any plan with a, put b: its needs are served, what a's out served is served from b's out at no more cost, and
    since b waits for nothing that a did not wait for, no cycle closes. ``once``: see `detour`.
    """
    if len(choices) < 2:
        return {}
    pairs = _subsets(choices)
    if not pairs:
        return {}
    by, of = np.array(pairs, np.int64).T
    cost = np.array([s.cost for s in choices], float)
    outs = np.array([s.out for s in choices])
    # So far with the least that a detour costs: the conversion to a's out where that is needed.
    least = np.where(np.isin(outs[of], sorted(needed)), conversions[outs[by], outs[of]], 0.0)
    maybe = cost[by] + least <= cost[of]
    by, of = by[maybe], of[maybe]
    if not len(by):
        return {}
    rows_of = conversions[np.ix_(outs, np.array(sorted(needed), np.int64))]
    with np.errstate(invalid="ignore"):
        more = np.nan_to_num(np.maximum(rows_of[by] - rows_of[of], 0.0), posinf=math.inf)
    total = (more.max(axis=1, initial=0.0) if once else more.sum(axis=1))
    sure = cost[by] + total <= cost[of]
    better: dict[int, list[int]] = {}
    for b, a in sorted(zip(by[sure].tolist(), of[sure].tolist(), strict=True)):
        better.setdefault(a, []).append(b)
    result: dict[int, int] = {}
    for a in np.lexsort((np.arange(len(choices)), cost))[::-1].tolist():  # dearest first; of equals the later goes
        left = [b for b in better.get(a, ()) if b not in result]
        if left:
            result[a] = left[0]
    return result


def _subsets(choices: Sequence[Choice]) -> list[tuple[int, int]]:
    """All (b, a), b != a, where the needs of choice b are among those of choice a."""
    having: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for i, s in enumerate(choices):
        having.setdefault(s.needs if len(s.needs) < 2 else tuple(sorted(set(s.needs))), []).append(i)
    sizes = sorted({len(needs) for needs in having})
    pairs = [(b, a) for some in having.values() if len(some) > 1 for b in some for a in some if b != a]
    for needs, some in having.items():
        for size in sizes[: sizes.index(len(needs))]:
            if math.comb(len(needs), size) <= len(having):
                below = [sub for sub in itertools.combinations(needs, size) if sub in having]
            else:
                below = [sub for sub in having if len(sub) == size and set(sub).issubset(needs)]
            pairs += [(b, a) for sub in below for b in having[sub] for a in some]
    return pairs
