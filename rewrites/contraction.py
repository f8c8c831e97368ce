"""Rules on products: the order of contractions, products of concatenations, and reductions that are products."""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, tensors, together
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType
from eggshard.rewrites.shapes import Dims, Dot, kept_dims, numbers, replaced, with_numbers

rules = RuleList()

_DOT = {"precision_config": None, "algorithm": None, "dtype": "f32"}
_MATMUL = {**_DOT, "dot_dimension_numbers": numbers((), (), (1,), (0,))}
_TRANSPOSED = {**_DOT, "dot_dimension_numbers": numbers((), (), (0,), (1,))}
_BATCHED = {**_DOT, "dot_dimension_numbers": numbers((0,), (0,), (2,), (1,))}


@rules.add(
    "dot[d](x, y) => dot_general[e](x, y)",
    cases=each(x=tensors((2, 3), (3,)), y=tensors((3, 4), (3,)), d={"precision_config": None, "dtype": "f32"}),
)
def dot_is_a_dot_general(m: Match) -> Any:
    return {"e": {**m.d, "algorithm": None, "dot_dimension_numbers": numbers((), (), (m.x.rank - 1,), (0,))}}


def _numberless(dot: Attributes) -> dict[str, Any]:
    """What two products must agree on to be one: precision, algorithm and element type."""
    return {k: v for k, v in dot.items() if k != "dot_dimension_numbers"}


#: A reassociated product may not be larger than this multiple of the largest tensor that was there anyway.
_GROWTH = 1


def _small_enough(made: TensorType, *others: TensorType) -> bool:
    return made.elements <= _GROWTH * max(t.elements for t in others)


def _made(d: Dot, x: TensorType, y: TensorType) -> TensorType:
    shape = [x.shape[i] for i in d.lhs_batch + d.lhs_free] + [y.shape[i] for i in d.rhs_free]
    return x.with_shape(tuple(shape))


_CHAIN = together(
    each(
        x=tensors((2, 3), dtypes=("f32", "i32")),
        y=tensors((3, 4), dtypes=("f32", "i32")),
        inner=[_MATMUL, {**_MATMUL, "dtype": "i32"}],
        z=tensors((4, 2), (2, 3), dtypes=("f32", "i32")),
        outer=[_MATMUL, {**_MATMUL, "dtype": "i32"}],
    ),
    each(x=tensors((2, 3, 4)), y=tensors((2, 4, 5)), inner=_BATCHED, z=tensors((2, 5, 3)), outer=_BATCHED),
    each(
        x=tensors((2, 3)),
        y=tensors((3, 4, 2)),
        z=tensors((2, 4)),
        inner=_MATMUL,
        outer=[
            {**_DOT, "dot_dimension_numbers": n} for n in (numbers((), (), (2,), (0,)), numbers((), (), (2, 1), (0, 1)))
        ],
    ),
)


@rules.add(
    "dot_general[outer](dot_general[inner](x, y), z) => dot_general[first](x, dot_general[second](y, z))",
    mark="ρ",
    cases=_CHAIN,
)
def associate_to_the_right(m: Match) -> Any:
    """(x y) z = x (y z), where z meets free dimensions of y, and batches are the same all along."""
    inner, middle = Dot.of(m.inner, m.x, m.y), m.type("inner")
    outer = Dot.of(m.outer, middle, m.z)
    if _numberless(m.inner) != _numberless(m.outer) or len({m.x.dtype, m.y.dtype, m.z.dtype, m.result.dtype}) > 1:
        return None
    b, i = len(inner.lhs_batch), len(inner.lhs_free)
    if outer.lhs_batch != tuple(range(b)) or any(d < b + i for d in outer.lhs_contracting):
        return None
    met = tuple(inner.rhs_free[d - b - i] for d in outer.lhs_contracting)
    second = Dot.of(with_numbers(m.outer, inner.rhs_batch, outer.rhs_batch, met, outer.rhs_contracting), m.y, m.z)
    made = _made(second, m.y, m.z)
    if not _small_enough(made, m.x, m.y, m.z, middle, m.result):
        return None
    # The new operand's dimensions: batch, y's free ones (its contracted with x among them), z's.
    where = second.result_of(0)
    return {
        "second": with_numbers(m.outer, inner.rhs_batch, outer.rhs_batch, met, outer.rhs_contracting),
        "first": with_numbers(
            m.inner,
            inner.lhs_batch,
            tuple(range(b)),
            inner.lhs_contracting,
            tuple(where[d] for d in inner.rhs_contracting),
        ),
    }


