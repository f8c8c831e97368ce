"""Decoding: outputs are delivered where the selection has them."""

from __future__ import annotations

import numpy as np
import pytest

import eggshard as es


def test_an_output_that_may_lie_anywhere_is_taken_from_where_it_is() -> None:
    """Scans take windows of their operand, which is an output, too: the windows are a class of their own."""
    jax = pytest.importorskip("jax")
    from jax.sharding import NamedSharding, PartitionSpec as P

    mesh = jax.make_mesh((4,), ("b",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:4])

    def function(a: object) -> object:
        return a.T, jax.lax.associative_scan(jax.numpy.add, a, axis=0)  # type: ignore[attr-defined]

    x = np.arange(128, dtype=np.float32).reshape(16, 8)
    lowered = jax.jit(function, in_shardings=NamedSharding(mesh, P("b", None))).lower(x)
    plan = es.optimize(lowered)
    for got, want in zip(plan.run(x), function(x), strict=True):
        np.testing.assert_array_equal(got, want)
