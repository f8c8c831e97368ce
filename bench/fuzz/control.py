"""Loops and branches, nested ones too, and random numbers."""

from __future__ import annotations

import math

from bench.fuzz.drawing import Draw, template
from bench.fuzz.values import Value


def _body(d: Draw, x: Value, depth: int = 0) -> str:
    """An expression in ``c`` of the type of x, whose elements stay below the largest magnitude of x's."""
    dim = d.rng.randrange(x.rank)
    choices = [f"jnp.roll(c, {d.rng.randint(-2, 2)}, {dim})", f"jnp.flip(c, {dim})"]
    if x.dtype == "bool":
        choices += ["~c", f"c ^ jnp.roll(c, 1, {dim})"]
    elif not x.complex and x.exact:
        choices += [f"jnp.maximum(c, jnp.roll(c, 1, {dim}))", f"jnp.minimum(c, jnp.flip(c, {dim}))"]
        if not x.dtype.startswith("u"):
            choices += ["-c", f"jnp.where(jnp.sum(jnp.sign(c), {dim}, keepdims=True) > 0, c, -c)"]
    if x.integer:
        choices += [f"c + jnp.roll(c, 1, {dim})", f"c * 3 - jnp.cumsum(c, {dim}, dtype=c.dtype)"]
    if x.shape[dim] >= 3 and x.integer:
        choices.append("c.at[" + ":, " * dim + "1:-1].add(1)")
    if depth < 2 and d.chance(0.35):
        inner = _body(d, x, depth + 1)
        choices = [
            f"lax.fori_loop(0, {d.rng.randint(1, 3)}, lambda _, c: {inner}, c)",
            f"lax.cond(jnp.all(c == c), lambda c: {inner}, lambda c: {_body(d, x, depth + 1)}, c)",
        ]
    return d.rng.choice(choices)


def _carried(d: Draw) -> Value:
    return d.pick(lambda v: v.rank >= 1 and not v.dtype.startswith("float8"))


@template(2.5)
def counted_loop(d: Draw) -> Value:
    x = _carried(d)
    return d.add(f"lax.fori_loop(0, {d.rng.randint(0, 6)}, lambda i, c: {_body(d, x)}, {x.name})", x, bound=x.bound)


@template(1.0)
def heat(d: Draw) -> Value:
    """A stencil iterated, in floats: within rounding."""
    x = d.pick(lambda v: v.rank >= 1 and v.dtype in ("float32", "float64") and v.shape[-1] >= 4)
    edge = d.rng.choice(("jnp.pad(c, {0})", "jnp.pad(c, {0}, mode='wrap')", "jnp.pad(c, {0}, mode='edge')"))
    padded = edge.format(str([(0, 0)] * (x.rank - 1) + [(1, 1)]))
    step = f"(lambda p: c + 0.1 * (p[..., 2:] - 2 * c + p[..., :-2]))({padded})"
    return d.add(f"lax.fori_loop(0, {d.rng.randint(1, 9)}, lambda i, c: {step}, {x.name})", x, bound=math.inf)


@template(1.0)
def open_loop(d: Draw) -> Value:
    """A while whose number of iterations is data."""
    x = _carried(d)
    n = d.pick(lambda v: v.dtype == "int32" and v.rank == 0, fresh=False) if d.chance(0.3) else None
    limit = f"jnp.abs({n.name}) % 5" if n else str(d.rng.randint(0, 4))
    body = f"lambda s: (lambda c: (s[0] + 1, {_body(d, x)}))(s[1])"
    text = f"lax.while_loop(lambda s: s[0] < {limit}, {body}, (0, {x.name}))[1]"
    return d.add(text, x, *([n] if n else []), bound=x.bound)


@template(1.0)
def indexed_loop(d: Draw) -> Value:
    """A loop that looks at its number."""
    x = _carried(d)
    dim = d.rng.randrange(x.rank)
    n = x.shape[dim]
    at = ", ".join([":"] * dim + ["%s"])
    forms = [
        f"c.at[{at % f'i % {n}'}].set(c[{at % f'(i + 1) % {n}'}])",
        f"lax.dynamic_update_index_in_dim(c, lax.dynamic_index_in_dim(c, i, {dim}), 2 * i, {dim})",
        "jnp.where(i % 2 == 0, c, jnp.flip(c))",
    ]
    return d.add(f"lax.fori_loop(0, {d.rng.randint(2, 5)}, lambda i, c: {d.rng.choice(forms)}, {x.name})", x,
                 bound=x.bound)  # fmt: skip


