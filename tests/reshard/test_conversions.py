"""Conversions by one collective: which there are, and that each moves the data where it says."""

import itertools

import numpy as np
import pytest
from tests.reshard.reshards import all_placements, check_steps, placed

from eggshard.errors import ShardingError
from eggshard.program.mesh import Mesh
from eggshard.program.placement import held
from eggshard.program.types import TensorType
from eggshard.reshard.conversions import Kind, changed_axes, convert, permute_pairs
from eggshard.reshard.states import StateSpace, all_states, axis_lists
from eggshard.steps.steps import AllGather, AllReduce, AllToAll, CollectivePermute, ReduceScatter, Resize, Slice

CUBE = Mesh({"x": 2, "y": 2, "z": 2})
GRID = Mesh({"x": 4, "y": 2}, device_ids=(3, 1, 0, 2, 7, 6, 4, 5))
SIX = Mesh({"x": 2, "y": 3})
PARTIAL = (((), ""), (("x",), "add"), (("y",), "add"), (("x", "y"), "add"))


def kind_by_definition(mesh, p, q):
    """The one-collective conversion between two placements, from what each collective does to axes and tiles."""
    def starts(a, b):
        return b[: len(a)] == a

    def nests(coarse, fine):
        coarse_count, fine_count = mesh.count(coarse.axes), mesh.count(fine.axes)
        return starts(coarse.axes, fine.axes) and (
            coarse_count == 1 or coarse.tile * coarse_count == fine.tile * fine_count
        )

    pairs = list(zip(p.dims, q.dims, strict=True))
    finer, coarser = all(nests(a, b) for a, b in pairs), all(nests(b, a) for a, b in pairs)
    if p == q:
        return Kind.NONE
    if (p.partial, p.monoid) != (q.partial, q.monoid):
        if {*p.partial} >= {*q.partial} and q.monoid in ("", p.monoid):
            combined = {*p.partial} - {*q.partial}
            added = {*q.sharded_axes} - {*p.sharded_axes}
            if p.dims == q.dims:
                return Kind.ALL_REDUCE
            return Kind.REDUCE_SCATTER if finer and added == combined else Kind.NONE
        fits = {*p.partial} <= {*q.partial} and p.monoid in ("", q.monoid) and p.dims == q.dims
        return Kind.KEEP_FIRST if fits else Kind.NONE
    if all(mesh.count(a.axes) == mesh.count(b.axes) for a, b in pairs):
        return Kind.PERMUTE
    if finer:
        return Kind.SLICE
    if coarser:
        return Kind.ALL_GATHER
    if {*p.sharded_axes} == {*q.sharded_axes} and all(nests(a, b) or nests(b, a) for a, b in pairs):
        return Kind.ALL_TO_ALL
    return Kind.NONE


@pytest.mark.parametrize(
    ("mesh", "shape", "partials"),
    [
        (CUBE, (16, 8), PARTIAL[:1]),
        (GRID, (8, 16, 8), PARTIAL),
        (SIX, (10, 7), PARTIAL),
        (SIX, (11, 36), PARTIAL[:2]),
        (CUBE, (1000, 3), PARTIAL[:1]),
    ],
)
def test_every_conversion_is_recognised_and_correct(mesh, shape, partials):
    rng = np.random.default_rng(0)
    states = all_states((axis_lists(tuple(mesh.axes)),) * len(shape), partials)
    kinds = StateSpace(mesh, shape, states, 16).kind
    placements = all_placements(mesh, shape, partials)
    type_ = TensorType(shape, "f32")
    for i, j in itertools.product(range(len(states)), repeat=2):
        p, q = placements[i], placements[j]
        kind = kind_by_definition(mesh, p, q)
        assert kinds[i, j] == kind, (str(p), str(q))
        if kind:
            steps = convert(mesh, kind, p, q)
            assert steps[-1][1] == q
            assert sum(not isinstance(action, Resize) for action, _ in steps) == 1
            if rng.random() < 0.2:
                check_steps(mesh, type_, p, q, steps, rng)


def test_actions_have_the_fewest_moves():
    def only(mesh, kind, shape, a, b):
        ((action, _),) = convert(mesh, kind, placed(mesh, shape, a), placed(mesh, shape, b))
        return action

    cube, square = (8, 8, 8), (8, 8)
    assert only(CUBE, Kind.SLICE, square, "x|", "xz|y") == Slice(((0, ("z",)), (1, ("y",))))
    assert only(CUBE, Kind.ALL_GATHER, square, "xzy|", "x|") == AllGather(((0, ("z", "y")),))
    assert only(CUBE, Kind.ALL_TO_ALL, cube, "x|y|z", "xyz||") == AllToAll(
        ((1, ("y",)), (2, ("z",))), ((0, ("y", "z")),)
    )
    assert only(CUBE, Kind.ALL_TO_ALL, square, "xyz|", "x|zy") == AllToAll(((0, ("y", "z")),), ((1, ("z", "y")),))
    assert only(CUBE, Kind.ALL_REDUCE, square, "z|+xy", "z|+y") == AllReduce(("x",), "add")
    assert only(CUBE, Kind.REDUCE_SCATTER, square, "z|+xy", "zy|x") == ReduceScatter(((0, ("y",)), (1, ("x",))), "add")


def test_uneven_dimensions_are_padded_before_and_cut_after():
    p, q = placed(SIX, (10, 7), "|y"), placed(SIX, (10, 7), "y|")
    steps = convert(SIX, Kind.ALL_TO_ALL, p, q)
    assert [type(a).__name__ for a, _ in steps] == ["Resize", "AllToAll", "Resize"]
    assert [after.local_shape for _, after in steps] == [(12, 3), (4, 9), (4, 7)]
    with pytest.raises(ShardingError, match="minor axes"):
        convert(SIX, Kind.SLICE, placed(SIX, (10, 7), "x|"), placed(SIX, (10, 7), "yx|"))


@pytest.mark.parametrize("mesh", [CUBE, GRID, SIX])
def test_permutes_keep_what_is_there_and_cross_only_changed_axes(mesh):
    shape = (36, 72)
    for p, q in itertools.permutations(all_placements(mesh, shape), 2):
        if [mesh.count(d.axes) for d in p.dims] != [mesh.count(d.axes) for d in q.dims]:
            continue
        pairs = permute_pairs(mesh, p, q)
        assert sorted(s for s, _ in pairs) == sorted(t for _, t in pairs) == list(range(mesh.size))
        have, need = held(mesh, shape, p), held(mesh, shape, q)
        changed = changed_axes(mesh, p, q)
        for s, t in pairs:
            assert (have[s] == need[t]).all()
            assert (s == t) == (have[t] == need[t]).all()
            assert all(mesh.coordinates[a][s] == mesh.coordinates[a][t] for a in mesh.axes if a not in changed)
        action = CollectivePermute(pairs, changed)
        assert action.received(mesh, (p.local_type(TensorType(shape, "f32")),)).max() == 4 * np.prod(p.local_shape)


def test_changed_axes_are_those_whose_stride_changes():
    shape = (64, 64)
    assert changed_axes(CUBE, placed(CUBE, shape, "xyz|"), placed(CUBE, shape, "yxz|")) == ("x", "y")
    assert changed_axes(CUBE, placed(CUBE, shape, "x|y"), placed(CUBE, shape, "xy|")) == ("y",)
    assert changed_axes(CUBE, placed(CUBE, shape, "x|+z"), placed(CUBE, shape, "y|+z")) == ("x", "y")
