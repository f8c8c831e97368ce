"""Seconds where `eggshard.AUTO` puts arguments and results, beside those where users put them by hand.

All versions are compiled by `eggshard.jit` and run by turns, on the hosts of a cluster or in one process.
"""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.cluster import calibrated, rates, turns
from bench.cluster.job import Job, JobError
from bench.cluster.network import Network, NetworkError, OneHost, bits, interrupted_by
from bench.cluster.planning import CALIBRATED
from bench.cluster.rows import DIFFERENCE, Version, version
from bench.cluster.worker import CHOSEN
from bench.programs import DEVICES
from bench.programs.choices import MEASURED, programs
from eggshard.costmodel import preset
from eggshard.costmodel.machines.machine_text import to_toml

#: The part of a link's rate that messages have, as of the preset's 1 Gbit/s.
CARRIED = 0.88
#: Seconds for which versions run by turns: there are more of them than of other programs.
SPENT = 20.0
#: What is asked of a choice: its seconds over those of the fastest way by hand.
MOST = 1.05


@dataclass
class Measured:
    """Versions of one function: where its shardings are chosen, and by hand.

    same: the ways by hand that compile to the choice's program, and whose turns are the choice's, too.
    """

    name: str
    versions: dict[str, Version] = field(default_factory=dict)
    same: frozenset[str] = frozenset()
    error: str = ""

    @property
    def hand(self) -> dict[str, float]:
        """Seconds of a step by the names of the ways."""
        return {way: v.step for way, v in self.versions.items() if way != CHOSEN}

    @property
    def ratio(self) -> float:
        """The choice's seconds over those of the fastest way by hand."""
        return self.chosen / min(self.hand.values())

    @property
    def chosen(self) -> float:
        """The choice's seconds."""
        return min(v.step for way, v in self.versions.items() if way == CHOSEN or way in self.same)

    @property
    def said(self) -> str:
        """The row in a line."""
        steps = ", ".join(f"{way}{' =' * (way in self.same)} {1e3 * v.step:.1f} ms {v.bytes / 1024:.0f} KiB"
                          for way, v in self.versions.items())  # fmt: skip
        return f"{self.name}: {steps} {'; '.join(self.failures)}"

    @property
    def failures(self) -> list[str]:
        """What is wrong, in words."""
        if self.error:
            return [self.error]
        out = [f"{way} differs by {v.difference:.1e}" for way, v in self.versions.items()
               if not v.difference <= DIFFERENCE]  # fmt: skip
        return out + ([f"{self.ratio:.2f} of the fastest by hand"] if self.ratio > MOST else [])


def run(
    console: Console, only: str = "", seed: int = 0, model: str = "", hosts: int = 4, devices: int = 2,
    rate: str = "100mbit",
) -> bool:  # fmt: skip
    """Print a table and its summary per rate; whether no choice is slower than by hand by more than is asked.

    model: of costs, by name or file; ``calibrated`` for what `eggshard calibrate` finds on the cluster; by default the
    preset of such processes at the links' rate, in one process that of the devices.
    hosts: 1 for one process. only: parts of names, separated by commas, of other functions than the usual ones too.
    """
    known = [program.name for program in programs(seed)]
    names = [name for name in known if any(part in name for part in only.split(","))] if only else MEASURED
    good = True
    try:
        if hosts * devices != DEVICES:
            raise NetworkError(f"the programs run on {DEVICES} devices, and {hosts} hosts of {devices} have others")
        with interrupted_by(signal.SIGTERM), tempfile.TemporaryDirectory() as folder:
            for each in rates(rate) if hosts > 1 else ("",):
                rows: list[Measured] = []
                try:
                    with Network(hosts, each) if each else OneHost() as network, Job(network, devices) as job:
                        file = calibrated(console, job, folder, each) if model == CALIBRATED else model
                        file = file or (preset_at(folder, each, devices) if each else "")
                        for name in names:
                            rows.append(measured(job, name, seed, file))
                            print(f"{each} {rows[-1].said}", file=sys.stderr, flush=True)
                finally:  # what was measured before an interruption is worth seeing
                    links = f"links of {each}" if each else "one process"
                    console.print(table(f"shardings chosen: seconds on {hosts} x {devices} devices, {links}", rows))
                    for line in summary(rows):
                        console.print(line, markup=False, soft_wrap=True)
                good &= not any(row.failures for row in rows)
    except NetworkError as error:
        console.print(f"auto: {error}", markup=False)
        return False
    return good


def preset_at(folder: str, rate: str, devices: int) -> str:
    """The file of a machine: the preset of processes joined by TCP, on hosts of so many devices and links of a rate."""
    whole = preset("cpu-cluster")
    host, network = whole.levels
    path = Path(folder) / f"{rate}.toml"
    fabric = replace(network.fabric, bandwidth=CARRIED * bits(rate) / 8)
    levels = (replace(host, units=devices), replace(network, fabric=fabric))
    path.write_text(to_toml(replace(whole, name=rate, levels=levels)))
    return str(path)


def measured(job: Job, name: str, seed: int, model: str) -> Measured:
    """Run the versions of a function by turns."""
    try:
        prepared = job.ask(do="choose", program=name, seed=seed, model=model)
        times = job.ask(do="run", turns=turns(prepared, SPENT))
    except JobError as error:
        return Measured(name, error=str(error))
    found = prepared[0]["versions"]
    same = frozenset(way for way in found if way != CHOSEN and found[way]["program"] == found[CHOSEN]["program"])
    return Measured(name, {way: version(way, prepared, times) for way in found}, same)


def table(title: str, rows: Sequence[Measured]) -> Table:
    """One row per function."""
    out = Table(title=title, pad_edge=False, caption="ms: least of turns taken by turns. noise: median over least. =: "
                "compiles to the same program")  # fmt: skip
    for name in ("program", "AUTO ms", "by hand: fastest", "ms", "ratio", "slowest", "ms ", "noise", " "):
        out.add_column(name, justify="right" if name.strip() in ("AUTO ms", "ms", "ratio", "noise") else "left")
    for row in rows:
        if row.error:
            out.add_row(escape(row.name), *["-"] * 7, escape(row.error))
            continue
        auto, hand = row.versions[CHOSEN], row.hand
        best, worst = (pick(hand, key=hand.__getitem__) for pick in (min, max))
        out.add_row(*map(escape, (
            row.name, f"{1e3 * row.chosen:.2f}", f"{best} =" if best in row.same else best, f"{1e3 * hand[best]:.2f}",
            f"{row.ratio:.2f}", worst, f"{1e3 * hand[worst]:.2f}", f"{auto.noise:.2f}",
            "; ".join(row.failures))))  # fmt: skip
    return out


def summary(rows: Sequence[Measured]) -> Iterator[str]:
    """What all rows come to."""
    ratios = [row.ratio for row in rows if not row.error]
    if ratios:
        near = sum(ratio <= MOST for ratio in ratios)
        yield (f"{len(ratios)} programs: seconds over the fastest by hand: geometric mean "
               f"{statistics.geometric_mean(ratios):.3f}, at worst {max(ratios):.2f}; the fastest, or within "
               f"{100 * (MOST - 1):.0f} %, on {near}")  # fmt: skip
