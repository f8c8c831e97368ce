"""``python -m bench FAMILY [FAMILY ...]``: ours, XLA's partitioner and Shardy's passes on the same programs.

Bytes are counted from the compiled program, per device, under the cost model `WireBytes`. Times are from this run on
this machine and only their ratios mean anything. A plan that fell back, or replicates what it could shard, is a
failure and printed as one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.peers import kib, short
from bench.programs import DEVICES, use_cpu_devices
from bench.runner import Row, run_all


def table(family: str, rows: Sequence[Row]) -> Table:
    """One row per program."""
    out = Table(
        title=f"{family}: wire KiB per device, counted from compiled HLO",
        pad_edge=False,
        caption="R: XLA printed 'Involuntary full rematerialization'. time: optimize / XLA compile, this run",
    )
    for name in (
        "program",
        "bound",
        "XLA",
        "",
        "Shardy",
        "ours",
        "collectives",
        "search gap %",
        "no algebra",
        "exact",
        "flops",
        "time",
        "",
    ):
        out.add_column(name, justify="left" if name in ("program", "collectives", "") else "right")
    for r in rows:
        ratio = r.flops / r.xla_flops if r.flops is not None and r.xla_flops else None
        out.add_row(
            r.name,
            kib(r.bound),
            kib(r.xla),
            "R" if r.rematerialized else "",
            kib(r.shardy),
            kib(r.counted),
            short(r.collectives),
            "-" if r.gap is None else f"{100 * r.gap:.2f}",
            kib(r.algebra_off),
            kib(r.exact),
            "-" if ratio is None else f"{ratio:.2f}",
            "-" if not r.seconds or not r.xla_seconds else f"{r.seconds / r.xla_seconds:.2f}",
            "; ".join(r.failures),
        )
    return out


def window_table(family: str, rows: Sequence[Row]) -> Table:
    """One row per program, with the peers that exchange halos and the best bytes known."""
    out = Table(
        title=f"{family}: wire KiB per device, counted from compiled HLO",
        pad_edge=False,
        caption="+flag: XLA with its flag for Enzyme's communications. Enzyme: the least of its settings, named. "
        "time: optimize / XLA compile, this run",
    )
    names = "program,known,XLA,+flag,Enzyme,,ours,predicted,collectives,messages,time,".split(",")
    for name in names:
        out.add_column(name, justify="left" if name in ("program", "collectives", "") else "right")
    for r in rows:
        out.add_row(
            escape(r.name),
            kib(r.known),
            kib(r.xla),
            kib(r.flagged),
            kib(r.enzyme),
            r.enzyme_setting or escape(r.enzyme_note[:40]),
            kib(r.counted),
            kib(r.predicted),
            short(r.collectives),
            "-" if r.messages is None else str(r.messages),
            "-" if not r.seconds or not r.xla_seconds else f"{r.seconds / r.xla_seconds:.2f}",
            escape("; ".join(r.failures)[:80]),
        )
    return out


def summary(rows: Sequence[Row]) -> list[str]:
    """The claims of a run in lines."""
    timed = [r.seconds / r.xla_seconds for r in rows if r.seconds and r.xla_seconds]
    better = [r.name for r in rows if r.counted is not None and r.xla is not None and r.counted < r.xla - 0.5]
    algebra = [
        r.name
        for r in rows
        if r.algebra_off is not None and r.predicted is not None and r.algebra_off > r.predicted + 0.5
    ]
    failed = [r for r in rows if r.failures]
    lines = [
        f"{len(rows)} programs; fewer bytes than XLA on {len(better)}; failures on {len(failed)}",
        f"fell back: {sum(bool(r.fallback) for r in rows)}; replicated an op: {sum(bool(r.replicated) for r in rows)}; "
        f"promoted by the back end: {[r.name for r in rows if r.promoted]}",
        f"worse without the tensor algebra: {len(algebra)} ({', '.join(algebra)})",
    ]
    if timed:
        lines.append(f"optimize / XLA compile: median {statistics.median(timed):.2f}, worst {max(timed):.2f}")
    lines += [f"FAILED {r.name}: {'; '.join(r.failures)}" for r in failed]
    return lines


_WINDOWS = frozenset({"stencil", "padslice"})
_SECTIONS = {
    name: f"bench.{name}"
    for name in ("auto", "auto_memory", "cluster", "clusters", "costmodel", "exhaustive", "fuzz", "guard", "installs",
                 "latency", "laws", "layers", "memory", "meshes", "overlap", "partition", "per_device", "planning",
                 "run", "same", "scale", "upstream")
}
_ASKED = {"auto": {"only": "only", "seed": "seed", "model": "model", "most": "choices", "resumed": "resume",
                   "measured": "measured", "hosts": "hosts", "devices": "devices", "rate": "rate"},
           "auto_memory": {"only": "only", "seed": "seed", "model": "model"},
          "cluster": {"only": "only", "seed": "seed", "variants": "variants", "model": "model", "hosts": "hosts",
                      "devices": "devices", "rate": "rate"},
          "clusters": {"only": "only", "everything": "all", "seed": "seed", "variants": "variants"},
          "costmodel": {"only": "only", "table": "table", "machine": "machine", "seed": "seed"},
          "fuzz": {"programs": "programs", "seed": "seed", "start": "start", "jobs": "jobs"},
          "guard": {"only": "only", "everything": "all", "seed": "seed"},
          "installs": {"only": "only"},
          "laws": {"instances": "instances", "seed": "seed", "only": "only"},
          "layers": {"only": "only", "everything": "all"},
          "memory": {"only": "only"},
          "meshes": {"only": "only", "seed": "seed", "model": "model", "devices": "mesh_devices"},
          "partition": {"only": "only", "model": "model"},
          "planning": {"only": "only", "seed": "seed", "variants": "variants"},
          "lit": {"shardy": "shardy", "enzyme": "enzyme", "xla": "xla", "everything": "all"},
          "triton": {"lit": "lit"},
          "kernels": {"packages": "packages", "most": "pairs"},
          "prove": {"seconds": "seconds", "resumed": "resume"},
          "scale": {"only": "only", "everything": "all", "seed": "seed"},
          "run": {"only": "only", "seed": "seed", "variants": "variants", "model": "model"},
          "same": {"only": "only"},
          **dict.fromkeys(("per_device", "upstream"), {"only": "only", "seed": "seed", "model": "model"})}
"""Which options some sections take, by their own names for them."""
_MEASURED = ("engines", "extraction", "kernels", "lit", "mutants", "prove", "shardy", "triton")
"""Sections of a seed, with records of their own."""
_DEVICES = {"guard": 32}
"""Virtual devices of sections that need more than families do."""
_BESIDE = {"stencil": ("latency", "scale")}
"""Sections that a family's table is followed by."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run families; exit status 1 if a plan failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    names = ("reshard", "dense", *sorted(_WINDOWS), *_SECTIONS, *_MEASURED)
    parser.add_argument("families", nargs="+", help=", ".join(names))
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--only", default="", help="programs whose name contains this; no sections")
    parser.add_argument("--all", action="store_true", help="programs that a usual run leaves out too")
    parser.add_argument("--variants", type=int, default=8, help="how many programs to draw per family")
    parser.add_argument("--programs", type=int, default=200, help="of fuzz: how many to draw")
    parser.add_argument("--start", type=int, default=0, help="of fuzz: the number of the first program")
    parser.add_argument("--jobs", type=int, default=1, help="of fuzz: processes at a time")
    parser.add_argument("--instances", type=int, default=500_000, help="of laws: how many of all rules together")
    parser.add_argument("--seconds", type=int, default=60, help="of prove: processor time of one proof")
    parser.add_argument("--resume", type=Path, help="of auto, prove: a file of records, added to; none is done twice")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument(
        "--ablations",
        action=argparse.BooleanOptionalAction,
        help="run without algebra, exact, and with doubled caps too (by default not for stencil and padslice)",
    )
    parser.add_argument("--shardy", type=Path, help="of lit: a checkout of Shardy's repository")
    parser.add_argument("--enzyme", type=Path, help="of lit: a checkout of Enzyme-JAX's repository")
    parser.add_argument("--packages", type=Path, help="of kernels: a folder of unpacked packages")
    parser.add_argument("--pairs", type=int, default=300, help="of kernels: of kernels and targets, at most")
    parser.add_argument("--lit", type=Path, help="of triton: a checkout of Triton's repository")
    parser.add_argument("--xla", type=Path, help="of lit: a checkout of XLA's repository")
    parser.add_argument("--table", default="", help="of costmodel: XLA's table of measured collectives")
    parser.add_argument("--machine", default="", help="of costmodel: the file of a machine calibrated here before")
    parser.add_argument("--hosts", type=int, default=4, help="of auto, cluster: hosts, each with a process")
    parser.add_argument("--devices", type=int, default=2, help="of auto, cluster: devices of a host")
    parser.add_argument("--mesh-devices", type=int, default=64, help="of meshes: how many devices")
    parser.add_argument("--rate", default="100mbit,1gbit", help="of auto, cluster: what links carry, as tc writes it")
    parser.add_argument(
        "--model", default="",
        help="of auto, auto_memory, cluster, meshes, partition, per_device, run, upstream: by name or file",
    )
    parser.add_argument("--choices", type=int, default=100, help="of auto: how many shardings of a program to try")
    parser.add_argument("--measured", action="store_true", help="of auto: seconds on hosts, or in one process for one")
    parser.add_argument("--no-verify", action="store_true", help="skip running the plans")
    parser.add_argument("--no-enzyme", action="store_true", help="skip the passes of enzyme_ad")
    options = parser.parse_args(arguments)
    use_cpu_devices(max(_DEVICES.get(family, DEVICES) for family in options.families))
    width = None if sys.stdout.isatty() else 190
    console = Console(width=width)
    records: list[dict[str, Any]] = []
    failed = False
    for family in options.families:
        if family in _MEASURED:
            module = importlib.import_module(f"bench.{family}")
            wanted = {name: getattr(options, option) for name, option in _ASKED.get(family, {}).items()}
            good, found = module.run(console, seed=options.seed, only=options.only, **wanted)
            failed |= not good
            records += found
            continue
        if family in _SECTIONS:
            wanted = {name: getattr(options, option) for name, option in _ASKED.get(family, {}).items()}
            failed |= not _section(family, width, records, **wanted)
            continue
        rows = _rows(family, options)
        windows = family in _WINDOWS
        console.print((window_table if windows else table)(family, rows))
        for line in summary(rows):
            console.print(line, markup=False)
        failed |= any(r.failures for r in rows)
        records += [r.json() for r in rows]
        for section in _BESIDE.get(family, ()) if not options.only else ():
            failed |= not _section(section, width, records)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n")
    return int(failed)


