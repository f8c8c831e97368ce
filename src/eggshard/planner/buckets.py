"""All-reduces that share latencies: which sums may, and the search that is asked twice for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from eggshard.costmodel.pricing import Pricer, Shared
from eggshard.plan.record import Search
from eggshard.planner.encoding.encode import Encoding
from eggshard.planner.state import Scheduled
from eggshard.program.placement import Placement
from eggshard.selection.problem import Problem

#: The part of a plan's cost that latencies may be for no search to ask whether all-reduces share them.
LITTLE = 1e-2
#: Relative difference of costs that rounding of sums may cause.
ROUNDING = 1e-12


def in_buckets(encoding: Encoding, pricer: Pricer, planned: Callable[[Pricer], Scheduled]) -> Scheduled:
    """The cheaper plan of two: in the search all-reduces pay a latency each, or none, and the plan for those left.

    Plans in which none is shared cost no less than the former search's bound, others no less than the latter's and one
    latency. Where all that can be shared is little, it is taken off the former bound instead.
    """
    alone, latency = planned(pricer), latencies(encoding, pricer)
    if latency is None:
        return alone
    cost, found = pricer.program(alone.steps), alone.search
    if latency.all < LITTLE * cost:
        return replace(alone, search=replace(found, shared=True, sharing=max(0.0, _of_all(found) - latency.all)))
    together = planned(Shared(pricer))
    least, bound = pricer.program(together.steps), _of_all(together.search)
    best = together if least < cost * (1 - ROUNDING) else alone
    note = f"buckets: cost {least:.9g}, bound {bound:.9g} if all-reduces share latencies; else cost {cost:.9g}"
    return replace(best, search=replace(
        best.search, bound=found.bound, once=found.once, terms=found.terms, shared=True,
        sharing=min(_of_all(found), bound + latency.least), notes=(*found.notes, note)))


def _of_all(search: Search) -> float:
    """The bound of plans whose conversions of a value share what they may."""
    return min(search.bound, search.sharing) if search.shared else search.bound


class Latencies(NamedTuple):
    """Seconds of the least latency of an all-reduce, and of all that a plan may have, one per sum and axis."""

    least: float
    all: float


def latencies(encoding: Encoding, pricer: Pricer) -> Latencies | None:
    """The latencies that all-reduces may share; None where no two of them can be independent."""
    partial = {}
    for c, (places, choices) in enumerate(zip(encoding.placements, encoding.problem.choices, strict=True)):
        made = [places[choice.out] for choice in choices]
        if found := [p.partial for p in made if isinstance(p, Placement) and p.partial]:
            partial[c] = max(found, key=len)
    if not may_be_independent(encoding.problem, list(partial)):
        return None
    latency = {a: Shared(pricer).latency((a,)) for axes in partial.values() for a in axes}
    return Latencies(min(latency.values()), sum(latency[a] for axes in partial.values() for a in axes))


def may_be_independent(problem: Problem, classes: Sequence[int]) -> bool:
    """Whether a plan may have two of these classes of which neither is needed for the other.

    The ways to them part at some choice that needs one by one operand and one by another, or at the roots. Plans that
    compute one class by two choices at once are not looked at.
    """
    if len(classes) < 2:
        return False
    bit = {c: 1 << i for i, c in enumerate(classes)}
    needs = [[list(dict.fromkeys(need for need, _ in choice.needs)) for choice in choices]
             for choices in problem.choices]
    below = _closed(needs, bit, 0, lambda ways: _union(_union(way) for way in ways))
    must = _closed(needs, bit, (1 << len(classes)) - 1, _in_every)
    apart = [sum(1 << j for j, d in enumerate(classes) if not (must[d] & bit[c] or must[c] & bit[d])) for c in classes]
    ends = list(dict.fromkeys(c for c, _ in problem.roots))
    for way in (*(way for ways in needs for way in ways), ends):
        for i, c in enumerate(way):
            others = _union(below[d] for d in way[i + 1:])
            if any(others & apart[j] for j in _bits(below[c])):
                return True
    return False


def _closed(needs: Sequence[Sequence[Sequence[int]]], bit: dict[int, int], start: int,
            joined: Callable[[Sequence[list[int]]], int]) -> list[int]:
    """Per class a set of bits, its own and those joined of what its choices need, until nothing changes."""
    users: list[set[int]] = [set() for _ in needs]
    for c, ways in enumerate(needs):
        for way in ways:
            for d in way:
                users[d].add(c)
    found = [start] * len(needs)
    waiting = dict.fromkeys(range(len(needs)))
    while waiting:
        c = waiting.popitem()[0]
        bits = bit.get(c, 0) | joined([[found[d] for d in way] for way in needs[c]])
        if bits != found[c]:
            found[c] = bits
            waiting.update(dict.fromkeys(users[c]))
    return found


def _union(sets: Sequence[int] | Iterator[int]) -> int:
    out = 0
    for bits in sets:
        out |= bits
    return out


def _in_every(ways: Sequence[Sequence[int]]) -> int:
    """The bits that all ways have; those of inputs are none."""
    out = -1
    for way in ways:
        out &= _union(way)
    return out if ways else 0


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
