"""Text tables: rich renderables as plain text of bounded width, sizes in bytes, durations in seconds."""

from __future__ import annotations

import io
import sys
from html import escape
from typing import Any

from eggshard.errors import printable

#: Columns of the lines above a plan's table, and of tables on terminals that are narrower.
WIDTH = 80
#: Columns of tables that are written elsewhere than to a terminal.
WIDE = 118
#: The tables of plans of more steps show those that communicate, one row each.
LONG = 400


def columns(indent: int = 0) -> int:
    """How wide tables may be: on a terminal, as wide as that is, less what they are indented by."""
    from rich.console import Console

    return max(WIDTH, Console().width) - indent if sys.stdout.isatty() else WIDE


def render(*parts: object, width: int | None = None, indent: int = 0) -> str:
    """Rich renderables as plain text, in so many columns, by default `columns`; each line indented by so many."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width or columns(indent), color_system=None, highlight=False, soft_wrap=False)
    for part in parts:
        console.print(part)
    lines = printable(out.getvalue().replace(_GLUE, " ")).splitlines()
    return "\n".join(" " * indent + line.rstrip() for line in lines)


class Shown:
    """What prints as text: notebooks show the text, and its representation is the first line."""

    def _repr_html_(self) -> str:
        return f'<pre style="overflow-x: auto; white-space: pre">{escape(str(self))}</pre>'

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self) if cycle else str(self))

    def __repr__(self) -> str:
        first = next((line.strip() for line in str(self).splitlines() if line.strip()), "")
        return f"<{type(self).__name__}: {first}>"


#: Stands for a space at which no line is to be broken: rich breaks lines at every space that Unicode knows.
_GLUE = "\ue000"


def glued(text: str) -> str:
    """A cell's text whose placements and shardings go to the next line as a whole, where that has room for them."""
    depth, shown = 0, ""
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        shown += _GLUE if char == " " and depth > 0 and shown.endswith(",") else char
    return shown


def size(count: float) -> str:
    """Bytes in binary units."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" or count == int(count) else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


def duration(seconds: float) -> str:
    """Seconds in a readable unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * scale:  # what rounds to 1000 of a unit is 1 of the next
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns" if seconds else "0 s"
