"""Hand-written programs with Shardy's collectives, localised: run on simulated devices, the interpreter and XLA."""

from __future__ import annotations

import pytest
from tests.shardy.local.programs import localised_by_peer, programs
from tests.shardy.running import Boundary, assert_runs_equal, interpreter_runs

from eggshard import shardy

COLLECTIVES = programs("collectives")
#: Where jaxlib's pass fails, and where the program that it makes computes something else.
PEER_FAILS = {
    "replicated to unreduced", "sharded to unreduced", "reduce-scatter of two dimensions", "all-reduces of parts",
    "one row",
}
ON_XLA = {"gather of two dimensions", "slices along sub-axes", "all-to-all of two pairs", "sharded to unreduced"}
PEER_DIFFERS = {"slices along sub-axes", "permute to another axis", "update of a sharded dimension"}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_on_devices(name: str) -> None:
    text = COLLECTIVES[name]
    assert_runs_equal(text, shardy.transform(text, "convert-global-to-local"), xla=name in ON_XLA)


@pytest.mark.parametrize("name", ["gather of two dimensions", "reduce-scatter of two dimensions"])
def test_collectives_of_several_dimensions_in_the_other_form(name: str) -> None:
    text = COLLECTIVES[name]
    options = "{per-dim-all-gather=true combine-multi-dimension-reduce-scatter=true}"
    plain, local = (shardy.transform(text, f"convert-global-to-local{o}") for o in ("", options))
    counts = [[t.count(f"stablehlo.{op}\"") for op in ("all_gather", "reduce_scatter")] for t in (plain, local)]
    assert counts == ([[1, 0], [2, 0]] if "gather of" in name else [[0, 2], [0, 1]])
    assert_runs_equal(text, local)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_where_jaxlib_localises_collectives_it_means_the_same(name: str) -> None:
    text = COLLECTIVES[name]
    peer = localised_by_peer(text)
    assert bool(peer.failure) == (name in PEER_FAILS)
    if name in PEER_DIFFERS:
        with pytest.raises(Exception, match="disagree|Not equal"):
            assert_runs_equal(text, peer.text, nans=(False,))
    elif not peer.failure:
        assert_runs_equal(text, peer.text, nans=(False,))


def test_groups_as_axes_of_the_mesh() -> None:
    text = """module {
      sdy.mesh @"my mesh" = <["x"=4, "y"=2]>
      func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@"my mesh", [{"x"}, {"y"}]>})
          -> (tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@"my mesh", [{"x":(1)2}, {}]>}) {
        %0 = sdy.all_gather [{"x":(2)2}, {"y"}] %a out_sharding=<@"my mesh", [{"x":(1)2}, {}]> : tensor<8x16xf32>
        return %0 : tensor<8x16xf32>
      }
    }"""
    local = shardy.transform(text, "convert-global-to-local{enable-rgv3=true}")
    assert '<mesh = @"my mesh", axes = [#sdy<axis_ref"x":(2)2>, #sdy<axis_ref"y">]>' in local
    listed = shardy.transform(text, "convert-global-to-local")
    assert "dense<[[0, 1, 2, 3], [4, 5, 6, 7]]>" in listed


def test_channels_are_new_ones() -> None:
    text = """module {
      sdy.mesh @mesh = <["x"=4, "y"=2]>
      func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) -> tensor<8x16xf32> {
        %0 = "stablehlo.collective_permute"(%a) <{source_target_pairs = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>,
          channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>}>
          {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"x"}, {}]>]>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
        %1 = sdy.all_gather [{"x"}, {}] %0 out_sharding=<@mesh, [{}, {}]> : tensor<8x16xf32>
        %2 = sdy.all_gather [{"x"}, {}] %a out_sharding=<@mesh, [{}, {}]> : tensor<8x16xf32>
        %3 = stablehlo.add %1, %2 : tensor<8x16xf32>
        return %3 : tensor<8x16xf32>
      }
    }"""
    local = shardy.transform(text, "convert-global-to-local")
    assert [local.count(f"handle = {i}, ") for i in range(1, 6)] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("axes", ['{"x"}, {}', '{}, {"x"}'])
def test_on_the_interpreter(axes: str) -> None:
    """A thread per device is what the interpreter needs, and two are everywhere."""
    text = f"""module {{
      sdy.mesh @mesh = <["x"=2]>
      func.func @main(%a: tensor<4x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{axes}]>}})
          -> (tensor<4x4xf32> {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}}) {{
        %0 = sdy.all_gather [{axes}] %a out_sharding=<@mesh, [{{}}, {{}}]> : tensor<4x4xf32>
        %1 = sdy.all_slice [{{"x"}}, {{}}] %0 out_sharding=<@mesh, [{{"x"}}, {{}}]> : tensor<4x4xf32>
        %2 = sdy.all_to_all [{{"x"}}: 0->1] %1 out_sharding=<@mesh, [{{}}, {{"x"}}]> : tensor<4x4xf32>
        %3 = stablehlo.dot_general %2, %1, contracting_dims = [1] x [0]
          {{sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{{}}, {{}}]>]>}}
          : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
        %4 = sdy.reduce_scatter [{{"x"}}, {{}}] %3 out_sharding=<@mesh, [{{"x"}}, {{}}]> : tensor<4x4xf32>
        return %4 : tensor<4x4xf32>
      }}
    }}"""
    if not interpreter_runs(Boundary(text)):
        pytest.skip("one thread")
    assert_runs_equal(text, shardy.transform(text, "convert-global-to-local"))
