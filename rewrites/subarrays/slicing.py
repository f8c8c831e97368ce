"""Rules on slices and reverses: boxes of index space that nest, and that move through products and reductions."""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.rewrites.shapes import (
    BATCHED,
    Dot,
    bounds_of,
    dot,
    full_slice,
    kept_places,
    over,
    reduced,
    replaced,
    slice_of,
    slices,
)

rules = RuleList()

_X = tensors((5, 6), dtypes=("f32", "i32"))
_PLAIN = tensors((5, 6))
_SLICES = slices(
    [(0, 5, 1), (0, 6, 1)], [(1, 4, 1), (0, 6, 2)], [(0, 5, 2), (2, 5, 1)], [(2, 3, 1), (3, 3, 1)]
)
_SECOND = slices([(0, 3, 1), (0, 3, 1)], [(0, 3, 2), (1, 3, 1)], [(1, 3, 1), (0, 2, 2)])
_UNARY = ["negate", ("convert", {"dtype": "bf16"})]


@rules.add(
    "slice[outer](slice[inner](x)) => slice[both](x)",
    says="two slices as one",
    cases=each(x=_X, inner=_SLICES, outer=_SECOND),
)
def slice_of_slice(m: Match) -> Any:
    made = []
    for (a, b, s), (c, e, t) in zip(bounds_of(m.inner), bounds_of(m.outer), strict=True):
        start = min(a + c * s, b)
        made.append((start, max(start, min(b, a + (e - 1) * s + 1)), s * t))
    return {"both": slice_of(made)}


@rules.add(
    "slice[s](x) => slice[rest](slice[most](x))",
    says="sliced along one dimension before the others",
    cases=each(
        x=tensors((5, 6), (4, 3, 8), dtypes=("f32", "i32")),
        s=slices(
            [(0, 2, 1), (1, 5, 1)], [(1, 4, 1), (0, 6, 3)], [(4, 5, 1), (0, 3, 1)], [(2, 3, 1), (1, 3, 1), (0, 4, 1)]
        ),
    ),
)
def slice_most_first(m: Match) -> Any:
    """A dimension of which at most half is left is cut before the others.

    Along those, shards may be of another grid or gathered; that then takes what is left alone.
    """
    bounds, kept = bounds_of(m.s), m.result.shape
    changed = [d for d, (b, n) in enumerate(zip(bounds, m.x.shape, strict=True)) if b != (0, n, 1)]
    return [
        {
            "most": slice_of((0, n, 1) if e != d else bounds[d] for e, n in enumerate(m.x.shape)),
            "rest": slice_of(replaced(bounds, d, (0, kept[d], 1))),
        }
        for d in changed
        if len(changed) > 1 and 2 * kept[d] <= m.x.shape[d]
    ]


rules.add(
    "slice[s](x) => x",
    name="identity slice",
    says="a slice that changes nothing left out",
    cases=each(x=_X, s=_SLICES),
)(lambda m: m.s == full_slice(m.x.shape))
rules.add(
    "slice[s](unary[f](x)) => unary[f](slice[s](x))",
    name="slice of unary",
    says="sliced before the pointwise op",
    cases=each(x=_X, s=_SLICES, f=_UNARY),
)(None)
rules.add(
    "unary[f](slice[s](x)) => slice[s](unary[f](x))",
    name="unary of slice",
    says="sliced after the pointwise op",
    cases=each(x=_X, s=_SLICES, f=_UNARY),
)(None)
# Slices go through arithmetic towards products, whose operands they then cut. In a stencil they would only multiply.
PRODUCT = "dot_general"
rules.add(
    "slice[s](binary[f](x, y)) => binary[f](slice[s](x), slice[s](y))",
    name="slice of binary",
    says="both operands sliced before the pointwise op",
    enabled_by=("f", PRODUCT),
    cases=each(x=_X, y=_X, s=_SLICES, f=["add", ("compare", {"comparison_direction": "LT"})]),
)(None)
rules.add(
    "binary[f](slice[s](x), slice[s](y)) => slice[s](binary[f](x, y))",
    name="binary of slices",
    says="sliced once, after the pointwise op",
    enabled_by=("x", PRODUCT),
    cases=each(x=_X, y=_X, s=_SLICES, f="subtract"),
)(None)
rules.add(
    "slice[s](ternary[f](x, y, z)) => ternary[f](slice[s](x), slice[s](y), slice[s](z))",
    name="slice of ternary",
    says="all operands sliced before the pointwise op",
    enabled_by=("f", PRODUCT),
    cases=each(x=tensors((5, 6), dtypes=("i1", "f32")), y=_PLAIN, z=_PLAIN, s=_SLICES, f=["select", "clamp"]),
)(lambda m: m.x.shape == m.y.shape == m.z.shape)

