"""What Triton's removal of layout conversions was written to do, behaviour by behaviour.

triton-lang/triton#2181 made it two phases: layouts go forwards from the ops that keep theirs, and what a conversion
asks for goes backwards, through loops. #5673 lets conversions to operands of matrix products rise above chains of ops.
"""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import checked, kernel_of, ops, vector

from eggshard.triton.candidates import encoding_of
from eggshard.triton.planning import PROVED, LayoutPlan

F, H = "tensor<256xf32, #one>", "tensor<256xf32, #four>"
P, Q = "tensor<256x!tt.ptr<f32>, #one>", "tensor<256x!tt.ptr<f32>, #four>"


def planned(body: str, **how: str) -> LayoutPlan:
    """The plan of a kernel, which is optimal."""
    plan = checked(kernel_of(body, **how))
    assert plan.gap is not None and plan.gap < PROVED
    return plan


def converted(plan: LayoutPlan) -> list[str]:
    """The elements of what is still converted, in the order of the text."""
    tensors = (op.operands[0].tensor for op in ops(plan.kernel, "ttg.convert_layout"))
    return [tensor.element for tensor in tensors if tensor is not None]


# -- #2181 -------------------------------------------------------------------------------------------------------------


def test_layouts_go_forwards_from_what_keeps_its_own() -> None:
    """A load, arithmetic at another layout, a store: all at the load's."""
    plan = planned(f"""{vector("one")}
      %x = tt.load %at : {P}
      %y = ttg.convert_layout %x : {F} -> {H}
      %z = arith.mulf %y, %y : {H}
      %w = ttg.convert_layout %z : {H} -> {F}
      tt.store %at, %w : {P}""")
    assert plan.conversions == 0


def test_of_two_layouts_for_one_op_the_cheaper_is_taken() -> None:
    """Two arrays of one layout and one of another are added: one is converted, and not the sum, too."""
    plan = planned(f"""{vector("one")}{vector("one", "1", "%q")}{vector("four", "4")}
      %a = tt.load %at : {P}
      %b = tt.load %at1 : {P}
      %third = tt.load %at4 : {Q}
      %aa = ttg.convert_layout %a : {F} -> {H}
      %bb = ttg.convert_layout %b : {F} -> {H}
      %ab = arith.addf %aa, %bb : {H}
      %abc = arith.addf %ab, %third : {H}
      %out = ttg.convert_layout %abc : {H} -> {F}
      tt.store %at, %out : {P}""")
    assert plan.given_conversions == 3 and plan.conversions == 1


def test_what_is_computed_is_computed_again_instead_of_converted() -> None:
    """Offsets of a store at another layout come of counters, which are there at any."""
    plan = planned(f"""{vector("one")}
      %square = arith.muli %range, %range : tensor<256xi32, #one>
      %moved = ttg.convert_layout %square : tensor<256xi32, #one> -> tensor<256xi32, #four>
      %values = arith.sitofp %moved : tensor<256xi32, #four> to {H}
      {vector("four", "4", "%q")}
      tt.store %at4, %values : {Q}""")
    assert plan.conversions == 0


def test_a_loops_argument_is_carried_at_the_layout_that_its_consumer_asks_for() -> None:
    plan = planned(f"""{vector("one")}{vector("four", "4", "%q")}
      %k0 = arith.constant 0 : i32
      %k1 = arith.constant 1 : i32
      %k3 = arith.constant 3 : i32
      %zero = arith.constant dense<0.0> : {F}
      %sum = scf.for %i = %k0 to %k3 step %k1 iter_args(%s = %zero) -> ({F}) : i32 {{
        %x = tt.load %at4 : {Q}
        %m = ttg.convert_layout %x : {H} -> {F}
        %t = arith.addf %s, %m : {F}
        scf.yield %t : {F}
      }}
      %out = ttg.convert_layout %sum : {F} -> {H}
      tt.store %at4, %out : {Q}""")
    assert plan.conversions == 0


