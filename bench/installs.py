"""Every Python, JAX and extra: from an empty environment to a first plan, or to the sentence that says why not.

A wheel is built of the checkout, and installed with pip into an environment of its own for each row. The Pythons are
those on the path, or of pyenv; packages come from the index that pip is configured for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).parents[1]
#: Minor versions of Python 3 that are looked for.
PYTHONS = (11, 12, 13, 14)
#: Versions of JAX: one that is refused, the first of every minor version that works, and the newest that works.
OLD, WORKING = "0.7.2", ("0.8.0", "0.9.0", "0.10.0", "")
#: Extras beside ``jax``, each with what to import to see that it is there.
EXTRAS = {"export": "flatbuffers", "calibration": "scipy", "mpi": "mpi4py", "perfetto": "perfetto", "triton": "triton"}

_BY_HAND = """
import eggshard as es, numpy as np
b = es.ProgramBuilder(mesh={"x": 4})
x, w = b.input((8, 8), "f32", ("x", None)), b.input((8, 8), "f32", (None, "x"))
b.output(x @ w, ("x", None))
plan = es.optimize(b.build())
print(plan, plan.explain(0))
assert (plan.run(np.eye(8, dtype="f"), np.eye(8, dtype="f"))[0] == np.eye(8)).all() and plan.prove()
plan.report("plan.html")
"""
_TEXT = """
import eggshard as es
try:
    es.optimize("func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")
except es.EggshardError as error:
    print("REFUSED", error)
"""
_JAX = """
import jax, numpy as np, eggshard as es
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))
rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))
f = lambda a, b: a @ b
args = np.ones((8, 8), "f"), np.ones((8, 8), "f")
options = dict(in_shardings=(rows, columns), out_shardings=rows)
np.testing.assert_array_equal(es.jit(f, **options)(*args), jax.jit(f, **options)(*args))
plan = es.optimize(jax.jit(f, **options).lower(*args))
plan.verify()
"""
_IMPORT = """
try:
    import eggshard
except ModuleNotFoundError as error:
    print("REFUSED", error)
"""


class Cell(NamedTuple):
    """An environment, and what is done in it. refused: the last part is to end with a sentence."""

    python: str
    jax: str
    extras: str
    requirements: tuple[str, ...]
    code: tuple[str, ...]
    refused: bool = False


def pythons() -> Iterator[tuple[str, Path]]:
    """The newest interpreter of every minor version that is here."""
    for minor in PYTHONS:
        kept = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        found = kept[-1] if kept else shutil.which(f"python3.{minor}")
        if found:
            yield f"3.{minor}", Path(found)


def cells(version: str, wheel: Path) -> Iterator[Cell]:
    """The rows of one Python."""
    yield Cell(version, "none", "", (str(wheel),), (_BY_HAND, _TEXT), refused=True)
    yield Cell(version, OLD, "", (str(wheel), f"jax=={OLD}", f"jaxlib=={OLD}"), (_IMPORT,), refused=True)
    for jax in WORKING:
        pins = (f"jax=={jax}", f"jaxlib=={jax}") if jax else ()
        yield Cell(version, jax or "newest", "jax", (f"{wheel}[jax]", *pins), (_BY_HAND, _JAX))
    for extra, module in EXTRAS.items():
        yield Cell(version, "newest", extra, (f"{wheel}[jax,{extra}]",), (f"import {module}", _JAX))


def run(console: Console, only: str = "") -> bool:
    """Print the table, of rows that contain ``only``; true if each is green, or refused with a sentence of ours."""
    table = Table(title="from an empty environment to a first plan", pad_edge=False)
    for name in ("Python", "JAX", "extra", "MB", "install s", "first plan s", "result"):
        table.add_column(name, justify="right" if name in ("MB", "install s", "first plan s") else "left")
    good, missing = True, [f"3.{minor}" for minor in PYTHONS if f"3.{minor}" not in dict(pythons())]
    with tempfile.TemporaryDirectory() as folder:
        wheel = _wheel(Path(folder))
        for version, python in pythons():
            for cell in cells(version, wheel):
                if only not in f"{cell.python} {cell.jax} {cell.extras}":
                    continue
                fine, row = _row(cell, python, Path(folder) / "environment")
                good &= fine
                table.add_row(cell.python, cell.jax, cell.extras, *map(escape, row))
                print(*cell[:3], *row, sep="  ", file=sys.stderr)
    console.print(table)
    if missing:
        console.print(f"not here: Python {', '.join(missing)}")
    return good


def _wheel(folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _row(cell: Cell, python: Path, environment: Path) -> tuple[bool, tuple[str, str, str, str]]:
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([python, "-m", "venv", environment], check=True)
    variables = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    variables.pop("PYTHONPATH", None)  # by which the checkout would stand in for the wheel
    own, began = environment / "bin" / "python", time.perf_counter()
    pip = subprocess.run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *cell.requirements],
                         capture_output=True, text=True, env=variables)
    installed = time.perf_counter() - began
    if pip.returncode:
        lines = [line for line in pip.stderr.splitlines() if line.startswith("ERROR")]
        said = (lines or pip.stderr.splitlines() or ["pip failed"])[0]
        return cell.refused, ("-", f"{installed:.0f}", "-", f"no installation: {said}")
    held = sum(p.stat().st_size for p in environment.rglob("*") if p.is_file() and not p.is_symlink()) / 1e6
    began, said = time.perf_counter(), "green"
    for code in cell.code:
        ran = subprocess.run([own, "-c", code], cwd=environment, env=variables, capture_output=True, text=True)
        if ran.returncode:
            said = "FAILED: " + (ran.stderr.strip().splitlines() or ["no word"])[-1]
            break
        if ran.stdout.startswith("REFUSED "):
            before = "green; text " if len(cell.code) > 1 else ""
            said = f"{before}refused: {ran.stdout.removeprefix('REFUSED ').strip()}"
    fine = "refused: " in said if cell.refused else said == "green"
    return fine, (f"{held:.0f}", f"{installed:.0f}", f"{time.perf_counter() - began:.1f}", said)
