"""What XLA's partitioner made of a function, against the function."""

from __future__ import annotations

import pytest
from tests.slowness import some

import eggshard as es

jax = pytest.importorskip("jax")
jnp, P = jax.numpy, jax.sharding.PartitionSpec


@pytest.fixture(scope="module")
def mesh():
    return jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


def arrays(*shapes, dtype="float32"):
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]


def compiled(mesh, function, ins, out, args, **options):
    """XLA's partitioned program; the specs of arguments and of the result."""
    named = [jax.sharding.NamedSharding(mesh, P(*spec)) for spec in (*ins, out)]
    return jax.jit(function, in_shardings=tuple(named[:-1]), out_shardings=named[-1]).lower(*args).compile(**options)


def attention(x, w):
    scores = jnp.where(jnp.tril(jnp.ones((16, 16), bool)), (x @ w) @ x.T, -jnp.inf)
    return jax.nn.gelu(jax.nn.softmax(scores) @ x)


def steps(x, w):
    return jax.lax.fori_loop(0, 5, lambda i, a: a + jnp.roll(a, 1, 1) * 2, x) @ w


CASES = {
    "attention": attention,
    "gradient": jax.grad(lambda x, w: (jax.nn.log_softmax(jnp.tanh(x @ w)) ** 2).sum()),
    "loop": steps,
    "reshape and transpose": lambda x, w: (x.reshape(4, 4, 8).transpose(2, 0, 1).reshape(8, 16).T @ w),
    "slices": lambda x, w: jnp.concatenate([x[1:], x[:1]]) + jnp.pad(x, ((1, 1), (0, 0)))[2:] @ w,
    "gather": lambda x, w: x[jnp.array([3, 1, 0, 15, 15])] @ w,
    "an argument that is not used": lambda x, w: x * x.mean(),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("spec", some([("x", "y"), ("y", None), (("x", "y"), None), (None, None)], 2), ids=str)
def test_a_partitioned_program_is_its_function(mesh, name, spec):
    args = arrays((16, 8), (8, 8))
    out = spec if jax.eval_shape(CASES[name], *args).shape[0] == 16 else ()
    proof = es.equivalent(compiled(mesh, CASES[name], (spec, (None, "y")), out, args), CASES[name], *args)
    assert proof, str(proof)


def test_what_devices_exchange_in_parts(mesh):
    """Several results, and an all-to-all whose parts are operands of their own."""
    def function(a):
        return a * 2, a.sum()

    (a,) = args = arrays((16, 16))
    ins, out = (jax.sharding.NamedSharding(mesh, P(*spec)) for spec in (("x",), (None, "x")))
    run = jax.jit(function, in_shardings=ins, out_shardings=(out, None)).lower(a).compile()
    assert "all-to-all(" in run.as_text()
    assert es.equivalent(run, function, *args)
    assert not es.equivalent(run, lambda a: (a.T * 2, a.sum()), *args)


def boundaries(a):
    return a.at[1:-1, 1:-1].set(2 * a[1:-1, 1:-1]).at[:, -2].set(0.0)


def test_a_wrong_partition_is_found(mesh):
    """XLA's partitioner for CPUs leaves a column as it was, next to the one that it is to overwrite."""
    args = arrays((16, 8))
    proof = es.equivalent(compiled(mesh, boundaries, [("x", "y")], ("x", "y"), args), boundaries, *args)
    assert proof.equal is False and proof.difference.elements == 16 and proof.difference.index == (0, 3)
    assert es.equivalent(compiled(mesh, boundaries, [("x", None)], ("x", None), args), boundaries, *args)


def test_what_the_proof_says_is_what_runs(mesh):
    args = arrays((16, 8))
    run = compiled(mesh, boundaries, [("x", "y")], ("x", "y"), args)
    a = jnp.arange(128.0).reshape(16, 8)
    wrong = jnp.asarray(run(jax.device_put(a, run.input_shardings[0][0]))) != boundaries(a)
    assert wrong.sum() == 16 and wrong[:, 3].all()


def test_an_index_that_is_not_clamped_is_found(mesh):
    """XLA's partitioner leaves out an update that begins past the last row, where `jax.jit` writes that row."""
    def update(a, row, i):
        return jax.lax.dynamic_update_slice(a, row, (i, jnp.zeros_like(i)))

    args = *arrays((16, 8), (1, 8)), jax.ShapeDtypeStruct((), jnp.int32)
    run = compiled(mesh, update, [("x", None), (), ()], ("x", None), args)
    assert es.equivalent(run, update, *args).equal is False
    given = jnp.zeros((16, 8)), jnp.ones((1, 8)), jnp.int32(16)
    placed = [jax.device_put(x, s) for x, s in zip(given, run.input_shardings[0], strict=True)]
    assert not run(*placed).any() and update(*given)[-1].all()


def test_constants_that_the_compiler_rounds(mesh):
    """A division by 3 becomes a product with a number near 1/3, as it does on one device."""
    def third(a):
        return a / 3.0

    args = arrays((16, 8))
    partitioned = compiled(mesh, third, [("x", "y")], ("x", "y"), args)
    assert es.equivalent(partitioned, third, *args).equal is False
    assert es.equivalent(partitioned, jax.jit(third).lower(*args).compile())
    options = {"xla_disable_hlo_passes": "algsimp"}
    assert es.equivalent(compiled(mesh, third, [("x", "y")], ("x", "y"), args, compiler_options=options), third, *args)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_an_order_of_floats_by_their_bits(mesh, dtype):
    """The partitioner's passes make it of comparisons in total order."""
    args = arrays((64, 4), dtype=dtype)
    with jax.enable_x64(dtype == "float64"):
        run = compiled(mesh, lambda a: jnp.sort(a, axis=0), [("x", None)], ("x", None), args)
        assert " xor(" in run.as_text()
        assert es.equivalent(run, lambda a: jnp.sort(a, axis=0), *args)
        assert es.equivalent(run, lambda a: jnp.sort(a, axis=0, descending=True), *args).equal is False


def test_what_is_not_known_is_refused(mesh):
    args = arrays((16, 16))
    proof = es.equivalent(compiled(mesh, jnp.linalg.eigvalsh, [("x", None)], (), args), jnp.linalg.eigvalsh, *args)
    assert proof.equal is None and "custom_call" in proof.refused
