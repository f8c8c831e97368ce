"""Programs by well-known libraries, as their users write them: networks, optimisers, solvers, particles, posteriors.

They need the extra ``libraries``. ``names`` lists them; ``lowered`` traces one on its mesh of 8 devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from bench.programs import axes_of, use_cpu_devices

#: Where an array of a shape lies.
Rule = Callable[[tuple[int, ...]], P]
#: A function with its arguments, each a tree of shapes and where these lie.
Traced = tuple[Callable[..., Any], tuple[tuple[Any, Rule], ...]]


def whole(shape: tuple[int, ...]) -> P:
    """On every device."""
    return P()


def rows(shape: tuple[int, ...]) -> P:
    """By the first dimension."""
    return P("x") if shape else P()


def fsdp(shape: tuple[int, ...]) -> P:
    """By the largest dimension that 8 divides, where the array has at least 1024 elements."""
    even = [d for d, size in enumerate(shape) if size % 8 == 0]
    if not even or math.prod(shape) < 1024:
        return P()
    dim = max(even, key=lambda d: shape[d])
    return P(*(None,) * dim, "x")


def columns(shape: tuple[int, ...]) -> P:
    """Matrices by their last dimension over y, as far as it is even."""
    return P(*(None,) * (len(shape) - 1), "y") if len(shape) > 1 and shape[-1] % 2 == 0 else P()


def _f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _i32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def _key() -> Any:
    return jax.random.PRNGKey(0)


def _training(loss: Callable[..., Any], optimizer: Any, params: Any, rule: Rule, *batch: Any, kept: Any = ()) -> Traced:
    """A step of an optax optimiser on ``loss(params, kept, *batch)``, which returns a value and what is kept next."""
    import optax

    def step(params: Any, kept: Any, state: Any, *batch: Any) -> Any:
        (value, kept), gradients = jax.value_and_grad(loss, has_aux=True)(params, kept, *batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), kept, state, value

    state = jax.eval_shape(optimizer.init, params)
    return step, ((params, rule), (kept, rule), (state, rule), *((array, rows) for array in batch))


def _of(model: Callable[..., Any], distance: Callable[..., Any]) -> Callable[..., Any]:
    """The loss of a model that keeps nothing: the distance of ``model(params, x)`` from y."""
    return lambda params, kept, x, y: (distance(model(params, x), y), kept)


def _square(a: Any, b: Any) -> Any:
    return jnp.mean((a - b) ** 2)


def _module(make: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """The arrays of an equinox module, and the rest of it."""
    import equinox as eqx

    made = eqx.filter_eval_shape(make, *args, key=_key())
    found: tuple[Any, Any] = eqx.partition(made, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    return found


def _cross_entropy(logits: Any, labels: Any) -> Any:
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


# flax.


def flax_transformer() -> Traced:
    """Two encoder blocks of flax.linen over tokens, trained by AdamW with clipping."""
    import flax.linen as nn
    import optax

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x))
            return x + nn.Dense(128)(nn.gelu(nn.Dense(512)(nn.LayerNorm()(x))))

    class Model(nn.Module):
        @nn.compact
        def __call__(self, tokens: Any) -> Any:
            x = nn.Embed(512, 128)(tokens)
            for _ in range(2):
                x = Block()(x)
            return nn.Dense(512)(nn.LayerNorm()(x))

    model, tokens = Model(), _i32(16, 64)
    params = jax.eval_shape(model.init, _key(), tokens)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return _training(_of(model.apply, _cross_entropy), optimizer, params, fsdp, tokens, tokens)


def flax_lstm() -> Traced:
    """An LSTM of flax.linen over sequences, trained by LAMB."""
    import flax.linen as nn
    import optax

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            return nn.Dense(8)(nn.RNN(nn.LSTMCell(128))(x)[:, -1])

    model, x = Model(), _f32(64, 32, 64)
    params = jax.eval_shape(model.init, _key(), x)
    return _training(_of(model.apply, _square), optax.lamb(1e-3), params, whole, x, _f32(64, 8))


def nnx_convolutions() -> Traced:
    """A convolutional network of flax.nnx with batch normalisation, trained by momentum."""
    import optax
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.first = nnx.Conv(3, 16, (3, 3), rngs=rngs)
            self.norm = nnx.BatchNorm(16, rngs=rngs)
            self.second = nnx.Conv(16, 32, (3, 3), strides=2, rngs=rngs)
            self.last = nnx.Linear(32, 10, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = nnx.relu(self.norm(self.first(x)))
            return self.last(nnx.relu(self.second(x)).mean((1, 2)))

    graph, params, rest = nnx.split(nnx.eval_shape(lambda: Model(nnx.Rngs(0))), nnx.Param, ...)

    def loss(params: Any, rest: Any, x: Any, labels: Any) -> Any:
        model = nnx.merge(graph, params, rest, copy=True)
        value = _cross_entropy(model(x), labels)
        return value, nnx.state(model, nnx.Not(nnx.Param))

    return _training(loss, optax.sgd(0.1, momentum=0.9), params, whole, _f32(64, 32, 32, 3), _i32(64), kept=rest)


# equinox.


def equinox_perceptron() -> Traced:
    """A perceptron of equinox over a batch, tensor parallel, trained by Adam."""
    import equinox as eqx
    import optax

    arrays, static = _module(eqx.nn.MLP, 128, 16, 256, 3)
    loss = _of(lambda arrays, x: jax.vmap(eqx.combine(arrays, static))(x), _square)
    return _training(loss, optax.adam(1e-3), arrays, columns, _f32(256, 128), _f32(256, 16))


def equinox_attention() -> Traced:
    """Attention and layer normalisation of equinox over a batch of sequences, its gradient."""
    import equinox as eqx

    class Block(eqx.Module):
        attention: Any
        norm: Any
        mlp: Any

        def __init__(self, key: Any) -> None:
            first, second = jax.random.split(key)
            self.attention = eqx.nn.MultiheadAttention(4, 128, key=first)
            self.norm = eqx.nn.LayerNorm(128)
            self.mlp = eqx.nn.MLP(128, 128, 256, 1, key=second)

        def __call__(self, x: Any) -> Any:
            y = jax.vmap(self.norm)(x)
            x = x + self.attention(y, y, y)
            return x + jax.vmap(self.mlp)(jax.vmap(self.norm)(x))

    arrays, static = _module(Block)

    def loss(arrays: Any, x: Any) -> Any:
        return jnp.mean(jax.vmap(eqx.combine(arrays, static))(x) ** 2)

    return jax.grad(loss), ((arrays, whole), (_f32(16, 64, 128), rows))


# haiku.


def haiku_residual() -> Traced:
    """The first residual network of haiku on small images with its batch statistics, trained by RMSProp."""
    import haiku as hk
    import optax

    def forward(x: Any) -> Any:
        return hk.nets.ResNet([1, 1, 1, 1], 10, bottleneck=False, channels_per_group=(16, 32, 64, 128))(x, True)

    model, x = hk.transform_with_state(forward), _f32(32, 32, 32, 3)
    params, statistics = jax.eval_shape(model.init, _key(), x)

    def loss(params: Any, statistics: Any, x: Any, labels: Any) -> Any:
        logits, changed = model.apply(params, statistics, None, x)
        return _cross_entropy(logits, labels), changed

    return _training(loss, optax.rmsprop(1e-3), params, whole, x, _i32(32), kept=statistics)


def haiku_recurrent() -> Traced:
    """A gated recurrent unit of haiku unrolled over characters, trained by Adam."""
    import haiku as hk
    import optax

    def forward(tokens: Any) -> Any:
        core, batch = hk.GRU(128), tokens.shape[0]
        x = hk.Embed(64, 64)(tokens)
        out, _ = hk.dynamic_unroll(core, x, core.initial_state(batch), time_major=False)
        return hk.BatchApply(hk.Linear(64))(out)

    model, tokens = hk.without_apply_rng(hk.transform(forward)), _i32(64, 32)
    params = jax.eval_shape(model.init, _key(), tokens)
    return _training(_of(model.apply, _cross_entropy), optax.adam(1e-3), params, whole, tokens, tokens)


# optax.


def optax_quasi_newton() -> Traced:
    """Ten iterations of L-BFGS with line search on a logistic regression."""
    import optax

    optimizer = optax.lbfgs()

    def fit(weights: Any, x: Any, y: Any) -> Any:
        def loss(weights: Any) -> Any:
            return optax.sigmoid_binary_cross_entropy(x @ weights, y).mean() + 1e-3 * weights @ weights

        def iteration(_: Any, carry: Any) -> Any:
            weights, state = carry
            value, gradient = optax.value_and_grad_from_state(loss)(weights, state=state)
            updates, state = optimizer.update(gradient, state, weights, value=value, grad=gradient, value_fn=loss)
            return optax.apply_updates(weights, updates), state

        return jax.lax.fori_loop(0, 10, iteration, (weights, optimizer.init(weights)))[0]

    return fit, ((_f32(64), whole), (_f32(4096, 64), rows), (_f32(4096), rows))


# diffrax.


def diffrax_neural_equation() -> Traced:
    """The gradient of a neural differential equation over a batch of states, Tsitouras' method with constant steps."""
    import diffrax
    import equinox as eqx

    arrays, static = _module(eqx.nn.MLP, 16, 16, 64, 2)

    def loss(arrays: Any, states: Any) -> Any:
        field = eqx.combine(arrays, static)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: jax.vmap(field)(y)), diffrax.Tsit5(), 0.0, 1.0, 0.1, states,
            stepsize_controller=diffrax.ConstantStepSize())
        return jnp.mean(solution.ys ** 2)

    return jax.grad(loss), ((arrays, whole), (_f32(256, 16), rows))


