"""Rules on broadcasts: computing before broadcasting is less work and moves the smaller tensor.

The reverse direction offers a plan nothing: it makes the larger tensor of the same data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eggshard.egraph.laws import each, like_zeros, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.attributes import Literal
from eggshard.rewrites.shapes import (
    SIDES,
    answer,
    bounds_of,
    kept_places,
    reduced,
    slice_of,
    sliced_shape,
    slices,
    spread,
    spread_by,
)

rules = RuleList()

_B = [spread((2, 4, 3), 0, 2), spread((4, 2, 3), 1, 2), spread((3, 2), 1, 0)]
_CUBES = [spread((2, 4, 3), 0, 2), spread((3, 2, 4), 1, 0)]
_X = tensors((2, 3), dtypes=("f32", "i32"))
#: Monoids of which x with x is x.
_IDEMPOTENT = ("max", "min", "and", "or")


@rules.add(
    "broadcast_in_dim[outer](broadcast_in_dim[inner](x)) => broadcast_in_dim[both](x)",
    says="two broadcasts as one",
    cases=each(
        x=tensors((), (3,), (1,)), inner=[spread((2, 3)), spread((2, 3), 1), spread((3, 2), 0)],
        outer=[spread((2, 4, 3), 0, 2), spread((3, 2, 4), 1, 0), spread((3, 4, 2), 0, 2)],
    ),
)
def broadcast_of_broadcast(m: Match) -> Any:
    return answer(both=spread_by(m.inner, dict(enumerate(m.outer["broadcast_dimensions"])), m.result.shape))


@rules.add(
    "broadcast_in_dim[b](x) => x",
    says="a broadcast that changes nothing left out",
    cases=each(x=tensors((2, 3), ()), b=[spread((2, 3), 0, 1), spread((3, 2), 1, 0), spread(())]),
)
def identity_broadcast(m: Match) -> Any:
    return m.x == m.result and tuple(m.b["broadcast_dimensions"]) == tuple(range(m.x.rank))


rules.add(
    "unary[f](broadcast_in_dim[b](x)) => broadcast_in_dim[b](unary[f](x))",
    name="unary of broadcast",
    says="broadcast after the pointwise op",
    cases=each(x=_X, b=_B, f=["negate", ("convert", {"dtype": "bf16"})]),
)(None)
rules.add(
    "binary[f](broadcast_in_dim[b](x), broadcast_in_dim[b](y)) => broadcast_in_dim[b](binary[f](x, y))",
    name="binary of broadcasts",
    says="broadcast once, after the pointwise op",
    cases=each(
        x=tensors((2, 3)), y=tensors((2, 3), (1, 3)), b=_B, f=["add", ("compare", {"comparison_direction": "LT"})]
    ),
)(lambda m: m.x.shape == m.y.shape)


def _binary_of_broadcasts_of_two_ranks(m: Match) -> Any:
    """Applies where the dimensions of s are among those of x, neither of them expanded by x's broadcast."""
    where = {d: i for i, d in enumerate(m.b["broadcast_dimensions"])}
    made = spread_by(m.c, where, m.x.shape)
    if m.s.rank >= m.x.rank or made is None or m.b["shape"] != m.c["shape"]:
        return None
    if any(n != m.x.shape[i] for n, i in zip(m.s.shape, made["broadcast_dimensions"], strict=True)):
        return None
    return {"d": made}


for _side, _pair in SIDES:
    rules.add(
        f"binary[f]({_pair('broadcast_in_dim[b](x)', 'broadcast_in_dim[c](s)')}) => "
        f"broadcast_in_dim[b](binary[f]({_pair('x', 'broadcast_in_dim[d](s)')}))",
        name=f"binary of broadcasts of two ranks ({_side})",
        says="computed before broadcasting to the full shape",
        cases=each(
            x=tensors((2, 3)), s=tensors((), (3,), (2,), (4,)), f="subtract", b=spread((2, 4, 3), 0, 2),
            c=[spread((2, 4, 3), *d) for d in ((), (2,), (0,), (1,))],
        ),
    )(_binary_of_broadcasts_of_two_ranks)


