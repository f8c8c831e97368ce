"""Proof obligations of a workspace: that no buffer overwrites live data, and why each obligation holds.

`Proof` lists the obligations with their reasons. `Proof.check` verifies lifetimes and addresses independently of the
algorithm that laid them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from rich.table import Table

from eggshard.engines.workspace.layout import Layout
from eggshard.engines.workspace.requests import LINE, Request
from eggshard.errors import WorkspaceError
from eggshard.tables import Shown, render


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


@dataclass(frozen=True, repr=False)
class Proof(Shown):
    """The obligations of a layout. Iterate over it for each of them; print it for a table of them.

    used: the names that users address. instants: what is done at each, for messages.
    """

    layout: Layout
    used: frozenset[str]
    apart: tuple[Apart, ...] = ()
    instants: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Obligation]:
        layout = self.layout
        for i, request in enumerate(layout.requests):
            for other in layout.requests[:i]:
                yield self._disjoint(other, request)
        for first, second, site in self.apart:
            yield Obligation("apart", (first, second), f"{first} and {second} share no byte at {site}",
                             "both live there, so that one stands above the other")
        for r in layout.requests:
            yield Obligation("slots", (r.name,), f"the {r.slots} slots of {r.name} are disjoint",
                             f"the slot stride {r.slot_stride} is {r.bytes} rounded up")
            yield Obligation("lines", (r.name,), f"no line of {LINE} bytes holds {r.name} and anything else",
                             "offset and slot stride are multiples of it")
        yield Obligation("stride", (), "slices of different devices are disjoint, and aligned alike",
                         f"the stride {layout.stride} is no less than any end, a multiple of {LINE}")
        for name in sorted(self.used | set(layout.by_name)):
            yield Obligation("completeness", (name,), f"{name} has one buffer, and a user",
                             "one request has this name" if name in layout.by_name and name in self.used
                             else "NOT SHOWN")

    def _disjoint(self, first: Request, second: Request) -> Obligation:
        both = (first.name, second.name)
        statement = f"{first.name} and {second.name} never hold data in one byte"
        if first.lifetime.overlaps(second.lifetime):
            low, high = sorted(both, key=self.layout.offset)
            return Obligation("disjoint: addresses", both, statement, f"{low} ends at byte {self.layout.end(low)}, "
                              f"{high} begins at {self.layout.offset(high)}")
        early, late = sorted((first, second), key=lambda r: r.lifetime)
        peers = "; peers' reads of it end with that step" if early.sharing != "private" else ""
        return Obligation(
            "disjoint: lifetimes", both, statement,
            f"{early.name} ends with {self._instant(early.lifetime.last)}, before {late.name} begins at "
            f"{self._instant(late.lifetime.first)}{peers}",
        )

    def _instant(self, instant: int) -> str:
        return self.instants[instant] if instant < len(self.instants) else f"instant {instant}"

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many obligations there are of each kind."""
        n = len(self.layout.requests)
        together = int(np.count_nonzero(np.triu(_live_together(self.layout.requests), 1)))
        out = {
            "disjoint: addresses": together, "disjoint: lifetimes": n * (n - 1) // 2 - together,
            "apart": len(self.apart), "slots": n, "lines": n, "stride": 1,
            "completeness": len(self.used | set(self.layout.by_name)),
        }
        return {kind: count for kind, count in out.items() if count}

    def check(self, devices: Sequence[int] = (1, 2, 3)) -> Proof:
        """The proof itself, gone through again: WorkspaceError names the first obligation that does not hold.

        ``devices``: numbers of them for which addresses are compared.
        """
        layout = self.layout
        missing, unused = sorted(self.used - set(layout.by_name)), sorted(set(layout.by_name) - self.used)
        if missing:
            raise WorkspaceError(f"{missing[0]!r} is used, but nobody requested it")
        if unused:
            raise WorkspaceError(f"{unused[0]!r} was requested, but nobody uses it")
        for first, second, site in self.apart:
            if first == second or not layout.by_name[first].lifetime.overlaps(layout.by_name[second].lifetime):
                raise WorkspaceError(f"{first!r} and {second!r} may share memory at {site}, where both are needed")
        self._check_addresses(devices)
        return self

    def _check_addresses(self, devices: Sequence[int]) -> None:
        layout, requests = self.layout, self.layout.requests
        live = _live_together(requests)
        low = np.array(layout.offsets, np.int64)
        high = low + np.array([r.footprint for r in requests], np.int64)
        for i, r in enumerate(requests):
            clash = np.flatnonzero(live[i, :i] & (low[:i] < high[i]) & (low[i] < high[:i]))
            if len(clash):
                raise WorkspaceError(f"{r.name!r} and {requests[clash[0]].name!r} overlap")
        guard = layout.guard_range[0]
        for r, offset, end in zip(requests, low, high, strict=True):
            if offset % LINE or offset < 0:
                raise WorkspaceError(f"{r.name!r} does not begin on a line of {LINE} bytes")
            if end > guard:
                raise WorkspaceError(f"{r.name!r} ends at {end}, beyond the {guard} bytes of a slice")
            for count in devices:
                last = layout.address(r.name, count - 1, count, r.slots - 1)
                if last + r.slot_stride > layout.total(count):
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


def prove(layout: Layout, used: Iterable[str] | None = None, apart: Iterable[Apart] = (),
          instants: Iterable[str] = ()) -> Proof:
    """The obligations of a layout. ``used``: the names that its users address, by default those requested.

    Nothing is checked before `Proof.check`.
    """
    names = frozenset(layout.by_name) if used is None else frozenset(used)
    return Proof(layout, names, tuple(apart), tuple(instants))


def _live_together(requests: Sequence[Request]) -> np.ndarray:
    """``[requests, requests]``: which pairs hold data at an instant."""
    first, last = np.array([r.lifetime for r in requests], np.int64).reshape(-1, 2).T
    together: np.ndarray = (first[:, None] <= last) & (first <= last[:, None])
    return together
