from __future__ import annotations

import random
from itertools import islice

import pytest
from bench.lower_bound import State, best_sequence_bytes, shardings
from tests.shardy.reshards.random_reshards import MESHES, random_cuts, random_dims, random_shape

from eggshard.program.axes import AxisRef
from eggshard.program.mesh import Mesh
from eggshard.shardy.reshards.collectives.greedy import greedy_moves
from eggshard.shardy.reshards.collectives.kinds import Move
from eggshard.shardy.reshards.collectives.planned import MOST_STATES, Reshard, planned_moves, price
from eggshard.shardy.wire_bytes import Dims, WireBytes

CASES = ((Mesh({"x": 2, "y": 2, "z": 2}), (16, 16)), (Mesh({"x": 2, "y": 3, "z": 2}), (72, 72)))


def dims(state: State) -> Dims:
    return tuple(tuple(AxisRef(axis) for axis in axes) for axes in state)


def greedy(reshard: Reshard) -> list[Move] | None:
    moves = greedy_moves(reshard.shape, reshard.mesh.axes, reshard.source, reshard.target, reshard.reordered)
    return None if moves is None else reshard.fused(moves)


def checked(reshard: Reshard, moves: list[Move]) -> WireBytes:
    """The price of moves that lead to the target, each one op that verifies."""
    at = reshard.source
    for move in moves:
        assert move.follows(at, reshard.mesh.axes), (reshard, move)
        at = move.after
    assert at == reshard.target
    return price(reshard, moves)


def assert_never_dearer(reshard: Reshard) -> tuple[WireBytes, WireBytes]:
    """Shardy's price, and ours."""
    stages = greedy(reshard)
    assert stages is not None
    peer, ours = checked(reshard, stages), checked(reshard, planned_moves(reshard, stages))
    assert ours.busiest <= peer.busiest + 1e-3 and ours.average <= peer.average + 1e-3, reshard
    return peer, ours


def sweep(mesh: Mesh, shape: tuple[int, int], step: int) -> tuple[WireBytes, WireBytes]:
    """All pairs of shardings by whole axes (every so many of them): Shardy's bytes and ours in all."""
    states = list(shardings(mesh.axes, shape))
    pairs = ((a, b) for a in states for b in states if a != b)
    totals = WireBytes(), WireBytes()
    for a, b in islice(pairs, 0, None, step):
        found = assert_never_dearer(Reshard(shape, 4, mesh, mesh, dims(a), dims(b)))
        totals = totals[0].plus(found[0]), totals[1].plus(found[1])
    return totals


@pytest.mark.parametrize(("mesh", "shape"), CASES)
def test_never_dearer_than_shardys_stages(mesh: Mesh, shape: tuple[int, int]) -> None:
    peer, ours = sweep(mesh, shape, 17)
    assert ours.busiest < peer.busiest and ours.average < peer.average and ours.collectives <= peer.collectives


@pytest.mark.slow
@pytest.mark.parametrize(("mesh", "shape", "elements"), [(*CASES[0], 111_072), (*CASES[1], 2_131_056)])
def test_never_dearer_on_any_pair(mesh: Mesh, shape: tuple[int, int], elements: int) -> None:
    peer, ours = sweep(mesh, shape, 1)
    assert peer.average / 4 == pytest.approx(elements, rel=0.003)
    assert ours.average < peer.average and ours.busiest < peer.busiest and ours.collectives <= peer.collectives


@pytest.mark.parametrize(("mesh", "shape"), CASES)
def test_alone_the_plan_is_the_best_sequence_of_collectives(mesh: Mesh, shape: tuple[int, int]) -> None:
    """An independent search over shardings by whole axes finds no cheaper one."""
    states = list(shardings(mesh.axes, shape))
    for source in states[::16]:
        best = best_sequence_bytes(mesh.axes, shape, source)
        for target in states[::3]:
            reshard = Reshard(shape, 4, mesh, mesh, dims(source), dims(target))
            assert checked(reshard, planned_moves(reshard, None)).busiest == pytest.approx(best[target])


@pytest.mark.parametrize(("case", "source", "target", "peer", "ours"), [
    (0, ((), ("x",)), ((), ("y", "z")), 48, 32),
    (1, ((), ("x",)), ((), ("z", "y", "x")), 360, 216),
    (1, (("x", "y"), ()), ((), ("y", "z", "x")), 1080, 576),
])
def test_where_stages_are_dearer(case: int, source: State, target: State, peer: int, ours: int) -> None:
    """Elements per device on average, of the pairs that docs/shardy.md shows."""
    mesh, shape = CASES[case]
    found = assert_never_dearer(Reshard(shape, 4, mesh, mesh, dims(source), dims(target)))
    assert (found[0].average / 4, found[1].average / 4) == (peer, ours)


@pytest.mark.parametrize("seed", range(12))
def test_sub_axes_and_uneven_shapes(seed: int) -> None:
    draw = random.Random(seed)
    sizes = draw.choice(MESHES)
    mesh, rank = Mesh(sizes), draw.choice([1, 2, 3, 4])
    cuts = random_cuts(draw, sizes)
    for _ in range(6):
        reshard = Reshard(
            random_shape(draw, sizes, rank), 4, mesh, mesh, random_dims(draw, sizes, rank, cuts),
            random_dims(draw, sizes, rank, cuts))
        if greedy(reshard) is not None:
            assert_never_dearer(reshard)


def test_a_space_too_large_to_search_leaves_shardys_stages() -> None:
    mesh = Mesh({name: 4 for name in "uvwxyz"})
    whole = [AxisRef(name) for name in mesh.axes]
    source, target = ((*whole[:3],), (*whole[3:],)), ((*whole[5:2:-1],), (*whole[2::-1],))
    reshard = Reshard((4096, 4096), 4, mesh, mesh, source, target)
    stages = greedy(reshard)
    assert stages is not None and MOST_STATES < 10**5
    assert planned_moves(reshard, stages) == stages


def test_large_meshes_are_searched_as_far_as_that_is_quick() -> None:
    mesh = Mesh({"x": 512, "y": 256})
    x, y = AxisRef("x"), AxisRef("y")
    reshard = Reshard((1 << 18, 1 << 18), 4, mesh, mesh, ((), (x,)), ((), (y, x)))
    assert_never_dearer(reshard)


def test_gathering_all_is_always_possible() -> None:
    """Sub-axes that no refinement of the mesh has."""
    mesh = Mesh({"x": 6})
    reshard = Reshard((12, 12), 4, mesh, mesh, ((AxisRef("x", 1, 2),), ()), ((), (AxisRef("x", 1, 3),)))
    assert greedy(reshard) is None
    assert [move.kind for move in planned_moves(reshard, None)] == ["all_gather", "all_slice"]
