"""`eggshard.auto` with tactics, and what it says of its choices."""

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

import eggshard as es
from eggshard import tactics as T
from eggshard.errors import ShardingError

MESH = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
# Small searches: what is tested here is not how good a choice is.
OPTIONS = {"mesh": MESH, "cost_model": "tpu-v5e", "limits": es.Limits(proof=0.0), "rewrites": []}
ADAM = optax.adam(1e-2)


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, np.float32)


def adam_step(params, state, x, y):
    def loss(params):
        return jnp.mean((jax.nn.relu(x @ params["in"]) @ params["out"] - y) ** 2)

    value, gradient = jax.value_and_grad(loss)(params)
    updates, state = ADAM.update(gradient, state, params)
    return optax.apply_updates(params, updates), state, value


def layer_step(params, x):
    def attend(params, x):
        q, k, v = (jnp.einsum("btd,dhe->bthe", x, params[name]) for name in "qkv")
        weights = jax.nn.softmax(jnp.einsum("bthe,bshe->bhts", q, k))
        return jnp.einsum("bthe,hed->btd", jnp.einsum("bhts,bshe->bthe", weights, v), params["o"])

    gradient = jax.grad(lambda params: jnp.mean((x + attend(params, x)) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)


def experts_step(params, x):
    def loss(params):
        gates = jax.nn.softmax(x @ params["router"])
        return jnp.mean(jnp.einsum("be,bd,edf->bf", gates, x, params["up"]) ** 2)

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


def diffused(u, forcing):
    return u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) - 2 * u) + forcing


def specs(tree):
    return {jax.tree_util.keystr(path): s.spec for path, s in jax.tree_util.tree_flatten_with_path(tree)[0]}


def axes_of(spec):
    return {axis for entry in spec if entry for axis in ([entry] if isinstance(entry, str) else entry)}


PARAMS = {"in": f32(32, 128), "out": f32(128, 32)}
STEP = PARAMS, jax.eval_shape(ADAM.init, PARAMS), f32(64, 32), f32(64, 32)


@pytest.mark.slow
def test_a_step_with_adam_by_zero():
    first = es.auto(adam_step, *STEP, tactics=[T.data_parallel("data"), T.zero(1, "data")], **OPTIONS)
    weights, moments, *batch = map(specs, first.in_shardings)
    assert not any("data" in axes_of(spec) for spec in weights.values())
    assert all("data" in axes_of(spec) for name, spec in moments.items() if "count" not in name)
    assert all("data" in axes_of(spec[:1]) for specs in batch for spec in specs.values())
    row = next(row for row in first.leaves if row.name == "args[1][0].mu['in']")
    assert row.fixed == ("zero(1, 'data')",) and "fixed by" in str(first) and "that keeps what is fixed" in str(first)


@pytest.mark.slow
def test_a_step_with_adam_by_zero_and_megatron():
    tactics = [T.data_parallel("data"), T.zero(3, "data"), T.megatron("model")]
    third = es.auto(adam_step, *STEP, tactics=tactics, **OPTIONS)
    weights, moments, *batch = map(specs, third.in_shardings)
    assert all(axes_of(spec) == {"data", "model"} for spec in weights.values())
    assert all("model" not in axes_of(spec[:1]) for specs in batch for spec in specs.values())
    assert not third.notes and specs(third.out_shardings[0]) == weights


@pytest.mark.slow
def test_a_training_loop_with_tactics_computes_the_same():
    rng = np.random.default_rng(0)
    params = {name: rng.normal(size=p.shape).astype(np.float32) / 8 for name, p in PARAMS.items()}
    x, y = rng.normal(size=(2, 64, 32)).astype(np.float32)
    ours = theirs = params, ADAM.init(params)
    step = es.jit(adam_step, in_shardings=es.AUTO, tactics=T.zero(3, "data"), **OPTIONS)
    for _ in range(2):
        *ours, value = step(*ours, x, y)
        *theirs, want = jax.jit(adam_step)(*theirs, x, y)
    np.testing.assert_allclose(value, want, rtol=1e-4)
    assert all("data" in axes_of(p.sharding.spec) for p in ours[0].values())


