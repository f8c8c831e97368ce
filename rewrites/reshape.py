"""Rules on reshapes, which move towards the results past ops that treat the reshaped dimensions alike."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from eggshard.egraph.laws import each, like_zeros, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.rewrites.shapes import (
    SIDES,
    Dims,
    Dot,
    along,
    answer,
    bounds_of,
    dot,
    groups,
    of_each,
    reduced,
    renumbered,
    replaced,
    same_dims,
    shaped,
    slice_of,
    sliced_shape,
    slices,
    spread,
    spread_by,
    with_numbers,
)
from eggshard.rewrites.transpose import order_free

rules = RuleList()

_X = tensors((2, 6), (4, 3), (12,), dtypes=("f32", "i32"))
_FLAT = tensors((2, 6))
_SHAPES = shaped((12,), (4, 3), (2, 6), (2, 2, 3), (1, 12, 1), (3, 4))


def _back(m: Match) -> dict[int, int]:
    """From dimensions of x reshaped by r, where they are dimensions of x, to those."""
    return {j: i for i, j in same_dims(m.x.shape, m.r["shape"]).items()}


rules.add(
    "reshape[outer](reshape[inner](x)) => reshape[outer](x)",
    name="reshape of reshape",
    says="two reshapes as one",
    cases=each(x=_X, inner=_SHAPES, outer=_SHAPES),
)(None)
rules.add(
    "reshape[r](x) => x",
    name="identity reshape",
    says="a reshape that changes nothing left out",
    cases=each(x=_X, r=_SHAPES),
)(lambda m: m.x == m.result)
rules.add(
    "unary[f](reshape[r](x)) => reshape[r](unary[f](x))",
    name="unary of reshape",
    says="reshaped after the pointwise op",
    cases=each(x=_X, r=_SHAPES, f=["negate", ("convert", {"dtype": "bf16"})]),
)(None)
rules.add(
    "binary[f](reshape[r](x), reshape[r](y)) => reshape[r](binary[f](x, y))",
    name="binary of reshapes",
    says="reshaped once, after the pointwise op",
    cases=each(x=_X, y=_X, r=_SHAPES, f=["add", ("compare", {"comparison_direction": "LT"})]),
)(lambda m: m.x.shape == m.y.shape)
rules.add(
    "ternary[f](reshape[r](x), reshape[r](y), reshape[r](z)) => reshape[r](ternary[f](x, y, z))",
    name="ternary of reshapes",
    says="reshaped once, after the pointwise op",
    cases=each(x=tensors((2, 6), dtypes=("i1", "f32")), y=_FLAT, z=_FLAT, r=_SHAPES, f=["select", "clamp"]),
)(lambda m: m.x.shape == m.y.shape == m.z.shape)

for _side, _pair in SIDES:
    rules.add(
        f"reshape[r](binary[f]({_pair('reshape[u](x)', 'y')})) => binary[f]({_pair('x', 'reshape[r](y)')})",
        name=f"reshape cancels inside ({_side})",
        says=f"two reshapes cancelled, only the {'second' if _side == 'right' else 'first'} operand reshaped",
        cases=each(x=_FLAT, y=tensors((4, 3)), u={"shape": (4, 3)}, r={"shape": (2, 6)}, f="subtract"),
    )(lambda m: m.x.shape == m.result.shape)
for _side, _pair in SIDES:
    rules.add(
        f"binary[f]({_pair('reshape[r](x)', 'broadcast_in_dim[b](s)')}) => "
        f"reshape[r](binary[f]({_pair('x', 'broadcast_in_dim[c](s)')}))",
        name=f"binary of reshape and broadcast ({_side})",
        says="reshaped after the pointwise op with a broadcast",
        cases=each(
            x=tensors((4, 3, 5)), r={"shape": (2, 2, 3, 5)}, s=tensors((), (3,), (5, 3), (2,)), f="subtract",
            b=[spread((2, 2, 3, 5), *d) for d in ((), (2,), (3, 2), (0,))],
        ),
    )(lambda m: answer(c=spread_by(m.b, _back(m), m.x.shape)))


@rules.add(
    "reshape[r](broadcast_in_dim[b](x)) => broadcast_in_dim[c](x)",
    says="broadcast straight to the reshaped shape",
    cases=each(
        x=tensors((), (3,), (1,), (1, 3), (3, 1), (2, 3)),
        r=shaped((2, 2, 3), (12,), (4, 1, 3), (1, 4, 3), (2, 3), (3, 2), (8, 3)),
        b=[
            spread((4, 3)), spread((4, 3), 1), spread((2, 2, 3), 2), spread((1, 2, 3), 0, 2), spread((3, 1, 2), 0, 1),
            spread((3, 2, 1), 0, 1), spread((2, 4, 3), 0, 2),
        ],
    ),
)
def reshape_of_broadcast(m: Match) -> Any:
    """Applies where the reshape keeps x's dimensions; those of size 1 may be anywhere, as for a repeated row."""
    moved, shape = same_dims(m.b["shape"], m.r["shape"]), m.result.shape
    where = {i: moved[d] for i, d in enumerate(m.b["broadcast_dimensions"]) if d in moved}
    free = (d for d in range(len(shape)) if d not in where.values())
    for i, n in enumerate(m.x.shape):
        if i not in where:
            d = next(free, None) if n == 1 and 0 not in shape else None
            if d is None:
                return None
            where[i] = d
    return {"c": spread(shape, *(where[i] for i in range(m.x.rank)))}


