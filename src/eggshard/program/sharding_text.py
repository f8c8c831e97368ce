"""Reading Shardy's text of shardings and meshes; what is printed stands with `Sharding`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from eggshard.errors import ShardingError
from eggshard.program.axes import AxisRef
from eggshard.program.codec import String
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import DimSharding, Sharding

_T = TypeVar("_T")


def read_sharding(text: str) -> tuple[str | Mesh | None, Sharding]:
    """(mesh, sharding) of Shardy's text; the mesh is a symbol's name, an inlined mesh, or None where unwritten."""
    parser = _Parser(text)
    bracketed = parser.take("#sdy.sharding<") or parser.take("<")
    mesh: str | Mesh | None = None
    device = None
    if bracketed:
        if parser.take("@"):
            mesh = parser.string() if parser.peek('"') else parser.word("a mesh name")
        else:
            parser.expect("mesh")
            mesh, device = parser.mesh()
        parser.expect(",")
    sharding = parser.sharding()
    if bracketed:
        parser.expect(">")
    parser.end()
    return mesh, sharding if device is None else replace(sharding, device=device)


def read_mesh(text: str) -> Mesh | int:
    """The mesh that ``#sdy.mesh<["x"=4, "y"=2]>`` spells, or the single device of a maximal mesh."""
    parser = _Parser(text)
    parser.expect("#sdy.mesh")
    mesh, device = parser.mesh()
    parser.end()
    return mesh if device is None else device


def read_axes(text: str) -> tuple[AxisRef, ...]:
    """The axes of ``{"x", "y":(1)2}``."""
    return _whole(text, _Parser.axes)


def read_dimensions(text: str) -> tuple[DimSharding, ...]:
    """The dimensions of ``[{"x"}, {?}]``."""
    return tuple(_whole(text, lambda parser: parser.listed("[", "]", parser.dim)))


def read_exchanges(text: str) -> tuple[tuple[tuple[AxisRef, ...], int, int], ...]:
    """The (axes, source dimension, target dimension) of ``[{"x"}: 0->1, ...]``."""

    def one(parser: _Parser) -> tuple[tuple[AxisRef, ...], int, int]:
        axes = parser.axes()
        parser.expect(":")
        source = parser.number()
        parser.expect("->")
        return axes, source, parser.number()

    return tuple(_whole(text, lambda parser: parser.listed("[", "]", lambda: one(parser))))


def _whole(text: str, read: Callable[[_Parser], _T]) -> _T:
    parser = _Parser(text)
    found = read(parser)
    parser.end()
    return found


class _Parser:
    """A cursor over sharding text."""

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

    def _match(self, pattern: str, wanted: str) -> str:
        match = re.compile(pattern).match(self.text, self.at)
        if match is None:
            raise self.fail(wanted)
        self.at = match.end()
        self._skip()
        return match[0]

    def word(self, wanted: str) -> str:
        return self._match(r"[A-Za-z_][\w$.]*", wanted)

    def number(self) -> int:
        return int(self._match(r"\d+", "a number"))

    def string(self) -> str:
        return String().decode(self._match(r'"(?:[^"\\]|\\.)*"', "a quoted name"))

    def listed(self, opening: str, closing: str, item: Any) -> list[Any]:
        self.expect(opening)
        out: list[Any] = []
        while not self.take(closing):
            if out:
                self.expect(",")
            out.append(item())
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

    def dim(self) -> DimSharding:
        self.expect("{")
        refs: list[AxisRef] = []
        open_ = False
        while not self.take("}"):
            if refs:
                self.expect(",")
            open_ = self.take("?")
            if open_:
                self.expect("}")
                break
            refs.append(self.axis())
        priority = int(self._match(r"p\d+", "a priority")[1:]) if self.peek("p") else None
        return DimSharding(tuple(refs), open_, priority)

    def sharding(self) -> Sharding:
        dims = tuple(self.listed("[", "]", self.dim))
        sets: dict[str, tuple[AxisRef, ...]] = {}
        reduction = "add"
        while self.take(","):
            key = self.word("'replicated' or 'unreduced'")
            if key not in ("replicated", "unreduced") or key in sets:
                raise self.fail("'replicated' or 'unreduced', each once,")
            self.expect("=")
            if key == "unreduced" and not self.peek("{"):
                reduction = self.word("a reduction")
                reduction = {"sum": "add", "multiply": "mul"}.get(reduction, reduction)
            sets[key] = self.axes()
        return Sharding(dims, sets.get("replicated", ()), sets.get("unreduced", ()), reduction)

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
