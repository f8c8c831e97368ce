"""The reduction interface: a problem of the same optimum, or of some of the plans, and the way back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from eggshard.selection.problem import Problem, Selection
from eggshard.selection.verify import complete

#: Choices by class.
Chosen = Mapping[int, tuple[int, ...]]
#: The (class, choice) of the original problem that a choice stands for.
Origin = tuple[tuple[int, int], ...]


class Inverse(ABC):
    """The way back from a reduced problem to the original one, and of plans into the reduced one."""

    @abstractmethod
    def lift(self, selection: Selection) -> Selection | None:
        """The original problem's selection, with its own exact cost; None if its choices make no plan there."""

    @abstractmethod
    def lower(self, chosen: Chosen) -> dict[int, tuple[int, ...]]:
        """The reduced problem's choices that come nearest to the original's; those need not make up a plan."""


class Reduction(ABC):
    """A rewriting of problems."""

    @abstractmethod
    def apply(self, problem: Problem) -> tuple[Problem, Inverse]:
        """The reduced problem and the way back. The problem given stays as it is."""


@dataclass
class Composed(Inverse):
    """The inverse of two reductions in a row: it lifts by ``inner`` and then by ``outer``."""

    outer: Inverse
    inner: Inverse

    def lift(self, selection: Selection) -> Selection | None:
        found = self.inner.lift(selection)
        return None if found is None else self.outer.lift(found)

    def lower(self, chosen: Chosen) -> dict[int, tuple[int, ...]]:
        return self.inner.lower(self.outer.lower(chosen))


class Chain(Reduction):
    """Reductions one after the other."""

    def __init__(self, first: Reduction, *others: Reduction) -> None:
        self.first, self.others = first, others

    def apply(self, problem: Problem) -> tuple[Problem, Inverse]:
        problem, inverse = self.first.apply(problem)
        for step in self.others:
            problem, inner = step.apply(problem)
            inverse = Composed(inverse, inner)
        return problem, inverse


@dataclass
class SameNumbers(Inverse):
    """The way back where choices kept their numbers."""

    original: Problem

    def lift(self, selection: Selection) -> Selection | None:
        return complete(self.original, selection.chosen)

    def lower(self, chosen: Chosen) -> dict[int, tuple[int, ...]]:
        return dict(chosen)


@dataclass
class Renumbered(Inverse):
    """The way back where choices stand for others.

    origin[new class][new choice]: the old (class, choice) that it stands for. free: old class -> choices at no cost,
    for dropped needs. stand_in: (old class, dropped choice) -> the choice that is as good.
    """

    original: Problem
    origin: Sequence[Sequence[Origin]]
    free: Chosen = field(default_factory=dict)
    stand_in: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def lift(self, selection: Selection) -> Selection | None:
        chosen: dict[int, dict[int, None]] = {c: dict.fromkeys(some) for c, some in self.free.items()}
        for c, some in selection.chosen.items():
            for s in some:
                for old, choice in self.origin[c][s]:
                    chosen.setdefault(old, {})[choice] = None
        return complete(self.original, chosen)

    def lower(self, chosen: Chosen) -> dict[int, tuple[int, ...]]:
        wanted = set()
        for c, some in chosen.items():
            for s in some:
                while (c, s) in self.stand_in:
                    s = self.stand_in[c, s]
                wanted.add((c, s))
        matches: dict[int, Counter[int]] = {}
        for part in wanted:
            for c, s in self._standing_for.get(part, ()):
                matches.setdefault(c, Counter())[s] += 1
        # Of choices that stand for as many of them, the first.
        return {c: (min(some, key=lambda s: (-some[s], s)),) for c, some in sorted(matches.items())}

    @cached_property
    def _standing_for(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """Per old choice the new ones (class, choice) that stand for it, so often as they do."""
        out: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for c, row in enumerate(self.origin):
            for s, parts in enumerate(row):
                for part in parts:
                    out.setdefault(part, []).append((c, s))
        return out
