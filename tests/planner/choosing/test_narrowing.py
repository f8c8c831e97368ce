"""Tactics on ends: in order, never leaving none, with a record of what they did."""

import pytest

from eggshard.errors import MeshError, ShardingError
from eggshard.planner.choosing.ends import Ends
from eggshard.planner.choosing.narrowing import End, Narrowing, Restriction, Tactic, dims_of
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.spmd.boundaries import even_placements

MESH = Mesh({"x": 4, "y": 2})
W, B = End("args[0]['w']", TensorType((8, 8), "f32"), True), End("args[0]['b']", TensorType((3,), "f32"), True)
OUT = End("result[1]", TensorType((8,), "f32"))


def ends(*of, results=()):
    placed = [[even_placements(MESH, end.type) for end in described] for described in (of, results)]
    return Ends(tuple(placed[0]), (*placed[0], *placed[1]), {o: o for o in range(len(of))}, tuple(range(len(of))))


def along(axis, dim):
    return Tactic(f"along {axis}", lambda described, _: [
        Restriction(end, lambda dims: axis in dims[dim], f"sharded along {axis}") for end in described])


def narrowed(*tactics):
    narrowing = Narrowing(tactics, [W, B], [None, None, OUT])
    return narrowing, narrowing.narrowed(ends(W, B, results=[OUT]), MESH)


def test_each_tactic_leaves_what_it_asks_for():
    narrowing, found = narrowed(along("x", 0), along("y", -1))
    assert [dims_of(p, MESH) for p in found.inputs[0]] == [(("x",), ("y",))]
    assert found.outputs[0] is found.inputs[0] and [dims_of(p, MESH) for p in found.outputs[2]] == [(("x", "y"),)]
    assert narrowing.by == {"args[0]['w']": ("along x", "along y"), "result[1]": ("along x", "along y")}


def test_what_would_have_no_placement_stays_as_it_was():
    narrowing, found = narrowed(along("x", 0), along("x", -1))
    assert found.inputs[1] == [*even_placements(MESH, B.type)]
    assert [dims_of(p, MESH) for p in found.inputs[0]] == [(("x",), ()), (("x", "y"), ()), (("x",), ("y",))]
    first, second = narrowing.notes
    assert first == ("tactic along x left args[0]['b'] (tensor<3xf32>) as before: none of the placements left is "
                     "sharded along x")
    assert "left args[0]['w'] (tensor<8x8xf32>), args[0]['b']" in second


def test_a_note_names_some_of_many():
    many = [End(f"args[{i}]", B.type) for i in range(5)]
    narrowing = Narrowing([along("x", 0)], many, [None] * 5)
    narrowing.narrowed(ends(*many), MESH)
    assert "args[2] (tensor<3xf32>) and 2 more as before" in narrowing.notes[0]


def test_leaves_may_be_spared():
    narrowing, found = narrowed(along("x", 0).without(["args[0]['w']", "args[0]['b']"]))
    assert not narrowing.notes and [*narrowing.by] == ["result[1]"]
    assert found.inputs[0] == [*even_placements(MESH, W.type)]


@pytest.mark.parametrize("kind", [ShardingError, MeshError])
def test_errors_name_the_tactic(kind):
    def fail(*_):
        raise kind("it does not fit")

    with pytest.raises(kind, match="tactic odd: it does not fit"):
        narrowed(Tactic("odd", fail))


def test_what_is_to_be_settled_is_asked_of_each_tactic():
    final = along("y", 0)

    class Settling(Tactic):
        def settled(self, at, mesh):
            return None if at[W][0] == ("y",) else final

    settling = Settling("settling", lambda *_: [])
    narrowing = Narrowing([along("x", 0), settling], [W], [None])
    w, *_ = (p for p in even_placements(MESH, W.type) if dims_of(p, MESH)[0] == ("x",))
    settled = narrowing.settled([w], [w], MESH)
    assert settled is not None and settled[1] is final and settled[0] is narrowing.tactics[0]
    w, *_ = (p for p in even_placements(MESH, W.type) if dims_of(p, MESH)[0] == ("y",))
    assert narrowing.settled([w], [w], MESH) is None
