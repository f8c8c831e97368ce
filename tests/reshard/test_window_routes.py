"""Routes from and to windows: run on simulated devices, priced as they run."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from eggshard.costmodel import WireBytes
from eggshard.costmodel.pricing import Pricer
from eggshard.errors import ShardingError
from eggshard.placement.windows import covers
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, place, replicated, tile_size
from eggshard.program.types import TensorType
from eggshard.reshard.window_routes import WindowRouter, home, price_of, rewindowed
from eggshard.simulate.simulator import run
from eggshard.simulate.window_simulation import gather_windows, scatter_windows
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import StepPlan

MESHES = (Mesh({"x": 4, "y": 2}), Mesh({"x": 2, "y": 2, "z": 2}), Mesh({"x": 8}), Mesh({"x": 3, "y": 2}))


def router(mesh: Mesh) -> WindowRouter:
    return WindowRouter(mesh, Pricer(WireBytes(), mesh), max_rounds=16)


def random_dim(rng: random.Random, mesh: Mesh, n: int, axes: tuple[str, ...]) -> Dim:
    tile = tile_size(n, mesh.count(axes), mesh.size)
    if not axes or rng.random() < 0.4:
        return Dim(axes, tile)
    low, high = -rng.randint(0, 3), rng.randint(0, 3)
    if rng.random() < 0.2:
        low, high = -low, -low
    return Dim(axes, tile, low, high, (low - rng.randint(0, 1), n + rng.randint(0, 4)) if rng.random() < 0.3 else None)


def random_windows(rng: random.Random, mesh: Mesh, shape: tuple[int, ...], spread: tuple[tuple[str, ...], ...]
                   ) -> Placement:
    return Placement(tuple(random_dim(rng, mesh, n, axes) for n, axes in zip(shape, spread, strict=True)))


def random_spread(rng: random.Random, mesh: Mesh, rank: int) -> tuple[tuple[str, ...], ...]:
    dims: list[tuple[str, ...]] = [()] * rank
    for axis in rng.sample(list(mesh.axes), len(mesh.axes)):
        if rng.random() < 0.8:
            d = rng.randrange(rank)
            dims[d] = (*dims[d], axis)
    return tuple(dims)


def whole(mesh: Mesh, shape: tuple[int, ...], placement: Placement) -> bool:
    return all(covers(n, mesh.count(d.axes), d) for n, d in zip(shape, placement.dims, strict=True))


def program_of(mesh: Mesh, type_: TensorType, source: Placement, steps: tuple) -> StepPlan:
    body = Assembler(mesh)
    values = (body.input(source.local_type(type_)),)
    for action, _ in steps:
        values = body.emit(action, values, ())
    return body.build(values)


def check(mesh: Mesh, shape: tuple[int, ...], source: Placement, target: Placement, steps: tuple) -> None:
    """Every device then holds what the target's windows say."""
    array = np.arange(1, math.prod(shape) + 1, dtype=np.int32).reshape(shape)
    shards = scatter_windows(mesh, array, source).copy()
    shards[mesh.index(source.partial) > 0] = 0
    (got,) = run(program_of(mesh, TensorType(shape, "i32"), source, steps), [shards])
    inside = scatter_windows(mesh, np.ones(shape, np.int32), target) == 1
    want = scatter_windows(mesh, array, target)
    np.testing.assert_array_equal(np.where(inside, got, 0), np.where(inside, want, 0))
    if whole(mesh, shape, target):
        np.testing.assert_array_equal(gather_windows(mesh, got, shape, target), array)


@pytest.mark.parametrize("seed", range(6))
def test_rewindowed(seed: int) -> None:
    rng = random.Random(seed)
    found = 0
    for _ in range(40):
        mesh = rng.choice(MESHES)
        shape = tuple(rng.randint(3, 17) for _ in range(rng.choice((1, 2, 2, 3))))
        spread = random_spread(rng, mesh, len(shape))
        source, target = (random_windows(rng, mesh, shape, spread) for _ in range(2))
        steps = rewindowed(mesh, shape, source, target)
        if steps is None:
            assert not whole(mesh, shape, source)
            continue
        check(mesh, shape, source, target, steps)
        assert (steps == ()) == (source == target)
        found += 1
    assert found > 20


