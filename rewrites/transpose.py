"""Rules on transposes, which move towards the results out of pointwise ops, slices, reductions; products absorb them.

One direction suffices: a transpose costs no communication wherever it stands, but one in the way hides other rules'
left sides. Where it stood inwards on purpose, composing two of them cancels it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from eggshard.egraph.laws import each, like_zeros, tensors, together
from eggshard.egraph.rules import Match, RuleList
from eggshard.rewrites.shapes import (
    SIDES,
    Dot,
    along,
    answer,
    bounds_of,
    dot,
    groups,
    inverse,
    is_identity,
    kept_dims,
    of_each,
    over,
    padding,
    permuted,
    reduced,
    renumbered,
    shaped,
    slice_of,
    slices,
    spread,
    spread_by,
    with_numbers,
)

rules = RuleList()

_ORDERS = permuted((0, 1, 2), (1, 0, 2), (2, 0, 1), (0, 2, 1), (2, 1, 0))
_SWAP = {"permutation": (1, 0)}
_CUBE = tensors((2, 3, 4), dtypes=("f32", "i32"))
_WIDE, _TALL = tensors((2, 3)), tensors((3, 2))


@rules.add(
    "transpose[outer](transpose[inner](x)) => transpose[both](x)",
    says="two transposes as one",
    cases=each(x=_CUBE, inner=_ORDERS, outer=_ORDERS),
)
def transpose_of_transpose(m: Match) -> Any:
    return {"both": {"permutation": tuple(m.inner["permutation"][d] for d in m.outer["permutation"])}}


@rules.add("transpose[t](x) => x", says="a transpose that changes nothing left out", cases=each(x=_CUBE, t=_ORDERS))
def identity_transpose(m: Match) -> Any:
    return is_identity(m.t["permutation"])


@rules.add(
    "transpose[t](x) => reshape[r](x)",
    says="a transpose written as a reshape",
    cases=each(x=tensors((1, 3, 1), (2, 1, 3), (1, 1, 1)), t=_ORDERS),
)
def transpose_that_is_a_reshape(m: Match) -> Any:
    moved = [d for d in m.t["permutation"] if m.x.shape[d] != 1]
    stays = is_identity(m.t["permutation"])
    return {"r": {"shape": m.result.shape}} if moved == sorted(moved) and not stays else None


@rules.add(
    "reshape[r](x) => transpose[t](x)",
    says="a reshape written as a transpose",
    cases=each(x=tensors((1, 3, 2), (3, 1, 2)), r=shaped((3, 1, 2), (3, 2, 1), (1, 3, 2), (6, 1, 1))),
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
    says="transposed after the pointwise op",
    cases=each(x=_CUBE, t=_ORDERS, f=["negate", ("convert", {"dtype": "bf16"})]),
)(None)
rules.add(
    "binary[f](transpose[t](x), transpose[t](y)) => transpose[t](binary[f](x, y))",
    name="binary of transposes",
    says="transposed once, after the pointwise op",
    cases=each(x=_CUBE, y=_CUBE, t=_ORDERS, f=["add", ("compare", {"comparison_direction": "LT"})]),
)(None)
rules.add(
    "ternary[f](transpose[t](x), transpose[t](y), transpose[t](z)) => transpose[t](ternary[f](x, y, z))",
    name="ternary of transposes",
    says="transposed once, after the pointwise op",
    cases=each(x=tensors((2, 3), dtypes=("i1", "f32")), y=_WIDE, z=_WIDE, t=_SWAP, f=["select", "clamp"]),
)(None)

for _side, _pair in SIDES:
    rules.add(
        f"transpose[t](binary[f]({_pair('transpose[u](x)', 'y')})) => binary[f]({_pair('x', 'transpose[t](y)')})",
        name=f"transpose cancels inside ({_side})",
        says=f"two transposes cancelled, only the {'second' if _side == 'right' else 'first'} operand transposed",
        cases=together(
            each(x=_WIDE, y=_TALL, t=_SWAP, u=_SWAP, f="subtract"),
            each(**dict.fromkeys("xy", tensors((2, 2, 2))), t=_ORDERS, u=_ORDERS, f="subtract"),
        ),
    )(lambda m: is_identity([m.u["permutation"][d] for d in m.t["permutation"]]))
for _side, _pair in SIDES:
    rules.add(
        f"binary[f]({_pair('transpose[t](x)', 'broadcast_in_dim[b](s)')}) => "
        f"transpose[t](binary[f]({_pair('x', 'broadcast_in_dim[c](s)')}))",
        name=f"binary of transpose and broadcast ({_side})",
        says="transposed after the pointwise op with a broadcast",
        cases=each(
            x=tensors((2, 3, 4)), t=permuted((2, 0, 1)), f="subtract", s=tensors((), (4,), (2,), (4, 3), (1, 3)),
            b=[spread((4, 2, 3), *d) for d in ((), (0,), (1,), (0, 2), (1, 2))],
        ),
    )(lambda m: answer(c=spread_by(m.b, dict(enumerate(m.t["permutation"])), m.x.shape)))


@rules.add(
    "transpose[t](broadcast_in_dim[b](x)) => broadcast_in_dim[c](x)",
    says="broadcast straight to the transposed shape",
    cases=each(x=tensors((2, 3)), b=[spread((2, 4, 3), 0, 2), spread((3, 4, 2), 2, 0)], t=_ORDERS),
)
def transpose_of_broadcast(m: Match) -> Any:
    return answer(c=spread_by(m.b, dict(enumerate(inverse(m.t["permutation"]))), m.result.shape))


@rules.add(
    "broadcast_in_dim[b](transpose[t](x)) => broadcast_in_dim[c](x)",
    says="broadcast without transposing first",
    cases=each(x=tensors((2, 3)), t=_SWAP, b=[spread((3, 4, 2), 0, 2), spread((4, 2, 3), 2, 1)]),
)
def broadcast_of_transpose(m: Match) -> Any:
    dims = m.b["broadcast_dimensions"]
    return {"c": spread(m.result.shape, *(dims[i] for i in inverse(m.t["permutation"])))}


@rules.add(
    "transpose[t](dot_general[d](x, y)) => dot_general[e](y, x)",
    says="operands swapped instead of transposing the product",
    cases=together(
        each(x=_WIDE, y=tensors((3, 4)), t=_SWAP, d=dot((), (), (1,), (0,), precision=("DEFAULT", "HIGHEST"))),
        each(
            x=tensors((2, 3, 4)), y=tensors((2, 4, 5), (2, 3, 4)), t=permuted((0, 2, 1)),
            d=[dot((0,), (0,), (c,), (d,), precision=("DEFAULT", "HIGHEST")) for c in (1, 2) for d in (1, 2)],
        ),
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


def _dot_of_transpose(m: Match, which: int, absorbed: bool) -> Any:
    """The product on the untransposed operand; what else its result must be permuted by is nothing if ``absorbed``."""
    permutation = m.t["permutation"]
    types = [m.x, m.y]
    types[which] = types[which].with_shape(tuple(types[which].shape[i] for i in permutation))
    d = Dot.of(m.d, *types)
    made = renumbered(m.d, d, which, dict(enumerate(permutation)))
    new = Dot.of(made, m.x, m.y).result_of(which)
    order = list(range(m.result.rank))
    for i, position in d.result_of(which).items():
        order[position] = new[permutation[i]]
    if is_identity(order) != absorbed:
        return None
    return {"e": made} if absorbed else {"e": made, "u": {"permutation": tuple(order)}}


for _which, _operands in enumerate(("transpose[t](x), y", "x, transpose[t](y)")):
    _operand = "second operand" if _which else "first operand"
    for _name, _made, _absorbed, _says in (
        ("dot absorbs transpose", "dot_general[e](x, y)", True, f"the {_operand}'s transpose absorbed by the product"),
        (
            "dot of transpose", "transpose[u](dot_general[e](x, y))", False,
            f"product transposed instead of its {_operand}",
        ),
    ):
        rules.add(
            f"dot_general[d]({_operands}) => {_made}",
            name=f"{_name} ({_which})",
            says=_says,
            cases=each(
                x=tensors((2, 3, 4)), y=tensors((2, 4, 3), (4, 3, 2), (3, 2, 5)), t=_ORDERS,
                d=[
                    dot(*sides, precision=("DEFAULT", "HIGHEST"))
                    for sides in (((0,), (0,), (2,), (1,)), ((), (), (1,), (0,)), ((), (), (0, 2), (2, 0)))
                ],
            ),
        )(partial(_dot_of_transpose, which=_which, absorbed=_absorbed))


def order_free(monoid: str, m: Match) -> bool:
    """Whether a reduction's result does not depend on the order of its operands."""
    return monoid not in ("add", "mul") or not m.result.dtype.startswith(("f", "bf", "complex"))


