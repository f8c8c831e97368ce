"""How far modelled times are from measured ones, and whether they rank plans as measured times do.

Against published figures no more is claimed than they allow. Of each section of XLA's table of measured collectives
(one GPU, one convention) four fifths of the entries are fitted and the held-out fifth is priced, for every fifth in
turn and three times over; entries that a model cannot tell apart are in one fifth. The table is the user's: ``--table``
(the text, XLA's plugin, or its wheel), the environment variable EGGSHARD_XLA_TABLE, an installed plugin, or its wheel
in the current folder. A median over entries of at least 1 MiB may be 15 % off, below that 30 %. Measured here is only a
CPU: the ranks of plans after calibration (`bench.costmodel_ranks`).
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import costmodel_ranks
from eggshard.calibration.fitting import fitted
from eggshard.calibration.xla_table import read_xla_table
from eggshard.costmodel import AlphaBeta, CostModel, Machine, StepInfo, WireBytes, preset
from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.machines.algorithms import ALL_REDUCE, KINDS
from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.table import Measured
from eggshard.program.mesh import Mesh

#: Presets whose fabrics the devices of XLA's table have, by the beginning of the device's name.
_BASES = {"sm_80": "a100-node", "sm_90": "h100-node", "sm_100": "b200-node", "sm_103": "b200-node"}
_SOURCE = "openxla/xla xla/service/gpu/model/default_collective_perf_table.txtpb"
#: Packages with XLA's plugin, their shared library, and their wheels.
_PLUGINS, _LIBRARY = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13"), "xla_cuda_plugin.so"
_WHEELS = "jax_cuda*_pjrt-*.whl"
_LARGE = 1 << 20
#: Bytes per second that some rates are rounded to, and below which such rates tell little.
_ROUNDED, _TELLING = 1e7, 2e8
_BOUNDS = {True: 0.15, False: 0.30}
_FOLDS, _REPEATS = 5, 3
#: Steps priced in one call, and the seconds that it may take.
_STEPS, _MOST = 10 ** 6, 2.0
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
        good &= _published(console, table or os.environ.get("EGGSHARD_XLA_TABLE", "") or _installed())
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


def _installed() -> str:
    """XLA's plugin where it is installed, or its wheel in the current folder; empty where there is none."""
    for name in _PLUGINS:
        with suppress(ImportError):
            found = importlib.util.find_spec(name)
            for folder in (found and found.submodule_search_locations) or ():
                if (library := Path(folder) / _LIBRARY).is_file():
                    return str(library)
    return next((str(wheel) for wheel in sorted(Path.cwd().glob(_WHEELS))), "")


def _published(console: Console, path: str) -> bool:
    if not path:
        console.print(f"XLA's table: not read. Give the file {_SOURCE}, or the wheel that `pip download --no-deps "
                      "jax-cuda12-pjrt==0.10.2` gets, with --table, or in EGGSHARD_XLA_TABLE.")
        return True
    good = True
    for device, rows in read_xla_table(Path(path)).items():
        base = next((name for start, name in _BASES.items() if f"{device}_".startswith(f"{start}_")), None)
        if base is None or not rows:
            console.print(f"XLA's table: {device}: no preset for it" if base is None else f"{device}: no collectives")
            continue
        good &= _held_out(console, device, preset(base), rows)
    return good


def _rounding(rows: Sequence[Measured]) -> np.ndarray:
    """Bytes per second by which each rate may be off, ``[entries]``: some devices' are rounded throughout."""
    rates = np.array([_size(step) / seconds for step, seconds in rows])
    rounded = bool(np.all(np.abs(rates / _ROUNDED - np.round(rates / _ROUNDED)) < 1e-6))
    return np.full(len(rows), _ROUNDED / 2 * rounded)


def _joining(machine: Machine) -> Machine:
    """The machine with a first level for as many devices as there are: racks join more than eight by NVLink."""
    return replace(machine, levels=(replace(machine.levels[0], units=0),))


