"""Whole plans on ranks: uneven sizes, halos, loops that communicate, odd element types."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec  # noqa: E402
from tests.engines.mpi.ranks import needs_mpi, run_cases  # noqa: E402
from tests.random_programs import random_case, random_inputs, random_model  # noqa: E402
from tests.random_stencils import random_stencil  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.engines.jax.verification import difference, tolerance  # noqa: E402
from eggshard.errors import EggshardWarning  # noqa: E402
from eggshard.program.types import mlir_dtype  # noqa: E402
from eggshard.simulate.device_arrays import same_bits  # noqa: E402

pytestmark = needs_mpi

RANKS = 4


def random_plans():
    """Programs of the registry's ops, under prices that make odd plans cheap."""
    seed, found = 0, 0
    while found < 12:
        seed += 1
        rng = random.Random(seed)
        case, model = random_case(rng), random_model(rng)
        if case.program.mesh.size > RANKS:
            continue
        found += 1
        inputs = random_inputs(case.program, np.random.default_rng(seed), seed % 2 == 1)
        yield f"random {seed}", es.optimize(case.program, cost_model=model), inputs


def stencils():
    """Field programs in users' spellings."""
    for seed in range(200, 206):
        rng = random.Random(seed)
        program = random_stencil(rng)
        while np.prod(list(program.mesh.values())) > RANKS:
            program = random_stencil(rng)
        plan = es.optimize(program.lower(), cost_model=es.costmodel.WireBytes())
        yield f"stencil {seed}", plan, program.inputs(np.random.default_rng(seed), seed % 2 == 1)


def lowered(function, mesh, spec, *arrays):
    devices = np.array(jax.devices()[: int(np.prod(list(mesh.values())))]).reshape(tuple(mesh.values()))
    on = jax.sharding.Mesh(devices, tuple(mesh), axis_types=(AxisType.Auto,) * len(mesh))
    sharding = NamedSharding(on, PartitionSpec(*spec))
    return jax.jit(function, in_shardings=sharding, out_shardings=sharding).lower(*arrays)


def relaxed(u):
    """Neighbours averaged until nothing changes much; the largest change is an all-reduce of a maximum."""

    def step(state):
        u, _, count = state
        p = jnp.pad(u, 1)
        new = 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])
        return new, jnp.max(jnp.abs(new - u)), count + 1

    u, _, count = jax.lax.while_loop(lambda s: (s[1] > 0.05) & (s[2] < 20), step, (u, jnp.inf, 0))
    return u + count


def chosen(u):
    """One of two ways by the sum of all."""
    return jax.lax.cond(jnp.sum(u) > 0, lambda x: jnp.roll(x, 1, 0) - 1, lambda x: jnp.cumsum(x, 0), u)


def hand_written():
    rng = np.random.default_rng(0)
    for mesh, spec in (({"x": 4}, ("x",)), ({"x": 2, "y": 2}, ("x", "y"))):
        u = rng.standard_normal((16, 12)).astype(np.float32)
        yield f"relaxed on {mesh}", es.optimize(lowered(relaxed, mesh, spec, u)), [u]
        for sign in (1, -1):
            v = sign * np.abs(u)
            yield f"chosen {sign} on {mesh}", es.optimize(lowered(chosen, mesh, spec, v)), [v]
    mesh = {"x": 4}
    for rows in (13, 6, 3):  # 4, 4, 4, 1; 2, 2, 2, 0; one each but the last
        b = es.ProgramBuilder(mesh)
        x = b.constrain(b.input((rows, 5), "bf16", (None, None)), ("x", None))
        total = b.sum(x, 0)
        b.output(b.tanh(x) + b.broadcast(b.max(x, 0), (rows, 5), (1,)), (None, None))
        b.output(total, (None,))
        array = rng.standard_normal((rows, 5)).astype(jnp.bfloat16)
        array[0, 0] = np.nan
        yield f"{rows} rows", es.optimize(b.build(), cost_model=es.costmodel.AlphaBeta()), [array]


@pytest.fixture(scope="module")
def cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EggshardWarning)
        return [*hand_written(), *random_plans(), *stencils()]


@pytest.fixture(scope="module")
def made(cases, tmp_path_factory):
    return run_cases(tmp_path_factory.mktemp("plans"), [(plan, arrays) for _, plan, arrays in cases], RANKS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_plans_as_on_the_simulator(cases, made):
    kinds = set()
    for (name, plan, arrays), results in zip(cases, made, strict=True):
        kinds |= {s.action.kind for s in plan.steps}
        for got, want in zip(results, plan.run(*arrays), strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype, name
            if not same_bits(got, want).all():  # MPI adds in an order of its own
                assert difference(got, want) <= tolerance(mlir_dtype(got.dtype)), name
    assert {"while", "case", "halo-exchange", "all-reduce", "all-gather"} <= kinds, kinds