@rules.add(
    "dot_general[outer](x, dot_general[inner](y, z)) => dot_general[first](dot_general[second](x, y), z)",
    mark="ρ",
    cases=together(
        each(
            x=tensors((2, 3), dtypes=("f32", "i32")),
            y=tensors((3, 4), dtypes=("f32", "i32")),
            inner=[_MATMUL, {**_MATMUL, "dtype": "i32"}],
            z=tensors((4, 2), dtypes=("f32", "i32")),
            outer=[_MATMUL, {**_MATMUL, "dtype": "i32"}],
        ),
        each(x=tensors((2, 3, 4)), y=tensors((2, 4, 5)), inner=_BATCHED, z=tensors((2, 5, 3)), outer=_BATCHED),
        each(
            x=tensors((2, 3)),
            y=tensors((4, 3, 2)),
            z=tensors((2, 5)),
            inner={**_DOT, "dot_dimension_numbers": numbers((), (), (2,), (0,))},
            outer={**_DOT, "dot_dimension_numbers": numbers((), (), (1,), (1,))},
        ),
    ),
)
def associate_to_the_left(m: Match) -> Any:
    """x (y z) = (x y) z, where x meets free dimensions of y, and batches are the same all along."""
    inner, middle = Dot.of(m.inner, m.y, m.z), m.type("inner")
    outer = Dot.of(m.outer, m.x, middle)
    if _numberless(m.inner) != _numberless(m.outer) or len({m.x.dtype, m.y.dtype, m.z.dtype, m.result.dtype}) > 1:
        return None
    b, i = len(inner.lhs_batch), len(inner.lhs_free)
    if outer.rhs_batch != tuple(range(b)) or any(not b <= d < b + i for d in outer.rhs_contracting):
        return None
    met = tuple(inner.lhs_free[d - b] for d in outer.rhs_contracting)
    sides: tuple[Dims, ...] = (outer.lhs_batch, inner.lhs_batch, outer.lhs_contracting, met)
    second = Dot.of(with_numbers(m.inner, *sides), m.x, m.y)
    if not _small_enough(_made(second, m.x, m.y), m.x, m.y, m.z, middle, m.result):
        return None
    where = second.result_of(1)
    return {
        "second": with_numbers(m.inner, *sides),
        "first": with_numbers(
            m.outer,
            tuple(range(b)),
            inner.rhs_batch,
            tuple(where[d] for d in inner.lhs_contracting),
            inner.rhs_contracting,
        ),
    }


for _n in (2, 3):
    _parts = "uvw"[:_n]
    for _which in (0, 1):
        _one = [(f"x, {p}" if _which else f"{p}, x") for p in _parts]
        _all = f"x, concatenate[e]({', '.join(_parts)})" if _which else f"concatenate[e]({', '.join(_parts)}), x"
        _sizes = tensors((3, 2), (3, 4)) if _which else tensors((2, 3), (4, 3))
        _cases = each(
            x=tensors((2, 3)) if _which else tensors((3, 2)),
            **dict.fromkeys(_parts, _sizes),
            d=_MATMUL,
            c=[{"dimension": 0}, {"dimension": 1}],
        )

        @rules.add(
            f"concatenate[c]({', '.join(f'dot_general[d]({o})' for o in _one)}) => dot_general[d]({_all})",
            name=f"concatenate of {_n} dots ({_which})",
            cases=_cases,
        )
        def _concatenate_of_dots(m: Match, parts: str = _parts, which: int = _which) -> Any:
            """Along a free dimension of the operands that differ."""
            types = (m.x, m.u) if which else (m.u, m.x)
            back = {j: i for i, j in Dot.of(m.d, *types).result_of(which).items()}
            at, free = back.get(m.c["dimension"]), Dot.of(m.d, *types).side(which)[2]
            shapes = [getattr(m, p).shape for p in parts]
            if at not in free or len({replaced(s, at, 0) for s in shapes}) != 1:
                return None
            return {"e": {"dimension": at}}

        _swapped = each(
            x=tensors((2, 3)) if _which else tensors((3, 2)),
            **dict.fromkeys(_parts, _sizes),
            d=_MATMUL,
            e=[{"dimension": 0}, {"dimension": 1}],
        )

        @rules.add(
            f"dot_general[d]({_all}) => concatenate[c]({', '.join(f'dot_general[d]({o})' for o in _one)})",
            name=f"dot of {_n} concatenated ({_which})",
            cases=_swapped,
        )
        def _dot_of_concatenated(m: Match, parts: str = _parts, which: int = _which) -> Any:
            """Applies where the operands are concatenated along a free dimension."""
            at = m.e["dimension"]
            types = [m.x, m.x]
            whole = m.type("e")
            types[which] = whole
            d = Dot.of(m.d, *types)
            if at not in d.side(which)[2]:
                return None
            return {"c": {"dimension": d.result_of(which)[at]}}


_PAIRS = together(
    each(
        a=tensors((2, 3)),
        b=tensors((2, 4), (2, 3)),
        x=tensors((3, 5)),
        y=tensors((4, 5), (3, 5)),
        d=_MATMUL,
        c=[{"dimension": 1}],
        e=[{"dimension": 0}],
    ),
    each(
        a=tensors((2, 3)),
        b=tensors((2, 4)),
        x=tensors((3, 5)),
        y=tensors((4, 5)),
        d={**_MATMUL, "dtype": "i32"},
        c=[{"dimension": 1}],
        e=[{"dimension": 0}],
    ),
)


