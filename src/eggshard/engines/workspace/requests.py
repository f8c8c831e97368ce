"""Requests of a device program to its workspace: bytes, lifetime and number of slots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from eggshard.errors import WorkspaceError

#: Bytes that hardware writes back together: two writers never share such a line, so every slot begins on one.
LINE = 64
#: Who touches a request: its own device alone; peers too, reading.
SHARING = ("private", "shared-read")


class Lifetime(NamedTuple):
    """The instants from ``first`` to ``last``, both included."""

    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether there is an instant in both."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Request:
    """One buffer per slot, each of ``bytes`` bytes on lines of its own.

    lifetime: the instants at which it holds something. slots: buffers that are used in turn. site: which step asks.
    what: "value", "state" or "staging". sharing: see `SHARING`. WorkspaceError for numbers that are none.
    """

    name: str
    bytes: int
    lifetime: Lifetime
    slots: int = 1
    site: str = ""
    what: str = "value"
    sharing: str = "private"

    def __post_init__(self) -> None:
        if not self.name:
            raise WorkspaceError("a request has no name; users find it by its name")
        if self.bytes < 0 or self.slots < 1:
            raise WorkspaceError(f"{self.name!r} asks for {self.slots} slots of {self.bytes} bytes")
        if not 0 <= self.lifetime.first <= self.lifetime.last:
            raise WorkspaceError(f"{self.name!r} lives from {self.lifetime.first} to {self.lifetime.last}")
        if self.sharing not in SHARING:
            raise WorkspaceError(f"{self.name!r} is said to be {self.sharing!r}; there are {', '.join(SHARING)}")

    @property
    def slot_stride(self) -> int:
        """Bytes from one slot to the next."""
        return in_lines(self.bytes)

    @property
    def footprint(self) -> int:
        """Bytes of all its slots."""
        return self.slots * self.slot_stride

    def to_json(self) -> dict[str, Any]:
        """Plain data that `from_json` reads."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Request:
        """A request from `to_json`. KeyError or TypeError for other data."""
        return Request(**{**data, "lifetime": Lifetime(*data["lifetime"])})


def in_lines(number: int) -> int:
    """Bytes rounded up to whole lines."""
    return -(-number // LINE) * LINE