@rules.add(
    "slice[s](broadcast_in_dim[b](x)) => broadcast_in_dim[c](slice[u](x))",
    says="broadcast after slicing",
    cases=each(
        x=tensors((2, 3), (1, 3)), b=_CUBES,
        s=slices([(1, 2, 1), (0, 2, 1), (0, 3, 2)], [(0, 2, 1), (1, 4, 2), (0, 3, 1)]),
    ),
)
def slice_of_broadcast(m: Match) -> Any:
    bounds, dims = bounds_of(m.s), m.b["broadcast_dimensions"]
    cut = [(0, 1, 1) if m.x.shape[i] == 1 else bounds[d] for i, d in enumerate(dims)]
    return {"u": slice_of(cut), "c": spread(sliced_shape(m.s), *dims)}


@rules.add(
    "reduce[r](broadcast_in_dim[b](x)) => broadcast_in_dim[c](x)",
    says="a reduction of repeated values left out",
    cases=each(x=_X, b=_CUBES, r=reduced((1,), (2,), (0,), by=("max", "min", "and"))),
)
def reduce_of_broadcast(m: Match) -> Any:
    """By a monoid of which x with x is x, over dimensions that only the broadcast made."""
    if m.r["monoid"] not in _IDEMPOTENT or 0 in m.b["shape"]:
        return None
    return answer(c=spread_by(m.b, kept_places(len(m.b["shape"]), m.r["dimensions"]), m.result.shape))


@rules.add(
    "reduce[r](broadcast_in_dim[b](x)) => broadcast_in_dim[c](reduce[s](x))",
    says="broadcast after the reduction",
    mark="ρ",
    exact_if=lambda m: m.r["monoid"] in _IDEMPOTENT,
    cases=like_zeros(each(x=_X, b=_CUBES[:1], r=reduced((0,), (2,), (0, 2), by=("max", "add")))),
)
def reduce_of_broadcast_kept(m: Match) -> Any:
    """Reducing dimensions of x itself, before they are repeated."""
    gone, dims = m.r["dimensions"], m.b["broadcast_dimensions"]
    inside = [i for i, d in enumerate(dims) if d in gone]
    if not gone or len(inside) != len(gone) or any(m.x.shape[i] != m.b["shape"][dims[i]] for i in inside):
        return None
    where = kept_places(len(m.b["shape"]), gone)
    return {
        "s": m.r.updated(dimensions=tuple(sorted(inside))),
        "c": spread(m.result.shape, *(where[d] for d in dims if d in where)),
    }


def _splat(value: float, shape: tuple[int, ...], dtype: type = np.float32) -> dict[str, Any]:
    return {"value": Literal(np.broadcast_to(np.asarray(value, dtype), shape))}


@rules.add(
    "broadcast_in_dim[b](constant[c]()) => constant[d]()",
    says="constant made at full size, not broadcast",
    cases=each(
        c=[_splat(-0.0, ()), _splat(np.nan, (3,)), _splat(7, (), np.int32)], b=[spread((2, 3)), spread((2, 3), 1)]
    ),
)
def broadcast_of_splat(m: Match) -> Any:
    literal = m.c["value"]
    if not literal.splat:
        return None
    return {"d": {"value": Literal(np.broadcast_to(literal.array.reshape(-1)[0], m.result.shape))}}


@rules.add(
    "constant[c]() => broadcast_in_dim[b](constant[d]())",
    says="one value broadcast instead of a full-size constant",
    cases=each(c=[_splat(-0.0, (2, 3)), _splat(np.inf, (4,)), _splat(7, (2,), np.int32)]),
)
def splat_is_a_broadcast(m: Match) -> Any:
    literal = m.c["value"]
    if not literal.splat or not m.result.shape:
        return None
    return {"d": {"value": Literal(literal.array.reshape(-1)[0])}, "b": spread(m.result.shape)}
