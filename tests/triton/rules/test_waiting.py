"""Waits for matrix instructions: layouts pass through them, but where an instruction may still write."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import checked, kernel_of, ops

A, B = "tensor<256xf32, #one>", "tensor<256xf32, #four>"


def test_layouts_pass_through_a_wait() -> None:
    plan = checked(kernel_of(f"""
      %a = ttg.convert_layout %x : {A} -> {B}
      %b = ttng.warp_group_dot_wait %a {{pendings = 0 : i32}} : {B}
      %c = ttg.convert_layout %b : {B} -> {A}
      tt.store %at, %c : tensor<256x!tt.ptr<f32>, #one>""", f"%x: {A}, %at: tensor<256x!tt.ptr<f32>, #one>"),
                   judged=False)
    assert plan.conversions == 0 and len(ops(plan.kernel, "ttng.warp_group_dot_wait")) == 1


def test_what_may_still_be_written_is_not_converted_before() -> None:
    plan = checked(kernel_of(f"""
      %b = ttng.warp_group_dot_wait %x {{pendings = 0 : i32}} : {A}
      %c = ttg.convert_layout %b : {A} -> {B}
      tt.store %at, %c : tensor<256x!tt.ptr<f32>, #four>""", f"%x: {A}, %at: tensor<256x!tt.ptr<f32>, #four>"),
                   judged=False)
    (wait,) = ops(plan.kernel, "ttng.warp_group_dot_wait")
    assert plan.conversions == 1 and wait.operands[0].owner is not None and not hasattr(wait.operands[0].owner, "name")
