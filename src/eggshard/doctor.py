"""What `eggshard doctor` says: versions, devices, the cost model in effect, files, and what is missing."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.markup import escape
from rich.table import Table

from eggshard.costmodel.detection import at_hand, calibrated_file, machines_folder
from eggshard.errors import EggshardError
from eggshard.extras import EXTRAS, JAX, UNTRIED, installed
from eggshard.settings import OPTIONS, variable
from eggshard.tables import render
from eggshard.version import __version__

#: What always has to be there.
_NEEDED = ("numpy", "ml_dtypes", "networkx", "egglog", "highspy", "rich", "typer")
_VARIABLES = (*map(variable, OPTIONS), UNTRIED, "XLA_FLAGS", "JAX_PLATFORMS", "XDG_DATA_HOME")


def examination() -> str:
    """The findings as a table: what was looked at, what was found, and the remedy where something is wrong."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for row in (*_packages(), *_devices(), *_plans(), *_variables()):
        table.add_row(*map(escape, row))
    return render(table)


def _packages() -> Iterator[tuple[str, str, str]]:
    yield "eggshard", __version__, ""
    yield "Python", platform.python_version(), "" if sys.version_info >= (3, 11) else "needs 3.11 or newer"
    for package in _NEEDED:
        found = installed(package)
        yield package, found or "missing", "" if found else f"pip install {package}"
    least, most = (".".join(map(str, v)) for v in JAX)
    for module, (_, extra) in EXTRAS.items():
        found = installed(module)
        remedy = "" if found else f"pip install 'eggshard[{extra}]'"
        works = f"works with {least} and newer, below {most}" if found and module == "jax" else ""
        yield module, found or "not installed", remedy or works


def _devices() -> Iterator[tuple[str, str, str]]:
    try:
        devices = _present()
    except Exception as error:  # whatever a driver says
        yield "devices", "JAX fails to make them", str(error).strip().splitlines()[0]
        return
    kinds = {d.device_kind for d in devices}
    yield "devices", f"{len(devices)} x {', '.join(sorted(kinds))}" if devices else "unknown without JAX", ""
    try:
        model = at_hand(devices)
    except EggshardError as error:
        yield "prices", "none", str(error)
        return
    yield "prices", getattr(model, "name", type(model).__name__), getattr(model, "origin", "") or ""
    if devices:
        path = calibrated_file(devices)
        when = f"written {datetime.fromtimestamp(path.stat().st_mtime):%Y-%m-%d}" if path.is_file() else "not there"
        yield "calibration", f"{path}: {when}", "" if path.is_file() else "eggshard calibrate"
    kept = sorted(machines_folder().glob("*.toml"))
    yield "machines", f"{len(kept)} in {machines_folder()}", ""


def _plans() -> Iterator[tuple[str, str, str]]:
    from eggshard.plan.plan_cache import PlanCache

    cache = PlanCache.configured()
    if cache is None:
        yield "plan cache", "none", "EGGSHARD_PLAN_CACHE names a folder"
    else:
        plans = cache.plans()
        yield "plan cache", f"{len(plans)} plans, {sum(p.bytes for p in plans)} bytes in {cache.folder}", ""


def _present() -> list[Any]:
    if not installed("jax"):
        return []
    import jax

    return list(jax.devices())


def _variables() -> Iterator[tuple[str, str, str]]:
    for name in _VARIABLES:
        if name in os.environ:
            yield name, os.environ[name], ""
