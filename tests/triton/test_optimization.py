"""A kernel's way in one call, and what happens to what cannot be planned."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

from tests.triton.planned import kernel_of, vector

import eggshard.triton
from eggshard.errors import DependencyError, EggshardWarning, ProgramError, VerificationError
from eggshard.triton import optimization
from eggshard.triton.frontend import libtriton
from eggshard.triton.frontend.libtriton import module_of
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.kernels.text import write_generic
from eggshard.triton.optimization import optimize

V, W = "tensor<256xf32, #one>", "tensor<256xf32, #two>"


@pytest.fixture
def kernel() -> Kernel:
    return kernel_of(f"""{vector("one")}
      %x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
      %t = ttg.convert_layout %x : {V} -> {W}
      %y = math.exp2 %t : {W}
      %b = ttg.convert_layout %y : {W} -> {V}
      tt.store %at, %b : tensor<256x!tt.ptr<f32>, #one>""")


def test_kernels_modules_texts_and_files_are_taken(kernel: Kernel, tmp_path: Path) -> None:
    file = tmp_path / "kernel.ttgir"
    file.write_text(str(module_of(kernel)))
    for given in (kernel, module_of(kernel), write_generic(kernel), str(module_of(kernel)), file):
        plan = optimize(given)
        assert (plan.given_conversions, plan.conversions) == (2, 0)


def test_it_is_the_package_s_own() -> None:
    assert eggshard.triton.optimize is optimize


@pytest.mark.parametrize("error", [VerificationError("something else"), ValueError("odd"), ZeroDivisionError()])
def test_what_fails_gives_the_kernel_as_it_came(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*arguments: Any, **named: Any) -> Any:
        raise error

    monkeypatch.setattr(optimization, "plan_layouts", fails)
    with pytest.warns(EggshardWarning, match="the kernel keeps its layouts") as warned:
        plan = optimize(kernel)
    assert plan.kernel is kernel and plan.cost == plan.given_cost and plan.method == "as given"
    assert warned[0].filename == __file__ and str(error) in str(warned[0].message)


def test_what_does_not_verify_gives_the_kernel_as_it_came(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    right = optimization.plan_layouts

    def wrong(given: Kernel, *arguments: Any, **named: Any) -> Any:
        plan = right(given, *arguments, **named)
        for op in plan.kernel.walk():
            if op.name == "math.exp2":
                tensor = op.results[0].tensor
                assert tensor is not None
                op.results[0].type = tensor._replace(encoding=str(tensor.encoding).replace("= [1]", "= [8]"))
        return plan

    monkeypatch.setattr(optimization, "plan_layouts", wrong)
    with pytest.warns(EggshardWarning, match="the kernel keeps its layouts"):
        assert optimize(kernel).kernel is kernel
    assert optimize(kernel, verify=False).kernel is not kernel


@pytest.mark.parametrize("text", ["", "not a module", "module { tt.func @f( }", "module attributes {a = } {}"])
def test_bad_text_is_a_program_error(text: str) -> None:
    with pytest.raises(ProgramError):
        optimize(text)


def test_a_module_without_layouts_is_a_program_error() -> None:
    text = """module { tt.func public @f(%p: !tt.ptr<i32>) {
      %r = tt.make_range {start = 0 : i32, end = 256 : i32} : tensor<256xi32>
      %b = tt.splat %p : !tt.ptr<i32> -> tensor<256x!tt.ptr<i32>>
      tt.store %b, %r : tensor<256x!tt.ptr<i32>>
      tt.return
    } }"""
    with pytest.raises(ProgramError, match="layouts"):
        optimize(text)


def test_without_triton_the_error_says_what_to_install(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    text = str(module_of(kernel))
    libtriton.context.cache_clear()
    try:
        monkeypatch.setitem(sys.modules, "triton._C.libtriton", None)
        with pytest.raises(DependencyError, match=r"eggshard\[triton\]"):
            optimize(text)
    finally:
        monkeypatch.undo()
        libtriton.context.cache_clear()


def test_a_plan_is_immutable(kernel: Kernel) -> None:
    plan = optimize(kernel)
    assert replace(plan, seconds=0.0).cost == plan.cost
    with pytest.raises(AttributeError):
        plan.cost = 0.0  # type: ignore[misc]