def test_an_argument_with_two_consumers_is_carried_twice() -> None:
    """Pointers of a load at one layout and of a store at another are both counters."""
    plan = planned(f"""{vector("one")}{vector("four", "4", "%q")}
      %k0 = arith.constant 0 : i32
      %k1 = arith.constant 1 : i32
      %k3 = arith.constant 3 : i32
      %step = arith.constant dense<256> : tensor<256xi32, #one>
      %end = scf.for %i = %k0 to %k3 step %k1 iter_args(%u = %range) -> (tensor<256xi32, #one>) : i32 {{
        %a = tt.addptr %base, %u : {P}, tensor<256xi32, #one>
        %x = tt.load %a : {P}
        %y = ttg.convert_layout %x : {F} -> {H}
        %v = ttg.convert_layout %u : tensor<256xi32, #one> -> tensor<256xi32, #four>
        %b = tt.addptr %base4, %v : {Q}, tensor<256xi32, #four>
        tt.store %b, %y : {Q}
        %w = arith.addi %u, %step : tensor<256xi32, #one>
        scf.yield %w : tensor<256xi32, #one>
      }}""")
    (loop,) = ops(plan.kernel, "scf.for")
    assert len(loop.results) == 2 and converted(plan) == ["f32"]


def test_a_branch_delivers_what_is_asked_for() -> None:
    plan = planned(f"""{vector("four", "4", "%q")}
      %x = tt.load %at4 : {Q}
      %r = scf.if %c -> ({F}) {{
        %m = ttg.convert_layout %x : {H} -> {F}
        %d = arith.addf %m, %m : {F}
        scf.yield %d : {F}
      }} else {{
        %m = ttg.convert_layout %x : {H} -> {F}
        scf.yield %m : {F}
      }}
      %out = ttg.convert_layout %r : {F} -> {H}
      tt.store %at4, %out : {Q}""")
    assert plan.conversions == 0


def test_what_has_effects_runs_once() -> None:
    plan = planned(f"""{vector("one")}{vector("four", "4", "%q")}
      %all = arith.constant dense<true> : tensor<256xi1, #one>
      %x = arith.sitofp %range : tensor<256xi32, #one> to {F}
      %old = tt.atomic_rmw fadd, relaxed, gpu, %at, %x, %all : ({P}, {F}, tensor<256xi1, #one>) -> {F}
      %m = ttg.convert_layout %old : {F} -> {H}
      tt.store %at4, %m : {Q}""")
    assert len(ops(plan.kernel, "tt.atomic_rmw")) == 1 and converted(plan) == ["f32"]


# -- #5673 -------------------------------------------------------------------------------------------------------------