@pytest.mark.slow
def test_heads():
    params = {name: f32(64, 4, 16) for name in "qkv"} | {"o": f32(4, 16, 64)}
    tactics = [T.data_parallel("data"), T.megatron("model"), T.zero(0, "data")]
    found = es.auto(layer_step, params, f32(8, 32, 64), carry={0: 0}, tactics=tactics, **OPTIONS)
    assert all(axes_of(spec) == {"model"} for spec in specs(found.in_shardings[0]).values())


@pytest.mark.slow
def test_experts_and_fields():
    params = {"up": f32(8, 32, 64), "router": f32(32, 8)}
    found = es.auto(experts_step, params, f32(64, 32), tactics=[T.expert_parallel("data", 8)], **OPTIONS)
    assert "data" in axes_of(specs(found.in_shardings[0])["['up']"][:1])

    tiles = es.auto(diffused, f32(64, 64), f32(64, 64), tactics=[T.halo("data", "model")], **OPTIONS)
    assert {*specs(tiles.in_shardings).values(), *specs(tiles.out_shardings).values()} == {P("data", "model")}


@pytest.mark.slow
@pytest.mark.parametrize("tactics, weights, rows", [
    ([T.data_parallel("data"), T.zero(0, "data"), T.megatron("model")], (P(None, "model"), P("model")), P("data")),
    ([T.data_parallel("data"), T.zero(3, "data"), T.megatron("model")], (P("data", "model"), P("model", "data")),
     P("data")),
])
def test_choices_by_tactics_are_no_dearer_than_by_hand(tactics, weights, rows):
    def step(first, second, x, y):
        gradient = jax.grad(lambda w: jnp.mean((jax.nn.relu(x @ w[0]) @ w[1] - y) ** 2))((first, second))
        return first - 0.1 * gradient[0], second - 0.1 * gradient[1]

    arguments = f32(512, 2048), f32(2048, 512), f32(1024, 512), f32(1024, 512)
    found = es.auto(step, *arguments, tactics=tactics, carry={0: 0, 1: 1}, **OPTIONS)
    first, second, rows = (NamedSharding(MESH, spec) for spec in (*weights, rows))
    stated = {"in_shardings": (first, second, rows, rows), "out_shardings": (first, second)}
    by_hand = es.jit(step, **stated, **{k: v for k, v in OPTIONS.items() if k != "mesh"}).plan(*arguments)
    assert found.plan.cost.total <= 1.01 * by_hand.cost.total


def test_what_cannot_be_divided_is_noted():
    found = es.auto(lambda w, x: x @ w, f32(7, 5), f32(64, 7), tactics=[T.shard("model", of="args*")], **OPTIONS)
    assert found.notes == ("tactic shard('model', of='args*') left args[0] (tensor<7x5xf32>) as before: none of the "
                           "placements left is sharded along 'model'",)
    assert "left args[0]" in str(found)


def test_what_is_fixed_has_a_cost():
    """A product of columns, of which rows are fixed, and the weights are stated whole."""
    found = es.auto(lambda x, w: x @ w, f32(2048, 512), f32(512, 2048), in_shardings=(es.AUTO, P()),
                    tactics=[T.replicate("data", of="args[0]"), T.replicate("model", of="args[0]")], **OPTIONS)
    assert [row.fixed for row in found.leaves] == [
        ("replicate('data', of='args[0]')", "replicate('model', of='args[0]')"), ("stated",), ()]
    kept = found.costs_of_keeping()
    assert [row.name for row in kept.rows] == ["args[0]", "args[1]"] and all(row.more < 0 for row in kept.rows)
    free = es.auto(lambda x, w: x @ w, f32(2048, 512), f32(512, 2048), in_shardings=(es.AUTO, P()), **OPTIONS)
    assert found.plan.cost.total + kept.rows[0].more == pytest.approx(free.plan.cost.total)
    product = {"in_shardings": (P("data"), es.AUTO), "out_shardings": P("data"), "carry": {0: 0}}
    fed_back = es.auto(lambda x, w: x @ w, f32(512, 512), f32(512, 512), **product, **OPTIONS).costs_of_keeping()
    assert [row.name for row in fed_back.rows] == ["args[0]"]
    assert "cost if open" in str(kept) and kept.rows[0].part in str(kept)
    assert str(free.costs_of_keeping()).count("args[1]") == 1
    assert str(es.auto(jnp.sin, f32(8, 8), **OPTIONS).costs_of_keeping()) == "nothing is fixed"


