"""Choices of shardings within a memory limit: at prices on bytes, and by holding less of one end after the other.

A choice is within a limit if a plan at it is: inputs, outputs and temporaries, as `eggshard.memory` predicts them. The
search for plans within a limit raises a price per byte (`memory.search`); here each price makes a choice of its own.
Prices find only what lies on the convex hull of cost and memory. What lies off it is found by branching at the last
price at which nothing fits: whatever holds less than a choice holds less of some end.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from eggshard.errors import LimitError
from eggshard.limits import Deadline
from eggshard.memory.prediction import memory_of
from eggshard.memory.search import in_strips_within, prices
from eggshard.plan.record import PlanRecord
from eggshard.planner.choosing.ends import Ends
from eggshard.planner.choosing.open_problem import OpenProblem
from eggshard.planner.choosing.preference import held_of
from eggshard.planner.repricing.memory_bound import Held
from eggshard.program.placement import Placement
from eggshard.program.program import Program
from eggshard.program.types import TensorType
from eggshard.selection import verify
from eggshard.selection.problem import IMPOSSIBLE, Problem, Selection

#: The most selections that branching makes, and plans that are made at them (`python -m bench auto_memory`).
_SELECTIONS, _PLANS = 40, 8
#: How many prices are tried between the last two, and how many plans in strips.
_HALVINGS, _STRIPPED = 3, 2
#: Relative cost above the cheapest plan's at which a plan within the limit is good enough to stop the search.
NEAR = 0.01


class PricedProblem:
    """An open problem in which bytes may have a price: those of the ends, and those that products and collectives
    write.

    least_held: bytes besides the inputs that its plans hold at least, if they do every step whole. inputs, outputs:
    their types. solved: the cheapest selection found of a problem.
    """

    def __init__(self, opened: OpenProblem, ends: Ends, inputs: Sequence[TensorType], outputs: Sequence[TensorType],
                 solved: Callable[[Problem], Selection]):
        self.problem, self.solved = opened.problem, solved
        # An output that is fed back lies where its input does: it is as many bytes more of the input's store.
        at = [*zip(opened.stores, inputs, strict=True)]
        at += [(opened.stores[ends.carried[o]] if o in ends.carried else opened.problem.roots[o][0], type_)
               for o, type_ in enumerate(outputs) if o in ends.carried or len(ends.outputs[o]) > 1]
        self.held = held_of(opened, at)
        self.least_held = Held(opened.graph, opened.encoding).least()
        self._written = _written(opened)

    def at(self, price: float) -> Problem:
        """The problem at a price in seconds per byte."""
        made, received = self._written
        charges = {c: price * bytes_made for c, bytes_made in enumerate(made)}
        for end, held in self.held.items():
            charges[end] = charges[end] + price * held
        choices = [[x._replace(cost=x.cost + float(more)) for x, more in zip(choices, charges[c], strict=True)]
                   for c, choices in enumerate(self.problem.choices)]
        conversions = [costs + price * more for costs, more in zip(self.problem.conversions, received, strict=True)]
        return replace(self.problem, choices=choices, conversions=conversions)

    def cheapest(self, price: float) -> Selection:
        """The cheapest selection found at a price."""
        return self.solved(self.at(price))

    def cost(self, selection: Selection) -> float:
        """What a selection costs where bytes cost nothing."""
        return verify.price(self.problem, selection)

    def branched(self, price: float, within: Callable[[Selection], bool]) -> Iterator[Selection]:
        """Selections at a price, the cheapest first: of each, others follow in which an end holds less, or, where what
        ends hold is within the limit and temporaries are not, lies elsewhere and holds no more."""
        problem = self.at(price)
        first = self.solved(problem)
        queue: list[tuple[float, int, dict[int, np.ndarray], Selection]] = [(first.cost, 0, {}, first)]
        seen: set[frozenset[tuple[int, bytes]]] = set()
        while queue:
            _, _, allowed, selection = heapq.heappop(queue)
            yield selection
            small = within(selection)
            chosen = [(held.min() - held[n], end, n) for end, held in self.held.items()
                      for n in selection.chosen.get(end, ())]
            for _, end, n in sorted(chosen):  # what may save most, first
                held = self.held[end]
                rest = held <= held[n] if small else held < held[n]
                rest[n] = False
                other = {**allowed, end: rest & allowed.get(end, True)}
                key = frozenset((end, mask.tobytes()) for end, mask in other.items())
                if not other[end].any() or key in seen or len(seen) == _SELECTIONS:
                    continue
                seen.add(key)
                try:
                    found = self.solved(_restricted(problem, other))
                except LimitError:  # what is stated elsewhere leaves no plan there
                    continue
                heapq.heappush(queue, (found.cost, len(seen), other, found))


def _restricted(problem: Problem, allowed: Mapping[int, np.ndarray]) -> Problem:
    """The problem in which of some classes only these choices are allowed."""
    choices = list(problem.choices)
    for c, mask in allowed.items():
        choices[c] = [x if may else IMPOSSIBLE for x, may in zip(choices[c], mask, strict=True)]
    return replace(problem, choices=choices, seeds=[])


def _written(opened: OpenProblem) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Bytes of what is made and received (`Held.written`) in a problem, in one iteration of its loops."""
    made, received = Held(opened.graph, opened.encoding).written()
    for body in opened.bodies:
        for first, part in body.parts:
            for all_bytes, inside in zip((made, received), _written(part), strict=True):
                all_bytes[first : first + len(inside)] = inside
    return made, received


