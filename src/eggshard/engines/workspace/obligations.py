"""What must hold of a workspace so that nobody overwrites another's data, and how each of it holds.

`Proof` lists the obligations with their reasons, which are symbolic: orders and lifetimes. `Proof.check` goes through
the reasons again, and through the addresses at numbers, in another way than the layout came to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from rich.table import Table

from eggshard.engines.workspace.layout import Layout, Symbols
from eggshard.engines.workspace.requests import Request
from eggshard.errors import WorkspaceError
from eggshard.tables import render

KINDS = (
    "disjoint: order", "disjoint: lifetimes", "apart", "slots", "alignment", "granule", "stride", "persistence",
    "dominance", "completeness",
)


class Apart(NamedTuple):
    """Two requests that may not share memory, and where: a step's result and its operand."""

    first: str
    second: str
    site: str


class Obligation(NamedTuple):
    """One thing that must hold, of which requests, and why it does."""

    kind: str
    subjects: tuple[str, ...]
    statement: str
    how: str


@dataclass(frozen=True)
class Proof:
    """The obligations of a layout. Iterate over it for each of them; print it for a table of them.

    used: the names that users address. known: the symbols that have values where the workspace is allocated.
    """

    layout: Layout
    used: frozenset[str]
    known: frozenset[str]
    apart: tuple[Apart, ...] = ()
    instants: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Obligation]:
        layout, granule = self.layout, self.layout.granule
        by_name = layout.by_name
        for high, name in enumerate(layout.order):
            for other in layout.order[:high]:
                yield self._disjoint(by_name[other], by_name[name])
        for first, second, site in self.apart:
            yield Obligation("apart", (first, second), f"{first} and {second} share no byte at {site}",
                             "both live there, so that one stands above the other")
        for r in layout.requests:
            yield Obligation("slots", (r.name,), f"the {r.lanes * r.rings * r.slots} slots of {r.name} are disjoint",
                             f"the slot stride {r.slot_stride(granule)} is {r.bytes} rounded up")
            yield Obligation("alignment", (r.name,), f"every slot of {r.name} is a multiple of {r.line(granule)}",
                             "the offset is rounded up to it, and the slot stride")
            yield Obligation("granule", (r.name,), f"no line of {granule} bytes holds {r.name} and anything else",
                             "offset and footprint are multiples of it")
            if r.persistent:
                yield Obligation("persistence", (r.name,), f"nothing ever reuses {r.name}", "it lives throughout")
        yield Obligation("stride", (), "slices of different devices are disjoint, and aligned alike",
                         f"the stride {layout.stride_size} is no less than any end, a multiple of {layout.alignment}")
        for symbol in sorted(layout.symbols):
            yield Obligation("dominance", (symbol,), f"{symbol} is known where the workspace is allocated",
                             "it is defined before" if symbol in self.known else "NOT SHOWN")
        for name in sorted(self.used | set(by_name)):
            yield Obligation("completeness", (name,), f"{name} has one buffer, and a user",
                             "one request has this name" if name in by_name and name in self.used else "NOT SHOWN")

    def _disjoint(self, low: Request, high: Request) -> Obligation:
        both = (low.name, high.name)
        statement = f"{low.name} and {high.name} never hold data in one byte"
        if low.overlaps(high):
            path = " <= ".join(self._path(*both))
            return Obligation("disjoint: order", both, statement, f"each begins where those below it end: {path}")
        if low.lifetime is None or high.lifetime is None:
            raise AssertionError
        early, late = (low, high) if low.lifetime < high.lifetime else (high, low)
        assert early.lifetime is not None and late.lifetime is not None
        peers = "; peers' reads of it end with that step" if early.sharing != "private" else ""
        return Obligation(
            "disjoint: lifetimes", both, statement,
            f"{early.name} ends with {self._instant(early.lifetime.last)}, before {late.name} begins at "
            f"{self._instant(late.lifetime.first)}{peers}",
        )

    def _path(self, low: str, high: str) -> list[str]:
        """A chain of requests from one down to another, each standing upon the next; without one, WorkspaceError."""
        came: dict[str, str] = {high: ""}
        frontier = [high]
        while frontier and low not in came:
            name = frontier.pop()
            for below in self.layout.below[name]:
                if below not in came:
                    came[below] = name
                    frontier.append(below)
        if low not in came:
            raise WorkspaceError(f"{low!r} and {high!r} live at the same time, and neither stands above the other")
        path = [low]
        while came[path[-1]]:
            path.append(came[path[-1]])
        return path

    def _instant(self, instant: int) -> str:
        return self.instants[instant] if instant < len(self.instants) else f"instant {instant}"

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many obligations there are of each kind."""
        n, live = len(self.layout.requests), _live_together(self.layout.requests)
        ordered = int(np.count_nonzero(np.triu(live, 1)))
        out = {
            "disjoint: order": ordered, "disjoint: lifetimes": n * (n - 1) // 2 - ordered, "apart": len(self.apart),
            "slots": n, "alignment": n, "granule": n, "stride": 1,
            "persistence": sum(r.persistent for r in self.layout.requests),
            "dominance": len(self.layout.symbols), "completeness": len(self.used | set(self.layout.by_name)),
        }
        return {kind: out[kind] for kind in KINDS if out[kind]}

    def check(self, *samples: Symbols, devices: Sequence[int] = (1, 2, 3)) -> Proof:
        """The proof itself, gone through again: WorkspaceError names the first obligation that does not hold.

        ``samples``: values of the symbols at which addresses are compared too, for each of these numbers of devices.
        """
        by_name, rank = self.layout.by_name, {name: i for i, name in enumerate(self.layout.order)}
        self._names()
        for first, second, site in self.apart:
            if first == second or not by_name[first].overlaps(by_name[second]):
                raise WorkspaceError(f"{first!r} and {second!r} may share memory at {site}, where both are needed")
        live = _live_together(self.layout.requests)
        index = np.array([rank[r.name] for r in self.layout.requests], int)
        ordered = np.zeros_like(live)
        ordered[np.ix_(index, index)] = live
        beneath: list[int] = []
        for high, name in enumerate(self.layout.order):
            under = 0
            for s in self.layout.below[name]:
                under |= beneath[rank[s]] | 1 << rank[s]
            beneath.append(under)
            for low in np.flatnonzero(ordered[high, :high]):
                if not under >> int(low) & 1:
                    self._path(self.layout.order[low], name)
        for sample in samples or (({},) if not self.layout.symbols else ()):
            self._check_numbers(sample, devices, live)
        return self

    def _names(self) -> None:
        layout = self.layout
        unknown = sorted(layout.symbols - self.known)
        if unknown:
            raise WorkspaceError(
                f"the workspace's size depends on {unknown[0]!r}, which is not known where it is allocated; allocate "
                "it after that is defined"
            )
        missing, unused = sorted(self.used - set(layout.by_name)), sorted(set(layout.by_name) - self.used)
        if missing:
            raise WorkspaceError(f"{missing[0]!r} is used, but nobody requested it")
        if unused:
            raise WorkspaceError(f"{unused[0]!r} was requested, but nobody uses it")

    def _check_numbers(self, symbols: Symbols, devices: Sequence[int], live: np.ndarray) -> None:
        layout = self.layout
        requests, stride = layout.requests, layout.stride(symbols)
        places = [layout.place(r.name, symbols) for r in requests]
        low = np.array([p.offset for p in places], np.int64)
        high = np.array([p.end for p in places], np.int64)
        for i in range(len(requests)):
            clash = np.flatnonzero(live[i, :i] & (low[:i] < high[i]) & (low[i] < high[:i]))
            if len(clash):
                raise WorkspaceError(f"{requests[i].name!r} and {requests[clash[0]].name!r} overlap at {dict(symbols)}")
        if layout.stride(symbols) % layout.alignment or any(layout.alignment % r.line(1) for r in requests):
            raise WorkspaceError(f"the stride {stride} is no multiple of every alignment")
        guard = layout.guard_range(symbols)[0]
        for r, p in zip(requests, places, strict=True):
            if p.offset % r.line(layout.granule) or p.slot_stride % r.line(layout.granule):
                raise WorkspaceError(f"{r.name!r} is not aligned to {r.line(layout.granule)} bytes")
            if p.slot_stride < r.bytes.value(symbols) or p.footprint != p.slot_stride * p.rings * p.slots * p.lanes:
                raise WorkspaceError(f"the slots of {r.name!r} overlap")
            if p.end > guard:
                raise WorkspaceError(f"{r.name!r} ends at {p.end}, beyond the {guard} bytes of a slice")
            for count in devices:
                last = layout.address(r.name, count - 1, count, p.rings - 1, p.slots - 1, p.lanes - 1, symbols)
                if last + p.slot_stride > layout.total(count, symbols):
                    raise WorkspaceError(f"{r.name!r} of device {count - 1} ends beyond the whole of {count}")

    def __str__(self) -> str:
        table = Table(title="obligations of the workspace")
        for column in ("kind", "number", "for example", "because"):
            table.add_column(column, justify="right" if column == "number" else "left")
        examples: dict[str, Obligation] = {}
        for obligation in self:
            examples.setdefault(obligation.kind, obligation)
            if len(examples) == len(self.counts):
                break
        for kind, number in self.counts.items():
            table.add_row(kind, str(number), examples[kind].statement, examples[kind].how)
        return render(table)


def prove(
    layout: Layout, used: Iterable[str] | None = None, known: Iterable[str] | Mapping[str, object] | None = None,
    apart: Iterable[Apart] = (), instants: Iterable[str] = (),
) -> Proof:
    """The obligations of a layout. ``used``: the names that its users address, by default those requested.

    ``known``: the symbols defined before the allocation, by default all. Nothing is checked before `Proof.check`.
    """
    names = frozenset(layout.by_name) if used is None else frozenset(used)
    return Proof(layout, names, layout.symbols if known is None else frozenset(known), tuple(apart), tuple(instants))


def _live_together(requests: Sequence[Request]) -> np.ndarray:
    """``[requests, requests]``: which pairs hold data at the same instant."""
    end = max((r.lifetime.last for r in requests if r.lifetime is not None), default=0)
    lives = [(0, end) if r.lifetime is None else r.lifetime for r in requests]
    first, last = np.array(lives, np.int64).reshape(-1, 2).T
    together: np.ndarray = (first[:, None] <= last) & (first <= last[:, None])
    return together
