"""Which classes of a graph of alternatives a plan may need without one being needed for the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from heapq import heappop, heappush


def may_be_independent(needs: Sequence[Sequence[Sequence[int]]], roots: Iterable[int], classes: Sequence[int]) -> bool:
    """Whether a plan of the roots may have two of these classes of which neither is needed for the other.

    needs: per class the ways to compute it, each by the classes that it needs.

    The ways to them part at some choice that needs one by one operand and one by another, or at the roots. Plans that
    compute one class by two choices at once are not looked at.
    """
    if len(classes) < 2:
        return False
    bit = {c: 1 << i for i, c in enumerate(classes)}
    needs = [[list(dict.fromkeys(way)) for way in ways] for ways in needs]
    below = _closed(needs, bit, 0, lambda ways: _union(_union(way) for way in ways))
    must = _closed(needs, bit, (1 << len(classes)) - 1, _in_every)

    @cache  # most programs have such a pair among the first that are looked at
    def apart(number: int) -> int:
        c = classes[number]
        return sum(1 << j for j, d in enumerate(classes) if not (must[d] & bit[c] or must[c] & bit[d]))

    ends = list(dict.fromkeys(roots))
    for way in (*(way for ways in needs for way in ways), ends):
        for i, c in enumerate(way):
            others = _union(below[d] for d in way[i + 1:])
            if others and any(others & apart(j) for j in _bits(below[c])):
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
    order = _operands_first(needs)  # so that most classes are looked at once
    place = {c: i for i, c in enumerate(order)}
    waiting = list(range(len(order)))  # places, a heap
    queued = set(waiting)
    while waiting:
        i = heappop(waiting)
        queued.discard(i)
        c = order[i]
        bits = bit.get(c, 0) | joined([[found[d] for d in way] for way in needs[c]])
        if bits != found[c]:
            found[c] = bits
            for user in users[c]:
                if place[user] not in queued:
                    queued.add(place[user])
                    heappush(waiting, place[user])
    return found


def _operands_first(needs: Sequence[Sequence[Sequence[int]]]) -> list[int]:
    """All classes, each after those that it needs, but where these need it, too."""
    order: list[int] = []
    seen = [False] * len(needs)
    for root in range(len(needs)):
        stack = [] if seen[root] else [(root, iter([d for way in needs[root] for d in way]))]
        seen[root] = True
        while stack:
            c, rest = stack[-1]
            following = next((d for d in rest if not seen[d]), None)
            if following is None:
                order.append(c)
                stack.pop()
            else:
                seen[following] = True
                stack.append((following, iter([d for way in needs[following] for d in way])))
    return order


def _union(sets: Iterable[int]) -> int:
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
