from __future__ import annotations

import json

import pytest
from tests.shardy.clean_up.features import ALL
from tests.shardy.clean_up.written import WRITTEN
from tests.shardy.differential import canonical
from tests.shardy.modules import random_module
from tests.shardy.peer import run_peer

from eggshard import shardy
from eggshard.errors import ProgramError
from eggshard.frontends.stablehlo.reading import read


def reduced(mesh: str, meshes: str = "") -> str:
    return f"""
      sdy.mesh @mesh = <["x"=4, "y"=2]>
      {meshes}
      func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
        %0 = "stablehlo.all_reduce"(%a) <{{replica_groups = #stablehlo.replica_group_mesh_axes<mesh = {mesh},
            axes = [#stablehlo.axis_ref<name = "y">]>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
            use_global_device_ids}}> ({{
        ^bb0(%b: tensor<f32>, %c: tensor<f32>):
          %1 = stablehlo.add %b, %c : tensor<f32>
          stablehlo.return %1 : tensor<f32>
        }}) : (tensor<8xf32>) -> tensor<8xf32>
        return %0 : tensor<8xf32>
      }}"""


def test_groups_of_collectives_name_meshes_too() -> None:
    """jaxlib removes the mesh and leaves its name in the groups, which does not verify."""
    written = 'mesh = #stablehlo.mesh<axes=[<name = "x", size = 4>, <name = "y", size = 2>]>'
    text = reduced("@mesh")
    assert run_peer(text, "sdy-inline-meshes").failure
    after = shardy.transform(text, "inline-meshes")
    assert written in after and "sdy.mesh" not in after
    assert "mesh = @mesh, axes" in shardy.transform(after, "lift-inlined-meshes")


def test_device_orders_in_groups_are_kept() -> None:
    """jaxlib forgets the order when it names the mesh, and names equal ones twice."""
    turned = 'sdy.mesh @turned = <["x"=4, "y"=2], device_ids=[1, 0, 2, 3, 4, 5, 6, 7]>'
    text = reduced("@turned", turned)
    after = shardy.transform(text, "inline-meshes")
    assert "device_ids=dense<[1, 0, 2, 3, 4, 5, 6, 7]>" in after
    lifted = shardy.transform(after, "lift-inlined-meshes")
    named = 'sdy.mesh @mesh = <["x"=4, "y"=2], device_ids=[1, 0, 2, 3, 4, 5, 6, 7]>'
    assert named in lifted and named not in run_peer(after, "sdy-lift-inlined-meshes").text
    again = after.replace("module {", f"module {{\n{turned}", 1)
    assert "mesh = @turned, axes" in shardy.transform(again, "lift-inlined-meshes")


def test_equal_meshes_get_the_first_name() -> None:
    after = shardy.transform(WRITTEN["names that need quotes"], "lift-inlined-meshes")
    assert after.count("sdy.mesh @") == 1 and "@same" not in after
    assert after.count('#sdy.sharding<@"a mesh"') == 2
    assert 'stablehlo.mesh = {axes = [{name = "an axis", size = 2 : i64}]}' in after


@pytest.mark.parametrize("seed", range(10))
def test_meshes_in_full_are_named_again(seed: int) -> None:
    text = random_module(seed, **ALL | dict(meshes=2, functions=2))
    there = shardy.transform(text, "inline-meshes")
    back = shardy.transform(there, "lift-inlined-meshes")
    assert shardy.transform(back, "inline-meshes") == there != canonical(text)


def test_parts_of_an_axis_join_where_one_of_size_one_goes() -> None:
    """jaxlib leaves them apart, which its own verifier refuses."""
    text = """
      sdy.mesh @mesh = <["x"=8, "one"=1]>
      func.func @main(%a: tensor<8xf32>
          {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2, "one", "x":(2)2, ?}p1]>}) -> tensor<8xf32> {
        return %a : tensor<8xf32>
      }"""
    assert run_peer(text, "sdy-remove-size-one-axes").failure
    assert '[{"x":(1)4, ?}p1]' in shardy.transform(text, "remove-size-one-axes")


@pytest.mark.parametrize("kind, op", [
    ("edges of a loop", "sdy.data_flow_edge"), ("edges of bodies", "sdy.manual_computation"),
    ("constraints, reshards and groups", "sdy.sharding_constraint"),
])  # fmt: skip
def test_what_is_nothing_without_its_mesh_is_refused(kind: str, op: str) -> None:
    with pytest.raises(ProgramError, match=f"{op} needs its mesh: .*convert-global-to-local"):
        shardy.transform(WRITTEN[kind], "drop-sharding-and-mesh")


def test_groups_are_listed_where_their_mesh_goes() -> None:
    """jaxlib's pass removes it and then refuses the module."""
    assert run_peer(reduced("@mesh"), "sdy-drop-sharding-and-mesh").failure
    after = shardy.transform(reduced("@mesh"), "drop-sharding-and-mesh")
    assert "mesh" not in after and "replica_groups = dense<" in after


@pytest.mark.parametrize("axes, groups", [
    ('#sdy<axis_ref"y">', "[[0, 1, 2, 3], [4, 5, 6, 7]]"),
    ('#sdy<axis_ref"y":(1)2>, #sdy<axis_ref"x">', "[[0, 4, 2, 6], [1, 5, 3, 7]]"),
    ('#stablehlo.axis_ref<name = "y", sub_axis_info = (2)2>', "[[0, 1], [2, 3], [4, 5], [6, 7]]"),
])  # fmt: skip
def test_groups_along_axes(axes: str, groups: str) -> None:
    """Of a mesh by name, and of one in full, whose axes StableHLO then writes itself."""
    text = f"""sdy.mesh @mesh = <["x"=2, "y"=4]>
      func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
        %0 = "stablehlo.all_reduce"(%a) <{{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [{axes}]>,
          use_global_device_ids}}> ({{
        ^bb0(%l: tensor<f32>, %r: tensor<f32>):
          %s = stablehlo.add %l, %r : tensor<f32>
          stablehlo.return %s : tensor<f32>
        }}) : (tensor<4xf32>) -> tensor<4xf32>
        return %0 : tensor<4xf32>
      }}"""
    assert f"replica_groups = dense<{groups}>" in shardy.transform(text, "drop-sharding-and-mesh")
    assert f"replica_groups = dense<{groups}>" in shardy.transform(text, "inline-meshes,drop-sharding-and-mesh")
    assert [list(group) for group in read(text).region.ops[0].attributes["replica_groups"]] == json.loads(groups)


def test_a_mesh_that_is_not_there_is_named() -> None:
    with pytest.raises(Exception, match="mesh"):
        shardy.transform("""
          func.func @main(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@nowhere, [{}]>}) -> tensor<8xf32> {
            return %a : tensor<8xf32>
          }""", "inline-meshes")
