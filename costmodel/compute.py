"""Compute of a device: rooflines, and caches that a large working set overflows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eggshard.costmodel.protocol import StepInfo
from eggshard.errors import CostModelError


@dataclass(frozen=True)
class Compute:
    """What a device computes with: a roofline, and other rates for some ops.

    flops: peak per second by element type; "default" for those not named. memory: bytes per second. launch: seconds
    per op that touches memory. ops: by name of an op, or kind of a step without communication, what differs for it.
    cache, spill: bytes that an op touches past so many take so many times longer. like: by name of an op the one in
    ``ops`` that it takes as long as.
    """

    flops: Mapping[str, float] = field(hash=False)
    memory: float
    launch: float = 0.0
    ops: Mapping[str, Compute] = field(default_factory=dict, hash=False)
    cache: float = math.inf
    spill: float = 1.0
    like: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        rates = {"memory": self.memory, **{f"flops.{d}": rate for d, rate in self.flops.items()}}
        for what, rate in rates.items():
            if not rate > 0:
                raise CostModelError(f"compute: {what} is a rate above zero; got {rate}")
        check_spill("compute", self.cache, self.spill)
        if "default" not in self.flops:
            raise CostModelError("compute: flops has no default; give the rate of all element types not named")
        if not (self.launch >= 0 and math.isfinite(self.launch)):
            raise CostModelError(f"compute: launch is seconds, finite and not negative; got {self.launch}")

    def seconds(self, step: StepInfo, flops: Any, touched: Any, greater: Callable[[Any, Any], Any]) -> Any:
        """Seconds of steps like this one of so many flops and bytes touched: numbers, or arrays."""
        name = step.op or step.kind
        own = self.ops.get(self.like.get(name, name), self)
        peak = own.flops.get(step.dtype, own.flops["default"])
        return own.launch * ((flops > 0) | (touched > 0)) + greater(
            flops / peak, spilled(touched, own.cache, own.spill, greater) / own.memory)


def check_spill(what: str, cache: float, spill: float) -> None:
    if not (cache > 0 and spill >= 1 and math.isfinite(spill)):
        raise CostModelError(
            f"{what}: cache is bytes above zero and spill a factor of at least 1; got {cache} and {spill}")


def spilled(size: Any, cache: float, spill: float, greater: Callable[[Any, Any], Any]) -> Any:
    """Bytes, those past the cache counted ``spill`` times; of a number or an array."""
    return size if spill == 1.0 else size + (spill - 1) * greater(size - cache, 0.0)
