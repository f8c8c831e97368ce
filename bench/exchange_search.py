"""The best schedule of halo exchanges for a chain of stencil steps, by exhaustive search.

Written from the costs of a chain alone and without the planner, so that it can judge it. A step of radius r needs r
layers beyond what it computes, on both sides of every sharded dimension. Before each step a device may take in layers
from its neighbours, any number on any side, along one dimension after the other (what comes second includes what came
first, so that corners arrive), or gather the whole domain once and compute all of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from eggshard.costmodel import CostModel, StepInfo
from eggshard.program.mesh import Mesh


@dataclass(frozen=True)
class Chain:
    """``steps`` equal stencil steps on a domain of which every device owns a box of ``tile`` elements.

    shards: devices along each sharded dimension, and inner: elements of the unsharded ones. flops: floating-point
    operations per element and step; itemsize: bytes of an element. most: the widest layer that may be taken in.
    wrapped: the domain is periodic.
    """

    mesh: Mesh
    tile: tuple[int, ...]
    shards: tuple[int, ...]
    inner: int
    radius: int
    steps: int
    flops: int
    itemsize: int = 4
    most: int | None = None
    wrapped: bool = False


@dataclass(frozen=True)
class Schedule:
    """What a schedule costs, in seconds, and the layers taken in before each step (the widest side)."""

    seconds: float
    messages: int
    widths: tuple[int, ...]
    gathered: bool = False


def best_schedule(chain: Chain, model: CostModel) -> Schedule:
    """The cheapest schedule under a cost model, over all of them."""
    return _Search(chain, model).best()


Margins = tuple[int, ...]
"""Layers held beyond the tile: low and high side of each sharded dimension in turn."""


class _Search:
    def __init__(self, chain: Chain, model: CostModel) -> None:
        self.chain, self.model = chain, model
        self.prices: dict[StepInfo, float] = {}
        widest = chain.radius * chain.steps if chain.most is None else chain.most
        self.depths = [[*range(0, min(widest, t) + 1, chain.radius)] for t in chain.tile]

    def best(self) -> Schedule:
        """Dynamic programming over steps; a state is the margins held."""
        chain, none = self.chain, (0,) * (2 * len(self.chain.tile))
        held: dict[Margins | None, Schedule] = {none: Schedule(0.0, 0, ())}
        for _ in range(chain.steps):
            after: dict[Margins | None, Schedule] = {}
            for margins, so_far in held.items():
                if margins is None:
                    self._keep(after, None, so_far, self._compute(None), 0, 0)
                    continue
                self._keep(after, None, so_far, self._gather(margins) + self._compute(None), 1, 0, gathered=True)
                for wider in self._wider(margins):
                    seconds, messages = self._exchange(margins, wider)
                    left = tuple(m - chain.radius for m in wider)
                    width = max((w - m for w, m in zip(wider, margins, strict=True)), default=0)
                    self._keep(after, left, so_far, seconds + self._compute(left), messages, width)
            held = after
        return min(held.values(), key=lambda s: s.seconds)

    @staticmethod
    def _keep(
        states: dict[Margins | None, Schedule], state: Margins | None, before: Schedule, seconds: float, messages: int,
        width: int, gathered: bool = False,
    ) -> None:  # fmt: skip
        total = before.seconds + seconds
        if state not in states or total < states[state].seconds:
            states[state] = Schedule(
                total, before.messages + messages, (*before.widths, width), before.gathered or gathered
            )

    def _wider(self, margins: Margins) -> list[Margins]:
        """Margins that a step can be computed from, and that hold these."""
        choices = [
            [w for w in self.depths[i // 2] if w >= max(m, self.chain.radius)] for i, m in enumerate(margins)
        ]  # fmt: skip
        if self.chain.steps > 8:  # a long chain: all sides of a dimension alike
            return [
                tuple(itertools.chain.from_iterable((w, w) for w in wide))
                for wide in itertools.product(*choices[::2])
            ]  # fmt: skip
        return list(itertools.product(*choices))

    def _exchange(self, margins: Margins, wider: Margins) -> tuple[float, int]:
        """The cheapest order of dimensions in which to take the layers in: seconds and messages."""
        dims = [d for d in range(len(self.chain.tile)) if wider[2 * d : 2 * d + 2] != margins[2 * d : 2 * d + 2]]
        best = (math.inf, 0)
        for order in itertools.permutations(dims):
            now, seconds, messages = list(margins), 0.0, 0
            for d in order:
                sides = [wider[2 * d + s] - margins[2 * d + s] for s in (0, 1)]
                across = self.chain.inner * math.prod(
                    t + now[2 * e] + now[2 * e + 1] for e, t in enumerate(self.chain.tile) if e != d
                )
                issued, layers = sum(side > 0 for side in sides), sum(sides)
                if self.chain.shards[d] == 2 and not self.chain.wrapped:  # each has one neighbour: one permute
                    issued, layers = 1, max(sides)
                seconds += self._price("halo-exchange", d, layers * across, issued)
                messages += issued
                now[2 * d : 2 * d + 2] = wider[2 * d : 2 * d + 2]
            best = min(best, (seconds, messages))
        return best

    def _gather(self, margins: Margins) -> float:
        """One all-gather of the tiles over all devices."""
        whole = self._elements(None)
        return self._price("all-gather", None, whole - whole / math.prod(self.chain.shards), 1)

    def _compute(self, margins: Margins | None) -> float:
        """A step on the tile and its margins, or on the whole domain."""
        return self._priced(
            StepInfo("local", self.chain.mesh, op="add", flops=float(self.chain.flops * self._elements(margins)))
        )

    def _elements(self, margins: Margins | None) -> int:
        chain = self.chain
        if margins is None:
            return chain.inner * math.prod(t * s for t, s in zip(chain.tile, chain.shards, strict=True))
        return chain.inner * math.prod(t + margins[2 * d] + margins[2 * d + 1] for d, t in enumerate(chain.tile))

    def _price(self, kind: str, dim: int | None, elements: float, messages: int) -> float:
        axes = tuple(self.chain.mesh.axes) if dim is None else (tuple(self.chain.mesh.axes)[dim],)
        group = math.prod(self.chain.mesh.axes[a] for a in axes)
        return self._priced(
            StepInfo(
                kind, self.chain.mesh, axes=axes, group=group, wire_bytes=float(elements * self.chain.itemsize),
                messages=messages,
            )
        )  # fmt: skip

    def _priced(self, step: StepInfo) -> float:
        if step not in self.prices:
            self.prices[step] = self.model.seconds(step)
        return self.prices[step]


def exchanges(schedule: Schedule) -> Sequence[int]:
    """The widths taken in, where any were."""
    return [w for w in schedule.widths if w]
