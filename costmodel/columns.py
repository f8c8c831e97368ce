"""Columnar batches of steps, which cost models that price with NumPy take instead of single steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eggshard.costmodel.protocol import CostModel, StepInfo
from eggshard.errors import CostModelError

#: The columns of figures, by their names in `StepInfo`.
FIGURES = ("wire_bytes", "messages", "flops", "memory_bytes", "hops", "copied_bytes", "runs")


@dataclass(frozen=True, eq=False)
class StepColumns:
    """Steps that are alike but for their figures stand under one head.

    heads: distinct steps with all figures zero. head: for each step the number of its head, ``[steps]``. wire_bytes,
    messages, flops, memory_bytes, hops, copied_bytes, runs: float64 ``[steps]``, as in `StepInfo`.
    """

    heads: tuple[StepInfo, ...]
    head: np.ndarray
    wire_bytes: np.ndarray
    messages: np.ndarray
    flops: np.ndarray
    memory_bytes: np.ndarray
    hops: np.ndarray
    copied_bytes: np.ndarray
    runs: np.ndarray

    @classmethod
    def of(cls, steps: Sequence[StepInfo]) -> StepColumns:
        """The columns of some steps."""
        number: dict[StepInfo, int] = {}
        head = [number.setdefault(bare(s), len(number)) for s in steps]
        figures = (np.array([getattr(s, f) for s in steps], float) for f in FIGURES)
        return cls(tuple(number), np.array(head, np.int64), *figures)

    @classmethod
    def alike(cls, step: StepInfo, **figures: np.ndarray) -> StepColumns:
        """Steps that differ from one step in the given columns only, which are of one length."""
        n = len(next(iter(figures.values()))) if figures else 1
        columns = (np.broadcast_to(np.asarray(figures.get(f, getattr(step, f)), float), (n,)) for f in FIGURES)
        return cls((bare(step),), np.zeros(n, np.int64), *columns)

    def __len__(self) -> int:
        return len(self.head)

    def __iter__(self) -> Iterator[StepInfo]:
        return (self.step(i) for i in range(len(self)))

    def step(self, i: int) -> StepInfo:
        """One of the steps."""
        head: StepInfo = self.heads[int(self.head[i])]
        return replace(
            head, wire_bytes=float(self.wire_bytes[i]), messages=int(self.messages[i]),
            flops=float(self.flops[i]), memory_bytes=float(self.memory_bytes[i]), hops=int(self.hops[i]),
            copied_bytes=float(self.copied_bytes[i]), runs=float(self.runs[i]),
        )

    @cached_property
    def rows(self) -> tuple[np.ndarray, ...]:
        """Per head the numbers of its steps, ascending."""
        if len(self.heads) == 1:
            return (np.arange(len(self)),)
        order = np.argsort(self.head, kind="stable")
        return tuple(np.split(order, np.searchsorted(self.head[order], np.arange(1, len(self.heads)))))

    def taken(self, rows: np.ndarray) -> StepColumns:
        """Some of the steps, under the same heads."""
        return StepColumns(self.heads, self.head[rows], *(getattr(self, f)[rows] for f in FIGURES))


def bare(step: StepInfo) -> StepInfo:
    """The step with all figures zero: its head."""
    return StepInfo(step.kind, step.mesh, step.op, step.axes, step.group, dtype=step.dtype)


def seconds_many(model: CostModel, steps: StepColumns) -> np.ndarray:
    """The model's prices of many steps, ``[steps]``: by its ``seconds_many`` where it has one, else one by one."""
    together = getattr(model, "seconds_many", None)
    if together is None:
        return np.array([model.seconds(step) for step in steps], float)
    found = np.asarray(together(steps), float)
    if found.shape != (len(steps),):
        raise CostModelError(
            f"cost model {type(model).__name__} answered seconds_many with an array of shape {found.shape}; give one "
            f"price for each of the {len(steps)} steps"
        )
    return found
