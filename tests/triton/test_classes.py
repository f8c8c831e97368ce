"""Which values are one tensor: conversions, and equal pure ops where the first is there for the second."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import kernel_of, ops

from eggshard.triton.classes import find_classes
from eggshard.triton.kernels.ir import Kernel, Value

V = "tensor<256xf32, #one>"
HEAD = f"""
  %a = tt.splat %x : f32 -> {V}
  %b = tt.splat %y : f32 -> {V}
"""
ARGUMENTS = "%p: !tt.ptr<f32>, %x: f32, %y: f32, %n: i32, %c: i1"


def kernel(body: str) -> Kernel:
    return kernel_of(HEAD + body, ARGUMENTS)


def results(found: Kernel, name: str) -> list[Value]:
    return [op.results[0] for op in ops(found, name)]


def same(body: str, name: str) -> list[int]:
    """The classes of the results of the ops of a name, numbered as they come."""
    found = kernel(body)
    of = find_classes(found).of
    numbers: dict[int, int] = {}
    return [numbers.setdefault(of[v], len(numbers)) for v in results(found, name)]


def test_conversions_are_their_operand() -> None:
    found = kernel(f"%d = ttg.convert_layout %a : {V} -> tensor<256xf32, #two>\n"
                   f"%e = ttg.convert_layout %d : tensor<256xf32, #two> -> {V}")
    of = find_classes(found).of
    assert len({of[v] for v in (*results(found, "ttg.convert_layout"), results(found, "tt.splat")[0])}) == 1


def test_equal_ops_at_other_layouts_are_one() -> None:
    body = f"""
      %s = arith.addf %a, %b : {V}
      %a2 = ttg.convert_layout %a : {V} -> tensor<256xf32, #two>
      %b2 = ttg.convert_layout %b : {V} -> tensor<256xf32, #two>
      %s2 = arith.addf %a2, %b2 : tensor<256xf32, #two>"""
    assert same(body, "arith.addf") == [0, 0]


def test_other_operands_attributes_or_types_are_others() -> None:
    assert same(f"%s = arith.addf %a, %b : {V}\n%t = arith.addf %b, %a : {V}", "arith.addf") == [0, 1]
    assert same(f"%s = arith.addf %a, %b : {V}\n%t = arith.addf %a, %b fastmath<fast> : {V}", "arith.addf") == [0, 1]
    assert same(f"%s = arith.addf %a, %b : {V}\n%t = arith.addf %a, %b {{tt.hint = 1 : i32}} : {V}",
                "arith.addf") == [0, 1]
    whole = "tensor<256xi32, #one>"
    assert same("".join(f"%r{n} = tt.make_range {{start = {n} : i32, end = {256 + n} : i32}} : {whole}\n"
                        for n in (0, 256 * 0, 4 * 64)).replace("%r0", "%r", 1), "tt.make_range") == [0, 0, 1]


def test_loads_and_atomics_are_never_merged() -> None:
    body = """
      %at = tt.splat %p : !tt.ptr<f32> -> tensor<256x!tt.ptr<f32>, #one>
      %l = tt.load %at : tensor<256x!tt.ptr<f32>, #one>
      %m = tt.load %at : tensor<256x!tt.ptr<f32>, #one>"""
    assert same(body, "tt.load") == [0, 1]


def test_branches_beside_each_other_are_not_merged_but_what_is_around_them_is() -> None:
    add = f"%s = arith.addf %a, %b : {V}\n"
    beside = f"scf.if %c {{\n{add}}} else {{\n{add}}}\n"
    assert same(beside, "arith.addf") == [0, 1]
    assert same(beside + add, "arith.addf") == [0, 1, 2]
    assert same(add.replace("%s", "%o") + beside, "arith.addf") == [0, 0, 0]


def test_loop_carried_values_are_tensors_of_their_own() -> None:
    found = kernel(f"""
      %k0 = arith.constant 0 : i32
      %k1 = arith.constant 1 : i32
      %l:2 = scf.for %i = %k0 to %n step %k1 iter_args(%u = %a, %v = %a) -> ({V}, {V}) : i32 {{
        scf.yield %v, %u : {V}, {V}
      }}""")
    of = find_classes(found).of
    (loop,) = ops(found, "scf.for")
    values = [*loop.body.arguments[1:], *loop.results, loop.operands[3]]
    assert len({of[v] for v in values}) == 5


def reduce(body: str) -> str:
    return f'%r{{}} = "tt.reduce"(%a) <{{{{axis = 0 : i32}}}}> ({{{{\n^bb0(%i: f32, %j: f32):\n{body}\n' \
        "tt.reduce.return %o : f32\n}}) : (tensor<256xf32, #one>) -> f32\n"


@pytest.mark.parametrize(("first", "second", "equal"), [
    ("%o = arith.addf %i, %j : f32", "%o = arith.addf %i, %j : f32", True),
    ("%o = arith.addf %i, %j : f32", "%o = arith.addf %j, %i : f32", False),
    ("%o = arith.addf %i, %x : f32", "%o = arith.addf %i, %y : f32", False),
    ("%h = arith.truncf %i : f32 to f16\n%o = arith.extf %h : f16 to f32",
     "%h = arith.truncf %i : f32 to bf16\n%o = arith.extf %h : bf16 to f32", False),
])
def test_combining_regions_are_compared(first: str, second: str, equal: bool) -> None:
    found = kernel(reduce(first).format(1) + reduce(second).format(2))
    assert (len(find_classes(found).same) == 1) == equal
