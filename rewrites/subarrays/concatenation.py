"""Rules on concatenations whose parts are computed apart or together, sliced again, or adjacent slices."""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.rewrites.shapes import bounds_of, kept_dims, replaced, slice_of
from eggshard.rewrites.subarrays.slicing import PRODUCT, REDUCTIONS

rules = RuleList()

_X = tensors((5, 6), dtypes=("f32", "i32"))

rules.add("concatenate[c](x) => x", name="concatenate of one", cases=each(x=_X, c={"dimension": 1}))(None)

for _n in (2, 3, 4):
    _parts = "xyzw"[:_n]
    _types = dict.fromkeys(_parts, tensors((2, 3), (1, 3), (2, 1)))
    _list = ", ".join(_parts)
    _DIMS = [{"dimension": 0}, {"dimension": 1}]
    _slices = [
        slice_of([(a, b, t), (0, k, 1)] if swap else [(0, k, 1), (a, b, t)])
        for swap in (0, 1)
        for k in (1, 2)
        for a in range(2 * _n)
        for b in range(a + 1, 3 * _n + 1)
        for t in (1, 2)
    ]

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
                    s=_slices,
                ),
            )
            def _slice_of_concatenate(m: Match, parts: str = _parts, first: int = _first, last: int = _last) -> Any:
                """Applies where the slice lies within these parts and in no fewer."""
                at = m.c["dimension"]
                sizes = [getattr(m, p).shape[at] for p in parts]
                starts = [sum(sizes[:i]) for i in range(len(sizes) + 1)]
                bounds = bounds_of(m.s)
                a, b, stride = bounds[at]
                if not (starts[first] <= a < starts[first + 1] and starts[last] < b <= starts[last + 1]):
                    return None
                return {"u": slice_of(replaced(bounds, at, (a - starts[first], b - starts[first], stride)))}

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
        """Applies where the slice keeps some of every part, with stride 1 along the dimension of concatenation."""
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
        if any(r != replaced(rows[0], at, r[at]) for r in rows):
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
    enabled_by=("f", PRODUCT),
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
        x=tensors((2, 3, 4)), y=tensors((2, 3, 4), (5, 3, 4)), c=[{"dimension": 0}, {"dimension": 1}], r=REDUCTIONS
    ),
)
def concatenate_of_reduces(m: Match) -> Any:
    at = kept_dims(m.x.rank, m.r["dimensions"])[m.c["dimension"]]
    if replaced(m.x.shape, at, 0) != replaced(m.y.shape, at, 0):
        return None
    return {"d": {"dimension": at}}