@rules.add(
    "reduce[r](transpose[t](x)) => transpose[u](reduce[s](x))",
    says="transposed after the reduction",
    mark="ρ",
    exact_if=lambda m: order_free(m.r["monoid"], m),
    cases=like_zeros(each(x=_CUBE, t=_ORDERS, r=reduced((0,), (1, 2), (0, 2)))),
)
def reduce_of_transpose(m: Match) -> Any:
    permutation = m.t["permutation"]
    gone = tuple(sorted(permutation[d] for d in m.r["dimensions"]))
    kept = kept_dims(m.x.rank, gone)
    order = tuple(kept.index(permutation[d]) for d in kept_dims(m.x.rank, m.r["dimensions"]))
    return {"s": m.r.updated(dimensions=gone), "u": {"permutation": order}}


@rules.add(
    "slice[s](transpose[t](x)) => transpose[t](slice[u](x))",
    says="transposed after slicing",
    cases=each(
        x=_CUBE, t=_ORDERS, s=slices([(0, 1, 1), (0, 2, 1), (1, 2, 1)], [(0, 2, 2), (1, 2, 1), (0, 2, 1)])
    ),
)
def slice_of_transpose(m: Match) -> Any:
    bounds = bounds_of(m.s)
    return {"u": slice_of(bounds[i] for i in inverse(m.t["permutation"]))}


