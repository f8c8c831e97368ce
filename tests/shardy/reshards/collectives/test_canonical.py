from __future__ import annotations

import pytest
from tests.shardy.peer import run_peer
from tests.shardy.reshards.collectives.test_conversion import MESHES, module, ops
from tests.shardy.reshards.random_reshards import chain_module, reshard_module

from eggshard import shardy
from eggshard.shardy.module import parsed, uses
from eggshard.shardy.reshards.collectives.kinds import KINDS

PASS = "canonicalize-collectives"


def without_unused(text: str) -> str:
    """jaxlib's `canonicalize` keeps collectives that nobody uses, but for all-to-alls."""
    with parsed(text) as module:
        again = True
        while again:
            again = False
            for op in reversed(module.walk(*(f"sdy.{kind}" for kind in KINDS), "sdy.reshard")):
                if not uses(op.results[0]):
                    op.erase()
                    again = True
        return module.text()


def peer_text(text: str) -> str:
    while True:
        peer = run_peer(text, "canonicalize")
        assert not peer.failure, f"{peer.failure}\n{text}"
        left = without_unused(peer.text)
        if left == peer.text:
            return left
        text = left


def chain(source: str, *lines: str, returned: str = "") -> str:
    """Ops on %0, which has this sharding; each makes the next value."""
    body = "\n".join(f"  %{i + 1} = {line} : tensor<16x16x16x16xf32>" for i, line in enumerate(lines))
    values = returned.split(", ") if returned else [f"%{len(lines)}"]
    types = ", ".join(["tensor<16x16x16x16xf32>"] * len(values))
    return f"""{MESHES}
func.func @main(%0: tensor<16x16x16x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, {source}>}}) -> ({types}) {{
{body}
  return {', '.join(values)} : {types}
}}"""


