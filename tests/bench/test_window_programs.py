"""The stencil and pad/slice programs: they lower, run on 8 devices, and no peer moves less than the best known."""

import numpy as np
import pytest
from tests.slowness import some

jax = pytest.importorskip("jax")
jnp = jax.numpy

from bench.programs import BenchProgram, by_name, padslice, stencil  # noqa: E402
from bench.programs.spellings import MODES, NINE_POINT, SPELLINGS, repeated, spelled, star  # noqa: E402

from eggshard.hlo.collectives import count_collectives  # noqa: E402

FIXED = by_name((*stencil.PROGRAMS, *padslice.PROGRAMS))
USUAL = [p for p in FIXED.values() if not p.extra]
DRAWN = [*stencil.variants(1, 6), *padslice.variants(1, 6)]


def finite_and_bytes(program: BenchProgram) -> tuple[bool, float]:
    """Compile once: whether all results on the devices are finite, and the wire bytes."""
    compiled = program.lower().compile()
    with jax.set_mesh(program.mesh):
        arrays = [
            jax.device_put(array, sharding)
            for array, sharding in zip(program.inputs(), compiled.input_shardings[0], strict=True)
        ]
        results = [np.asarray(result, np.complex128) for result in jax.tree.leaves(compiled(*arrays))]
    return all(np.isfinite(result).all() for result in results), count_collectives(compiled.as_text()).wire_bytes


@pytest.mark.parametrize("program", some(FIXED.values(), 100), ids=lambda p: p.name)
def test_every_program_lowers(program: BenchProgram) -> None:
    assert f"mhlo.num_partitions = {program.num_devices} " in program.module


@pytest.mark.parametrize("program", some([*USUAL[::9], *DRAWN], 9), ids=lambda p: p.name)
def test_programs_run(program: BenchProgram) -> None:
    finite, wire_bytes = finite_and_bytes(program)
    assert finite
    assert wire_bytes >= (program.known or 0) - 0.5


@pytest.mark.slow
@pytest.mark.parametrize("program", FIXED.values(), ids=lambda p: p.name)
def test_every_program_runs(program: BenchProgram) -> None:
    finite, wire_bytes = finite_and_bytes(program)
    assert finite
    assert wire_bytes >= (program.known or 0) - 0.5


def test_variants_come_from_the_seed() -> None:
    for family in (stencil, padslice):
        names = [[p.name for p in family.variants(seed, 20)] for seed in (5, 5, 6)]
        assert names[0] == names[1] != names[2]
        assert [p.module for p in family.variants(5, 2)] == [p.module for p in family.variants(5, 2)]
        by_name(family.variants(5, 20))


@pytest.mark.parametrize("edge", some(MODES, 2))
@pytest.mark.parametrize("taps", some([star(1, 3), star(2, 2), NINE_POINT], 2), ids=["line", "plane", "nine"])
def test_spellings_agree(edge: str, taps: dict) -> None:
    rank = len(next(iter(taps)))
    u = jnp.asarray(np.random.default_rng(0).standard_normal((9, 7)[:rank]), jnp.float32)
    radius = max(map(max, taps))
    expected = np.zeros(u.shape)
    wide = np.pad(np.asarray(u, np.float64), radius, mode=MODES[edge])
    for at, weight in taps.items():
        expected += weight * wide[tuple(slice(radius + o, radius + o + n) for o, n in zip(at, u.shape, strict=True))]
    for spelling in SPELLINGS:
        np.testing.assert_allclose(spelled(spelling, taps, edge)(u), expected, rtol=0, atol=1e-5, err_msg=spelling)


def test_loops_repeat() -> None:
    u = jnp.arange(8.0)
    for form in ("unrolled", "fori", "scan"):
        np.testing.assert_array_equal(repeated(lambda v: v + 2, 5, form)(u), u + 10)
