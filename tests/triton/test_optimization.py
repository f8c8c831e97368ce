"""A kernel's way in one call, and what happens to what cannot be planned."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

from tests.triton.planned import ALIASES, ATTRIBUTES, kernel_of, vector

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


def test_text_on_which_libtriton_ends_its_process_is_a_program_error(capfd: pytest.CaptureFixture[str]) -> None:
    """libtriton does not read the encoding that it prints."""
    layout = "#ttg.amd_wmma<{version = 1, ctaLayout = {warp = []}, isTranspose = true}>"
    tensor = f"tensor<16x16xbf16, {layout}>"
    with pytest.raises(ProgramError, match="libtriton fails on the kernel: .*error: Expected basis"):
        optimize(f"""module attributes {{"ttg.num-warps" = 1 : i32, "ttg.threads-per-warp" = 32 : i32}} {{
          tt.func @f(%a: {tensor}) -> {tensor} {{ tt.return %a : {tensor} }}
        }}""")
    assert capfd.readouterr().err == ""


def test_errors_say_what_libtriton_says(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProgramError, match='libtriton does not parse the kernel: loc."kernel.mlir":1:1.: error:'):
        optimize("not a module")
    assert capfd.readouterr().err == ""


def test_tensors_without_encodings_stay_as_they_are() -> None:
    plan = optimize("""module attributes {"ttg.num-warps" = 4 : i32} { tt.func public @f(%p: !tt.ptr<i32>) {
      %r = tt.make_range {start = 0 : i32, end = 256 : i32} : tensor<256xi32>
      %c = ttg.convert_layout %r : tensor<256xi32> -> tensor<256xi32>
      %b = tt.splat %p : !tt.ptr<i32> -> tensor<256x!tt.ptr<i32>>
      tt.store %b, %c : tensor<256x!tt.ptr<i32>>
      tt.return
    } }""")
    assert plan.cost == 0 and [op.name for op in plan.kernel.walk()].count("tt.store") == 1


def test_the_kernel_is_simplified_first() -> None:
    plan = optimize(f"""{ALIASES}module attributes {{{ATTRIBUTES}}} {{ tt.func public @f() -> {W} {{
      %zero = arith.constant dense<0.0> : {V}
      %gone = math.exp2 %zero : {V}
      %sum = arith.addf %zero, %zero : {V}
      %c = ttg.convert_layout %sum : {V} -> {W}
      tt.return %c : {W}
    }} }}""")
    assert plan.cost == 0 and plan.given_cost > 0 and plan.given_conversions == 1
    assert not any(op.name.startswith("math.") for op in plan.kernel.walk())


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
