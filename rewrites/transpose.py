"""Rules on transposes, which move towards the results out of pointwise ops, slices, reductions; products absorb them.

One direction suffices: a transpose costs no communication wherever it stands, but one in the way hides other rules'
left sides. Where it stood inwards on purpose, composing two of them cancels it.
"""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, like_zeros, tensors, together
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.types import TensorType
from eggshard.rewrites.shapes import (
    Dot,
    bounds_of,
    groups,
    inverse,
    is_identity,
    kept_dims,
    numbers,
    renumbered,
    slice_of,
    with_numbers,
)

rules = RuleList()

_ORDERS = [{"permutation": p} for p in ((0, 1, 2), (1, 0, 2), (2, 0, 1), (0, 2, 1), (2, 1, 0))]
_CUBE = tensors((2, 3, 4), dtypes=("f32", "i32"))
_SWAP = {"permutation": (1, 0)}
_WIDE, _TALL = tensors((2, 3)), tensors((3, 2))


@rules.add(
    "transpose[outer](transpose[inner](x)) => transpose[both](x)", cases=each(x=_CUBE, inner=_ORDERS, outer=_ORDERS)
)
def transpose_of_transpose(m: Match) -> Any:
    return {"both": {"permutation": tuple(m.inner["permutation"][d] for d in m.outer["permutation"])}}


@rules.add("transpose[t](x) => x", cases=each(x=_CUBE, t=_ORDERS))
def identity_transpose(m: Match) -> Any:
    return is_identity(m.t["permutation"])


@rules.add("transpose[t](x) => reshape[r](x)", cases=each(x=tensors((1, 3, 1), (2, 1, 3), (1, 1, 1)), t=_ORDERS))
def transpose_that_is_a_reshape(m: Match) -> Any:
    moved = [d for d in m.t["permutation"] if m.x.shape[d] != 1]
    if moved == sorted(moved) and not is_identity(m.t["permutation"]):
        return {"r": {"shape": m.result.shape}}
    return None


@rules.add(
    "reshape[r](x) => transpose[t](x)",
    cases=each(x=tensors((1, 3, 2), (3, 1, 2)), r=[{"shape": s} for s in ((3, 1, 2), (3, 2, 1), (1, 3, 2), (6, 1, 1))]),
)
def reshape_that_is_a_transpose(m: Match) -> Any:
    source, target = m.x.shape, tuple(m.r["shape"])
    if len(source) != len(target) or source == target or [n for n in source if n != 1] != [n for n in target if n != 1]:
        return None
    units = iter([i for i, n in enumerate(source) if n == 1])
    others = iter([i for i, n in enumerate(source) if n != 1])
    return {"t": {"permutation": tuple(next(units) if n == 1 else next(others) for n in target)}}


rules.add(
    "unary[f](transpose[t](x)) => transpose[t](unary[f](x))",
    name="unary of transpose",
    cases=each(x=_CUBE, t=_ORDERS, f=["negate", ("convert", {"dtype": "bf16"})]),
)(None)
rules.add(
    "binary[f](transpose[t](x), transpose[t](y)) => transpose[t](binary[f](x, y))",
    name="binary of transposes",
    cases=each(x=_CUBE, y=_CUBE, t=_ORDERS, f=["add", ("compare", {"comparison_direction": "LT"})]),
)(None)
rules.add(
    "ternary[f](transpose[t](x), transpose[t](y), transpose[t](z)) => transpose[t](ternary[f](x, y, z))",
    name="ternary of transposes",
    cases=each(x=tensors((2, 3), dtypes=("i1", "f32")), y=_WIDE, z=_WIDE, t=_SWAP, f=["select", "clamp"]),
)(None)

for _order, _cancel, _new in (
    ("transpose[u](x), y", "x, transpose[t](y)", "right"),
    ("y, transpose[u](x)", "transpose[t](y), x", "left"),
):

    @rules.add(
        f"transpose[t](binary[f]({_order})) => binary[f]({_cancel})",
        name=f"transpose cancels inside ({_new})",
        cases=each(x=_WIDE, y=_TALL, t=_SWAP, u=_SWAP, f="subtract"),
    )
    def _transpose_cancels_inside(m: Match) -> Any:
        return is_identity([m.u["permutation"][d] for d in m.t["permutation"]])


