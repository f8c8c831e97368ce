"""A kernel's layouts as a selection problem: classes are tensors, placements their encodings, choices ops at options.

What carries a value around a loop is a class that is computed once (`Problem.single`): its choice at an encoding needs
the initial value there, the arguments of the body come of it, and a root needs what the body yields at the same
encoding. Where a block runs less often than a value that it takes is computed, the value's view in the block is a class
of its own, whose conversions are paid as often as the block runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eggshard.costmodel.layouts import LayoutCostModel
from eggshard.extract.problem import Choice, Problem, Selection
from eggshard.kernels.ir import Block, Kernel, Operation, Value
from eggshard.layouts.conversion import conversion
from eggshard.layouts.encodings import Encoding
from eggshard.layouts.families import linear_layout
from eggshard.layouts.machine import Machine
from eggshard.triton.candidates import Candidates, computing, encoding_of
from eggshard.triton.classes import Classes
from eggshard.triton.control import Tie, Use, ties
from eggshard.triton.rules import Option, repeatable, work
from eggshard.triton.rules.costs import bits

#: What a conversion costs besides: of two equal plans the one with fewer is taken.
NOTHING = 1e-3
#: Of that price, what an op costs while spellings are chosen.
NEXT_TO = 1e-2


class Run(NamedTuple):
    """A choice's tag: an op run at one of the options, which differ in spelling alone."""

    op: Operation
    options: tuple[Option, ...]


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

    ``encodings[c][p]``: placement p of problem class c; the first ``tensors`` classes are those of `Classes`. ``ties``,
    ``runs``: the class of what each tie carries, and of each op that has not just one tensor for a result. ``views``:
    per block and class the class of its view there. ``fixed``: what every plan pays besides, in the cost model's units.
    
    """

    problem: Problem
    tensors: int
    encodings: list[list[Encoding]]
    ties: dict[Tie, int]
    runs: dict[Operation, int]
    views: dict[tuple[Block, int], int]
    fixed: float = 0.0

    def options(self, selection: Selection) -> dict[Operation, dict[Option, None]]:
        """Per op that a selection runs the options at which it does, in all their spellings."""
        found: dict[Operation, dict[Option, None]] = {}
        for c, some in selection.chosen.items():
            for tag in (self.problem.choices[c][s].tag for s in some):
                if isinstance(tag, Run):
                    found.setdefault(tag.op, {}).update(dict.fromkeys(tag.options))
        return found

    def chosen(self, selection: Selection) -> list[set[int]]:
        """Per tensor the placements that a selection computes or converts to, its views' included."""
        base = {view: c for (_, c), view in self.views.items()}
        found: list[set[int]] = [set() for _ in range(self.tensors)]
        for c, some in selection.chosen.items():
            tensor = base.get(c, c)
            if tensor < self.tensors:
                found[tensor].update(self.problem.choices[c][s].out for s in some)
        for c, _, q in selection.conversions:
            found[base.get(c, c)].add(q)
        return found


