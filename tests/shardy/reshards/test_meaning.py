"""What devices hold after collectives is what the target sharding says."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from bench.lower_bound import shardings
from tests.shardy.reshards.random_reshards import (
    collective_text,
    function,
    meshes_text,
    program_module,
    random_cuts,
    random_dims,
    random_partial_sums,
)
from tests.shardy.reshards.running import run_functions
from tests.shardy.reshards.simulating import shards, simulate, whole

from eggshard import shardy
from eggshard.program.axes import AxisRef, any_overlap, shard_count
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.module import parsed, shape as shape_of
from eggshard.shardy.reshards.collectives.kinds import Collective
from eggshard.shardy.reshards.collectives.planned import Reshard, planned_moves

MODES = ("shardy", "global")
MESHES = ({"x": 2, "y": 2, "z": 2}, {"x": 4, "y": 2}, {"x": 2, "y": 3, "z": 2}, {"x": 4, "y": 6}, {"x": 6, "y": 2})


def assert_reshards_hold(seed: int, mode: str) -> None:
    """Reshards between sub-axes, partial sums and orders of devices, in all mixtures, on divisible shapes."""
    draw = random.Random(seed)
    sizes = draw.choice(MESHES)
    header = meshes_text(sizes, draw)
    with parsed(header) as empty:
        meshes = {name: mesh for name, mesh in empty.meshes.items() if isinstance(mesh, Mesh)}
    for _ in range(4):
        rank = draw.choice([1, 2, 2, 3])
        shape = (math.prod(sizes.values()),) * rank
        cuts = random_cuts(draw, sizes) if draw.random() < 0.6 else None
        partial = draw.random() < 0.5

        def sharding(mesh: str, rank: int = rank, cuts: dict[str, list[int]] | None = cuts, partial: bool = partial) \
                -> TensorSharding:
            dims = random_dims(draw, sizes, rank, cuts)
            return TensorSharding.closed(mesh, dims, random_partial_sums(draw, sizes, dims, cuts) if partial else ())

        source, target = sharding("mesh"), sharding(draw.choice(["mesh", "mesh", "shuffled"]))
        text = header + function("f", shape, source, [f"sdy.reshard %0 {target.body()}"], target)
        text = shardy.transform(text, f"reshard-to-collectives{{mode={mode}}},canonicalize-collectives")
        with parsed(text) as module:
            steps = [step for op in module.walk() if (step := Collective.read(op))]
        values = np.random.default_rng(seed).integers(0, 99, shape).astype(np.float32)
        held = simulate(steps, shards(values, source, meshes["mesh"]), source, meshes)
        reached = steps[-1].to if steps else source
        assert (reached.axes, reached.sharding.unreduced) == (target.axes, target.sharding.unreduced), text
        assert isinstance(reached.mesh, str)
        for copy in whole(held, shape, target, meshes[reached.mesh]):
            assert np.array_equal(copy, values), text


def assert_reduced_and_resharded(seed: int, mode: str) -> None:
    """A reduction of some partial sums, then one reshard or two of the others."""
    draw = random.Random(seed)
    sizes = draw.choice(MESHES[:4])
    header = meshes_text(sizes, draw)
    shape = (math.prod(sizes.values()),) * 2
    cuts = random_cuts(draw, sizes) if draw.random() < 0.5 else None
    dims = tuple(axes[:1] for axes in random_dims(draw, sizes, 2, cuts))
    partial_sums = random_partial_sums(draw, sizes, dims, cuts)
    reduced = tuple(axis for axis in partial_sums if draw.random() < 0.5)
    kept = tuple(axis for axis in partial_sums if axis not in reduced)
    source, between = (TensorSharding.closed("mesh", dims, axes) for axes in (partial_sums, kept))
    lines = [collective_text(Collective("all_reduce", between, axes=reduced), "%0")]
    for _ in range(draw.choice([1, 2])):
        left = tuple(
            tuple(a for a in axes if not any_overlap((a,), kept))
            for axes in random_dims(draw, sizes, 2, cuts))
        target = TensorSharding.closed("mesh", left, kept)
        lines.append(f"sdy.reshard %{len(lines)} {target.body()}")
    text = header + function("f", shape, source, lines, target)
    text = shardy.transform(text, f"reshard-to-collectives{{mode={mode}}}")
    with parsed(text) as module:
        steps = [step for op in module.walk() if (step := Collective.read(op))]
        mesh = module.meshes["mesh"]
    assert isinstance(mesh, Mesh)
    values = np.random.default_rng(seed).integers(0, 99, shape).astype(np.float32)
    held = simulate(steps, shards(values, source, mesh), source, {"mesh": mesh})
    reached = steps[-1].to
    assert (reached.axes, reached.sharding.unreduced) == (target.axes, target.sharding.unreduced), text
    for copy in whole(held, shape, target, mesh):
        assert np.array_equal(copy, values), text


@pytest.mark.parametrize("mode", MODES)
def test_reductions_of_some_partial_sums_before_reshards_of_the_others(mode: str) -> None:
    for seed in range(40):
        assert_reduced_and_resharded(seed, mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(8))
def test_devices_hold_what_the_target_says(seed: int, mode: str) -> None:
    assert_reshards_hold(seed, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_devices_hold_what_many_targets_say(mode: str) -> None:
    for seed in range(8, 150):
        assert_reshards_hold(seed, mode)


def assert_pairs_hold(sizes: dict[str, int], mode: str, pairs: int) -> None:
    """Pairs of shardings by whole axes, through jaxlib's localisation."""
    mesh, n = Mesh(sizes), math.prod(sizes.values())
    states = list(shardings(sizes, (n, n)))
    every = [(a, b) for a in states for b in states if a != b]
    chosen = random.Random(0).sample(every, pairs) if pairs else every
    values = np.arange(n * n, dtype=np.float32).reshape(n, n)
    for start in range(0, len(chosen), 100):
        text, inputs, targets = meshes_text(sizes, random.Random(0)), {}, {}
        for i, pair in enumerate(chosen[start : start + 100]):
            source, target = (
                TensorSharding.closed("mesh", (tuple(map(AxisRef, axes)) for axes in state)) for state in pair)
            text += function(f"f{i}", (n, n), source, [f"sdy.reshard %0 {target.body()}"], target)
            inputs[f"f{i}"], targets[f"f{i}"] = shards(values, source, mesh), target
        text = shardy.transform(text, f"reshard-to-collectives{{mode={mode}}},canonicalize-collectives")
        for name, held in run_functions(text, inputs).items():
            for part, expected in zip(held, shards(values, targets[name], mesh), strict=True):
                assert np.array_equal(part, expected), targets[name]