def diffrax_heat() -> Traced:
    """Heat on a sharded grid by adaptive steps of Bogacki and Shampine: a loop that ends by its error."""
    import diffrax

    def heat(u: Any) -> Any:
        def change(t: Any, u: Any, args: Any) -> Any:
            return (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u) * 0.1

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(change), diffrax.Bosh3(), 0.0, 1.0, 0.1, u, max_steps=64,
            stepsize_controller=diffrax.PIDController(1e-3, 1e-4), adjoint=diffrax.DirectAdjoint())
        return solution.ys[-1]

    return heat, ((_f32(256, 256), rows),)


# jax_md.


def md_soft_spheres() -> Traced:
    """Ten steps of soft spheres in a periodic box at constant energy, particles sharded."""
    from jax_md import energy, quantity, simulate, space

    particles = 256
    displacement, shift = space.periodic(10.0)
    total = energy.soft_sphere_pair(displacement)
    force = quantity.force(total)

    def simulated(positions: Any, momenta: Any) -> Any:
        _, apply = simulate.nve(total, shift, 1e-3)
        state = simulate.NVEState(positions, momenta, force(positions), jnp.float32(1.0))
        state = jax.lax.fori_loop(0, 10, lambda _, state: apply(state), state)
        return state.position, state.momentum

    return simulated, ((_f32(particles, 2), rows), (_f32(particles, 2), rows))


