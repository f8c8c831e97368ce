"""Loops, branches and sorts that decide nothing leave programs, and what is left computes the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import eggshard as es

X = np.arange(24, dtype=np.int32).reshape(8, 3)

KNOWN = {
    "no iteration": lambda x: lax.fori_loop(0, 0, lambda i, c: jnp.flip(c, 0), x),
    "one iteration": lambda x: lax.fori_loop(3, 4, lambda i, c: c * i + 1, x),
    "one iteration of two": lambda x: lax.fori_loop(
        0, 1, lambda i, c: lax.fori_loop(0, 1, lambda j, d: jnp.roll(d, 1, 0) + j, c), x
    ),
    "a scan of one": lambda x: lax.scan(lambda c, r: (c + r, c), x[0], x[2:3])[0],
    "a branch": lambda x: lax.switch(jnp.int32(1), [lambda c: c, lambda c: -c, lambda c: c + 1], x),
    "a branch out of range": lambda x: lax.switch(jnp.int32(7), [lambda c: c, lambda c: -c], x),
    "a branch on what every integer is": lambda x: lax.cond(jnp.all(x == x), lambda c: -c, lambda c: jnp.flip(c, 0), x),
    "a branch on what no integer is": lambda x: lax.cond(jnp.any(x > x), lambda c: jnp.flip(c, 0), lambda c: -c, x),
    "a choice": lambda x: jnp.where(jnp.arange(8)[:, None] < 9, x, x[::-1]),
    "all of a dimension": lambda x: lax.dynamic_slice(x, (jnp.sum(x), 2), (8, 1)),
    "gathered windows of everything": lambda x: lax.gather(
        x, (x[:2, :2, None] % 5).astype(jnp.uint32), lax.GatherDimensionNumbers(
            offset_dims=(1, 3), collapsed_slice_dims=(), start_index_map=(0,)
        ), (8, 2), mode="clip",
    ),
    "an update of everything": lambda x: lax.dynamic_update_slice(x, -x, (jnp.sum(x), jnp.max(x))),
    "padding over everything": lambda x: lax.pad(x[:1], jnp.int32(7), [(-1, 2, 1), (1, 0, 0)]),
    "padding into a gap": lambda x: lax.pad(x, jnp.int32(7), [(-1, -19, 2), (0, 0, 0)]),
    "one element sorted": lambda x: lax.sort((x[:, :1], x[:, 1:2]), dimension=1, num_keys=1)[1],
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_decides_nothing_is_gone(name: str) -> None:
    program = es.load(jax.jit(KNOWN[name]).lower(X))
    gone = {"while", "case", "if", "sort", "select", "dynamic_slice", "dynamic_update_slice", "gather", "reduce", "pad"}
    assert not gone & {op.name for op in program.region.ops}
    (got,) = es.optimize(program).run(X)
    assert np.array_equal(got, KNOWN[name](X))


def test_what_is_not_known_stays() -> None:
    def f(x: jax.Array, i: jax.Array) -> tuple[jax.Array, ...]:
        looped = lax.fori_loop(0, 2, lambda i, c: jnp.flip(c, 0), x)
        y = jnp.sin(x)
        number = lax.cond(jnp.all(y == y), lambda c: c, lambda c: -c, x)
        return looped, number, lax.switch(i, [lambda c: c, lambda c: -c], x), lax.sort(x, dimension=1)

    program = es.load(jax.jit(f).lower(X, np.int32(1)))
    names = [op.name for op in program.region.ops]
    assert {"while", "sort"} <= set(names) and names.count("case") == 2


def test_a_choice_known_beforehand_sends_nothing() -> None:
    builder = es.ProgramBuilder(mesh={"a": 4})
    p, x, y = (builder.input((8,), dtype, axes) for dtype, axes in (("i1", ("a",)), ("f32", (None,)), ("i32", ("a",))))
    builder.output(builder.op("select", p, x, x), (None,))
    builder.output(builder.op("subtract", y, y), (None,))
    assert es.optimize(builder.build()).serial_bytes == 0
