"""Layouts: one object that sizes a workspace and computes every address in it, for the allocator and for all users.

Requests that live at the same time stand one above the other in one order, and each begins where those below it end.
So they are disjoint whatever the symbols in their sizes come to; packing at sample sizes only chooses the order.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from eggshard.engines.workspace.packing import Buffer, max_live, pack
from eggshard.engines.workspace.requests import GRANULE, Request, power_of_two
from eggshard.engines.workspace.sizes import Size, SizeLike, aligned_up, fitting, integer, maximum
from eggshard.errors import WorkspaceError

FORMAT = 1
#: What symbols are taken for where no sample is given: an order is good if it is so at several sizes.
EXTENTS = (256, 2048, 32)
#: The same of numbers of rings, slots and lanes.
COUNTS = (2, 4, 1)
Symbols = Mapping[str, int]


class Place(NamedTuple):
    """Where a request lies in a device's slice, in bytes: its offset, its slots' stride, and the bytes of all slots."""

    offset: int
    slot_stride: int
    footprint: int
    rings: int
    slots: int
    lanes: int

    @property
    def end(self) -> int:
        return self.offset + self.footprint


class _Evaluated(NamedTuple):
    places: dict[str, Place]
    extent: int
    stride: int


@dataclass(frozen=True)
class Layout:
    """Where requests lie in a slice that every device has alike. Make one with `lay_out`.

    requests: in canonical order. order: their names, bottom to top. granule: bytes that are written back together.
    guard: bytes at the end of a slice that nobody may write.
    """

    requests: tuple[Request, ...]
    order: tuple[str, ...]
    granule: int = GRANULE
    guard: int = 0
    _at: dict[tuple[tuple[str, int], ...], _Evaluated] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        power_of_two(self.granule, "the granule")
        integer(self.guard, "the guard")
        names = [r.name for r in self.requests]
        twice = sorted({n for n in names if names.count(n) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise WorkspaceError(f"two requests have the name {twice[0]!r}; results and users are bound by name")
        if sorted(self.order) != sorted(names):
            raise WorkspaceError("the order of a layout names each of its requests once")

    @cached_property
    def by_name(self) -> dict[str, Request]:
        """Requests by their names."""
        return {r.name: r for r in self.requests}

    @cached_property
    def symbols(self) -> frozenset[str]:
        """What must be known before the workspace can be allocated, besides the number of devices."""
        return frozenset().union(*(r.symbols for r in self.requests))

    @cached_property
    def alignment(self) -> int:
        """Every offset's and the stride's; the base of the whole must have it too."""
        return max((r.line(self.granule) for r in self.requests), default=self.granule)

    @cached_property
    def below(self) -> dict[str, tuple[str, ...]]:
        """The requests that each request stands directly upon: at every instant of its life, the topmost so far.

        All that live at one instant are ordered, so whatever else lies below is below one of these.
        """
        firsts = sorted({r.lifetime.first for r in self.requests if r.lifetime is not None} | {0})
        top = [-1] * len(firsts)
        out: dict[str, tuple[str, ...]] = {}
        for rank, name in enumerate(self.order):
            life = self.by_name[name].lifetime
            start, stop = 0, len(firsts)
            if life is not None:
                start, stop = bisect.bisect_left(firsts, life.first), bisect.bisect_right(firsts, life.last)
            out[name] = tuple(self.order[i] for i in sorted(set(top[start:stop])) if i >= 0)
            top[start:stop] = [rank] * (stop - start)
        return out

    def offset(
        self, name: str, ring: int = 0, slot: int = 0, lane: int = 0, symbols: Symbols | None = None
    ) -> int:
        """Bytes from the start of a device's slice to one slot. WorkspaceError for what the request does not have."""
        place = self.place(name, symbols)
        for index, count, what in (
            (ring, place.rings, "ring"), (slot, place.slots, "slot"), (lane, place.lanes, "lane")
        ):
            if not 0 <= index < count:
                raise WorkspaceError(f"{what} {index} of {name!r} does not exist; there are {count}, from 0")
        return place.offset + ((lane * place.rings + ring) * place.slots + slot) * place.slot_stride

    def place(self, name: str, symbols: Symbols | None = None) -> Place:
        """Where a request lies. WorkspaceError for a name that nobody requested, or a symbol without a value."""
        places = self._evaluated(symbols).places
        if name not in places:
            raise WorkspaceError(f"nobody requested {name!r}; the workspace holds {_some(self.order)}")
        return places[name]

    def extent(self, symbols: Symbols | None = None) -> int:
        """Bytes of a slice that requests may fill: the end of the highest."""
        return self._evaluated(symbols).extent

    def stride(self, symbols: Symbols | None = None) -> int:
        """Bytes from one device's slice to the next, the guard at its end included."""
        return self._evaluated(symbols).stride

    def guard_range(self, symbols: Symbols | None = None) -> tuple[int, int]:
        """The bytes [low, high) of a slice that nobody may write; its last ones."""
        stride = self.stride(symbols)
        return stride - aligned_up(self.guard, self.alignment), stride

    def total(self, devices: SizeLike, symbols: Symbols | None = None) -> int:
        """Bytes of the whole workspace. ``devices``: a number, or a size known at the launch; never below 1."""
        count = Size.of(devices).count(symbols, "the number of devices")
        return fitting(self.stride(symbols) * count, f"a workspace of {count} slices")

    def address(
        self, name: str, device: int, devices: SizeLike, ring: int = 0, slot: int = 0, lane: int = 0,
        symbols: Symbols | None = None,
    ) -> int:
        """Bytes from the base of the whole to one slot in a device's slice: how users find their own and peers' data.

        WorkspaceError unless 0 <= device < devices, and for names, rings, slots or lanes that do not exist.
        """
        count = Size.of(devices).count(symbols, "the number of devices")
        if not 0 <= device < count:
            raise WorkspaceError(f"device {device} has no slice; there are {count}, from 0")
        return device * self.stride(symbols) + self.offset(name, ring, slot, lane, symbols)

    @cached_property
    def offset_sizes(self) -> dict[str, Size]:
        """Each offset as an expression: the maximum of what it stands upon, aligned."""
        out: dict[str, Size] = {}
        for name in self.order:
            below = (out[s] + self.by_name[s].footprint(self.granule) for s in self.below[name])
            out[name] = maximum(*below).aligned(self.by_name[name].line(self.granule))
        return out

    @cached_property
    def stride_size(self) -> Size:
        """The stride as an expression."""
        ends = (self.offset_sizes[r.name] + r.footprint(self.granule) for r in self.requests)
        return maximum(*ends).aligned(self.alignment) + Size.of(self.guard).aligned(self.alignment)

    @cached_property
    def version(self) -> str:
        """A digest of everything that addresses depend on: equal versions compute equal addresses."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def _evaluated(self, symbols: Symbols | None) -> _Evaluated:
        """The one evaluation of sizes and addresses, kept per values of the symbols."""
        given = symbols or {}
        missing = sorted(self.symbols - set(given))
        if missing:
            raise WorkspaceError(f"the workspace depends on {missing[0]!r}, which has no value yet; it is allocated "
                                 "where all of its sizes are known")
        key = tuple((s, integer(given[s], f"the size {s!r}")) for s in sorted(self.symbols))
        if key not in self._at:
            self._at[key] = self._evaluate(dict(key))
        return self._at[key]

    def _evaluate(self, symbols: dict[str, int]) -> _Evaluated:
        places: dict[str, Place] = {}
        ends: dict[str, int] = {}
        for name in self.order:
            request = self.by_name[name]
            space = request.at(symbols, self.granule)
            floor = max((ends[s] for s in self.below[name]), default=0)
            offset = aligned_up(floor, request.line(self.granule))
            places[name] = Place(offset, *space)
            ends[name] = fitting(offset + space.footprint, f"the end of {name!r}")
        top = max(ends.values(), default=0)
        stride = aligned_up(top, self.alignment) + aligned_up(self.guard, self.alignment)
        return _Evaluated(places, top, fitting(stride, "the stride"))

    def to_json(self) -> str:
        """JSON text that `from_json` reads, the same for equal layouts."""
        requests = [r.to_json() for r in self.requests]
        return json.dumps({"eggshard layout": FORMAT, "granule": self.granule, "guard": self.guard,
                           "requests": requests, "order": self.order})

    @staticmethod
    def from_json(text: str) -> Layout:
        """A layout from its JSON text, with the same addresses. WorkspaceError for other text."""
        try:
            data: Any = json.loads(text)
        except ValueError as error:
            raise WorkspaceError(f"not JSON: {error}") from None
        if not isinstance(data, dict) or data.get("eggshard layout") != FORMAT:
            raise WorkspaceError(f"not a layout of format {FORMAT}; write it with Layout.to_json")
        try:
            requests = tuple(Request.from_json(r) for r in data["requests"])
            return Layout(requests, tuple(data["order"]), data["granule"], data["guard"])
        except (KeyError, TypeError) as error:
            raise WorkspaceError(f"damaged layout JSON: {error!r}; write it again with Layout.to_json") from None


def lay_out(
    requests: Iterable[Request], sample: Symbols | None = None, granule: int = GRANULE, guard: int = 0
) -> Layout:
    """A layout of requests that takes few bytes at the sample sizes (at several, if none are given).

    It does not depend on the order in which requests are given. WorkspaceError for two requests of one name.
    """
    power_of_two(granule, "the granule")
    given = tuple(sorted(requests, key=_canonical))
    names = sorted(frozenset().union(*(r.symbols for r in given)))
    samples = [dict(sample or {})] if sample is not None or not names else _samples(given)
    measured = []
    for at in samples:
        try:
            measured.append((at, _buffers(given, at, granule)))
        except WorkspaceError:
            if sample is not None or not names:
                raise
    layouts = []
    for _, buffers in measured:
        addresses = pack(buffers)
        ranks = sorted(range(len(given)), key=lambda i: (addresses[i], buffers[i].bytes, i))
        layouts.append(Layout(given, tuple(given[i].name for i in ranks), granule, guard))
    if len(layouts) > 1:
        return min(layouts, key=lambda x: sum(x.extent(at) / max(1, max_live(some)) for at, some in measured))
    return layouts[0] if layouts else Layout(given, tuple(r.name for r in given), granule, guard)


def buffers_of(layout: Layout, symbols: Symbols | None = None) -> list[Buffer]:
    """The layout's requests as buffers of known sizes, in its canonical order."""
    return _buffers(layout.requests, symbols or {}, layout.granule)


