"""Equal layers as a ring: one layer takes what it delivers itself, and stands for all.

Lagrange multipliers tell a layer what it pays for its inputs and is paid for its outputs; with the same ones between
any two layers, the plan of all layers costs at least as many times what the cheapest layer does. The first takes from
elsewhere and the last one's output goes elsewhere: what passes there is left out, so the bound is less by what a layer
may pay for its input at most, and be paid for its output at least.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from eggshard.extract.dual import Dual
from eggshard.extract.encode import Handed
from eggshard.extract.graph import Graph
from eggshard.extract.problem import Choice, Problem, Selection
from eggshard.extract.terms import of_same_terms
from eggshard.layers.lifting import Instance, Lift, copies_of_groups

#: The ascent begins hotter where messages run in circles.
HOT = 8.0


class Link(NamedTuple):
    """A group that stands for what a layer takes of another one, the group that this delivers, and how many layers take
    it from elsewhere.
    """

    taken: int
    delivered: int
    ends: int


class Ring:
    """The ring of one copy's layer; costs are of all layers.

    problem: choices and classes keep the encoding's numbers; what other copies compute has no choices.
    """

    def __init__(self, lift: Lift, copy: int) -> None:
        self.lift, self.short = lift, lift.short
        self.follows = [copy] * self.short.repeats
        self.links: dict[tuple[int, int], Link] = {}
        #: What is taken from elsewhere, by any layer and at what placement: the shards that stand for it.
        self.taken: dict[Handed, set[tuple[int, int]]] = {}
        encoding = lift.encoding
        of_group = copies_of_groups(len(encoding.problem.choices), lift.copies, encoding.views.group)
        self.choices = [
            [] if of_group[c] not in (-1, copy) else [self._choice(c, s, of_group[c]) for s in choices]
            for c, choices in enumerate(encoding.problem.choices)
        ]
        conversions = [
            lift.table(c) * (self.short.repeats if of_group[c] >= 0 else 1) for c in range(len(self.choices))]
        open_ = self._without_links()
        alive = _computable(open_)
        roots, single = [r for r in encoding.problem.roots if r[0] in alive], encoding.problem.single
        self.problem = Problem(self.choices, conversions, roots, single=single)
        self.opened = Problem(open_, conversions, roots, single=single)
        self.leaving = {
            group for c, choices in enumerate(encoding.problem.choices) if of_group[c] < 0
            for choice in choices if isinstance(choice.tag, Handed) for group, _ in self.taken[choice.tag]
        }

    def bound(self, like: Selection, known: float, gap: float, deadline: float) -> float:
        """What no plan of all layers undercuts that computes nothing twice, and all layers by the terms of a plan.

        known: what some plan of all layers costs; the bound is raised until it is within ``gap`` of that.
        """
        chosen = {c: some for c, some in like.chosen.items() if self.choices[c]}
        terms = of_same_terms(self.problem, chosen)
        dual = Dual(Graph(terms), known, averaged=True, essential=self._essential(chosen))
        found = 0.0
        for part in dual.ascend(HOT):
            found = max(found, part * known - self._open_ends(dual))
            if found >= (1 - gap) * known or time.monotonic() > deadline:
                break
        return min(found, known)

    # -- the problem -------------------------------------------------------------------------------------------------

    def _choice(self, group: int, choice: Choice, copy: int) -> Choice:
        """A choice, what it costs in all layers, with what it takes of another layer taken of the same."""
        if isinstance(choice.tag, Handed):
            sources = self._sources(choice.tag, range(self.short.repeats) if copy >= 0 else [-1])
            self.taken[choice.tag] = {self.lift.encoding.shard(c, choice.tag.placement) for c, _ in sources}
            return choice._replace(needs=self._linked(group, choice.tag, sources) if copy >= 0 else ())
        return choice._replace(cost=choice.cost * self.short.repeats) if copy >= 0 else choice

    def _linked(self, group: int, tag: Handed, sources: Sequence[Instance]) -> tuple[tuple[int, int], ...]:
        """What a value taken from elsewhere needs: a shard of the layer, or nothing where every layer takes another."""
        inside = [source for source in sources if source[1] >= 0]
        if not _passed_on(inside):
            return ()
        need = self.lift.encoding.shard(inside[0][0], tag.placement)
        link = Link(group, need[0], len(sources) - len(inside))
        self.links[group, need[0]] = link
        return (need,)

    def _sources(self, tag: Handed, layers: Iterable[int]) -> list[Instance]:
        """What some layers (-1: what layers share) take as this value."""
        index = self.lift.input_index(tag)
        return [self.lift.handed(index, layer, self.follows) for layer in layers]

    def _without_links(self) -> list[list[Choice]]:
        return [
            [s._replace(needs=()) if isinstance(s.tag, Handed) else s for s in choices] for choices in self.choices
        ]

    # -- the bound --------------------------------------------------------------------------------------------------

    def _essential(self, chosen: Mapping[int, tuple[int, ...]]) -> list[int]:
        """What every layer computes in all plans of these terms.

        That is what its own roots need, and what the last layer delivers to others, if a layer that delivers it needs
        the same of another layer.
        """
        terms = of_same_terms(self.opened, chosen)

        def needed(*more: int) -> set[int]:
            roots = [*terms.roots, *((c, 0) for c in more)]
            return set(Graph(Problem(terms.choices, terms.conversions, roots)).essential)

        own = needed()
        lasting = [
            link.delivered for link in self.links.values()
            if (link.delivered in self.leaving or link.delivered in own) and link.taken in needed(link.delivered)
        ]
        return sorted(needed(*lasting))

    def _open_ends(self, dual: Dual) -> float:
        """What the first layers may pay at most for what no layer delivers, and the last are paid at least."""
        return math.fsum(
            link.ends * max(0.0, dual.most_paid(link.taken, link.delivered)) for link in self.links.values()
        ) / self.short.repeats


def _passed_on(sources: Sequence[Instance]) -> bool:
    """Whether these are one class, each of another layer."""
    return bool(sources) and len({c for c, _ in sources}) == 1 and len({layer for _, layer in sources}) == len(sources)


def _computable(choices: Sequence[Sequence[Choice]]) -> set[int]:
    """The classes that some choices compute from nothing."""
    users: dict[int, list[tuple[int, int]]] = {}
    missing: dict[tuple[int, int], int] = {}
    ready = []
    for c, some in enumerate(choices):
        for s, choice in enumerate(some):
            operands = {a for a, _ in choice.needs}
            missing[c, s] = len(operands)
            for a in operands:
                users.setdefault(a, []).append((c, s))
            if not operands and choice.cost < math.inf:
                ready.append(c)
    found: set[int] = set()
    while ready:
        c = ready.pop()
        if c in found:
            continue
        found.add(c)
        for user in users.get(c, ()):
            missing[user] -= 1
            if not missing[user] and choices[user[0]][user[1]].cost < math.inf:
                ready.append(user[0])
    return found