@rules.add(
    "broadcast_in_dim[b](reshape[r](x)) => broadcast_in_dim[c](x)",
    says="broadcast without reshaping first",
    cases=each(
        x=tensors((3,), (2, 3), (1, 3)), r=shaped((1, 3), (3, 1), (2, 1, 3), (3,)),
        b=[spread((4, 3), 0, 1), spread((4, 3), 1, 0), spread((2, 5, 3), 0, 1, 2), spread((2, 2, 3), 2)],
    ),
)
def broadcast_of_reshape(m: Match) -> Any:
    """Applies where the reshape only inserts or drops unit dimensions."""
    dims: list[int] = []
    for group in groups(m.x.shape, m.r["shape"]):
        if len(group.source) > 1 or len(group.target) > 1 or (group.source and not group.target):
            return None
        if group.source:
            dims.append(m.b["broadcast_dimensions"][group.target[0]])
    return {"c": spread(m.result.shape, *dims)}


@rules.add(
    "broadcast_in_dim[b](x) => reshape[r](x)",
    says="a broadcast written as a reshape",
    cases=each(
        x=tensors((2, 3), (1, 3)),
        b=[spread((2, 3), 0, 1), spread((2, 1, 3), 0, 2), spread((1, 2, 3), 1, 2), spread((1, 3), 0, 1)],
    ),
)
def broadcast_that_is_a_reshape(m: Match) -> Any:
    dims = m.b["broadcast_dimensions"]
    if m.x.elements != m.result.elements or m.x.elements == 0 or list(dims) != sorted(dims):
        return None
    return {"r": {"shape": m.result.shape}}


