"""The no-recomputation bound by dual ascent: near the linear program's, without a solver, in time that grows as the
flows.

A plan that computes no class twice gives every class one label: the choice that computes it, or absence where not
every plan computes the class. Slot m (one operand a of a consumer) pays for what it takes. Slots of which no plan uses
two (`exclusive`: mutually exclusive uses) are one group g. The dual variables (multipliers) are what class a charges
it, charge[p, g] for being made at p, and share[p, k] for the conversion to need k, where the shares of all groups in
one conversion add up to its cost at most. So the group has its need at the least charge[p, g] + share[p, k] over p, and
nothing at the least charge[p, g]; what its slots pay that are not used, none[m], and what the used one pays, price[k],
add up to that. No such plan costs less than

    the sum over classes of their least slack[s] = cost[s] + what its slots pay - charges to groups at its out,

roots being classes of one label; the slack is the label's reduced cost. For in a plan every charge is paid and received
once and cancels, and the shares in the prices are parts of the conversions that the plan pays. An absent class is made
nowhere and uses no slot.

The charges and shares of one class at a time are set to the best for all others as they are, the classes in order up
and down (block coordinate ascent; the weights are those of Kolmogorov, "A new look at reweighted message passing",
PAMI 2015): on the way up a class hands what it is worth to its consumers, on the way down to its operands. Ascent on
minima gets stuck short of the optimum, so they are softened by a temperature that falls (Savchynskyy et al., "Efficient
MRF energy minimization via adaptive diminishing smoothing", UAI 2012). Any charges and shares prove a bound: the
temperature says only which ones are found.

In a cycle some class comes after a consumer. On the way up its turn is when the consumer has given away what it has,
on the way down before the consumer has anything to give, and what passes between them would never be weighed. So at the
end of each way the two have another turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eggshard.selection.bounds.balancing import balance
from eggshard.selection.bounds.batches import batches
from eggshard.selection.bounds.charges import CAP, Block, ClassUses
from eggshard.selection.bounds.exclusive import Context, contexts, groups, within
from eggshard.selection.graph import Graph

#: The first and the last temperature, times the number of classes and relative to cost, and the factor between rounds.
HOT, COLD, COOLING = 1.0, 2e-3, 0.75
#: Rounds between checks of the bound, and the relative rise per round below which ascent ends
#: (`python -m bench extraction`).
CHECK, STALLED = 4, 1.25e-4


class _Slot(NamedTuple):
    """One operand of one consumer: {placement: labels that need it}, the labels that do not, and what is known then."""

    consumer: int
    needs: dict[int, list[int]]
    rest: list[int]
    context: Context


class Dual:
    """Charges and shares of one problem, ascending; ``incumbent`` > 0 is the cost of a known plan.

    Every plan that computes no class twice costs at least ``bound``, or at least the incumbent's cost. In an
    ``averaged`` problem, one of whose choices may stand for some of the layers of a plan only, what costs more than the
    incumbent is not left out, but counts as if it cost as much. ``essential``: classes that every plan computes, if not
    the graph's. ``order``: of all classes, if not the graph's, which is any in cycles.
    """

    def __init__(
        self, graph: Graph, incumbent: float, *, averaged: bool = False, essential: Sequence[int] | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        self.graph = graph
        self.order = graph.order if order is None else order
        self.essential = graph.essential if essential is None else essential
        self.unit = incumbent
        #: What a label or a conversion counts for at most.
        self.most = 1.0 - 1e-9 if averaged else CAP
        self.bound = 0.0
        self._label()
        #: How every class that is needed is used, and its slots, by class.
        self.used: dict[int, ClassUses] = {}
        self._slots_of: dict[int, list[_Slot]] = {}
        self._lay_out()
        #: Classes that change at once, in the order of classes; by class the block, and the class alone.
        self.blocks = [Block(some) for some in batches(list(self.used.values()))]
        self._block = {uses.number: block for block in self.blocks for uses in block.classes}
        self._part: dict[int, Block] = {}
        place = {c: i for i, c in enumerate(self.live)}
        #: The classes that come after some consumer of theirs, and these consumers.
        against = [(slot.consumer, a) for a, slots in self._slots_of.items() for slot in slots
                   if slot.consumer >= 0 and place[slot.consumer] <= place[a]]
        self.late = [self.part(c) for c in self.used if any(c == a for _, a in against)]
        self.early = [self.part(c) for c in self.used if any(c == b for b, _ in against)]
        self.slack = self.cost.copy()
        for block in self.blocks:
            np.add.at(self.slack, block.users, block.state.price[block.needs.segment])

    def part(self, c: int) -> Block:
        """One class alone, in the memory of its block."""
        if c not in self._part:
            self._part[c] = self._block[c].part(c)
        return self._part[c]

    # -- layout ------------------------------------------------------------------------------------------------------

    def _label(self) -> None:
        """Number the labels: of each class its finite choices by out, then absence; last the roots."""
        problem, essential = self.graph.problem, set(self.essential)
        self.live = [c for c in self.order if any(s.cost < math.inf for s in problem.choices[c])]
        #: kept[c]: the choices behind the labels of class c, which begin at first[c]; optional: absence follows them.
        self.kept: dict[int, list[int]] = {}
        self.first: dict[int, int] = {}
        self.optional = {c for c in self.live if c not in essential}
        cost: list[float] = []
        self.ends: list[int] = []  # the first label of every class
        for c in self.live:
            choices = problem.choices[c]
            some = sorted((s for s in range(len(choices)) if choices[s].cost < math.inf),
                          key=lambda s: (choices[s].out, s))
            self.kept[c], self.first[c] = some, len(cost)
            self.ends.append(len(cost))
            cost += [min(choices[s].cost / self.unit, self.most) for s in some]
            cost += [0.0] * (c in self.optional)
        self.root = len(cost)
        self.ends += range(self.root, self.root + len(problem.roots))
        self.cost = np.array(cost + [0.0] * len(problem.roots), float)

    def _slots(self) -> dict[int, list[_Slot]]:
        """What uses every class, in the order of consumers."""
        problem, known = self.graph.problem, contexts(self.graph)
        found: dict[int, dict[tuple[int, int], dict[int, list[int]]]] = {a: {} for a in self.live}
        slots: dict[int, list[_Slot]] = {a: [] for a in self.live}
        for c in self.live:
            mine: dict[tuple[int, int], dict[int, list[int]]] = {}
            begin = self.first[c]
            for label, s in enumerate(self.kept[c], begin):
                seen: dict[int, int] = {}
                for a, q in problem.choices[c][s].needs:
                    if a not in found:  # nothing computes it
                        self.cost[label] = CAP
                        continue
                    k = seen.get(a, 0)
                    seen[a] = k + 1
                    mine.setdefault((a, k), {}).setdefault(q, []).append(label)
            labels = range(begin, begin + len(self.kept[c]) + (c in self.optional))
            for (a, _), needs in mine.items():
                used = {label for some in needs.values() for label in some}
                choices = sum(1 << self.kept[c][label - begin] for label in used)
                slots[a].append(_Slot(c, needs, [label for label in labels if label not in used],
                                      within(known[c], c, choices)))
        for i, (a, q) in enumerate(problem.roots):
            slots[a].append(_Slot(-1, {q: [self.root + i]}, [], {}))
        return slots

    def _lay_out(self) -> None:
        """Find how classes are used, in the order of classes."""
        problem = self.graph.problem
        slots = self._slots()
        asked: dict[int, int] = {}  # per consumer: the slots whose operands come up to here
        for a in self.live:
            if not slots[a]:  # nothing needs it, and so no charge has anything to balance
                continue
            kept, optional = self.kept[a], a in self.optional
            outs = sorted({problem.choices[a][s].out for s in kept})
            number = {p: i for i, p in enumerate(outs)}
            out = [number[problem.choices[a][s].out] for s in kept] + [len(outs)] * optional
            grouped = [[slots[a][i] for i in group] for group in groups([slot.context for slot in slots[a]])]
            some = [slot for group in grouped for slot in group]
            members = [g for g, group in enumerate(grouped) for _ in group]
            columns = {q: i for i, q in enumerate(sorted({q for slot in some for q in slot.needs}))}
            matrix = np.full((len(outs) + optional, len(columns)), CAP)
            table = problem.conversions[a][np.ix_(outs, list(columns))] / self.unit
            matrix[: len(outs)] = np.where(table < math.inf, np.minimum(table, self.most), CAP)
            if self.most == CAP:
                matrix[matrix >= 1.0] = CAP
            cells = sorted({(g, q) for g, group in enumerate(grouped) for slot in group for q in slot.needs})
            number_of = {cell: i for i, cell in enumerate(cells)}
            needs = sorted((number_of[members[m], q], m, labels) for m, slot in enumerate(some)
                           for q, labels in slot.needs.items())
            idle = [m for m, slot in enumerate(some) if slot.rest]
            here: dict[int, int] = {}
            for slot in some:
                here[slot.consumer] = here.get(slot.consumer, 0) + 1
                if slot.consumer >= 0:
                    asked[slot.consumer] = asked.get(slot.consumer, 0) + 1
            up, down = (
                np.array([min(1.0 / of[slot.consumer] if slot.consumer >= 0 else 1.0 for slot in group)
                          for group in grouped]) for of in (here, asked))
            self._slots_of[a] = some
            self.used[a] = ClassUses(
                a, self.first[a], out, matrix, list(columns), [g for g, _ in cells], [columns[q] for _, q in cells],
                [j for j, _, _ in needs], [m for _, m, _ in needs], [labels for _, _, labels in needs], members, idle,
                [some[m].rest for m in idle], up, down)

    # -- ascent ------------------------------------------------------------------------------------------------------

    def ascend(
        self, hot: float = HOT, rounds: int = 60, each: Callable[[], float] = float, check: int = CHECK
    ) -> Iterator[float]:
        """Raise the bound; after every ``check`` rounds what it is then, as a part of the incumbent's cost.

        ``hot``: the first temperature. ``each`` is called after each round, and what it returns added to what is
        yielded. Ends when that hardly rises any more.
        """
        scale = max(1, len(self.used))
        before = -math.inf
        for i in range(rounds):
            temperature = max(hot * COOLING**i, COLD) / scale
            self._round(temperature)
            more = each()
            if i % check == check - 1 or i == rounds - 1:
                now = self.evaluate() + more
                yield now
                if now - before < STALLED * check:
                    return
                before = now

    def _round(self, temperature: float) -> None:
        """Down and up once."""
        for block in (*reversed(self.blocks), *reversed(self.late)):
            balance(self.slack, block, False, temperature)
        for block in (*self.blocks, *self.early):
            balance(self.slack, block, True, temperature)

    def decoded(
        self, held: Mapping[int, int] = {}, wanted: Sequence[tuple[int, int]] = (), rounds: int = 0
    ) -> dict[int, tuple[int, ...]]:
        """Choices of a plan, consumers first; what has been chosen changes the prices for those who share operands.

        Prices alone tell two consumers of a value nothing of one another: where the same is available in several ways
        they would choose different ones. ``held``: choices of some classes, to which the others first adapt in so many
        ``rounds``. ``wanted``: shards to be delivered beside the roots.
        """
        slack, states = self.slack, [block.state.copy() for block in self.blocks]
        self.slack = self.slack.copy()
        try:
            for c, s in held.items():
                first = self.first[c]
                self.slack[first : first + len(self.kept[c])] += CAP * (np.array(self.kept[c]) != s)
            for _ in range(rounds):
                self._round(COLD / max(1, len(self.used)))
            return self._decode(wanted)
        finally:
            self.slack = slack
            for block, state in zip(self.blocks, states, strict=True):
                block.state.restore(state)

    def _decode(self, more: Sequence[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
        problem, temperature = self.graph.problem, COLD / max(1, len(self.used))
        charged = np.zeros(len(self.cost))
        for block in self.blocks:
            charged[block.labels] = block.at_labels(block.charged(block.state.charge))
        wanted: dict[int, dict[int, None]] = {c: {} for c in self.live}
        for c, q in (*problem.roots, *more):
            wanted[c][q] = None
        undecided = {a: {slot.consumer for slot in slots} - {-1} for a, slots in self._slots_of.items()}
        chosen: dict[int, tuple[int, ...]] = {}
        for c in reversed(self.live):
            first, some = self.first[c], self.kept[c]
            labels = slice(first, first + len(some) + (c in self.optional))
            total = self.slack[labels].copy()
            total += charged[labels]
            outs = [problem.choices[c][s].out for s in some]
            if wanted[c]:
                total[: len(some)] += problem.conversions[c][np.ix_(outs, list(wanted[c]))].sum(axis=1) / self.unit
                total[len(some) :] = math.inf
            elif c in self.optional:
                total[: len(some)] = math.inf
            best = int(np.argmin(total))
            self.slack[labels] += CAP * (np.arange(len(total)) != best)
            if best == len(some):
                continue
            chosen[c] = (some[best],)
            for a, q in problem.choices[c][some[best]].needs:
                wanted[a][q] = None
                if undecided[a] - {c}:  # others may use it yet
                    part = self.part(a)
                    balance(self.slack, part, True, temperature)
                    charged[part.labels] = part.at_labels(part.charged(part.state.charge))
                undecided[a].discard(c)
        return chosen

    def paid(self, consumer: int, operand: int) -> tuple[float, dict[int, float]] | None:
        """What a class that always uses an operand pays for it: the least charge, and the price per placement.

        None where the charge is not for this use alone, or where the class may do without.
        """
        uses = self._uses(consumer, operand)
        if len(uses) != 1:
            return None
        (m,) = uses
        used, part = self.used[operand], self.part(operand)
        group = used.members[m]
        if m in used.idle or used.members.count(group) > 1:
            return None
        price, _ = part.prices()
        needs = np.flatnonzero(part.slot == m)
        prices = {used.placements[used.columns[used.cells[k]]]: float(price[k]) * self.unit for k in needs.tolist()}
        return self._least_charge(part, group) * self.unit, prices

    def _uses(self, consumer: int, operand: int) -> list[int]:
        """The slots that are a class's own uses of an operand."""
        return [m for m, slot in enumerate(self._slots_of.get(operand, ())) if slot.consumer == consumer]

    @staticmethod
    def _least_charge(part: Block, group: int) -> float:
        return float(part.state.charge[part.by_group.segment == group].min())

    def reprice(self, c: int, choices: Sequence[int], costs: Sequence[float]) -> None:
        """Give choices of a class other costs, with the charges and shares as they are."""
        position = {s: self.first[c] + i for i, s in enumerate(self.kept[c])}
        labels = _array(position[s] for s in choices)
        new = np.array(costs, float) / self.unit
        self.slack[labels] += new - self.cost[labels]
        self.cost[labels] = new

    def most_paid(self, consumer: int, operand: int) -> float:
        """What a class pays at most for an operand, over what it pays without (or the operand is paid at least)."""
        found = 0.0
        for m in self._uses(consumer, operand):
            used, part = self.used[operand], self.part(operand)
            price, none = part.prices()
            least = float(none[m]) if m in used.idle else self._least_charge(part, used.members[m])
            found += float(price[part.slot == m].max()) - least
        return found * self.unit

    def evaluate(self) -> float:
        """The bound that the charges and shares prove."""
        found = math.fsum(np.minimum.reduceat(self._slack(), self.ends).tolist())
        self.bound = max(self.bound, min(1.0, found - 1e-9) * self.unit)
        return found

    def _slack(self) -> np.ndarray:
        """Per label its reduced cost: what it costs and pays, less what its class is paid at its out."""
        slack = self._charged()
        for block in self.blocks:
            slack[block.labels] -= block.at_labels(block.charged(block.state.charge))
        return slack

    def _charged(self) -> np.ndarray:
        """Per label its cost and what it pays for its needs, exact."""
        slack = self.cost.copy()
        for block in self.blocks:
            price, none = block.prices()
            np.add.at(slack, block.users, price[block.needs.segment])
            np.add.at(slack, block.rest, none[block.idle][block.rests.segment])
        return slack


def _array(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), np.int64)
