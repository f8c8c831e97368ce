"""The command line's ``eggshard calibrate``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eggshard.errors import CostModelError

if TYPE_CHECKING:
    from rich.console import Console

    from eggshard.calibration.calibrating import Calibration

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def calibrate(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the machine's file here, not where "
                                                "--cost-model detected finds it.")] = None,
    devices: Annotated[int, typer.Option("--devices", help="Virtual devices of the CPU; 0: the devices present.")] = 0,
    sizes: Annotated[str, typer.Option("--sizes", help="Bytes per device, e.g. 1KiB,64KiB,4MiB.")] = "",
    groups: Annotated[str, typer.Option("--groups", help="Devices per collective, e.g. 2,8.")] = "",
    repeats: Annotated[int, typer.Option("--repeats", help="How often each case is timed.")] = 7,
    launcher: Annotated[str, typer.Option("--launcher", help="Join the processes that a launcher started: auto, or "
                                          "its name in jax.distributed, such as slurm or mpi4py.")] = "",
) -> None:
    """Measure collectives, halo exchanges and local ops on the devices present, and fit a cost model to them.

    In a program of several processes all of them run this, and each writes the same file.
    """
    if devices:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}".strip()
        os.environ["JAX_PLATFORMS"] = "cpu"

    import jax
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from eggshard.calibration.calibrating import calibrate as run
    from eggshard.costmodel.detection import calibrated_file

    if launcher:
        jax.distributed.initialize(cluster_detection_method=None if launcher == "auto" else launcher)
    first = jax.process_index() == 0
    console = Console(quiet=not first)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not (first and console.is_terminal)) as bar:
        task = bar.add_task("measuring", total=None)

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        found = run(sizes=_sizes(sizes), groups=_numbers(groups), repeats=repeats, progress=progress)
    path = output or calibrated_file(jax.devices())
    found.save(path)
    _report(console, found)
    console.print(f"saved as {path}; use it with --cost-model {'detected' if output is None else path}, or in Python "
                  "cost_model=es.costmodel." + ("detect()" if output is None else f'load("{path}")'), soft_wrap=True)


def _report(console: Console, found: Calibration) -> None:
    from rich.table import Table

    table = Table(title=f"{found.machine.name}: prices against what was measured",
                  caption=f"noise: a case usually takes {found.noise:.2f} times its least time")
    for name in ("step", "cases", "median error %", "p90 error %"):
        table.add_column(name, justify="left" if name == "step" else "right")
    for e in found.errors:
        table.add_row(e.kind, str(e.steps), f"{100 * e.median:.0f}", f"{100 * e.p90:.0f}")
    console.print(table)


def _sizes(text: str) -> tuple[int, ...]:
    found = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"\s*(\d+)\s*(KiB|MiB|GiB|)\s*", part)
        if not match:
            raise CostModelError(f"--sizes {text!r}: {part!r} is no number of bytes; write e.g. 1KiB,64KiB,4MiB")
        found.append(int(match[1]) * _UNITS[match[2]])
    return tuple(found)


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdigit() for part in parts):
        raise CostModelError(f"--groups {text!r} is not numbers separated by commas, such as 2,8")
    return tuple(map(int, parts))