REDUCE = 'sdy.all_reduce {"x", "y"} %0 out_sharding=<@mesh, [{}, {}, {}, {}]>'
SLICE = 'sdy.all_slice [{"x", "z"}, {"y"}, {}, {}] %1 out_sharding=<@mesh, [{"x", "z"}, {"y"}, {}, {}]>'
WRITTEN = {
    "a reduction that is sliced": chain('[{}, {}, {}, {}], unreduced={"x", "y"}', REDUCE, SLICE),
    "a reduction that is sliced twice": chain(
        '[{}, {}, {}, {}], unreduced={"x", "y"}', REDUCE, SLICE, SLICE, returned="%2, %3"),
    "a reduction that is also used whole": chain(
        '[{}, {}, {}, {}], unreduced={"x", "y"}', REDUCE, SLICE, returned="%1, %2"),
    "a reduction of which axes are left": chain(
        '[{}, {}, {}, {}], unreduced={"x", "y"}', REDUCE,
        'sdy.all_slice [{"x"}, {}, {}, {}] %1 out_sharding=<@mesh, [{"x"}, {}, {}, {}]>'),
    "a reduction sliced along others first": chain(
        '[{}, {}, {}, {}], unreduced={"x"}', 'sdy.all_reduce {"x"} %0 out_sharding=<@mesh, [{}, {}, {}, {}]>',
        'sdy.all_slice [{"z", "x"}, {}, {}, {}] %1 out_sharding=<@mesh, [{"z", "x"}, {}, {}, {}]>'),
    "exchanges between different dimensions": chain(
        '[{"x"}, {}, {}, {"y"}]', 'sdy.all_to_all [{"y"}: 3->2] %0 out_sharding=<@mesh, [{"x"}, {}, {"y"}, {}]>',
        'sdy.all_to_all [{"x"}: 0->1] %1 out_sharding=<@mesh, [{}, {"x"}, {"y"}, {}]>'),
    "exchanges from one dimension": chain(
        '[{"x", "y"}, {}, {}, {}]', 'sdy.all_to_all [{"y"}: 0->2] %0 out_sharding=<@mesh, [{"x"}, {}, {"y"}, {}]>',
        'sdy.all_to_all [{"x"}: 0->1] %1 out_sharding=<@mesh, [{}, {"x"}, {"y"}, {}]>'),
    "an exchange that is used": chain(
        '[{"x"}, {}, {}, {"y"}]', 'sdy.all_to_all [{"y"}: 3->2] %0 out_sharding=<@mesh, [{"x"}, {}, {"y"}, {}]>',
        'sdy.all_to_all [{"x"}: 0->1] %1 out_sharding=<@mesh, [{}, {"x"}, {"y"}, {}]>', returned="%1, %2"),
    "an exchange that nobody uses": chain(
        '[{"x"}, {}, {}, {"y"}]', 'sdy.all_to_all [{"y"}: 3->2] %0 out_sharding=<@mesh, [{"x"}, {}, {"y"}, {}]>',
        returned="%0"),
    "partial sums made by a copy": chain(
        '[{}, {}, {}, {}]',
        'sdy.replicated_to_unreduced {"x"} %0 out_sharding=<@mesh, [{}, {}, {}, {}], unreduced={"x"}>',
        'sdy.all_reduce {"x"} %1 out_sharding=<@mesh, [{}, {}, {}, {}]>'),
    "partial sums made of shards": chain(
        '[{"y"}, {"x"}, {}, {}]',
        'sdy.sharded_to_unreduced [{"y"}, {"x"}, {}, {}] %0 '
        'out_sharding=<@mesh, [{}, {}, {}, {}], unreduced={"x", "y"}>', REDUCE.replace("%0", "%1")),
    "no axes": chain(
        '[{"x"}, {}, {}, {}]', 'sdy.all_gather [{}, {}, {}, {}] %0 out_sharding=<@mesh, [{"x"}, {}, {}, {}]>',
        'sdy.all_slice [{}, {}, {}, {}] %1 out_sharding=<@mesh, [{"x"}, {}, {}, {}]>',
        'sdy.all_reduce {} %2 out_sharding=<@mesh, [{"x"}, {}, {}, {}]>',
        'sdy.reduce_scatter [{}, {}, {}, {}] %3 out_sharding=<@mesh, [{"x"}, {}, {}, {}]>'),
    "a permute to the same": chain(
        '[{"x"}, {}, {}, {}]', 'sdy.collective_permute %0 out_sharding=<@mesh, [{"x"}, {}, {}, {}]>'),
    "a slice of a gather": chain(
        '[{"x"}, {"y"}, {}, {}]', 'sdy.all_gather [{"x"}, {}, {}, {}] %0 out_sharding=<@mesh, [{}, {"y"}, {}, {}]>',
        'sdy.all_slice [{"x"}, {}, {}, {}] %1 out_sharding=<@mesh, [{"x"}, {"y"}, {}, {}]>'),
    "a slice of a gather elsewhere": chain(
        '[{"x"}, {"y"}, {}, {}]', 'sdy.all_gather [{"x"}, {}, {}, {}] %0 out_sharding=<@mesh, [{}, {"y"}, {}, {}]>',
        'sdy.all_slice [{}, {"x"}, {}, {}] %1 out_sharding=<@mesh, [{}, {"y", "x"}, {}, {}]>'),
    "reshards in a row": chain(
        '[{"x"}, {}, {}, {}]', 'sdy.reshard %0 <@mesh, [{"y"}, {}, {}, {}]>',
        'sdy.reshard %1 <@mesh, [{}, {"z"}, {}, {}]>'),
    "equal reshards": chain(
        '[{"x"}, {}, {}, {}]', 'sdy.reshard %0 <@mesh, [{"y"}, {}, {}, {}]>',
        'sdy.reshard %0 <@mesh, [{"y"}, {}, {}, {}]>', returned="%1, %2"),
    "a manual computation with unused inputs": module(
        '@mesh, [{"x"}, {}]', '@mesh, [{}, {"x"}]', before="""%v = sdy.manual_computation(%a, %a, %a)
    in_shardings=[<@mesh, [{"x"}, {}]>, <@mesh, [{}, {"x"}]>, <@mesh, [{}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>]
    manual_axes={"x"} (%b: tensor<8x16xf32>, %d: tensor<16x8xf32>, %e: tensor<16x16xf32>) {
      %1 = stablehlo.reshape %d : (tensor<16x8xf32>) -> tensor<8x16xf32>
      sdy.return %1 : tensor<8x16xf32>
    } : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>"""),
    "a manual computation of nothing": module(
        '@mesh, [{"x"}, {}]', '@mesh, [{}, {"x"}]', before="""sdy.manual_computation() in_shardings=[] out_shardings=[]
    manual_axes={} () {
      sdy.return
    } : () -> ()
    %v = stablehlo.negate %a : tensor<16x16xf32>"""),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_simplified_as_jaxlib_does(name: str) -> None:
    text = WRITTEN[name]
    assert shardy.transform(text, PASS) == peer_text(text)


def test_manual_computations_over_one_device_are_their_body() -> None:
    """As Shardy's newest source has it; jaxlib's keeps them."""
    text = module('@mesh, [{"x"}, {}]', '@mesh, [{}, {"x"}]', before="""%v = sdy.manual_computation(%a)
    in_shardings=[<@mesh, [{"x"}, {}]>] out_shardings=[<@mesh, [{"x"}, {}]>] manual_axes={} (%b: tensor<16x16xf32>) {
      %1 = stablehlo.add %b, %b : tensor<16x16xf32>
      sdy.return %1 : tensor<16x16xf32>
    } : (tensor<16x16xf32>) -> tensor<16x16xf32>""")
    assert "manual_computation" in peer_text(text)
    simplified = shardy.transform(text, PASS)
    assert "stablehlo.add %arg0, %arg0" in simplified and "manual_computation" not in simplified


@pytest.mark.parametrize(("target", "shared"), [
    ('[{"y"}, {}, {}]', True), ('[{"y":(1)2}, {"y":(2)2}, {}]', False), ('[{}, {}, {"y"}]', False),
    ('[{"y"}, {}, {"x"}]', False), ('[{"x"}, {}, {}]', False),
])
def test_reshards_of_one_value_in_two_shapes(target: str, shared: bool) -> None:
    """jaxlib leaves the sharding from before on the reshape that it moves."""
    text = f"""{MESHES}
func.func @main(%a: tensor<16x16xf32> {{sdy.sharding = #sdy.sharding<@wide, [{{"x"}}, {{}}]>}})
    -> (tensor<16x16xf32>, tensor<16x4x4xf32>) {{
  %0 = sdy.reshard %a <@wide, [{{"y"}}, {{}}]> : tensor<16x16xf32>
  %1 = stablehlo.reshape %a {{sdy.sharding = #sdy.sharding_per_value<[<@wide, [{{"x"}}, {{}}, {{}}]>]>}}
    : (tensor<16x16xf32>) -> tensor<16x4x4xf32>
  %2 = sdy.reshard %1 <@wide, {target}> : tensor<16x4x4xf32>
  return %0, %2 : tensor<16x16xf32>, tensor<16x4x4xf32>
}}"""
    simplified = shardy.transform(text, PASS)
    assert (simplified.count("sdy.reshard") == 1) == shared
    assert (run_peer(text, "canonicalize").text.count("sdy.reshard") == 1) == shared
    if shared:
        assert f"stablehlo.reshape %0 {{sdy.sharding = #sdy.sharding_per_value<[<@wide, {target}>]>}}" in simplified


def test_equal_collectives_are_one() -> None:
    """jaxlib keeps both."""
    gather = 'sdy.all_gather [{"x"}, {}, {}, {}] %0 out_sharding=<@mesh, [{}, {}, {}, {}]>'
    text = chain('[{"x"}, {}, {}, {}]', gather, gather, returned="%1, %2")
    assert len(ops(text, PASS)) == 1


def test_a_permute_to_another_order_of_devices_stays() -> None:
    """jaxlib drops it, and fails at the slice, which is on the mesh that is then another."""
    text = chain(
        "[{}, {}, {}, {}]", "sdy.collective_permute %0 out_sharding=<@reversed, [{}, {}, {}, {}]>",
        'sdy.all_slice [{"x"}, {}, {}, {}] %1 out_sharding=<@reversed, [{"x"}, {}, {}, {}]>')
    assert run_peer(text, "canonicalize").failure
    assert len(ops(text, PASS)) == 2


def agreeing(seeds: range) -> int:
    """How many modules were simplified, all of them as jaxlib does."""
    simplified = 0
    for seed in seeds:
        text = chain_module(seed)
        ours = shardy.transform(text, PASS)
        assert ours == peer_text(text), text
        simplified += ours.count(" = ") < text.count(" = ")
    return simplified


def test_generated_chains_are_simplified_as_jaxlib_does() -> None:
    assert agreeing(range(60)) >= 30


def test_generated_reshards_come_out_as_jaxlib_writes_them() -> None:
    compared = 0
    for seed in range(60, 120):
        text, before = reshard_module(seed, functions=3), "func.func(sdy-reshard-to-collectives)"
        if run_peer(text, before).text == shardy.transform(text, "reshard-to-collectives"):
            compared += 1
            peer = run_peer(text, f"{before},canonicalize")
            assert shardy.transform(text, f"reshard-to-collectives,{PASS}") == peer.text, text
    assert compared >= 50


@pytest.mark.slow
def test_many_generated_chains_are_simplified_as_jaxlib_does() -> None:
    assert agreeing(range(60, 400)) >= 200
