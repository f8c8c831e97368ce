"""Marginal prices: the alternatives to each decision of a plan, and what the plan would then cost.

A decision is one thing that a plan pays for: a choice, or a conversion. An alternative is another choice in its place
(another op, or the same op at other placements), one copy less of a value computed twice, or one more in place of a
conversion. Its price is the difference of two plans' totals, both valid by `selection.verify.check`:

- *held*: everything else stays as it is, except for sibling results of multi-result ops, which follow. Conversions
  start from the cheapest placement available; values no longer needed leave the plan, and missing ones join it in the
  way that is cheapest for a tree.
- *followed*: other decisions may follow, by local search around this one, which itself stays. Never more than held.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem, Selection
from eggshard.selection.search.greedy import split_shares
from eggshard.selection.search.local_search import LocalSearch
from eggshard.selection.search.state import Item, PlanState
from eggshard.selection.search.trees import tree_costs

#: The number of cheapest alternatives kept per decision, and of those whose consequences are searched, unless they cost
#: so many times what the cheapest searched so far does.
KEPT, FOLLOWED, FAR = 8, 4, 4.0
#: The most classes visited to search an alternative's consequences, and the most that change together in one move.
LOOKED_AT, TOGETHER = 60, 12


class Switch(NamedTuple):
    """An alternative at one decision: class ``cls`` is computed by ``choice`` (-1: dropped) instead of at placement
    ``out`` (-1: in addition to what there is).

    held, followed: the change of the plan's total (module docstring), in seconds. leaves, joins: what the plan pays for
    that the cheaper of the two plans does not, and the reverse, with prices; they add up to the change.
    """

    cls: int
    out: int
    choice: int
    held: float
    followed: float
    leaves: Mapping[Item, float]
    joins: Mapping[Item, float]


class Marginal:
    """Alternatives to the decisions of one selection of a problem. Changes nothing for good: every move is undone."""

    def __init__(self, problem: Problem, selection: Selection) -> None:
        self.problem, self.selection = problem, selection
        graph = Graph(problem)
        fallback = tree_costs(graph, split_shares(problem)).best
        self.search = LocalSearch(graph, fallback)
        self.state = PlanState(graph, selection.chosen, fallback)
        self.state.journal = []

    @property
    def total(self) -> float:
        """Seconds of the selection."""
        return self.state.cost

    def decisions(self) -> Iterator[Item]:
        """What the plan pays for, or has at no cost: choices and conversions, by class."""
        for c in range(len(self.problem.choices)):
            if self.state.cost < math.inf:
                yield from self.state.items(c)

    def choices(self, c: int, s: int, kept: int = KEPT) -> tuple[list[Switch], int]:
        """The cheapest alternatives to choice ``s`` of class ``c``, cheapest first, and how many were weighed."""
        state, out = self.state, self.problem.choices[c][s].out
        made = state.made[c]
        least = state.switch_bounds(c, out)
        candidates = [
            (max(least(i), -state.cost), i) for i, choice in enumerate(self.problem.choices[c])
            if i != s and choice.cost < math.inf and choice.out not in made.keys() - {out}
        ]
        if len(made) > 1:
            candidates.append((-math.inf, -1))
        found: list[tuple[float, int]] = []
        worst: list[float] = []
        for bound, i in sorted(candidates):
            if len(worst) == kept and bound > -worst[0]:
                break
            held = self._held(c, out, i)
            if held < math.inf:
                found.append((held, i))
                (heapq.heappush if len(worst) < kept else heapq.heappushpop)(worst, -held)
        return self._switches(c, out, sorted(found)[:kept]), len(candidates)

    def conversion(self, c: int, q: int, kept: int = KEPT) -> tuple[list[Switch], int]:
        """The cheapest ways to compute class ``c`` at placement ``q`` as well, in place of a conversion to it."""
        if c in self.problem.single:
            return [], 0
        candidates = [i for i in self.search.by_out[c].get(q, ()) if q not in self.state.made[c]]
        found = sorted((held, i) for i in candidates if (held := self._held(c, -1, i)) < math.inf)
        return self._switches(c, -1, found[:kept]), len(candidates)

    def _switches(self, c: int, out: int, found: Sequence[tuple[float, int]]) -> list[Switch]:
        """Alternatives, found with what they cost held; with their consequences, the cheapest first."""
        made: list[Switch] = []
        least = math.inf
        for n, (held, i) in enumerate(found):
            made.append(self._switch(c, out, i, n < FOLLOWED and held < FAR * least))
            least = min(least, made[-1].followed)
        return sorted(made, key=lambda x: x.followed)

    def selection_with(self, switch: Switch, follow: bool = True) -> dict[int, tuple[int, ...]]:
        """The choices of the plan that has an alternative."""
        try:
            self._move(switch.cls, switch.out, switch.choice)
            if follow:
                self._follow(switch.cls, switch.out, switch.choice)
            return self.state.chosen()
        finally:
            self.state.undo(0)

    def _move(self, c: int, out: int, choice: int) -> bool:
        """Make a class so; False, with nothing changed, where that is no plan."""
        adds = () if choice < 0 else (choice,)
        stays = choice >= 0 and self.problem.choices[c][choice].out == out
        if not self.state.try_switch(c, adds, () if out < 0 or stays else (out,), math.inf):
            if stays or choice < 0 or out < 0 or not self._with_users(c, out, choice):
                return False
        for a in self._touched():  # copies that serve nothing any more
            for p in list(self.state.made[a]):
                if len(self.state.made[a]) > 1 and (a, self.state.made[a].get(p)) != (c, choice):
                    self.state.try_switch(a, (), (p,), -1e-12 * abs(self.state.cost))
        return True

    def _with_users(self, c: int, out: int, choice: int) -> bool:
        """Switch class ``c`` together with the users of its value, where that value has no conversions.

        Such values are the results of multi-result ops.
        """
        new = self.problem.choices[c][choice].out
        group = {c: choice}
        for user in self.search.users[c]:
            takes = [s for s in self.state.made[user].values() if (c, out) in self.problem.choices[user][s].needs]
            if not takes:
                continue
            options = [s for s, x in enumerate(self.problem.choices[user]) if (c, new) in x.needs and x.cost < math.inf]
            if len(self.state.made[user]) > 1 or not options:
                return False
            group[user] = min(options, key=lambda s: (self.problem.choices[user][s].cost, s))
        return len(self.state.made[c]) == 1 and len(group) > 1 and self.state.try_group(group.items(), math.inf)

    def _held(self, c: int, out: int, choice: int) -> float:
        before = self.state.cost
        there = self._move(c, out, choice) and self._stands(c, out, choice)
        change = self.state.cost - before
        self.state.undo(0)
        return change if there else math.inf

    def _switch(self, c: int, out: int, choice: int, follow: bool) -> Switch:
        state, before = self.state, self.state.cost
        self._move(c, out, choice)
        held = followed = state.cost - before
        if follow:
            self._follow(c, out, choice)
            followed = min(held, state.cost - before)
        touched = self._touched()
        after = {item: price for a in touched for item, price in state.items(a).items()}
        state.undo(0)
        now = {item: price for a in touched for item, price in state.items(a).items()}
        return Switch(
            c, out, choice, held, followed,
            {item: price for item, price in now.items() if item not in after},
            {item: price for item, price in after.items() if item not in now})

    def _touched(self) -> list[int]:
        assert self.state.journal is not None
        return sorted({a for _, prices, _ in self.state.journal for a in prices})

    def _stands(self, c: int, out: int, choice: int) -> bool:
        """Whether the plan has the alternative, and uses it."""
        made = self.state.made[c]
        if choice < 0:
            return out not in made
        here = self.problem.choices[c][choice].out
        if made.get(here) != choice or (out in made and here != out):
            return False
        return len(made) == 1 or any(self.state.source(c, q) == here for q in self.state.count[c])

    def _follow(self, c: int, out: int, choice: int) -> None:
        """Local search around a move that was made, which stays. The moves tried together start from before it, too."""
        state, journal = self.state, self.state.journal
        assert journal is not None
        if choice >= 0 and out >= 0:
            self._together(c, out, choice)
        users, operands = self.search.users, self.search.graph.operands
        work, queued, looked = deque([*users[c], *operands[c]]), {c}, 0
        while work and looked < LOOKED_AT:
            a = work.popleft()
            if a in queued or not state.made[a]:
                continue
            queued.add(a)
            looked += 1
            mark = len(journal)
            if self.search.improve_class(state, a):
                if not self._stands(c, out, choice):
                    state.undo(mark)
                    continue
                near = (*users[a], *operands[a])
                queued.difference_update(near)
                queued.add(c)
                work.extend(near)

    def _together(self, c: int, out: int, choice: int) -> None:
        """Operands that deliver in place, and users that take the value where it now is, if that is cheaper."""
        state, journal = self.state, self.state.journal
        assert journal is not None
        chosen = self.problem.choices[c][choice]
        for push in (False, True):
            group = {c: choice}
            self.search.pull_operands(state, group, chosen.needs, TOGETHER)
            if push:
                self.search.push_users(state, group, c, chosen.out, TOGETHER)
            mark = len(journal)
            if len(group) > 1 and state.try_group(group.items(), 0.0) and not self._stands(c, out, choice):
                state.undo(mark)
