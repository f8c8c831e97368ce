"""TritonGPU IR to machine code without a GPU, and what is counted in it."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("triton")

from bench.programs.kernels import PROGRAMS, KernelProgram  # noqa: E402

from eggshard.errors import ProgramError  # noqa: E402
from eggshard.triton.compiler.compilation import Compiled, compile_kernel  # noqa: E402
from eggshard.triton.compiler.counting import count, usage  # noqa: E402
from eggshard.triton.compiler.pipeline import Compilation  # noqa: E402
from eggshard.triton.frontend import load  # noqa: E402


def program(name: str) -> KernelProgram:
    return next(p for p in PROGRAMS if p.name == name)


def final(name: str, target: str) -> str:
    of = program(name)
    compilation = Compilation.of(target, of.options)
    return str(compilation.gpu_ir(compilation.tensor_ir(of.source())))


def compiled(name: str, target: str) -> Compiled:
    return compile_kernel(final(name, target), target, program(name).options)


@pytest.mark.parametrize("target", ["sm80", "sm90"])
def test_nvidia(target: str) -> None:
    found = compiled("used_after_loop", target)
    assert list(found.stages) == ["llir", "ptx", "cubin"]
    assert found.cubin.startswith(b"\x7fELF")
    assert f".target sm_{target[2:]}" in found.ptx
    assert found.num_warps == 4
    counts = count(found)
    assert counts.barriers == len(re.findall(r"\bbar\.sync", found.ptx)) > 0
    assert counts.shuffles == len(re.findall(r"\bshfl\.sync", found.ptx)) > 0
    assert counts.shared_stores > 0 and counts.shared_loads > 0
    assert 0 < counts.registers <= 255 and counts.spills == 0
    assert usage(found) == (counts.registers, counts.spills)
    with pytest.raises(ProgramError, match="no amdgcn"):
        found.amdgcn  # noqa: B018


def test_amd() -> None:
    found = compiled("used_after_loop", "gfx942")
    assert list(found.stages) == ["llir", "amdgcn", "hsaco"]
    counts = count(found)
    assert counts.barriers > 0 and counts.shared_stores > 0 and counts.shared_loads > 0 and counts.shuffles > 0
    assert 0 < counts.registers <= 512 and usage(found) == (counts.registers, counts.spills)
    with pytest.raises(ProgramError, match="no cubin"):
        found.cubin  # noqa: B018


def test_what_shared_memory_holds_is_told() -> None:
    text = final("transpose_gate", "sm80")
    assert text.count("convert_layout") == 1
    assert compile_kernel(text, "sm80").shared == 64 * 64 * 2


def test_a_kernel_without_conversions_or_reductions_has_no_barrier() -> None:
    counts = count(compiled("rotary", "sm80"))
    assert counts.barriers == counts.shared_loads == counts.shared_stores == counts.shuffles == 0


@pytest.mark.parametrize("target", ["sm80", "gfx942"])
def test_our_form_of_a_kernel_compiles_to_the_same_code(target: str) -> None:
    text = final("gate", target)
    options = program("gate").options
    assert count(compile_kernel(load(text), target, options)) == count(compile_kernel(text, target, options))


def test_warps_are_the_kernels_own() -> None:
    text = final("softmax", "sm80")
    assert '"ttg.num-warps" = 4' in text
    assert compile_kernel(text, "sm80", {"num_warps": 8}).num_warps == 4


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(ProgramError, match="does not parse"):
        compile_kernel("module {", "sm80")
    with pytest.raises(ProgramError, match="target"):
        compile_kernel("module {}", "riscv")
