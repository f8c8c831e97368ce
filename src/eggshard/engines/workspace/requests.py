"""What a device program asks of its workspace: so many bytes, for so long, in so many copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

from eggshard.engines.workspace.sizes import Size, SizeLike, aligned_up, fitting, integer
from eggshard.errors import WorkspaceError

#: Bytes that hardware writes back together: two writers never share such a line.
GRANULE = 64
#: Who touches a request: its own device alone; peers too, reading; peers too, writing.
SHARING = ("private", "shared-read", "shared-write")
#: What a request holds before it is first written.
INITIALISATIONS = ("none", "zero once", "zero per call")


class Lifetime(NamedTuple):
    """The instants from ``first`` to ``last``, both included."""

    first: int
    last: int


class Space(NamedTuple):
    """What a request takes, in bytes: from one slot to the next, and all slots of all rings and lanes."""

    slot_stride: int
    footprint: int
    rings: int
    slots: int
    lanes: int


@dataclass(frozen=True)
class Request:
    """One buffer per lane, ring and slot, each of ``bytes`` bytes at an aligned place.

    bytes: of one slot. lifetime: the instants at which it holds something; None: the whole launch.
    persistent: it keeps its contents from one iteration or launch to the next, so it has no shorter lifetime.
    rings: directions of a channel (two if data flows both ways). slots: buffers of each ring in turn. lanes: parts of
    a device that run at the same time. site: which launch or step asks. what: "value", "state", "staging", "halo", ...
    sharing: see `SHARING`; what peers write names the synchronisation that lets them. positive: counts that went into
    ``bytes``, to be checked with it.
    """

    name: str
    bytes: Size
    lifetime: Lifetime | None = None
    alignment: int = GRANULE
    rings: Size = Size.of(1)
    slots: Size = Size.of(1)
    lanes: Size = Size.of(1)
    site: str = ""
    what: str = "value"
    sharing: str = "private"
    synchronisation: str = ""
    initialisation: str = "none"
    persistent: bool = False
    positive: tuple[Size, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise WorkspaceError(f"a request has the name {self.name!r}; names are non-empty strings")
        object.__setattr__(self, "bytes", Size.of(self.bytes))
        for field in ("rings", "slots", "lanes"):
            size = Size.of(getattr(self, field))
            if size.constant is not None:
                size.count(what=f"the number of {field} of {self.name!r}")
            object.__setattr__(self, field, size)
        power_of_two(self.alignment, f"the alignment of {self.name!r}")
        if self.lifetime is not None:
            first, last = (integer(t, f"an instant of {self.name!r}") for t in self.lifetime)
            if last < first:
                raise WorkspaceError(f"{self.name!r} ends at instant {last}, before it begins at {first}")
            object.__setattr__(self, "lifetime", Lifetime(first, last))
        if self.persistent and self.lifetime is not None:
            raise WorkspaceError(f"{self.name!r} persists, so it cannot end at {self.lifetime}; give it no lifetime")
        if self.persistent and self.initialisation == "zero per call":
            raise WorkspaceError(f"{self.name!r} persists, so it cannot be zeroed at every call; zero it once")
        for value, known in ((self.sharing, SHARING), (self.initialisation, INITIALISATIONS)):
            if value not in known:
                raise WorkspaceError(f"{self.name!r} is said to be {value!r}; there are {', '.join(known)}")
        if (self.sharing == "shared-write") != bool(self.synchronisation):
            raise WorkspaceError(
                f"{self.name!r} is {self.sharing} with the synchronisation {self.synchronisation!r}; what peers write "
                "names one, and nothing else does"
            )

    @staticmethod
    def make(name: str, bytes: SizeLike, lifetime: tuple[int, int] | None = None, **options: Any) -> Request:
        """A request from plain numbers, texts and tuples."""
        for field in ("rings", "slots", "lanes"):
            if field in options:
                options[field] = Size.of(options[field])
        if "positive" in options:
            options["positive"] = tuple(map(Size.of, options["positive"]))
        return Request(name, Size.of(bytes), None if lifetime is None else Lifetime(*lifetime), **options)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The symbols of its sizes."""
        sizes = (self.bytes, *self.counts, *self.positive)
        return frozenset().union(*(s.symbols for s in sizes))

    @property
    def counts(self) -> tuple[Size, Size, Size]:
        """The numbers of its rings, slots and lanes."""
        return self.rings, self.slots, self.lanes

    def line(self, granule: int) -> int:
        """What its slots are aligned to: neither less than it asks nor than what is written back together."""
        return max(self.alignment, granule)

    def slot_stride(self, granule: int = GRANULE) -> Size:
        """Bytes from one slot to the next."""
        return self.bytes.aligned(self.line(granule))

    def footprint(self, granule: int = GRANULE) -> Size:
        """Bytes of all its slots, rings and lanes."""
        return self.lanes * self.rings * self.slots * self.slot_stride(granule)

    def at(self, symbols: Mapping[str, int], granule: int = GRANULE) -> Space:
        """What it takes at these symbols. WorkspaceError for counts below 1, and for sizes beyond 64 bits."""
        rings = self._count("rings", symbols)
        slots = self._count("slots", symbols)
        lanes = self._count("lanes", symbols)
        for size in self.positive:
            size.count(symbols, f"a count in {self.name!r}")
        stride = aligned_up(self.bytes.value(symbols), self.line(granule))
        footprint = fitting(lanes * rings * slots * stride, f"the footprint of {self.name!r}")
        return Space(stride, footprint, rings, slots, lanes)

    def _count(self, field: str, symbols: Mapping[str, int]) -> int:
        size: Size = getattr(self, field)
        if size.constant is not None:
            return size.constant
        return size.count(symbols, f"the number of {field} of {self.name!r}")

    def overlaps(self, other: Request) -> bool:
        """Whether both hold something at some instant."""
        if self.lifetime is None or other.lifetime is None:
            return True
        return self.lifetime.first <= other.lifetime.last and other.lifetime.first <= self.lifetime.last

    def substituted(self, values: Mapping[str, SizeLike]) -> Request:
        """The request with sizes in place of symbols."""
        sizes = {n: getattr(self, n).substituted(values) for n in ("bytes", "rings", "slots", "lanes")}
        return replace(self, **sizes, positive=tuple(s.substituted(values) for s in self.positive))

    def to_json(self) -> dict[str, Any]:
        """Plain data that `from_json` reads; fields at their defaults are left out."""
        out: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if value != f.default:
                many = f.name == "positive"
                out[f.name] = [s.to_json() for s in value] if many else (
                    value.to_json() if isinstance(value, Size) else value
                )
        return out

    @staticmethod
    def from_json(data: dict[str, Any]) -> Request:
        """A request from `to_json`. WorkspaceError for other data."""
        known = {f.name for f in fields(Request)}
        if not isinstance(data, dict) or not {"name", "bytes"} <= set(data) <= known:
            raise WorkspaceError(f"{data!r} is not a request: it needs name and bytes, and may have {sorted(known)}")
        return Request.make(**{**data, "lifetime": data.get("lifetime")})


def power_of_two(number: int, what: str) -> int:
    """The number; WorkspaceError unless it is a positive power of two."""
    if integer(number, what) < 1 or number & (number - 1):
        raise WorkspaceError(f"{what} is {number}; alignments are powers of two")
    return number
