"""Gathers and scatters at counted places are batched: they mean what they did, and send nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard.frontends import load
from eggshard.ops.evaluate import evaluate_program

N, M, K = 16, 6, 5
ROWS, COLUMNS = jnp.arange(N), jnp.arange(M)
X = np.random.default_rng(0).integers(-9, 9, (N, M, K)).astype(np.int32)
#: Places along the last dimension, some counted from its end.
ONE = np.random.default_rng(1).integers(-K, K, N).astype(np.int32)
MANY = np.random.default_rng(2).integers(0, K, (N, M)).astype(np.int32)

CODES: dict[str, tuple[Callable[..., Any], np.ndarray, tuple[int, ...]]] = {
    "an element of each row": (lambda x, i: x[ROWS, 0, i], ONE, (0,)),
    "a column of each row": (lambda x, i: x[ROWS, :, i], ONE, (0,)),
    "a window of each row": (lambda x, i: x[ROWS, i], ONE % M, (0,)),
    "two counted dimensions": (lambda x, i: x[ROWS[:, None], COLUMNS[None], i], MANY, (0, 1)),
    "set": (lambda x, i: x.at[ROWS, 0, i].set(7), ONE, (0,)),
    "add": (lambda x, i: x.at[ROWS[:, None], COLUMNS[None], i].add(MANY), MANY, (0, 1)),
    "the same place twice": (lambda x, i: x.at[ROWS[:, None], COLUMNS[None, :2], i[:, :2]].add(1), MANY, (0,)),
}


def program_of(name: str) -> es.Program:
    code, places, _ = CODES[name]
    return load(jax.jit(code).lower(X, places))


def batching(program: es.Program) -> list[tuple[int, ...]]:
    """The operand's batching dimensions of every gather and scatter."""
    names = {"gather": ("dimension_numbers", "operand_batching_dims"),
             "scatter": ("scatter_dimension_numbers", "input_batching_dims")}
    return [op.attributes[names[op.name][0]][names[op.name][1]] for op in program.region.ops if op.name in names]


@pytest.mark.parametrize("name", CODES)
def test_counted_dimensions_are_batched_and_results_stay(name: str) -> None:
    code, places, wanted = CODES[name]
    program = program_of(name)
    assert batching(program) == [wanted]
    (made,) = evaluate_program(program, [X, places])
    np.testing.assert_array_equal(made, np.asarray(code(jnp.asarray(X), jnp.asarray(places))))


@pytest.mark.parametrize("code", [
    lambda x, i: x[ROWS[::-1], 0, i],  # counted downwards
    lambda x, i: x[ROWS[:8], 0, i[:8]],  # not all rows
    lambda x, i: x[i % N, 0, i],
])
def test_other_places_are_not(code: Callable[..., Any]) -> None:
    program = load(jax.jit(code).lower(X, ONE))
    assert all(dims == () for dims in batching(program))
    (made,) = evaluate_program(program, [X, ONE])
    np.testing.assert_array_equal(made, np.asarray(code(jnp.asarray(X), jnp.asarray(ONE))))


@pytest.mark.parametrize("name", ["an element of each row", "set", "the same place twice"])
def test_nothing_is_sent_where_rows_are_sharded(name: str) -> None:
    code, places, _ = CODES[name]
    rows = NamedSharding(jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,)), P("x"))
    plan = es.optimize(jax.jit(code, in_shardings=(rows, rows), out_shardings=rows).lower(X, places))
    assert plan.collectives == {}
    np.testing.assert_array_equal(np.asarray(plan.to_jax()(X, places)), np.asarray(code(jnp.asarray(X), places)))