@template(0.7)
def until_settled(d: Draw) -> Value:
    """A while that looks at what it carries."""
    x = d.pick(lambda v: v.rank >= 1 and v.exact and not v.complex and v.dtype != "bool"
               and not v.dtype.startswith("float8"))  # fmt: skip
    dim = d.rng.randrange(x.rank)
    condition = d.rng.choice((f"jnp.max(s[1]) > {d.rng.randint(0, 2)}", "jnp.any(s[1] != jnp.flip(s[1]))"))
    body = d.rng.choice((f"jnp.minimum(s[1], jnp.roll(s[1], 1, {dim}))", f"jnp.maximum(s[1], jnp.flip(s[1], {dim}))"))
    return d.add(f"lax.while_loop(lambda s: (s[0] < {d.rng.randint(1, 4)}) & ({condition}), "
                 f"lambda s: (s[0] + 1, {body}), (0, {x.name}))[1]", x, bound=x.bound)  # fmt: skip


@template(0.7)
def mapped(d: Draw) -> Value:
    x = d.pick(lambda v: v.rank >= 2 and not v.dtype.startswith("float8"))
    inner = Value("", x.shape[1:], x.dtype, x.bound)
    return d.add(f"lax.map(lambda c: {_body(d, inner)}, {x.name})", x, bound=x.bound)


@template(1.5)
def scan(d: Draw) -> Value:
    xs = d.pick(lambda v: v.rank >= 2 and v.exact and v.dtype != "bool" and not v.dtype.startswith("float8"))
    c = d.like(xs, xs.shape[1:])
    if not c.exact:
        c = d.fresh(c.shape, c.dtype)
    which = d.rng.randint(0, 1)
    body = d.rng.choice(("(c + x, c)", "(x, c)", "(c + x, x - c)"))
    bound = 2 * (xs.shape[0] + 1) * (xs.bound + c.bound)
    reverse = d.chance(0.3)
    return d.add(f"lax.scan(lambda c, x: {body}, {c.name}, {xs.name}, reverse={reverse})[{which}]", c, xs, bound=bound,
                 sums=True)  # fmt: skip


@template(1.5)
def branch(d: Draw) -> Value:
    x = _carried(d)
    p = d.pick(lambda v: v.rank == 0 and v.dtype in ("bool", "int32"), fresh=False)
    branches = ", ".join(f"lambda c: {_body(d, x)}" for _ in range(2 if p.dtype == "bool" else d.rng.randint(1, 3)))
    if p.dtype == "bool":
        return d.add(f"lax.cond({p.name}, {branches}, {x.name})", p, x, bound=x.bound)
    return d.add(f"lax.switch({p.name}, [{branches}], {x.name})", p, x, bound=x.bound)


@template(0.3)
def random_numbers(d: Draw) -> Value:
    return d.add(f"jax.random.randint(jax.random.key({d.rng.randint(0, 9)}), {d.shape()}, -3, 4)", bound=0.0)


@template(0.3)
def random_reals(d: Draw) -> Value:
    form = d.rng.choice(("uniform({}, {})", "normal({}, {})", "bernoulli({}, 0.5, {})", "permutation({}, {}[0])"))
    return d.add(f"jax.random.{form.format(f'jax.random.key({d.rng.randint(0, 9)})', d.shape())}", bound=math.inf)


@template(0.3)
def random_bits(d: Draw) -> Value:
    shape = d.shape()
    algorithm = d.rng.choice(("RNG_THREE_FRY", "RNG_DEFAULT"))
    return d.add(
        f"lax.rng_bit_generator(jnp.array([1, {d.rng.randint(0, 9)}], jnp.uint64), {shape}, "
        f"algorithm=lax.RandomAlgorithm.{algorithm})[1]",
        bound=0.0,
    )