class Printed(Console):
    """A console that keeps the tables printed on it."""

    def __init__(self, width: int | None) -> None:
        super().__init__(width=width)
        self.tables: list[Table] = []

    def print(self, *objects: Any, **options: Any) -> None:
        self.tables += [o for o in objects if isinstance(o, Table)]
        super().print(*objects, **options)


def _section(name: str, width: int | None, records: list[dict[str, Any]], **wanted: Any) -> bool:
    """Run a section; the rows of its tables, as printed, become records."""
    console = Printed(width)
    good: bool = importlib.import_module(_SECTIONS[name]).run(console, **wanted)
    for table in console.tables:
        headers = [str(column.header) or "failures" for column in table.columns]
        headers = [f"{h} {headers[:i].count(h) + 1}" if h in headers[:i] else h for i, h in enumerate(headers)]
        rows = zip(*(column.cells for column in table.columns), strict=True)
        records += [{"section": name, **dict(zip(headers, map(str, row), strict=True))} for row in rows]
    return good


def _rows(family: str, options: argparse.Namespace) -> list[Row]:
    module = importlib.import_module(f"bench.programs.{family}")
    programs = [p for p in module.PROGRAMS if options.all or not p.extra]
    programs += module.variants(options.seed, options.variants)
    windows = family in _WINDOWS
    return run_all(
        [p for p in programs if options.only in p.name],
        ablations=not windows if options.ablations is None else options.ablations,
        verify=not options.no_verify,
        flag=windows,
        passes=windows and not options.no_enzyme,
        progress=lambda r: print(f"{r.name}: {kib(r.counted)} KiB{' FAILED' if r.failures else ''}", file=sys.stderr),
    )


if __name__ == "__main__":
    raise SystemExit(main())
