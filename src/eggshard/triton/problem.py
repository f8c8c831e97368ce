"""A kernel's layouts as a selection problem: classes are tensors, placements their encodings, choices ops at options.

What carries a value around a loop is a class that is computed once (`Problem.single`): its choice at an encoding needs
the initial value there, the arguments of the body come of it, and a root needs what the body yields at the same encoding.
Where a block runs less often than a value that it takes is computed, the value's view in the block is a class of
its own, whose conversions are paid as often as the block runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eggshard.costmodel.layouts import LayoutCostModel
from eggshard.extract.problem import Choice, Problem
from eggshard.kernels.ir import Block, Kernel, Operation, Value
from eggshard.layouts.conversion import conversion
from eggshard.triton.rules.costs import bits
from eggshard.layouts.encodings import Encoding
from eggshard.layouts.families import linear_layout
from eggshard.layouts.machine import Machine
from eggshard.triton.candidates import Candidates, computing, encoding_of
from eggshard.triton.classes import Classes
from eggshard.triton.control import Tie, Use, ties
from eggshard.triton.rules import Option, movable, work

#: What a conversion costs that moves nothing: it still is an op, and of two equal plans the one with fewer is taken.
NOTHING = 1e-3


class Run(NamedTuple):
    """A choice's tag: an op run at an option."""

    op: Operation
    option: Option


class Result(NamedTuple):
    """A choice's tag: a result of an op that has several, or of a loop or branch."""

    number: int


class Carried(NamedTuple):
    """A choice's tag: a tie of a loop or branch, at an encoding."""

    tie: Tie
    encoding: Encoding


@dataclass
class KernelProblem:
    """The problem with the meaning of its numbers.

    ``encodings[c][p]``: placement p of problem class c; the first classes are those of `Classes`. ``ties``, ``runs``: the
    class of what each tie carries, and of each op that has not just one tensor for a result. ``views``: per block
    and class the class of its view there. ``fixed``: what every plan pays besides, in the cost model's units.
    """

    problem: Problem
    encodings: list[list[Encoding]]
    ties: dict[Tie, int]
    runs: dict[Operation, int]
    views: dict[tuple[Block, int], int]
    fixed: float = 0.0


