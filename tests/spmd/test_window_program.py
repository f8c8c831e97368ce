"""Ops on windows as device programs: what every device computes is what the whole op's result holds there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.ops.samples import types_of
from tests.ops.samples2 import convolution_attributes

from eggshard.ops import registry
from eggshard.placement.transfer import Strategy
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, place, tile_size
from eggshard.simulate.simulator import run
from eggshard.simulate.window_simulation import scatter_windows
from eggshard.spmd.on_shards import on_shards
from eggshard.spmd.window_program import window_program
from eggshard.steps.assemble import Assembler
from eggshard.steps.steps import StepPlan

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
        frozenset({tuple(mesh.axes)[::-1]}), lambda monoid: True, 999,
        lambda windows: definition.window_allowed(attributes, operands, results, windows),
        definition.windows_by_place, summed_reaches=definition.summed_reaches(attributes, operands, results),
    )
    (whole,) = definition.evaluate(attributes, arrays)
    for placement in placements:
        for strategy in transfer.at(placement):
            if any(p.partial for p in strategy.operands):
                continue  # partial sums that are passed on
            windowed = frozenset(d for d in transfer.windowed if placement.dims[d].axes)
            if strategy.positional:
                plan = on_shards(mesh, name, attributes, (), operands, results, strategy)
            else:
                plan = window_program(mesh, definition, attributes, operands, results, strategy, windowed)
            if strategy.masks:
                plan = masked(plan, strategy)
            shards = [scatter_windows(mesh, a, p) for a, p in zip(arrays, strategy.operands, strict=True)]
            got = np.array(run(plan, shards)[0])
            if placement.partial:
                groups = mesh.groups(placement.partial)
                got[groups] = got[groups].sum(1, keepdims=True)
            exists = scatter_windows(mesh, np.full(whole.shape, 7, np.int32), placement) == 7
            want = scatter_windows(mesh, np.asarray(whole), placement)
            message = f"{mesh} {name} {attributes} {strategy}"
            np.testing.assert_array_equal(got[exists], want[exists], err_msg=message)
            yield strategy, plan


def masked(plan: StepPlan, strategy: Strategy) -> StepPlan:
    """The program behind the masks that its operands need."""
    body = Assembler(plan.mesh)
    values = [body.input(plan.types[v]) for v in plan.inputs]
    return body.build(body.emit(plan, tuple(body.mask(values, strategy))))


def placed(
    rng: np.random.Generator, mesh: Mesh, shape: tuple[int, ...], count: int, partial: bool = False
) -> Iterator[Placement]:
    """Placements with some dimension sharded, on tiles and on windows; partial along other axes, or not."""
    for _ in range(count):
        axes, dims = [str(a) for a in rng.permutation(list(mesh.axes))], []
        for n in shape:
            mine = tuple(axes[: rng.integers(0, 3)])
            axes = axes[len(mine) :]
            dim = Dim(mine, tile_size(n, mesh.count(mine), mesh.size))
            if mine and rng.random() < 0.7:
                low = int(rng.integers(-3, 4))
                high = int(rng.integers(max(low - dim.tile + 1, -3), 5))
                wrapped = (int(rng.integers(-4, 1)), n + int(rng.integers(0, 5))) if rng.random() < 0.2 else None
                dim = dim._replace(low=low, high=high, wrapped=wrapped)
            dims.append(dim)
        partial_sums = tuple(a for a in mesh.axes if a in axes[: rng.integers(0, 3)]) if partial else ()
        yield Placement(tuple(dims), partial_sums, "add" if partial_sums else "")


@pytest.mark.parametrize("shape", [(8,), (24, 8), (13, 7), (5, 24), (2, 3)])
def test_reverses_exchange_with_the_other_end(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape).astype(np.float32)
    mirrored = 0
    for mesh in MESHES:
        for dims in ((0,), tuple(range(len(shape)))):
            found = programs(mesh, "reverse", Attributes(dimensions=dims), [x], placed(rng, mesh, shape, 50))
            for strategy, plan in found:
                along = {a for d in dims for a in strategy.results[0].dims[d].axes}
                assert plan.collectives == ({"collective-permute": 1} if along else {})
                assert all(set(step.action.axes) == along for step in plan.steps if step.action.messages)
                mirrored += bool(along)
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


def test_single_elements_are_had_from_their_owners() -> None:
    """Along some dimensions an element is left, which may lie past the last even tile; others are cut on windows."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((13, 24, 5)).astype(np.float32)
    owned = windowed = 0
    for mesh in MESHES:
        for row, columns, last in ((12, (2, 22, 1), (0, 5)), (5, (1, 24, 2), (4, 5)), (0, (23, 24, 1), (0, 5))):
            attributes = Attributes(
                start_indices=(row, columns[0], last[0]), limit_indices=(row + 1, columns[1], last[1]),
                strides=(1, columns[2], 1),
            )
            ((shape, _),) = registry.get("slice").infer(attributes, types_of([x]))
            whole = [p for p in placed(rng, mesh, shape, 200, partial=True)
                     if all(n > 1 or not d.axes for n, d in zip(shape, p.dims, strict=True))]
            for strategy, plan in programs(mesh, "slice", attributes, [x], iter(whole)):
                assert not plan.messages
                owned += strategy.positional
                windowed += strategy.positional and strategy.results[0].windowed
    assert owned > 100 and windowed > 30