def _held_out(console: Console, device: str, base: Machine, rows: Sequence[Measured]) -> bool:
    rates = np.array([_size(step) / seconds for step, seconds in rows])
    telling = np.round(rates) >= _TELLING * (_rounding(rows) > 0)
    kept = [row for row, tells in zip(rows, telling, strict=True) if tells]
    if len(kept) < len(rows):
        console.print(f"{device}: {len(rows) - len(kept)} entries left out whose rates are rounded to "
                      f"{_ROUNDED / 1e6:.0f} MB/s and below {_TELLING / 1e6:.0f}")
    fitted_to, shipped = _joining(base), _errors(_joining(base), kept)
    errors, where = _crossed(fitted_to, kept), [(step.kind, _size(step) >= _LARGE) for step, _ in kept]
    least = np.abs(_never_falling(kept) / [seconds for _, seconds in kept] - 1)
    rests = any(f"section {device}" in source for source in base.sources.values())
    out = Table(title=f"{device}: {len(kept)} collectives of {_SOURCE}, held out", pad_edge=False, caption=(
        "least: of the best price per group size that never falls with bytes, knowing every entry\nas shipped: the "
        f"preset {base.name}, " + ("whose protocols rest on this section: not held out" if rests else
                                   "fitted to nothing of this section")))
    for name in ("collective", "bytes", "entries", "median error %", "p90 %", "least %", "as shipped %", ""):
        out.add_column(name, justify="left" if name in ("collective", "bytes", "") else "right")
    good = True
    for kind, large in sorted(set(where)):
        at = [i for i, found in enumerate(where) if found == (kind, large)]
        failed = float(np.median(errors[:, at])) > _BOUNDS[large]
        good &= not failed
        out.add_row(kind, ">= 1 MiB" if large else "< 1 MiB", str(len(at)), f"{100 * np.median(errors[:, at]):.1f}",
                    f"{100 * np.quantile(errors[:, at], 0.9):.0f}", f"{100 * np.median(least[at]):.1f}",
                    f"{100 * np.median(shipped[at]):.0f}", f"above {100 * _BOUNDS[large]:.0f}" if failed else "")
    console.print(out)
    return good


def _errors(machine: Machine, rows: Sequence[Measured]) -> np.ndarray:
    """How far the machine's prices are off, as parts of what was measured, ``[entries]``."""
    prices = machine.seconds_many(StepColumns.of([step for step, _ in rows]))
    off: np.ndarray = np.abs(prices / [seconds for _, seconds in rows] - 1)
    return off


def _crossed(base: Machine, rows: Sequence[Measured]) -> np.ndarray:
    """The errors of machines fitted to other entries, ``[repeats, entries]``. Alike entries are in one fifth."""
    alike: dict[StepInfo, int] = {}
    number = np.array([alike.setdefault(replace(step, op=""), len(alike)) for step, _ in rows])
    out = np.empty((_REPEATS, len(rows)))
    for repeat in range(_REPEATS):
        fold = (np.random.default_rng(repeat).permutation(len(alike)) % _FOLDS)[number]
        for k in range(_FOLDS):
            held = np.flatnonzero(fold == k)
            machine = fitted(base, [row for row, f in zip(rows, fold, strict=True) if f != k])
            out[repeat, held] = _errors(machine, [rows[i] for i in held])
    return out


def _never_falling(rows: Sequence[Measured]) -> np.ndarray:
    """Per entry the price of the curve nearest to all of its kind and groups among those that never fall with bytes.

    Nearest by the sum of what logarithms are off: neighbours that fall are pooled at their median, until none do.
    """
    series: dict[tuple[str, Mesh, int], dict[float, list[int]]] = {}
    for i, (step, _) in enumerate(rows):
        series.setdefault((step.kind, step.mesh, step.group), {}).setdefault(_size(step), []).append(i)
    logs, out = np.log([seconds for _, seconds in rows]), np.empty(len(rows))
    for sizes in series.values():
        pools: list[list[int]] = []
        for size in sorted(sizes):
            pools.append(sizes[size])
            while len(pools) > 1 and np.median(logs[pools[-2]]) > np.median(logs[pools[-1]]):
                pools[-2:] = [pools[-2] + pools[-1]]
        for pool in pools:
            out[pool] = np.exp(np.median(logs[pool]))
    return out


def _size(step: StepInfo) -> float:
    """Bytes of the group's whole array, as XLA's table counts them."""
    if step.kind == "collective-permute":
        return step.wire_bytes
    return step.wire_bytes * step.group / (step.group - 1) / (2 if step.kind == ALL_REDUCE else 1)
