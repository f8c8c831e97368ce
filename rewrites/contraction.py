"""Rules on products: the order of contractions, products of concatenations, and reductions that are products."""

from __future__ import annotations

from functools import partial
from typing import Any

from eggshard.egraph.laws import each, tensors, together
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.types import TensorType
from eggshard.rewrites.shapes import (
    BATCHED,
    MATMUL,
    Dims,
    Dot,
    along,
    arithmetic_precision,
    dot,
    kept_dims,
    kept_places,
    of_each,
    reduced,
    renumbered,
    replaced,
    spread,
    with_numbers,
)

rules = RuleList()

_OF_INTEGERS = {**MATMUL, "dtype": "i32"}
_MIXED = ("f32", "i32")


@rules.add(
    "dot[d](x, y) => dot_general[e](x, y)",
    says="dot written as dot_general",
    cases=each(x=tensors((2, 3), (3,)), y=tensors((3, 4), (3,)), d={"precision_config": None, "dtype": "f32"}),
)
def dot_is_a_dot_general(m: Match) -> Any:
    return {"e": {**dot((), (), (m.x.rank - 1,), (0,)), **m.d}}


def _alike(m: Match) -> bool:
    """Whether two products agree on precision, algorithm and element type, which is that of all tensors.

    None is empty: what nothing is contracted to is 0, and an infinity times that is NaN in one order alone.
    """
    inner, outer = ({k: v for k, v in d.items() if k != "dot_dimension_numbers"} for d in (m.inner, m.outer))
    tensors = (m.x, m.y, m.z, m.result)
    return inner == outer and len({t.dtype for t in tensors}) == 1 and all(0 not in t.shape for t in tensors[:3])


def _small_enough(d: Dot, lhs: TensorType, rhs: TensorType, *others: TensorType) -> bool:
    """Whether a reassociated product is no larger than the largest tensor that was there anyway."""
    made = [lhs.shape[i] for i in d.lhs_batch + d.lhs_free] + [rhs.shape[i] for i in d.rhs_free]
    return lhs.with_shape(tuple(made)).elements <= max(t.elements for t in others)


_PLAIN_CHAIN = each(
    x=tensors((2, 3), dtypes=_MIXED), y=tensors((3, 4), dtypes=_MIXED), inner=[MATMUL, _OF_INTEGERS],
    z=tensors((4, 2), (2, 3), dtypes=_MIXED), outer=[MATMUL, _OF_INTEGERS],
)
_BATCHED_CHAIN = each(
    x=tensors((2, 3, 4)), y=tensors((2, 4, 5)), inner=BATCHED, z=tensors((2, 5, 3)), outer=BATCHED
)


@rules.add(
    "dot_general[outer](dot_general[inner](x, y), z) => dot_general[first](x, dot_general[second](y, z))",
    says="the later product first",
    mark="ρ",
    cases=together(
        _PLAIN_CHAIN, _BATCHED_CHAIN,
        each(
            x=tensors((2, 3)), y=tensors((3, 4, 2)), z=tensors((2, 4)), inner=MATMUL,
            outer=[dot((), (), (2,), (0,)), dot((), (), (2, 1), (0, 1))],
        ),
    ),
)
def associate_to_the_right(m: Match) -> Any:
    """(x y) z = x (y z), where z meets free dimensions of y, and batches are the same all along."""
    inner, middle = Dot.of(m.inner, m.x, m.y), m.type("inner")
    outer = Dot.of(m.outer, middle, m.z)
    b, i = len(inner.lhs_batch), len(inner.lhs_free)
    if not _alike(m) or outer.lhs_batch != tuple(range(b)) or any(d < b + i for d in outer.lhs_contracting):
        return None
    met = tuple(inner.rhs_free[d - b - i] for d in outer.lhs_contracting)
    made = with_numbers(m.outer, inner.rhs_batch, outer.rhs_batch, met, outer.rhs_contracting)
    second = Dot.of(made, m.y, m.z)
    if not _small_enough(second, m.y, m.z, m.x, m.y, m.z, middle, m.result):
        return None
    # The new operand's dimensions: batch, y's free ones (its contracted with x among them), z's.
    where = second.result_of(0)
    meeting = tuple(where[d] for d in inner.rhs_contracting)
    first = with_numbers(m.inner, inner.lhs_batch, tuple(range(b)), inner.lhs_contracting, meeting)
    return {"second": made, "first": first}