@pytest.mark.parametrize(("name", "given", "shapes"), [
    ("update_slice", {"start_indices": (11, 0)}, [(13, 4), (1, 4)]),
    ("update_slice", {"start_indices": (0, 3)}, [(13, 4), (13, 1)]),
    ("concatenate", {"dimension": 0}, [(1, 4), (13, 4), (1, 4)]),
    ("concatenate", {"dimension": 0}, [(1, 4), (1, 4), (1, 4)]),
    ("pad", {"edge_padding_low": (3, 0), "edge_padding_high": (8, 0), "interior_padding": (0, 0)}, [(1, 4), ()]),
    ("pad", {"edge_padding_low": (2, 0), "edge_padding_high": (9, 0), "interior_padding": (1, 0)}, [(1, 4), ()]),
    ("wrap", {"dimension": 0, "lhs": 1, "rhs": 1}, [(1, 4)]),
])
def test_single_elements_are_held_by_all(name: str, given: dict[str, Any], shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(9)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    ((shape, _),) = registry.get(name).infer(Attributes(given), types_of(arrays))
    sharded = 0
    for mesh in MESHES:
        for strategy, plan in programs(mesh, name, Attributes(given), arrays, placed(rng, mesh, shape, 60)):
            for array, placement in zip(arrays, strategy.operands, strict=True):
                assert all(d == Dim((), 1) for n, d in zip(array.shape, placement.dims, strict=True) if n == 1)
            assert not plan.messages
            sharded += bool(strategy.results[0].dims[0].axes)
    assert sharded > 20


def test_devices_share_out_a_kernel() -> None:
    """Windows that span most of the input, at any stride, dilation and padding; each device sums over a part."""
    rng, parts, wide = np.random.default_rng(10), 0, 0
    for mesh in MESHES[:3]:
        for _ in range(8):
            size, low, results = (int(rng.integers(*span)) for span in ((9, 20), (-1, 4), (1, 5)))
            dilation, base, stride = rng.integers(1, 3, 3).tolist()
            reach = (size - 1) * dilation + (results - 1) * stride + 1
            n = max(reach // base, 2)
            attributes = convolution_attributes(
                ("f0b", "i0o", "0bf"), padding=((low, reach - low - (n - 1) * base - 1),), window_strides=(stride,),
                lhs_dilation=(base,), rhs_dilation=(dilation,))
            arrays = [rng.integers(-9, 10, (2, k, m)).astype(np.float32) for k, m in ((n, 2), (size, 3))]
            for strategy, plan in programs(mesh, "convolution", attributes, arrays,
                                           placed(rng, mesh, (results, 2, 3), 40, partial=True)):
                assert not plan.messages
                parts += bool(strategy.operands[1].dims[1].axes)
                wide += strategy.operands[0].dims[1].windowed
    assert parts > 40 and wide > 30


def test_even_tiles_reverse_from_tile_to_tile() -> None:
    mesh, x = MESHES[0], np.arange(32, dtype=np.float32)
    tiles = place(mesh, (32,), (("x",),))
    ((strategy, plan),) = programs(mesh, "reverse", Attributes(dimensions=(0,)), [x], iter([tiles]))
    assert strategy.operands == (tiles,) and plan.serial_bytes == 8 * 4
