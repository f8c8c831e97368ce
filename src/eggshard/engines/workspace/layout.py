"""Workspace layouts: one object that sizes a workspace and computes every address in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eggshard.engines.workspace.packing import Buffer, max_live, pack
from eggshard.engines.workspace.requests import Request, in_lines
from eggshard.errors import WorkspaceError

#: The version of the JSON format of layouts.
FORMAT = 2
#: The largest signed integer of 64 bits.
_MOST = (1 << 63) - 1


@dataclass(frozen=True)
class Layout:
    """Where requests lie in a slice that every device has alike. Make one with `lay_out`.

    requests: in canonical order. offsets: of each, in bytes from the start of a slice. guard: bytes at the end of a
    slice that no one may write.
    """

    requests: tuple[Request, ...]
    offsets: tuple[int, ...]
    guard: int = 0

    def __post_init__(self) -> None:
        names = [r.name for r in self.requests]
        if len(set(names)) < len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise WorkspaceError(f"two requests have the name {twice!r}; results and users are bound by name")
        if len(self.offsets) != len(names) or self.guard < 0:
            raise WorkspaceError(f"{len(self.offsets)} offsets of {len(names)} requests, and a guard of {self.guard}")

    @cached_property
    def by_name(self) -> dict[str, Request]:
        """Requests by their names."""
        return {r.name: r for r in self.requests}

    @cached_property
    def _offset_of(self) -> dict[str, int]:
        return {r.name: offset for r, offset in zip(self.requests, self.offsets, strict=True)}

    def offset(self, name: str, slot: int = 0) -> int:
        """Bytes from the start of a device's slice to one slot. WorkspaceError for what the request does not have."""
        if name not in self._offset_of:
            raise WorkspaceError(f"nobody requested {name!r}; the workspace holds {_some(list(self.by_name))}")
        request = self.by_name[name]
        if not 0 <= slot < request.slots:
            raise WorkspaceError(f"slot {slot} of {name!r} does not exist; there are {request.slots}, from 0")
        return self._offset_of[name] + slot * request.slot_stride

    def end(self, name: str) -> int:
        """The byte behind the last slot."""
        return self.offset(name) + self.by_name[name].footprint

    @cached_property
    def extent(self) -> int:
        """Bytes of a slice that requests may fill: the end of the highest."""
        return max((self.end(r.name) for r in self.requests), default=0)

    @property
    def live_bytes(self) -> int:
        """The most bytes that are live at one instant, sizes aligned: no layout of these lifetimes takes fewer."""
        return max_live(buffers_of(self.requests))

    @cached_property
    def stride(self) -> int:
        """Bytes from one device's slice to the next, the guard at its end included."""
        return in_lines(self.extent) + in_lines(self.guard)

    @property
    def guard_range(self) -> tuple[int, int]:
        """The bytes [low, high) of a slice that no one may write; its last ones."""
        return self.stride - in_lines(self.guard), self.stride

    def total(self, devices: int) -> int:
        """Bytes of the whole workspace of so many devices, at least one."""
        if devices < 1 or self.stride * devices > _MOST:
            raise WorkspaceError(f"{devices} slices of {self.stride} bytes are no workspace")
        return self.stride * devices

    def address(self, name: str, device: int, devices: int, slot: int = 0) -> int:
        """Bytes from the base of the whole to one slot in a device's slice: how users find their own and peers' data.

        WorkspaceError unless 0 <= device < devices, and for names or slots that do not exist.
        """
        if not 0 <= device < devices:
            raise WorkspaceError(f"device {device} has no slice; there are {devices}, from 0")
        return device * self.stride + self.offset(name, slot)

    @cached_property
    def version(self) -> str:
        """A digest of everything that addresses depend on: equal versions compute equal addresses."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def to_json(self) -> str:
        """JSON text that `from_json` reads, equal for equal layouts."""
        requests = [r.to_json() for r in self.requests]
        return json.dumps({"eggshard layout": FORMAT, "guard": self.guard, "requests": requests,
                           "offsets": self.offsets})

    @staticmethod
    def from_json(text: str) -> Layout:
        """A layout from its JSON text, with equal addresses. WorkspaceError for other text."""
        try:
            data: Any = json.loads(text)
        except ValueError as error:
            raise WorkspaceError(f"not JSON: {error}") from None
        if not isinstance(data, dict) or data.get("eggshard layout") != FORMAT:
            raise WorkspaceError(f"not a layout of format {FORMAT}; write it with Layout.to_json")
        try:
            requests = tuple(Request.from_json(r) for r in data["requests"])
            return Layout(requests, tuple(data["offsets"]), data["guard"])
        except (KeyError, TypeError) as error:
            raise WorkspaceError(f"damaged layout JSON: {error!r}; write it again with Layout.to_json") from None


def lay_out(requests: Iterable[Request], guard: int = 0) -> Layout:
    """A layout of requests that takes few bytes, whatever order they are given in.

    WorkspaceError for two requests of one name, and for more bytes than 64 bits address.
    """
    given = tuple(sorted(requests, key=lambda r: (r.lifetime, r.name)))
    if sum(r.footprint for r in given) > _MOST:
        raise WorkspaceError("the requests come to more bytes than a signed integer of 64 bits holds")
    return Layout(given, tuple(pack(buffers_of(given))), guard)


def buffers_of(requests: Sequence[Request]) -> list[Buffer]:
    """Requests as buffers to be packed: whole lines, so that every address is one's beginning."""
    return [Buffer(r.footprint, *r.lifetime) for r in requests]


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:6])) + (f" and {len(names) - 6} others" if len(names) > 6 else "") or "nothing"
