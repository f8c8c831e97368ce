"""Loops and branches carry values at one encoding; blocks that nothing is known of keep what they give."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.triton.planned import checked, kernel_of, names, ops, vector

from eggshard.triton.control import holds_tensors, ties
from eggshard.triton.kernels.ir import Kernel

V, W = "tensor<256xf32, #one>", "tensor<256xf32, #two>"
STORE = "tt.store %at, {} : tensor<256x!tt.ptr<f32>, #one>"


def converted(value: str, to: str = "two") -> str:
    """A line that converts a value, to a name that ends in the layout's."""
    source, target = (V, W) if to == "two" else (W, V)
    return f"{value}_{to} = ttg.convert_layout {value} : {source} -> {target}\n"


def loaded(body: str, more: str = "") -> Kernel:
    return kernel_of(f"{vector('one')}\n%x = tt.load %at : tensor<256x!tt.ptr<f32>, #one>\n{body}", more=more)


def test_ties_of_loops_and_branches() -> None:
    kernel = loaded(f"""
      %k0 = arith.constant 0 : i32
      %l = scf.for %i = %k0 to %n step %n iter_args(%u = %x) -> ({V}) : i32 {{
        %r = scf.if %c -> ({V}) {{ scf.yield %u : {V} }} else {{ scf.yield %x : {V} }}
        scf.yield %r : {V}
      }}
      %w:2 = scf.while (%i = %n, %u = %l) : (i32, {V}) -> ({V}, i32) {{
        scf.condition(%c) %u, %i : {V}, i32
      }} do {{
      ^bb0(%u: {V}, %i: i32):
        scf.yield %i, %u : i32, {V}
      }}
      {STORE.format("%w#0")}""")
    (loop,), (branch,), (endless,) = (ops(kernel, name) for name in ("scf.for", "scf.if", "scf.while"))
    (carried,) = ties(loop) or ()
    assert carried.targets == (loop.body.arguments[1], loop.results[0]) and carried.once
    assert [use.value for use in (*carried.sources, *carried.back)] == [loop.operands[3], branch.results[0]]
    (delivered,) = ties(branch) or ()
    assert len(delivered.sources) == 2 and not delivered.back and not delivered.once
    assert [len(tie.targets) for tie in ties(endless) or ()] == [1, 1, 2, 2]
    assert ties(ops(kernel, "tt.load")[0]) is None
    checked(kernel, numbers={2: 3, 3: False})


UNKNOWN = {
    "execute_region": f"""
      %y = scf.execute_region -> {W} {{
        {converted("%x")} %z = arith.addf %x_two, %x_two : {W}
        scf.yield %z : {W}
      }}
      {converted("%y", "one")}{STORE.format("%y_one")}""",
    "index_switch": f"""
      %k = arith.index_cast %n : i32 to index
      %y = scf.index_switch %k -> {W}
      case 2 {{
        {converted("%x")} %z = arith.addf %x_two, %x_two : {W}
        scf.yield %z : {W}
      }}
      default {{
        {converted("%x")} scf.yield %x_two : {W}
      }}
      {converted("%y", "one")}{STORE.format("%y_one")}""",
    "call": f"""
      {converted("%x")} %y = tt.call @other(%x_two) : ({W}) -> {W}
      {converted("%y", "one")}{STORE.format("%y_one")}""",
    "blocks": f"""
      {converted("%x")} cf.cond_br %c, ^a(%x_two : {W}), ^z(%x : {V})
    ^a(%u: {W}):
      %v = arith.addf %u, %u : {W}
      {converted("%v", "one")} cf.br ^z(%v_one : {V})
    ^z(%k: {V}):
      {STORE.format("%k")}""",
}
OTHER = f"""
tt.func private @other(%x: {W}) -> {W} attributes {{noinline = true}} {{
  %o = ttg.convert_layout %x : {W} -> {V}
  %z = arith.addf %o, %o : {V}
  %t = ttg.convert_layout %z : {V} -> {W}
  tt.return %t : {W}
}}"""


@pytest.mark.parametrize("name", UNKNOWN)
def test_blocks_of_no_known_meaning_keep_what_they_give(name: str) -> None:
    kernel = loaded(UNKNOWN[name], OTHER if name == "call" else "")
    plan = checked(kernel, numbers={2: 2})
    kept = {"call": "tt.call", "blocks": "cf.cond_br"}.get(name, f"scf.{name}")
    for old, new in zip(ops(kernel, kept), ops(plan.kernel, kept), strict=True):
        assert [v.type for v in (*old.operands, *old.results)] == [v.type for v in (*new.operands, *new.results)]
    if name in ("execute_region", "index_switch"):
        assert holds_tensors(ops(kernel, kept)[0])


SPECIALIZED = f"""
  %y = ttg.warp_specialize(%p)
  default {{
    {converted("%x")} %z = arith.addf %x_two, %x_two : {W}
    ttg.warp_yield %z : {W}
  }}
  partition0(%o: !tt.ptr<f32>) num_warps(1) {{
    %r = tt.make_range {{start = 0 : i32, end = 64 : i32}} : tensor<64xi32, #w>
    %g = tt.make_range {{start = 0 : i32, end = 64 : i32}} : tensor<64xi32, #w>
    %b = tt.splat %o : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>, #w>
    %a = tt.addptr %b, %g : tensor<64x!tt.ptr<f32>, #w>, tensor<64xi32, #w>
    %s = arith.sitofp %r : tensor<64xi32, #w> to tensor<64xf32, #w>
    tt.store %a, %s : tensor<64x!tt.ptr<f32>, #w>
    ttg.warp_return
  }} : (!tt.ptr<f32>) -> {W}
  {converted("%y", "one")}{STORE.format("%y_one")}
""".replace("#w>", "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [1], order = [0]}>>")


def test_partitions_of_other_warps_stay_as_they_are() -> None:
    """An equal op outside is none of theirs: it belongs to other warps, and they see nothing from around."""
    kernel = loaded("%e = tt.make_range {start = 0 : i32, end = 64 : i32} : tensor<64xi32, #one>\n"
                    "%ef = arith.sitofp %e : tensor<64xi32, #one> to tensor<64xf32, #one>\n"
                    "%lb = tt.splat %q : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>, #one>\n"
                    "%la = tt.addptr %lb, %e : tensor<64x!tt.ptr<f32>, #one>, tensor<64xi32, #one>\n"
                    "tt.store %la, %ef : tensor<64x!tt.ptr<f32>, #one>\n" + SPECIALIZED)
    plan = checked(kernel, judged=False)
    before, after = (ops(k, "ttg.warp_specialize.partitions")[0] for k in (kernel, plan.kernel))
    assert [op.name for op in before.walk()] == [op.name for op in after.walk()]
    assert plan.gap == pytest.approx(0)


def test_regions_take_what_is_outside() -> None:
    """MLIR's folder puts constants of a reduction's region at the head of the function."""
    kernel = loaded(f"""
      %k = arith.constant 2.0 : f32
      {converted("%x")}
      %s = "tt.reduce"(%x_two) <{{axis = 0 : i32}}> ({{
      ^bb0(%a: f32, %b: f32):
        %o = arith.addf %a, %b : f32
        %m = arith.minnumf %o, %k : f32
        tt.reduce.return %m : f32
      }}) : ({W}) -> f32
      tt.store %q, %s : !tt.ptr<f32>""")
    plan = checked(kernel)
    assert "tt.reduce" in names(plan.kernel) and plan.conversions == 0
