"""Ops written out by place, by every strategy of the op: shards cut, computed on the simulator, and put together.

Sizes are uneven, so that shards have elements past the tensor's end, which the simulator poisons.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.ops.oracles import assert_close
from tests.ops.samples import SAMPLES, Sample, array, types_of
from tests.ops.samples2 import SAMPLES2, gather_attributes, scatter_attributes
from tests.slowness import some

from eggshard.costmodel import AlphaBeta
from eggshard.costmodel.pricing import Pricer
from eggshard.ops import registry
from eggshard.placement.transfer import Strategy, enumerated
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement
from eggshard.simulate import simulator
from eggshard.simulate.simulator import gather_from_devices, scatter_to_devices
from eggshard.simulate.window_simulation import scatter_windows
from eggshard.spmd.on_shards import likeness, on_shards
from eggshard.steps.assemble import Assembler
from eggshard.steps.authored_steps import DeviceNumber
from eggshard.steps.steps import Local

MESHES = (Mesh({"x": 4}), Mesh({"x": 2, "y": 3}))
ROWS = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 1}
ADDED = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,),
         "index_vector_dim": 1}
WINDOWS = {"update_window_dims": (1, 2), "scatter_dims_to_operand_dims": (0, 1), "index_vector_dim": 1}


def by_strategy(name: str, sample: Sample, mesh: Mesh, strategy: Strategy) -> list[np.ndarray]:
    """The op's results where its operands lie on devices as a strategy says."""
    attrs, arrays, regions = sample
    operands = types_of(arrays)
    results = registry.get(name).infer(attrs, operands, regions)
    assembler = Assembler(mesh)
    values = [assembler.input(p.local_type(t)) for t, p in zip(operands, strategy.operands, strict=True)]
    values = assembler.mask(values, strategy)
    if strategy.positional:
        action = on_shards(mesh, name, attrs, regions, operands, results, strategy)
    else:
        local = [tuple(p.local_type(t) for t, p in zip(types, placements, strict=True))
                 for types, placements in ((operands, strategy.operands), (results, strategy.results))]
        action = Local(name, registry.get(name).localize(attrs, operands, results, *local), local[1], regions)
    program = assembler.build(assembler.emit(action, tuple(values)))
    shards = [scatter_to_devices(mesh, a, p) for a, p in zip(arrays, strategy.operands, strict=True)]
    made = simulator.run(program, shards)
    return [gather_from_devices(mesh, shard, t.shape, p)
            for shard, t, p in zip(made, results, strategy.results, strict=True)]


def check(name: str, sample: Sample) -> int:
    """Every strategy on every mesh; returns how many of them shard a positional factor."""
    attrs, arrays, regions = sample
    operands = types_of(arrays)
    definition = registry.get(name)
    whole = definition.evaluate(attrs, arrays, regions)
    rule = definition.factors(attrs, operands, definition.infer(attrs, operands, regions))
    positional = 0
    for mesh in MESHES:
        for strategy in enumerated(mesh, rule).found:
            positional += strategy.positional
            for got, want in zip(by_strategy(name, sample, mesh, strategy), whole, strict=True):
                assert_close(got, want, (name, attrs, operands, strategy))
    return positional


@pytest.mark.parametrize("name", ["dynamic_slice", "dynamic_update_slice", "gather", "scatter"])
def test_samples(name: str) -> None:
    assert sum(check(name, sample) for sample in SAMPLES2[name](np.random.default_rng(3))) > 10


def test_slices_of_single_elements() -> None:
    assert sum(check("slice", sample) for sample in SAMPLES["slice"](np.random.default_rng(1))) > 10


def test_counters_on_tiles() -> None:
    rng = np.random.default_rng(0)
    assert sum(check("iota", sample) for sample in SAMPLES["iota"](rng)) > 10
    for n, dtype in ((23, "f32"), (40, "bf16"), (3, "f8E4M3FN")):
        assert check("iota", (Attributes(shape=(2, n), dtype=dtype, iota_dimension=1), [], ()))


