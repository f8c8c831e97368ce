"""Rules on broadcasts: computing before broadcasting is less work and moves the smaller tensor.

The reverse direction offers a plan nothing: it makes the larger tensor of the same data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eggshard.egraph.laws import each, like_zeros, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.attributes import Literal
from eggshard.rewrites.shapes import bounds_of, kept_dims, slice_of, sliced_shape

rules = RuleList()


def _broadcast(shape: tuple[int, ...], *dims: int) -> dict[str, Any]:
    return {"broadcast_dimensions": dims, "shape": shape}


@rules.add(
    "broadcast_in_dim[outer](broadcast_in_dim[inner](x)) => broadcast_in_dim[both](x)",
    cases=each(
        x=tensors((), (3,), (1,)),
        inner=[_broadcast((2, 3)), _broadcast((2, 3), 1), _broadcast((3, 2), 0)],
        outer=[_broadcast((2, 4, 3), 0, 2), _broadcast((3, 2, 4), 1, 0), _broadcast((3, 4, 2), 0, 2)],
    ),
)
def broadcast_of_broadcast(m: Match) -> Any:
    outer = m.outer["broadcast_dimensions"]
    return {"both": _broadcast(m.result.shape, *(outer[d] for d in m.inner["broadcast_dimensions"]))}


@rules.add(
    "broadcast_in_dim[b](x) => x",
    cases=each(x=tensors((2, 3), ()), b=[_broadcast((2, 3), 0, 1), _broadcast((3, 2), 1, 0), _broadcast(())]),
)
def identity_broadcast(m: Match) -> Any:
    return m.x == m.result and tuple(m.b["broadcast_dimensions"]) == tuple(range(m.x.rank))


_B = [_broadcast((2, 4, 3), 0, 2), _broadcast((4, 2, 3), 1, 2), _broadcast((3, 2), 1, 0)]
rules.add(
    "unary[f](broadcast_in_dim[b](x)) => broadcast_in_dim[b](unary[f](x))",
    name="unary of broadcast",
    cases=each(x=tensors((2, 3), dtypes=("f32", "i32")), b=_B, f=["negate", ("convert", {"dtype": "bf16"})]),
)(None)


@rules.add(
    "binary[f](broadcast_in_dim[b](x), broadcast_in_dim[b](y)) => broadcast_in_dim[b](binary[f](x, y))",
    cases=each(
        x=tensors((2, 3)), y=tensors((2, 3), (1, 3)), b=_B, f=["add", ("compare", {"comparison_direction": "LT"})]
    ),
)
def binary_of_broadcasts(m: Match) -> Any:
    return m.x.shape == m.y.shape


for _operands, _made, _name in (
    ("broadcast_in_dim[b](x), broadcast_in_dim[c](s)", "x, broadcast_in_dim[d](s)", "right"),
    ("broadcast_in_dim[c](s), broadcast_in_dim[b](x)", "broadcast_in_dim[d](s), x", "left"),
):

    @rules.add(
        f"binary[f]({_operands}) => broadcast_in_dim[b](binary[f]({_made}))",
        name=f"binary of broadcasts of two ranks ({_name})",
        cases=each(
            x=tensors((2, 3)),
            s=tensors((), (3,), (2,), (4,)),
            f="subtract",
            b=_broadcast((2, 4, 3), 0, 2),
            c=[_broadcast((2, 4, 3), *d) for d in ((), (2,), (0,), (1,))],
        ),
    )
    def _binary_of_broadcasts_of_two_ranks(m: Match) -> Any:
        """Applies where the dimensions of s are among those of x, neither of them expanded by x's broadcast."""
        where = {d: i for i, d in enumerate(m.b["broadcast_dimensions"])}
        dims = m.c["broadcast_dimensions"]
        if m.s.rank >= m.x.rank or any(d not in where for d in dims) or m.b["shape"] != m.c["shape"]:
            return None
        if any(m.s.shape[i] != m.x.shape[where[d]] for i, d in enumerate(dims)):
            return None
        return {"d": _broadcast(m.x.shape, *(where[d] for d in dims))}