for _operands, _made, _name in (
    ("transpose[t](x), broadcast_in_dim[b](s)", "x, broadcast_in_dim[c](s)", "right"),
    ("broadcast_in_dim[b](s), transpose[t](x)", "broadcast_in_dim[c](s), x", "left"),
):

    @rules.add(
        f"binary[f]({_operands}) => transpose[t](binary[f]({_made}))",
        name=f"binary of transpose and broadcast ({_name})",
        cases=each(
            x=tensors((2, 3, 4)),
            t=[{"permutation": (2, 0, 1)}],
            f="subtract",
            s=tensors((), (4,), (2,), (4, 3), (1, 3)),
            b=[{"broadcast_dimensions": d, "shape": (4, 2, 3)} for d in ((), (0,), (1,), (0, 2), (1, 2))],
        ),
    )
    def _binary_of_transpose_and_broadcast(m: Match) -> Any:
        permutation = m.t["permutation"]
        return {
            "c": {
                "broadcast_dimensions": tuple(permutation[d] for d in m.b["broadcast_dimensions"]),
                "shape": m.x.shape,
            }
        }


@rules.add(
    "transpose[t](broadcast_in_dim[b](x)) => broadcast_in_dim[c](x)",
    cases=each(
        x=tensors((2, 3)),
        b=[{"broadcast_dimensions": d, "shape": s} for d, s in (((0, 2), (2, 4, 3)), ((2, 0), (3, 4, 2)))],
        t=_ORDERS,
    ),
)
def transpose_of_broadcast(m: Match) -> Any:
    where = inverse(m.t["permutation"])
    return {
        "c": {"broadcast_dimensions": tuple(where[d] for d in m.b["broadcast_dimensions"]), "shape": m.result.shape}
    }


@rules.add(
    "broadcast_in_dim[b](transpose[t](x)) => broadcast_in_dim[c](x)",
    cases=each(
        x=tensors((2, 3)),
        t=_SWAP,
        b=[{"broadcast_dimensions": d, "shape": s} for d, s in (((0, 2), (3, 4, 2)), ((2, 1), (4, 2, 3)))],
    ),
)
def broadcast_of_transpose(m: Match) -> Any:
    where, dims = inverse(m.t["permutation"]), m.b["broadcast_dimensions"]
    return {"c": {"broadcast_dimensions": tuple(dims[where[i]] for i in range(m.x.rank)), "shape": m.result.shape}}


_DOT = {"precision_config": ("DEFAULT", "HIGHEST"), "algorithm": None, "dtype": "f32"}
_MATMUL = {**_DOT, "dot_dimension_numbers": numbers((), (), (1,), (0,))}
_BATCHED = [{**_DOT, "dot_dimension_numbers": numbers((0,), (0,), (c,), (d,))} for c in (1, 2) for d in (1, 2)]


@rules.add(
    "transpose[t](dot_general[d](x, y)) => dot_general[e](y, x)",
    cases=together(
        each(x=_WIDE, y=tensors((3, 4)), t=_SWAP, d=_MATMUL),
        each(x=tensors((2, 3, 4)), y=tensors((2, 4, 5), (2, 3, 4)), d=_BATCHED, t=[{"permutation": (0, 2, 1)}]),
    ),
)
def transpose_of_dot(m: Match) -> Any:
    """(A B)^T = B^T A^T. An algorithm may treat the two sides differently: it stays."""
    d = Dot.of(m.d, m.x, m.y)
    b, i, j = len(d.lhs_batch), len(d.lhs_free), len(d.rhs_free)
    swapped = (*range(b), *range(b + i, b + i + j), *range(b, b + i))
    if tuple(m.t["permutation"]) != swapped or m.d.get("algorithm") is not None or m.x.dtype != m.y.dtype:
        return None
    made = with_numbers(m.d, d.rhs_batch, d.lhs_batch, d.rhs_contracting, d.lhs_contracting)
    if made.get("precision_config") is not None:
        made = made.updated(precision_config=tuple(reversed(made["precision_config"])))
    return {"e": made}


