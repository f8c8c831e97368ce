"""The notebook view of a plan: the table of `print(plan)` in HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from eggshard.report.tables import columns_of, headline, table_rows

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: The most rows that a notebook shows.
ROWS = 200


def plan_html(plan: PlanRecord) -> str:
    """The headline, and the steps as a table that a notebook's own style sheet dresses."""
    rows = table_rows(plan)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name, _ in columns_of(plan))
    columns = columns_of(plan)
    body = "".join(
        "<tr>" + "".join(
            f'<td style="text-align: {side}">{escape(cell)}</td>' for cell, (_, side) in zip(row, columns, strict=True)
        ) + "</tr>" for row in rows[:ROWS])
    more = f"<p>and {len(rows) - ROWS} more rows: plan.report('plan.html') shows all</p>" if len(rows) > ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<pre>{escape(headline(plan))}</pre>{table}{more}"
