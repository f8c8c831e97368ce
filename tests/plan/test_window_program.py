"""Ops on windows as device programs: what every device computes is what the whole op's result holds there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.program.ops.samples import types_of

from eggshard.lower.simulator import run
from eggshard.lower.window_simulation import scatter_windows
from eggshard.placement.placement import Dim, Placement, place, tile_size
from eggshard.placement.transfer import Strategy
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.plan.steps import StepPlan
from eggshard.plan.window_program import window_program
from eggshard.program.mesh import Mesh
from eggshard.program.ops import registry
from eggshard.program.program import Attributes

MESHES = (
    Mesh({"x": 4}), Mesh({"x": 3, "y": 2}), Mesh({"x": 2, "y": 4}, device_ids=(3, 1, 0, 2, 7, 6, 4, 5)),
    Mesh({"x": 2, "y": 2, "z": 2}),
)


def programs(
    mesh: Mesh, name: str, attributes: Attributes, arrays: list[np.ndarray], placements: Iterator[Placement]
) -> Iterator[tuple[Strategy, StepPlan]]:
    """The programs of all strategies at placements of the result, once they are seen to hold the right elements."""
    definition, operands = registry.get(name), types_of(arrays)
    results = definition.infer(attributes, operands)
    transfer = WindowTransfer(
        mesh, definition.factors(attributes, operands, results),
        definition.reaches(attributes, operands, results), operands, results[0],
        frozenset({tuple(mesh.axes)[::-1]}), lambda monoid: False, 999,
        lambda windows: definition.window_allowed(attributes, operands, results, windows),
    )
    (whole,) = definition.evaluate(attributes, arrays)
    for placement in placements:
        for strategy in transfer.at(placement):
            windowed = frozenset(d for d in transfer.windowed if placement.dims[d].axes)
            plan = window_program(mesh, definition, attributes, operands, results, strategy, windowed)
            shards = [scatter_windows(mesh, a, p) for a, p in zip(arrays, strategy.operands, strict=True)]
            (got,) = run(plan, shards)
            exists = scatter_windows(mesh, np.full(whole.shape, 7, np.int32), placement) == 7
            want = scatter_windows(mesh, np.asarray(whole), placement)
            message = f"{mesh} {name} {attributes} {strategy}"
            np.testing.assert_array_equal(got[exists], want[exists], err_msg=message)
            yield strategy, plan


def placed(rng: np.random.Generator, mesh: Mesh, shape: tuple[int, ...], count: int) -> Iterator[Placement]:
    """Placements with some dimension sharded, on tiles and on windows."""
    for _ in range(count):
        axes, dims = [str(a) for a in rng.permutation(list(mesh.axes))], []
        for n in shape:
            mine = tuple(axes[: rng.integers(0, 3)])
            axes = axes[len(mine) :]
            dim = Dim(mine, tile_size(n, mesh.count(mine), mesh.size))
            if mine and rng.random() < 0.7:
                low = int(rng.integers(-3, 4))
                high = int(rng.integers(max(low - dim.tile + 1, -3), 5))
                dim = dim._replace(low=low, high=high, wrapped=bool(rng.random() < 0.2))
            dims.append(dim)
        yield Placement(tuple(dims))


@pytest.mark.parametrize("shape", [(8,), (24, 8), (13, 7), (5, 24), (2, 3)])
def test_reverses_exchange_with_the_other_end(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape).astype(np.float32)
    mirrored = 0
    for mesh in MESHES:
        for dims in ((0,), tuple(range(len(shape)))):
            found = programs(mesh, "reverse", Attributes(dimensions=dims), [x], placed(rng, mesh, shape, 40))
            for strategy, plan in found:
                along = {a for d in dims for a in strategy.results[0].dims[d].axes}
                assert strategy.mirrored == bool(along)
                assert plan.collectives == ({"collective-permute": 1} if along else {})
                assert all(set(step.action.axes) == along for step in plan.steps if step.action.messages)
                mirrored += strategy.mirrored
    assert mirrored > 40


@pytest.mark.parametrize("interior", [1, 2, 3])
def test_elements_apart(interior: int) -> None:
    """On tiles and windows that begin at elements or between them, wherever tiles are multiples of the distance."""
    rng = np.random.default_rng(interior)
    x, value = rng.standard_normal((8, 3)).astype(np.float32), np.array(np.nan, np.float32)
    apart, sharded, cut = interior + 1, 0, 0
    for mesh in MESHES:
        for low, high in ((0, interior), (interior, 0), (2, 3), (-1, -2), (5, 1)):
            attributes = Attributes(
                edge_padding_low=(low, 0), edge_padding_high=(high, 0), interior_padding=(interior, 0)
            )
            n = 7 * apart + 1 + low + high
            places = list(placed(rng, mesh, (n, 3), 30))
            for strategy, plan in programs(mesh, "pad", attributes, [x, value], iter(places)):
                rows = strategy.results[0].dims[0]
                assert not rows.axes or rows.tile % apart == 0
                assert not plan.messages
                sharded += bool(rows.axes)
                cut += bool(rows.axes) and strategy.operands[0].dims[0].low * apart != rows.low - low
    assert sharded > 20 and cut > 5


def test_even_tiles_reverse_from_tile_to_tile() -> None:
    mesh, x = MESHES[0], np.arange(32, dtype=np.float32)
    tiles = place(mesh, (32,), (("x",),))
    ((strategy, plan),) = programs(mesh, "reverse", Attributes(dimensions=(0,)), [x], iter([tiles]))
    assert strategy.operands == (tiles,) and plan.serial_bytes == 8 * 4
