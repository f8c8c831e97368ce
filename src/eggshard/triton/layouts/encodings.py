"""Encodings as TritonGPU IR spells them: a kind and its fields, read and written back word for word."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from eggshard.errors import ProgramError
from eggshard.triton.kernels.text import entries, split

_HEAD = re.compile(r"#([\w.]+)(?:<(.*)>)?$", re.DOTALL)


class Encoding(NamedTuple):
    """``#kind<{name = value, ...}>``; values are integers, text, tuples of values or encodings.

    ``opaque``: the whole text, of an encoding that is not spelled so; it has no fields.
    """

    kind: str
    fields: tuple[tuple[str, object], ...] = ()
    opaque: str | None = None

    def get(self, name: str, default: object = None) -> object:
        return next((value for key, value in self.fields if key == name), default)

    def ints(self, name: str) -> tuple[int, ...]:
        """A field that is a list of integers; () without it."""
        value = self.get(name, ())
        assert isinstance(value, tuple)
        return value

    def integer(self, name: str, default: int = 0) -> int:
        value = self.get(name, default)
        assert isinstance(value, int)
        return value

    @property
    def parent(self) -> Encoding:
        value = self.get("parent")
        assert isinstance(value, Encoding)
        return value

    def vectors(self, name: str) -> dict[str, tuple[tuple[int, ...], ...]]:
        """A field that holds lists of vectors by name (``{warp = [[0, 1]]}``); {} without it."""
        text = self.get(name, "{}")
        assert isinstance(text, str)
        found = {key: _value(value) for key, value in entries(text[1:-1]).items()}
        return {key: value for key, value in found.items() if isinstance(value, tuple)}

    def __str__(self) -> str:
        if self.opaque is not None:
            return self.opaque
        return f"#{self.kind}<{{{', '.join(f'{name} = {_text(value)}' for name, value in self.fields)}}}>"


def make(kind: str, **fields: object) -> Encoding:
    """An encoding from its fields, in the order in which the IR spells them."""
    return Encoding(kind, tuple(fields.items()))


@cache
def read(text: str) -> Encoding:
    """The encoding of a text with aliases expanded. Raises `ProgramError` where it is no attribute."""
    found = _HEAD.match(text.strip())
    if not found:
        raise ProgramError(f"not an encoding: {text[:80]!r}")
    body = (found[2] or "").strip()
    if not (body.startswith("{") and body.endswith("}")):
        return Encoding(found[1], (), text.strip())
    return Encoding(found[1], tuple((name, _value(value)) for name, value in entries(body[1:-1]).items()))


def _value(text: str) -> object:
    if text.startswith("[") and text.endswith("]"):
        return tuple(_value(part) for part in split(text[1:-1]))
    if text.startswith("#"):
        return read(text)
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def _text(value: object) -> str:
    if isinstance(value, tuple) and not isinstance(value, Encoding):
        return f"[{', '.join(map(_text, value))}]"
    return str(value)
