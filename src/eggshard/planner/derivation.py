"""What follows from what: the facts that rules derive, and the least values at which shards can be had."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from eggshard.selection.problem import Choice, Problem

F = TypeVar("F")
Shard = tuple[int, int]


def derived(rules: Iterable[tuple[F, Collection[F]]]) -> tuple[set[F], list[int]]:
    """The facts that follow, and the numbers of the rules by which they do.

    A rule is a fact and the facts that it follows from together; of none, it holds as it is.
    """
    heads: list[F] = []
    missing: list[int] = []
    users: dict[F, list[int]] = {}
    ready: list[int] = []
    for i, (head, body) in enumerate(rules):
        needed = set(body)
        heads.append(head)
        missing.append(len(needed))
        for fact in needed:
            users.setdefault(fact, []).append(i)
        if not needed:
            ready.append(i)
    facts: set[F] = set()
    fired = []
    while ready:
        i = ready.pop()
        fired.append(i)
        if heads[i] in facts:
            continue
        facts.add(heads[i])
        for user in users.get(heads[i], ()):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)
    return facts, fired


def least_values(
    problem: Problem, made: Callable[[int, Choice, float], float],
    converted: Callable[[Shard, float], Iterable[tuple[int, float]]],
) -> dict[Shard, float]:
    """Per shard the least value over all its derivations (Knuth 1977).

    made: of a class's choice whose dearest need has this value. converted: the placements that a shard of this value is
    converted to, each with its value. Neither is ever less than what it is made of.
    """
    users: dict[Shard, list[tuple[int, Choice, int]]] = {}
    missing: list[int] = []
    queue: list[tuple[float, Shard]] = []
    for c, choices in enumerate(problem.choices):
        for choice in choices:
            for need in choice.needs:
                users.setdefault(need, []).append((c, choice, len(missing)))
            if not choice.needs:
                queue.append((made(c, choice, 0.0), (c, choice.out)))
            missing.append(len(choice.needs))
    heapq.heapify(queue)
    settled: dict[Shard, float] = {}
    while queue:
        value, shard = heapq.heappop(queue)
        if shard in settled or value == math.inf:
            continue
        settled[shard] = value
        for q, other in converted(shard, value):
            if (shard[0], q) not in settled:
                heapq.heappush(queue, (other, (shard[0], q)))
        for c, choice, number in users.get(shard, ()):
            missing[number] -= 1
            if not missing[number] and (c, choice.out) not in settled:  # the last need to be settled is the dearest
                heapq.heappush(queue, (made(c, choice, value), (c, choice.out)))
    return settled
