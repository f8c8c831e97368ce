"""The selection problem as a constraint program, solved by OR-tools' CP-SAT; runs in a process of its own.

Variables, all 0 or 1 except t:
  x[c,s]    choice s of class c is computed
  made[c,p] class c is computed at placement p
  there[a,q] some computed choice needs class a at placement q
  r[c,p,q]  the conversion is paid
  t[c,q]    inside a circle of classes: when class c is there at placement q
Every need that is there, and every root, is made or converted to; every conversion starts where something is made. In
circles a choice is computed after its needs are there. Copies, alternatives and circles are all allowed, so the bound
holds for every plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from ortools.sat.python import cp_model

from eggshard.selection.certify.cpsat import Answer, Request

#: The incumbent's cost in the solver's whole numbers. Costs are rounded down, so that the bound holds.
SCALE = 10**8
#: Subsolvers that take turns where there are no circles.
TURNS = 3

Shard = tuple[int, int]


def solve(request: Request, seconds: float, gap: float) -> Answer:
    """The best selection found within ``seconds``, to a relative ``gap``."""
    began = time.monotonic()
    built = _Built(request)
    solver = cp_model.CpSolver()
    parameters: Any = solver.parameters
    parameters.max_time_in_seconds = max(0.01, seconds - (time.monotonic() - began))
    parameters.relative_gap_limit = gap
    parameters.random_seed = 0
    if max(request.circles, default=-1) >= 0:
        # Bounds from below, one core of choices that exclude one another after the other.
        parameters.num_workers = 1
        parameters.optimize_with_core = True
        parameters.linearization_level = 0
    else:
        # Subsolvers that take turns, among them searches of large neighbourhoods: reproducible, unlike a race.
        parameters.num_workers = TURNS
        parameters.interleave_search = True
    status = solver.solve(built.model)
    bound = 0.0 if status == cp_model.UNKNOWN else max(0.0, solver.best_objective_bound) / built.unit
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Answer(None, bound)
    chosen: dict[int, tuple[int, ...]] = {}
    for (c, s), x in built.x.items():
        if solver.boolean_value(x):
            chosen[c] = (*chosen.get(c, ()), s)
    return Answer(chosen, bound)


class _Built:
    """The model of one problem, hinted with the best plan known; its costs are multiples of 1 / ``unit``."""

    def __init__(self, request: Request) -> None:
        self.problem, self.circles, incumbent = request.problem, request.circles, request.incumbent
        self.unit = SCALE / incumbent.cost
        self.limit = incumbent.cost
        self.model = cp_model.CpModel()
        self.computed = {(c, s) for c, some in incumbent.chosen.items() for s in some}
        self.converted = set(incumbent.conversions)
        self.x: dict[Shard, Any] = {}
        self.made: dict[Shard, Any] = {}
        self.r: dict[tuple[int, int, int], Any] = {}
        self._choices(request.single)
        self._needs()
        self._order()
        terms = [(x, self.problem.choices[c][s].cost) for (c, s), x in self.x.items()]
        terms += [(r, float(self.problem.conversions[c][p, q])) for (c, p, q), r in self.r.items()]
        paid = [(variable, math.floor(cost * self.unit)) for variable, cost in terms]
        self.model.minimize(cp_model.LinearExpr.weighted_sum([v for v, n in paid if n], [n for _, n in paid if n]))

    def _bool(self, hint: bool) -> Any:
        variable = self.model.new_bool_var("")
        self.model.add_hint(variable, hint)
        return variable

    def _choices(self, single: Sequence[bool]) -> None:
        by_shard: dict[Shard, list[int]] = {}
        for c, choices in enumerate(self.problem.choices):
            for s, choice in enumerate(choices):
                if choice.cost <= self.limit:
                    self.x[c, s] = self._bool((c, s) in self.computed)
                    by_shard.setdefault((c, choice.out), []).append(s)
            if single[c]:
                self.model.add_at_most_one([self.x[c, s] for s in range(len(choices)) if (c, s) in self.x])
        for shard, some in by_shard.items():
            c = shard[0]
            if len(some) == 1:
                self.made[shard] = self.x[c, some[0]]
                continue
            self.made[shard] = self._bool(any((c, s) in self.computed for s in some))
            self.model.add_exactly_one([*(self.x[c, s] for s in some), self.made[shard].negated()])

    def _needs(self) -> None:
        model, conversions = self.model, self.problem.conversions
        outs: dict[int, list[int]] = {}
        for c, p in self.made:
            outs.setdefault(c, []).append(p)
        users: dict[Shard, list[Shard]] = {}
        for c, s in self.x:
            for need in self.problem.choices[c][s].needs:
                users.setdefault(need, []).append((c, s))
        roots = set(self.problem.roots)
        for need in dict.fromkeys([*self.problem.roots, *users]):
            a, q = need
            sources = [self.made[need]] if need in self.made else []
            for p in outs.get(a, ()):
                if p != q and conversions[a][p, q] <= self.limit:
                    self.r[a, p, q] = r = self._bool((a, p, q) in self.converted)
                    model.add_implication(r, self.made[a, p])
                    sources.append(r)
            if need in roots:
                model.add_bool_or(sources)
            elif len(users[need]) == 1:
                model.add_bool_or([*sources, self.x[users[need][0]].negated()])
            else:
                there = self._bool(any(user in self.computed for user in users[need]))
                for user in users[need]:
                    model.add_implication(self.x[user], there)
                model.add_bool_or([*sources, there.negated()])

    def _order(self) -> None:
        inside: dict[int, int] = {}
        for c, _ in self.made:
            inside[self.circles[c]] = inside.get(self.circles[c], 0) + 1
        when = self._ready()
        times: dict[Shard, Any] = {}

        def at(shard: Shard) -> Any:
            if shard not in times:
                times[shard] = self.model.new_int_var(0, inside.get(self.circles[shard[0]], 0), "")
                self.model.add_hint(times[shard], when.get(shard, 0))
            return times[shard]

        for (c, s), x in self.x.items():
            if self.circles[c] >= 0:
                choice = self.problem.choices[c][s]
                for need in choice.needs:
                    if self.circles[need[0]] == self.circles[c]:
                        self.model.add(at((c, choice.out)) >= at(need) + 1).only_enforce_if(x)
        for (c, p, q), r in self.r.items():
            if self.circles[c] >= 0:
                self.model.add(at((c, q)) >= at((c, p))).only_enforce_if(r)

    def _ready(self) -> dict[Shard, int]:
        """When, counted in choices of its circle, each shard of a circle is there in the plan known."""
        waiting = [(c, self.problem.choices[c][s]) for c, s in sorted(self.computed) if self.circles[c] >= 0]
        when: dict[Shard, int] = {}
        while waiting:
            later = []
            for c, choice in waiting:
                needs = [need for need in choice.needs if self.circles[need[0]] == self.circles[c]]
                if all(need in when for need in needs):
                    when[c, choice.out] = turn = max((when[need] + 1 for need in needs), default=0)
                    when.update({(c, q): turn for a, p, q in self.converted if (a, p) == (c, choice.out)})
                else:
                    later.append((c, choice))
            if len(later) == len(waiting):
                break
            waiting = later
        return when
