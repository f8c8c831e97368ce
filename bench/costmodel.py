"""How far modelled times are from measured ones, and whether they rank plans as measured times do.

Against published figures no more is claimed than they allow. Of XLA's table of measured collectives (one GPU, one
convention) four fifths of the entries are fitted and the held-out fifth is priced, for every fifth in turn. The file is
the user's: ``--table``, or the environment variable EGGSHARD_XLA_TABLE. A median over entries of at least 1 MiB may be
15 % off, below that 30 %. Measured here is only a CPU: the ranks of plans after calibration (`bench.costmodel_ranks`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import costmodel_ranks
from eggshard.costmodel import AlphaBeta, CostModel, Machine, StepInfo, WireBytes, preset
from eggshard.costmodel.algorithms import ALL_REDUCE, KINDS
from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.fitting import fitted
from eggshard.costmodel.table import Measured
from eggshard.costmodel.xla_table import read_xla_table
from eggshard.plan.pricing import Pricer
from eggshard.program.mesh import Mesh

#: Presets whose fabrics the devices of XLA's table have, by the beginning of the device's name.
_BASES = {"sm_80": "a100-node", "sm_90": "h100-node", "sm_100": "b200-node", "sm_103": "b200-node"}
_SOURCE = "openxla/xla xla/service/gpu/model/default_collective_perf_table.txtpb"
_LARGE = 1 << 20
#: Bytes per second that some rates are rounded to, and below which such rates tell little.
_ROUNDED, _TELLING = 1e7, 2e8
_BOUNDS = {True: 0.15, False: 0.30}
_FOLDS = 5
#: Steps priced in one call, and the seconds that it may take.
_STEPS, _MOST = 10 ** 6, 2.0
#: Of permutes those where every device sends and receives; XLA measured other patterns apart.
_PATTERNS = ("", "pairs")

#: What is published of one collective: name, machine, mesh, step's axes and bytes of the result, seconds, the error
#: allowed (None: told only), and the source.
_BOOK = "jax-ml/scaling-book sharding.md, pop quiz 2, profile of a TPU v5e"
_ANCHORS = (
    ("all-gather of 34 MB over 4 of 8x4", "tpu-v5e", {"X": 8, "Y": 4}, ("Y",), 2048 * 8192 * 2, 680e-6, 0.25, _BOOK),
    ("all-gather of 128 KiB over 4 of 8x4", "tpu-v5e", {"X": 8, "Y": 4}, ("Y",), 256 * 256 * 2, 8e-6, None, _BOOK),
)


def run(console: Console, only: str = "", table: str = "", machine: str = "", seed: int = 0) -> bool:
    """Print every part whose name contains ``only``: anchors, speed, table, ranks; true if all bounds hold."""
    good = True
    if only in "anchors":
        good &= _anchors(console)
    if only in "speed":
        good &= _speed(console)
    if only in "table":
        good &= _published(console, table or os.environ.get("EGGSHARD_XLA_TABLE", ""))
    if only in "ranks":
        good &= costmodel_ranks.run(console, machine, seed)
    return good


def _anchors(console: Console) -> bool:
    out = Table(title="presets against published single figures", pad_edge=False)
    for name in ("collective", "machine", "measured us", "modelled us", "error %", "source", ""):
        out.add_column(name, justify="right" if "us" in name or "%" in name else "left")
    good = True
    for name, machine, axes, over, size, seconds, allowed, source in _ANCHORS:
        mesh = Mesh(axes)
        n = mesh.count(over)
        price = preset(machine).seconds(
            StepInfo("all-gather", mesh, axes=over, group=n, wire_bytes=size * (n - 1) / n, messages=1))
        error = abs(price / seconds - 1)
        failed = allowed is not None and error > allowed
        good &= not failed
        out.add_row(name, machine, f"{1e6 * seconds:.0f}", f"{1e6 * price:.1f}", f"{100 * error:.0f}", source,
                    "FAILED" if failed else "" if allowed else "told only")
    console.print(out)
    return good


def _speed(console: Console) -> bool:
    """Prices of a million steps in one call of `Pricer.many`, in processor seconds."""
    mesh, rng = Mesh({"x": 4, "y": 4, "z": 2}), np.random.default_rng(0)
    heads = [StepInfo(kind, mesh, axes=axes, group=mesh.count(axes)) for kind in (*KINDS, "collective-permute")
             for axes in (("x",), ("y", "z"), ("x", "y", "z"))]
    heads += [StepInfo("local", mesh, op=op) for op in ("add", "dot_general", "reduce")]
    head = rng.integers(0, len(heads), _STEPS)
    sends = np.array([bool(step.axes) for step in heads])[head]
    sizes = rng.uniform(1, 1e9, _STEPS)
    steps = StepColumns(tuple(heads), head, sizes * sends, 1.0 * sends, sizes * ~sends, sizes, *np.zeros((3, _STEPS)))
    out = Table(title=f"{_STEPS:,} prices in one call", pad_edge=False)
    out.add_column("model")
    out.add_column("processor s", justify="right")
    good = True
    models: dict[str, CostModel] = {
        "AlphaBeta": AlphaBeta(), **{name: preset(name) for name in ("h100-cluster", "tpu-v5p")},
        "0.7 x tpu-v5e + 0.3 x WireBytes": 0.7 * preset("tpu-v5e") + 0.3 * WireBytes(),
    }
    for name, model in models.items():
        began = time.process_time()
        Pricer(model, mesh).many(steps)
        seconds = time.process_time() - began
        good &= seconds < _MOST
        out.add_row(name, f"{seconds:.2f}")
    console.print(out)
    return good


def _published(console: Console, path: str) -> bool:
    if not path:
        console.print(f"XLA's table: not read. Give the file {_SOURCE} with --table, or in EGGSHARD_XLA_TABLE.")
        return True
    good = True
    for device, rows in read_xla_table(Path(path)).items():
        base = next((name for start, name in _BASES.items() if device.startswith(start + "_")), None)
        rows = [(step, seconds) for step, seconds in rows if step.op in _PATTERNS]
        if base is None or not rows:
            console.print(f"XLA's table: {device}: no preset for it" if base is None else f"{device}: no collectives")
            continue
        kept = _exact(rows)
        if len(kept) < len(rows):
            console.print(f"{device}: {len(rows) - len(kept)} entries left out whose rates are rounded to "
                          f"{_ROUNDED / 1e6:.0f} MB/s and below {_TELLING / 1e6:.0f}")
        good &= _held_out(console, device, _joining(preset(base)), kept)
    return good


def _exact(rows: Sequence[Measured]) -> list[Measured]:
    """The entries whose rates rounding does not hide; some devices' are rounded throughout."""
    rates = [_size(step) / seconds for step, seconds in rows]
    if any(abs(rate / _ROUNDED - round(rate / _ROUNDED)) > 1e-6 for rate in rates):
        return list(rows)
    return [row for row, rate in zip(rows, rates, strict=True) if rate >= _TELLING]


