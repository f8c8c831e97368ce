"""Stated shardings: text, validity, specs, and the placements they mean."""

from __future__ import annotations

import jax
import pytest
from hypothesis import given, strategies as st
from jax.sharding import PartitionSpec as P
from tests.frontends.jax_programs import mesh, sharded

from eggshard.errors import ShardingError
from eggshard.program.axes import AxisRef
from eggshard.program.cursor import read_mesh
from eggshard.program.mesh import Mesh
from eggshard.program.placement import held, place
from eggshard.program.sharding import DimSharding, Sharding, atoms, gather_cuts, mesh_text, read_sharding, whole_mesh
from eggshard.program.types import TensorType

MESH = Mesh({"x": 8, "y": 2, "z": 3})


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "[{}, {?}]",
        '[{"x", "y"}, {"z", ?}]',
        '[{"x":(1)2, ?}p1, {?}p0, {}]',
        '[{"x"}], replicated={"y"}',
        '[{"x"}], unreduced={"y", "z"}',
        '[{"x":(2)4}], replicated={"x":(1)2}, unreduced={"y"}',
        '[{"x"}], unreduced=max{"y"}',
        "<mesh<[], device_ids=[3]>, []>",
        '[{"a b\\22c"}]',
    ],
)
def test_text_round_trip(text: str) -> None:
    sharding = Sharding.parse(text)
    assert str(sharding) == text
    assert Sharding.parse(str(sharding)) == sharding == Sharding.parse(sharding.text())
    assert Sharding.parse(f"#sdy.sharding{sharding.text()}") == sharding


def test_spaces_order_and_meshes_of_text() -> None:
    want = '[{"x", ?}, {}], replicated={"y"}, unreduced={"z"}'
    loose = '<@"my mesh",[ {"x",?} ,{}], unreduced = { "z" } , replicated={"y"}>'
    assert read_sharding(loose) == ("my mesh", Sharding.parse(want)) and str(Sharding.parse(loose)) == want
    assert read_sharding('<mesh<["a"=2, "b"=3]>, [{"b"}]>')[0] == Mesh({"a": 2, "b": 3})
    assert read_mesh('#sdy.mesh<["x"=2, "y"=2], device_ids=[3, 2, 1, 0]>') == Mesh({"x": 2, "y": 2}, [3, 2, 1, 0])
    assert read_mesh("#sdy.mesh<[], device_ids=[5]>") == 5 and read_mesh("#sdy.mesh<[]>") == Mesh({})
    assert read_mesh(f"#sdy.mesh{mesh_text(MESH.refined({'x': [2]}))}") == MESH


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('[{"x"}', "']'|','"),
        ('[{?, "x"}]', "'}'"),
        ('[{"x":2}]', "'\\('"),
        ("[{x}]", "a quoted name"),
        ('[{"x"}], unreduced={"y"}, unreduced={"z"}', "each once"),
        ('[{"x"}], other={"y"}', "'replicated' or 'unreduced'"),
        ('<@m, [{"x"}]', "'>'"),
        ('[{"x"}] more', "nothing more"),
    ],
)
def test_malformed_text_says_what_is_expected(text: str, wanted: str) -> None:
    with pytest.raises(ShardingError, match=f"malformed sharding.*({wanted}).*expected"):
        Sharding.parse(text)


names = st.sampled_from(sorted(MESH.axes))
refs = names.map(AxisRef) | st.sampled_from([AxisRef("x", 1, 2), AxisRef("x", 2, 4), AxisRef("x", 4, 2)])
dims = st.builds(DimSharding, st.lists(refs, max_size=3).map(tuple), st.booleans(), st.none() | st.integers(0, 9))
shardings = st.builds(
    Sharding, st.lists(dims, max_size=4).map(tuple), st.lists(refs, max_size=2).map(tuple),
    st.lists(refs, min_size=1, max_size=2).map(tuple), st.sampled_from(["add", "max"]),
)  # fmt: skip


