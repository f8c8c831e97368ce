"""The protocol between a device's runner and its engine: moving a step's pieces, and agreeing on numbers.

All devices lay values out alike, so that a value's buffer is at the same offset of each device's slice of the
workspace, and so is a piece's box within it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from eggshard.engines.ranks.traffic import Traffic
from eggshard.errors import EngineError
from eggshard.program.types import TensorType, numpy_dtype


class Buffer(NamedTuple):
    """A value in every device's slice: so many bytes from its beginning, of this local type."""

    offset: int
    type: TensorType

    @property
    def bytes(self) -> int:
        """What NumPy takes for it."""
        return self.type.elements * numpy_dtype(self.type.dtype).itemsize

    def view(self, memory: np.ndarray) -> np.ndarray:
        """The value ``[*local shape]`` in a device's slice (an array of bytes). EngineError if it lies outside."""
        end = self.offset + self.bytes
        if self.offset < 0 or end > len(memory):
            raise EngineError(
                f"a value {self.type} at bytes [{self.offset}, {end}) lies outside its slice of {len(memory)} bytes"
            )
        return memory[self.offset : end].view(numpy_dtype(self.type.dtype)).reshape(self.type.shape)


class Channel(Protocol):
    """One communicating step at fixed buffers, which may run any number of times, one time after the other.

    All devices of the mesh run the same steps in the same order, each from ``start`` to ``finish``.
    """

    def start(self) -> None:
        """The operands hold their values: begin. Until `finish` returns, no one writes operands or results."""

    def finish(self) -> None:
        """Return when the results hold all of their data, and no peer reads the operands any longer."""


class Communicator(Protocol):
    """The engine's side of one device."""

    @property
    def device(self) -> int:
        """The logical device id."""

    def prepare(
        self, name: str, traffic: Traffic, operands: tuple[Buffer, ...], results: tuple[Buffer, ...]
    ) -> Channel:
        """A channel for a step; asked once for each step and each list of buffers that it runs at, by all devices in
        the same order, just before its first run. name: of the step, for messages.

        Results lie apart from each other and from the operands.
        """

    def agree(self, number: int, what: str) -> None:
        """Compare a number with that of all devices; VerificationError naming ``what`` on all of them if it differs."""