@pytest.mark.parametrize("mode", MODES)
def test_jaxlibs_localisation_gives_the_same(mode: str) -> None:
    assert_pairs_hold({"x": 2, "y": 3, "z": 2}, mode, 60)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [{"x": 2, "y": 3, "z": 2}, {"x": 2, "y": 2, "z": 2}])
def test_jaxlibs_localisation_gives_the_same_of_all_pairs(sizes: dict[str, int], mode: str) -> None:
    assert_pairs_hold(sizes, mode, 0)


@pytest.mark.parametrize("seed", range(10))
def test_uneven_shapes_are_those_padded_to_whole_shards(seed: int) -> None:
    """The plan of an uneven shape moves the padded tensor, of which every step's shards are whole."""
    draw = random.Random(seed)
    sizes = draw.choice(MESHES)
    mesh, rank = Mesh(sizes), draw.choice([1, 2, 3])
    cuts = random_cuts(draw, sizes)
    shape = tuple(draw.randint(1, 30) for _ in range(rank))
    source, target = (TensorSharding.closed("mesh", random_dims(draw, sizes, rank, cuts)) for _ in range(2))
    moves = planned_moves(Reshard(shape, 4, mesh, mesh, source.axes, target.axes), None)
    counts = [[shard_count(axes, sizes) for axes in dims] for dims in (source.axes, *(move.after for move in moves))]
    padded = tuple(math.lcm(*per_dim) * -(-n // math.lcm(*per_dim)) for n, *per_dim in zip(shape, *counts, strict=True))
    values = np.arange(math.prod(padded), dtype=np.float32).reshape(padded)
    held = simulate([move.on("mesh") for move in moves], shards(values, source, mesh), source, {"mesh": mesh})
    for part, expected in zip(held, shards(values, target, mesh), strict=True):
        assert np.array_equal(part, expected)


def test_jaxlib_slices_minor_sub_axes_at_the_wrong_place() -> None:
    """Which is why sub-axes are not run through its localisation: device 2 of four has the first half of ``x:(2)2``."""
    sharding = TensorSharding.closed("mesh", ((AxisRef("x", 2, 2),),))
    text = 'sdy.mesh @mesh = <["x"=4]>\n' + function(
        "f", (8,), TensorSharding.closed("mesh", ((),)),
        ['sdy.all_slice [{"x":(2)2}] %0 out_sharding=<@mesh, [{"x":(2)2}]>'], sharding)
    values = np.arange(8, dtype=np.float32)
    held = run_functions(text, {"f": [values] * 4})["f"]
    expected = shards(values, sharding, Mesh({"x": 4}))
    assert [part[0] for part in expected] == [0, 4, 0, 4]
    assert [part[0] for part in held] == [0, 0, 4, 4]


def ran(text: str, values: np.ndarray) -> tuple[list[np.ndarray], list[tuple[TensorSharding, list[np.ndarray]]]]:
    """Results of a program on whole tensors, and with what devices hold: reshards and collectives of any values."""
    with parsed(text) as module:
        mesh = next(mesh for mesh in module.meshes.values() if isinstance(mesh, Mesh))
        block = module.functions[0].regions[0].blocks[0]
        source = module.sharding(block.arguments[0])
        assert source is not None
        tensors = {block.arguments[0]: values}
        held = {block.arguments[0]: (source, shards(values, source, mesh))}
        for op in (op.operation for op in block.operations):
            if op.name == "func.return":
                return [tensors[v] for v in op.operands], [held[v] for v in op.operands]
            tensor, (before, parts) = tensors[op.operands[0]], held[op.operands[0]]
            step = Collective.read(op)
            if step is not None:  # a reduction here is of equal partial sums
                scale = shard_count(step.moved, mesh.axes) if step.kind in ("all_reduce", "reduce_scatter") else 1
                tensors[op.results[0]] = tensor * scale
                held[op.results[0]] = step.to, simulate([step], parts, before, {"mesh": mesh})
            else:
                sign = -1 if op.name == "stablehlo.negate" else 1
                after = module.sharding(op.results[0])
                assert after is not None
                tensors[op.results[0]] = sign * tensor
                held[op.results[0]] = after, [sign * part for part in parts]
    raise AssertionError("no return")


def assert_programs_agree(seeds: range, mode: str) -> None:
    for seed in seeds:
        text = program_module(seed)
        with parsed(text) as module:
            shape = shape_of(module.functions[0].regions[0].blocks[0].arguments[0])
        values = np.random.default_rng(seed).integers(0, 9, shape).astype(np.float32)
        expected, _ = ran(text, values)
        written = shardy.transform(
            text, f"canonicalize-collectives,reshard-to-collectives{{mode={mode}}},canonicalize-collectives")
        assert "sdy.reshard" not in written
        with parsed(written) as module:
            mesh = next(mesh for mesh in module.meshes.values() if isinstance(mesh, Mesh))
        _, results = ran(written, values)
        for tensor, (sharding, held) in zip(expected, results, strict=True):
            for copy in whole(held, shape, sharding, mesh):
                assert np.array_equal(copy, tensor), written


@pytest.mark.parametrize("mode", MODES)
def test_programs_compute_the_same(mode: str) -> None:
    assert_programs_agree(range(8), mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_many_programs_compute_the_same(mode: str) -> None:
    assert_programs_agree(range(8, 300), mode)
