"""The whole way from a program with shardings to one of a device, by our passes alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from eggshard import shardy
from eggshard.shardy.pipelines import partition_steps, propagation_steps

Specs = tuple[tuple[str | None, ...], ...]


def to_device(text: str, mode: str = "shardy", cost_model: str = "") -> tuple[str, str]:
    """The program before it is local, and after; both still say how arguments and results are sharded."""
    *first, last, _ = ("chlo-legalize-to-stablehlo", *propagation_steps(),
                       *partition_steps(mode=mode, cost_model=cost_model))
    before = shardy.transform(text, first)
    return before, shardy.transform(before, [last])


def lowered(function: Callable[..., Any], types: Sequence[Any], ins: Specs, outs: Specs | None) -> str:
    """A JAX function's module on a 4 by 2 mesh; specs by argument and result."""
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    given, wanted = (
        tuple(NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs) if specs is not None else None
        for specs in (ins, outs)
    )
    made = wanted[0] if wanted is not None and len(wanted) == 1 else wanted
    return str(jax.jit(function, in_shardings=given, out_shardings=made).lower(*types).as_text())


def floats(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


def integers(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.int32)


def _network(x: Any, w: Any, v: Any) -> Any:
    return jax.nn.gelu(x @ w) @ v


def _attention(q: Any, k: Any, v: Any) -> Any:
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k)), v)


def _stencil(u: Any) -> Any:
    padded = jnp.pad(u, ((1, 1), (0, 0)))
    return u + 0.1 * (padded[2:] + padded[:-2] - 2 * u)


def _rest(x: Any) -> Any:
    inner = x[1:-1] * 2
    return jnp.concatenate([inner, inner[:2] * 3])


def _scan(x: Any, w: Any) -> Any:
    def body(carry: Any, weight: Any) -> Any:
        carry = jnp.tanh(carry @ weight)
        return carry, carry.sum()

    return lax.scan(body, x, w)


def _relaxed(x: Any) -> Any:
    return lax.while_loop(lambda c: c[1] < 3, lambda c: (jnp.roll(c[0], 1, 0) * 0.5, c[1] + 1), (x, 0))[0]


def _normalised(x: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)


ROWS, BOTH, LAYER = (("x", None),), (("x", "y"),), (("x", None), (None, "y"), ("y", None))
#: (function, argument types, their specs, the specs of results or None).
JAX_PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[Any], Specs, Specs | None]] = {
    "roll": (lambda x: jnp.roll(x, 3, 0), [floats(8, 16)], ROWS, ROWS),
    "pad and slice": (_stencil, [floats(16, 8)], BOTH, BOTH),
    "reduce-scattered product": (_network, [floats(8, 16), floats(16, 32), floats(32, 16)], LAYER, BOTH),
    "calls": (lambda x, w: jax.nn.relu(x @ w), [floats(8, 16), floats(16, 8)], (("x", "y"), ("y", None)), ROWS),
    "loop": (_relaxed, [floats(8, 16)], ROWS, ROWS),
    "scan": (_scan, [floats(8, 16), floats(3, 16, 16)], (("x", None), (None, None, "y")), None),
    "sizes that are not divisible": (_rest, [floats(8, 16)], ROWS, BOTH),
    "attention": (_attention, [floats(4, 8, 16)] * 3, (("y", "x", None),) * 3, (("y", "x", None),)),
    "argmax": (lambda x: jnp.argmax(x, 1), [floats(8, 16)], BOTH, (("x",),)),
    "running sum": (lambda x: jnp.cumsum(x, 0), [floats(8, 16)], BOTH, BOTH),
    "sort": (lambda x: jnp.sort(x, 0), [floats(8, 16)], BOTH, BOTH),
    "lookup": (lambda t, i: t[i], [floats(16, 8), integers(8)], (("x", "y"), (None,)), BOTH),
    "gradient of a lookup": (
        jax.grad(lambda t, i: (t[i] ** 2).sum()), [floats(16, 8), integers(8)], (("x", "y"), ("x",)), BOTH
    ),
    "gradients": (
        jax.grad(lambda x, w, v: _network(x, w, v).sum(), (0, 1, 2)),
        [floats(8, 16), floats(16, 32), floats(32, 16)], LAYER, None,
    ),
    "convolution": (
        lambda x, k: lax.conv_general_dilated(x, k, (1, 1), "SAME"), [floats(4, 4, 8, 8), floats(4, 4, 3, 3)],
        (("y", None, "x", None), (None,)), (("y", None, "x", None),),
    ),
    "normalisation": (_normalised, [floats(8, 16)], BOTH, BOTH),
    "branches": (
        lambda p, x: lax.cond(p, lambda a: a * 2, lambda a: jnp.flip(a, 0), x),
        [jax.ShapeDtypeStruct((), np.bool_), floats(8, 16)], ((), ("x", None)), ROWS,
    ),
    "update": (
        lambda x, i: lax.dynamic_update_slice(x, jnp.ones((2, 16)), (i, 0)), [floats(8, 16), integers()],
        (("x", None), ()), ROWS,
    ),
    "largest": (lambda x: lax.top_k(x, 4), [floats(8, 16)], BOTH, None),
}  # fmt: skip
