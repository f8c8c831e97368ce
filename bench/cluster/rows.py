"""Rows of measured programs, what they fail by, and what is printed of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.markup import escape
from rich.table import Table

from bench.peers import kib, short
from bench.run import WORST

#: Parts of the largest value by which results may differ: what rounding of another order explains.
DIFFERENCE = 1e-3

#: Part by which a plan may be slower than the fastest one and count as chosen well.
_NEAR = 0.1


@dataclass
class Version:
    """One version of a program on the cluster: seconds of a step and to compile, received bytes, difference from XLA's.

    noise: the median of its steps over the least one.
    """

    step: float
    compile: float
    bytes: float
    difference: float
    noise: float = 1.0


@dataclass
class Row:
    """One program under one cost model; ``hand`` is None where nobody wrote it by hand."""

    rate: str
    kind: str
    name: str
    model: str
    xla: Version | None = None
    ours: Version | None = None
    hand: Version | None = None
    collectives: dict[str, int] = field(default_factory=dict)
    predicted: float | None = None
    fallback: str = ""
    error: str = ""

    @property
    def over_xla(self) -> float | None:
        """Our step's seconds over XLA's."""
        return self.ours.step / self.xla.step if self.ours and self.xla else None

    @property
    def over_hand(self) -> float | None:
        """Our step's seconds over those of the program by hand."""
        return self.ours.step / self.hand.step if self.ours and self.hand else None

    @property
    def over_measured(self) -> float | None:
        """Predicted seconds of our step over measured ones, of a model that predicts any."""
        return self.predicted / self.ours.step if self.ours and self.predicted is not None else None

    @property
    def said(self) -> str:
        """The row in a line."""
        return (
            f"{self.name}, {self.model}: {_number(self.ours and 1e3 * self.ours.step)} ms, {_number(self.over_xla)} of "
            f"XLA's, {_number(self.over_hand)} of by hand {'; '.join(self.failures)}"
        )

    @property
    def failures(self) -> list[str]:
        """What is wrong, in words."""
        if self.error:
            return [self.error]
        out = [f"fell back: {self.fallback[:60]}"] if self.fallback else []
        for what, version in (("", self.ours), (" by hand", self.hand)):
            if version is not None and not version.difference <= DIFFERENCE:
                out.append(f"differs{what} by {version.difference:.1e}")
        for what, ratio in (("XLA", self.over_xla), ("by hand", self.over_hand)):
            if ratio is not None and ratio > WORST:
                out.append(f"slower than {what}")
        return out


def table(rate: str, hosts: int, devices: int, rows: Sequence[Row]) -> Table:
    """One row per program and cost model."""
    out = Table(
        title=f"cluster: seconds of a step on {hosts} hosts of {devices} devices, links of {rate}",
        pad_edge=False,
        caption="/XLA, /hand: seconds of our step over theirs, least of turns taken by turns. KiB: received by a "
        "device, counted from compiled programs. compile: seconds over XLA's. predicted: over our measured step. "
        "noise: XLA's median over its least",
    )
    left = ("program", "model", "collectives", "")
    for name in ("rate", "program", "model", "XLA ms", "ours ms", "hand ms", "/XLA", "/hand", "noise", "KiB", "XLA KiB",
                 "hand KiB", "compile", "predicted", "collectives", ""):  # fmt: skip
        out.add_column(name, justify="left" if name in left else "right")
    for row in rows:
        versions = (row.xla, row.ours, row.hand)
        out.add_row(
            row.rate, escape(row.name), escape(row.model), *(_number(v and 1e3 * v.step) for v in versions),
            _number(row.over_xla), _number(row.over_hand), _number(row.xla and row.xla.noise),
            *(kib(v and v.bytes) for v in (row.ours, row.xla, row.hand)),
            _number(row.ours and row.xla and row.ours.compile / row.xla.compile), _number(row.over_measured, "2g"),
            short(row.collectives), escape("; ".join(row.failures)),
        )  # fmt: skip
    return out


def summary(rows: Sequence[Row]) -> list[str]:
    """The claims of a run at one rate in lines: by model and kind, against XLA and against code by hand."""
    out = []
    for model in dict.fromkeys(row.model for row in rows):
        of_model = [row for row in rows if row.model == model]
        for kind in dict.fromkeys(row.kind for row in of_model):
            found = [row for row in of_model if row.kind == kind]
            out += _ratios(f"{model}, {kind}: ours over XLA", [(r.over_xla, r.name) for r in found])
        out += _ratios(f"{model}: ours over code by hand", [(r.over_hand, r.name) for r in of_model])
        compiles = [r.ours.compile / r.xla.compile for r in of_model if r.ours and r.xla]
        if compiles:
            out.append(f"{model}: compiling over XLA's: median {statistics.median(compiles):.2f}, "
                       f"worst {max(compiles):.2f}")  # fmt: skip
        off = [abs(p - 1) for r in of_model if (p := r.over_measured) is not None]
        if off:
            out.append(f"{model}: predicted step off by {100 * statistics.median(off):.0f} % of the measured one in "
                       "the median")  # fmt: skip
    out += _fastest(rows)
    failed = [row for row in rows if row.failures]
    return out + [f"FAILED {row.name} ({row.model}): {'; '.join(row.failures)}" for row in failed]


def _fastest(rows: Sequence[Row]) -> list[str]:
    """How often a model's plan is the fastest of all models' plans of a program, or nearly so."""
    steps: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.ours:
            steps.setdefault(row.name, {})[row.model] = row.ours.step
    models = dict.fromkeys(row.model for row in rows)
    out = []
    for model in models if len(models) > 1 else ():
        over = [found[model] / min(found.values()) for found in steps.values() if model in found]
        near = sum(ratio <= 1 + _NEAR for ratio in over)
        out.append(f"{model}: the fastest of {len(models)} models' plans, or within {100 * _NEAR:.0f} %, on {near} of "
                   f"{len(over)} programs")  # fmt: skip
    return out


def _ratios(what: str, found: Sequence[tuple[float | None, str]]) -> list[str]:
    ratios = [(ratio, name) for ratio, name in found if ratio is not None]
    if not ratios:
        return []
    mean, (worst, name) = statistics.geometric_mean([ratio for ratio, _ in ratios]), max(ratios)
    above = sum(ratio > WORST for ratio, _ in ratios)
    return [
        f"{what}: {len(ratios)} programs, geometric mean {mean:.3f}, worst {worst:.2f} ({name}); above {WORST}: {above}"
    ]


def version(name: str, prepared: Sequence[dict[str, Any]], times: Sequence[dict[str, Any]]) -> Version:
    """One version from what all hosts said of it: a step ends when the last host's does."""
    first, *_ = found = [answer["versions"][name] for answer in prepared]
    steps = [max(turn) for turn in zip(*(answer["times"][name] for answer in times), strict=True)]
    difference = 0.0
    for array in zip(*(host["off"] for host in found), strict=True):
        worst, most = (max(column) for column in zip(*array, strict=True))
        difference = max(difference, worst / (most + 1e-30))
    return Version(
        min(steps), first["compile"], first["figures"]["bytes"], difference, statistics.median(steps) / min(steps)
    )


def _number(value: float | None, digits: str = "2f") -> str:
    return "-" if value is None else f"{value:.{digits}}"
