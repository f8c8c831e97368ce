"""The selection problem of one block: its values at placements, its ops' offers, and the costs of resharding values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eggshard.planner.encoding.candidates import kept_choices
from eggshard.planner.pipeline import until_settled
from eggshard.program.placement import Placement
from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Choice, Problem, Selection
from eggshard.shardy.reshards.search.context import Context
from eggshard.shardy.reshards.search.offers import (
    BARRIER,
    IDENTITIES,
    Held,
    Offer,
    barrier_offers,
    has_effects,
    plain_offers,
)

Shard = tuple[int, int]
#: Ops that hold no value and ask for nothing once propagation is over.
HINTS = ("sdy.sharding_group",)
#: With more choices than these, only some candidate placements of each value are kept (`Limits.placements`).
MANY_CHOICES = 20_000
#: The ways to compute an op that has blocks of its own; None for any other op.
Nested = Callable[[Context, Any], list[Offer] | None]


class Made(NamedTuple):
    """A choice's tag: an op by one of its offers, or one result of an op whose results come together (or apart)."""

    op: int
    offer: Offer
    result: int = -1


@dataclass
class BlockPlan:
    """Where the ops of a block are computed and what is converted; the decisions, not their spelling.

    made: per op of the block, by number, the offers chosen, none for ops that nothing needs. source: per value and
    placement at which it is computed, the op and which of its chosen offers. converted: per such value and placement
    the placements that it is converted to. taken: values that ops or the block's end take at a placement. ends: where
    what the block returns lies. alias: the value that a hint's result is. A barrier's results have no offer (-1).
    """

    context: Context
    block: Any
    seconds: float
    inputs: list[Held]
    ends: tuple[Placement, ...]
    alias: dict[Any, Any]
    made: list[list[Offer]]
    source: dict[Held, tuple[int, int]] = field(default_factory=dict)
    converted: dict[Held, list[Placement]] = field(default_factory=dict)
    taken: set[Held] = field(default_factory=set)


def plan_block(
    context: Context, block: Any, inputs: Mapping[Any, Placement], ends: Sequence[Sequence[Placement]], nested: Nested,
    times: int = 1,
) -> BlockPlan:
    """The cheapest plan found for a block whose arguments and outer values lie so, and each of whose results is wanted
    at one of its placements. LimitError if there is none.

    times: how often the block runs. What it converts of outer values is converted before, once: then they are inputs
    of the plan at other placements, and their conversions no part of its price.
    """
    return _Builder(context, block, dict(inputs), ends, nested, times).plan()


