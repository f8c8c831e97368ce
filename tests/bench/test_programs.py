"""The benchmark programs: they lower, draw inputs from a seed, and can be improved where they say so."""

import numpy as np
import pytest
from tests.slowness import some

jax = pytest.importorskip("jax")

from bench import peers  # noqa: E402
from bench.lower_bound import lower_bound  # noqa: E402
from bench.programs import BenchProgram, by_name, dense, reshard, spec  # noqa: E402

P = jax.sharding.PartitionSpec
FIXED = by_name((*reshard.PROGRAMS, *dense.PROGRAMS))
DRAWN = [*reshard.variants(1, 6), *dense.variants(1, 6)]


def test_specs_in_short() -> None:
    assert spec("x,y - z") == P(("x", "y"), None, "z")
    assert spec("") == P()


@pytest.mark.parametrize("program", FIXED.values(), ids=lambda p: p.name)
def test_every_program_lowers(program: BenchProgram) -> None:
    assert "sdy.mesh" in program.module
    assert f"mhlo.num_partitions = {program.num_devices} " in program.module


def test_inputs_come_from_the_seed() -> None:
    program = FIXED["MLP 2-D weights, batch 16"]
    first, again, other = program.inputs(3), program.inputs(3), program.inputs(4)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert [a.shape for a in first] == [(16, 512), (512, 2048), (2048, 512)]
    assert {a.dtype for a in first} == {np.dtype("float32")}


def test_variants_come_from_the_seed() -> None:
    for family in (reshard, dense):
        names = [[p.name for p in family.variants(seed, 20)] for seed in (5, 5, 6)]
        assert names[0] == names[1] != names[2]
        assert [p.module for p in family.variants(5, 2)] == [p.module for p in family.variants(5, 2)]
        by_name(family.variants(5, 20))


def test_a_program_is_given_once() -> None:
    with pytest.raises(ValueError, match="one of the two"):
        BenchProgram("none", "test", (("x", 8),), ())
    with pytest.raises(ValueError, match="repeat"):
        by_name([FIXED["gather"], FIXED["gather"]])


@pytest.mark.parametrize("program", some([p for p in reshard.PROGRAMS if p.reshard], 20), ids=lambda p: p.name)
def test_xla_never_beats_the_lower_bound(program: BenchProgram) -> None:
    assert program.reshard is not None
    result = peers.xla(program)
    bound = lower_bound(program.reshard)
    assert result.count is not None
    assert result.count.busiest_device_bytes >= bound.maximum
    assert result.count.average_wire_bytes >= bound.average
    if program.control:
        assert result.wire_bytes == bound.maximum


@pytest.mark.parametrize("program", some([p for p in FIXED.values() if p.equivalent], 6), ids=lambda p: p.name)
def test_equivalents_agree_and_communicate_less(program: BenchProgram) -> None:
    ours, theirs = program, program.rewritten()
    expected, got = (np.asarray(jax.jit(p.function)(*program.inputs()), np.float64) for p in (ours, theirs))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
    naive, better = peers.xla(ours), peers.xla(theirs)
    assert naive.wire_bytes is not None and better.wire_bytes is not None
    shardy = peers.shardy(ours).least_wire_bytes, peers.shardy(theirs).least_wire_bytes
    assert better.wire_bytes < naive.wire_bytes or shardy[1] < shardy[0]


@pytest.mark.parametrize("program", DRAWN, ids=lambda p: p.name)
def test_variants_compile(program: BenchProgram) -> None:
    assert peers.xla(program).count is not None
    result = peers.shardy(program)
    assert result.count is not None, result.reason
