"""Meshes and shardings are read as modules state them, GSPMD's strings included."""

from __future__ import annotations

import pytest
from tests.frontends.stablehlo.module_texts import HEADER, identity, on_mesh

from eggshard.errors import ProgramError
from eggshard.frontends import load
from eggshard.ops.module_text import program_text
from eggshard.program.mesh import Mesh


def test_meshes() -> None:
    assert load(identity(header="")).mesh == Mesh({})
    permuted = load(identity(header='sdy.mesh @m = <["x"=2, "y"=2], device_ids=[0, 2, 1, 3]>\n'))
    assert permuted.mesh.device_ids == (0, 2, 1, 3)
    twice = HEADER + 'sdy.mesh @other = <["x"=4, "y"=2]>\n'
    twice += "sdy.mesh @empty = <[]>\nsdy.mesh @one = <[], device_ids=[3]>\n"
    for name, want in (("other", '[{"x"}, {}]'), ("empty", "[{}, {}]"), ("one", "<mesh<[], device_ids=[3]>, []>")):
        dims = {"other": '[{"x"}, {}]', "empty": "[{}, {}]", "one": "[]"}[name]
        program = load(identity(f"sdy.sharding = #sdy.sharding<@{name}, {dims}>", twice))
        assert str(program.input_shardings[0]) == want and program.mesh == Mesh({"x": 4, "y": 2})
    inlined = load(identity('sdy.sharding = #sdy.sharding<mesh<["a"=2]>, [{"a"}, {}]>', ""))
    assert inlined.mesh == Mesh({"a": 2})


def test_sub_axes_refine_the_mesh() -> None:
    program = load(on_mesh('[{"x":(1)2, "y"}, {"x":(2)2}]'))
    assert program.mesh == Mesh({"x:(1)2": 2, "x:(2)2": 2, "y": 2})
    assert str(program.input_shardings[0]) == '[{"x":(1)2, "y"}, {"x":(2)2}]'
    assert load(program_text(program)).input_shardings == program.input_shardings


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("{replicated}", "[{}, {}]"),
        ("{devices=[4,2]<=[8]}", '[{"x"}, {"y"}]'),
        ("{devices=[2,4]<=[4,2]T(1,0)}", '[{"y"}, {"x"}]'),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", '[{"x":(1)2}, {}]'),
        ("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}", '[{}, {"y"}]'),
        ("{devices=[8,1]0,2,4,6,1,3,5,7}", '[{"y", "x"}, {}]'),
        ("{maximal device=3}", "<mesh<[], device_ids=[3]>, []>"),
    ],
)
def test_gspmd_strings(text: str, want: str) -> None:
    assert str(load(identity(f'mhlo.sharding = "{text}"')).input_shardings[0]) == want


def test_gspmd_strings_without_a_mesh() -> None:
    program = load(identity('mhlo.sharding = "{devices=[2,4]<=[4,2]T(1,0)}"', ""))
    assert program.mesh == Mesh({"devices:(1)4": 4, "devices:(4)2": 2})
    assert str(program.input_shardings[0]) == '[{"devices":(4)2}, {"devices":(1)4}]'


def test_devices_of_gspmd_strings_without_a_mesh_are_in_any_order() -> None:
    program = load(identity('mhlo.sharding = "{devices=[2,2]1,0,3,2}"', ""))
    assert program.mesh.device_ids == (1, 0, 3, 2)
    assert str(program.input_shardings[0]) == '[{"devices":(1)2}, {"devices":(2)2}]'


@pytest.mark.parametrize("listed", ["0,4,1,5", "0,0,1,1"])
def test_gspmd_strings_name_every_device_once(listed: str) -> None:
    with pytest.raises(ProgramError, match=r"leaves out devices of 0\.\.3"):
        load(identity(f'mhlo.sharding = "{{devices=[2,2]{listed}}}"', ""))


def test_gspmd_groups_shard_alike() -> None:
    call = 'stablehlo.custom_call @Sharding({}) {{mhlo.sharding = "{{unknown shard_{} 3}}"}} : ({t}) -> {t}'
    t = "tensor<8x8xf32>"
    program = load(f"""func.func @main(%a: {t}) -> ({t}, {t}) {{
      %0 = {call.format("%a", "as", t=t)}
      %1 = stablehlo.negate %0 : {t}
      %2 = {call.format("%1", "as", t=t)}
      %3 = {call.format("%2", "like", t=t)}
      return %2, %3 : {t}, {t}
    }}""")
    assert [op.name for op in program.region.ops] == ["sharding_group", "negate", "sharding_group"]
    assert {op.attributes["group_id"] for op in program.region.ops if op.name == "sharding_group"} == {3}
