"""Code written per device against the function that it is to compute."""

from __future__ import annotations

import pytest

import eggshard as es
from eggshard.errors import ProgramError

jax = pytest.importorskip("jax")
P = jax.sharding.PartitionSpec
MESH = {"x": 4}
W, X = jax.ShapeDtypeStruct((8, 16), "float32"), jax.ShapeDtypeStruct((12, 8), "float32")


def layer(x, w):
    return jax.nn.softmax(x @ w, axis=0)


def per_device(reduce):
    """The layer with x cut along its rows; the softmax's denominator is summed over devices."""
    def body(x, w):
        e = jax.numpy.exp(x @ w)
        return e / reduce(e.sum(axis=0))

    return jax.shard_map(body, in_specs=(P("x"), P()), out_specs=P("x"))


def unshifted(x, w):
    e = jax.numpy.exp(x @ w)
    return e / e.sum(axis=0)


def test_equivalent():
    proof = es.equivalent(per_device(lambda s: jax.lax.psum(s, "x")), unshifted, X, W, mesh=MESH)
    assert proof and str(proof).startswith("equal: the two programs agree in all 192 elements")


def test_a_missing_sum_is_found():
    proof = es.equivalent(per_device(lambda s: s), unshifted, X, W, mesh=MESH)
    assert proof.equal is False and proof.difference.output == 0 and "NOT EQUAL" in str(proof)


def test_what_rounding_hides_is_found():
    """The exponential of a difference is no quotient of exponentials here."""
    assert not es.equivalent(layer, unshifted, X, W)
    assert not es.equivalent(lambda x: x * 1.0000001, lambda x: x, X)


def test_other_types_are_refused():
    with pytest.raises(ProgramError, match="return different types"):
        es.equivalent(lambda x: x, lambda x: x.T, X)
