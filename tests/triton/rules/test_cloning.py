"""Ops again at other options: types of results, of attributes and of what loops carry."""

from __future__ import annotations

from tests.triton.rules.test_anchors import _BLOCKED, find, kernel_of

from eggshard.kernels.ir import TensorType
from eggshard.layouts.encodings import make
from eggshard.layouts.machine import Machine
from eggshard.triton.rules import Option, current, from_operand, from_result, with_option

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
        (option,) = from_result(op, 0, _OTHER, Machine.of(kernel))
        clone = with_option(op, option, [])
        assert clone.properties["value"] == f"{value} : tensor<64xi32, {_OTHER}>"
        assert clone.results[0].type == TensorType((64,), "i32", str(_OTHER))


def test_loops_carry_the_option() -> None:
    """What the body uses from outside stays, what it defines is defined again."""
    kernel = kernel_of(f"""
%c = "test.scalars"() : () -> i32
%x = "test.values"() : () -> tensor<64xf32, {_BLOCKED}>
%y:2 = "scf.for"(%c, %c, %c, %x, %x) ({{
^bb0(%i: i32, %a: tensor<64xf32, {_BLOCKED}>, %k: tensor<64xf32, {_BLOCKED}>):
  %b = "arith.addf"(%a, %x) : (tensor<64xf32, {_BLOCKED}>, tensor<64xf32, {_BLOCKED}>) -> tensor<64xf32, {_BLOCKED}>
  "scf.yield"(%b, %k) : (tensor<64xf32, {_BLOCKED}>, tensor<64xf32, {_BLOCKED}>) -> ()
}}) : (i32, i32, i32, tensor<64xf32, {_BLOCKED}>, tensor<64xf32, {_BLOCKED}>) -> (tensor<64xf32, {_BLOCKED}>,
  tensor<64xf32, {_BLOCKED}>)
""")
    loop = find(kernel, "scf.for")
    (option,) = from_operand(loop, 3, _OTHER, Machine.of(kernel))
    given = current(loop)
    assert option == Option((*given.operands[:3], _OTHER, given.operands[4]), (_OTHER, given.results[1]))
    clone = with_option(loop, option, loop.operands)
    first, second = (f"tensor<64xf32, {e}>" for e in (_OTHER, _BLOCKED))
    assert [str(v.type) for v in clone.results] == [first, second]
    assert [str(v.type) for v in clone.body.arguments] == ["i32", first, second]
    add = clone.body.operations[0]
    assert add.parent is clone.body and add.operands == [clone.body.arguments[1], loop.operands[3]]
    assert clone.body.terminator.operands == [add.results[0], clone.body.arguments[2]]
    assert loop.body.arguments[1].type == loop.results[0].type != clone.results[0].type
