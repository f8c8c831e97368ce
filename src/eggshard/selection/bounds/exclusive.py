"""Mutually exclusive uses of a class, in plans that compute no class twice and nothing in vain.

An optional class is computed only for some consumer's choices, so that where it is computed, some later class has one
of certain choices. Two uses that imply different choices of one class never occur in one plan (alternatives of one
value that need the same operand, say), and so they never use an operand together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eggshard.selection.graph import Graph

#: Per class the choices of which one is made, where some value is used: a bit set.
Context = Mapping[int, int]


def contexts(graph: Graph) -> list[Context]:
    """Per class what is known where it is computed; nothing for classes in cycles and those that roots ask for."""
    problem = graph.problem
    found: list[Context] = [{} for _ in problem.choices]
    users: list[dict[int, int]] = [{} for _ in problem.choices]
    for c, choices in enumerate(problem.choices):
        for s, choice in enumerate(choices):
            for a, _ in choice.needs:
                users[a][c] = users[a].get(c, 0) | 1 << s
    asked = {*graph.essential, *(c for c, _ in problem.roots)}
    for c in reversed(graph.order):
        if not graph.cyclic[c] and c not in asked and users[c]:
            found[c] = _either([within(found[user], user, choices) for user, choices in users[c].items()])
    return found


def within(context: Context, c: int, choices: int) -> Context:
    """What is known where class c, of this context, has one of these choices."""
    return {**context, c: choices}


def _either(some: Sequence[Context]) -> Context:
    first, *rest = some
    return {d: _union(d, some) for d in first if all(d in other for other in rest)}


def _union(d: int, some: Sequence[Context]) -> int:
    choices = 0
    for context in some:
        choices |= context[d]
    return choices


def exclude(one: Context, other: Context) -> bool:
    """Whether no plan makes both uses."""
    return any(d in other and not choices & other[d] for d, choices in one.items())


def groups(uses: Sequence[Context]) -> list[list[int]]:
    """Positions of uses of one class, grouped so that no plan makes two uses of a group."""
    found: list[list[int]] = []
    for i, use in enumerate(uses):
        for group in found:
            if all(exclude(use, uses[j]) for j in group):
                group.append(i)
                break
        else:
            found.append([i])
    return found
