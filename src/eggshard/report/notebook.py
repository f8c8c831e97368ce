"""The notebook view of a plan and of other tables: what `print` shows, in HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from eggshard.report.tables import columns_of, headline, table_rows

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: The most rows that a notebook shows.
ROWS = 200


def plan_html(plan: PlanRecord) -> str:
    """The headline, and the steps."""
    return table_html(headline(plan), columns_of(plan), table_rows(plan), "plan.report('plan.html') shows all")


def table_html(head: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]], more: str) -> str:
    """A table that a notebook's own style sheet dresses. columns: names and sides. more: what shows rows left out."""
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name, _ in columns)
    body = "".join(
        "<tr>" + "".join(
            f'<td style="text-align: {side}">{escape(cell)}</td>' for cell, (_, side) in zip(row, columns, strict=True)
        ) + "</tr>" for row in rows[:ROWS])
    left = f"<p>and {len(rows) - ROWS} more rows: {escape(more, quote=False)}</p>" if len(rows) > ROWS else ""
    table = f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return f"<pre>{escape(head)}</pre>{table}{left}"
