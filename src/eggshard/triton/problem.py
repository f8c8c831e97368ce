"""A kernel's layouts as a selection problem: classes are tensors, placements their encodings, choices ops at options.

A loop-carried value is a class that is computed once (`Problem.single`): its choice at an encoding needs the initial
value there, the arguments of the body derive from it, and a root needs what the body yields at the same encoding. Where
a block runs less often than a value that it uses is computed, the value's view in the block is a class of its own,
whose conversions are paid as often as the block runs, and which may recompute what the kernel computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from eggshard.selection.problem import Choice, Problem
from eggshard.triton.candidates import Candidates, computing, encoding_of
from eggshard.triton.classes import CONVERT, Classes
from eggshard.triton.control import Tie, Use, ties
from eggshard.triton.kernels.ir import Block, Kernel, Operation, Value
from eggshard.triton.layout_costs import LayoutCostModel
from eggshard.triton.layouts.conversion import conversion
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.liveness import find_live
from eggshard.triton.rules import Option, repeatable, work
from eggshard.triton.rules.costs import bits

#: What a conversion costs besides: of two equal plans the one with fewer is taken.
NOTHING = 1e-3


#: A class at one of its placements: for tensors and their views, a layout.
Shard = tuple[int, int]


class Run(NamedTuple):
    """An op run at an option; in its block, or once more at the start of another that its place is there for."""

    op: Operation
    option: Option
    block: Block


class Entered(NamedTuple):
    """What a tie carries, at an encoding."""

    tie: Tie
    encoding: Encoding


class Viewed(NamedTuple):
    """A tensor's view in a block."""

    cls: int


class Alternative(NamedTuple):
    """One spelling of a choice: of its result (an encoding, or the option of an op that has not just one), of what it
    needs, and what is then written. A choice's tag lists all of them; they differ in spelling alone."""

    out: object
    needs: tuple[tuple[Shard, object], ...]
    what: Run | Entered | Viewed | tuple[Encoding, Encoding] | None = None


@dataclass
class KernelProblem:
    """The problem with the meaning of its numbers; choices' tags are lists of `Alternative`.

    ``classes`` of tensors come first. ``views``: per block and class the class of its view there; ``base`` the other
    way. ``times``: how often blocks run. ``fixed``: what every plan pays besides, in the cost model's units.
    """

    problem: Problem
    kernel: Kernel
    classes: Classes
    candidates: Candidates
    views: dict[tuple[Block, int], int]
    base: dict[int, int]
    times: dict[Block, float]
    fixed: float = 0.0

    def view_block(self, value: Value, at: Block | None) -> Block | None:
        """The block in whose view the ops of a block find a tensor: of those around it, inside the tensor's own, the
        outermost of those that run least often, if they run less often than that; else None."""
        home = _block_of(self.classes.first[self.classes.of[value]])
        path = []
        block = at
        while block is not None and block is not home:
            path.append(block)
            block = block.around
        if block is None or not path:
            return None
        rarest = min(reversed(path), key=lambda b: self.times[b])
        return rarest if self.times[rarest] < self.times[home] else None

    def spellings(self, shard: Shard) -> list[Encoding]:
        """The encodings that are one layout of a tensor, or a view."""
        c, p = shard
        return [e for e, number in self.candidates.encodings[self.base.get(c, c)].items() if number == p]


