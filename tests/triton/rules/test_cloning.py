"""Ops again at other options: types of results and of attributes, and what regions hold."""

from __future__ import annotations

from tests.triton.rules.test_anchors import _BLOCKED, find, kernel_of

from eggshard.triton.kernels.ir import TensorType
from eggshard.triton.layouts.encodings import make
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import RESULTS, current, options, with_option

_OTHER = make("ttg.blocked", sizePerThread=(2,), threadsPerWarp=(32,), warpsPerCTA=(4,), order=(0,))


def test_the_given_option_gives_the_op() -> None:
    kernel = kernel_of(f'%x = "arith.constant"() <{{value = dense<1> : tensor<64xi32, {_BLOCKED}>}}> {{a = 1 : i32}} : '
                       f'() -> tensor<64xi32, {_BLOCKED}>')
    op = find(kernel, "arith.constant")
    clone = with_option(op, current(op), [])
    assert clone is not op and clone.parent is None
    assert (clone.properties, clone.attributes) == (op.properties, op.attributes)
    assert clone.results[0] is not op.results[0] and clone.results[0].type == op.results[0].type
    assert clone.results[0].owner is clone


def test_constants_are_typed_as_their_result() -> None:
    for value in ("dense<1>", 'dense<"0x0A0B0C0D">', "dense<[1, 2]>"):
        kernel = kernel_of(f'%x = "arith.constant"() <{{value = {value} : tensor<64xi32, {_BLOCKED}>}}> : () -> '
                           f'tensor<64xi32, {_BLOCKED}>')
        op = find(kernel, "arith.constant")
        (option,) = options(op, RESULTS, 0, _OTHER, Machine.of(kernel))
        clone = with_option(op, option, [])
        assert clone.properties["value"] == f"{value} : tensor<64xi32, {_OTHER}>"
        assert clone.results[0].type == TensorType((64,), "i32", str(_OTHER))


def test_regions_are_cloned() -> None:
    """What a body uses from outside stays, what it defines is defined again."""
    kernel = kernel_of(f"""
%x = "test.scalars"() : () -> f32
%t = "test.values"() : () -> tensor<64xf32, {_BLOCKED}>
%y = "tt.reduce"(%t) <{{axis = 0 : i32}}> ({{
^bb0(%a: f32, %b: f32):
  %s = "arith.addf"(%a, %x) : (f32, f32) -> f32
  "tt.reduce.return"(%s) : (f32) -> ()
}}) : (tensor<64xf32, {_BLOCKED}>) -> f32
""")
    reduce = find(kernel, "tt.reduce")
    clone = with_option(reduce, current(reduce), reduce.operands)
    add = clone.body.operations[0]
    assert add.parent is clone.body
    assert add.operands == [clone.body.arguments[0], find(kernel, "test.scalars").results[0]]
    assert clone.body.terminator.operands == [add.results[0]]
    assert clone.body.arguments[0] is not reduce.body.arguments[0]
