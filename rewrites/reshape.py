"""Rules on reshapes, which move towards the results past ops that treat the reshaped dimensions alike."""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, like_zeros, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.rewrites.shapes import (
    Dot,
    bounds_of,
    elements,
    groups,
    numbers,
    renumbered,
    replaced,
    same_dims,
    slice_of,
    sliced_shape,
)
from eggshard.rewrites.transpose import order_free

rules = RuleList()

_X = tensors((2, 6), (4, 3), (12,), dtypes=("f32", "i32"))
_SHAPES = [{"shape": s} for s in ((12,), (4, 3), (2, 6), (2, 2, 3), (1, 12, 1), (3, 4))]


@rules.add("reshape[outer](reshape[inner](x)) => reshape[outer](x)", cases=each(x=_X, inner=_SHAPES, outer=_SHAPES))
def reshape_of_reshape(m: Match) -> Any:
    return True


@rules.add("reshape[r](x) => x", cases=each(x=_X, r=_SHAPES))
def identity_reshape(m: Match) -> Any:
    return m.x == m.result


rules.add(
    "unary[f](reshape[r](x)) => reshape[r](unary[f](x))",
    name="unary of reshape",
    cases=each(x=_X, r=_SHAPES, f=["negate", ("convert", {"dtype": "bf16"})]),
)(None)


@rules.add(
    "binary[f](reshape[r](x), reshape[r](y)) => reshape[r](binary[f](x, y))",
    cases=each(x=_X, y=_X, r=_SHAPES, f=["add", ("compare", {"comparison_direction": "LT"})]),
)
def binary_of_reshapes(m: Match) -> Any:
    return m.x.shape == m.y.shape


@rules.add(
    "ternary[f](reshape[r](x), reshape[r](y), reshape[r](z)) => reshape[r](ternary[f](x, y, z))",
    cases=each(
        x=tensors((2, 6), dtypes=("i1", "f32")), y=tensors((2, 6)), z=tensors((2, 6)), r=_SHAPES, f=["select", "clamp"]
    ),
)
def ternary_of_reshapes(m: Match) -> Any:
    return m.x.shape == m.y.shape == m.z.shape


for _operands, _made, _name in (
    ("reshape[u](x), y", "x, reshape[r](y)", "right"),
    ("y, reshape[u](x)", "reshape[r](y), x", "left"),
):

    @rules.add(
        f"reshape[r](binary[f]({_operands})) => binary[f]({_made})",
        name=f"reshape cancels inside ({_name})",
        cases=each(x=tensors((2, 6)), y=tensors((4, 3)), u={"shape": (4, 3)}, r={"shape": (2, 6)}, f="subtract"),
    )
    def _reshape_cancels_inside(m: Match) -> Any:
        return m.x.shape == m.result.shape


for _operands, _made, _name in (
    ("reshape[r](x), broadcast_in_dim[b](s)", "x, broadcast_in_dim[c](s)", "right"),
    ("broadcast_in_dim[b](s), reshape[r](x)", "broadcast_in_dim[c](s), x", "left"),
):

    @rules.add(
        f"binary[f]({_operands}) => reshape[r](binary[f]({_made}))",
        name=f"binary of reshape and broadcast ({_name})",
        cases=each(
            x=tensors((4, 3, 5)),
            r={"shape": (2, 2, 3, 5)},
            s=tensors((), (3,), (5, 3), (2,)),
            f="subtract",
            b=[{"broadcast_dimensions": d, "shape": (2, 2, 3, 5)} for d in ((), (2,), (3, 2), (0,))],
        ),
    )
    def _binary_of_reshape_and_broadcast(m: Match) -> Any:
        back = {j: i for i, j in same_dims(m.x.shape, m.r["shape"]).items()}
        if any(d not in back for d in m.b["broadcast_dimensions"]):
            return None
        return {"c": {"broadcast_dimensions": tuple(back[d] for d in m.b["broadcast_dimensions"]), "shape": m.x.shape}}


