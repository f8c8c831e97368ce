"""Pruning of candidate placements to a cap per class: the closure of pinned ones through the choices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eggshard.program.placement import Placement
from eggshard.selection.problem import Choice

Shape = tuple[Placement, ...]
Shard = tuple[int, int]

#: How many choices away from what is pinned candidates may be.
ROUNDS = 16


def within_cap(
    choices: Sequence[Sequence[Choice]], placements: Sequence[Sequence[Placement | Shape]],
    pinned: Iterable[Shard], cap: int,
) -> list[list[Choice]]:
    """The choices among at most ``cap`` candidate placements of each class.

    Candidates are what ``pinned`` (class, placement) pairs reach through the choices, forward and backward, nearest
    first; of those equally near, the ones without partial values and with the most axes. Every class keeps its choice
    over the fewest axes, mostly replication, so that some plan remains under every cap. Without a class beyond the cap
    all choices stay, and no closure is needed.
    """
    if max((len(p) for p in placements), default=0) <= cap:
        return [list(c) for c in choices]
    number: dict[Placement | Shape, int] = {}
    rank = [[(_rank(p), number.setdefault(p, len(number))) for p in table] for table in placements]
    plain = (
        shard
        for c, made in enumerate(choices) if made
        for choice in [min(made, key=lambda x: sum(_axes(placements[w][q]) for w, q in ((c, x.out), *x.needs)))]
        for shard in ((c, choice.out), *choice.needs)
    )
    kept = closure(choices, dict.fromkeys((*pinned, *plain)), rank, cap)
    return [
        [x for x in made if x.out in kept[c] and all(q in kept[w] for w, q in x.needs)]
        for c, made in enumerate(choices)
    ]


def closure(
    choices: Sequence[Sequence[Choice]], seeds: Iterable[Shard], rank: Sequence[Sequence[tuple[float, int]]], cap: int,
    rounds: int = ROUNDS,
) -> list[dict[int, None]]:
    """Per class the placements that ``seeds`` reach, which are always among them, in the order found; at most ``cap``.

    Forward, a choice whose needs are all candidates makes its result's placement one; backward, a result's placement
    those of its needs. Of what a class gains in one round the least by ``rank[class][placement]`` are kept.
    """
    makers: dict[Shard, list[Choice]] = {}
    users: dict[Shard, list[tuple[Shard, int]]] = {}
    missing: list[int] = []
    fresh = set(seeds)
    reached: set[Shard] = set()
    for c, made in enumerate(choices):
        for choice in made:
            makers.setdefault((c, choice.out), []).append(choice)
            for need in choice.needs:
                users.setdefault(need, []).append(((c, choice.out), len(missing)))
            if not choice.needs:
                reached.add((c, choice.out))
            missing.append(len(choice.needs))
    found: list[dict[int, None]] = [{} for _ in choices]
    limit = max(len(fresh), cap)
    for _ in range(1 + rounds):
        accepted = []
        for c, p in sorted(fresh, key=lambda shard: (shard[0], rank[shard[0]][shard[1]])):
            if p not in found[c] and len(found[c]) < limit:
                found[c][p] = None
                accepted.append((c, p))
        if not accepted and not reached:
            break
        for shard in accepted:
            reached.update(need for choice in makers.get(shard, ()) for need in choice.needs)
            for result, number in users.get(shard, ()):
                missing[number] -= 1
                if not missing[number]:
                    reached.add(result)
        fresh, reached, limit = reached, set(), cap
    return found


def _axes(placement: Placement | Shape) -> int:
    """Over how many axes the placement spreads something."""
    if isinstance(placement, Placement):
        return len(placement.sharded_axes) + len(placement.partial)
    return sum(map(_axes, placement))


def _rank(placement: Placement | Shape) -> float:
    if isinstance(placement, Placement):
        return 8.0 * len(placement.partial) - len(placement.sharded_axes)
    return float(sum(_rank(p) for p in placement))