MMA = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, 8]}>"
#: A product whose first operand comes by a CHAIN of ops, to %half, from what is loaded, of an ELEMENT type.
PRODUCT = """
  %rr = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32, #widerow>
  %r1 = tt.expand_dims %rr {axis = 1 : i32} : tensor<64xi32, #widerow> -> tensor<64x1xi32, #wide>
  %w = arith.constant dense<32> : tensor<64x1xi32, #wide>
  %r2 = arith.muli %r1, %w : tensor<64x1xi32, #wide>
  %cc = tt.make_range {start = 0 : i32, end = 32 : i32} : tensor<32xi32, #widecol>
  %c1 = tt.expand_dims %cc {axis = 0 : i32} : tensor<32xi32, #widecol> -> tensor<1x32xi32, #wide>
  %r3 = tt.broadcast %r2 : tensor<64x1xi32, #wide> -> tensor<64x32xi32, #wide>
  %c2 = tt.broadcast %c1 : tensor<1x32xi32, #wide> -> tensor<64x32xi32, #wide>
  %off = arith.addi %r3, %c2 : tensor<64x32xi32, #wide>
  %sp = tt.splat %a : !tt.ptr<ELEMENT> -> tensor<64x32x!tt.ptr<ELEMENT>, #wide>
  %ap = tt.addptr %sp, %off : tensor<64x32x!tt.ptr<ELEMENT>, #wide>, tensor<64x32xi32, #wide>
  %x = tt.load %ap : tensor<64x32x!tt.ptr<ELEMENT>, #wide>
  CHAIN
  %left = ttg.convert_layout %half : tensor<64x32xf16, #wide> -> tensor<64x32xf16, #left>
  %right = arith.constant dense<1.0> : tensor<32x16xf16, #right>
  %none = arith.constant dense<0.0> : tensor<64x16xf32, #mma>
  %d = tt.dot %left, %right, %none : tensor<64x32xf16, #left> * tensor<32x16xf16, #right> -> tensor<64x16xf32, #mma>
  %dp = tt.splat %o : !tt.ptr<f32> -> tensor<64x16x!tt.ptr<f32>, #mma>
  %or = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32, #mmarow>
  %o1 = tt.expand_dims %or {axis = 1 : i32} : tensor<64xi32, #mmarow> -> tensor<64x1xi32, #mma>
  %ow = arith.constant dense<16> : tensor<64x1xi32, #mma>
  %o2 = arith.muli %o1, %ow : tensor<64x1xi32, #mma>
  %oc = tt.make_range {start = 0 : i32, end = 16 : i32} : tensor<16xi32, #mmacol>
  %o3 = tt.expand_dims %oc {axis = 0 : i32} : tensor<16xi32, #mmacol> -> tensor<1x16xi32, #mma>
  %o4 = tt.broadcast %o2 : tensor<64x1xi32, #mma> -> tensor<64x16xi32, #mma>
  %o5 = tt.broadcast %o3 : tensor<1x16xi32, #mma> -> tensor<64x16xi32, #mma>
  %o6 = arith.addi %o4, %o5 : tensor<64x16xi32, #mma>
  %op = tt.addptr %dp, %o6 : tensor<64x16x!tt.ptr<f32>, #mma>, tensor<64x16xi32, #mma>
  tt.store %op, %d : tensor<64x16x!tt.ptr<f32>, #mma>
"""
WIDE = "#ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>"
HALF = "tensor<64x32xf16, #wide>"
#: Chains of ops between a load and a product, and the elements of what is converted then.
CHAINS = {
    "arithmetic": ("f16", f"%half = arith.mulf %x, %x : {HALF}", "f16"),
    "widening": ("i8", f"%half = arith.sitofp %x : tensor<64x32xi8, #wide> to {HALF}", "i8"),
    "unsigned widening": ("i8", f"%half = arith.uitofp %x : tensor<64x32xi8, #wide> to {HALF}", "i8"),
    "narrowing": ("f32", f"%half = arith.truncf %x : tensor<64x32xf32, #wide> to {HALF}", "f16"),
    "select": ("i8", f"""%k = arith.constant dense<3> : tensor<64x32xi8, #wide>
       %m = arith.cmpi slt, %x, %k : tensor<64x32xi8, #wide>
       %f = arith.sitofp %x : tensor<64x32xi8, #wide> to {HALF}
       %z = arith.constant dense<0.0> : {HALF}
       %half = arith.select %m, %f, %z : tensor<64x32xi1, #wide>, {HALF}""", "i8"),
    "pure assembly": ("i8", f"""%y = tt.elementwise_inline_asm "mov.b32 $0, $1;" {{constraints = "=r,r",
       packed_element = 4 : i32, pure = true}} %x : tensor<64x32xi8, #wide> -> tensor<64x32xi8, #wide>
       %half = arith.sitofp %y : tensor<64x32xi8, #wide> to {HALF}""", "i8"),
    "impure assembly": ("i8", f"""%y = tt.elementwise_inline_asm "mov.b32 $0, $1;" {{constraints = "=r,r",
       packed_element = 4 : i32, pure = false}} %x : tensor<64x32xi8, #wide> -> tensor<64x32xi8, #wide>
       %half = arith.sitofp %y : tensor<64x32xi8, #wide> to {HALF}""", "i8"),
}


@pytest.mark.parametrize("chain", list(CHAINS))
def test_a_conversion_to_an_operand_stands_where_least_is_moved(chain: str) -> None:
    """Operands that come of bytes hold four neighbours together, others two, as Triton has them."""
    element, text, moved = CHAINS[chain]
    together = 4 if element == "i8" else 2
    operand = f"parent = {MMA}, kWidth = {together}"
    names = {
        "#widerow": f"#ttg.slice<{{dim = 1, parent = {WIDE}}}>",
        "#widecol": f"#ttg.slice<{{dim = 0, parent = {WIDE}}}>",
        "#mmarow": f"#ttg.slice<{{dim = 1, parent = {MMA}}}>", "#mmacol": f"#ttg.slice<{{dim = 0, parent = {MMA}}}>",
        "#left": f"#ttg.dot_op<{{opIdx = 0, {operand}}}>", "#right": f"#ttg.dot_op<{{opIdx = 1, {operand}}}>",
        "#mma": MMA, "#wide": WIDE}
    body = PRODUCT.replace("CHAIN", text).replace("ELEMENT", element)
    for name, encoding in names.items():
        body = body.replace(name, encoding)
    kernel = kernel_of(body, arguments=f"%a: !tt.ptr<{element}>, %o: !tt.ptr<f32>")
    plan = checked(kernel, judged="assembly" not in chain)
    assert converted(plan) == [moved]
    (op,) = ops(plan.kernel, "ttg.convert_layout")
    assert encoding_of(op.results[0]).kind == "ttg.dot_op"