@rules.add(
    "dot_general[d](concatenate[c](a, b), concatenate[e](x, y)) => add(dot_general[d](a, x), dot_general[d](b, y))",
    mark="ρ",
    cases=_PAIRS,
)
def dot_along_concatenated(m: Match) -> Any:
    """Concatenated along a contracting dimension in equal parts: a sum of products."""
    d = Dot.of(m.d, m.type("c"), m.type("e"))
    return (m.c["dimension"], m.e["dimension"], m.a.shape[m.c["dimension"]]) in [
        (i, j, m.x.shape[j]) for i, j in zip(d.lhs_contracting, d.rhs_contracting, strict=True)
    ]


@rules.add(
    "reduce[r](dot_general[d](x, y)) => dot_general[e](reduce[s](x), y)",
    mark="ρ",
    cases=each(
        x=tensors((2, 3, 4), (2, 3)),
        y=tensors((3, 5), (2, 4, 5)),
        r=[{"dimensions": d, "monoid": "add"} for d in ((0,), (1,))],
        d=[_MATMUL, _BATCHED],
    ),
)
def reduce_of_dot_left(m: Match) -> Any:
    """Summing free dimensions of an operand after the product or before."""
    return _reduce_of_dot(m, 0)


@rules.add(
    "reduce[r](dot_general[d](x, y)) => dot_general[e](x, reduce[s](y))",
    mark="ρ",
    cases=each(
        x=tensors((2, 3, 4), (2, 3)),
        y=tensors((3, 5), (2, 4, 5)),
        r=[{"dimensions": d, "monoid": "add"} for d in ((1,), (2,))],
        d=[_MATMUL, _BATCHED],
    ),
)
def reduce_of_dot_right(m: Match) -> Any:
    """Summing free dimensions of an operand after the product or before."""
    return _reduce_of_dot(m, 1)


def _reduce_of_dot(m: Match, which: int) -> Any:
    d = Dot.of(m.d, m.x, m.y)
    back = {j: i for i, j in d.result_of(which).items()}
    free = d.side(which)[2]
    gone = [back.get(j) for j in m.r["dimensions"]]
    if m.r["monoid"] != "add" or not gone or any(i not in free for i in gone) or m.result.dtype != m.x.dtype:
        return None
    dims = tuple(sorted(i for i in gone if i is not None))
    rank = (m.x, m.y)[which].rank
    where = {d_: i for i, d_ in enumerate(kept_dims(rank, dims))}
    sides = [d.lhs_batch, d.rhs_batch, d.lhs_contracting, d.rhs_contracting]
    for k in (which, 2 + which):
        sides[k] = tuple(where[i] for i in sides[k])
    return {"s": {"dimensions": dims, "monoid": "add"}, "e": with_numbers(m.d, *sides)}


@rules.add(
    "reduce[r](multiply(broadcast_in_dim[b](x), broadcast_in_dim[c](y))) => dot_general[d](x, y)",
    mark="ρ",
    cases=each(
        x=tensors((2, 3), (2, 4)),
        y=tensors((3, 4), (2, 3, 4), (2, 4)),
        b=[{"broadcast_dimensions": d, "shape": (2, 3, 4)} for d in ((0, 1), (0, 2))],
        c=[{"broadcast_dimensions": d, "shape": (2, 3, 4)} for d in ((1, 2), (0, 1, 2), (0, 2))],
        r=[{"dimensions": d, "monoid": "add"} for d in ((1,), (2,))],
    ),
)
def sum_of_products_is_a_dot(m: Match) -> Any:
    """Each result dimension comes from both (batch), from x, or from y, in this order; the reduced ones from both."""
    xs = {d: i for i, d in enumerate(m.b["broadcast_dimensions"])}
    ys = {d: i for i, d in enumerate(m.c["broadcast_dimensions"])}
    shape, gone = m.b["shape"], m.r["dimensions"]
    if (
        m.r["monoid"] != "add"
        or any(m.x.shape[i] != shape[d] for d, i in xs.items())
        or any(m.y.shape[i] != shape[d] for d, i in ys.items())
    ):
        return None
    kept = kept_dims(len(shape), gone)
    batch = [d for d in kept if d in xs and d in ys]
    left, right = [d for d in kept if d in xs and d not in ys], [d for d in kept if d in ys and d not in xs]
    free_in_order = [xs[d] for d in left] == sorted(xs[d] for d in left) and [ys[d] for d in right] == sorted(
        ys[d] for d in right
    )
    if tuple(batch + left + right) != kept or any(d not in xs or d not in ys for d in gone) or not free_in_order:
        return None
    return {
        "d": {
            **_DOT,
            "dtype": m.result.dtype,
            "dot_dimension_numbers": numbers(
                tuple(xs[d] for d in batch),
                tuple(ys[d] for d in batch),
                tuple(xs[d] for d in gone),
                tuple(ys[d] for d in gone),
            ),
        }
    }
