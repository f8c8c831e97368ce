"""Every kind of step on ranks, against the simulator: bit for bit where no float partial sums are summed by MPI."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.emit import windows
from tests.emit.devices import plan_of
from tests.engines.mpi.ranks import needs_mpi, run_cases
from tests.engines.ranks import actions
from tests.engines.workspace.programs import branching, swapping_loop

from eggshard.engines.jax.verification import difference, tolerance
from eggshard.engines.workspace.steps import nested
from eggshard.program import monoids
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType, mlir_dtype
from eggshard.simulate.device_arrays import same_bits
from eggshard.simulate.simulator import run
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.steps.steps import AllReduce, ReduceScatter

pytestmark = needs_mpi

MESHES = [Mesh({"x": 4}), Mesh({"x": 2, "y": 2}), Mesh({"x": 2, "y": 2}, (2, 1, 3, 0)), Mesh({"x": 3}), Mesh({"x": 2})]
DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.int8, np.int32, np.uint64,
          np.bool_, np.complex64)
SEEDS = 4


def types_of(arrays):
    return [TensorType(a.shape[1:], mlir_dtype(a.dtype)) for a in arrays]


def drawn(rng, shape, dtype):
    """Random values; of floats some NaN, infinite, and negative zero."""
    if dtype == np.bool_ or np.issubdtype(dtype, np.integer):
        return rng.integers(0, 2 if dtype == np.bool_ else 100, shape).astype(dtype)
    values = rng.standard_normal(shape)
    values[rng.random(shape) < 0.05] = np.nan
    values[rng.random(shape) < 0.05] = np.inf
    values[rng.random(shape) < 0.05] = -0.0
    if np.issubdtype(dtype, np.complexfloating):
        values = np.stack([values, rng.permutation(values)], axis=-1).view(np.complex128)[..., 0]
    return values.astype(dtype)


def random_steps():
    """Of every kind that communicates, and of some kinds on one device, with what they are made on."""
    kept = {}
    for module in (windows, actions):
        kept[module], module.MESHES = module.MESHES, MESHES
    try:
        for kind in (*actions.COMMUNICATING, "first", "number", "crop"):
            for seed in range(SEEDS):
                mesh, action, operands = actions.random_action(np.random.default_rng([seed, 5]), kind)
                yield f"{kind} {seed}", plan_of(mesh, types_of(operands), action), operands
    finally:
        for module, meshes in kept.items():
            module.MESHES = meshes


def reductions():
    """All monoids over all element types; few elements, and more than each rank reduces of itself."""
    rng = np.random.default_rng(0)
    number = 0
    for dtype in map(np.dtype, DTYPES):
        for monoid in monoids.of_dtype(mlir_dtype(dtype)):
            mesh = MESHES[number % len(MESHES)]
            axes = tuple(mesh.axes)
            array = drawn(rng, (mesh.size, *((12, 60) if number % 3 else (5, 1))), dtype)
            yield f"all-reduce {monoid} {dtype}", plan_of(mesh, types_of([array]), AllReduce(axes, monoid)), (array,)
            array = drawn(rng, (mesh.size, 12, 12), dtype)
            action = ReduceScatter(((number % 2, axes),), monoid)
            yield f"reduce-scatter {monoid} {dtype}", plan_of(mesh, types_of([array]), action), (array,)
            number += 1


def odd_steps():
    """Pieces that overwrite each other, no elements, and no ranks but one."""
    mesh = Mesh({"x": 4})
    at = ((0, 0), (0, 0), (0, 0), (0, 0))
    shifts = tuple(Round(tuple((s, (s + k) % 4) for s in range(4)), at, ((k % 2, 0),) * 4) for k in (1, 2, 3, 1))
    local = (Round(tuple((d, d) for d in range(4)), at, at),)
    rng = np.random.default_rng(1)
    array = drawn(rng, (4, 3, 2), np.dtype(np.float32))
    yield "overlaps", plan_of(mesh, types_of([array]), Exchange((2, 2), (4, 2), shifts, local, ("x",))), (array,)
    empty = np.zeros((4, 0, 4), np.float32)
    for action in (AllReduce(("x",), "add"), AllReduce(("x",), "max"), ReduceScatter(((1, ("x",)),), "add")):
        yield f"empty {action.kind}", plan_of(mesh, types_of([empty]), action), (empty,)
    one = Mesh({"x": 1})
    array = drawn(rng, (1, 6), np.dtype(ml_dtypes.bfloat16))
    yield "one rank", plan_of(one, types_of([array]), AllReduce(("x",), "max")), (array,)
    yield "a loop", swapping_loop(), [drawn(rng, (4, 6), np.dtype(np.float32)) for _ in range(2)]
    for chosen in (0, 1, 7):
        inputs = [np.full(4, chosen, np.int32), drawn(rng, (4, 6), np.dtype(np.float32))]
        yield f"branch {chosen}", branching(), inputs


CASES = [*random_steps(), *reductions(), *odd_steps()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return run_cases(tmp_path_factory.mktemp("steps"), [(program, arrays) for _, program, arrays in CASES])


def rounds(program):
    """Whether MPI may add floats in an order of its own."""
    return any(
        isinstance(s.action, (AllReduce, ReduceScatter)) and s.action.monoid in ("add", "mul")
        or any(rounds(inner) for _, inner in nested(s))
        for s in program.steps
    )


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("number", range(len(CASES)), ids=[name for name, *_ in CASES])
def test_as_on_the_simulator(made, number):
    _, program, arrays = CASES[number]
    for got, want in zip(made[number], run(program, arrays), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        if not same_bits(got, want).all():
            assert rounds(program)
            assert difference(got, want) <= tolerance(mlir_dtype(got.dtype))
