"""Which windows of which values are looked at: bounding windows, and needs followed back through a program."""

from __future__ import annotations

import random

import pytest
from tests.planner.encoding.window_problems import demand_of, line_program, window

from eggshard.planner.encoding.bounding import bounding_windows, grid_of, width_of
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement
from eggshard.reshard.window_routes import contains

MESH = Mesh({"x": 4})


def plane(low: int, high: int, left: int = 0, right: int = 0) -> Placement:
    return Placement((Dim(("x",), 4, low, high), Dim((), 8, left, right)))


def test_bounding_windows_grow() -> None:
    """The narrowest, then with the next wider, and so on."""
    windows = dict.fromkeys([plane(-1, 0), plane(0, 1), plane(-2, 1), plane(-1, 5)], 0)
    made = bounding_windows((16, 8), windows, 8)
    assert made == [plane(-1, 1), plane(-2, 1), plane(-2, 5)]
    assert bounding_windows((16, 8), windows, 2) == [made[0], made[2]]  # of too many the widest is one
    assert bounding_windows((), {}, 8) == []


def test_bounding_windows_by_level() -> None:
    """What consumers on one level take, however wide it is, and what those on the next one take besides."""
    shifted = {plane(-1, 0): 0, plane(1, 1): 1, plane(-2, 0): 1}
    assert set(bounding_windows((16, 8), shifted, 8)) >= {plane(-1, 0), plane(-2, 1)}
    assert plane(-1, 0) not in bounding_windows((16, 8), dict.fromkeys(shifted, 0), 8)


def test_windows_that_are_apart_have_no_bounding_window_together() -> None:
    """Tiles of two grids far from each other: their bounding window would hold what nobody needs."""
    near, far = plane(-1, 1), plane(20, 22)
    assert set(bounding_windows((16, 8), {near: 0, far: 0}, 8)) == {near, far}
    assert bounding_windows((16, 8), {plane(0, 0): 0, plane(4, 4): 0}, 8) == [plane(0, 4)]


def test_grids_are_apart() -> None:
    wide = Placement((Dim(("x",), 6, -1, 1), Dim((), 8)))
    other = Placement((Dim((), 8), Dim(("x",), 4, -1, 1)))
    made = bounding_windows((16, 8), dict.fromkeys([plane(-1, 0), wide, other, plane(0, 2)], 0), 8)
    assert len({grid_of(p) for p in made}) == 3 and plane(-1, 2) in made


@pytest.mark.parametrize("seed", range(5))
def test_every_window_lies_in_a_bounding_window(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        windows: dict[Placement, int] = {}
        for _ in range(rng.randint(1, 6)):
            low = rng.randint(-6, 5)
            wrapped = (rng.randint(-6, 3), rng.randint(12, 22)) if rng.random() < 0.2 else None
            dim = Dim(("x",), 4, low, rng.randint(max(low - 3, -5), 6), wrapped)
            windows[Placement((dim,))] = rng.randint(0, 3)
        made = bounding_windows((16,), windows, 100)
        for w in windows:
            assert any(contains(MESH, (16,), bounding_window, w) for bounding_window in made), (w, made)
        assert len(set(made)) == len(made)
        for limit in (1, 2):
            few = bounding_windows((16,), windows, limit)
            assert set(few) <= set(made) and width_of(few[0]) <= max(map(width_of, made))


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_needs_grow_by_the_radius(steps: int) -> None:
    """Each step before the last is needed one wider on either side, as far as the input."""
    demand, graph = demand_of(line_program(steps, wrapped=False))
    start = demand.views.group[graph.values[0]]
    wanted = {(d.low, d.high) for p in demand.needed[start] for d in p.dims}
    # A pad moves the grid by one, and the slices back: at the input everything lies on the tiles' own grid.
    assert {(-k, k) for k in range(1, steps + 1)} <= {(d.low, d.high) for p in demand.made[start] for d in p.dims}
    assert max(high for _, high in wanted) == steps and min(low for low, _ in wanted) == -steps


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("n", [13, 14])
def test_uneven_sizes_ask_for_the_same_windows(n: int, wrapped: bool) -> None:
    """Although a padded tensor lies on the tiles of its operand there, and slices of it reach these."""
    made = []
    for size in (n, 16):
        demand, graph = demand_of(line_program(3, wrapped=wrapped, n=size))
        made.append([(d.low, d.high) for p in demand.made[demand.views.group[graph.values[0]]] for d in p.dims])
    assert made[0] == made[1] == [(-k, k) for k in range(1, 4)]


def test_windows_of_rotations_wrap() -> None:
    demand, graph = demand_of(line_program(2, wrapped=True))
    start = demand.views.group[graph.values[0]]
    assert all(d.wrapped for p in demand.needed[start] for d in p.dims)


def test_few_widths() -> None:
    demand, graph = demand_of(line_program(6, wrapped=False), limit=2)
    assert all(len({grid_of(p) for p in made}) * 2 >= len(made) for made in demand.made.values())


def test_elementwise_programs_need_no_windows() -> None:
    demand, _ = demand_of(line_program(0, wrapped=False))
    assert not demand.needed and not demand.made


def test_only_axes_that_somebody_shards_the_dimension_over() -> None:
    demand, _ = demand_of(line_program(2, wrapped=False), mesh=Mesh({"x": 4, "y": 2}))
    axes = {d.axes for placements in demand.needed.values() for p in placements for d in p.dims}
    assert axes == {("x",)}
    assert window(16, 4, -1, 1).dims[0].size == 6