class _Builder:
    def __init__(self, context: Context, block: Any, inputs: dict[Any, Placement],
                 ends: Sequence[Sequence[Placement]], nested: Nested, times: int):
        self.context, self.block, self.inputs, self.ends, self.nested = context, block, inputs, ends, nested
        self.times = times
        self.outer = {v for v in inputs if v not in set(block.arguments)} if times > 1 else set()
        self.ops = [op.operation for op in block.operations]
        self.alias: dict[Any, Any] = {}
        self.number: dict[Any, int] = {}
        self.values: list[Any] = []
        self.partial_sums: list[set[str]] = []
        self.choices: list[list[Choice]] = []
        self.placements: list[list[Any]] = []
        self.index: list[dict[Any, int]] = []

    def plan(self) -> BlockPlan:
        context = self.context
        roots: list[Shard] = []
        for value, placement in self.inputs.items():
            c = self._class(value, {placement.monoid} if placement.partial else None)
            self.choices[c].append(Choice(self._shard(c, placement), 0.0, ()))
        *ops, terminator = self.ops
        for i, op in enumerate(ops):
            if op.name in IDENTITIES:
                self.alias[op.results[0]] = self.root(op.operands[0])
            elif op.name == BARRIER:
                self._barrier(i, op)
            elif op.name not in HINTS:
                roots += self._op(i, op)
        ends = [self._class_of(v) for v in terminator.operands]
        for c, options in zip(ends, self.ends, strict=True):
            needs = [(c, self._shard(c, p)) for p in options]
            if len(needs) > 1:
                c = self._class(None)
                self.choices[c] = [Choice(self._shard(c, None), 0.0, (need,)) for need in needs]
                needs = [(c, 0)]
            roots.append(needs[0])
        problem = self._problem(roots)
        limits = context.limits
        work, deadline = 1.0 + 10 * limits.seconds_per_node * len(self.ops), context.deadline
        problem, found = until_settled(
            problem,
            lambda now: extract(now, seconds=work, gap=limits.gap, most=work + limits.patience,
                                deadline=deadline.at).selection,
            self._without_second_ways)
        deadline.ends("select")
        return self._decided(problem, found, roots[len(roots) - len(ends):], terminator)

    def _without_second_ways(self, problem: Problem, found: Selection) -> Problem | None:
        """The problem in which an op with blocks is not computed in several ways; None where none of the found is."""
        twice = self._computed_twice(problem, found)
        if not twice:
            return None
        choices = [[made[i] for i in twice.get(c, range(len(made)))] for c, made in enumerate(problem.choices)]
        return Problem(choices, problem.conversions, problem.roots)

    def _computed_twice(self, problem: Problem, found: Selection) -> dict[int, list[int]]:
        """The classes of ops with blocks of their own that are computed in several ways, and the cheapest of these."""
        out = {}
        for c, chosen in found.chosen.items():
            tag = problem.choices[c][chosen[0]].tag
            several = len(chosen) > 1 and isinstance(tag, Made) and tag.result < 0
            if several and len(self.ops[tag.op].regions):
                out[c] = [min(chosen, key=lambda i: problem.choices[c][i].cost)]
        return out

    def root(self, value: Any) -> Any:
        """The value that a hint's result is; itself for any other."""
        return self.alias.get(value, value)

    # -- the problem -------------------------------------------------------------------------------------------------

    def _class(self, value: Any, partial_sums: set[str] | None = None) -> int:
        self.values.append(value)
        self.partial_sums.append(partial_sums or set())
        self.choices.append([])
        self.placements.append([])
        self.index.append({})
        if value is not None:
            self.number[value] = len(self.values) - 1
        return len(self.values) - 1

    def _class_of(self, value: Any) -> int:
        return self.number[self.root(value)]

    def _shard(self, c: int, placement: Any) -> int:
        known = self.index[c].get(placement)
        if known is None:
            known = self.index[c][placement] = len(self.placements[c])
            self.placements[c].append(placement)
        return known

    def _op(self, i: int, op: Any) -> list[Shard]:
        """The classes and choices of an op; what of it must be computed in any case."""
        operands = [self._class_of(v) for v in op.operands]
        offers, made = self.nested(self.context, op), [set[str]() for _ in op.results]
        if offers is None:
            offers, made = plain_offers(self.context, op, [self.partial_sums[c] for c in operands])
        single = len(op.results) == 1
        own = self._class(op.results[0] if single else None, made[0] if single else None)
        for offer in offers:
            asked = [*zip(operands, offer.operands, strict=True), *((self._class_of(v), p) for v, p in offer.captured)]
            needs = tuple(dict.fromkeys((c, self._shard(c, p)) for c, p in asked))
            out = self._shard(own, offer.results[0] if single else offer.results)
            self.choices[own].append(Choice(out, offer.seconds, needs, Made(i, offer)))
        for n, value in enumerate(op.results if not single else ()):
            c = self._class(value, made[n])
            for number, placed in enumerate(self.placements[own]):
                tag = Made(i, Offer((), placed, 0.0), n)
                self.choices[c].append(Choice(self._shard(c, placed[n]), 0.0, ((own, number),), tag))
        if not has_effects(self.context, op):
            return []
        self.choices[own] = self.choices[own][:1]
        return [(own, self.choices[own][0].out)]

    def _barrier(self, i: int, op: Any) -> None:
        """Add a barrier's choices, one value at a time: the values' placements do not depend on one another."""
        for n, (operand, result) in enumerate(zip(op.operands, op.results, strict=True)):
            source = self._class_of(operand)
            c = self._class(result, self.partial_sums[source])
            for offer in barrier_offers(self.context, self.context.type(result)):
                if offer.operands[0].partial and not self.partial_sums[source]:
                    continue
                needs = ((source, self._shard(source, offer.operands[0])),)
                self.choices[c].append(Choice(self._shard(c, offer.results[0]), 0.0, needs, Made(i, offer, n)))

    def _problem(self, roots: list[Shard]) -> Problem:
        limits = self.context.limits
        choices = self.choices
        tables: dict[Any, np.ndarray] = {}
        conversions = []
        for value, placements in zip(self.values, self.placements, strict=True):
            type_ = None if value is None else self.context.type(value)
            key = type_, tuple(placements)
            if key not in tables:
                alone = np.where(np.eye(len(placements), dtype=bool), 0.0, np.inf)
                tables[key] = alone if type_ is None else self.context.conversions.table(type_, placements)
            conversions.append(tables[key] / self.times if value in self.outer else tables[key])
        problem = Problem(choices, conversions, roots)
        many = sum(map(len, choices)) > MANY_CHOICES
        if many and max(map(len, self.placements), default=0) > limits.placements:
            pinned = [*roots, *((c, x.out) for c, made in enumerate(choices) for x in made if not x.needs)]
            pinned += [need for made in choices for x in made if x.tag is None for need in x.needs]
            pinned += self._stated()
            problem.choices = kept_choices(problem, self.placements, pinned, limits.placements)
        return problem

    def _stated(self) -> list[Shard]:
        """Where the module states that values lie: candidates that are never left out."""
        found = []
        for value, c in self.number.items():
            sharding = self.context.module.sharding(value)
            if sharding is not None:
                placement = self.context.placement(sharding, self.context.type(value))
                if placement in self.index[c]:
                    found.append((c, self.index[c][placement]))
        return found

    # -- the decision ------------------------------------------------------------------------------------------------

    def _decided(self, problem: Problem, selection: Selection, ends: Sequence[Shard], terminator: Any) -> BlockPlan:
        plan = BlockPlan(self.context, self.block, selection.cost, [], (), self.alias, [[] for _ in self.ops])
        delivered: list[Shard] = []
        for c, number in ends:
            if self.values[c] is None and problem.choices[c] and problem.choices[c][0].tag is None:
                (i,) = selection.chosen[c]
                ((c, number),) = problem.choices[c][i].needs
            delivered.append((c, number))
        plan.ends = tuple(self.placements[c][number] for c, number in delivered)
        taken = set(delivered)
        version: dict[Shard, int] = {}
        for c in sorted(selection.chosen):
            for number in selection.chosen[c]:
                choice = problem.choices[c][number]
                taken.update(choice.needs)
                tag = choice.tag
                if not isinstance(tag, Made):
                    continue
                if tag.result < 0:
                    version.setdefault((c, choice.out), len(plan.made[tag.op]))
                    plan.made[tag.op].append(tag.offer)
                    if self.values[c] is not None:
                        plan.source[self.values[c], self.placements[c][choice.out]] = tag.op, version[c, choice.out]
                elif self.ops[tag.op].name == BARRIER:
                    plan.source[self.values[c], self.placements[c][choice.out]] = tag.op, -1
                else:
                    placed = self.values[c], self.placements[c][choice.out]
                    plan.source[placed] = tag.op, version[choice.needs[0]]
        plan.taken = {(self.values[c], self.placements[c][p]) for c, p in taken if self.values[c] is not None}
        for c, p, q in selection.conversions:
            key = self.values[c], self.placements[c][p]
            if key[0] in self.outer:
                plan.inputs.append((key[0], self.placements[c][q]))
                plan.seconds -= problem.conversions[c][p, q]
            else:
                plan.converted.setdefault(key, []).append(self.placements[c][q])
        for held in self.inputs.items():
            if held[0] not in self.outer or held in plan.taken:
                plan.inputs.append(held)
        return plan