@pytest.mark.parametrize("seed", range(6))
def test_routes(seed: int) -> None:
    """Between windows over any axes, sums on their way included; none only from windows that do not cover it."""
    rng = random.Random(seed)
    for _ in range(12):
        mesh = rng.choice(MESHES)
        shape = tuple(rng.randint(3, 13) for _ in range(2))
        type_ = TensorType(shape, "i32")
        source = random_windows(rng, mesh, shape, random_spread(rng, mesh, 2))
        target = random_windows(rng, mesh, shape, random_spread(rng, mesh, 2))
        summed = tuple(a for a in mesh.axes if a not in source.used_axes and rng.random() < 0.5)
        source = source._replace(partial=summed, monoid="add" if summed else "")
        routes = router(mesh)
        if not whole(mesh, shape, source):
            continue
        route = routes.route(type_, source, target)
        check(mesh, shape, source, target, route.steps)
        assert source == target or route.steps[-1][1] == target
        assert route.cost == pytest.approx(price_of(routes._price, type_, source, route.steps))


def test_what_nobody_holds() -> None:
    mesh, type_ = MESHES[0], TensorType((16,), "i32")
    inner = Placement((Dim(("x",), 4, 1, -1),))
    assert rewindowed(mesh, (16,), inner, place(mesh, (16,), (("x",),))) is None
    routes = router(mesh)
    assert routes.table(type_, [inner, replicated((16,))])[0, 1] == math.inf
    with pytest.raises(ShardingError, match="is not held"):
        routes.route(type_, inner, replicated((16,)))


def test_corners_come_with_the_second_dimension() -> None:
    """Rows first, then columns of the longer shard: four messages, none of them for corners."""
    mesh, shape = MESHES[0], (16, 8)
    plain = place(mesh, shape, (("x",), ("y",)))
    halo = Placement(tuple(d._replace(low=-1, high=1) for d in plain.dims))
    steps = rewindowed(mesh, shape, plain, halo)
    assert steps is not None and [action.kind for action, _ in steps] == ["halo-exchange"] * 2
    # Between walls on two devices each has one neighbour along y, and one message serves both.
    assert [action.messages for action, _ in steps] == [2, 1]
    check(mesh, shape, plain, halo, steps)


def test_narrower_needs_no_messages() -> None:
    mesh, shape = MESHES[0], (16, 8)
    plain = place(mesh, shape, (("x",), ("y",)))
    halo = Placement((plain.dims[0]._replace(low=-2, high=3), plain.dims[1]))
    for inner in (plain, Placement((plain.dims[0]._replace(low=1, high=3), plain.dims[1]))):
        steps = rewindowed(mesh, shape, halo, inner)
        assert steps is not None and [action.kind for action, _ in steps] == ["window"]
        assert router(mesh).widened(TensorType(shape, "f32"), halo, inner) < 1e-12


def test_a_window_of_what_every_device_holds() -> None:
    mesh, shape = MESHES[0], (16, 8)
    halo = Placement((Dim(("x",), 4, -2, 1), Dim((), 8)))
    steps = rewindowed(mesh, shape, replicated(shape), halo)
    assert steps is not None and all(action.messages == 0 for action, _ in steps)
    check(mesh, shape, replicated(shape), halo, steps)


def test_table() -> None:
    """From windows as cheap as by their standard placements; to windows never."""
    mesh, type_ = MESHES[0], TensorType((16, 8), "f32")
    plain = place(mesh, type_.shape, (("x",), ()))
    halo = Placement((plain.dims[0]._replace(low=-1, high=1), plain.dims[1]))
    moved = place(mesh, type_.shape, ((), ("x",)))
    table = router(mesh).table(type_, [plain, halo, moved])
    assert np.isinf(table[[0, 2], 1]).all() and table[1, 1] == 0
    assert table[1, 2] == pytest.approx(table[0, 2], rel=1e-3)
    assert table[1, 0] < 1e-3 * table[0, 2]
    assert home(mesh, type_.shape, halo) == plain
