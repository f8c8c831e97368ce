"""Tables of Shardy's passes and pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_passes(console: Console | None = None) -> None:
    """Print the passes and the pipelines, with their options and a line on what they do."""
    from eggshard.shardy import steps_of
    from eggshard.shardy.catalogue import PASSES
    from eggshard.shardy.pipelines import PIPELINES

    console = console or Console()
    rows = ((p.name, p.options, p.summary) for _, p in sorted(PASSES.items()))
    console.print(_table("passes", rows))
    steps = {name: ", ".join(steps_of(name)) for name in PIPELINES}
    rows = ((p.name, p.options, f"{p.summary}\n  {steps[p.name]}") for p in PIPELINES.values())
    console.print(_table("pipelines", rows))


def _table(title: str, rows: Iterable[tuple[str, Mapping[str, Any], str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("name and options", no_wrap=True)
    table.add_column("what it does")
    for name, options, summary in rows:
        shown = "".join(f"\n  {key}={str(value).lower()}" for key, value in options.items())
        table.add_row(f"{name}{shown}", summary)
    return table
