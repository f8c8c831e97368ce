"""Choice of the encodings that spell chosen layouts, with as few zero-cost conversions as possible.

A selection says which layouts each tensor is computed at and converted to. In the problem here each of these layouts is
a class, its spellings are the placements, and conversions between spellings cost no instruction.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from eggshard.selection.portfolio import extract
from eggshard.selection.problem import Choice, Problem, Selection
from eggshard.triton.control import Tie
from eggshard.triton.kernels.ir import Operation
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.problem import Alternative, Entered, KernelProblem, Run, Shard, Viewed
from eggshard.triton.rules import Option, movable

#: What an op costs that is written twice for the sake of two spellings, as a part of such a conversion.
OP = 1e-2

@dataclass
class Layouts:
    """What is written: the options at which ops run, what ties carry, and conversions per class (of tensors, or of
    views), in an order in which each starts at what is there. ``again``: ops that views run once more."""

    runs: dict[Operation, list[Option]] = field(default_factory=dict)
    again: dict[int, list[tuple[Operation, Option]]] = field(default_factory=dict)
    carried: dict[Tie, list[Encoding]] = field(default_factory=dict)
    viewed: dict[int, list[Encoding]] = field(default_factory=dict)
    converted: dict[int, list[tuple[Encoding, Encoding]]] = field(default_factory=dict)


def _may_repeat(alternative: Alternative) -> bool:
    """Whether a layout may be come by several times, in several spellings: ops that the compiler merges again, but not
    conversions, reads of memory, or what is carried."""
    what = alternative.what
    return movable(what.op) if isinstance(what, Run) else what is None or isinstance(what, Viewed)


def spell(problem: KernelProblem, selection: Selection, work: float, deadline: float) -> Layouts:
    """The spelling with the fewest conversions found with so much work, until a deadline of `time.monotonic`."""
    found = _Spelling(problem, selection)
    return found.read(extract(found.problem(), seconds=work, gap=OP / 10, exact=True, deadline=deadline).selection)


class _Spelling:
    def __init__(self, problem: KernelProblem, selection: Selection) -> None:
        self.of, self.selection = problem, selection
        self.classes: dict[Shard, int] = {}
        self.members: list[dict[object, int]] = []
        self.alternatives: list[list[Alternative]] = []

    # -- the problem -------------------------------------------------------------------------------------------------

    def problem(self) -> Problem:
        choices = self.of.problem.choices
        for c, some in self.selection.chosen.items():
            for s in some:
                self._shard((c, choices[c][s].out))
        for c, _, q in self.selection.conversions:
            self._shard((c, q))
        for c, some in self.selection.chosen.items():
            for s in some:
                choice = choices[c][s]
                self.alternatives[self.classes[c, choice.out]] += choice.tag
        for c, p, q in self.selection.conversions:
            self.alternatives[self.classes[c, q]] += [
                Alternative(target, (((c, p), source),), (source, target))
                for source in self.of.spellings((c, p)) for target in self.of.spellings((c, q))]
        for shard, alternatives in zip(list(self.classes), self.alternatives, strict=True):
            for alternative in alternatives:
                self._member(shard, alternative.out)
                for need, key in alternative.needs:
                    self._member(need, key)
        found = [[Choice(self.members[k][a.out], OP, tuple(dict.fromkeys(
            (self.classes[need], self.members[self.classes[need]][key]) for need, key in a.needs)), a) for a in same]
            for k, same in enumerate(self.alternatives)]
        roots = [(self.classes[root], 0) for root in self.of.problem.roots]
        single = frozenset(k for k, same in enumerate(self.alternatives) if not all(map(_may_repeat, same)))
        return Problem(found, [self._conversions(shard) for shard in self.classes], roots, single=single)

    def _shard(self, shard: Shard) -> None:
        if shard not in self.classes:
            self.classes[shard] = len(self.members)
            self.members.append({})
            self.alternatives.append([])

    def _member(self, shard: Shard, key: object) -> None:
        known = self.members[self.classes[shard]]
        known.setdefault(key, len(known))

    def _conversions(self, shard: Shard) -> np.ndarray:
        """One spelling of a tensor's layout becomes another by a conversion that moves nothing; nothing else does."""
        count = len(self.members[self.classes[shard]])
        tensor = shard[0] < len(self.of.classes.types) or shard[0] in self.of.base
        return np.where(np.eye(count, dtype=bool), 0.0, 1.0 if tensor else np.inf)

    # -- reading it back ---------------------------------------------------------------------------------------------

    def read(self, chosen: Selection) -> Layouts:
        layouts = Layouts()
        shards = list(self.classes)
        moved: dict[int, list[tuple[Encoding, Encoding]]] = {}
        for k, some in chosen.chosen.items():
            c, _ = shards[k]
            for s in some:
                alternative = self.alternatives[k][s]
                what = alternative.what
                if isinstance(what, Run) and what.block is not what.op.parent:
                    layouts.again.setdefault(c, []).append((what.op, what.option))
                elif isinstance(what, Run):
                    layouts.runs.setdefault(what.op, []).append(what.option)
                elif isinstance(what, Entered):
                    layouts.carried.setdefault(what.tie, []).append(what.encoding)
                elif isinstance(what, Viewed):
                    assert isinstance(alternative.out, Encoding)
                    layouts.viewed.setdefault(c, []).append(alternative.out)
                elif what is not None:
                    moved.setdefault(c, []).append(what)
        before: dict[int, list[tuple[Encoding, Encoding]]] = {}
        after: dict[int, list[tuple[Encoding, Encoding]]] = {}
        targets = {c: {target for _, target in some} for c, some in moved.items()}
        for k, p, q in chosen.conversions:
            c, _ = shards[k]
            keys = list(self.members[k])
            source, target = keys[p], keys[q]
            assert isinstance(source, Encoding) and isinstance(target, Encoding)
            later = source in targets.get(c, ())
            (after if later else before).setdefault(c, []).append((source, target))
        for c in {**before, **moved, **after}:
            layouts.converted[c] = [*before.get(c, ()), *moved.get(c, ()), *after.get(c, ())]
        return layouts