REDUCTIONS = reduced((0,), (1,), (0, 2))


@rules.add(
    "slice[s](reduce[r](x)) => reduce[r](slice[u](x))",
    says="sliced before the reduction",
    cases=each(
        x=tensors((3, 4, 5)), r=REDUCTIONS,
        s=slices([(1, 3, 1), (0, 5, 2)], [(0, 3, 1), (2, 4, 1)], [(1, 3, 1)]),
    ),
)
def slice_of_reduce(m: Match) -> Any:
    bounds, where = bounds_of(m.s), kept_places(m.x.rank, m.r["dimensions"])
    return {"u": slice_of(bounds[where[d]] if d in where else (0, n, 1) for d, n in enumerate(m.x.shape))}


@rules.add(
    "slice[s](dot_general[d](x, y)) => dot_general[d](slice[u](x), slice[v](y))",
    says="operands sliced before the product",
    cases=each(
        x=tensors((2, 3, 4)), y=tensors((2, 4, 5), (4, 5)), d=[BATCHED, dot((), (), (2,), (0,))],
        s=slices([(1, 2, 1), (0, 3, 1), (0, 5, 2)], [(0, 2, 1), (1, 3, 1), (2, 4, 1)]),
    ),
)
def slice_of_dot(m: Match) -> Any:
    """Each element of the result is the same sum of the same products."""
    d, bounds = Dot.of(m.d, m.x, m.y), bounds_of(m.s)
    made = []
    for which, t in enumerate((m.x, m.y)):
        where = d.result_of(which)
        made.append(slice_of(bounds[where[i]] if i in where else (0, n, 1) for i, n in enumerate(t.shape)))
    return {"u": made[0], "v": made[1]}


@rules.add(
    "slice[s](reverse[r](x)) => reverse[r](slice[u](x))",
    says="reversed after slicing",
    cases=each(x=_X, s=_SLICES[:3], r=over((0,), (0, 1))),
)
def slice_of_reverse(m: Match) -> Any:
    made = []
    for i, (a, b, s) in enumerate(bounds_of(m.s)):
        if i in m.r["dimensions"]:
            n, count = m.x.shape[i], -(-(b - a) // s)
            last = a + (count - 1) * s
            a, b = (n - 1 - last, n - a) if count else (0, 0)
        made.append((a, b, s))
    return {"u": slice_of(made)}


@rules.add(
    "reverse[outer](reverse[inner](x)) => reverse[both](x)",
    says="two reversals as one",
    cases=each(x=_X, inner=over((0,), (0, 1)), outer=over((0,), (1,))),
)
def reverse_of_reverse(m: Match) -> Any:
    return {"both": {"dimensions": tuple(sorted(set(m.inner["dimensions"]) ^ set(m.outer["dimensions"])))}}


rules.add(
    "reverse[r](x) => x",
    name="identity reverse",
    says="a reversal that changes nothing left out",
    cases=each(x=tensors((5, 1)), r=over((), (1,), (0,))),
)(lambda m: all(m.x.shape[d] <= 1 for d in m.r["dimensions"]))
rules.add(
    "unary[f](reverse[r](x)) => reverse[r](unary[f](x))",
    name="unary of reverse",
    says="reversed after the pointwise op",
    cases=each(x=_X, r={"dimensions": (1,)}, f="negate"),
)(None)
