"""How wide a halo is exchanged, and how often, as latency grows: our plans against an exhaustive search.

The chain is the same throughout; the cost model goes from one in which a message is free to one in which it is all
that counts. Local steps are priced by their arithmetic alone, so that the search need not know how a plan spells them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import eggshard
from bench.exchange_search import Chain, Schedule, best_schedule, exchanges
from bench.programs import BenchProgram, axes_of, dimensions
from bench.programs.spellings import repeated
from eggshard.api import Plan
from eggshard.costmodel import AlphaBeta, CostModel, Messages
from eggshard.program.mesh import Mesh
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Step, StepPlan
from eggshard.steps.window_steps import WindowExchange

TOLERANCE = 0.01
"""How much more than the exhaustive search's a plan may cost."""

_ALPHAS = (0.0, 1e-9, 3e-9, 1e-8, 3e-8, 1e-7, 1e-6, 1e-5)


def models() -> Mapping[str, CostModel]:
    """From compute to latency: seconds per message of an interconnect; then messages before anything else."""
    found: dict[str, CostModel] = {
        f"alpha {1e6 * alpha:g} us": AlphaBeta(
            launch=0.0, latency=alpha, bandwidth=4.5e11, flops=1e12, memory=1e30, name="sweep"
        )
        for alpha in _ALPHAS
    }
    return {**found, "Messages": Messages()}


@dataclass(frozen=True)
class Case:
    """A chain as a program, and as the search sees it. Four operations per element: three sums and a product."""

    name: str
    mesh: str
    shape: str
    sharding: str
    steps: int
    step: Callable[[Array], Array]
    form: str = "unrolled"
    flops: int = 4
    wrapped: bool = False

    @property
    def program(self) -> BenchProgram:
        return BenchProgram.define(
            self.name, "latency", self.mesh, (f"{self.shape}: {self.sharding}",),
            repeated(self.step, self.steps, self.form), self.sharding,
        )  # fmt: skip

    @property
    def chain(self) -> Chain:
        axes, shape = dict(axes_of(self.mesh)), dimensions(self.shape)
        tile, shards, inner = [], [], 1
        for size, dim in zip(shape, self.sharding.split(), strict=True):
            if dim == "-":
                inner *= size
            else:
                tile.append(size // axes[dim])
                shards.append(axes[dim])
        most = 16 if self.steps > 8 else None
        return Chain(
            Mesh(axes), tuple(tile), tuple(shards), inner, 1, self.steps, self.flops, most=most, wrapped=self.wrapped
        )


def _walls(u: Array) -> Array:
    p = jnp.pad(u, 1)
    return 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])


def _periodic(u: Array) -> Array:
    return 0.25 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1))


CASES: tuple[Case, ...] = (
    Case("5-point pad 0 x8, rows", "8", "512x256", "x -", 8, _walls),
    Case("5-point roll x8, rows", "8", "512x256", "x -", 8, _periodic, wrapped=True),
    Case("5-point pad 0 x3, 4x2", "4x2", "256x512", "x y", 3, _walls),
    Case("5-point pad 0 x100 fori, rows", "8", "512x256", "x -", 100, _walls, "fori"),
)


@dataclass(frozen=True)
class Point:
    """One case under one model: our plan and the best schedule."""

    case: str
    model: str
    seconds: float
    messages: int
    widths: tuple[int, ...]
    best: Schedule
    error: str = ""

    @property
    def ratio(self) -> float:
        """Our modelled time over the best schedule's."""
        return self.seconds / self.best.seconds if self.best.seconds else float(self.seconds > 0) + 1.0

    @property
    def failure(self) -> str:
        """What is wrong with the plan; empty where nothing is."""
        if self.error:
            return self.error
        return f"{100 * (self.ratio - 1):.1f} % above the best schedule" if self.ratio > 1 + TOLERANCE else ""


def sweep(case: Case) -> Iterator[Point]:
    """One case under all models."""
    lowered = case.program.lower()
    for name, model in models().items():
        best = best_schedule(case.chain, model)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", eggshard.EggshardWarning)
                plan = eggshard.optimize(lowered, cost_model=model)
        except Exception as failed:  # a failure in the row, never hidden
            yield Point(case.name, name, math.nan, 0, (), best, f"{type(failed).__name__}: {failed}")
            continue
        error = f"fell back: {plan.search.fallback}" if plan.search.fallback else ""
        messages = sum(plan.collectives.values())
        yield Point(case.name, name, plan.cost.total, messages, widths(plan), best, error)


def widths(plan: Plan) -> tuple[int, ...]:
    """The different widths of slabs that a plan exchanges, loops included."""
    exchanged = (s.action for s in _steps(plan.device_program) if isinstance(s.action, WindowExchange))
    return tuple(sorted({slab.width for action in exchanged for part in action.exchanges for slab in part.rounds}))


def _steps(plan: StepPlan) -> Iterator[Step]:
    for step in plan.steps:
        yield step
        if isinstance(step.action, Loop):
            yield from _steps(step.action.condition)
            yield from _steps(step.action.body)
        elif isinstance(step.action, Branch):
            for branch in step.action.branches:
                yield from _steps(branch)


def run(console: Console) -> bool:
    """Print the sweep; true if every plan is within `TOLERANCE` of the best schedule."""
    table = Table(title="exchanges as latency grows: ours against an exhaustive search", pad_edge=False)
    for name in ("case", "model", "messages", "widths", "us", "best: messages", "widths", "us", "ratio", ""):
        table.add_column(name, justify="left" if name in ("case", "model", "widths", "") else "right")
    good = True
    for case in CASES:
        for point in sweep(case):
            good &= not point.failure
            ours, best = ",".join(map(str, point.widths)) or "-", sorted(set(exchanges(point.best)))
            table.add_row(
                point.case, point.model, str(point.messages), ours, f"{1e6 * point.seconds:.4g}",
                str(point.best.messages),
                ("gather " if point.best.gathered else "") + ",".join(map(str, best)),
                f"{1e6 * point.best.seconds:.4g}", f"{point.ratio:.3f}", escape(point.failure[:60]),
            )  # fmt: skip
    console.print(table)
    return good