class Placed(Protocol):
    """A choice: where inputs and outputs lie."""

    @property
    def inputs(self) -> tuple[Placement, ...]: ...
    @property
    def outputs(self) -> tuple[Placement, ...]: ...


C = TypeVar("C", bound=Placed)


class LimitedSearch(Generic[C]):
    """The search for the cheapest choice at which a plan stays within a limit, in bytes per device.

    choice: of a selection. held: what a device holds of inputs and outputs at a choice. planned: the plan at a choice,
    within a limit if one is given (LimitError where none is found). Found are the best choice and its plan, None if
    none fits, what it costs, and the least peak of a plan.
    """

    def __init__(self, limit: int, problem: PricedProblem, choice: Callable[[Selection], C],
                 held: Callable[[C], int], planned: Callable[[C, int | None], PlanRecord], deadline: Deadline):
        self.limit, self.problem, self.choice, self.held = limit, problem, choice, held
        self.planned, self.deadline = planned, deadline
        self.plans: dict[object, tuple[C, PlanRecord]] = {}
        self.stripped: set[object] = set()
        self.best: tuple[C, PlanRecord] | None = None
        self.cost = self.peak = math.inf

    def search(self, cheapest: C) -> None:
        """Search, from the choice that is cheapest without a limit on."""
        if self._tried(cheapest):
            return
        first = self._plan(cheapest)
        self._strip(first.cost.total)
        if self.cost > (1 + NEAR) * first.cost.total:
            low = self._at_prices(first)
            self._strip(self.cost)
            for price in dict.fromkeys((low, 0.0)):
                self._branch(price)
            self._strip(self.cost)
        if self.best is None:
            self._within()

    def _plan(self, choice: C) -> PlanRecord:
        """The plan at a choice."""
        ends = choice.inputs, choice.outputs
        if ends not in self.plans:
            self.plans[ends] = choice, self.planned(choice, None)
            self._note(*self.plans[ends])
        return self.plans[ends][1]

    def _note(self, choice: C, plan: PlanRecord) -> None:
        peak, cost = memory_of(plan).peak, plan.cost.total
        self.peak = min(self.peak, peak)
        if peak <= self.limit and cost < self.cost:
            self.best, self.cost = (choice, plan), cost

    def _tried(self, choice: C) -> bool:
        """Whether the plan at a choice is within the limit; where the ends alone are not, none is made."""
        return self.held(choice) <= self.limit and memory_of(self._plan(choice)).peak <= self.limit

    def _at_prices(self, first: PlanRecord) -> float:
        """Try the choices at rising prices, until one is within the limit, and at some between the last two; the
        highest price at which none is."""
        low = high = 0.0
        for price in prices(first):
            if self.deadline.passed:
                return low
            high = price
            if self._tried(self.choice(self.problem.cheapest(price))):
                break
            low = price
        for _ in range(_HALVINGS if low < high else 0):
            middle = (low * high) ** 0.5 if low else high / 2
            low, high = (low, middle) if self._tried(self.choice(self.problem.cheapest(middle))) else (middle, high)
        return low

    def _branch(self, price: float) -> None:
        """Try other choices than the one at a price, of those that may be cheaper than what is found."""
        plans = len(self.plans) + _PLANS
        for selection in self.problem.branched(price, lambda found: self.held(self.choice(found)) <= self.limit):
            late = len(self.plans) >= plans or self.deadline.passed
            if late or selection.cost >= self.cost + price * self.limit:  # a Lagrangian bound
                break
            if self.problem.cost(selection) < self.cost:
                self._tried(self.choice(selection))

    def _strip(self, most: float) -> None:
        """Try plans that are not within the limit in strips: some of the cheapest, of up to ``most`` seconds."""
        over = [made for made in self._over() if made[0] not in self.stripped]
        for ends, choice, plan in sorted(over, key=lambda made: made[2].cost.total)[:_STRIPPED]:
            if plan.cost.total <= most and not self.deadline.passed:
                self.stripped.add(ends)
                self._note(choice, in_strips_within(self.limit, plan, self.deadline))

    def _within(self) -> None:
        """Plan within the limit at the choice whose plan takes least."""
        made = min(self._over(), key=lambda made: memory_of(made[2]).peak, default=None)
        if made is not None and not self.deadline.passed:
            with suppress(LimitError):
                self._note(made[1], self.planned(made[1], self.limit))

    def _over(self) -> list[tuple[object, C, PlanRecord]]:
        """Plans that are not within the limit for their temporaries."""
        return [(ends, choice, plan) for ends, (choice, plan) in self.plans.items()
                if memory_of(plan).peak > self.limit >= self.held(choice)]


