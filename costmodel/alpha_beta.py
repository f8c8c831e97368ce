"""Latency and bandwidth on a topology, with a roofline for compute: the default model.

Formulas: ring collectives as in Thakur, Rabenseifner and Gropp (2005), (N-1) hops of latency and V(N-1)/N bytes over
the link; all-to-all on a bidirectional ring after the "How to scale your model" book, sharding chapter: each byte
travels N/4 links on average. Constants of the presets name their sources; none was fitted to measured times here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from eggshard.costmodel.protocol import StepInfo
from eggshard.errors import CostModelError

Topology = Literal["switch", "ring", "torus"]
#: Hops per ring step count of each collective: (N-1) sends, twice that for an all-reduce.
_ROUNDS = {"all-gather": 1, "reduce-scatter": 1, "all-reduce": 2, "all-to-all": 1}


@dataclass(frozen=True)
class AlphaBeta:
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
    def preset(cls, name: str) -> AlphaBeta:
        """A machine by name; CostModelError lists the names for an unknown one."""
        try:
            return PRESETS[name]
        except KeyError:
            raise CostModelError(f"no preset {name!r}; there are {', '.join(sorted(PRESETS))}") from None

    def _kind(self, axis: str) -> str:
        if isinstance(self.topology, str):
            return self.topology
        return self.topology.get(axis, self.topology.get(axis.partition(":")[0], "switch"))

    def channels(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The links that a collective over these axes holds: the device's port of the switch, or the axes' own."""
        return tuple(dict.fromkeys("switch" if self._kind(a) == "switch" else a.partition(":")[0] for a in axes))

    def seconds(self, step: StepInfo) -> float:
        if not step.communicates:
            return max(step.flops / self.flops, step.memory_bytes / self.memory)
        n = max(step.group, 2)
        kinds = {self._kind(a) for a in step.axes} or {"switch"}
        if kinds == {"switch"}:
            hops = _ROUNDS.get(step.kind, 0) * (n - 1) or step.messages
            return step.messages * self.launch + hops * self.latency + step.wire_bytes / self.bandwidth
        links = 2 * (len(step.axes) if "torus" in kinds else 1)
        longest = max(step.mesh.axes[a] for a in step.axes)
        if step.kind == "all-to-all":
            local = step.wire_bytes * n / (n - 1)
            hops, traffic = longest // 2, local * n / 4
        elif step.kind in _ROUNDS:
            hops, traffic = _ROUNDS[step.kind] * sum(step.mesh.axes[a] - 1 for a in step.axes), step.wire_bytes
        else:
            distance = step.hops / step.messages if step.hops else max(1.0, longest / 4)
            hops, traffic = step.hops or step.messages * math.ceil(distance), step.wire_bytes * distance
        return step.messages * self.launch + hops * self.latency + traffic / (links * self.bandwidth)


#: Machines. TPU figures: jax-ml/scaling-book tpus.md (one-way bytes per second per ICI link; cloud documents give
#: v6e 11 % more), hop about 1 us. GPUs: datasheets, NCCL tuning constants as above.
PRESETS: dict[str, AlphaBeta] = {
    "h100-node": AlphaBeta(),
    "a100-node": AlphaBeta(bandwidth=3e11, flops=1.95e13, memory=2.0e12, name="a100-node"),
    "b200-node": AlphaBeta(bandwidth=9e11, flops=8e13, memory=8e12, name="b200-node"),
    "tpu-v5e": AlphaBeta("torus", 1e-6, 1e-6, 4.5e10, 1.97e14, 8.1e11, name="tpu-v5e"),
    "tpu-v5p": AlphaBeta("torus", 1e-6, 1e-6, 9e10, 4.59e14, 2.8e12, name="tpu-v5p"),
    "tpu-v6e": AlphaBeta("torus", 1e-6, 1e-6, 9e10, 9.2e14, 1.6e12, name="tpu-v6e"),
}
