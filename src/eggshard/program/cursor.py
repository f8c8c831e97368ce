"""A cursor over Shardy's text, for readers of meshes, shardings, axes and sharding rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from eggshard.errors import ShardingError
from eggshard.program.axes import AxisRef
from eggshard.program.codec import String
from eggshard.program.mesh import Mesh

_T = TypeVar("_T")


class Cursor:
    """A place in a text; ShardingError, naming what was expected where, for malformed text."""

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self._skip()

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def fail(self, wanted: str) -> ShardingError:
        place_ = f"at {self.text[self.at:self.at + 20]!r}" if self.at < len(self.text) else "at its end"
        return ShardingError(f"malformed sharding {self.text!r}: {wanted} expected {place_}")

    def peek(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def take(self, token: str) -> bool:
        if not self.peek(token):
            return False
        self.at += len(token)
        self._skip()
        return True

    def expect(self, token: str) -> None:
        if not self.take(token):
            raise self.fail(repr(token))

    def end(self) -> None:
        if self.at < len(self.text):
            raise self.fail("nothing more")

    def match(self, pattern: str, wanted: str) -> str:
        match = re.compile(pattern).match(self.text, self.at)
        if match is None:
            raise self.fail(wanted)
        self.at = match.end()
        self._skip()
        return match[0]

    def word(self, wanted: str) -> str:
        return self.match(r"[A-Za-z_][\w$.]*", wanted)

    def number(self) -> int:
        return int(self.match(r"\d+", "a number"))

    def string(self) -> str:
        return String().decode(self.match(r'"(?:[^"\\]|\\.)*"', "a quoted name"))

    def listed(self, opening: str, closing: str, item: Any) -> list[Any]:
        self.expect(opening)
        out: list[Any] = []
        if self.take(closing):
            return out
        out.append(item())
        while self.take(","):
            out.append(item())
        self.expect(closing)
        return out

    def axis(self) -> AxisRef:
        name = self.string()
        if not self.take(":"):
            return AxisRef(name)
        self.expect("(")
        pre = self.number()
        self.expect(")")
        return AxisRef(name, pre, self.number())

    def axes(self) -> tuple[AxisRef, ...]:
        return tuple(self.listed("{", "}", self.axis))

    def mesh(self) -> tuple[Mesh, int | None]:
        """A mesh between angle brackets; with no axes and one device id, that device."""
        self.expect("<")

        def axis() -> tuple[str, int]:
            name = self.string()
            self.expect("=")
            return name, self.number()

        axes = self.listed("[", "]", axis)
        ids = None
        if self.take(","):
            self.expect("device_ids")
            self.expect("=")
            ids = self.listed("[", "]", self.number)
        self.expect(">")
        if not axes and ids:
            return Mesh({}), ids[0]
        return Mesh(axes, ids), None


def read_mesh(text: str) -> Mesh | int:
    """The mesh that ``#sdy.mesh<["x"=4, "y"=2]>`` spells, or the single device of a maximal mesh."""
    cursor = Cursor(text)
    cursor.expect("#sdy.mesh")
    mesh, device = cursor.mesh()
    cursor.end()
    return mesh if device is None else device


def read_axes(text: str) -> tuple[AxisRef, ...]:
    """The axes of ``{"x", "y":(1)2}``."""
    return whole(text, Cursor.axes)


def read_exchanges(text: str) -> tuple[tuple[tuple[AxisRef, ...], int, int], ...]:
    """The (axes, source dimension, target dimension) of ``[{"x"}: 0->1, ...]``."""

    def one(cursor: Cursor) -> tuple[tuple[AxisRef, ...], int, int]:
        axes = cursor.axes()
        cursor.expect(":")
        source = cursor.number()
        cursor.expect("->")
        return axes, source, cursor.number()

    return tuple(whole(text, lambda cursor: cursor.listed("[", "]", lambda: one(cursor))))


def whole(text: str, read: Callable[[Cursor], _T]) -> _T:
    cursor = Cursor(text)
    found = read(cursor)
    cursor.end()
    return found
