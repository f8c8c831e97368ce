"""Shardings that `eggshard.auto` chooses within memory limits, against those that users write by hand.

Limits are the least peak of the plans by hand, and half-way from there to the peak of the choice without a limit where
that takes more. A choice within a limit has to cost no more than the cheapest plan by hand that fits. At half of the
least peak nothing is by hand: a plan is found, or it is proved that there is none, or neither.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

import eggshard as es
from bench.auto import MORE, stated
from bench.programs.choices import programs
from bench.programs.choices.definition import Open, make_mesh
from eggshard.autosharding import Shardings
from eggshard.tables import size

#: Of plans whose cost and peak alone are asked for.
_LIMITS = es.Limits(proof=0.0)
#: Bytes that a limit allows more than a plan by hand takes: scalars lie elsewhere in other plans.
_SPARE = 1 << 13


@dataclass
class Found:
    """A choice within a limit, in bytes: cost in seconds of the cost model, seconds of planning, and what is wrong.

    cost: None where there is no plan. hand: of the cheapest plan by hand within the limit, None where none is.
    """

    limit: int
    cost: float | None
    peak: int = 0
    hand: float | None = None
    seconds: float = 0.0
    proved: bool = False

    @property
    def failure(self) -> str:
        """What is wrong with the choice."""
        if self.hand is None or (self.cost is not None and self.cost <= (1 + MORE) * self.hand):
            return ""
        return "no plan" if self.cost is None else f"{self.cost / self.hand:.3f} of the best by hand"


@dataclass
class Limited:
    """Choices for one program within limits. free: the cost without one."""

    name: str
    free: float
    found: list[Found] = field(default_factory=list)


def run(console: Console, only: str = "", seed: int = 0, model: str = "") -> bool:
    """Print a row per program and limit; whether every limit that a plan by hand meets is met, at no more cost."""
    title = f"shardings chosen within memory limits: cost under {model or 'the default model'}"
    table = Table(title=title, pad_edge=False)
    for name in ("program", "limit", "peak", "cost", "without", "by hand", "seconds", " "):
        table.add_column(name, justify="left" if name in ("program", " ") else "right")
    rows = []
    for program in programs(seed):
        if only not in program.name:
            continue
        rows.append(measured(program, model or None))
        for found in rows[-1].found:
            cells = (rows[-1].name, size(found.limit), size(found.peak) if found.cost is not None else "-",
                     f"{1e3 * found.cost:.4g}" if found.cost is not None else "-", _over(found.cost, rows[-1].free),
                     _over(found.cost, found.hand), f"{found.seconds:.1f}",
                     found.failure or ("proved impossible" if found.proved else ""))
            table.add_row(*map(escape, cells))
        print(f"{program.name}: {'; '.join(f.failure for f in rows[-1].found if f.failure) or 'good'}", file=sys.stderr,
              flush=True)
    console.print(table)
    for line in summary(rows):
        console.print(line)
    return not any(found.failure for row in rows for found in row.found)


def summary(rows: list[Limited]) -> Iterator[str]:
    """What all rows come to."""
    by_hand = [found for row in rows for found in row.found if found.hand is not None]
    met = sum(not found.failure for found in by_hand)
    yield f"{met} of {len(by_hand)} limits that plans by hand meet are met, at no more cost"
    others = [found for row in rows for found in row.found if found.hand is None]
    plans, proofs = sum(found.cost is not None for found in others), sum(found.proved for found in others)
    yield f"below: {plans} of {len(others)} met, {proofs} proved impossible"


def measured(program: Open, model: Any) -> Limited:
    """The choices for a program within limits that its plans by hand give."""
    hand = [es.optimize(stated(program, specs, make_mesh()), cost_model=model, limits=es.Limits(proof=0.0))
            for specs in program.hand.values()]
    free = _chosen(program, model, None)
    row = Limited(program.name, free.plan.cost.total)
    least, most = min(plan.memory.peak for plan in hand), free.plan.memory.peak
    for limit in dict.fromkeys((least // 2, least, *([(least + most) // 2] if most > least + 2 * _SPARE else []))):
        limit += _SPARE
        fitting = [plan.cost.total for plan in hand if plan.memory.peak <= limit]
        row.found.append(_within(program, model, limit, min(fitting, default=None)))
    return row


def _within(program: Open, model: Any, limit: int, hand: float | None) -> Found:
    began = time.perf_counter()
    found = Found(limit, None, hand=hand)
    try:
        plan = _chosen(program, model, limit).plan
        found.cost, found.peak = plan.cost.total, plan.memory.peak
    except es.errors.LimitError as error:
        found.proved = "so that no plan can" in str(error)
    found.seconds = time.perf_counter() - began
    return found


def _chosen(program: Open, model: Any, limit: int | None) -> Shardings:
    return es.auto(program.function, *program.arguments, mesh=make_mesh(), carry=program.carry, cost_model=model,
                   limits=_LIMITS, memory_limit=limit)


def _over(cost: float | None, other: float | None) -> str:
    """A cost, as a multiple of another."""
    return "-" if cost is None or other is None else f"{cost / other:.3f}"
