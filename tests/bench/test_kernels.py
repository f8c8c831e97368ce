"""Kernels of packages whose needs are not there: imported, compiled for guesses, and judged."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")

from bench import kernels
from bench.kernels.guessing import guesses
from bench.kernels.packages import module_of, sources
from rich.console import Console

from eggshard.errors import ProgramError

MODULE = '''
import nowhere
import triton
import triton.language as tl
from nowhere.deep import decorated, number
from other_package_of_nobody import *

from .helpers import twice

if number.of(3) >= 4:
    raise RuntimeError("not so")
BROKEN = {}["missing"]


class Layer(nowhere.nn.Module):
    pass


@decorated
def host(x):
    return x


@triton.heuristics({"EVEN": lambda arguments: True})
@triton.jit
def kernel(X, Y, n, eps, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    source = X + at
    x = tl.load(source, mask=at < n)
    tl.store(Y + at, twice(x) + eps, mask=at < n)
'''
HELPERS = '''
import triton


@triton.jit
def twice(x):
    return x + x
'''


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked" / "package_of_nobody"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from nowhere import everything\n")
    (folder / "ops.py").write_text(MODULE)
    (folder / "helpers.py").write_text(HELPERS)
    return tmp_path


def test_what_is_not_there_is_a_stub(packages: Path) -> None:
    (file,) = [file for file in sources(packages, 0) if file.name == "ops.py"]
    module = module_of(packages, file)
    assert module.host(3) == 3 and isinstance(module.Layer, type) and not module.BROKEN


def test_arguments_are_guessed_from_their_use(packages: Path) -> None:
    module = module_of(packages, packages / "unpacked" / "package_of_nobody" / "ops.py")
    guess = next(guesses(module.kernel.fn))
    assert guess.signature == {"X": "*fp16", "Y": "*fp16", "n": "i32", "eps": "fp32", "BLOCK": "constexpr",
                               "EVEN": "constexpr"}
    assert guess.constants == {"BLOCK": 64, "EVEN": False}


def test_kernels_are_compiled_with_us_and_without(packages: Path) -> None:
    good, records = kernels.run(Console(quiet=True), packages=packages)
    assert good and [(r["target"], r["outcome"], r["converts"]) for r in records] == [
        ("sm90", "equal", False), ("gfx942", "equal", False)]


def test_without_packages_it_says_what_is_missing() -> None:
    with pytest.raises(ProgramError, match="--packages PATH"):
        kernels.run(Console(quiet=True))
