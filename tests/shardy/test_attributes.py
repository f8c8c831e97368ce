"""What jaxlib prints of Shardy's attributes is read, and written back to the letter."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st
from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir

from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import (
    axis_list_text,
    axis_lists_text,
    exchanges_text,
    per_value_text,
    read_all_to_all,
    read_axis_list,
    read_axis_lists,
    read_per_value,
)

#: Axes that may stand together: whole ones and parts, of a mesh x=8, y=4, "a b"=2, z=6.
AXES = ('"x":(1)2', '"x":(4)2', '"y"', '"a b"', '"z":(1)2', '"z":(2)3')
MESHES = ("@mesh", '@"odd mesh"', 'mesh<["x"=8, "y"=4, "a b"=2, "z"=6]>',
          'mesh<["a b"=2], device_ids=[1, 0]>', "mesh<[], device_ids=[3]>")


def listed(axes: list[str]) -> str:
    return f"{{{', '.join(axes)}}}"


@st.composite
def shardings(draw: st.DrawFn) -> str:
    """A sharding's body; every axis is used at most once."""
    mesh = draw(st.sampled_from(MESHES))
    if "[]" in mesh:
        return f"<{mesh}, []>"
    axes = list(draw(st.permutations(AXES)))
    dims = []
    for _ in range(draw(st.integers(0, 3))):
        taken = [axes.pop() for _ in range(draw(st.integers(0, min(2, len(axes)))))]
        if taken in (['"z":(1)2', '"z":(2)3'],):
            taken = taken[:1]
        open_ = draw(st.booleans())
        priority = draw(st.sampled_from(("", "p0", "p2"))) if taken or open_ else ""
        dims.append(listed(taken + ["?"] * open_) + priority)
    sets = ""
    for name in ("replicated", "unreduced"):
        if axes and draw(st.booleans()) and (axis := axes.pop()).startswith('"y'):
            sets += f", {name}={{{axis}}}"
    return f"<{mesh}, [{', '.join(dims)}]{sets}>"


def printed(text: str) -> str:
    with jax_mlir.make_ir_context():
        return str(ir.Attribute.parse(text))


@settings(max_examples=200, deadline=None)
@given(shardings())
def test_shardings(body: str) -> None:
    theirs = printed(f"#sdy.sharding{body}")
    assert str(TensorSharding.parse(theirs)) == theirs


@settings(max_examples=50, deadline=None)
@given(st.lists(shardings(), max_size=3))
def test_shardings_of_results(bodies: list[str]) -> None:
    theirs = printed(f"#sdy.sharding_per_value<[{', '.join(bodies)}]>")
    assert per_value_text(read_per_value(theirs)) == theirs


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.sampled_from(AXES), max_size=2, unique=True).map(sorted), min_size=1, max_size=3))
def test_axes_of_collectives(dims: list[list[str]]) -> None:
    single = printed(f"#sdy<axis_ref_list{listed(dims[0])}>")
    assert axis_list_text(read_axis_list(single)) == single
    several = printed(f"#sdy<list_of_axis_ref_lists[{', '.join(map(listed, dims))}]>")
    assert axis_lists_text(read_axis_lists(several)) == several
    moves = ", ".join(f"{listed(axes)}: {i}->{i + 1}" for i, axes in enumerate(dims) if axes)
    exchanged = printed(f"#sdy<all_to_all_param_list[{moves}]>")
    assert exchanges_text(read_all_to_all(exchanged)) == exchanged
