"""The cost model protocol: one method that prices one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from eggshard.program.mesh import Mesh


@dataclass(frozen=True, slots=True)
class StepInfo:
    """One physical step, as a cost model sees it. All figures are per device.

    kind: "local", "slice", "resize", "mask", "keep-first", "window", "select", "edge" (no communication),
    "all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute", "exchange" and "halo-exchange"
    (several collective-permutes, of pieces and of slabs from neighbours).
    op: the op's name for local steps. axes: the mesh axes of the groups; group: devices per group.
    wire_bytes: received by the busiest device (ring formulas). messages: collectives issued.
    flops: floating-point operations. memory_bytes: read and written. dtype: element type of the first operand.
    hops: of a halo exchange, the devices that its slabs pass on a ring along the axes, collectives added up (0: not
    known). copied_bytes, runs: read and written by the copies that a collective along an inner dimension makes before
    and after, because what it sends or receives is not one piece of memory, and the contiguous pieces copied.
    """

    kind: str
    mesh: Mesh
    op: str = ""
    axes: tuple[str, ...] = ()
    group: int = 1
    wire_bytes: float = 0.0
    messages: int = 0
    flops: float = 0.0
    memory_bytes: float = 0.0
    dtype: str = "f32"
    hops: int = 0
    copied_bytes: float = 0.0
    runs: float = 0.0

    @property
    def communicates(self) -> bool:
        return self.messages > 0


@runtime_checkable
class CostModel(Protocol):
    """Anything with this method is a cost model. By itself it says that the steps of a plan add up.

    Optional members describe a machine that computes while it communicates; a plan's price is then the time that its
    schedule takes (`eggshard.costmodel.schedule`):

    - ``overlap: float``, from 0 (the default: steps add up) to 1: the part of a collective's seconds during which the
      device can compute. For the other part, at its beginning, the collective holds the compute stream as well.
    - ``channels(axes: tuple[str, ...], mesh: Mesh) -> tuple[str, ...]``: the names of the links that a collective over
      these axes of the mesh holds; collectives that have none in common run at the same time. Without this method there
      is one link.

    Others make a model better known or faster:

    - ``unit: Unit``: what its prices are, where they are no seconds (`eggshard.costmodel.units`).
    - ``seconds_many(steps: StepColumns) -> numpy.ndarray``: the prices of many steps at once, ``[steps]``, the same as
      ``seconds`` gives one by one (`eggshard.costmodel.columns`).
    - ``capacity: float | None``: bytes of memory of a device: the ``memory_limit`` of plans where none is given.
    """

    def seconds(self, step: StepInfo) -> float:
        """The price of a step: finite and not negative."""
        ...
