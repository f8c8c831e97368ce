"""The three top-level folders are parts of the package, importing it is cheap, and what make runs is there."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINKED_FOLDERS = ["rewrites", "costmodel", "frontends"]


def run_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", LINKED_FOLDERS)
def test_link_is_relative_and_stays_inside_the_repository(name: str) -> None:
    link = ROOT / "src" / "eggshard" / name
    assert link.is_symlink()
    assert not link.readlink().is_absolute()
    assert link.resolve() == ROOT / name
    assert (ROOT / name).is_dir() and not (ROOT / name).is_symlink()


@pytest.mark.parametrize("name", LINKED_FOLDERS)
def test_folder_is_imported_as_part_of_the_package(name: str) -> None:
    spec = importlib.util.find_spec(f"eggshard.{name}")
    assert spec is not None and spec.origin is not None
    assert Path(spec.origin).resolve() == ROOT / name / "__init__.py"


@pytest.mark.parametrize("name", LINKED_FOLDERS)
def test_folder_is_not_a_package_of_its_own(name: str, tmp_path: Path) -> None:
    result = run_python(f"import {name}", tmp_path)
    assert result.returncode != 0
    assert f"No module named '{name}'" in result.stderr


def test_import_leaves_heavy_libraries_alone(tmp_path: Path) -> None:
    code = "import sys, eggshard; print(sorted({'jax', 'jaxlib', 'egglog', 'highspy'} & sys.modules.keys()))"
    result = run_python(code, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_make_names_tests_that_are_there() -> None:
    named = re.search(r"^BLAS_TESTS := \$\(addprefix tests/,(.*?)\)$", (ROOT / "Makefile").read_text(), re.S | re.M)
    assert named is not None
    paths = named[1].replace("\\", "").split()
    assert len(paths) > 10 and not [path for path in paths if not (ROOT / "tests" / path).exists()]