class Least(NamedTuple):
    """What a device holds at least of a program's inputs, and of these and outputs, wherever they lie, in bytes.

    most: the input or output of which it holds most, and how many bytes, in words.
    """

    inputs: int
    bytes: int
    most: str

    @classmethod
    def of(cls, program: Program, ends: Ends) -> Least:
        """The least of a program whose ends are open."""
        placed = [*zip(program.input_names, program.input_types, ends.inputs, strict=True),
                  *zip(program.output_names, program.output_types, ends.outputs, strict=True)]
        least = [min(p.local_type(type_).bytes for p in options) for _, type_, options in placed]
        held, name, type_ = max(((held, name, type_) for held, (name, type_, _) in zip(least, placed, strict=True)),
                                key=lambda row: row[0])
        return cls(sum(least[: len(ends.inputs)]), sum(least), f"{held} of {name} ({type_})")

    def impossible(self, limit: float) -> str:
        """Why no plan stays within a limit that is less."""
        return (f"no plan stays under memory_limit={limit} bytes per device: inputs and outputs take at least "
                f"{self.bytes}, {self.most}, wherever they lie, so that no plan can; allow more, take more devices, or "
                "state fewer shardings")

    def not_found(self, limit: float, peak: float, whole: int) -> str:
        """That no plan was found within a limit. peak: the least found; whole: of plans that do every step whole."""
        return (f"no plan found stays under memory_limit={limit} bytes per device; the smallest one found takes "
                f"{peak:.0f}: try memory_limit={peak:.0f} or more. Inputs and outputs take at least {self.bytes}, "
                f"{self.most}, wherever they lie, which is no proof that no plan can; candidates that do every step "
                f"whole hold at least {whole}")