# numpyro.


def _regression(x: Any, y: Any = None) -> None:
    import numpyro
    import numpyro.distributions as dist

    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
    offset = numpyro.sample("offset", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ weights + offset), obs=y)


def numpyro_hamiltonian() -> Traced:
    """Ten leapfrog steps on the posterior of a logistic regression, data sharded."""
    from numpyro.infer.util import potential_energy

    def leapfrog(position: Any, momentum: Any, x: Any, y: Any) -> Any:
        gradient = jax.grad(lambda position: potential_energy(_regression, (x, y), {}, position))

        def step(_: Any, carry: Any) -> Any:
            position, momentum = carry
            momentum = jax.tree.map(lambda p, g: p - 5e-3 * g, momentum, gradient(position))
            position = jax.tree.map(lambda q, p: q + 1e-2 * p, position, momentum)
            return position, jax.tree.map(lambda p, g: p - 5e-3 * g, momentum, gradient(position))

        return jax.lax.fori_loop(0, 10, step, (position, momentum))

    state = {"weights": _f32(64), "offset": _f32()}
    return leapfrog, ((state, whole), (state, whole), (_f32(4096, 64), rows), (_f32(4096), rows))


def numpyro_variational() -> Traced:
    """A step of stochastic variational inference of a logistic regression under a normal guide."""
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO, autoguide

    svi = SVI(_regression, autoguide.AutoNormal(_regression), numpyro.optim.Adam(1e-2), Trace_ELBO())
    x, y = _f32(4096, 64), _f32(4096)
    zeros = tuple(np.zeros(array.shape, array.dtype) for array in (x, y))
    state = svi.init(_key(), *zeros)  # the guide keeps what it finds here, so that this can't be traced
    return lambda state, x, y: svi.update(state, x, y), ((state, whole), (x, rows), (y, rows))


#: By name: the mesh, and what is traced on it.
_PROGRAMS: dict[str, tuple[str, Callable[[], Traced]]] = {
    "flax: transformer, AdamW, FSDP": ("8", flax_transformer),
    "flax: LSTM, LAMB": ("8", flax_lstm),
    "flax.nnx: convolutions, batch norm": ("8", nnx_convolutions),
    "equinox: perceptron, Adam, 4x2": ("4x2", equinox_perceptron),
    "equinox: attention": ("8", equinox_attention),
    "haiku: residual network, RMSProp": ("8", haiku_residual),
    "haiku: GRU, Adam": ("8", haiku_recurrent),
    "optax: L-BFGS": ("8", optax_quasi_newton),
    "diffrax: neural equation": ("8", diffrax_neural_equation),
    "diffrax: heat, adaptive": ("8", diffrax_heat),
    "jax_md: soft spheres": ("8", md_soft_spheres),
    "numpyro: Hamiltonian Monte Carlo": ("8", numpyro_hamiltonian),
    "numpyro: variational inference": ("8", numpyro_variational),
}


def names() -> list[str]:
    """The programs' names."""
    return list(_PROGRAMS)


def lowered(name: str) -> jax.stages.Lowered:
    """The program of this name, traced on its mesh; ImportError where its library is missing."""
    use_cpu_devices()
    shape, traced = _PROGRAMS[name]
    axes = axes_of(shape)
    mesh = Mesh(np.array(jax.devices("cpu")[:8]).reshape([size for _, size in axes]), [axis for axis, _ in axes],
                axis_types=(AxisType.Auto,) * len(axes))
    function, arguments = traced()

    def placed(tree: Any, rule: Rule) -> Any:
        return jax.tree.map(lambda array: jax.ShapeDtypeStruct(
            array.shape, array.dtype, sharding=NamedSharding(mesh, rule(array.shape))), tree)

    with jax.set_mesh(mesh):
        return jax.jit(function).lower(*(placed(tree, rule) for tree, rule in arguments))
