"""Models that count: wire bytes, or messages. Their unit is nominal (one byte, or one message, is a nanosecond)."""

from __future__ import annotations

from dataclasses import dataclass

from eggshard.costmodel.protocol import StepInfo

#: A flop or a byte of local memory, in units of the counted thing: a tie-breaker, never a reason.
TIE = 1e-10


@dataclass(frozen=True)
class WireBytes:
    """Bytes first, then messages, then compute: one message weighs a thousandth of a byte, a flop a ten-billionth."""

    def seconds(self, step: StepInfo) -> float:
        return 1e-9 * (step.wire_bytes + 1e-3 * step.messages + TIE * (step.flops + step.memory_bytes))


@dataclass(frozen=True)
class Messages:
    """The number of collectives first, then bytes, then compute."""

    def seconds(self, step: StepInfo) -> float:
        return 1e-9 * (step.messages + 1e-12 * step.wire_bytes + 1e-18 * (step.flops + step.memory_bytes))