class Builder:
    """Builds the problem of one kernel."""

    def __init__(
        self, kernel: Kernel, classes: Classes, candidates: Candidates, times: dict[Block, float],
        model: LayoutCostModel, spelling: float = 0.0,
    ) -> None:
        """``spelling``: nothing but how layouts are spelled is chosen, at this price of a conversion that moves nothing.

        Ops cost next to nothing then: what is computed twice at one layout the compiler computes once.
        """
        self.nothing, self.spelling = spelling or NOTHING, spelling > 0
        self.kernel, self.classes, self.candidates, self.times, self.model = kernel, classes, candidates, times, model
        self.machine = Machine.of(kernel)
        self.encodings = [candidates.layouts(c) for c in range(len(candidates.encodings))]
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
        return KernelProblem(
            problem, len(self.classes.types), self.encodings, self.ties, self.runs, self.views, self.fixed)

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
        encodings, type_ = self.candidates.layouts(c), self.classes.types[c]
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
                costs[p, q] = self.nothing + times * self.model.price(found.counts)
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
        options = self._options(op)
        results = [(i, self.classes.of[v]) for i, v in enumerate(op.results) if self._live(v)]
        costs = [self.times[op.parent] * self.model.price(work(op, same[0], self.machine)) for same in options.values()]
        if self.spelling:
            costs = [NEXT_TO * self.nothing] * len(options)
        elif len(options) == 1:
            self.fixed += costs[0]
            costs = [0.0]
        plain = len(op.results) == 1 and op.results[0] in self.classes.of
        target = self.classes.of[op.results[0]] if plain else self._new(len(options))
        if not plain:
            self.runs[op] = target
        if not repeatable(op, self.kernel):
            self.single.add(target)
        if not repeatable(op, self.kernel) or any(v not in self.classes.of for v in op.results):
            self._root(target, [outs[0] if plain else n for n, (_, outs) in enumerate(options)])
        for number, ((needs, outs), same) in enumerate(options.items()):
            self.choices[target].append(
                Choice(outs[0] if plain else number, costs[number], needs, Run(op, tuple(same))))
            if not plain:
                for (i, c), p in zip(results, outs, strict=True):
                    self.choices[c].append(Choice(p, 0.0, ((target, number),), Result(i)))

    def _options(self, op: Operation) -> dict[tuple[tuple[tuple[int, int], ...], tuple[int, ...]], list[Option]]:
        """{(needs, outs): the options that have them}: they differ in spelling alone."""
        found: dict[tuple[tuple[tuple[int, int], ...], tuple[int, ...]], list[Option]] = {}
        for option in self.candidates.options.get(op, ()):
            needs: dict[tuple[int, int | None], None] = {}
            for value, encoding in zip(op.operands, option.operands, strict=True):
                if value in self.classes.of and encoding is not None:
                    a = self.seen(value, op)
                    needs[a, self.number(a, encoding)] = None
            outs = [self.number(self.classes.of[value], encoding)
                    for value, encoding in zip(op.results, option.results, strict=True)
                    if self._live(value) and encoding is not None]
            if all(p is not None for _, p in needs) and None not in outs:
                key = tuple((a, p) for a, p in needs if p is not None), tuple(p for p in outs if p is not None)
                found.setdefault(key, []).append(option)
        return found

    def _live(self, value: Value) -> bool:
        """Whether a value is a tensor that has candidates: where some are left out, one without is needed nowhere."""
        c = self.classes.of.get(value)
        return c is not None and bool(self.candidates.encodings[c])

    def _root(self, target: int, placements: Sequence[int]) -> None:
        """What may have effects, or has results that are no tensors, is run: a root that takes any option."""
        root = self._new(1)
        self.choices[root] = [Choice(0, 0.0, ((target, p),)) for p in dict.fromkeys(placements)]
        self.roots.append((root, 0))

    # -- loops and branches ------------------------------------------------------------------------------------------

    def _tie(self, tie: Tie) -> None:
        of, known = self.classes.of, self.candidates.encodings
        if tie.targets[0] not in of:
            return
        targets = [value for value in tie.targets if self._live(value)]
        values = [*(use.value for use in (*tie.sources, *tie.back)), *targets]
        encodings: dict[tuple[int | None, ...], Encoding] = {}
        for encoding in known[of[values[0]]]:
            numbers = tuple(self.number(of[v], encoding) for v in values)
            if None not in numbers:
                encodings.setdefault(numbers, encoding)
        carried = self.ties[tie] = self._new(list(encodings.values()))
        if tie.once:
            self.single.add(carried)
        for p, encoding in enumerate(encodings.values()):
            self.choices[carried].append(Choice(p, 0.0, self._needs(tie.sources, encoding), Carried(tie, encoding)))
        if tie.back:
            root = self._new(1)
            self.choices[root] = [Choice(0, 0.0, ((carried, p), *self._needs(tie.back, encoding)))
                                  for p, encoding in enumerate(encodings.values())]
            self.roots.append((root, 0))
        for value in targets:
            for p, encoding in enumerate(encodings.values()):
                out = self.number(of[value], encoding)
                assert out is not None
                self.choices[of[value]].append(Choice(out, 0.0, ((carried, p),), Carried(tie, encoding)))

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
                if p is not None:
                    self.choices[c].append(Choice(p, 0.0, ()))


def _block_of(value: Value) -> Block:
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    assert block is not None
    return block


def _outside(block: Block) -> Block | None:
    """The block in which the op stands that a block belongs to."""
    op = block.parent.parent if block.parent is not None else None
    return op.parent if op is not None else None