@rules.add(
    "pad[p](transpose[t](x), v) => transpose[t](pad[q](x, v))",
    says="transposed after padding",
    cases=each(
        x=tensors((2, 3)), v=tensors(()), t=_SWAP, p=[padding((1, 0), (0, 2)), padding((-1, 2), (1, 0), (0, 1))]
    ),
)
def pad_of_transpose(m: Match) -> Any:
    where = inverse(m.t["permutation"])
    return {"q": {name: tuple(widths[i] for i in where) for name, widths in m.p.items()}}


@rules.add(
    "reverse[r](transpose[t](x)) => transpose[t](reverse[s](x))",
    says="transposed after reversing",
    cases=each(x=_CUBE, t=_ORDERS, r=over((0,), (1, 2))),
)
def reverse_of_transpose(m: Match) -> Any:
    return {"s": {"dimensions": tuple(sorted(m.t["permutation"][d] for d in m.r["dimensions"]))}}


for _parts in ("xy", "xyz"):
    rules.add(
        f"concatenate[c]({of_each('transpose[t]({})', _parts)}) => "
        f"transpose[t](concatenate[d]({of_each('{}', _parts)}))",
        name=f"concatenate of {len(_parts)} transposes",
        says="transposed once, after concatenating",
        cases=each(**dict.fromkeys(_parts, _WIDE), t=_SWAP, c=along(0, 1)),
    )(lambda m: {"d": {"dimension": m.t["permutation"][m.c["dimension"]]}})


@rules.add(
    "reshape[r](transpose[t](x)) => transpose[u](reshape[s](x))",
    says="transposed after reshaping",
    cases=each(
        x=_CUBE, t=_ORDERS,
        r=shaped((4, 2, 3), (4, 6), (8, 3), (3, 2, 4), (1, 4, 2, 3), (2, 2, 2, 3), (2, 1, 4, 3), (12, 2)),
    ),
)
def reshape_of_transpose(m: Match) -> Any:
    """Applies where each group of the reshape splits a dimension, or merges some that the transpose left adjacent."""
    permutation, target = m.t["permutation"], m.r["shape"]
    if 0 in target:
        return None
    parts = []  # per group: its first dimension in x, and the target dimensions that it makes
    for group in groups([m.x.shape[d] for d in permutation], target):
        dims = [permutation[i] for i in group.source]
        if dims and dims != list(range(dims[0], dims[0] + len(dims))):
            return None
        parts.append((dims[0] if dims else -1, group.target))
    before = [j for _, dims in sorted(parts, key=lambda part: part[0]) for j in dims]
    return {"s": {"shape": tuple(target[j] for j in before)}, "u": {"permutation": inverse(before)}}


@rules.add(
    "transpose[t](reshape[r](x)) => reshape[s](transpose[u](x))",
    says="transposed before reshaping",
    cases=each(
        x=tensors((2, 3, 4), (6, 4), (2, 12)),
        r=shaped((2, 3, 2, 2), (6, 4), (4, 6), (2, 12), (24,), (1, 2, 3, 4), (2, 3, 4, 1)),
        t=[*_ORDERS, _SWAP, *permuted((2, 3, 0, 1), (1, 0, 3, 2), (3, 0, 1, 2))],
    ),
)
def transpose_of_reshape(m: Match) -> Any:
    """Applies where the transpose moves the groups of the reshape as wholes."""
    permutation, middle = m.t["permutation"], m.r["shape"]
    if 0 in middle or is_identity(permutation):
        return None
    parts = {}
    for group in groups(m.x.shape, middle):
        if group.target:
            parts[group.target[0]] = group
        elif group.source:
            return None  # a vanished unit dimension has no place to go
    at, order = 0, list[int]()
    while at < len(permutation):
        part = parts.get(permutation[at])
        if part is None or tuple(permutation[at : at + len(part.target)]) != part.target:
            return None
        order.extend(part.source)
        at += len(part.target)
    return {"s": {"shape": m.result.shape}, "u": {"permutation": tuple(order)}}