@rules.add(
    "slice[s](reshape[r](x)) => reshape[q](slice[u](x))",
    says="reshaped after slicing",
    cases=each(
        x=tensors((4, 6), (2, 3, 4)), r=shaped((24,), (8, 3), (4, 2, 3), (6, 4), (4, 1, 6)),
        s=slices(
            [(6, 18, 1)], [(4, 8, 1)], [(1, 2, 1)], [(2, 4, 1), (0, 3, 1)], [(1, 3, 1), (0, 2, 1), (0, 3, 1)],
            [(2, 6, 1), (1, 3, 1)], [(0, 4, 2), (0, 1, 1), (2, 5, 1)],
        ),
    ),
)
def slice_of_reshape(m: Match) -> Any:
    """Applies where the slice cuts whole rows of what the reshape splits or merges."""
    bounds, made = bounds_of(m.s), []
    for group in groups(m.x.shape, m.r["shape"]):
        sizes = [m.x.shape[i] for i in group.source]
        cut = [bounds[j] for j in group.target]
        changed = [j for j, b in zip(group.target, cut, strict=True) if b != (0, m.r["shape"][j], 1)]
        if not changed:
            made += [(0, n, 1) for n in sizes]
        elif len(sizes) == len(cut) == 1:
            made.append(cut[0])
        elif sizes and changed == [group.target[0]] and cut[0][2] == 1:
            row, inner = prod(m.r["shape"][j] for j in group.target[1:]), prod(sizes[1:])
            start, limit = cut[0][0] * row, cut[0][1] * row
            if not inner or start % inner or limit % inner:
                return None
            made += [(start // inner, limit // inner, 1), *((0, n, 1) for n in sizes[1:])]
        else:
            return None
    return {"u": slice_of(made), "q": {"shape": sliced_shape(m.s)}}


@rules.add(
    "reduce[r](reshape[s](x)) => reshape[q](reduce[t](x))",
    says="reshaped after the reduction",
    mark="ρ",
    exact_if=lambda m: order_free(m.r["monoid"], m),
    cases=like_zeros(
        each(
            x=tensors((4, 6), (2, 3, 4), (2, 1, 6), dtypes=("f32", "i32")),
            s=shaped((24,), (2, 2, 6), (6, 4), (4, 1, 6), (1, 2, 6, 1)), r=reduced((0,), (0, 1), (1,), (2,), (0, 3)),
        )
    ),
)
def reduce_of_reshape(m: Match) -> Any:
    """Applies where whole groups are reduced; unit dimensions go with any group."""
    gone = set(m.r["dimensions"])
    within: list[int] = []
    for group in groups(m.x.shape, m.s["shape"]):
        inside = {j in gone for j in group.target if m.s["shape"][j] != 1}
        if len(inside) > 1:
            return None
        if inside == {True}:
            within += group.source
    if not within or 0 in m.x.shape:
        return None
    return {"t": m.r.updated(dimensions=tuple(within)), "q": {"shape": m.result.shape}}


def _dot_of_reshape(m: Match, which: int) -> Any:
    """Applies where contracting and batch dimensions are not reshaped."""
    d = Dot.beside(m.d, which, m.x.with_shape(tuple(m.r["shape"])), m.y)
    batch, contracting, _ = d.side(which)
    back = _back(m)
    if any(j not in back for j in batch + contracting):
        return None
    # A reshape keeps the order of elements, so free dimensions of both hold the same elements in the same order.
    return {"e": renumbered(m.d, d, which, back), "q": {"shape": m.result.shape}}


for _which, (_, _pair) in enumerate(SIDES):
    rules.add(
        f"dot_general[d]({_pair('reshape[r](x)', 'y')}) => reshape[q](dot_general[e]({_pair('x', 'y')}))",
        name=f"dot of reshape ({_which})",
        says=f"product reshaped instead of its {'second' if _which else 'first'} operand",
        cases=each(
            x=tensors((2, 3, 4), (6, 2, 2)), r=shaped((6, 4), (2, 3, 2, 2), (2, 12), (6, 1, 4)),
            y=tensors((4, 5), (5, 4), (2, 5, 4)),
            d=[
                *(dot((), (), (i,), (j,)) for i, j in ((1, 0), (0, 1), (1, 1))), dot((0,), (0,), (), ()),
                *(dot((), (), (i,), (j,)) for i, j in ((2, 0), (0, 2))),
            ],
        ),
    )(partial(_dot_of_reshape, which=_which))


def _roles(m: Match, which: int, d: Dot) -> tuple[Dims, dict[Dims, Dims]] | None:
    """An operand's own batch dimensions, and by groups of its reshaped contracting dimensions its own ones.

    None where a group has several roles, or batch dimensions are reshaped.
    """
    x, shape = (m.y, m.q["shape"]) if which else (m.x, m.r["shape"])
    batch, contracting, free = d.side(which)
    back = {j: i for i, j in same_dims(x.shape, shape).items()}
    if any(j not in back for j in batch):
        return None
    own = [back[j] for j in batch]
    met: dict[Dims, Dims] = {}
    for group in groups(x.shape, shape):
        if group.target and set(group.target) <= {*contracting}:
            met[group.target] = group.source
        elif not any(set(group.target) <= {*role} for role in (free, batch)):
            return None
    return tuple(own), met


@rules.add(
    "dot_general[d](reshape[r](x), reshape[q](y)) => reshape[s](dot_general[e](x, y))",
    says="product of both operands without reshaping them first",
    mark="ρ",
    cases=each(
        x=tensors((2, 6), (4, 3), (2, 2, 3), (3, 4, 5)), r=shaped((12,), (2, 6), (3, 20), (4, 3), (60,), (1, 12)),
        y=tensors((2, 6), (4, 3), (2, 2, 3), (4, 5, 2), (3, 4, 5)),
        q=shaped((12,), (20, 2), (4, 3), (60,), (12, 1), (3, 20)),
        d=[dot((), (), (0,), (0,)), dot((), (), (1,), (0,)), dot((), (), (0, 1), (0, 1)), dot((0,), (0,), (1,), (1,))],
    ),
)
def dot_over_merged_dimensions(m: Match) -> Any:
    """Contracts what both operands merge, or split, alike before that is done: it may be sharded in many ways then."""
    d = Dot.of(m.d, m.x.with_shape(tuple(m.r["shape"])), m.y.with_shape(tuple(m.q["shape"])))
    left, right = _roles(m, 0, d), _roles(m, 1, d)
    if left is None or right is None or all(len(source) == 1 for source in left[1].values()):
        return None
    partner = dict(zip(d.lhs_contracting, d.rhs_contracting, strict=True))
    pairs = [(ours, right[1].get(tuple(partner[j] for j in target))) for target, ours in left[1].items()]
    met = [(ours, theirs) for ours, theirs in pairs if theirs is not None]
    if len(met) != max(len(left[1]), len(right[1])) or any(
        [m.x.shape[i] for i in ours] != [m.y.shape[i] for i in theirs] for ours, theirs in met
    ):
        return None
    contracted = (tuple(i for pair in met for i in pair[which]) for which in (0, 1))
    return {"e": with_numbers(m.d, left[0], right[0], *contracted), "s": {"shape": m.result.shape}}


def _concatenate_of_reshapes(m: Match, parts: str) -> Any:
    """Applies where the dimension of concatenation is not reshaped, and the operands match in all others."""
    at, found = m.c["dimension"], set()
    for p in parts:
        x, shape = getattr(m, p), getattr(m, f"r_{p}")["shape"]
        back = {j: i for i, j in same_dims(x.shape, shape).items()}
        if at not in back:
            return None
        found.add((back[at], replaced(x.shape, back[at], 0)))
    return {"d": {"dimension": found.pop()[0]}, "q": {"shape": m.result.shape}} if len(found) == 1 else None


for _parts in ("xy", "xyz"):
    rules.add(
        f"concatenate[c]({of_each('reshape[r_{0}]({0})', _parts)}) => "
        f"reshape[q](concatenate[d]({of_each('{}', _parts)}))",
        name=f"concatenate of {len(_parts)} reshapes",
        says="reshaped once, after concatenating",
        cases=each(
            **dict.fromkeys(_parts, tensors((2, 6), (4, 6), (2, 3, 4))),
            **{f"r_{p}": shaped((2, 2, 3), (4, 2, 3), (2, 12)) for p in _parts},
            c=along(0, 2),
        ),
    )(partial(_concatenate_of_reshapes, parts=_parts))
