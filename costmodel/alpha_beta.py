"""Latency and bandwidth on a topology, with a roofline for compute: the default model.

Formulas: ring collectives as in Thakur, Rabenseifner and Gropp (2005), (N-1) hops of latency and V(N-1)/N bytes over
the link; all-to-all on a bidirectional ring after the "How to scale your model" book, sharding chapter: each byte
travels N/4 links on average. `Machine` knows more: several levels, algorithms, where devices stand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.combining import Combinable
from eggshard.costmodel.protocol import StepInfo
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh

if TYPE_CHECKING:
    from eggshard.costmodel.machines.machine import Machine

Topology = Literal["switch", "ring", "torus"]
#: Hops per ring step count of each collective: (N-1) sends, twice that for an all-reduce.
_ROUNDS = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2, "all-to-all": 1}


@dataclass(frozen=True)
class AlphaBeta(Combinable):
    """Seconds = launch + hops * latency + bytes / bandwidth for collectives, a roofline for local steps.

    topology: "switch" (full bisection), "ring" (a bidirectional ring per mesh axis), "torus" (the same, and a
    collective over several axes uses their links at once); or a mapping from axis name to one of them.
    launch: seconds per collective. latency: seconds per hop. bandwidth: bytes per second of a device into a switch,
    or one way per link of a ring. flops: peak per second. memory: bytes per second.

    The defaults are one NVLink node of H100s: NCCL's ring base latency 6.6 us and hop 0.6 us (nccl
    src/graph/tuning.cc, protocol LL), 450 GB/s one way per GPU, HBM 3.35 TB/s, 67 Tflop/s in f32 (datasheet).
    """

    topology: Topology | Mapping[str, Topology] = "switch"
    launch: float = 6.6e-6
    latency: float = 0.6e-6
    bandwidth: float = 4.5e11
    flops: float = 6.7e13
    memory: float = 3.35e12
    name: str = field(default="h100-node", compare=False)
    overlap: float = 0.0

    def __post_init__(self) -> None:
        for what in ("launch", "latency"):
            seconds = getattr(self, what)
            if not (seconds >= 0 and math.isfinite(seconds)):
                raise CostModelError(f"AlphaBeta: {what} is seconds, finite and not negative; got {seconds}")
        for what in ("bandwidth", "flops", "memory"):
            if not getattr(self, what) > 0:
                raise CostModelError(f"AlphaBeta: {what} is a rate above zero; got {getattr(self, what)}")
        if not 0 <= self.overlap <= 1:
            raise CostModelError(f"AlphaBeta: overlap is a part, from 0 to 1; got {self.overlap}")
        kinds = {self.topology} if isinstance(self.topology, str) else set(self.topology.values())
        if kinds - {"switch", "ring", "torus"}:
            raise CostModelError(f"AlphaBeta: topology is switch, ring or torus; got {sorted(kinds)}")

    @classmethod
    def of(cls, machine: Machine) -> AlphaBeta:
        """The innermost level of a machine as this model: its datasheet's bandwidth, its first protocol's latency."""
        level, protocol = machine.levels[0], machine.protocols[0]
        fabric, compute = protocol.on(level), machine.compute
        topology: Topology = "torus" if fabric.is_ring else "switch"
        return cls(topology, protocol.launch, fabric.latency, level.fabric.bandwidth, compute.flops["default"],
                   compute.memory, machine.name)

    @classmethod
    def preset(cls, name: str) -> AlphaBeta:
        """A machine by name, simplified; CostModelError lists the names for an unknown one."""
        from eggshard.costmodel.machines.machine_files import preset

        return cls.of(preset(name))

    def _kind(self, axis: str) -> str:
        if isinstance(self.topology, str):
            return self.topology
        return self.topology.get(axis, self.topology.get(axis.partition(":")[0], "switch"))

    def channels(self, axes: tuple[str, ...], mesh: Mesh | None = None) -> tuple[str, ...]:
        """The links that a collective over these axes holds: the device's port of the switch, or the axes' own."""
        return tuple(dict.fromkeys("switch" if self._kind(a) == "switch" else a.partition(":")[0] for a in axes))

    def seconds(self, step: StepInfo) -> float:
        if not step.communicates:
            return max(step.flops / self.flops, step.memory_bytes / self.memory)
        price: float = self._wire(step, step.messages, step.wire_bytes, step.hops, math.ceil)
        return price

    def seconds_many(self, steps: StepColumns) -> np.ndarray:
        """The prices of many steps, ``[steps]``."""
        out = np.maximum(steps.flops / self.flops, steps.memory_bytes / self.memory)
        for step, rows in zip(steps.heads, steps.rows, strict=True):
            rows = rows[steps.messages[rows] > 0]
            if len(rows):
                hops = steps.hops[rows]
                for known in (hops > 0, hops == 0):
                    part = rows[known]
                    if len(part):
                        out[part] = self._wire(step, steps.messages[part], steps.wire_bytes[part], hops[known], np.ceil)
        return out

    def _wire(self, step: StepInfo, messages: Any, wire: Any, passed: Any, ceil: Callable[[Any], Any]) -> Any:
        """Seconds of steps of one head, of numbers or of arrays; of arrays all or none of ``passed`` are known."""
        n = max(step.group, 2)
        kinds = {self._kind(a) for a in step.axes} or {"switch"}
        if kinds == {"switch"}:
            hops = _ROUNDS.get(step.kind, 0) * (n - 1) or messages
            return messages * self.launch + hops * self.latency + wire / self.bandwidth
        links = 2 * (len(step.axes) if "torus" in kinds else 1)
        longest = max(step.mesh.axes[a] for a in step.axes)
        if step.kind == "all-to-all":
            local = wire * n / (n - 1)
            hops, traffic = longest // 2, local * n / 4
        elif step.kind in _ROUNDS:
            hops, traffic = _ROUNDS[step.kind] * sum(step.mesh.axes[a] - 1 for a in step.axes), wire
        else:
            known = passed.any() if isinstance(passed, np.ndarray) else passed
            distance = passed / messages if known else max(1.0, longest / 4)
            hops, traffic = passed if known else messages * ceil(distance), wire * distance
        return messages * self.launch + hops * self.latency + traffic / (links * self.bandwidth)