@rules.add(
    "reshape[r](broadcast_in_dim[b](x)) => broadcast_in_dim[c](x)",
    cases=each(
        x=tensors((), (3,), (1,), (1, 3), (3, 1), (2, 3)),
        r=[{"shape": s} for s in ((2, 2, 3), (12,), (4, 1, 3), (1, 4, 3), (2, 3), (3, 2), (8, 3))],
        b=[
            {"broadcast_dimensions": d, "shape": s}
            for d, s in (
                ((), (4, 3)), ((1,), (4, 3)), ((2,), (2, 2, 3)),
                ((0, 2), (1, 2, 3)), ((0, 1), (3, 1, 2)), ((0, 1), (3, 2, 1)), ((0, 2), (2, 4, 3)),
            )
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
    return {"c": {"broadcast_dimensions": tuple(where[i] for i in range(m.x.rank)), "shape": shape}}


@rules.add(
    "broadcast_in_dim[b](reshape[r](x)) => broadcast_in_dim[c](x)",
    cases=each(
        x=tensors((3,), (2, 3), (1, 3)),
        r=[{"shape": s} for s in ((1, 3), (3, 1), (2, 1, 3), (3,))],
        b=[
            {"broadcast_dimensions": d, "shape": s}
            for d, s in (((0, 1), (4, 3)), ((1, 0), (4, 3)), ((0, 1, 2), (2, 5, 3)), ((2,), (2, 2, 3)))
        ],
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
    return {"c": {"broadcast_dimensions": tuple(dims), "shape": m.result.shape}}


@rules.add(
    "broadcast_in_dim[b](x) => reshape[r](x)",
    cases=each(
        x=tensors((2, 3), (1, 3)),
        b=[
            {"broadcast_dimensions": d, "shape": s}
            for d, s in (((0, 1), (2, 3)), ((0, 2), (2, 1, 3)), ((1, 2), (1, 2, 3)), ((0, 1), (1, 3)))
        ],
    ),
)
def broadcast_that_is_a_reshape(m: Match) -> Any:
    dims = m.b["broadcast_dimensions"]
    if m.x.elements != m.result.elements or m.x.elements == 0 or list(dims) != sorted(dims):
        return None
    return {"r": {"shape": m.result.shape}}


@rules.add(
    "slice[s](reshape[r](x)) => reshape[q](slice[u](x))",
    cases=each(
        x=tensors((4, 6), (2, 3, 4)),
        r=[{"shape": s} for s in ((24,), (8, 3), (4, 2, 3), (6, 4), (4, 1, 6))],
        s=[
            slice_of(b)
            for b in (
                [(6, 18, 1)],
                [(4, 8, 1)],
                [(1, 2, 1)],
                [(2, 4, 1), (0, 3, 1)],
                [(1, 3, 1), (0, 2, 1), (0, 3, 1)],
                [(2, 6, 1), (1, 3, 1)],
                [(0, 4, 2), (0, 1, 1), (2, 5, 1)],
            )
        ],
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
            row = elements(m.r["shape"][j] for j in group.target[1:])
            inner = elements(sizes[1:])
            start, limit = cut[0][0] * row, cut[0][1] * row
            if start % inner or limit % inner:
                return None
            made += [(start // inner, limit // inner, 1), *((0, n, 1) for n in sizes[1:])]
        else:
            return None
    return {"u": slice_of(made), "q": {"shape": sliced_shape(m.s)}}


@rules.add(
    "reduce[r](reshape[s](x)) => reshape[q](reduce[t](x))",
    mark="ρ",
    exact_if=lambda m: order_free(m.r["monoid"], m),
    cases=like_zeros(
        each(
            x=tensors((4, 6), (2, 3, 4), (2, 1, 6), dtypes=("f32", "i32")),
            s=[{"shape": s} for s in ((24,), (2, 2, 6), (6, 4), (4, 1, 6), (1, 2, 6, 1))],
            r=[{"dimensions": d, "monoid": o} for d in ((0,), (0, 1), (1,), (2,), (0, 3)) for o in ("add", "max")],
        )
    ),
)
def reduce_of_reshape(m: Match) -> Any:
    """Applies where whole groups are reduced; unit dimensions go with any group."""
    gone = set(m.r["dimensions"])
    reduced: list[int] = []
    for group in groups(m.x.shape, m.s["shape"]):
        sized = [j for j in group.target if m.s["shape"][j] != 1]
        inside = [j in gone for j in sized]
        if any(inside) and not all(inside):
            return None
        if sized and all(inside):
            reduced += group.source
    if not reduced or 0 in m.x.shape:
        return None
    return {"t": m.r.updated(dimensions=tuple(reduced)), "q": {"shape": m.result.shape}}


_DOT = {"precision_config": None, "algorithm": None, "dtype": "f32"}
for _which, _operands in ((0, "reshape[r](x), y"), (1, "y, reshape[r](x)")):

    @rules.add(
        f"dot_general[d]({_operands}) => reshape[q](dot_general[e]({'x, y' if not _which else 'y, x'}))",
        name=f"dot of reshape ({_which})",
        cases=each(
            x=tensors((2, 3, 4), (6, 2, 2)),
            r=[{"shape": s} for s in ((6, 4), (2, 3, 2, 2), (2, 12), (6, 1, 4))],
            y=tensors((4, 5), (5, 4), (2, 5, 4)),
            d=[
                {**_DOT, "dot_dimension_numbers": n}
                for n in (
                    numbers((), (), (1,), (0,)),
                    numbers((), (), (0,), (1,)),
                    numbers((), (), (1,), (1,)),
                    numbers((0,), (0,), (), ()),
                    numbers((), (), (2,), (0,)),
                    numbers((), (), (0,), (2,)),
                )
            ],
        ),
    )
    def _dot_of_reshape(m: Match, which: int = _which) -> Any:
        """Applies where contracting and batch dimensions are not reshaped."""
        types = [m.y, m.y]
        types[which] = m.x.with_shape(tuple(m.r["shape"]))
        d = Dot.of(m.d, *types)
        batch, contracting, _ = d.side(which)
        back = {j: i for i, j in same_dims(m.x.shape, m.r["shape"]).items()}
        if any(j not in back for j in batch + contracting):
            return None
        # A reshape keeps the order of elements, so free dimensions of both hold the same elements in the same order.
        return {"e": renumbered(m.d, d, which, back), "q": {"shape": m.result.shape}}


for _n in (2, 3):
    _parts = "xyz"[:_n]

    @rules.add(
        f"concatenate[c]({', '.join(f'reshape[r_{p}]({p})' for p in _parts)}) => "
        f"reshape[q](concatenate[d]({', '.join(_parts)}))",
        name=f"concatenate of {_n} reshapes",
        cases=each(
            **dict.fromkeys(_parts, tensors((2, 6), (4, 6), (2, 3, 4))),
            **{f"r_{p}": [{"shape": s} for s in ((2, 2, 3), (4, 2, 3), (2, 12))] for p in _parts},
            c=[{"dimension": 0}, {"dimension": 2}],
        ),
    )
    def _concatenate_of_reshapes(m: Match, parts: str = _parts) -> Any:
        """Applies where the dimension of concatenation is not reshaped, and the operands match in all others."""
        at, found = m.c["dimension"], set()
        for p in parts:
            x, shape = getattr(m, p), getattr(m, f"r_{p}")["shape"]
            back = {j: i for i, j in same_dims(x.shape, shape).items()}
            if at not in back:
                return None
            found.add((back[at], replaced(x.shape, back[at], 0)))
        if len(found) != 1:
            return None
        return {"d": {"dimension": found.pop()[0]}, "q": {"shape": m.result.shape}}
