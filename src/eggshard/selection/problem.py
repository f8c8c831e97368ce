"""The selection problem: choose what to compute, at which placements, and which conversions (reshardings) to pay.

Everything that an extractor sees. Classes are e-classes; each has numbered placements; a choice computes its class
at one placement from given placements of other classes; a conversion turns one placement of a class into another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Choice(NamedTuple):
    """One way to compute a class: at placement ``out``, from ``needs`` = ((class, placement), ...), for ``cost``.

    Needs hold no duplicates. ``tag`` is the caller's and opaque to extractors.
    """

    out: int
    cost: float
    needs: tuple[tuple[int, int], ...]
    tag: Any = None


#: What stands in for a choice that is left out, so that the others keep their numbers.
IMPOSSIBLE = Choice(0, math.inf, ())


@dataclass
class Problem:
    """A frozen selection problem.

    choices[c]: the ways to compute class c. conversions[c]: ``[P, P]`` array of costs from placement p to q of class
    c (0 on the diagonal, inf where impossible; obeys the triangle inequality). roots: (class, placement) pairs that
    the plan must deliver. seeds: selections known to be valid (the baseline), as one choice index per class.
    The class graph may have cycles (equal tensors computed from each other); selections may not. single: classes that
    a selection computes at most once, by one choice; all that is needed of such a class comes from there (what a loop
    carries lies at one placement: at another it would be another loop).
    """

    choices: list[list[Choice]]
    conversions: list[np.ndarray]
    roots: list[tuple[int, int]]
    seeds: list[dict[int, int]] = field(default_factory=list)
    single: frozenset[int] = frozenset()


@dataclass
class Selection:
    """A solution: chosen choice indices per live class, and the conversions (class, from, to) paid, each once."""

    chosen: dict[int, tuple[int, ...]]
    conversions: tuple[tuple[int, int, int], ...]
    cost: float


@dataclass
class Extraction:
    """A selection with its certificate: no plan of the problem costs less than ``bound``.

    No plan that computes each class at most once costs less than ``once`` (the no-recomputation bound), which is at
    least ``bound``; and none that also computes the classes of the selection from the same operands less than
    ``terms`` (the fixed-node bound), which is at least ``once``.
    """

    selection: Selection
    bound: float
    method: str
    seconds: float = 0.0
    notes: Sequence[str] = ()
    once: float = 0.0
    terms: float = 0.0

    @property
    def gap(self) -> float:
        """(cost - the better bound) / cost, 0 for a free plan."""
        cost = self.selection.cost
        return 0.0 if cost <= 0 else max(0.0, (cost - max(self.bound, self.once)) / cost)


class Stopped(KeyboardInterrupt):
    """The search was interrupted. found: the best selection so far."""

    def __init__(self, found: Extraction):
        super().__init__()
        self.found = found
