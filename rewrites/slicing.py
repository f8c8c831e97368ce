"""Slices, concatenations, pads and reverses: boxes of index space that meet, nest, or fall apart."""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.program import Attributes
from eggshard.program.types import TensorType
from eggshard.rewrites.shapes import (
    Dot,
    bounds_of,
    full_slice,
    kept_dims,
    numbers,
    replaced,
    slice_of,
    sliced_shape,
)

rules = RuleList()

_X = tensors((5, 6), dtypes=("f32", "i32"))
_SLICES = [
    slice_of(b)
    for b in ([(0, 5, 1), (0, 6, 1)], [(1, 4, 1), (0, 6, 2)], [(0, 5, 2), (2, 5, 1)], [(2, 3, 1), (3, 3, 1)])
]
_SECOND = [slice_of(b) for b in ([(0, 3, 1), (0, 3, 1)], [(0, 3, 2), (1, 3, 1)], [(1, 3, 1), (0, 2, 2)])]


@rules.add("slice[outer](slice[inner](x)) => slice[both](x)", cases=each(x=_X, inner=_SLICES, outer=_SECOND))
def slice_of_slice(m: Match) -> Any:
    made = []
    for (a, b, s), (c, e, t) in zip(bounds_of(m.inner), bounds_of(m.outer), strict=True):
        start = min(a + c * s, b)
        made.append((start, max(start, min(b, a + (e - 1) * s + 1)), s * t))
    return {"both": slice_of(made)}


@rules.add("slice[s](x) => x", cases=each(x=_X, s=_SLICES))
def identity_slice(m: Match) -> Any:
    return m.s == full_slice(m.x.shape)


rules.add(
    "slice[s](unary[f](x)) => unary[f](slice[s](x))",
    name="slice of unary",
    cases=each(x=_X, s=_SLICES, f=["negate", ("convert", {"dtype": "bf16"})]),
)(None)
rules.add(
    "unary[f](slice[s](x)) => slice[s](unary[f](x))",
    name="unary of slice",
    cases=each(x=_X, s=_SLICES, f=["negate", ("convert", {"dtype": "bf16"})]),
)(None)
# Slices go through arithmetic towards products, whose operands they then cut. In a stencil they would only multiply.
_PRODUCT = "dot_general"
rules.add(
    "slice[s](binary[f](x, y)) => binary[f](slice[s](x), slice[s](y))",
    name="slice of binary",
    enabled_by=("f", _PRODUCT),
    cases=each(x=_X, y=_X, s=_SLICES, f=["add", ("compare", {"comparison_direction": "LT"})]),
)(None)
rules.add(
    "binary[f](slice[s](x), slice[s](y)) => slice[s](binary[f](x, y))",
    name="binary of slices",
    enabled_by=("x", _PRODUCT),
    cases=each(x=_X, y=_X, s=_SLICES, f="subtract"),
)(None)


@rules.add(
    "slice[s](ternary[f](x, y, z)) => ternary[f](slice[s](x), slice[s](y), slice[s](z))",
    enabled_by=("f", _PRODUCT),
    cases=each(
        x=tensors((5, 6), dtypes=("i1", "f32")), y=tensors((5, 6)), z=tensors((5, 6)), s=_SLICES, f=["select", "clamp"]
    ),
)
def slice_of_ternary(m: Match) -> Any:
    return m.x.shape == m.y.shape == m.z.shape


_REDUCE = [{"dimensions": d, "monoid": o} for d in ((0,), (1,), (0, 2)) for o in ("add", "max")]


@rules.add(
    "slice[s](reduce[r](x)) => reduce[r](slice[u](x))",
    cases=each(
        x=tensors((3, 4, 5)),
        r=_REDUCE,
        s=[slice_of(b) for b in ([(1, 3, 1), (0, 5, 2)], [(0, 3, 1), (2, 4, 1)], [(1, 3, 1)])],
    ),
)
def slice_of_reduce(m: Match) -> Any:
    bounds = [(0, n, 1) for n in m.x.shape]
    for d, b in zip(kept_dims(m.x.rank, m.r["dimensions"]), bounds_of(m.s), strict=True):
        bounds[d] = b
    return {"u": slice_of(bounds)}


_DOT = {"precision_config": None, "algorithm": None, "dtype": "f32"}


