"""Every default rule over its whole domain: instances by topic, and those for which a rule is unsound.

What an instance is, and what counts as equal, is said in `eggshard.egraph.laws`.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eggshard.egraph.laws import survey
from eggshard.errors import RewriteError
from eggshard.rewrites import TOPICS

#: The most unsound instances that are shown in full, the shortest first.
_SHOWN = 3


def run(console: Console, instances: int, seed: int, only: str = "") -> bool:
    """Print the table, of rules whose name contains ``only``; true if no instance is unsound."""
    topics = {topic.__name__.rpartition(".")[2]: [r for r in topic.rules if only in r.name] for topic in TOPICS}
    each = -(-instances // max(sum(map(len, topics.values())), 1))
    table = Table(title=f"rules over their domains: {instances} instances, seed {seed}", pad_edge=False)
    for name in ("topic", "rules", "instances", "unsound", "rules unsound", "seconds"):
        table.add_column(name, justify="left" if name == "topic" else "right")
    compared, unsound = 0, list[RewriteError]()
    for topic, rules in topics.items():
        began = time.perf_counter()
        found = [survey(rule, seed, each) for rule in rules]
        wrong = [error for one in found for error in one.unsound]
        count = sum(one.compared for one in found)
        table.add_row(
            topic, str(len(rules)), str(count), str(len(wrong)), str(sum(bool(one.unsound) for one in found)),
            f"{time.perf_counter() - began:.1f}",
        )
        compared, unsound = compared + count, unsound + wrong
    table.add_row("all", str(sum(map(len, topics.values()))), str(compared), str(len(unsound)), "", "")
    console.print(table)
    for error in sorted(unsound, key=lambda e: len(str(e)))[:_SHOWN]:
        console.print(escape(str(error)))
    return not unsound
