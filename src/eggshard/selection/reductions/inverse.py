"""The way back from a reduced problem to the one that it came from, and of known plans into the reduced one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from eggshard.selection.problem import Problem, Selection
from eggshard.selection.verify import complete

#: Choices by class.
Chosen = Mapping[int, tuple[int, ...]]
#: The (class, choice) that a choice of the smaller problem stands for.
Origin = tuple[tuple[int, int], ...]


@dataclass
class Renumbered:
    """One reduction, whose choices stand for others.

    origin[new class][new choice]: the old (class, choice) that it stands for. free: old class -> choices at no cost,
    for dropped needs. stand_in: (old class, dropped choice) -> the choice that is as good.
    """

    origin: Sequence[Sequence[Origin]]
    free: Chosen = field(default_factory=dict)
    stand_in: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def lift(self, chosen: Chosen) -> Chosen:
        """The old choices that choices stand for."""
        found: dict[int, dict[int, None]] = {c: dict.fromkeys(some) for c, some in self.free.items()}
        for c, some in chosen.items():
            for s in some:
                for old, choice in self.origin[c][s]:
                    found.setdefault(old, {})[choice] = None
        return {c: tuple(some) for c, some in found.items()}

    def lower(self, chosen: Chosen) -> Chosen:
        """The choices that come nearest to old ones: of those that stand for as many of them, the first."""
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


@dataclass
class Inverse:
    """The way back to a problem, through the reductions of it in their order."""

    original: Problem
    steps: tuple[Renumbered, ...]

    def lift(self, selection: Selection) -> Selection | None:
        """The original problem's selection, with its own exact cost; None if its choices make no plan there."""
        chosen: Chosen = selection.chosen
        for step in reversed(self.steps):
            chosen = step.lift(chosen)
        return complete(self.original, chosen)

    def lower(self, chosen: Chosen) -> Chosen:
        """The reduced problem's choices that come nearest to the original's; those need not make up a plan."""
        for step in self.steps:
            chosen = step.lower(chosen)
        return chosen

    def then(self, inner: Inverse) -> Inverse:
        """The way back through further reductions, of a part of this problem with equal numbers."""
        return Inverse(self.original, (*self.steps, *inner.steps))