class Builder:
    """Builds the problem of one kernel."""

    def __init__(
        self, kernel: Kernel, classes: Classes, candidates: Candidates, times: dict[Block, float],
        model: LayoutCostModel,
    ) -> None:
        self.kernel, self.classes, self.candidates, self.times, self.model = kernel, classes, candidates, times, model
        self.machine = Machine.of(kernel)
        self.choices: list[list[Choice]] = [[] for _ in classes.types]
        self.conversions: list[np.ndarray] = []
        self.single: set[int] = set()
        #: Per class that the kernel also computes in a block that runs less often: by which op.
        self.again: dict[int, Operation] = {}
        #: Per class the conversions that the kernel has.
        self.there: dict[int, set[tuple[int | None, int | None]]] = {}
        self.prices: dict[tuple[tuple[Encoding, ...], tuple[int, ...], int], np.ndarray] = {}
        self.roots: list[tuple[int, int]] = []
        self.live = find_live(kernel, classes)
        self.found = KernelProblem(
            Problem(self.choices, self.conversions, self.roots), kernel, classes, candidates, {}, {}, times)

    def build(self) -> KernelProblem:
        for op in self.kernel.walk():
            if op.name == CONVERT and op.operands[0] in self.classes.of:
                c = self.classes.of[op.operands[0]]
                ends = [self._number(v, encoding_of(v)) for v in (op.operands[0], op.results[0])]
                self.there.setdefault(c, set()).add((ends[0], ends[1]))
        for c, value in enumerate(self.classes.first):
            self.conversions.append(self._conversions(c, self.times[_block_of(value)]))
        for op, first in self.classes.same.items():
            value = first.results[0]
            if value in self.classes.of and len(first.results) == 1 and self.found.view_block(value, op.parent):
                self.again[self.classes.of[value]] = first
        live = self.live
        for op in computing(self.kernel, self.classes):
            if op in live:
                self._run(op)
            for tie in ties(op) or ():
                if tie in live:
                    self._tie(tie)
        for function in self.kernel.functions:
            for op in function.walk():
                for region in op.regions:
                    for block in region.blocks:
                        self._arguments(block)
        self.found.problem.single = frozenset(self.single)
        return self.found

    # -- classes -----------------------------------------------------------------------------------------------------

    def _new(self, count: int, conversions: np.ndarray | None = None) -> int:
        """A class of so many placements; without conversions they are apart."""
        self.choices.append([])
        if conversions is None:
            conversions = np.where(np.eye(count, dtype=bool), 0.0, np.inf)
        self.conversions.append(conversions)
        return len(self.choices) - 1

    def _choose(self, c: int, out: int, alternatives: Sequence[Alternative], cost: float = 0.0) -> None:
        """A choice of a class by its spellings, which all need the same."""
        needs = tuple(dict.fromkeys(shard for shard, _ in alternatives[0].needs))
        self.choices[c].append(Choice(out, cost, needs, alternatives))

    def _gate(self) -> int:
        """A class that is at one of two placements: 0 and 1."""
        gate = self._new(2)
        self.single.add(gate)
        for p in (0, 1):
            self._choose(gate, p, [Alternative(None, ())])
        return gate

    def _root(self) -> int:
        """A class that every plan computes."""
        root = self._new(1)
        self.roots.append((root, 0))
        return root

    def _conversions(self, c: int, times: float) -> np.ndarray:
        """``[P, P]``: what converting costs between a class's layouts, as often as ``times``."""
        type_ = self.classes.types[c]
        key = tuple(self.candidates.layouts(c)), type_.shape, bits(type_.element)
        if key not in self.prices:
            self.prices[key] = self._prices(*key)
        costs = NOTHING + times * self.prices[key]
        for p, q in self.there.get(c, ()):
            if p is not None and q is not None and np.isinf(costs[p, q]):
                costs[p, q] = NOTHING  # not understood, so it has no price; but it is possible
        np.fill_diagonal(costs, 0.0)
        return costs

    def _prices(self, encodings: tuple[Encoding, ...], shape: tuple[int, ...], width: int) -> np.ndarray:
        """The prices of conversions between encodings of a tensor; inf where one is not understood."""
        layouts = [linear_layout(e, shape) for e in encodings]
        found = np.full((len(layouts), len(layouts)), np.inf)
        for p, source in enumerate(layouts):
            for q, target in enumerate(layouts):
                if p == q:
                    found[p, q] = 0.0
                elif source is not None and target is not None:
                    found[p, q] = self.model.price(conversion(source, target, width, self.machine).counts)
        return found

    def _seen(self, value: Value, at: Block | None) -> int:
        """The class that the ops of a block find a tensor in: the tensor's, or that of its view, which is made when it
        is first asked for."""
        c, block = self.classes.of[value], self.found.view_block(value, at)
        if block is None:
            return c
        if (block, c) not in self.found.views:
            count = len(self.conversions[c])
            view = self._new(count, self._conversions(c, self.times[block]))
            self.found.views[block, c], self.found.base[view] = view, c
            for p in range(count):
                same = [Alternative(e, (((c, p), e),), Viewed(c)) for e in self.found.spellings((c, p))]
                self._choose(view, p, same)
            if c in self.again:
                self._run_again(self.again[c], view, block)
        return self.found.views[block, c]

    # -- ops ---------------------------------------------------------------------------------------------------------

    def _run(self, op: Operation) -> None:
        assert op.parent is not None
        options = self._options(op, op.parent)
        costs = [self._price(same, op.parent) for same in options.values()]
        if len(options) == 1:
            self.found.fixed += costs[0]
            costs = [0.0]
        plain = len(op.results) == 1 and op.results[0] in self.classes.of
        target = self.classes.of[op.results[0]] if plain else self._new(len(options))
        if not repeatable(op, self.kernel):
            self.single.add(target)
        wanted = not repeatable(op, self.kernel) or any(v not in self.classes.of for v in op.results)
        root = self._root() if wanted else None
        for number, ((_, outs), same) in enumerate(options.items()):
            shard = target, outs[0] if plain else number
            self._choose(target, shard[1], same, costs[number])
            if root is not None:
                keys = self.found.spellings(shard) if plain else [run.out for run in same]
                self._choose(root, 0, [Alternative(None, ((shard, key),)) for key in keys])
            if not plain:
                results = [(i, v) for i, v in enumerate(op.results) if v in self.classes.of]
                for (i, value), out in zip(results, outs, strict=True):
                    self._choose(self.classes.of[value], out, [
                        Alternative(run.what.option.results[i], ((shard, run.out),))
                        for run in same if isinstance(run.what, Run)])

    def _price(self, same: Sequence[Alternative], block: Block) -> float:
        """What running an op at an option costs in a block."""
        run = same[0].what
        assert isinstance(run, Run)
        return self.times[block] * self.model.price(work(run.op, run.option, self.machine))

    def _run_again(self, op: Operation, view: int, block: Block) -> None:
        """The choices of a view in which an op is run once more, at the start of the block."""
        for (_, (out,)), same in self._options(op, block).items():
            self._choose(view, out, same, self._price(same, block))

    def _options(self, op: Operation, at: Block) -> dict[tuple[frozenset[Shard], tuple[int, ...]], list[Alternative]]:
        """{(needs, outs): the options that have them}, for the op in a block; they differ in spelling alone."""
        plain = len(op.results) == 1 and op.results[0] in self.classes.of
        found: dict[tuple[frozenset[Shard], tuple[int, ...]], list[Alternative]] = {}
        for option in self.candidates.options[op]:
            taken = [(v, self._number(v, e), e) for v, e in zip(op.operands, option.operands, strict=True)
                     if v in self.classes.of and e is not None]
            outs = [self._number(v, e) for v, e in zip(op.results, option.results, strict=True)
                    if v in self.classes.of and e is not None]
            needs = tuple(((self._seen(v, at), p), e) for v, p, e in taken if p is not None)
            if len(needs) == len(taken) and None not in outs:
                key = frozenset(shard for shard, _ in needs), tuple(p for p in outs if p is not None)
                out = option.results[0] if plain else option
                found.setdefault(key, []).append(Alternative(out, needs, Run(op, option, at)))
        return found

    def _number(self, value: Value, encoding: Encoding) -> int | None:
        """The placement of a tensor that an encoding is."""
        return self.candidates.encodings[self.classes.of[value]].get(encoding)

    def _need(self, value: Value, at: Block | None, encoding: Encoding) -> tuple[Shard, Encoding]:
        """A tensor as it is needed in a block."""
        p = self._number(value, encoding)
        assert p is not None
        return (self._seen(value, at), p), encoding

    # -- loops and branches ------------------------------------------------------------------------------------------

    def _tie(self, tie: Tie) -> None:
        of = self.classes.of
        values = [*(use.value for use in (*tie.sources, *tie.back)), *tie.targets]
        same: dict[tuple[int | None, ...], list[Encoding]] = {}
        for encoding in self.candidates.encodings[of[values[0]]]:
            numbers = tuple(self._number(v, encoding) for v in values)
            if None not in numbers:
                same.setdefault(numbers, []).append(encoding)
        carried = self._new(len(same))
        several = not tie.once or self._pays_twice(tie) and len(same) > 1
        if not several:
            self.single.add(carried)
        root = self._root() if tie.back and not several else None
        for p, encodings in enumerate(same.values()):
            asked: tuple[tuple[Shard, object], ...] = ()
            if tie.back and several:  # each layout is carried, or not
                gate, root = self._gate(), self._root()
                asked = (((gate, 1), None),)
                self._choose(root, 0, [Alternative(None, (((gate, 0), None),))])
            if root is not None:
                self._choose(root, 0, [
                    Alternative(None, (*asked, ((carried, p), e), *self._uses(tie.back, e))) for e in encodings])
            self._choose(carried, p, [
                Alternative(e, (*asked, *self._uses(tie.sources, e)), Entered(tie, e)) for e in encodings])
            for value in tie.targets:
                out = self._number(value, encodings[0])
                assert out is not None
                self._choose(of[value], out, [Alternative(e, (((carried, p), e),)) for e in encodings])

    def _pays_twice(self, tie: Tie) -> bool:
        """Whether a loop may gain by carrying a value at several layouts: where each iteration can compute it at any of
        them. Else it would have to convert it, and might as well do so where it is used."""
        return all(self.classes.of[use.value] in self.remade for use in tie.back)

    @cached_property
    def remade(self) -> set[int]:
        """The classes that are computed of what loops carry alone, and of constants, by ops that may be repeated."""
        of, ways = self.classes.of, list[tuple[int, frozenset[int]]]()
        for op in self.candidates.options:
            if op in self.live and repeatable(op, self.kernel):
                needs = frozenset(of[v] for v in op.operands if v in of)
                ways += [(of[v], needs) for v in op.results if v in of]
        for tie in self.live:
            if isinstance(tie, Tie) and tie.targets[0] in of:
                needs = frozenset(of[use.value] for use in (tie.back or tie.sources))
                ways += [(of[v], needs) for v in tie.targets if v in of]
        found = set(range(len(self.classes.types)))
        while True:
            kept = {c for c, needs in ways if needs <= found} & found
            if kept == found:
                return found
            found = kept

    def _uses(self, uses: Sequence[Use], encoding: Encoding) -> tuple[tuple[Shard, object], ...]:
        return tuple(self._need(use.value, use.op.parent, encoding) for use in uses)

    def _arguments(self, block: Block) -> None:
        """Arguments that nothing is known of keep the encoding that they have."""
        for value in block.arguments:
            c = self.classes.of.get(value)
            if c is not None and not self.choices[c]:
                p = self._number(value, encoding_of(value))
                assert p is not None
                self._choose(c, p, [Alternative(encoding_of(value), ())])


def _block_of(value: Value) -> Block:
    block = value.owner if isinstance(value.owner, Block) else value.owner.parent
    assert block is not None
    return block
