"""Loops and branches inside manual computations are marked where devices may take different ways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, PartitionSpec as P

from eggshard.frontends import load
from eggshard.frontends.normalization.divergence import DIVERGES
from eggshard.program.program import Op, Region

M = jax.make_mesh((2, 2, 2), ("a", "b", "c"), axis_types=(AxisType.Auto,) * 3)


def flow(region: Region) -> Iterator[Op]:
    for op in region.ops:
        if op.name in ("while", "case", "if"):
            yield op
        for inner in op.regions:
            yield from flow(inner)


def over(axes: set[str], body: Any, spec: P) -> Any:
    return jax.shard_map(body, mesh=M, in_specs=spec, out_specs=spec, axis_names=axes, check_vma=False)


def choose(flag: Any, v: Any) -> Any:
    return lax.cond(flag, jnp.sin, jnp.cos, v)


def total(v: Any) -> Any:
    return v.sum() > 0


FLAG = jax.ShapeDtypeStruct((), bool)
BODIES = {
    "its number": ({"a"}, P(), lambda v: choose(lax.axis_index("a") == 0, v), [True]),
    "its shard": ({"a"}, P("a"), lambda v: choose(total(v), v), [True]),
    "what all hold": ({"a"}, P(), lambda v: choose(total(v), v), [False]),
    "a sum over all": ({"a", "b"}, P("a"), lambda v: choose(lax.psum(v.sum(), ("a", "b")) > 0, v), [False]),
    "a sum over some": ({"a", "b"}, P("a"), lambda v: choose(lax.psum(v.sum(), "b") > 0, v), [True]),
    "a gather": ({"a"}, P("a"), lambda v: choose(total(lax.all_gather(v, "a")), v), [False]),
    "a permute": ({"a"}, P(), lambda v: choose(total(lax.ppermute(v, "a", [(0, 1)])), v), [True]),
    "a counter": ({"a"}, P("a"), lambda v: lax.fori_loop(0, 3, lambda i, c: choose(i > 1, c), v), [False, False]),
    "what a loop makes of it": (
        {"a"}, P("a"), lambda v: lax.fori_loop(0, 3, lambda i, c: (c[1], choose(total(c[0]), c[1])), (v * 0, v))[1],
        [False, True]),
    "a loop of data": ({"a"}, P("a"), lambda v: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, v), [True]),
    "a branch in a branch": (
        {"a"}, P(), lambda v: choose(choose(lax.axis_index("a") == 0, v).sum() > 0, v), [True, True]),
    "the outer shard, nested": (
        {"a"}, P("a"), lambda v: over_inner({"b"}, lambda u: choose(total(u), u), P())(v), [True]),
    "a callback": ({"a", "b", "c"}, P(), lambda v: choose(jax.pure_callback(np.any, FLAG, v), v), [True]),
}


def over_inner(axes: set[str], body: Any, spec: P) -> Any:
    return jax.shard_map(body, in_specs=spec, out_specs=spec, axis_names=axes, check_vma=False)


@pytest.mark.parametrize("name", BODIES)
def test_marks(name: str) -> None:
    axes, spec, body, want = BODIES[name]
    with jax.set_mesh(M):
        program = load(jax.jit(over(axes, body, spec)).lower(np.zeros((8, 8), np.float32)))
    assert [bool(op.attributes.get(DIVERGES)) for op in flow(program.region)] == want