@rules.add(
    "dot_general[outer](x, dot_general[inner](y, z)) => dot_general[first](dot_general[second](x, y), z)",
    says="the earlier product first",
    mark="ρ",
    cases=together(
        _PLAIN_CHAIN, _BATCHED_CHAIN,
        each(
            x=tensors((2, 3)), y=tensors((4, 3, 2)), z=tensors((2, 5)),
            inner=dot((), (), (2,), (0,)), outer=dot((), (), (1,), (1,)),
        ),
    ),
)
def associate_to_the_left(m: Match) -> Any:
    """x (y z) = (x y) z, where x meets free dimensions of y, and batches are the same all along."""
    inner, middle = Dot.of(m.inner, m.y, m.z), m.type("inner")
    outer = Dot.of(m.outer, m.x, middle)
    b, i = len(inner.lhs_batch), len(inner.lhs_free)
    if not _alike(m) or outer.rhs_batch != tuple(range(b)) or any(not b <= d < b + i for d in outer.rhs_contracting):
        return None
    met = tuple(inner.lhs_free[d - b] for d in outer.rhs_contracting)
    made = with_numbers(m.inner, outer.lhs_batch, inner.lhs_batch, outer.lhs_contracting, met)
    second = Dot.of(made, m.x, m.y)
    if not _small_enough(second, m.x, m.y, m.x, m.y, m.z, middle, m.result):
        return None
    where = second.result_of(1)
    meeting = tuple(where[d] for d in inner.lhs_contracting)
    first = with_numbers(m.outer, tuple(range(b)), inner.rhs_batch, meeting, inner.rhs_contracting)
    return {"second": made, "first": first}


def _concatenate_of_dots(m: Match, parts: str, which: int) -> Any:
    """Along a free dimension of the operands that differ."""
    d = Dot.beside(m.d, which, m.u, m.x)
    at = d.operand_of(which).get(m.c["dimension"])
    if at not in d.side(which)[2]:
        return None
    if len({t.with_shape(replaced(t.shape, at, 0)) for t in (getattr(m, p) for p in parts)}) != 1:
        return None  # products of one type may be of operands of several
    return {"e": {"dimension": at}}


def _dot_of_concatenated(m: Match, which: int) -> Any:
    """Applies where the operands are concatenated along a free dimension."""
    at, d = m.e["dimension"], Dot.beside(m.d, which, m.type("e"), m.x)
    return {"c": {"dimension": d.result_of(which)[at]}} if at in d.side(which)[2] else None


for _parts in ("uv", "uvw"):
    for _which, _operands in enumerate(("{}, x", "x, {}")):
        _apart = f"concatenate[c]({of_each(f'dot_general[d]({_operands})', _parts)})"
        _joined = f"dot_general[d]({_operands.format('concatenate[e](' + of_each('{}', _parts) + ')')})"
        _tensors = {
            "x": tensors((2, 3) if _which else (3, 2)),
            **dict.fromkeys(_parts, tensors((3, 2), (3, 4)) if _which else tensors((2, 3), (4, 3))),
        }
        rules.add(
            f"{_apart} => {_joined}",
            name=f"concatenate of {len(_parts)} dots ({_which})",
            says=f"one product, the {'second' if _which else 'first'} operands concatenated",
            cases=each(**_tensors, d=MATMUL, c=along(0, 1)),
        )(partial(_concatenate_of_dots, parts=_parts, which=_which))
        rules.add(
            f"{_joined} => {_apart}",
            name=f"dot of {len(_parts)} concatenated ({_which})",
            says=f"one product per part of the {'second' if _which else 'first'} operand",
            cases=each(**_tensors, d=MATMUL, e=along(0, 1)),
        )(partial(_dot_of_concatenated, which=_which))