class Builder:
    """Builds the problem of one kernel."""

    def __init__(
        self, kernel: Kernel, classes: Classes, candidates: Candidates, times: dict[Block, float], model: LayoutCostModel
    ) -> None:
        self.kernel, self.classes, self.candidates, self.times, self.model = kernel, classes, candidates, times, model
        self.machine = Machine.of(kernel)
        self.encodings = [list(found) for found in candidates.encodings]
        self.choices: list[list[Choice]] = [[] for _ in self.encodings]
        self.conversions: list[np.ndarray] = []
        self.single: set[int] = set()
        self.roots: list[tuple[int, int]] = []
        self.ties: dict[Tie, int] = {}
        self.runs: dict[Operation, int] = {}
        self.views: dict[tuple[Block, int], int] = {}
        self.base: dict[int, int] = {}
        self.fixed = 0.0

    def build(self) -> KernelProblem:
        for c, value in enumerate(self.classes.first):
            self.conversions.append(self._conversions(c, self.times[_block_of(value)]))
        for op in computing(self.kernel, self.classes):
            tied = ties(op)
            if tied is None:
                self._run(op)
            for tie in tied or ():
                self._tie(tie)
        for function in self.kernel.functions:
            for op in function.walk():
                for region in op.regions:
                    for block in region.blocks:
                        self._arguments(block)
        problem = Problem(self.choices, self.conversions, self.roots, single=frozenset(self.single))
        return KernelProblem(problem, self.encodings, self.ties, self.runs, self.views, self.fixed)

    # -- classes -----------------------------------------------------------------------------------------------------

    def _new(self, encodings: Sequence[Encoding] | int, conversions: np.ndarray | None = None) -> int:
        """A class; without conversions its placements are apart."""
        count = encodings if isinstance(encodings, int) else len(encodings)
        self.encodings.append([] if isinstance(encodings, int) else list(encodings))
        self.choices.append([])
        if conversions is None:
            conversions = np.where(np.eye(count, dtype=bool), 0.0, np.inf)
        self.conversions.append(conversions)
        return len(self.choices) - 1

    def _conversions(self, c: int, times: float) -> np.ndarray:
        """``[P, P]``: what converting costs between a class's encodings, as often as ``times``."""
        encodings, type_ = list(self.candidates.encodings[c]), self.classes.types[c]
        layouts = [linear_layout(e, type_.shape, self.machine) for e in encodings]
        costs = np.zeros((len(encodings), len(encodings)))
        for p, source in enumerate(layouts):
            for q, target in enumerate(layouts):
                if p == q:
                    continue
                if source is None or target is None:
                    costs[p, q] = np.inf
                    continue
                found = conversion(source, target, bits(type_.element), self.machine)
                costs[p, q] = NOTHING + times * self.model.price(found.counts)
        return costs

    def seen(self, value: Value, op: Operation) -> int:
        """The class that an op finds a tensor in: the tensor's, or that of its view in a block that runs less often."""
        c = self.classes.of[value]
        home = _block_of(self.classes.first[c])
        path = []
        block = op.parent
        while block is not None and block is not home:
            path.append(block)
            block = _outside(block)
        if block is None or not path:
            return c
        rarest = min(reversed(path), key=lambda b: self.times[b])
        if self.times[rarest] >= self.times[home]:
            return c
        if (rarest, c) not in self.views:
            view = self._new(self.encodings[c], self._conversions(c, self.times[rarest]))
            self.views[rarest, c] = view
            self.base[view] = c
            self.choices[view] = [Choice(p, 0.0, ((c, p),)) for p in range(len(self.encodings[c]))]
        return self.views[rarest, c]

    def number(self, c: int, encoding: Encoding) -> int | None:
        """The placement of a class that an encoding is."""
        return self.candidates.encodings[self.base.get(c, c)].get(encoding)

    # -- ops ---------------------------------------------------------------------------------------------------------

    def _run(self, op: Operation) -> None:
        assert op.parent is not None
        options = list(self.candidates.options[op])
        results = [(i, self.classes.of[v]) for i, v in enumerate(op.results) if v in self.classes.of]
        costs = [self.times[op.parent] * self.model.price(work(op, option, self.machine)) for option in options]
        if len(options) == 1:
            self.fixed += costs[0]
            costs = [0.0]
        plain = len(op.results) == 1 and len(results) == 1
        target = results[0][1] if plain else self._new(len(options))
        if not plain:
            self.runs[op] = target
            if len(results) < len(op.results) or not op.results:
                self.roots_of(target, op)
        if not movable(op):
            self.single.add(target)
        for number, (option, cost) in enumerate(zip(options, costs, strict=True)):
            needs: dict[tuple[int, int], None] = {}
            for value, encoding in zip(op.operands, option.operands, strict=True):
                if value in self.classes.of and encoding is not None:
                    a = self.seen(value, op)
                    p = self.number(a, encoding)
                    assert p is not None
                    needs[a, p] = None
            out = number
            if plain:
                encoding = option.results[0]
                assert encoding is not None
                found = self.number(target, encoding)
                assert found is not None
                out = found
            self.choices[target].append(Choice(out, cost, tuple(needs), Run(op, option)))
            if not plain:
                for i, c in results:
                    encoding = option.results[i]
                    assert encoding is not None
                    p = self.number(c, encoding)
                    assert p is not None
                    self.choices[c].append(Choice(p, 0.0, ((target, number),), Result(i)))

    def roots_of(self, target: int, op: Operation) -> None:
        """What has effects, or results that are no tensors, is run: a root that takes any option."""
        root = self._new(1)
        count = len(self.candidates.options[op])
        self.choices[root] = [Choice(0, 0.0, ((target, n),)) for n in range(count)]
        self.roots.append((root, 0))

    # -- loops and branches ------------------------------------------------------------------------------------------

    def _tie(self, tie: Tie) -> None:
        of = self.classes.of
        if tie.targets[0] not in of:
            return
        encodings = list(self.candidates.encodings[of[tie.targets[0]]])
        encodings = [e for e in encodings if all(self._possible(e, u) for u in (*tie.sources, *tie.back))]
        carried = self.ties[tie] = self._new(encodings)
        if tie.once:
            self.single.add(carried)
        for p, encoding in enumerate(encodings):
            self.choices[carried].append(Choice(p, 0.0, self._needs(tie.sources, encoding), Carried(tie, encoding)))
        if tie.back:
            root = self._new(1)
            self.choices[root] = [
                Choice(0, 0.0, ((carried, p), *self._needs(tie.back, e))) for p, e in enumerate(encodings)]
            self.roots.append((root, 0))
        for value in tie.targets:
            for p, encoding in enumerate(encodings):
                out = self.number(of[value], encoding)
                if out is not None:
                    self.choices[of[value]].append(Choice(out, 0.0, ((carried, p),), Carried(tie, encoding)))

    def _possible(self, encoding: Encoding, use: Use) -> bool:
        return encoding in self.candidates.encodings[self.classes.of[use.value]]

    def _needs(self, uses: Sequence[Use], encoding: Encoding) -> tuple[tuple[int, int], ...]:
        needs: dict[tuple[int, int], None] = {}
        for use in uses:
            c = self.seen(use.value, use.op)
            p = self.number(c, encoding)
            assert p is not None
            needs[c, p] = None
        return tuple(needs)

    def _arguments(self, block: Block) -> None:
        """Arguments that nothing is known of keep the encoding that they have."""
        for value in block.arguments:
            c = self.classes.of.get(value)
            if c is not None and not self.choices[c]:
                p = self.number(c, encoding_of(value))
                assert p is not None
                self.choices[c].append(Choice(p, 0.0, ()))


def _block_of(value: Value) -> Block:
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    assert block is not None
    return block


def _outside(block: Block) -> Block | None:
    """The block in which the op stands that a block belongs to."""
    op = block.parent.parent if block.parent is not None else None
    return op.parent if op is not None else None