@given(shardings)
def test_any_sharding_round_trips(sharding: Sharding) -> None:
    assert Sharding.parse(str(sharding)) == sharding


@given(shardings)
def test_valid_shardings_place_and_come_back(sharding: Sharding) -> None:
    type_ = TensorType((48,) * len(sharding.dims), "f32")
    try:
        sharding.validate(MESH, type_)
        cuts = gather_cuts([sharding], MESH)
    except ShardingError:
        return
    refined = MESH.refined(cuts)
    placement = sharding.to_placement(refined, type_)
    back = Sharding.from_placement(placement, refined)
    want = sharding.canonical(MESH)
    assert [d.axes for d in back.dims] == [d.axes for d in want.dims]
    assert (back.unreduced, back.reduction) == (want.unreduced, want.reduction)
    assert back == back.closed() and Sharding.from_placement(placement, MESH) == back


def test_sub_axes_hold_what_shardy_says() -> None:
    """Reshape x = 8 to [2, 2, 2]; "x":(2)2 is the middle digit of the device's position."""
    mesh = Mesh({"x": 8})
    sharding = Sharding.parse('[{"x":(2)2}]')
    assert sharding.cuts(mesh) == {"x": {2, 4}}
    refined = mesh.refined(sharding.cuts(mesh))
    assert list(refined.axes) == ["x:(1)2", "x:(2)2", "x:(4)2"] and whole_mesh(refined) == mesh
    box = held(refined, (4,), sharding.to_placement(refined, TensorType((4,), "f32")))
    assert [tuple(row) for row in box[:, 0]] == [((d // 2 % 2) * 2, (d // 2 % 2) * 2 + 2) for d in range(8)]


def test_whole_axes_spread_over_their_parts() -> None:
    refined = Mesh({"x": 8, "y": 2}).refined({"x": [2]})
    assert atoms([AxisRef("x")], refined) == ("x:(1)2", "x:(2)4") and atoms([AxisRef("y")], refined) == ("y",)
    assert atoms([AxisRef("x", 2, 4)], refined) == ("x:(2)4",)
    for wrong in (AxisRef("x", 1, 4), AxisRef("x", 4, 2), AxisRef("q")):
        with pytest.raises(ShardingError, match="not made of axes"):
            atoms([wrong], refined)
    type_ = TensorType((16, 3), "f32")
    placement = Sharding.parse('[{"y", "x"}, {}]').to_placement(refined, type_)
    assert placement == place(refined, (16, 3), (("y", "x:(1)2", "x:(2)4"), ()))


def test_normal_form() -> None:
    assert str(Sharding.parse('[{"x":(1)2, "x":(2)4}, {}]').canonical(MESH)) == '[{"x"}, {}]'
    assert str(Sharding.parse('[{"x":(1)2, "x":(2)2}]').canonical(MESH)) == '[{"x":(1)4}]'
    assert str(Sharding.parse('[{"x":(2)2, "x":(1)2}]').canonical(MESH)) == '[{"x":(2)2, "x":(1)2}]'
    assert str(Sharding.parse('[], unreduced={"z", "y"}').canonical(MESH)) == '[], unreduced={"y", "z"}'
    assert str(Sharding.parse('[{"x", ?}p2, {?}]').closed()) == '[{"x"}, {}]'


def test_specs() -> None:
    assert str(Sharding.of(("x", None), 2, MESH)) == '[{"x"}, {}]'
    assert str(Sharding.of((("y", "x"), ()), 3, MESH)) == '[{"y", "x"}, {}, {}]'
    assert str(Sharding.of(["x:(1)2", AxisRef("y")], 2, MESH)) == '[{"x":(1)2}, {"y"}]'
    assert str(Sharding.of('<@m, [{"x", ?}]>', 1, MESH)) == '[{"x", ?}]'
    assert Sharding.of(Sharding(), 0, MESH) == Sharding()
    with pytest.raises(ShardingError, match="has 2 entries for a tensor of rank 1"):
        Sharding.of(("x", "y"), 1, MESH)
    with pytest.raises(ShardingError, match="cannot read a sharding from 3"):
        Sharding.of(3, 1, MESH)
    with pytest.raises(ShardingError, match="entry 3 of sharding"):
        Sharding.of((3,), 1, MESH)


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ('[{"q"}]', (8,), 'axis "q" is unknown; the mesh has x=8, y=2, z=3'),
        ('[{"x"}, {"x"}]', (8, 8), 'axis "x" is used twice'),
        ('[{"x"}], replicated={"x"}', (8,), 'axis "x" is used twice'),
        ('[{"x":(1)4}, {"x":(2)4}]', (8, 8), "overlaps another sub-axis"),
        ('[{"x":(1)2}, {"x"}]', (8, 8), "used twice"),
        ('[{"x":(1)3}]', (8,), "must divide 8"),
        ('[{"x":(4)4}]', (8,), "must divide 8"),
        ('[{"x":(2)1}]', (8,), "a size above 1"),
        ('[{"x"}]', (8, 8), "has 1 dimensions, the tensor has 2"),
        ("[{}p1]", (8,), "priority p1 of dimension 0"),
        ("<mesh<[], device_ids=[99]>, []>", (8,), "device 99 is not on the mesh, which has 48 devices"),
    ],
)
def test_validate(text: str, shape: tuple[int, ...], message: str) -> None:
    type_ = TensorType(shape, "f32")
    with pytest.raises(ShardingError, match="(?s)of weights .*" + message):
        Sharding.parse(text).validate(MESH, type_, "weights")


def test_dimensions_of_size_zero_may_be_sharded_as_in_jax() -> None:
    sharding, type_ = Sharding.parse('[{"x"}, {"y"}]'), TensorType((0, 8), "f32")
    sharding.validate(MESH, type_, "weights")
    assert [dim.axes for dim in sharding.to_placement(MESH, type_).dims] == [("x",), ("y",)]


def test_sub_axes_that_do_not_fit_together() -> None:
    mesh = Mesh({"x": 12})
    with pytest.raises(ShardingError, match="do not fit together: 2 does not divide 3"):
        Sharding.parse('[{"x":(1)2}, {"x":(3)4}]').validate(mesh, TensorType((12, 12), "f32"))
    with pytest.raises(ShardingError, match="do not fit together"):
        gather_cuts([Sharding.parse('[{"x":(1)2}]'), Sharding.parse('[{"x":(1)3}]')], mesh)


def test_partial_sums_and_single_devices() -> None:
    sharding = Sharding.parse('[{"x"}], unreduced=max{"y"}')
    placement = sharding.to_placement(MESH, TensorType((8,), "f32"))
    assert (placement.partial, placement.monoid) == (("y",), "max")
    assert Sharding.from_placement(placement, MESH) == sharding
    single = Sharding(device=2).to_placement(MESH, TensorType((8,), "f32"))
    assert single.local_shape == (8,) and not single.used_axes


def test_sharding_of_jax_objects() -> None:
    small = Mesh.of(mesh())
    assert str(Sharding.of(P("x", ("y",)), 3, small)) == '[{"x"}, {"y"}, {}]'
    assert str(Sharding.of(P(P.UNCONSTRAINED, None), 2, small)) == "[{?}, {}]"
    assert str(Sharding.of(P("x", unreduced={"y"}), 1, small)) == '[{"x"}], unreduced={"y"}'
    assert str(Sharding.of(sharded(("x", "y")), 2, small)) == '[{"x", "y"}, {}]'
    assert Sharding.of(jax.sharding.SingleDeviceSharding(jax.devices()[0]), 2, small).device == 0
    with pytest.raises(ShardingError, match="on a mesh"):
        Sharding.of(sharded("x"), 1, Mesh({"x": 2}))
