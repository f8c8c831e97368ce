"""Real JAX programs of many kinds: planned, lowered, run on eight devices and on the simulator, and compared."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from tests.slowness import some

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.engines.jax.verification import compare, random_array
from eggshard.errors import LoweringError


def mesh() -> Mesh:
    return jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def layer_norm(x, g):
    m = x.mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g


def attention(q, k, v):
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(s.shape[-2:], bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, s, -1e30), axis=-1), v)


def mlp_gradient(x, a, b):
    return jax.grad(lambda a, b: (jax.nn.gelu(x @ a) @ b).sum(), argnums=(0, 1))(a, b)


def scanned(x, w):
    return lax.scan(lambda h, w: (jnp.tanh(h @ w), h.sum()), x, w)


def counted_while(x, w):
    return lax.fori_loop(0, 5, lambda i, h: jnp.tanh(h @ w), x)


def data_while(x):
    return lax.while_loop(lambda c: c[1] < 100.0, lambda c: (c[0] * 1.5, jnp.abs(c[0]).max() + c[1]), (x, 0.0))[0]


def branches(i, x):
    return lax.switch(i[0], [lambda x: x + 1, lambda x: x @ x, lambda x: x.T], x)


def embedding(table, ids):
    return table[ids].sum(1)


def scatter_add(x, i):
    return jnp.zeros((16, 8)).at[i].add(x)


def convolution(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def manual(x):
    m = mesh()
    return jax.shard_map(lambda v: lax.psum(v, "x") * 2, mesh=m, in_specs=P("x", "y"), out_specs=P(None, "y"))(x) + 1


def random_bits(x):
    return x + jax.random.normal(jax.random.key(0), x.shape)


PROGRAMS = {
    "layer norm over a sharded dimension": (layer_norm, [f32(16, 32), f32(32)], [P("x", "y"), P("y")], P("x", "y")),
    "attention, sequence sharded": (attention, [f32(2, 16, 4, 8)] * 3, [P(None, "x", "y")] * 3, P(None, "x", "y")),
    "gradient of an MLP": (
        mlp_gradient, [f32(16, 32), f32(32, 64), f32(64, 32)], [P("x"), P(None, "y"), P("y")], (P(None, "y"), P("y"))),
    "scan": (scanned, [f32(8, 16), f32(3, 16, 16)], [P("x", None), P(None, "y", None)], None),
    "counted loop": (counted_while, [f32(8, 16), f32(16, 16)], [P("x", "y"), P(None, "y")], P("x", "y")),
    "data-dependent loop": (data_while, [f32(8, 16)], [P("x", "y")], P("x", "y")),
    "switch": (branches, [i32(1), f32(16, 16)], [P(), P("x", "y")], P("x", "y")),
    "embedding": (embedding, [f32(64, 32), i32(8, 4)], [P("x", "y"), P("x")], P("x", "y")),
    "scatter-add": (scatter_add, [f32(12, 8), i32(12)], [P("x", "y"), P("x")], P(None, "y")),
    "argmax and sort": (
        lambda x: (x.argmax(1), jnp.sort(x, 0), lax.top_k(x, 3)[0]), [f32(16, 8)], [P("x", "y")], None),
    "cumulative sum": (lambda x: jnp.cumsum(x, 0), [f32(16, 8)], [P("x", "y")], P("x", "y")),
    "convolution": (convolution, [f32(8, 6, 6, 4), f32(3, 3, 4, 8)], [P("x"), P(None, None, "y")], P("x")),
    "pad, slice, concatenate, roll": (
        lambda x: jnp.concatenate([jnp.roll(x, 3, 0), jnp.pad(x, ((2, 1), (0, 0)))[1:9], x[::-1]], 1),
        [f32(8, 6)], [P("x", None)], P("x", None)),
    "manual computation": (manual, [f32(16, 8)], [P("x", "y")], P("x", "y")),
    "random numbers": (random_bits, [f32(16, 8)], [P("x", "y")], P("x", "y")),
    "checkpoint": (
        lambda x, w: jax.grad(lambda w: jax.checkpoint(lambda w: jnp.tanh(jnp.tanh(x @ w) @ w))(w).sum())(w),
        [f32(16, 16), f32(16, 16)], [P("x", None), P(None, "y")], P(None, "y")),
    "fft": (lambda x: jnp.abs(jnp.fft.fft2(x)), [f32(8, 16)], [P("x", None)], P("x", None)),
    "cholesky": (
        lambda x: jnp.linalg.cholesky(x @ x.mT + 8 * jnp.eye(4)), [f32(8, 4, 4)], [P(("x", "y"))], P(("x", "y"))),
    "integers": (lambda x: (x // 3 + x % 3).sum(0), [i32(16, 8)], [P("x", "y")], P("y")),
    "uneven inside": (
        lambda x, w: jnp.tanh((x @ w)[:, :13] * 2) @ jnp.ones((13, 8)), [f32(16, 16), f32(16, 16)],
        [P("x", None), P(None, "y")], P("x", "y")),
    "scalars and no inputs": (lambda: jnp.arange(16.0).reshape(4, 4) @ jnp.ones((4, 4)), [], [], P("x", None)),
    "unused and repeated": (lambda x, y: (x, x, x + 0), [f32(8, 8), f32(4)], [P("x", None), P()], None),
}


@pytest.mark.parametrize("name", some(PROGRAMS, 6))
def test_program(name: str) -> None:
    function, arguments, specs, out = PROGRAMS[name]
    m = mesh()
    named = jax.tree.map(lambda s: NamedSharding(m, s), (tuple(specs), out), is_leaf=lambda s: isinstance(s, P))
    jitted = jax.jit(function, in_shardings=named[0], out_shardings=named[1])
    lowered = jitted.lower(*arguments)
    plan = es.optimize(lowered, cost_model=WireBytes())
    assert not plan.search.fallback or plan.search.fallback.startswith("the search found nothing")
    assert plan.cost.total <= plan.baseline.cost.total * (1 + 1e-9)
    report = plan.verify()
    assert "jax" in report.differences, report.skipped
    rng = np.random.default_rng(1)
    inputs = [random_array(t, rng) for t in plan.program.input_types]
    if len(inputs) == len(arguments):
        wanted = [np.asarray(v) for v in jax.tree.leaves(jitted(*inputs))]
        got = [np.asarray(v) for v in jax.tree.leaves(plan.to_jax()(*inputs))]
        compare("jax", got, wanted, plan.program.output_types)
        try:
            compare("numpy", plan.run(*inputs), wanted, plan.program.output_types)
        except LoweringError as error:
            assert "simulator" in str(error) or "NumPy" in str(error)
