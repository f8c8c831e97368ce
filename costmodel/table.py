"""A measured table as a cost model, interpolated between its entries in the logarithms of bytes and group size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from eggshard.costmodel.columns import StepColumns, seconds_many
from eggshard.costmodel.combining import Combinable
from eggshard.costmodel.protocol import CostModel, StepInfo
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh

#: A step and the seconds that it was measured to take.
Measured = tuple[StepInfo, float]
#: Entries for one kind of step and group size: bytes on the wire per message (ascending), and seconds (never falling).
Curve = tuple[str, int, tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Table(Combinable):
    """Prices steps that communicate by what was measured; all else, and kinds that were not, by another model.

    Below the least bytes measured the price is that of the least, above the most it grows with the bytes. Groups larger
    or smaller than those measured are priced as the nearest that was.
    """

    curves: tuple[Curve, ...]
    otherwise: CostModel

    def __post_init__(self) -> None:
        for kind, group, sizes, seconds in self.curves:
            if not sizes or len(sizes) != len(seconds) or min(sizes) <= 0 or min(seconds) <= 0:
                raise CostModelError(f"table: {kind} of {group} devices has bytes {sizes} and seconds {seconds}; give "
                                     "as many of either, above zero")
            if list(sizes) != sorted(set(sizes)) or list(seconds) != sorted(seconds):
                raise CostModelError(f"table: {kind} of {group} devices: bytes do not ascend, or seconds fall")

    @classmethod
    def of(cls, measured: Iterable[Measured], otherwise: CostModel) -> Table:
        """The table of some measured steps: the median of those that are alike; seconds that fall are evened out."""
        found: dict[tuple[str, int], dict[float, list[float]]] = {}
        for step, seconds in measured:
            if step.communicates and step.wire_bytes > 0:
                sizes = found.setdefault((step.kind, step.group), {})
                sizes.setdefault(step.wire_bytes / step.messages, []).append(seconds / step.messages)
        curves = []
        for (kind, group), rows in sorted(found.items()):
            medians = np.maximum.accumulate([float(np.median(rows[size])) for size in sorted(rows)])
            curves.append((kind, group, tuple(sorted(rows)), tuple(medians.tolist())))
        return cls(tuple(curves), otherwise)

    def seconds(self, step: StepInfo) -> float:
        near = self._near(step)
        if not near:
            return self.otherwise.seconds(step)
        return float(self._read(near, np.array([step.wire_bytes]), np.array([step.messages]))[0])

    def seconds_many(self, steps: StepColumns) -> np.ndarray:
        out = np.zeros(len(steps))
        others = []
        for head, rows in zip(steps.heads, steps.rows, strict=True):
            communicates = steps.messages[rows] > 0
            near = self._near(StepInfo(head.kind, head.mesh, group=head.group, messages=1))
            if near:
                mine = rows[communicates]
                out[mine] = self._read(near, steps.wire_bytes[mine], steps.messages[mine])
                rows = rows[~communicates]
            others.append(rows)
        rest = np.concatenate(others) if others else np.zeros(0, int)
        if len(rest):
            out[rest] = seconds_many(self.otherwise, steps.taken(rest))
        return out

    @property
    def overlap(self) -> float:
        return float(getattr(self.otherwise, "overlap", 0.0))

    def channels(self, axes: tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
        asked = getattr(self.otherwise, "channels", None)
        return ("network",) if asked is None else tuple(asked(axes, mesh))

    def _near(self, step: StepInfo) -> list[tuple[float, Curve]]:
        """The curves of the next smaller and larger group that were measured, with their weights."""
        curves = {c[1]: c for c in self.curves if c[0] == step.kind} if step.communicates and step.group > 1 else {}
        if not curves:
            return []
        below = max((g for g in curves if g <= step.group), default=min(curves))
        above = min((g for g in curves if g >= step.group), default=max(curves))
        if below >= above:
            return [(1.0, curves[below])]
        part = float(np.log(step.group / below) / np.log(above / below))
        return [(1 - part, curves[below]), (part, curves[above])]

    def _read(self, near: list[tuple[float, Curve]], wire: np.ndarray, messages: np.ndarray) -> np.ndarray:
        size = np.maximum(wire / messages, 1e-9)
        logs = np.zeros(len(wire))
        for weight, (_, _, sizes, seconds) in near:
            past = np.log(np.maximum(size / sizes[-1], 1.0))
            logs += weight * (np.interp(np.log(size), np.log(sizes), np.log(seconds)) + past)
        prices: np.ndarray = messages * np.exp(logs)
        return prices
