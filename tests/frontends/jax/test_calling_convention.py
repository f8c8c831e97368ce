"""How JAX calls a function is kept: a plan of it, run on NumPy, takes and gives what the function does."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.frontends.jax_programs import X, mesh, sharded

import eggshard as es
from eggshard.errors import LoweringError
from eggshard.frontends import frontend_of
from eggshard.frontends.jax.calling_convention import JaxCallingConvention
from eggshard.program.types import TensorType


def rows(state: dict[str, Any], unused: Any, *, scale: Any, mode: str) -> tuple[dict[str, Any], Any]:
    assert mode == "double"
    noise = jax.random.key_data(state["key"])[0].astype(jnp.float32)
    table = jax.lax.with_sharding_constraint(state["table"] * 2 * scale + 0 * noise, sharded("x"))
    return {"key": jax.random.clone(state["key"]), "table": table}, (table.max(0), None)


ROWS = partial(jax.jit, static_argnames="mode", donate_argnums=0)(rows)


def arguments() -> tuple[dict[str, Any], np.ndarray]:
    return {"key": jax.random.key(3), "table": np.asarray(X)}, np.zeros(5)


def test_any_engine_may_call_a_plan_as_the_function_is_called() -> None:
    lowered = ROWS.lower(*arguments(), scale=3.0, mode="double")
    plan = es.optimize(lowered)
    convention = plan.calling_convention
    assert isinstance(convention, JaxCallingConvention) and convention.name == "rows"
    inputs = convention.flattened(arguments(), {"scale": 3.0})
    assert [tuple(a.shape) for a in inputs] == [t.shape for t in plan.program.input_types]
    got = convention.rebuilt([jnp.asarray(a) for a in plan.run(*map(np.asarray, inputs))])
    want = jax.jit(rows, static_argnames="mode")(*arguments(), scale=3.0, mode="double")
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert g.dtype == w.dtype
        data = jax.random.key_data if jax.dtypes.issubdtype(w.dtype, jax.dtypes.prng_key) else np.asarray
        np.testing.assert_array_equal(data(g), data(w))
    with pytest.raises(LoweringError, match="rows was planned for arguments of structure"):
        convention.flattened(arguments(), {"scales": 3.0})
    with pytest.raises(LoweringError, match=r"args\[0\]\['table'\] of rows is float32\[2\]"):
        convention.flattened(({**arguments()[0], "table": np.zeros(2, np.float32)}, np.zeros(5)), {"scale": 3.0})


def test_it_knows_its_devices_by_number() -> None:
    lowered = jax.jit(lambda x: x + 1, in_shardings=sharded("x"), out_shardings=sharded("x")).lower(X)
    convention = frontend_of(lowered).calling_convention(lowered)
    assert convention is not None and convention.device_ids == tuple(d.id for d in mesh().devices.flat)


def test_other_sizes_keep_the_signature_and_refuse_constants_of_their_own() -> None:
    convention = JaxCallingConvention.of(ROWS.lower(*arguments(), scale=3.0, mode="double"))
    types = [TensorType((2,), "ui32"), TensorType((64, 16), "f32"), TensorType((), "f32")]
    results = [types[0], types[1], TensorType((16,), "f32")]
    resized = convention.resized(types, results)
    assert [leaf.shape for leaf in resized.arguments] == [(), (64, 16), (5,), ()]
    assert [leaf.shape for leaf in resized.results] == [(), (64, 16), (16,)]
    assert resized.in_tree == convention.in_tree and resized.device_ids == ()
    constant = replace(convention, constants=(np.zeros(3),))
    with pytest.raises(LoweringError, match="constant 0 of rows has the shape .3. and would be"):
        constant.resized([TensorType((4,), "f32"), *types], results)