def _absorb(m: Match, which: int) -> tuple[Any, tuple[int, ...]]:
    """The product on the untransposed operand, and how its result must be permuted to be the same."""
    types = [m.x, m.y]
    types[which] = TensorType(tuple(types[which].shape[i] for i in m.t["permutation"]), types[which].dtype)
    d = Dot.of(m.d, *types)
    made = renumbered(m.d, d, which, dict(enumerate(m.t["permutation"])))
    old, new = d.result_of(which), Dot.of(made, m.x, m.y).result_of(which)
    order = list(range(m.result.rank))
    for i, position in old.items():
        order[position] = new[m.t["permutation"][i]]
    return made, tuple(order)


for _which, _operands, _made in ((0, "transpose[t](x), y", "x, y"), (1, "x, transpose[t](y)", "x, y")):
    _cases = each(
        x=tensors((2, 3, 4)),
        y=tensors((2, 4, 3), (4, 3, 2), (3, 2, 5)),
        t=_ORDERS,
        d=[
            {**_DOT, "dot_dimension_numbers": n}
            for n in (numbers((0,), (0,), (2,), (1,)), numbers((), (), (1,), (0,)), numbers((), (), (0, 2), (2, 0)))
        ],
    )

    @rules.add(
        f"dot_general[d]({_operands}) => dot_general[e]({_made})",
        name=f"dot absorbs transpose ({_which})",
        cases=_cases,
    )
    def _dot_absorbs_transpose(m: Match, which: int = _which) -> Any:
        made, order = _absorb(m, which)
        return {"e": made} if is_identity(order) else None

    @rules.add(
        f"dot_general[d]({_operands}) => transpose[u](dot_general[e]({_made}))",
        name=f"dot of transpose ({_which})",
        cases=_cases,
    )
    def _dot_of_transpose(m: Match, which: int = _which) -> Any:
        made, order = _absorb(m, which)
        return None if is_identity(order) else {"e": made, "u": {"permutation": order}}


_REDUCTIONS = [{"dimensions": d, "monoid": o} for d in ((0,), (1, 2), (0, 2)) for o in ("add", "max")]


def order_free(monoid: str, m: Match) -> bool:
    """Whether a reduction's result does not depend on the order of its operands."""
    return monoid not in ("add", "mul") or not m.result.dtype.startswith(("f", "bf", "complex"))


@rules.add(
    "reduce[r](transpose[t](x)) => transpose[u](reduce[s](x))",
    mark="ρ",
    exact_if=lambda m: order_free(m.r["monoid"], m),
    cases=like_zeros(each(x=_CUBE, t=_ORDERS, r=_REDUCTIONS)),
)
def reduce_of_transpose(m: Match) -> Any:
    permutation = m.t["permutation"]
    gone = tuple(sorted(permutation[d] for d in m.r["dimensions"]))
    kept = kept_dims(m.x.rank, gone)
    order = tuple(kept.index(permutation[d]) for d in kept_dims(m.x.rank, m.r["dimensions"]))
    return {"s": m.r.updated(dimensions=gone), "u": {"permutation": order}}


@rules.add(
    "slice[s](transpose[t](x)) => transpose[t](slice[u](x))",
    cases=each(
        x=_CUBE,
        t=_ORDERS,
        s=[slice_of(b) for b in (((0, 1, 1), (0, 2, 1), (1, 2, 1)), ((0, 2, 2), (1, 2, 1), (0, 2, 1)))],
    ),
)
def slice_of_transpose(m: Match) -> Any:
    bounds, where = bounds_of(m.s), inverse(m.t["permutation"])
    return {"u": slice_of(bounds[where[i]] for i in range(m.x.rank))}


@rules.add(
    "pad[p](transpose[t](x), v) => transpose[t](pad[q](x, v))",
    cases=each(
        x=tensors((2, 3)),
        v=tensors(()),
        t=_SWAP,
        p=[
            {"edge_padding_low": a, "edge_padding_high": b, "interior_padding": c}
            for a, b, c in (((1, 0), (0, 2), (0, 0)), ((-1, 2), (1, 0), (0, 1)))
        ],
    ),
)
def pad_of_transpose(m: Match) -> Any:
    where = inverse(m.t["permutation"])
    return {"q": {name: tuple(m.p[name][where[i]] for i in range(m.x.rank)) for name in m.p}}


