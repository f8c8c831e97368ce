"""A plan under change: moves on the exact DAG cost, each priced by what it touches and undone if it does not pay."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from eggshard.selection.graph import Graph

#: What a plan pays for: a choice (class, number), or a conversion (class, from, to).
Item = tuple[int, ...]


class PlanState:
    """The choices of a plan with the consumers of every shard counted.

    made[c]: {out: choice} of the live class c. count[c]: {placement: consumers}. A need converts from the cheapest
    made placement. A class that nothing needs any more leaves the plan; one that comes to be needed joins it by
    ``fallback[c][q]``, the choice to use for placement q.
    """

    def __init__(
        self, graph: Graph, chosen: Mapping[int, Iterable[int]], fallback: Sequence[Sequence[int] | np.ndarray]
    ) -> None:
        problem = graph.problem
        self.graph = graph
        self.choices = problem.choices
        self.conversions = graph.conversions
        self.fallback = fallback
        self.made: list[dict[int, int]] = [{} for _ in self.choices]
        self.count: list[dict[int, int]] = [{} for _ in self.choices]
        self.conversion_cost: list[float] = [0.0] * len(self.choices)
        self._preferred = {c: tuple(some) for c, some in chosen.items()}
        #: Moves that were kept, for `undo`; None where no one asks for that.
        self.journal: list[tuple[list[tuple[dict[int, int], int, int | None]], dict[int, float], float]] | None = None
        self._begin()
        for c, q in problem.roots:
            self._retain(c, q)
        self._spread()
        self._preferred = {}
        self.cost = self._change()
        if self.cost < math.inf and not (self._legal() and all(len(self.made[c]) < 2 for c in problem.single)):
            self.cost = math.inf
        for c, price in self._prices.items():
            self.conversion_cost[c] = price

    # -- moves -------------------------------------------------------------------------------------------------------

    def try_switch(self, c: int, adds: Iterable[int], removes: Iterable[int], below: float = 0.0) -> bool:
        """Make class c also by the choices ``adds`` and no longer at the outs ``removes``; keep it if cost falls.

        Kept if the cost changes by less than ``below``; otherwise the state is as before.
        """
        self._begin()
        self._switch(c, adds, removes)
        self._spread()
        return self._settle(below)

    def try_group(self, switches: Iterable[tuple[int, int]], below: float = 0.0) -> bool:
        """Make each class c of ``(c, choice)`` by that choice alone, all together; keep it if cost falls."""
        self._begin()
        for c, s in switches:
            if self.count[c]:
                out = self.choices[c][s].out
                self._switch(c, (s,), [p for p in self.made[c] if p != out])
        self._spread()
        return self._settle(below)

    def switch_bounds(self, c: int, p: int) -> Callable[[int], float]:
        """Return, by choice, a lower bound on the change of cost if class c is computed by that choice, not at p.

        The bound adds what new needs cost and subtracts what needs of this class alone save, with an allowance for
        rounding; it is -inf where more than conversions may be saved.
        """
        made, choices = self.made[c], self.choices[c]
        now = choices[made[p]]
        if len(made) > 1:
            return lambda s: -math.inf
        out_price = self.graph.problem.conversions[c][:, list(self.count[c])].sum(axis=1).tolist()
        alone = set()  # operands that leave the plan if the choice does not need them
        saved = 0.0
        for a, q in now.needs:
            if self.count[a][q] == 1:
                saved += self._need_price(a, q)
                if len(self.count[a]) == 1:
                    alone.add(a)
        start = now.cost + self.conversion_cost[c] + saved + 1e-9 * abs(self.cost)
        prices: dict[tuple[int, int], float] = {}

        def change(s: int) -> float:
            choice = choices[s]
            if alone and not alone.issubset([a for a, _ in choice.needs]):
                return -math.inf
            total: float = choice.cost + out_price[choice.out] - start
            for need in choice.needs:
                price = prices.get(need)
                if price is None:
                    a, q = need
                    price = prices[need] = 0.0 if q in self.count[a] else self._need_price(a, q)
                total += price
            return total

        return change

    def _need_price(self, a: int, q: int) -> float:
        """The conversion for need q of class a from what is made of it; 0 if nothing is."""
        return min([self.conversions[a][p][q] for p in self.made[a]], default=0.0)

    def items(self, c: int) -> dict[Item, float]:
        """What the plan pays for class c: its choices, and its conversions as (class, from, to)."""
        made, costs = self.made[c], self.conversions[c]
        paid: dict[Item, float] = {(c, s): self.choices[c][s].cost for s in made.values()}
        for q in self.count[c]:
            p = self.source(c, q)
            if p != q:
                paid[c, p, q] = costs[p][q]
        return paid

    def chosen(self) -> dict[int, tuple[int, ...]]:
        return {c: tuple(sorted(made.values())) for c, made in enumerate(self.made) if made}

    # -- pieces of a move --------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._log: list[tuple[dict[int, int], int, int | None]] = []
        self._touched: dict[int, None] = {}
        self._delta = 0.0
        self._born: list[int] = []
        self._dead: list[int] = []

    def _settle(self, below: float) -> bool:
        change = self._change()
        if change < below and self._legal():
            if self.journal is not None:
                before = {c: self.conversion_cost[c] for c in self._prices}
                self.journal.append((self._log, before, self.cost))
            for c, price in self._prices.items():
                self.conversion_cost[c] = price
            self.cost += change
            return True
        self._restore(self._log)
        return False

    def undo(self, moves: int) -> None:
        """Take back the moves in the journal but for the first so many."""
        assert self.journal is not None
        while len(self.journal) > moves:
            log, prices, self.cost = self.journal.pop()
            self._restore(log)
            for c, price in prices.items():
                self.conversion_cost[c] = price

    def _restore(self, log: list[tuple[dict[int, int], int, int | None]]) -> None:
        for table, key, value in reversed(log):
            if value is None:
                del table[key]
            else:
                table[key] = value

    def _set(self, table: dict[int, int], key: int, value: int | None) -> None:
        self._log.append((table, key, table.get(key)))
        if value is None:
            del table[key]
        else:
            table[key] = value

    def _switch(self, c: int, adds: Iterable[int], removes: Iterable[int]) -> None:
        made, choices = self.made[c], self.choices[c]
        dropped = []
        for s in adds:
            out = choices[s].out
            if out in made:
                if made[out] == s:
                    continue
                dropped.append(made[out])
            self._add(c, s)
        for p in removes:
            if p in made:
                dropped.append(made[p])
                self._set(made, p, None)
        for s in dropped:
            self._drop(c, s)

    def _add(self, c: int, s: int) -> None:
        choice = self.choices[c][s]
        self._set(self.made[c], choice.out, s)
        self._touched[c] = None
        self._delta += choice.cost
        for a, q in choice.needs:
            self._retain(a, q)

    def _drop(self, c: int, s: int) -> None:
        choice = self.choices[c][s]
        self._touched[c] = None
        self._delta -= choice.cost
        for a, q in choice.needs:
            self._release(a, q)

    def _retain(self, a: int, q: int) -> None:
        count = self.count[a]
        present = count.get(q, 0)
        self._set(count, q, present + 1)
        if not present:
            self._touched[a] = None
            if not self.made[a]:
                self._born.append(a)

    def _release(self, a: int, q: int) -> None:
        count = self.count[a]
        left = count[q] - 1
        self._set(count, q, left or None)
        if not left:
            self._touched[a] = None
            if not count:
                self._dead.append(a)

    def _spread(self) -> None:
        """Let needed classes join the plan and needless ones leave it, and so on through their operands."""
        while self._born or self._dead:
            while self._born:
                a = self._born.pop()
                if self.count[a] and not self.made[a]:
                    for s in self._preferred.get(a) or (int(self.fallback[a][next(iter(self.count[a]))]),):
                        if s >= 0:
                            self._add(a, s)
            while self._dead:
                a = self._dead.pop()
                if not self.count[a]:
                    made = self.made[a]
                    for p, s in list(made.items()):
                        self._set(made, p, None)
                        self._drop(a, s)

    def _change(self) -> float:
        """The change of cost by the moves since `_begin`; inf if some need cannot be served."""
        self._prices = {c: self._conversion_price(c) for c in self._touched}
        return self._delta + sum(price - self.conversion_cost[c] for c, price in self._prices.items())

    def _conversion_price(self, c: int) -> float:
        count, made, costs = self.count[c], self.made[c], self.conversions[c]
        if not count:
            return 0.0
        if len(made) == 1:
            (p,) = made
            row = costs[p]
            return sum([row[q] for q in count])
        if not made:
            return math.inf
        rows = [costs[p] for p in made]
        return sum([min([row[q] for row in rows]) for q in count])

    def _legal(self) -> bool:
        """Whether the plan is free of cycles; only classes in cycles that were touched can close one."""
        cyclic = self.graph.cyclic
        if not self.graph.has_cycles or not any(cyclic[c] for c in self._touched):
            return True
        state: dict[tuple[int, int], bool] = {}  # shard -> done (False: on the path)
        for c in self._touched:
            if cyclic[c]:
                for p in self.made[c]:
                    if not self._reaches_no_circle((c, p), state):
                        return False
        return True

    def _reaches_no_circle(self, start: tuple[int, int], state: dict[tuple[int, int], bool]) -> bool:
        stack = [(start, False)]
        while stack:
            shard, leaving = stack.pop()
            if leaving:
                state[shard] = True
                continue
            if shard in state:
                if not state[shard]:
                    return False
                continue
            state[shard] = False
            stack.append((shard, True))
            c, p = shard
            for a, q in self.choices[c][self.made[c][p]].needs:
                if self.graph.component[a] == self.graph.component[c]:
                    source = self.source(a, q)
                    if not state.get((a, source), False):
                        if (a, source) in state:
                            return False
                        stack.append(((a, source), False))
        return True

    def source(self, c: int, q: int) -> int:
        """The made placement from which need q of class c is served."""
        made, costs = self.made[c], self.conversions[c]
        return q if q in made else min(made, key=lambda p: (costs[p][q], p))