def density(layout: Layout, symbols: Symbols | None = None) -> float:
    """Bytes that requests take over the most that are live at once, sizes aligned; 1 where nothing is live."""
    live = max_live(buffers_of(layout, symbols))
    return layout.extent(symbols) / live if live else 1.0


def _buffers(requests: Sequence[Request], symbols: Symbols, granule: int) -> list[Buffer]:
    end = max((r.lifetime.last for r in requests if r.lifetime is not None), default=0)
    out = []
    for r in requests:
        first, last = (0, end) if r.lifetime is None else r.lifetime
        out.append(Buffer(r.at(symbols, granule).footprint, first, last, r.line(granule)))
    return out


def _canonical(request: Request) -> tuple[int, int, str]:
    first, last = (-1, -1) if request.lifetime is None else request.lifetime
    return first, last, request.name


def _samples(requests: Sequence[Request]) -> list[dict[str, int]]:
    """All symbols at alike sizes, then one large where the next is small; counts are smaller than extents."""
    names = sorted(frozenset().union(*(r.symbols for r in requests)))
    counts = frozenset().union(*(size.symbols for r in requests for size in (*r.counts, *r.positive)))
    shifts = [[0] * len(names)] + ([list(range(len(names)))] if len(names) > 1 else [])
    return [
        {
            name: (COUNTS if name in counts else EXTENTS)[(k + shift[i]) % len(EXTENTS)]
            for i, name in enumerate(names)
        }
        for shift in shifts for k in range(len(EXTENTS))
    ]


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:6])) + (f" and {len(names) - 6} others" if len(names) > 6 else "") or "nothing"

