"""The walls of the house: rooms in order, no circles, rooms of a size that one can know."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "eggshard"
#: Most files and lines of Python in a room, or in a room within a room.
FILES, LINES = 20, 2500


def modules() -> Iterator[Path]:
    """Every shipped module, those of linked folders included."""
    for folder in (SOURCE, *(p for p in SOURCE.iterdir() if p.is_symlink())):
        yield from sorted(folder.rglob("*.py"))


def constants(path: Path) -> Iterator[tuple[int, str]]:
    """The numeric constants of a module: (line, name)."""
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        parts = [n for n in ast.walk(node.value) if not isinstance(n, ast.operator | ast.unaryop)]
        numbers = [n for n in parts if isinstance(n, ast.Constant) and type(n.value) in (int, float)]
        if numbers and all(isinstance(n, ast.Constant | ast.BinOp | ast.UnaryOp) for n in parts):
            if isinstance(target, ast.Name) and target.id.lstrip("_").isupper():
                yield node.lineno, target.id


def contract(root: Path) -> subprocess.CompletedProcess[str]:
    """The layers contract, held against the package below a root."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()",
               "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    return subprocess.run(command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True)


def test_an_import_that_runs_upward_is_refused(tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "eggshard", ignore=shutil.ignore_patterns("__pycache__"))
    kept = contract(tmp_path)
    assert kept.returncode == 0, kept.stdout
    mesh = tmp_path / "eggshard" / "program" / "mesh.py"
    upward = "\n\ndef planned():\n    from eggshard.planner import pipeline\n\n    return pipeline\n"
    mesh.write_text(mesh.read_text() + upward)
    broken = contract(tmp_path)
    assert broken.returncode and "eggshard.program.mesh -> eggshard.planner.pipeline" in broken.stdout


def test_no_modules_import_each_other() -> None:
    """Imports in functions and for types count."""
    graph = grimp.build_graph("eggshard", cache_dir=None)
    imports = nx.DiGraph((m, n) for m in graph.modules for n in graph.find_modules_directly_imported_by(m))
    circles = [sorted(c) for c in nx.strongly_connected_components(imports) if len(c) > 1]
    assert not circles


@pytest.mark.parametrize("room", sorted({p.parent for p in modules()} - {SOURCE}), ids=str)
def test_rooms_can_be_known(room: Path) -> None:
    files = list(room.glob("*.py"))
    assert len(files) <= FILES and sum(p.read_text().count("\n") for p in files) <= LINES
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
    assert text, f"{room.name} does not say what it is"


def test_no_docstring_leans_on_its_neighbour() -> None:
    leaning = [p.name for p in modules() if '"""The same' in p.read_text()]
    assert not leaning


def test_numeric_constants_say_what_they_are() -> None:
    silent = []
    for path in modules():
        lines = path.read_text().splitlines()
        for number, name in constants(path):
            if not lines[number - 2].startswith("#") and "#" not in lines[number - 1]:
                silent.append(f"{path.name}:{number} {name}")
    assert not silent


def test_rooms_with_constants_name_the_bench_that_notices() -> None:
    """Those of `report` are about looks alone."""
    families = {p.stem for folder in ("bench", "bench/programs") for p in (ROOT / folder).glob("*.py")}
    for room in sorted({p.relative_to(SOURCE).parts[0] for p in modules() if len(p.relative_to(SOURCE).parts) > 1}):
        if room != "report" and any(True for p in (SOURCE / room).rglob("*.py") for _ in constants(p)):
            text = ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text())) or ""
            named = re.search(r"`python -m bench ([a-z ]+)`", text)
            assert named and families.issuperset(named[1].split()), room