@rules.add(
    "reverse[r](transpose[t](x)) => transpose[t](reverse[s](x))",
    cases=each(x=_CUBE, t=_ORDERS, r=[{"dimensions": d} for d in ((0,), (1, 2))]),
)
def reverse_of_transpose(m: Match) -> Any:
    return {"s": {"dimensions": tuple(sorted(m.t["permutation"][d] for d in m.r["dimensions"]))}}


for _n in (2, 3):
    _parts = "xyz"[:_n]

    @rules.add(
        f"concatenate[c]({', '.join(f'transpose[t]({p})' for p in _parts)}) => "
        f"transpose[t](concatenate[d]({', '.join(_parts)}))",
        name=f"concatenate of {_n} transposes",
        cases=each(**dict.fromkeys(_parts, _WIDE), t=_SWAP, c=[{"dimension": 0}, {"dimension": 1}]),
    )
    def _concatenate_of_transposes(m: Match) -> Any:
        return {"d": {"dimension": m.t["permutation"][m.c["dimension"]]}}


_SPLITS = [{"shape": s} for s in ((2, 3, 2, 2), (6, 4), (4, 6), (2, 12), (24,), (1, 2, 3, 4), (2, 3, 4, 1))]


@rules.add(
    "reshape[r](transpose[t](x)) => transpose[u](reshape[s](x))",
    cases=each(
        x=_CUBE,
        t=_ORDERS,
        r=[
            {"shape": s}
            for s in ((4, 2, 3), (4, 6), (8, 3), (3, 2, 4), (1, 4, 2, 3), (2, 2, 2, 3), (2, 1, 4, 3), (12, 2))
        ],
    ),
)
def reshape_of_transpose(m: Match) -> Any:
    """Applies where each group of the reshape splits a dimension, or merges some that the transpose left adjacent."""
    permutation, target = m.t["permutation"], m.r["shape"]
    made = [m.x.shape[d] for d in permutation]
    if 0 in target:
        return None
    parts = []  # per group: its first dimension in x, and the target dimensions that it makes
    for group in groups(made, target):
        dims = [permutation[i] for i in group.source]
        if dims and dims != list(range(dims[0], dims[0] + len(dims))):
            return None
        parts.append((dims[0] if dims else -1, group.target))
    order = sorted(parts, key=lambda part: part[0])
    before = [j for _, dims in order for j in dims]
    where = {j: i for i, j in enumerate(before)}
    shape = tuple(target[j] for j in before)
    permuted = tuple(where[j] for j in range(len(target)))
    return {"s": {"shape": shape}, "u": {"permutation": permuted}}


@rules.add(
    "transpose[t](reshape[r](x)) => reshape[s](transpose[u](x))",
    cases=each(
        x=tensors((2, 3, 4), (6, 4), (2, 12)),
        r=_SPLITS,
        t=[*_ORDERS, _SWAP, *({"permutation": p} for p in ((2, 3, 0, 1), (1, 0, 3, 2), (3, 0, 1, 2)))],
    ),
)
def transpose_of_reshape(m: Match) -> Any:
    """Applies where the transpose moves the groups of the reshape as wholes."""
    permutation, middle = m.t["permutation"], m.r["shape"]
    if 0 in middle or is_identity(permutation):
        return None
    at, parts = 0, {}
    for group in groups(m.x.shape, middle):
        if group.target:
            parts[group.target[0]] = group
        elif group.source:
            return None  # a vanished unit dimension has no place to go
    order: list[int] = []
    while at < len(permutation):
        part = parts.get(permutation[at])
        if part is None or tuple(permutation[at : at + len(part.target)]) != part.target:
            return None
        order.extend(part.source)
        at += len(part.target)
    return {"s": {"shape": m.result.shape}, "u": {"permutation": tuple(order)}}
