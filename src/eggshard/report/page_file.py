"""Report pages: each is one self-contained HTML file made of the files in ``page/`` and the data of what it shows.

Templates and scripts are real files; here they are put into one another. The data are JSON, compressed (the browser's
`DecompressionStream` reads them), so that a plan of thousands of steps stays a page of one or two megabytes. A content
security policy in the page forbids it to fetch anything.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eggshard.collector import collector_paused
from eggshard.planner.progress import Bar
from eggshard.report.page_data import PageData

if TYPE_CHECKING:
    from eggshard.engines.jax.comparison import Comparison
    from eggshard.plan.record import PlanRecord

#: Of each kind of page the scripts in the order in which they run.
SCRIPTS = {
    "plan": (
        "vendor/d3.min.js", "vendor/dagre.min.js", "frame.js", "data.js", "widgets.js", "placements.js", "details.js",
        "parts.js", "overview.js", "graph.js", "graph_keys.js", "timeline.js", "steps.js", "tables.js", "main.js",
    ),
    "propagation": ("frame.js", "widgets.js", "propagation.js"),
}


def page(plan: PlanRecord, comparison: Comparison | None = None) -> str:
    """The text of a plan's page."""
    with collector_paused():
        shown = PageData(plan, comparison)  # weighs alternatives, which has a bar of its own
        with Bar(stages=("writing the page",), title="report"):
            return page_of("plan", f"eggshard plan of {plan.program.name}", shown.values())


def page_of(kind: str, title: str, values: Mapping[str, Any]) -> str:
    """The text of a page of one of the kinds in `SCRIPTS`, with the data that its scripts show."""
    room = files("eggshard.report") / "page"

    def read(name: str) -> str:
        return (room / name).read_text(encoding="utf-8")

    data = json.dumps(values, separators=(",", ":"), allow_nan=False)
    filled = {
        "title": escape(title),
        "notice": escape(read("NOTICE.txt")),
        "style": read("page.css"),
        "data": base64.b64encode(zlib.compress(data.encode())).decode(),
        "scripts": "\n".join(f"<script>{_script(read(name))}</script>" for name in SCRIPTS[kind]),
    }

    def put_in(text: str) -> str:
        first, *parts = text.split("{{")
        return first + "".join(filled[name] + rest for name, rest in (part.split("}}", 1) for part in parts))

    filled["body"] = put_in(read(f"{kind}.html"))
    return put_in(read("frame.html"))


def _script(text: str) -> str:
    """A script as it may stand in HTML. (No source map: the page asks for nothing.)"""
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL")]
    return "\n".join(lines).replace("</script", "<\\/script")


def write_page(text: str, path: str | Path) -> Path:
    """Write a page and return its path."""
    path = Path(path)
    path.write_text(text, encoding="utf-8")
    return path