def test_why_a_leaf_lies_where_it_does():
    def descent(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

    found = es.auto(descent, f32(256, 512), f32(4096, 256), carry={0: 0}, **OPTIONS)
    other = found.why("args[0]")
    assert other.spec == str(found.in_shardings[0].spec) != other.other and other.more >= 0
    assert found.why("result")[1:] == other[1:] and "elsewhere the cheapest found is" in str(other)
    scalar = es.auto(lambda x: x * 2, f32(), **OPTIONS).why("args[0]")
    assert scalar.other == "" and "nowhere else" in str(scalar)
    with pytest.raises(ShardingError, match="no leaf is called 'w'; there are args"):
        found.why("w")


def test_dimensions_of_one_name_lie_alike():
    def step(params, x):
        gradient = jax.grad(lambda params: jnp.mean((jnp.tanh(x @ params["in"]) @ params["out"]) ** 2))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

    axes = {"in": P("embed", "mlp"), "out": P("mlp", "embed")}, P("batch", "embed")
    arguments = {"in": f32(64, 512), "out": f32(512, 64)}, f32(256, 64)
    found = es.auto(step, *arguments, tactics=[T.logical_axes(axes, [("batch", "data")])], **OPTIONS)
    rules = dict(found.rules)
    assert found.rules[0] == ("batch", "data") and {*rules} == {"batch", "embed", "mlp"}
    params, x = found.in_shardings
    for names, sharding in ((axes[0]["in"], params["in"]), (axes[0]["out"], params["out"]), (axes[1], x)):
        assert sharding.is_equivalent_to(NamedSharding(MESH, P(*(rules[name] for name in names))), 2)
    assert any("logical_axes" in row.fixed for row in found.leaves)


@pytest.mark.slow
def test_rules_that_are_found_are_flax_rules():
    nn = pytest.importorskip("flax.linen")

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            for names, size in ((("embed", "mlp"), 256), (("mlp", "embed"), 64)):
                named = nn.with_logical_partitioning(nn.initializers.lecun_normal(), names)
                x = nn.tanh(nn.Dense(size, use_bias=False, kernel_init=named)(x))
            return x

    network, x = Network(), f32(128, 64)
    boxed = jax.eval_shape(network.init, jax.random.key(0), x)

    def step(variables, x):
        gradient = jax.grad(lambda variables: jnp.mean(network.apply(variables, x) ** 2))(variables)
        return jax.tree.map(lambda p, g: p - 0.1 * g, variables, gradient)

    names = nn.get_partition_spec(boxed)
    found = es.auto(step, boxed, x, tactics=[T.logical_axes((names, P("batch", "embed")))], **OPTIONS)
    theirs = nn.logical_to_mesh_sharding(names, MESH, found.rules)
    for ours, other in zip(jax.tree.leaves(found.in_shardings[0]), jax.tree.leaves(theirs), strict=True):
        assert ours.is_equivalent_to(other, 2)


def test_tactics_are_for_shardings_that_are_chosen():
    with pytest.raises(ShardingError, match="give in_shardings=eggshard.AUTO"):
        es.jit(jnp.sin, tactics=[T.shard("data")])
    with pytest.raises(ShardingError, match="'data' is no tactic"):
        es.auto(jnp.sin, f32(8), tactics=["data"], **OPTIONS)