@pytest.mark.parametrize(("n", "dtype"), [
    (129, "i8"), (257, "ui8"), (257, "bf16"), (17, "f8E4M3FN"), (2**24 + 1, "f32"), (2**24 + 1, "complex<f32>"),
    (2**30 + 1, "i64"),
])
def test_counters_that_a_conversion_would_round_are_not_sharded(n: int, dtype: str) -> None:
    definition = registry.get("iota")
    for size, positional in ((n, False), (n - 1, True)):
        attrs = Attributes(shape=(size,), dtype=dtype, iota_dimension=0)
        (factor,) = definition.factors(attrs, (), definition.infer(attrs, ())).factors
        assert factor.positional == positional and (factor.kind == "pass") == positional


def windows_of(rng: np.random.Generator, mesh: Mesh, n: int) -> Iterator[Dim]:
    """Windows of a dimension of size n: halos, shifted grids, wrapped ones, wider than the tensor, of other tiles."""
    for axes in (("x",), tuple(mesh.axes), tuple(mesh.axes)[::-1]):
        for _ in range(6):
            tile = -(-n // mesh.count(axes)) + int(rng.integers(2))
            low = int(rng.integers(-2 * n, 5))
            wrapped = None
            if low <= 0 and rng.integers(2):
                wrapped = int(rng.integers(low - 1, 1)), int(rng.integers(n, 2 * n))
            yield Dim(axes, tile, low, int(rng.integers(low - tile + 1, low + 2 * n)), wrapped)


@pytest.mark.parametrize("dtype", ["i32", "ui8", "f32", "i64"])
def test_counters_on_windows(dtype: str) -> None:
    rng, definition = np.random.default_rng(4), registry.get("iota")
    for mesh in MESHES:
        for shape, dim in (((13,), 0), ((3, 12), 1), ((24, 2), 0)):
            attrs = Attributes(shape=shape, dtype=dtype, iota_dimension=dim)
            results = definition.infer(attrs, ())
            transfer = WindowTransfer(
                mesh, definition.factors(attrs, (), results), None, (), results[0],
                frozenset({tuple(mesh.axes)[::-1]}), lambda monoid: True, 99, lambda windows: True,
                definition.windows_by_place,
            )
            for window in windows_of(rng, mesh, shape[dim]):
                placement = Placement(tuple(window if d == dim else Dim((), n) for d, n in enumerate(shape)))
                (strategy,) = transfer.at(placement)
                (got,) = simulator.run(on_shards(mesh, "iota", attrs, (), (), results, strategy), ())
                (whole,) = definition.evaluate(attrs, ())
                want = scatter_windows(mesh, np.asarray(whole), placement)
                exists = scatter_windows(mesh, np.full(shape, 7, np.int32), placement) == 7
                np.testing.assert_array_equal(got[exists], want[exists], err_msg=f"{mesh} {placement}")


def test_ops_that_are_written_on_tiles_know_no_windows() -> None:
    attrs, mesh = Attributes(slice_sizes=(2, 2)), Mesh({"x": 4})
    operands = types_of([np.zeros((8, 8), np.float32), *(np.zeros((), np.int32),) * 2])
    definition = registry.get("dynamic_slice")
    results = definition.infer(attrs, operands)
    transfer = WindowTransfer(
        mesh, definition.factors(attrs, operands, results), None, operands, results[0], frozenset(),
        lambda monoid: True, 99, lambda windows: True, definition.windows_by_place,
    )
    assert any(s.positional for p in transfer.standard() for s in transfer.at(p))
    for placement in transfer.standard():
        wide = Placement(tuple(d._replace(high=1) if d.axes else d for d in placement.dims))
        assert wide == placement or not any(s.positional for s in transfer.at(wide))


def everywhere(size: int, window: int) -> Iterator[np.ndarray]:
    """Every start, and some that are out of range."""
    for start in (-(2**31), -window - 1, *range(size), size + window, 2**31 - 1):
        yield np.array(start, np.int32)


@pytest.mark.parametrize(("window", "dtype"), some([(1, "f32"), (2, "i8"), (5, "f32"), (10, "bf16")], 2, rows=True))
def test_dynamic_slices_and_updates_at_every_place(window: int, dtype: str) -> None:
    rng = np.random.default_rng(window)
    x, update = array(rng, (11, 2), dtype), array(rng, (window, 2), dtype)
    zero = np.array(0, np.int32)
    for start in everywhere(11, window):
        assert check("dynamic_slice", (Attributes(slice_sizes=(window, 2)), [x, start, zero], ()))
        assert check("dynamic_update_slice", (Attributes(), [x, update, start, zero], ()))


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_indices_of_every_type(kind: str) -> None:
    rng = np.random.default_rng(1)
    x, limits = array(rng, (11, 4), "f32"), np.iinfo(kind)
    some = [limits.min, limits.min + 1, 0, 1, 3, 5, 10, 10, 11, 12, limits.max - 1, limits.max]
    wide = [2**32, 2**32 + 1, -(2**32), -(2**32) + 4] if kind == "int64" else []
    indices = np.array([*some, *wide], kind).reshape(-1, 1)
    updates = array(rng, (len(indices), 4), "f32")
    assert check("gather", (gather_attributes((1, 4), **ROWS), [x, indices], ()))
    for monoid in ("add", "set", "max"):
        assert check("scatter", (scatter_attributes(monoid, **ADDED), [x, indices, updates], ()))


def test_windows_that_lie_in_several_shards_of_two_dimensions() -> None:
    rng = np.random.default_rng(2)
    x = array(rng, (11, 7), "i32")
    corners = np.array([(r, c) for r in (-1, 0, 2, 5, 8, 9) for c in (-4, 0, 3, 5, 6)], np.int32)
    gathered = gather_attributes((3, 2), offset_dims=(0, 2), start_index_map=(0, 1), index_vector_dim=1)
    assert check("gather", (gathered, [x, corners], ()))
    assert check("scatter", (scatter_attributes("add", **WINDOWS), [x, corners, array(rng, (30, 3, 2), "i32")], ()))


def test_what_nobody_asked_for_stays_out() -> None:
    """NaN and infinities in rows that are not read do not reach the sum; truth values are combined too."""
    x = np.full((11, 2), np.nan, np.float32)
    x[1::4], x[2::4] = np.arange(6).reshape(3, 2), np.inf
    indices = np.array([[1], [5], [9]], np.int32)
    sample: Sample = (gather_attributes((1, 2), **ROWS), [x, indices], ())
    assert np.isfinite(registry.get("gather").evaluate(*sample[:2])[0]).all()
    assert check("gather", sample)
    assert check("gather", (gather_attributes((1, 2), **ROWS), [x > 2, indices], ()))


def test_devices_differ_by_one_number_and_equal_ones_are_looked_up_once() -> None:
    attrs = Attributes(slice_sizes=(2, 2))
    operands = types_of([np.zeros((8, 8), np.float32), *(np.zeros((), np.int32),) * 2])
    definition, mesh = registry.get("dynamic_slice"), Mesh({"x": 4})
    results = definition.infer(attrs, operands)
    found = [s for s in enumerated(mesh, definition.factors(attrs, operands, results)).found if s.positional]
    assert {str(s.operands[0]) for s in found} == {"(x, -)", "(-, x)"}
    for strategy in found:
        plan = on_shards(mesh, "dynamic_slice", attrs, (), operands, results, strategy)
        numbers = [s.action for s in plan.steps if not isinstance(s.action, Local)]
        assert numbers == [DeviceNumber((0, 2, 4, 6))]


@pytest.mark.parametrize("name", ["slice", "dynamic_slice", "dynamic_update_slice", "gather", "scatter", "iota"])
def test_strategies_that_are_alike_cost_the_same(name: str) -> None:
    samples = {**SAMPLES, **SAMPLES2}[name](np.random.default_rng(5))
    seen = shared = 0
    for attrs, arrays, regions in samples:
        operands = types_of(arrays)
        results = registry.get(name).infer(attrs, operands, regions)
        rule = registry.get(name).factors(attrs, operands, results)
        for mesh in (*MESHES, Mesh({"x": 2, "y": 2})):
            pricer, prices = Pricer(AlphaBeta(), mesh), {}
            for strategy in enumerated(mesh, rule).found:
                if strategy.positional:
                    price = pricer.total(on_shards(mesh, name, attrs, regions, operands, results, strategy))
                    seen += 1
                    key = likeness(operands, results, strategy)
                    shared += key in prices
                    assert prices.setdefault(key, price) == pytest.approx(price, rel=1e-12)
    assert seen > shared > 0
