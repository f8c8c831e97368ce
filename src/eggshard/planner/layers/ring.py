"""A lower bound for equal layers by periodic Lagrangian relaxation: one layer consumes what it delivers itself.

Lagrange multipliers tell a layer what it pays for its inputs and is paid for its outputs. With equal multipliers
between all neighbouring layers, the plan of all layers costs at least their number times the cheapest layer. The first
layer's input and the last layer's output cross to the rest of the program at the same prices: what a layer pays for its
input goes to the producer of the first layer's input, and what it is paid for its output comes from the consumer of the
last layer's output. Where there is none, the bound is corrected by the most or the least that may be paid.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eggshard.planner.derivation import derived
from eggshard.planner.encoding.encode import Handed
from eggshard.planner.layers.lifting import Instance, Lift, copies_of_groups
from eggshard.selection.bounds.dual import Dual
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Choice, Problem, Selection
from eggshard.selection.reductions.parts import same_terms
from eggshard.selection.search.local_search import LocalSearch
from eggshard.selection.search.trees import tree_costs

#: The first temperature of the ascent (relative, as `dual.HOT`), higher because messages run in cycles.
HOT = 4.0
#: Rounds between checks of the bound, the relative rise between checks below which plans are decoded, and the rounds
#: in which choices adapt to what passes between layers.
CHECK, STEADY, ADAPT = 2, 1e-3, 4


class RingPlan(NamedTuple):
    """What a layer of each row does in a plan, None if none was found; its cost, and a bound, of all layers."""

    selection: Selection | None
    cost: float
    bound: float


class Link(NamedTuple):
    """A group that stands for what a layer takes of another one of its row, and the group that this delivers.

    repeats: the number of layers in the row. last: the layers of which no layer takes it. beginnings: per layer to
    which no layer delivers what it takes in place of it, a shard per choice of ``taken``; endings: per layer of
    ``last`` the group beside the layers that takes its output, and at which placement each of that group's choices
    does; None for none.
    """

    taken: int
    delivered: int
    repeats: int
    last: list[int]
    beginnings: list[dict[int, tuple[int, int]]]
    endings: list[tuple[int, dict[int, int]] | None]


class Ring:
    """The rings of the layers that those of each row follow; costs are of all layers.

    problem: choices and classes keep the encoding's numbers; what other copies compute has no choices.
    """

    def __init__(self, lift: Lift, follow: Sequence[int]) -> None:
        self.lift, self.short = lift, lift.short
        self.follow = follow
        self.links: dict[tuple[int, int], Link] = {}
        encoding = lift.encoding
        of_group = copies_of_groups(len(encoding.problem.choices), lift.copies, encoding.views.group)
        self._shared = {c for c, which in enumerate(of_group) if which < 0}
        #: What is taken beside the layers of a layer's group: (choice there, placement), by taking group.
        self._leaving: dict[Instance, dict[int, dict[int, int]]] = {}
        self.choices = [
            [] if of_group[c] not in (-1, *follow) else [
                self._choice(c, i, s, of_group[c]) for i, s in enumerate(choices)]
            for c, choices in enumerate(encoding.problem.choices)
        ]
        self._find_endings()
        conversions = [
            lift.table(c) * self._repeats(of_group[c]) for c in range(len(self.choices))]
        open_ = self._without_links()
        alive, _ = derived(
            (c, {a for a, _ in choice.needs}) for c, some in enumerate(open_) for choice in some
            if choice.cost < math.inf)
        roots, single = [r for r in encoding.problem.roots if r[0] in alive], encoding.problem.single
        self.problem = Problem(self.choices, conversions, roots, single=single)
        self.opened = Problem(open_, conversions, roots, single=single)
        self.leaving = {group for group, _ in self._leaving}

    def plan(self, like: Selection, known: float, gap: float, deadline: float) -> RingPlan:
        """The cheapest plan of equal layers that prices gave, cheaper than a known one, and what no plan of all layers
        undercuts that computes nothing twice, and all layers by the terms of a plan like this one.

        known: what it costs; the bound is raised until it is within ``gap`` of the best plan.
        """
        chosen = {c: some for c, some in like.chosen.items() if self.choices[c]}
        opened = same_terms(self.opened, chosen)
        essential = self._essential(opened)
        ends = _Ends(self, same_terms(self.problem, chosen), essential)
        order = [*Graph(opened).order, *ends.added]
        dual = Dual(Graph(ends.problem), known, averaged=True, essential=[*essential, *ends.added], order=order)
        best, cost, bound, before = None, known, 0.0, -math.inf
        for part in dual.ascend(HOT, each=lambda: ends.reprice(dual) / known, check=CHECK):
            bound, rise, before = max(bound, part * known), part - before, part
            late = time.monotonic() > deadline
            if bound < (1 - gap) * cost and (late or rise <= STEADY * part):
                found = self._decoded(dual, ends, opened)
                price = None if found is None else self.lift.price(found, self.follow)
                if price is None or price >= cost:
                    break
                best, cost = found, price
            if late or bound >= (1 - gap) * cost:
                break
        return RingPlan(best, cost, min(bound, cost))

    def _decoded(self, dual: Dual, ends: _Ends, opened: Problem) -> Selection | None:
        """A plan at these prices: what passes between layers is chosen first, then the rest, once more and improved."""
        first = dual.decoded()
        held = {link.taken: first[link.taken][0] for link in ends.links if link.taken in first}
        wanted = [need for c, s in held.items() for need in self.choices[c][s].needs]
        chosen = dual.decoded(held, wanted, ADAPT)
        chosen = {c: some for c, some in chosen.items() if c not in ends.added}
        wanted += [b[held[link.taken]] for link in ends.links if link.taken in held
                   for b in link.beginnings if held[link.taken] in b]
        for (delivered, _), users in self._leaving.items():
            for c, placements in users.items():
                if c in chosen and chosen[c][0] in placements:
                    held[c] = chosen[c][0]
                    wanted.append((delivered, placements[chosen[c][0]]))
        choices = list(opened.choices)
        for c, s in held.items():
            choices[c] = [choice if i == s else choice._replace(cost=math.inf) for i, choice in enumerate(choices[c])]
        problem = replace(opened, choices=choices, roots=list(dict.fromkeys([*opened.roots, *wanted])))
        if any(c not in chosen for c, _ in problem.roots):
            return None
        graph = Graph(problem)
        return LocalSearch(graph, tree_costs(graph).best).improve(chosen)

    # -- the problem -------------------------------------------------------------------------------------------------

    def _choice(self, group: int, number: int, choice: Choice, copy: int) -> Choice:
        """A choice, what it costs in all layers, with what it takes of another layer taken of the same."""
        tag = choice.tag
        if not isinstance(tag, Handed):
            return choice._replace(cost=choice.cost * self._repeats(copy)) if copy >= 0 else choice
        sources = self._sources(tag, self.short.row(copy) if copy >= 0 else [-1])
        if len(set(sources)) == 1:
            source, layer = sources[0]
            taken, placement = self.lift.encoding.shard(source, tag.placement)
            self._leaving.setdefault((taken, layer), {}).setdefault(group, {})[number] = placement
            return choice._replace(needs=())
        return choice._replace(needs=self._linked(group, number, tag, self.short.row(copy)))

    def _repeats(self, copy: int) -> int:
        return len(self.short.row(copy)) if copy >= 0 else 1

    def _linked(self, group: int, number: int, tag: Handed, row: range) -> tuple[tuple[int, int], ...]:
        """What a value taken from elsewhere needs: a shard of the layer, or nothing where every layer takes another."""
        sources = self._sources(tag, row)
        inside = [source for source in sources if source[1] in row]
        if not _passed_on(inside):
            return ()
        shard = self.lift.encoding.shard
        outside = [source for source, layer in sources if layer not in row]
        need = shard(inside[0][0], tag.placement)
        link = self.links.get((group, need[0]))
        if link is None:
            last = sorted(set(row) - {layer for _, layer in inside})
            link = self.links[group, need[0]] = Link(
                group, need[0], len(row), last, [{} for _ in outside], [None for _ in last])
        for beginning, source in zip(link.beginnings, outside, strict=True):
            beginning[number] = shard(source, tag.placement)
        return (need,)

    def _find_endings(self) -> None:
        """One group beside the layers for each layer of whose output no other one takes anything."""
        for link in self.links.values():
            for i, layer in enumerate(link.last):
                users = self._leaving.get((link.delivered, layer))
                if users:
                    link.endings[i] = min(users.items())

    def _sources(self, tag: Handed, layers: Iterable[int]) -> list[Instance]:
        """What some layers (-1: what is of none) take as this value."""
        index = self.lift.input_index(tag)
        return [self.lift.handed(index, layer, self.follow) for layer in layers]

    def _without_links(self) -> list[list[Choice]]:
        return [
            [s._replace(needs=()) if isinstance(s.tag, Handed) else s for s in choices] for choices in self.choices
        ]

    def is_shared(self, c: int) -> bool:
        """Whether a group is computed without what is a layer's own."""
        return c in self._shared

    # -- the bound --------------------------------------------------------------------------------------------------

    def _essential(self, terms: Problem) -> list[int]:
        """What every layer computes in all plans of these terms, without links.

        That is what its own roots need, and what the last layer delivers to others, if a layer that delivers it needs
        the same of another layer.
        """
        def needed(*more: int) -> set[int]:
            roots = [*terms.roots, *((c, 0) for c in more)]
            return set(Graph(Problem(terms.choices, terms.conversions, roots)).essential)

        own = needed()
        lasting = [
            link.delivered for link in self.links.values()
            if (link.delivered in self.leaving or link.delivered in own) and link.taken in needed(link.delivered)
        ]
        return sorted(needed(*lasting))