def _joining(machine: Machine) -> Machine:
    """The machine with a first level for as many devices as there are: racks join more than eight by NVLink."""
    return replace(machine, levels=(replace(machine.levels[0], units=0),))


def _held_out(console: Console, device: str, base: Machine, rows: Sequence[Measured]) -> bool:
    errors: dict[tuple[str, bool], list[float]] = {}
    fold = np.random.default_rng(0).permutation(len(rows)) % _FOLDS
    untouched: dict[tuple[str, bool], list[float]] = {}
    for k in range(_FOLDS):
        machine = fitted(base, [row for row, f in zip(rows, fold, strict=True) if f != k])
        held = [row for row, f in zip(rows, fold, strict=True) if f == k]
        steps = StepColumns.of([step for step, _ in held])
        for found, prices in ((errors, machine.seconds_many(steps)), (untouched, base.seconds_many(steps))):
            for (step, seconds), price in zip(held, prices, strict=True):
                found.setdefault((step.kind, _size(step) >= _LARGE), []).append(abs(float(price) / seconds - 1))
    out = Table(title=f"{device}: {len(rows)} collectives of {_SOURCE}, held out", pad_edge=False,
                caption=f"as shipped: the preset {base.name}, fitted to nothing here")
    for name in ("collective", "bytes", "entries", "median error %", "p90 %", "as shipped %", ""):
        out.add_column(name, justify="left" if name in ("collective", "bytes", "") else "right")
    good = True
    for kind, large in sorted(errors):
        found = errors[kind, large]
        failed = float(np.median(found)) > _BOUNDS[large]
        good &= not failed
        out.add_row(kind, ">= 1 MiB" if large else "< 1 MiB", str(len(found)), f"{100 * np.median(found):.1f}",
                    f"{100 * np.quantile(found, 0.9):.0f}", f"{100 * np.median(untouched[kind, large]):.0f}",
                    f"above {100 * _BOUNDS[large]:.0f}" if failed else "")
    console.print(out)
    return good


def _size(step: StepInfo) -> float:
    """Bytes of the group's whole array, as XLA's table counts them."""
    if step.kind == "collective-permute":
        return step.wire_bytes
    return step.wire_bytes * step.group / (step.group - 1) / (2 if step.kind == ALL_REDUCE else 1)
