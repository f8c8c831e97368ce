"""Docstrings' parameters as lists in the reference.

A docstring describes a parameter in a sentence that its name and a colon begin, and errors in sentences that an error's
name begins. In the reference each of these is a field of its own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from typing import Any

_NAMES = re.compile(r"((?:``)?\w+(?:``)?(?:, (?:``)?\w+(?:``)?)*): ")
_ERROR = re.compile(r"(?:Raises )?([A-Z]\w*(?:Error|Interrupted))\b(?: (?:if|where|for|when)\b)")


def setup(app: Any) -> dict[str, bool]:
    """Sphinx's hook of an extension."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what in ("function", "method", "class"):
        try:
            names = inspect.signature(obj).parameters
        except (TypeError, ValueError):
            return
        lines[:] = with_fields(lines, names)


def with_fields(lines: list[str], names: Collection[str]) -> list[str]:
    """The lines of a docstring, its sentences on parameters of these names and on errors as fields at the end."""
    kept: list[str] = []
    fields: list[str] = []
    for paragraph in _paragraphs(lines):
        if paragraph[0].startswith((" ", "-", "*", ">>>", "..")):
            kept += [*paragraph, ""]
            continue
        text: list[str] = []
        for starts, sentence in _parts(" ".join(paragraph), names):
            sentence = re.sub(";$", ".", sentence)
            fields += [f":{start}: {sentence}" for start in starts]
            if not starts:
                text.append(sentence)
        if text:
            kept += [" ".join(text), ""]
    return [*kept, *fields, ""] if fields else kept


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            paragraph.append(line)
        elif paragraph:
            yield paragraph
            paragraph = []


def _parts(text: str, names: Collection[str]) -> Iterator[tuple[list[str], str]]:
    """Parts of a paragraph with the fields that they are, if any: what follows a parameter's sentence is its own."""
    fields, said = list[str](), list[str]()
    for sentence in re.split(r"(?<=[.;]) (?=\S)", text):
        told, error = _NAMES.match(sentence), _ERROR.match(sentence)
        named = re.findall(r"\w+", told[1]) if told else []
        if told and all(name in names for name in named):
            begins, rest = [f"param {name}" for name in named], sentence[told.end():]
        elif error:
            begins, rest = [f"raises {error[1]}"], sentence[error.end(1):].strip()
        else:
            said.append(sentence)
            continue
        if said:
            yield fields, " ".join(said)
        fields, said = begins, [rest[:1].upper() + rest[1:]]
    if said:
        yield fields, " ".join(said)
