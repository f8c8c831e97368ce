"""Codes under shard_map as global programs: what they are read as, that they mean what they say, and what stays."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P
from tests.frontends.globalization.per_device_codes import SHAPE, Codes, mesh_of, shift
from tests.slowness import some

import eggshard.simulate.manual  # noqa: F401  (gives manual computations their meaning)
from eggshard.frontends import load
from eggshard.frontends.globalization import globalized
from eggshard.ops.evaluate import evaluate_region
from eggshard.program.program import Op, Program, Region

ROW = mesh_of(x=8)
Code = Callable[[Any], Any]


def program_of(code: Code, shape: tuple[int, ...] = (32, 4), mesh: Any = ROW) -> Program:
    """A code of one field, cut over the mesh's axes in the order of its dimensions."""
    spec = P(*mesh.axis_names)
    mapped = jax.shard_map(code, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return load(jax.jit(mapped).lower(jax.ShapeDtypeStruct(shape, np.int32)))


def ops_within(region: Region) -> Iterator[Op]:
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from ops_within(inner)


def read(program: Program) -> list[str]:
    """The names of the ops that a program is read as, having the same results; constraints and constants apart."""
    found = globalized(program)
    assert found is not None
    arrays = [np.random.default_rng(0).integers(-9, 9, t.shape, np.int32) for t in program.input_types]
    written = evaluate_region(program.region, arrays)
    for made, wanted in zip(evaluate_region(found.region, arrays), written, strict=True):
        np.testing.assert_array_equal(made, wanted)
    return [op.name for op in ops_within(found.region) if op.name not in ("sharding_constraint", "constant")]


def around(u: Any, ring: bool = True) -> tuple[Any, Any]:
    return lax.ppermute(u[-1:], "x", shift(8, 1, ring)), lax.ppermute(u[:1], "x", shift(8, -1, ring))


def widened(u: Any, ring: bool = True) -> Any:
    before, after = around(u, ring)
    return jnp.concatenate([before, u, after])


def sums(wide: Any) -> Any:
    return wide[:-2] + wide[2:]


def test_a_ring_is_a_rotation() -> None:
    assert read(program_of(lambda u: sums(widened(u)))) == ["rotate", "rotate", "add"]


def test_no_ring_is_padding() -> None:
    assert read(program_of(lambda u: sums(widened(u, False)))) == ["slice", "pad", "slice", "pad", "add"]


def test_strips_of_rank_one_are_strips() -> None:
    def code(u: Any) -> Any:
        before, after = lax.ppermute(u[-1], "x", shift(8, 1, True)), lax.ppermute(u[0], "x", shift(8, -1, True))
        return sums(jnp.concatenate([before[None], u, after[None]]))

    assert read(program_of(code)) == ["rotate", "rotate", "add"]


def test_inner_part_and_ends_apart_are_one_computation() -> None:
    def code(u: Any) -> Any:
        before, after = around(u)
        return jnp.concatenate([before + u[1:2], u[:-2] + u[2:], u[-2:-1] + after])

    assert read(program_of(code)) == ["rotate", "rotate", "add"]


def test_what_a_kernel_for_one_device_spoils_and_cuts_off_is_not_there() -> None:
    def code(u: Any) -> Any:
        wide = widened(u)
        return (jnp.roll(wide, 1, 0) + jnp.roll(wide, -1, 0))[1:-1]

    assert read(program_of(code)) == ["rotate", "rotate", "add"]


def test_boundary_conditions_are_ends_of_the_whole() -> None:
    def code(u: Any, first: Any, last: Any) -> Any:
        before, after = around(u)
        before = jnp.where(lax.axis_index("x") == 0, first, before)
        after = jnp.where(lax.axis_index("x") == 7, last, after)
        return sums(jnp.concatenate([before, u, after]))

    assert "collective_permute" not in read(program_of(lambda u: code(u, 1, 2)))
    assert read(program_of(lambda u: code(u, u[:1], u[-1:]))) == ["slice", "extend", "slice", "extend", "add"]


def test_ghost_cells_that_a_loop_carries_are_windows() -> None:
    def code(u: Any) -> Any:
        def step(_: Any, wide: Any) -> Any:
            before, after = around(wide[1:-1])
            wide = wide.at[:1].set(before).at[-1:].set(after)
            return wide.at[1:-1].set(wide[1:-1] + sums(wide))

        return lax.fori_loop(0, 3, step, jnp.pad(u, ((1, 1), (0, 0))))[1:-1]

    program = program_of(code)
    names = read(program)
    assert names[0] == "while" and names.count("rotate") == 2
    found = globalized(program)
    assert found is not None  # the field alone is carried, not its ghost cells
    loop = next(op for op in found.region.ops if op.name == "while")
    assert (32, 4) in [found.region.types[v].shape for v in loop.operands]


def test_norms_over_all_devices_are_reductions() -> None:
    def code(u: Any) -> Any:
        wide = widened(u)
        return sums(wide) + lax.psum(jnp.sum(u), "x") + lax.pmax(u.max(), "x") + lax.psum(jnp.vdot(u, u), "x")

    names = read(program_of(code))
    assert names.count("reduce") == 2 and names.count("dot_general") == 1 and "all_reduce" not in names


def test_a_number_of_each_device_is_spread_over_its_tile() -> None:
    assert "collective_permute" not in read(program_of(lambda u: sums(widened(u)) * (1 + lax.axis_index("x"))))


def test_masks_by_place_are_comparisons_of_counted_places() -> None:
    def code(u: Any) -> Any:
        row = lax.axis_index("x") * u.shape[0] + jnp.arange(u.shape[0])
        return jnp.where((row == 0)[:, None], u, sums(widened(u)))

    names = read(program_of(code))
    assert names.count("iota") == 1 and names.count("select") == 1


def test_corners_come_with_the_second_exchange() -> None:
    mesh = mesh_of(x=4, y=2)

    def code(u: Any) -> Any:
        wide = jnp.concatenate([lax.ppermute(u[-1:], "x", shift(4, 1, True)), u], 0)
        wide = jnp.concatenate([lax.ppermute(wide[:, -1:], "y", shift(2, 1, True)), wide], 1)
        return wide[:-1, :-1] - u

    assert read(program_of(code, (16, 8), mesh)) == ["rotate", "rotate", "subtract"]


def test_loops_around_per_device_code_are_kept() -> None:
    def whole(u: Any) -> Any:
        inner = jax.shard_map(lambda v: sums(widened(v)), mesh=ROW, in_specs=P("x"), out_specs=P("x"))
        return lax.fori_loop(0, 3, lambda _, v: inner(v), u)

    assert "collective_permute" not in read(load(jax.jit(whole).lower(jax.ShapeDtypeStruct((32, 4), np.int32))))


def scaled_strips(u: Any) -> Any:
    before, after = around(u)
    return sums(jnp.concatenate([2 * before, u, 2 * after]))


def local_order(u: Any) -> Any:
    return jnp.sort(widened(u), axis=0)[1:-1]


def gathered(u: Any) -> Any:
    return sums(widened(u)) + lax.all_gather(u, "x").sum(0)


def columns_at_runtime(u: Any) -> Any:
    start = lax.pmax(u.max(), "x") % 2
    return sums(widened(lax.dynamic_slice_in_dim(u, start, 3, axis=1))).repeat(2, 1)[:, :4]


@pytest.mark.parametrize(("code", "why"), [
    (columns_at_runtime, "takes dimensions apart"),
    (scaled_strips, "put together of 16 parts"),
    (local_order, "looks along a dimension that is cut"),
    (gathered, "no reading across devices"),
])
def test_other_codes_stay_as_they_are(code: Code, why: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "eggshard"):
        assert globalized(program_of(code)) is None
    assert why in caplog.text


def test_axes_that_are_left_free_stay_so() -> None:
    mesh = mesh_of(x=4, y=2)
    code = jax.shard_map(lambda u: u + lax.ppermute(u, "x", shift(4, 1, True)), mesh=mesh, in_specs=P("x"),
                         out_specs=P("x"), axis_names={"x"})
    assert globalized(load(jax.jit(code).lower(jax.ShapeDtypeStruct((32, 4), np.int32)))) is None


def test_nothing_is_read_where_nothing_is_exchanged() -> None:
    assert globalized(program_of(lambda u: u + lax.psum(u.sum(), "x"))) is None
    assert globalized(load(jax.jit(lambda u: u + 1).lower(jax.ShapeDtypeStruct((4,), np.int32)))) is None


@pytest.mark.parametrize("seed", some(range(60), 6))
def test_drawn_codes_mean_what_they_say(seed: int) -> None:
    codes = Codes(seed)
    arrays = [np.random.default_rng(seed + n).integers(-9, 9, SHAPE, np.int32) for n in range(2)]
    program = load(codes.function.lower(*arrays))
    found = globalized(program)
    if found is None:
        assert not any(op.name == "collective_permute" for op in ops_within(program.region))
        return
    assert not any(op.name in ("manual_computation", "collective_permute") for op in ops_within(found.region))
    wanted = codes.function(*arrays)  # by XLA
    for made, own in zip(evaluate_region(found.region, arrays), wanted, strict=True):
        np.testing.assert_array_equal(made, np.asarray(own))