@rules.add(
    "slice[s](dot_general[d](x, y)) => dot_general[d](slice[u](x), slice[v](y))",
    cases=each(
        x=tensors((2, 3, 4)),
        y=tensors((2, 4, 5), (4, 5)),
        d=[
            {**_DOT, "dot_dimension_numbers": n} for n in (numbers((0,), (0,), (2,), (1,)), numbers((), (), (2,), (0,)))
        ],
        s=[slice_of(b) for b in ([(1, 2, 1), (0, 3, 1), (0, 5, 2)], [(0, 2, 1), (1, 3, 1), (2, 4, 1)])],
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
    cases=each(x=_X, s=_SLICES[:3], r=[{"dimensions": d} for d in ((0,), (0, 1))]),
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
    cases=each(
        x=_X, inner=[{"dimensions": d} for d in ((0,), (0, 1))], outer=[{"dimensions": d} for d in ((0,), (1,))]
    ),
)
def reverse_of_reverse(m: Match) -> Any:
    return {"both": {"dimensions": tuple(sorted(set(m.inner["dimensions"]) ^ set(m.outer["dimensions"])))}}


@rules.add("reverse[r](x) => x", cases=each(x=tensors((5, 1)), r=[{"dimensions": d} for d in ((), (1,), (0,))]))
def identity_reverse(m: Match) -> Any:
    return all(m.x.shape[d] <= 1 for d in m.r["dimensions"])


rules.add(
    "unary[f](reverse[r](x)) => reverse[r](unary[f](x))",
    name="unary of reverse",
    cases=each(x=_X, r={"dimensions": (1,)}, f="negate"),
)(None)


def _pad(low: tuple[int, ...], high: tuple[int, ...], inner: tuple[int, ...] = (0, 0)) -> dict[str, Any]:
    return {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}


_PADS = [
    _pad((1, 0), (0, 2)),
    _pad((2, 1), (1, 1)),
    _pad((0, 0), (0, 0)),
    _pad((-1, 0), (0, -2)),
    _pad((1, 0), (0, 0), (0, 1)),
]


@rules.add(
    "pad[outer](pad[inner](x, v), v) => pad[both](x, v)",
    cases=each(x=_X, v=tensors((), dtypes=("f32", "i32")), inner=_PADS, outer=_PADS),
)
def pad_of_pad(m: Match) -> Any:
    """Where the inner one cuts nothing that the outer one would put back, and neither spreads elements."""
    if any(m.inner["interior_padding"]) or any(m.outer["interior_padding"]):
        return None
    out = {"interior_padding": m.inner["interior_padding"]}
    for side in ("edge_padding_low", "edge_padding_high"):
        if any(a < 0 < b for a, b in zip(m.inner[side], m.outer[side], strict=True)):
            return None
        out[side] = tuple(a + b for a, b in zip(m.inner[side], m.outer[side], strict=True))
    if any(
        min(low, 0) + min(high, 0) + n < 0
        for n, low, high in zip(m.x.shape, out["edge_padding_low"], out["edge_padding_high"], strict=True)
    ):
        return None
    return {"both": out}


@rules.add("pad[p](x, v) => x", cases=each(x=_X, v=tensors((), dtypes=("f32", "i32")), p=_PADS))
def identity_pad(m: Match) -> Any:
    return m.x == m.result and not any(any(m.p[name]) for name in ("edge_padding_low", "edge_padding_high"))


@rules.add("pad[p](x, v) => slice[s](x)", cases=each(x=_X, v=tensors((), dtypes=("f32", "i32")), p=_PADS))
def pad_that_is_a_slice(m: Match) -> Any:
    """Negative padding on both sides."""
    low, high = m.p["edge_padding_low"], m.p["edge_padding_high"]
    if any(m.p["interior_padding"]) or max((*low, *high), default=0) > 0 or m.x == m.result:
        return None
    return {"s": slice_of((-a, n + b, 1) for n, a, b in zip(m.x.shape, low, high, strict=True))}


@rules.add(
    "slice[s](pad[p](x, v)) => slice[u](x)",
    cases=each(
        x=_X,
        v=tensors((), dtypes=("f32", "i32")),
        p=_PADS,
        s=[slice_of(b) for b in ([(1, 4, 1), (0, 4, 1)], [(2, 6, 2), (1, 5, 2)], [(0, 4, 1), (0, 4, 1)])],
    ),
)
def slice_inside_pad(m: Match) -> Any:
    if any(m.p["interior_padding"]):
        return None
    made = []
    for n, low, (a, b, s) in zip(m.x.shape, m.p["edge_padding_low"], bounds_of(m.s), strict=True):
        if not (0 <= a - low <= b - low <= n):
            return None
        made.append((a - low, b - low, s))
    return {"u": slice_of(made)}


@rules.add(
    "slice[s](pad[p](x, v)) => pad[q](slice[u](x), v)",
    cases=each(
        x=_X,
        v=tensors((), dtypes=("f32", "i32")),
        p=_PADS,
        s=[
            slice_of(b)
            for b in ([(1, 4, 1), (0, 4, 1)], [(0, 4, 1), (2, 7, 1)], [(0, 6, 1), (1, 8, 1)], [(0, 1, 1), (0, 4, 1)])
        ],
    ),
)
def slice_of_pad(m: Match) -> Any:
    """Where the slice keeps some of x in every dimension."""
    if any(m.p["interior_padding"]) or any(s != 1 for _, _, s in bounds_of(m.s)):
        return None
    cut, lows, highs = [], [], []
    for n, low, (a, b, _) in zip(m.x.shape, m.p["edge_padding_low"], bounds_of(m.s), strict=True):
        start, limit = max(a - low, 0), min(b - low, n)
        if start >= limit:
            return None
        cut.append((start, limit, 1))
        lows.append(max(low - a, 0))
        highs.append(max(b - low - n, 0))
    if not any(lows) and not any(highs):
        return None
    return {"u": slice_of(cut), "q": _pad(tuple(lows), tuple(highs), (0,) * m.x.rank)}


rules.add(
    "unary[f](pad[p](x, v)) => pad[p](unary[f](x), unary[f](v))",
    name="unary of pad",
    cases=each(x=_X, v=tensors((), dtypes=("f32", "i32")), p=_PADS, f="negate"),
)(None)
rules.add(
    "binary[f](pad[p](x, v), pad[p](y, w)) => pad[p](binary[f](x, y), binary[f](v, w))",
    name="binary of pads",
    cases=each(x=tensors((5, 6)), y=tensors((5, 6)), v=tensors(()), w=tensors(()), p=_PADS, f="subtract"),
)(None)


rules.add("concatenate[c](x) => x", name="concatenate of one", cases=each(x=_X, c={"dimension": 1}))(None)

for _n in (2, 3, 4):
    _parts = "xyzw"[:_n]
    _types = dict.fromkeys(_parts, tensors((2, 3), (1, 3), (2, 1)))
    _list = ", ".join(_parts)
    _DIMS = [{"dimension": 0}, {"dimension": 1}]

    for _first in range(_n):
        for _last in range(_first, _n):
            if (_first, _last) == (0, _n - 1):
                continue
            _kept = _parts[_first : _last + 1]
            _made = f"slice[u](concatenate[c]({', '.join(_kept)}))" if len(_kept) > 1 else f"slice[u]({_kept})"

            @rules.add(
                f"slice[s](concatenate[c]({_list})) => {_made}",
                name=f"slice of concatenate, parts {_first} to {_last} of {_n}",
                cases=each(
                    **dict.fromkeys(_parts, tensors((2, 3))),
                    c=_DIMS,
                    s=[
                        slice_of([(a, b, t), (0, k, 1)] if swap else [(0, k, 1), (a, b, t)])
                        for swap in (0, 1)
                        for k in (1, 2)
                        for a in range(2 * _n)
                        for b in range(a + 1, 3 * _n + 1)
                        for t in (1, 2)
                    ],
                ),
            )
            def _slice_of_concatenate(m: Match, parts: str = _parts, first: int = _first, last: int = _last) -> Any:
                """Where the slice lies within these parts and in no fewer."""
                at = m.c["dimension"]
                sizes = [getattr(m, p).shape[at] for p in parts]
                starts = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
                bounds = bounds_of(m.s)
                a, b, stride = bounds[at]
                if not (starts[first] <= a < starts[first + 1] and starts[last] < b <= starts[last + 1]):
                    return None
                bounds[at] = (a - starts[first], b - starts[first], stride)
                return {"u": slice_of(bounds)}

    @rules.add(
        f"slice[s](concatenate[c]({_list})) => concatenate[c]({', '.join(f'slice[s_{p}]({p})' for p in _parts)})",
        name=f"slice of {_n} concatenated",
        cases=each(
            **dict.fromkeys(_parts, tensors((2, 3))),
            c=_DIMS,
            s=[
                slice_of(b)
                for b in ([(1, 2 * _n, 1), (0, 2, 1)], [(0, 2, 1), (2, 3 * _n - 1, 1)], [(0, 1, 1), (0, 3 * _n, 1)])
            ],
        ),
    )
    def _slice_of_concatenated(m: Match, parts: str = _parts) -> Any:
        """Where the slice keeps some of every part, with stride 1 along the dimension of concatenation."""
        at = m.c["dimension"]
        bounds = bounds_of(m.s)
        a, b, stride = bounds[at]
        out, start = {}, 0
        for p in parts:
            size = getattr(m, p).shape[at]
            low, high = max(a - start, 0), min(b - start, size)
            if low >= high or stride != 1:
                return None
            own = list(bounds)
            own[at] = (low, high, 1)
            out[f"s_{p}"] = slice_of(own)
            start += size
        return out

    rules.add(
        f"unary[f](concatenate[c]({_list})) => concatenate[c]({', '.join(f'unary[f]({p})' for p in _parts)})",
        name=f"unary of {_n} concatenated",
        cases=each(**_types, c=_DIMS, f="negate"),
    )(None)
    rules.add(
        f"concatenate[c]({', '.join(f'unary[f]({p})' for p in _parts)}) => unary[f](concatenate[c]({_list}))",
        name=f"concatenate of {_n} unaries",
        cases=each(**_types, c=_DIMS, f="negate"),
    )(None)

    @rules.add(
        f"concatenate[c]({', '.join(f'slice[s_{p}](a)' for p in _parts)}) => slice[u](a)",
        name=f"concatenate of {_n} slices",
        cases=each(
            a=tensors((8, 2)),
            c={"dimension": 0},
            **{
                f"s_{p}": [
                    slice_of([(o + 2 * i, o + 2 * i + 2 - (k == 2), k), (0, 2, 1)])
                    for k in (1, 2)
                    for o in (0, 1)
                    if o + 2 * i + 2 <= 8
                ]
                for i, p in enumerate(_parts)
            },
        ),
    )
    def _concatenate_of_slices(m: Match, parts: str = _parts) -> Any:
        """Slices of one tensor that continue each other."""
        at = m.c["dimension"]
        rows = [bounds_of(getattr(m, f"s_{p}")) for p in parts]
        if any(replaced(r, at, 0) != replaced(rows[0], at, 0) for r in rows):  # type: ignore[arg-type]
            return None
        (start, _, stride), expected = rows[0][at], rows[0][at][0]
        for r in rows:
            a, b, s = r[at]
            count = -(-(b - a) // s)
            if a != expected or s != stride or not count:
                return None
            expected, limit = a + count * s, a + (count - 1) * s + 1
        made = list(rows[0])
        made[at] = (start, limit, stride)
        return {"u": slice_of(made)}


for _inner, _outer_parts, _flat in (
    ("x, y", "concatenate[i]({}), z", "x, y, z"),
    ("y, z", "x, concatenate[i]({})", "x, y, z"),
    ("x, y, z", "concatenate[i]({}), w", "x, y, z, w"),
    ("x, y", "concatenate[i]({}), z, w", "x, y, z, w"),
):

    @rules.add(
        f"concatenate[c]({_outer_parts.format(_inner)}) => concatenate[c]({_flat})",
        name=f"concatenate of concatenate: {_outer_parts.format(_inner)}",
        cases=each(
            **{p: tensors((2, 3)) for p in _flat.split(", ")},
            c=[{"dimension": 0}, {"dimension": 1}],
            i=[{"dimension": 0}, {"dimension": 1}],
        ),
    )
    def _concatenate_of_concatenate(m: Match) -> Any:
        return m.c == m.i


rules.add(
    "concatenate[c](binary[f](x, y), binary[f](u, v)) => binary[f](concatenate[c](x, u), concatenate[c](y, v))",
    name="concatenate of binaries",
    enabled_by=("f", _PRODUCT),
    cases=each(**dict.fromkeys("xyuv", tensors((2, 3))), c={"dimension": 0}, f="subtract"),
)(lambda m: m.x.shape == m.y.shape and m.u.shape == m.v.shape)


@rules.add(
    "binary[f](concatenate[c](x, u), concatenate[c](y, v)) => concatenate[c](binary[f](x, y), binary[f](u, v))",
    cases=each(**dict.fromkeys("xyuv", tensors((2, 3), (1, 3))), c={"dimension": 0}, f="subtract"),
)
def binary_of_concatenates(m: Match) -> Any:
    return m.x.shape == m.y.shape and m.u.shape == m.v.shape


@rules.add(
    "concatenate[c](reduce[r](x), reduce[r](y)) => reduce[r](concatenate[d](x, y))",
    cases=each(
        x=tensors((2, 3, 4)), y=tensors((2, 3, 4), (5, 3, 4)), c=[{"dimension": 0}, {"dimension": 1}], r=_REDUCE
    ),
)
def concatenate_of_reduces(m: Match) -> Any:
    at = kept_dims(m.x.rank, m.r["dimensions"])[m.c["dimension"]]
    if replaced(m.x.shape, at, 0) != replaced(m.y.shape, at, 0):
        return None
    return {"d": {"dimension": at}}
