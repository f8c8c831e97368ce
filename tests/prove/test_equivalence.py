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
    assert not es.equivalent(lambda x: x * 1.0000001, lambda x: x, X)


def test_exponentials_of_sums():
    """A softmax is what it is without its maximum, if exponentials turn sums into products."""
    proof = es.equivalent(layer, unshifted, X, W)
    assert proof and proof.exponents and proof.bound < 2.0**-40 and "exp(x) exp(y)" in str(proof)
    assert not es.equivalent(layer, lambda x, w: unshifted(x, w * 1.0000001), X, W)
    assert not es.equivalent(layer, lambda x, w: jax.nn.softmax(x @ w, axis=1), X, W)


Q, KV = (jax.ShapeDtypeStruct((n, 6), "float32") for n in (8, 12))


def attention(q, k, v):
    return jax.nn.softmax(q @ k.T / 3.0, axis=1) @ v


def ring(rescaled=True):
    """Attention whose keys and values go round a ring of devices, with a running maximum, sum and result."""
    def body(q, k, v):
        highest = jax.numpy.full((q.shape[0], 1), -jax.numpy.inf)
        total, out = jax.numpy.zeros((q.shape[0], 1)), jax.numpy.zeros(q.shape)
        for _ in range(4):
            scores = q @ k.T / 3.0
            new = jax.numpy.maximum(highest, scores.max(axis=1, keepdims=True))
            kept = jax.numpy.exp(highest - new) if rescaled else 1.0
            weights = jax.numpy.exp(scores - new)
            total, out, highest = total * kept + weights.sum(axis=1, keepdims=True), out * kept + weights @ v, new
            k, v = (jax.lax.ppermute(x, "x", [(i, (i + 1) % 4) for i in range(4)]) for x in (k, v))
        return out / total

    return jax.shard_map(body, in_specs=(P("x"), P("x"), P("x")), out_specs=P("x"))


def test_ring_attention():
    proof = es.equivalent(ring(), attention, Q, KV, KV, mesh=MESH)
    assert proof and proof.exponents and not proof.undecided
    assert es.equivalent(ring(rescaled=False), attention, Q, KV, KV, mesh=MESH).equal is False


def by_blocks(a):
    """The Cholesky factor, of four rows at a time."""
    jnp, solve = jax.numpy, jax.scipy.linalg.solve_triangular
    first = jnp.linalg.cholesky(a[:4, :4])
    below = solve(first, a[4:, :4].T, lower=True).T
    last = jnp.linalg.cholesky(a[4:, 4:] - below @ below.T)
    return jnp.block([[first, jnp.zeros((4, 4))], [below, last]])


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_elimination_is_exact(dtype):
    """Factors by blocks, and products with a matrix after systems with it."""
    jnp = jax.numpy
    matrix = jax.ShapeDtypeStruct((8, 8), dtype)

    def positive(a):
        return a @ a.conj().T

    if dtype == "float32":
        assert es.equivalent(lambda a: jnp.linalg.cholesky(positive(a)), lambda a: by_blocks(positive(a)), matrix)
    def solved(a, b):
        return jax.scipy.linalg.solve_triangular(a, b, trans="C")

    assert es.equivalent(lambda a, b: jnp.triu(a).conj().T @ solved(a, b), lambda a, b: b, matrix, matrix)
    assert not es.equivalent(lambda a, b: jnp.triu(a).conj().T @ solved(a, b), lambda a, b: b.T, matrix, matrix)


def test_other_types_are_refused():
    with pytest.raises(ProgramError, match="return different types"):
        es.equivalent(lambda x: x, lambda x: x.T, X)
