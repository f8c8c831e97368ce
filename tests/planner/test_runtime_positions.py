"""Reads and writes at positions that are data, planned along the dimensions that they index, run on all engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from tests.slowness import some

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.engines.jax.callable import run_on_devices, run_unsharded
from eggshard.engines.jax.verification import compare

#: Devices out of order, so that a device's place is not its number.
MESH = Mesh(np.array(jax.devices("cpu"))[[5, 0, 3, 6, 1, 2, 7, 4]].reshape(4, 2), ("x", "y"),
            axis_types=(AxisType.Auto,) * 2)
EXTREMES = (-(2**31), -17, -16, -1, 0, 7, 15, 16, 2**31 - 1)


class Case(NamedTuple):
    """``bytes``: the most that a device may receive, step by step."""

    function: Callable[..., Any]
    arguments: tuple[str, ...]
    out: Any
    bytes: float


def optimized(case: Case, **options: Any) -> es.Plan:
    structs, shardings = [], []
    for text in case.arguments:
        array, _, axes = text.partition(":")
        dtype, _, shape = array.rpartition(" ")
        structs.append(jax.ShapeDtypeStruct(tuple(map(int, filter(None, shape.split("x")))), dtype or "float32"))
        shardings.append(NamedSharding(MESH, P(*(None if a == "-" else a for a in axes.split()))))
    out = jax.tree.map(lambda s: NamedSharding(MESH, s), case.out, is_leaf=lambda s: isinstance(s, P))
    lowered = jax.jit(case.function, in_shardings=tuple(shardings), out_shardings=out).lower(*structs)
    return es.optimize(lowered, cost_model=WireBytes(), **options)


def draw(plan: es.Plan, seed: int) -> list[np.ndarray]:
    """Inputs: integers in and out of a dimension's range, some NaN and some infinities where sums do not mix them."""
    rng, out = np.random.default_rng(seed), []
    for t in plan.program.input_types:
        if t.dtype == "i32" and t.rank < 2:
            out.append(rng.choice(EXTREMES if seed else range(16), t.shape).astype(np.int32))
            continue
        values = rng.integers(-99, 99, t.shape).astype(np.float64)
        if t.dtype != "i32" and t.rank == 2:
            values[rng.random(t.shape) < 0.1] = np.nan
        out.append(np.asarray(values).astype("int32" if t.dtype == "i32" else jnp.dtype(NAMES[t.dtype])))
    return out


NAMES = {"f32": "float32", "bf16": "bfloat16"}
TABLE, TOKENS = "16x6: x -", "int32 10: -"
ROW = 6 * 4


def uneven(table: Any, tokens: Any) -> Any:
    """Rows of a table of 21 rows that lies over four devices, in tiles of 6."""
    longer = lax.with_sharding_constraint(jnp.concatenate([table, table[:5]]) * 2, NamedSharding(MESH, P("x")))
    return longer[tokens], jnp.cumsum(longer, 1)[:16]


CASES = {
    "embedding": Case(lambda t, i: t[i], (TABLE, TOKENS), P(), 2 * 3 / 4 * 10 * ROW),
    "embedding, tokens on another axis": Case(lambda t, i: t[i], (TABLE, "int32 10: y"), P("y"), 2 * 3 / 4 * 5 * ROW),
    "embedding of integers": Case(
        lambda t, i: t[i], ("int32 16x6: x -", TOKENS), P(), 2 * 3 / 4 * 10 * ROW),
    "embedding of bf16": Case(lambda t, i: t[i], ("bfloat16 16x6: x -", TOKENS), P(), 10 * ROW),
    "embedding of an uneven table": Case(uneven, (TABLE, TOKENS), (P(), P("x")), np.inf),
    **{
        f"take, {mode}": Case(
            lambda t, i, mode=mode: jnp.take(t, i, axis=0, mode=mode), (TABLE, "int32 2: -"), P(), 2 * 3 / 4 * 2 * ROW)
        for mode in ("clip", "fill", "wrap")
    },
    "row": Case(lambda x, i: x[i], (TABLE, "int32 : "), P(), 2 * 3 / 4 * ROW),
    "rows": Case(lambda x, i: lax.dynamic_slice_in_dim(x, i, 3), ("64x6: x -", "int32 : "), P(), 2 * 3 / 4 * 3 * ROW),
    "row written": Case(
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 0)), (TABLE, "1x6: - -", "int32 : "), P("x"), 0),
    "window written": Case(
        lambda x, u, i, j: lax.dynamic_update_slice(x, u, (i, j)), ("16x6: x y", "7x4: - -", "int32 : ", "int32 : "),
        P("x", "y"), 0),
    "cache": Case(
        lambda c, u, i: lax.dynamic_update_slice(c, u, (0, i, 0)), ("2x16x4: - x y", "2x1x4: - - y", "int32 : "),
        P(None, "x", "y"), 0),
    "rows set": Case(lambda x, i, u: x.at[i].set(u), (TABLE, "int32 1: -", "1x6: - -"), P("x"), 0),
    "table's gradient, vocabulary sharded": Case(
        lambda i, d: jnp.zeros((16, 6)).at[i].add(d[0]), (TOKENS, "1x10x6: - - -"), P("x"), 0),
    "table's gradient, features sharded": Case(
        lambda i, d: jnp.zeros((16, 6)).at[i].add(d[0]), (TOKENS, "1x10x6: - - y"), P(None, "y"), 0),
    "table's gradient, batch sharded": Case(
        lambda i, d: jnp.zeros((2, 6)).at[i].add(d[0]), ("int32 16: x", "1x16x6: - x -"), P(), 2 * 3 / 4 * 2 * ROW),
    "largest of segments": Case(
        lambda x, i: jax.ops.segment_max(x[0], i, num_segments=4), ("int32 1x16x6: - x -", "int32 16: x"), P("x"),
        3 / 4 * 4 * ROW),
    "along a batch": Case(
        lambda x, i: jnp.take_along_axis(x, i % 6, 1), ("16x6: x y", "int32 16x3: x -"), P("x"), 2 / 2 * 4 * 3 * 4),
}


@pytest.mark.parametrize("name", some(CASES, 6))
def test_positions_along_sharded_dimensions(name: str) -> None:
    plan = optimized(CASES[name])
    assert not plan.search.fallback
    assert plan.serial_bytes <= CASES[name].bytes
    for seed in range(2):
        inputs = draw(plan, seed)
        wanted = run_unsharded(plan.program, inputs)
        compare("jax", run_on_devices(plan, inputs), wanted, plan.program.output_types)
        compare("numpy", plan.run(*inputs), wanted, plan.program.output_types)


def test_exact_plans_sum_only_what_adding_zero_leaves_alone() -> None:
    """-0.0 + 0.0 is 0.0, so an exact plan sums no rows of floats; integers it does."""
    table, tokens = "64x6: x -", "int32 2: -"
    floats, integers = (optimized(Case(lambda t, i: t[i], (kind + table, tokens), P(), 0), exact=True)
                        for kind in ("", "int32 "))
    reducing = {"all-reduce", "reduce-scatter"}
    assert not reducing & floats.collectives.keys() and reducing & integers.collectives.keys()
    inputs = [np.full((64, 6), -0.0, np.float32), np.array([3, 60], np.int32)]
    for got in (run_on_devices(floats, inputs), floats.run(*inputs)):
        assert np.signbit(got[0]).all()
