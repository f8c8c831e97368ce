"""Counting models of wire bytes or messages. Their unit is nominal: a byte, or a message, costs one nanosecond."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.combining import Combinable
from eggshard.costmodel.protocol import StepInfo
from eggshard.costmodel.units import Unit

#: A flop or a byte of local memory, in units of the counted thing: a tie-breaker, never a reason.
TIE = 1e-10


@dataclass(frozen=True)
class WireBytes(Combinable):
    """Bytes first, then messages, then compute: one message weighs a thousandth of a byte, a flop a ten-billionth."""

    unit = Unit("bytes", 1e-9)

    def seconds(self, step: StepInfo) -> float:
        return 1e-9 * (step.wire_bytes + 1e-3 * step.messages + TIE * (step.flops + step.memory_bytes))

    def seconds_many(self, steps: StepColumns) -> np.ndarray:
        """The prices of many steps, ``[steps]``."""
        prices: np.ndarray = steps.wire_bytes + 1e-3 * steps.messages + TIE * (steps.flops + steps.memory_bytes)
        return 1e-9 * prices


@dataclass(frozen=True)
class Messages(Combinable):
    """The number of collectives first, then bytes, then compute."""

    unit = Unit("messages", 1e-9)

    def seconds(self, step: StepInfo) -> float:
        return 1e-9 * (step.messages + 1e-12 * step.wire_bytes + 1e-18 * (step.flops + step.memory_bytes))

    def seconds_many(self, steps: StepColumns) -> np.ndarray:
        """The prices of many steps, ``[steps]``."""
        prices: np.ndarray = steps.messages + 1e-12 * steps.wire_bytes + 1e-18 * (steps.flops + steps.memory_bytes)
        return 1e-9 * prices
