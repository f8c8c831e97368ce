"""Loops and branches as steps: device programs within a device program."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.steps import Action, StepPlan

#: The assumed trip count of a loop whose trip count depends on data.
UNKNOWN_TRIPS = 16


def trips(trip_count: int | None) -> int:
    """How often a loop's body counts: the trip count, or `UNKNOWN_TRIPS`."""
    return UNKNOWN_TRIPS if trip_count is None else trip_count


def price_of_loop(times: int, condition: float, body: float) -> float:
    """The price of a loop that runs so often, in seconds; its condition is asked once more."""
    return (times + 1) * condition + times * body


@dataclass(frozen=True, slots=True)
class Loop(Action):
    """A while loop whose condition and body are device programs over the carried shards.

    ``condition`` yields one scalar i1, the same on all devices if the loop communicates; ``body`` yields the carried
    values again, in the same local types. ``trip_count`` is None where it depends on data; of
    the rest of such a loop that runs in rows, it is an estimate.
    """

    condition: StepPlan
    body: StepPlan
    trip_count: int | None = None
    kind: ClassVar[str] = "while"

    @property
    def trips(self) -> int:
        """How often the body counts."""
        return trips(self.trip_count)

    @property
    def flops(self) -> float:
        return self.condition.flops * (self.trips + 1) + self.body.flops * self.trips

    @property
    def messages(self) -> int:
        return self.condition.messages * (self.trips + 1) + self.body.messages * self.trips

    @property
    def collectives(self) -> dict[str, int]:
        out = Counter({kind: n * (self.trips + 1) for kind, n in self.condition.collectives.items()})
        out.update({kind: n * self.trips for kind, n in self.body.collectives.items()})
        return dict(out)

    @property
    def has_effects(self) -> bool:
        return self.condition.has_effects or self.body.has_effects

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        return operands

    def received(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> np.ndarray:
        per_trip = self.condition.total_received + self.body.total_received
        total: np.ndarray = self.condition.total_received + per_trip * self.trips
        return total

    def serial_bytes(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return self.condition.serial_bytes * (self.trips + 1) + self.body.serial_bytes * self.trips


@dataclass(frozen=True, slots=True)
class Branch(Action):
    """Case: operand 0 is the branch index (i32, clamped to the last branch) or an i1 predicate (true: branch 0).

    The other operands are the inputs of every branch. The selector is the same on all devices if a branch communicates.
    """

    branches: tuple[StepPlan, ...]
    predicate: bool
    kind: ClassVar[str] = "case"

    @property
    def flops(self) -> float:
        return max((b.flops for b in self.branches), default=0.0)

    @property
    def messages(self) -> int:
        return max((b.messages for b in self.branches), default=0)

    @property
    def collectives(self) -> dict[str, int]:
        return max(self.branches, key=lambda b: b.messages).collectives

    @property
    def has_effects(self) -> bool:
        return any(b.has_effects for b in self.branches)

    def result(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
        first = self.branches[0]
        return tuple(first.types[v] for v in first.outputs)

    def received(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> np.ndarray:
        """Return the bytes received per device in the branch whose busiest device receives most."""
        return max((b.total_received for b in self.branches), key=lambda r: float(r.max()), default=np.zeros(mesh.size))

    def serial_bytes(self, mesh: Mesh, operands: tuple[TensorType, ...]) -> float:
        return max((b.serial_bytes for b in self.branches), default=0.0)