class _Ends:
    """What is paid where the row of layers begins and ends, at the prices between layers.

    problem: the ring's, and for each beginning a class (``added``) of what the first layer takes, which is paid for.
    """

    def __init__(self, ring: Ring, terms: Problem, essential: Collection[int]) -> None:
        self.links = list(ring.links.values())
        self.terms = terms
        self.added: list[int] = []
        #: Per link and beginning the class that is added, None for none.
        self._firsts: list[list[int | None]] = []
        choices, conversions = list(terms.choices), list(terms.conversions)
        for link in self.links:
            always = link.taken in essential and all(
                any(a == link.delivered for a, _ in terms.choices[link.taken][s].needs) for s in self._takes(link))
            firsts: list[int | None] = []
            for beginning in link.beginnings:
                shards = [beginning[s] for s in self._takes(link) if s in beginning]
                there = len(shards) == len(self._takes(link)) and all(
                    ring.is_shared(c) and any(s.cost < math.inf for s in terms.choices[c]) for c, _ in shards)
                firsts.append(len(choices) if always and there else None)
                if always and there:
                    self.added.append(len(choices))
                    choices.append([Choice(0, 0.0, (shard,)) for shard in shards])
                    conversions.append(np.zeros((1, 1)))
            self._firsts.append(firsts)
        self.problem = Problem(choices, conversions, terms.roots, single=terms.single)

    def _takes(self, link: Link) -> list[int]:
        return [s for s, choice in enumerate(self.terms.choices[link.taken]) if choice.cost < math.inf]

    def reprice(self, dual: Dual) -> float:
        """Pay at the ends what is paid between layers now; what the bound is more by then."""
        owed = []
        for link, firsts in zip(self.links, self._firsts, strict=True):
            takes = self._takes(link)
            found = dual.paid(link.taken, link.delivered)
            if found is None:  # then nothing is paid at the ends, and what might be is lost
                most = max(0.0, dual.most_paid(link.taken, link.delivered))
                owed.append(-len(link.last) * most / link.repeats)
                least, prices = 0.0, dict[int, float]()
            else:
                least, prices = found
                paid = least * len(link.endings) - max(prices.values()) * firsts.count(None)
                owed.append(paid / link.repeats)
            for first in firsts:
                if first is not None:
                    charged = [next((prices.get(q, 0.0) for a, q in self.terms.choices[link.taken][s].needs
                                     if a == link.delivered), 0.0) for s in takes]
                    dual.reprice(first, range(len(takes)), [-price / link.repeats for price in charged])
            for ending in link.endings:
                if ending is not None and ending[0] in dual.first:
                    costs = {s: self.terms.choices[ending[0]][s].cost for s in ending[1]}
                    some = [s for s in ending[1] if costs[s] < math.inf]
                    dual.reprice(ending[0], some, [
                        costs[s] + (prices.get(ending[1][s], least) - least) / link.repeats for s in some])
        return math.fsum(owed)


def _passed_on(sources: Sequence[Instance]) -> bool:
    """Whether these are one class, each of another layer."""
    return bool(sources) and len({c for c, _ in sources}) == 1 and len({layer for _, layer in sources}) == len(sources)