@rules.add(
    "slice[s](broadcast_in_dim[b](x)) => broadcast_in_dim[c](slice[u](x))",
    cases=each(
        x=tensors((2, 3), (1, 3)),
        b=[_broadcast((2, 4, 3), 0, 2), _broadcast((3, 2, 4), 1, 0)],
        s=[slice_of(b) for b in ([(1, 2, 1), (0, 2, 1), (0, 3, 2)], [(0, 2, 1), (1, 4, 2), (0, 3, 1)])],
    ),
)
def slice_of_broadcast(m: Match) -> Any:
    bounds, shape = bounds_of(m.s), sliced_shape(m.s)
    dims = m.b["broadcast_dimensions"]
    cut = [(0, 1, 1) if m.x.shape[i] == 1 else bounds[d] for i, d in enumerate(dims)]
    return {"u": slice_of(cut), "c": _broadcast(shape, *dims)}


@rules.add(
    "reduce[r](broadcast_in_dim[b](x)) => broadcast_in_dim[c](x)",
    cases=each(
        x=tensors((2, 3), dtypes=("f32", "i32")),
        b=[_broadcast((2, 4, 3), 0, 2), _broadcast((3, 2, 4), 1, 0)],
        r=[{"dimensions": d, "monoid": o} for d in ((1,), (2,), (0,)) for o in ("max", "min", "and")],
    ),
)
def reduce_of_broadcast(m: Match) -> Any:
    """A monoid of which x with x is x, over dimensions that only the broadcast made."""
    gone, dims = m.r["dimensions"], m.b["broadcast_dimensions"]
    if m.r["monoid"] not in ("max", "min", "and", "or") or set(gone) & set(dims) or 0 in m.b["shape"]:
        return None
    where = {d: i for i, d in enumerate(kept_dims(len(m.b["shape"]), gone))}
    return {"c": _broadcast(m.result.shape, *(where[d] for d in dims))}


@rules.add(
    "reduce[r](broadcast_in_dim[b](x)) => broadcast_in_dim[c](reduce[s](x))",
    mark="ρ",
    exact_if=lambda m: m.r["monoid"] in ("max", "min", "and", "or"),
    cases=like_zeros(
        each(
            x=tensors((2, 3), dtypes=("f32", "i32")),
            b=[_broadcast((2, 4, 3), 0, 2)],
            r=[{"dimensions": d, "monoid": o} for d in ((0,), (2,), (0, 2)) for o in ("max", "add")],
        )
    ),
)
def reduce_of_broadcast_kept(m: Match) -> Any:
    """Reducing dimensions of x itself, before they are repeated."""
    gone, dims = m.r["dimensions"], m.b["broadcast_dimensions"]
    inside = [i for i, d in enumerate(dims) if d in gone]
    if not gone or len(inside) != len(gone) or any(m.x.shape[i] != m.b["shape"][dims[i]] for i in inside):
        return None
    where = {d: i for i, d in enumerate(kept_dims(len(m.b["shape"]), gone))}
    return {
        "s": m.r.updated(dimensions=tuple(sorted(inside))),
        "c": _broadcast(m.result.shape, *(where[d] for d in dims if d in where)),
    }


def _splat(value: float, shape: tuple[int, ...], dtype: type = np.float32) -> dict[str, Any]:
    return {"value": Literal(np.broadcast_to(np.asarray(value, dtype), shape))}


@rules.add(
    "broadcast_in_dim[b](constant[c]()) => constant[d]()",
    cases=each(
        c=[_splat(-0.0, ()), _splat(np.nan, (3,)), _splat(7, (), np.int32)],
        b=[_broadcast((2, 3)), _broadcast((2, 3), 1)],
    ),
)
def broadcast_of_splat(m: Match) -> Any:
    literal = m.c["value"]
    if not literal.splat:
        return None
    return {"d": {"value": Literal(np.broadcast_to(literal.array.reshape(-1)[0], m.result.shape))}}


@rules.add(
    "constant[c]() => broadcast_in_dim[b](constant[d]())",
    cases=each(c=[_splat(-0.0, (2, 3)), _splat(np.inf, (4,)), _splat(7, (2,), np.int32)]),
)
def splat_is_a_broadcast(m: Match) -> Any:
    literal = m.c["value"]
    if not literal.splat or not m.result.shape:
        return None
    return {"d": {"value": Literal(literal.array.reshape(-1)[0])}, "b": _broadcast(m.result.shape)}
