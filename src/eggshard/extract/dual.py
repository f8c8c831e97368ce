"""A lower bound by dual ascent: near the linear program's, without a solver, in time that grows as the flows.

A plan that computes no class twice gives every class one label: the choice that computes it, or absence where not
every plan computes the class. Slot g (one operand a of a consumer) pays for what it takes: class a charges it
charge[p, g] for being made at p, and share[p, k] for the conversion to its need k, where the shares of all slots in one
conversion add up to its cost at most. So it has its need at price[k], the least charge[p, g] + share[p, k] over p, and
no such plan costs less than

    the sum over classes of their least slack[s] = cost[s] + prices of its needs - charges to its consumers at its out,

roots being classes of one label. For in a plan every charge is paid and received once and cancels, and the shares in
the prices are parts of the conversions that the plan pays. An absent class is made nowhere and needs nothing; from
every placement "not needed" is free.

The charges and shares of one class at a time are set to the best for all others as they are, the classes in order up
and down (block coordinate ascent; the weights are those of Kolmogorov, "A new look at reweighted message passing",
PAMI 2015): on the way up a class hands what it is worth to its consumers, on the way down to its operands. Ascent on
minima gets stuck short of the optimum, so they are softened by a temperature that falls (Savchynskyy et al., "Efficient
MRF energy minimization via adaptive diminishing smoothing", UAI 2012). Any charges and shares prove a bound: the
temperature says only which ones are found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from eggshard.extract.graph import Graph

#: What no plan cheaper than the incumbent pays costs this in units of the incumbent, for every slot alone.
CAP = 2.0
#: The first and the last temperature, both over the number of classes, and the factor between two rounds.
HOT, COLD, COOLING = 0.5, 5e-3, 0.85
#: The bound is looked at every so many rounds, and ascent ends when it rose by less than this.
CHECK, STALLED = 3, 5e-4
#: It also ends where so many times the last rise would not bring the bound to this part of the incumbent, which may
#: itself be too dear. Rises shrink about as the temperature does, to a part of 0.6 each, so that all that come yet are
#: mostly less than twice the last one.
HOPE, NEAR = 6.0, 0.9


@dataclass
class _Class:
    """What one class charges its slots. P outs (absence last), L labels, G slots, K needs of all slots, U uses."""

    #: Labels of the class, ordered by out; out ``[L]`` and the first label of each out ``[P]``.
    labels: slice
    out: np.ndarray
    first: np.ndarray
    #: Scaled conversion costs ``[P, D]`` to the distinct needs; column ``[K]`` of each need.
    conversions: np.ndarray
    column: np.ndarray
    #: Needs by column: a permutation ``[K]`` and where each column starts ``[D]``.
    order: np.ndarray
    starts: np.ndarray
    #: slot ``[K]`` of each need, and the first need ``[G]`` of each slot.
    slot: np.ndarray
    slots: np.ndarray
    #: Labels ``[U]`` that use the class, by need: need ``[U]``, and the first use ``[K]`` of each need.
    users: np.ndarray
    need: np.ndarray
    uses: np.ndarray
    #: What a slot's consumer gives up on the way up and on the way down ``[G]``: it is asked by several operands.
    pull_up: np.ndarray
    pull_down: np.ndarray
    charge: np.ndarray = field(init=False)
    share: np.ndarray = field(init=False)
    price: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        count = np.bincount(self.column, minlength=self.conversions.shape[1])
        split = np.where(self.conversions < 1.0, self.conversions / count, self.conversions)
        self.charge = np.zeros((len(self.first), len(self.slots)))
        self.share = split[:, self.column]
        self.price = self.share.min(axis=0)

    def prices(self) -> np.ndarray:
        """``[K]``, exact."""
        found: np.ndarray = (self.charge[:, self.slot] + self.share).min(axis=0)
        return found


class Dual:
    """Charges and shares of one problem, ascending; ``incumbent`` > 0 is the cost of a known plan.

    Every plan that computes no class twice costs at least ``bound``, or at least the incumbent's cost.
    """

    def __init__(self, graph: Graph, incumbent: float) -> None:
        self.graph = graph
        self.unit = incumbent
        self.bound = 0.0
        self._label()
        self.classes = list(self._lay_out())
        self.slack = self.cost.copy()
        for entry in self.classes:
            np.add.at(self.slack, entry.users, entry.price[entry.need])

    # -- layout ------------------------------------------------------------------------------------------------------

    def _label(self) -> None:
        """Number the labels: of each class its finite choices by out, then absence; last the roots."""
        problem, essential = self.graph.problem, set(self.graph.essential)
        self.live = [c for c in self.graph.order if any(s.cost < math.inf for s in problem.choices[c])]
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
            cost += [min(choices[s].cost / self.unit, CAP) for s in some]
            cost += [0.0] * (c in self.optional)
        self.root = len(cost)
        self.ends += range(self.root, self.root + len(problem.roots))
        self.cost = np.array(cost + [0.0] * len(problem.roots))

    def _slots(self) -> dict[int, list[tuple[int, int, dict[int, list[int]]]]]:
        """slots[a]: (consumer, occurrence, {need: labels}) in the order of consumers; -1 is not needed."""
        problem = self.graph.problem
        found: dict[int, dict[tuple[int, int], dict[int, list[int]]]] = {a: {} for a in self.live}
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
            for (a, k), needs in mine.items():
                if sum(map(len, needs.values())) < len(labels):
                    used = {label for some in needs.values() for label in some}
                    needs[-1] = [label for label in labels if label not in used]
                found[a][c, k] = needs
        for i, (a, q) in enumerate(problem.roots):
            found[a][-1, i] = {q: [self.root + i]}
        return {a: [(c, k, needs) for (c, k), needs in some.items()] for a, some in found.items()}

    def _lay_out(self) -> Iterator[_Class]:
        problem = self.graph.problem
        slots = self._slots()
        asked: dict[int, int] = {}  # per consumer: the slots whose operands come up to here
        for a in self.live:
            kept, optional = self.kept[a], a in self.optional
            outs = sorted({problem.choices[a][s].out for s in kept})
            number = {p: i for i, p in enumerate(outs)}
            out = [number[problem.choices[a][s].out] for s in kept] + [len(outs)] * optional
            some = slots[a]
            if not some:  # nothing needs it, and so no charge has anything to balance
                continue
            needs = sorted({q for _, _, by_need in some for q in by_need})
            columns = {q: i for i, q in enumerate(needs)}
            matrix = np.full((len(outs) + optional, len(needs)), CAP)
            real = [q for q in needs if q >= 0]
            matrix[: len(outs), len(needs) - len(real):] = np.minimum(
                problem.conversions[a][np.ix_(outs, real)] / self.unit, CAP)
            if len(real) < len(needs):
                matrix[:, 0] = 0.0
            matrix[(matrix >= 1.0) & (matrix < CAP)] = CAP
            users = [(g, q, labels) for g, (_, _, by_need) in enumerate(some) for q, labels in by_need.items()]
            column = np.array([columns[q] for _, q, _ in users], np.int64)
            slot = np.array([g for g, _, _ in users], np.int64)
            lengths = [len(labels) for _, _, labels in users]
            order = np.argsort(column, kind="stable")
            here: dict[int, int] = {}
            for c, _, _ in some:
                here[c] = here.get(c, 0) + 1
                if c >= 0:
                    asked[c] = asked.get(c, 0) + 1
            begin = self.first[a]
            yield _Class(
                slice(begin, begin + len(out)), np.array(out, np.int64),
                np.searchsorted(out, np.arange(len(outs) + optional)), matrix, column, order,
                np.searchsorted(column[order], np.arange(len(needs))), slot,
                np.searchsorted(slot, np.arange(len(some))),
                np.array([label for _, _, labels in users for label in labels], np.int64),
                np.repeat(np.arange(len(users)), lengths), np.cumsum([0, *lengths[:-1]]),
                np.array([1.0 / here[c] if c >= 0 else 1.0 for c, _, _ in some]),
                np.array([1.0 / asked[c] if c >= 0 else 1.0 for c, _, _ in some]))

    # -- ascent ------------------------------------------------------------------------------------------------------

    def ascend(self, gap: float, deadline: float, rounds: int = 60) -> bool:
        """Raise the bound until it is within ``gap`` of the incumbent, or no longer rises, or time is up.

        False where it ended because it will not come near.
        """
        scale = max(1, len(self.classes))
        before = -math.inf
        for i in range(rounds):
            temperature = max(HOT * COOLING**i, COLD) / scale
            for entry in reversed(self.classes):
                self._update(entry, entry.pull_down, 0.0, temperature)
            for entry in self.classes:
                self._update(entry, entry.pull_up, 1.0 / len(entry.slots), temperature)
            late = time.monotonic() > deadline
            if i % CHECK == CHECK - 1 or late:
                now = self.evaluate()
                rise = now - before
                if late or now >= 1.0 - gap or rise < STALLED:
                    return True
                if now + HOPE * rise < min(NEAR, 1.0 - gap):
                    return False
                before = now
        self.evaluate()
        return True

    def choice_costs(self) -> list[np.ndarray]:
        """Per class the cost of every choice (inf where left out) with its needs at their prices.

        On the way up prices tell consumers what their needs cost: with these instead of tree costs greedy decoding
        gives a plan.
        """
        slack = self.cost.copy()
        for entry in self.classes:
            np.add.at(slack, entry.users, entry.prices()[entry.need])
        found = [np.full(len(choices), math.inf) for choices in self.graph.problem.choices]
        for c in self.live:
            kept = self.kept[c]
            found[c][kept] = slack[self.first[c] : self.first[c] + len(kept)] * self.unit
        return found

    def evaluate(self) -> float:
        """The bound that the charges and shares prove."""
        slack = self.cost.copy()
        for entry in self.classes:
            np.add.at(slack, entry.users, entry.prices()[entry.need])
            slack[entry.labels] -= entry.charge.sum(axis=1)[entry.out]
        found = math.fsum(np.minimum.reduceat(slack, self.ends).tolist())
        self.bound = max(self.bound, min(1.0, found - 1e-9) * self.unit)
        return found

    def _update(self, entry: _Class, pull: np.ndarray, give: float, temperature: float) -> None:
        slack = self.slack
        own = _soft_min(slack[entry.labels], entry.first, entry.out, temperature)
        beside = _soft_min(slack[entry.users], entry.uses, entry.need, temperature) - entry.price
        best = _soft_min(entry.share + beside, entry.slots, entry.slot, temperature)
        if len(entry.slots) > 1:
            useful = np.maximum(best[:, entry.slot] - beside, 0.0)
            total = np.add.reduceat(useful[:, entry.order], entry.starts, axis=1)
            cost = entry.conversions
            with np.errstate(divide="ignore", invalid="ignore"):
                scale = np.where(total > cost, cost / total, 1.0)
            rest = np.maximum(cost - total, 0.0) / np.bincount(entry.column)
            share = useful * scale[:, entry.column] + rest[:, entry.column]
            entry.share = np.where((cost < CAP)[:, entry.column], share, CAP)
            best = _soft_min(entry.share + beside, entry.slots, entry.slot, temperature)
        taken = pull * (entry.charge + best)
        worth = own + taken.sum(axis=1)
        change = give * worth[:, None] - taken
        entry.charge += change
        slack[entry.labels] -= change.sum(axis=1)[entry.out]
        price = (entry.charge[:, entry.slot] + entry.share)
        least = price.min(axis=0)
        least -= temperature * np.log(np.exp((least - price) / temperature).sum(axis=0))
        np.add.at(slack, entry.users, (least - entry.price)[entry.need])
        entry.price = least


def _soft_min(values: np.ndarray, starts: np.ndarray, segment: np.ndarray, temperature: float) -> np.ndarray:
    """The soft minimum of every segment of the last axis: -temperature * log(sum of exp(-value / temperature))."""
    least = np.minimum.reduceat(values, starts, axis=-1)
    total = np.add.reduceat(np.exp((least[..., segment] - values) / temperature), starts, axis=-1)
    found: np.ndarray = least - temperature * np.log(total)
    return found
