from __future__ import annotations

import pytest

from eggshard.shardy.module import parsed
from eggshard.shardy.wire_bytes import WireBytes, module_bytes

HEADER = 'sdy.mesh @mesh = <["x"=2, "y"=2, "z"=2]>\n'
#: 16x16 f32 over x: a shard has 512 bytes.
SHARD = 512


def counted(source: str, op: str, shape: str = "16x16") -> WireBytes:
    text = f"""{HEADER}func.func @main(%a: tensor<{shape}xf32> {{sdy.sharding = #sdy.sharding<@mesh, {source}>}})
        -> tensor<{shape}xf32> {{
      %0 = {op} : tensor<{shape}xf32>
      return %0 : tensor<{shape}xf32>
    }}"""
    with parsed(text) as module:
        return module_bytes(module)


@pytest.mark.parametrize(("source", "op", "bytes_"), [
    ('[{"x"}, {}]', 'sdy.all_gather [{"x"}, {}] %a out_sharding=<@mesh, [{}, {}]>', SHARD),
    ('[{"x"}, {}]', 'sdy.all_slice [{}, {"y"}] %a out_sharding=<@mesh, [{"x"}, {"y"}]>', 0),
    ('[{"x"}, {}]', 'sdy.all_to_all [{"x"}: 0->1] %a out_sharding=<@mesh, [{}, {"x"}]>', SHARD // 2),
    ('[{"x"}, {}]', 'sdy.collective_permute %a out_sharding=<@mesh, [{"y"}, {}]>', SHARD),
    ('[{"x"}, {}], unreduced={"y"}', 'sdy.all_reduce {"y"} %a out_sharding=<@mesh, [{"x"}, {}]>', SHARD),
    ('[{"x"}, {}], unreduced={"y"}', 'sdy.reduce_scatter [{}, {"y"}] %a out_sharding=<@mesh, [{"x"}, {"y"}]>',
     SHARD // 2),
    ('[{"x"}, {}]', 'sdy.replicated_to_unreduced {"y"} %a out_sharding=<@mesh, [{"x"}, {}], unreduced={"y"}>', 0),
    ('[{"x"}, {}]', 'sdy.sharded_to_unreduced [{"x"}, {}] %a out_sharding=<@mesh, [{}, {}], unreduced={"x"}>', 0),
])
def test_ring_formulas(source: str, op: str, bytes_: int) -> None:
    assert counted(source, op).busiest == bytes_


def test_a_permute_counts_the_devices_that_receive() -> None:
    found = counted('[{"x"}, {}]', 'sdy.collective_permute %a out_sharding=<@mesh, [{"y"}, {}]>')
    assert found == WireBytes(SHARD, SHARD / 2, 1)


def test_uneven_shards_are_rounded_up_and_those_that_do_not_nest_take_what_they_lack() -> None:
    gathered = counted('[{"x"}, {}]', 'sdy.all_gather [{"x"}, {}] %a out_sharding=<@mesh, [{}, {}]>', "7x4")
    assert gathered.busiest == 7 * 4 * 4 / 2
    # 6 rows over 2 devices are 3 and 3; over 4 they are 2, 2, 2, 0: the second of four needs row 3 of the other half
    sliced = counted('[{"x"}, {}]', 'sdy.all_slice [{"y"}, {}] %a out_sharding=<@mesh, [{"x", "y"}, {}]>', "6x4")
    assert sliced.busiest > 0
    assert counted('[{}, {}]', 'sdy.all_slice [{"y"}, {}] %a out_sharding=<@mesh, [{"y"}, {}]>', "7x4").busiest == 0


def test_loops_are_multiplied_and_of_branches_the_dearest_counts() -> None:
    loop = """
      %c0 = stablehlo.constant dense<0> : tensor<i32>
      %c2 = stablehlo.constant dense<2> : tensor<i32>
      %c8 = stablehlo.constant dense<8> : tensor<i32>
      %0:2 = stablehlo.while(%i = %c0, %v = %a) : tensor<i32>, tensor<16x16xf32>
       cond {
        %p = stablehlo.compare LT, %i, %c8 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %n = stablehlo.add %i, %c2 : tensor<i32>
        %s = stablehlo.negate %v {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : tensor<16x16xf32>
        %r = sdy.all_gather [{"x"}, {}] %s out_sharding=<@mesh, [{}, {}]> : tensor<16x16xf32>
        stablehlo.return %n, %r : tensor<i32>, tensor<16x16xf32>
      }
      %1 = call @f(%0#1) : (tensor<16x16xf32>) -> tensor<16x16xf32>
      %2 = "stablehlo.case"(%c0) ({
        %s = sdy.all_slice [{"y"}, {}] %a out_sharding=<@mesh, [{"x", "y"}, {}]> : tensor<16x16xf32>
        stablehlo.return %s : tensor<16x16xf32>
      }, {
        %s = sdy.all_to_all [{"x"}: 0->1] %a out_sharding=<@mesh, [{}, {"x"}]> : tensor<16x16xf32>
        stablehlo.return %s : tensor<16x16xf32>
      }) : (tensor<i32>) -> tensor<16x16xf32>
      return %1 : tensor<16x16xf32>"""
    text = f"""{HEADER}func.func @main(%a: tensor<16x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}})
        -> tensor<16x16xf32> {{{loop}
    }}
    func.func private @f(%a: tensor<16x16xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}})
        -> tensor<16x16xf32> {{
      %0 = sdy.all_gather [{{"x"}}, {{}}] %a out_sharding=<@mesh, [{{}}, {{}}]> : tensor<16x16xf32>
      return %0 : tensor<16x16xf32>
    }}"""
    with parsed(text) as module:
        assert module_bytes(module).busiest == 4 * SHARD + SHARD + SHARD // 2
