"""Seconds of a cluster: ours, XLA's partitioner and code by hand on hosts of one machine, joined by shaped links.

Every host is a network namespace with one JAX process in it, and all run the same: a plan is made once and loaded by
all. Versions of a program run by turns, each step after a barrier, and what counts is the least time of each. It takes
root and iproute2.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.cluster.job import Job, JobError
from bench.cluster.network import Network, NetworkError, bits, interrupted_by
from bench.cluster.planning import CALIBRATED, DEFAULT
from bench.cluster.rows import Row, summary, table, version
from bench.cluster.worker import HAND, XLA
from bench.programs import DEVICES, seconds
from bench.worker import in_own_process

_PLANNING = 600.0
#: Bytes per device that a cluster is calibrated with, and how often each case is timed.
_SIZES, _REPEATS = [1 << 12, 1 << 16, 1 << 20], 3
#: Seconds for which versions run by turns; turns at least and at most; seconds of a turn that is not repeated.
_SPENT, _FEWEST, _MOST, _LONG = 5.0, 3, 100, 20.0


class Plans:
    """Plans of programs in files, each made once for all rates."""

    def __init__(self, folder: Path, hosts: int, devices: int) -> None:
        self._folder, self._job = folder, (str(hosts), str(devices))
        self._made: dict[tuple[str, str], dict[str, Any]] = {}

    def of(self, name: str, model: str) -> dict[str, Any]:
        """The plan's file and what is said of it (see `bench.cluster.planning`)."""
        key = name, model
        if key not in self._made:
            path = self._folder / f"{len(self._made)}.json"
            given = name, model, str(path), *self._job
            self._made[key] = in_own_process("bench.cluster.planning", *given, timeout=_PLANNING)
        return self._made[key]


def run(
    console: Console, only: str = "", seed: int = 0, variants: int = 8, model: str = "", hosts: int = 4,
    devices: int = 2, rate: str = "100mbit,1gbit",
) -> bool:  # fmt: skip
    """Print a table and its summary per rate; true if no plan fell back, was wrong, or ran longer than is asked.

    model: cost models separated by commas, ``calibrated`` for what `eggshard calibrate` finds at each rate; by default
    `WireBytes` and the one that users get.
    """
    kinds = {**seconds.names(), "drawn": tuple(seconds.variants(seed, variants))}
    programs = [(kind, name) for kind, names in kinds.items() for name in names if only in name]
    models = tuple(filter(None, model.split(","))) or ("wire-bytes", DEFAULT)
    good = True
    try:
        asked = rates(rate)
        if hosts * devices != DEVICES:
            raise NetworkError(f"the programs run on {DEVICES} devices, and {hosts} hosts of {devices} have others")
        with interrupted_by(signal.SIGTERM), tempfile.TemporaryDirectory() as folder:
            plans = Plans(Path(folder), hosts, devices)
            for each in asked:
                rows: list[Row] = []
                try:
                    with Network(hosts, each) as network, Job(network, devices) as job:
                        files = {m: calibrated(console, job, folder, each) if m == CALIBRATED else m for m in models}
                        for kind, name in programs:
                            rows += measure(job, plans, each, kind, name, files)
                finally:  # what was measured before an interruption is worth seeing
                    if rows:
                        console.print(table(each, hosts, devices, rows))
                    for line in summary(rows):
                        console.print(f"{each}, {line}", markup=False, soft_wrap=True)
                good &= not any(row.failures for row in rows)
    except NetworkError as error:
        console.print(f"cluster: {error}", markup=False)
        return False
    return good


def calibrated(console: Console, job: Job, folder: str, rate: str) -> str:
    """Calibrate the cluster and print the errors of the fit; the machine's file. NetworkError where it fails."""
    path = f"{folder}/{rate}.toml"
    began = time.perf_counter()
    try:
        answer, *_ = job.ask(do="calibrate", path=path, sizes=_SIZES, repeats=_REPEATS)
    except JobError as error:
        raise NetworkError(f"the cluster cannot be calibrated: {error}") from None
    off = ", ".join(f"{kind} {100 * median:.0f}" for kind, _, median, _ in answer["errors"])
    took = time.perf_counter() - began
    console.print(f"{rate}: calibrated in {took:.0f} s, noise {answer['noise']:.2f}, off by (median, percent): {off}")
    return path


def measure(job: Job, plans: Plans, rate: str, kind: str, name: str, models: Mapping[str, str]) -> Iterator[Row]:
    """One row per model of a program, by what models are called here. What goes wrong is in the row."""
    made = {model: plans.of(name, file) for model, file in models.items()}
    rows = {model: Row(rate, kind, name, model, error=found.get("error", "")) for model, found in made.items()}
    try:
        paths = {model: found["path"] for model, found in made.items() if "error" not in found}
        _measured(job, name, paths, {model: rows[model] for model in paths})
    except JobError as error:
        for row in rows.values():
            row.error = row.error or str(error)
    for model, row in rows.items():
        found = made[model]
        row.collectives, row.predicted = found.get("collectives", {}), found.get("predicted")
        row.fallback = found.get("fallback") or ""
        print(f"{rate}, {row.said}", file=sys.stderr, flush=True)
        yield row


def _measured(job: Job, name: str, paths: Mapping[str, str], rows: Mapping[str, Row]) -> None:
    """Run a program's versions by turns, and write into the rows what it took."""
    prepared = job.ask(do="prepare", program=name, plans=dict(paths))
    times = job.ask(do="run", turns=turns(prepared))
    found = {name: version(name, prepared, times) for name in prepared[0]["versions"]}
    for model, row in rows.items():
        row.xla, row.ours, row.hand = found[XLA], found[model], found.get(HAND)


def turns(prepared: Sequence[dict[str, Any]], spent: float = _SPENT) -> int:
    """How often versions are run in so many seconds, by what all hosts said of their first runs."""
    round_ = sum(max(host["versions"][v]["first"] for host in prepared) for v in prepared[0]["versions"])
    return 1 if round_ > _LONG else min(_MOST, max(_FEWEST, int(spent / max(round_, 1e-3))))


def rates(text: str) -> tuple[str, ...]:
    """The rates of a list separated by commas. NetworkError where one is none, or there are none."""
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise NetworkError("there is no rate to measure at; write for example 100mbit,1gbit")
    for rate in found:
        bits(rate)
    return found
