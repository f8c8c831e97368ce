"""The report page: one self-contained HTML file made of the files in ``page/`` and a plan's data.

Templates and scripts are real files; here they are put into one another. The data are JSON, compressed (the browser's
`DecompressionStream` reads them), so that a plan of thousands of steps stays a page of one or two megabytes. A content
security policy in the page forbids it to fetch anything.
"""

from __future__ import annotations

import base64
import json
import zlib
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from eggshard.planner.progress import Bar
from eggshard.planner.request import collector_paused
from eggshard.report.page_data import PageData

if TYPE_CHECKING:
    from eggshard.engines.jax.comparison import Comparison
    from eggshard.plan.record import PlanRecord

#: The scripts in the order in which they run.
SCRIPTS = (
    "vendor/d3.min.js", "vendor/dagre.min.js", "data.js", "widgets.js", "placements.js", "details.js", "parts.js",
    "overview.js", "graph.js", "graph_keys.js", "timeline.js", "steps.js", "tables.js", "main.js",
)


def page(plan: PlanRecord, comparison: Comparison | None = None) -> str:
    """The text of a plan's page."""
    room = files("eggshard.report") / "page"

    def read(name: str) -> str:
        return (room / name).read_text(encoding="utf-8")

    with collector_paused():
        shown = PageData(plan, comparison)  # weighs alternatives, which has a bar of its own
        with Bar(stages=("writing the page",), title="report"):
            data = json.dumps(shown.values(), separators=(",", ":"), allow_nan=False)
    scripts = "\n".join(f"<script>{_script(read(name))}</script>" for name in SCRIPTS)
    filled = {
        "title": escape(f"eggshard plan of {plan.program.name}"),
        "notice": escape(read("NOTICE.txt")),
        "style": read("page.css"),
        "data": base64.b64encode(zlib.compress(data.encode())).decode(),
        "scripts": scripts,
    }
    parts = read("page.html").split("{{")
    return parts[0] + "".join(filled[name] + rest for name, rest in (part.split("}}", 1) for part in parts[1:]))


def _script(text: str) -> str:
    """A script as it may stand in HTML. (No source map: the page asks for nothing.)"""
    lines = [line for line in text.splitlines() if not line.startswith("//# sourceMappingURL")]
    return "\n".join(lines).replace("</script", "<\\/script")


def write_page(plan: PlanRecord, path: str | Path, comparison: Comparison | None = None) -> Path:
    """Write the page and return its path."""
    path = Path(path)
    path.write_text(page(plan, comparison), encoding="utf-8")
    return path