@rules.add(
    "dot_general[d](concatenate[c](a, b), concatenate[e](x, y)) => add(dot_general[d](a, x), dot_general[d](b, y))",
    says="one product per part, added up",
    mark="ρ",
    cases=together(
        each(
            a=tensors((2, 3)), b=tensors((2, 4), (2, 3)), x=tensors((3, 5), (4, 5)), y=tensors((4, 5), (3, 5)),
            d=MATMUL, c=along(0, 1), e=along(0, 1),
        ),
        each(
            a=tensors((2, 3)), b=tensors((2, 4)), x=tensors((3, 5)), y=tensors((4, 5)), d=_OF_INTEGERS,
            c=along(1), e=along(0),
        ),
    ),
)
def dot_along_concatenated(m: Match) -> Any:
    """Concatenated along a contracting dimension in equal parts: a sum of products."""
    d = Dot.of(m.d, m.type("c"), m.type("e"))
    return (m.c["dimension"], m.e["dimension"], m.a.shape[m.c["dimension"]]) in [
        (i, j, m.x.shape[j]) for i, j in zip(d.lhs_contracting, d.rhs_contracting, strict=True)
    ]


def _reduce_of_dot(m: Match, which: int) -> Any:
    """Summing free dimensions of an operand after the product or before; before, it is in the operand's own type.

    Where nothing is contracted or summed, there are zeros on one side, and on the other what the operands make of them.
    """
    d, summed = Dot.of(m.d, m.x, m.y), (m.x, m.y)[which]
    back, free = d.operand_of(which), d.side(which)[2]
    gone = [back.get(j, -1) for j in m.r["dimensions"]]
    if m.r["monoid"] != "add" or not gone or any(i not in free for i in gone) or m.result.dtype != summed.dtype:
        return None
    if 0 in (*m.x.shape, *m.y.shape):
        return None
    made = renumbered(m.d, d, which, kept_places(summed.rank, gone))
    return {"s": {"dimensions": tuple(sorted(gone)), "monoid": "add"}, "e": made}


for _which, (_name, _operands, _dims) in enumerate((
    ("left", "reduce[s](x), y", ((0,), (1,))), ("right", "x, reduce[s](y)", ((1,), (2,)))
)):
    rules.add(
        f"reduce[r](dot_general[d](x, y)) => dot_general[e]({_operands})",
        name=f"reduce of dot {_name}",
        says=f"{'second' if _which else 'first'} operand summed before the product",
        mark="ρ",
        cases=each(
            x=tensors((2, 3, 4), (2, 3)), y=tensors((3, 5), (2, 4, 5)), r=reduced(*_dims, by=("add",)),
            d=[MATMUL, BATCHED],
        ),
    )(partial(_reduce_of_dot, which=_which))


@rules.add(
    "reduce[r](multiply(broadcast_in_dim[b](x), broadcast_in_dim[c](y))) => dot_general[d](x, y)",
    says="a multiplication and a sum as one product",
    mark="ρ",
    cases=each(
        x=tensors((2, 3), (2, 4)), y=tensors((3, 4), (2, 3, 4), (2, 4)),
        b=[spread((2, 3, 4), *d) for d in ((0, 1), (0, 2))],
        c=[spread((2, 3, 4), *d) for d in ((1, 2), (0, 1, 2), (0, 2))],
        r=reduced((1,), (2,), by=("add",)),
    ),
)
def sum_of_products_is_a_dot(m: Match) -> Any:
    """Each result dimension comes from both (batch), from x, or from y, in this order; the reduced ones from both.

    The product is as precise as the arithmetic that it stands for.
    """
    shape, gone = m.b["shape"], m.r["dimensions"]
    xs, ys = ({d: i for i, d in enumerate(b["broadcast_dimensions"])} for b in (m.b, m.c))
    expands = any(t.shape[i] != shape[d] for t, dims in ((m.x, xs), (m.y, ys)) for d, i in dims.items())
    if m.r["monoid"] != "add" or expands or any(d not in xs or d not in ys for d in gone):
        return None
    kept = kept_dims(len(shape), gone)
    batch = [d for d in kept if d in xs and d in ys]
    left, right = [d for d in kept if d not in ys], [d for d in kept if d not in xs]

    def of(dims: dict[int, int], own: Dims | list[int]) -> Dims:
        return tuple(dims[d] for d in own)

    if tuple(batch + left + right) != kept or any(d not in xs and d not in ys for d in kept):
        return None
    if any(list(of(*side)) != sorted(of(*side)) for side in ((xs, left), (ys, right))):
        return None
    sides = of(xs, batch), of(ys, batch), of(xs, gone), of(ys, gone)
    return {"d": dot(*sides, dtype=m.result.dtype, precision=arithmetic_precision(m.result.dtype))}
