"""Rules on concatenations whose parts are computed apart or together, sliced again, or adjacent slices."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Any

from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.rewrites.shapes import along, bounds_of, kept_dims, of_each, replaced, slice_of, slices
from eggshard.rewrites.subarrays.slicing import PRODUCT, REDUCTIONS

rules = RuleList()

rules.add(
    "concatenate[c](x) => x",
    name="concatenate of one",
    says="a concatenation of one part left out",
    cases=each(x=tensors((5, 6), dtypes=("f32", "i32")), c={"dimension": 1}),
)(None)


def _starts(m: Match, parts: str) -> list[int]:
    """Where each part begins along the dimension of concatenation, and where the last one ends."""
    return list(accumulate((getattr(m, p).shape[m.c["dimension"]] for p in parts), initial=0))


def _slice_of_concatenate(m: Match, parts: str, first: int, last: int) -> Any:
    """Applies where the slice lies within these parts and in no fewer."""
    at, bounds, starts = m.c["dimension"], bounds_of(m.s), _starts(m, parts)
    a, b, stride = bounds[at]
    if not (starts[first] <= a < starts[first + 1] and starts[last] < b <= starts[last + 1]):
        return None
    return {"u": slice_of(replaced(bounds, at, (a - starts[first], b - starts[first], stride)))}


def _slice_of_concatenated(m: Match, parts: str) -> Any:
    """Applies where the slice keeps some of every part, with stride 1 along the dimension of concatenation."""
    at, bounds, starts = m.c["dimension"], bounds_of(m.s), _starts(m, parts)
    a, b, stride = bounds[at]
    own = [(max(a, start) - start, min(b, end) - start, 1) for start, end in zip(starts, starts[1:], strict=False)]
    if stride != 1 or any(low >= high for low, high, _ in own):
        return None
    return {f"s_{p}": slice_of(replaced(bounds, at, kept)) for p, kept in zip(parts, own, strict=True)}


def _concatenate_of_slices(m: Match, parts: str) -> Any:
    """Slices of one tensor that continue each other."""
    at = m.c["dimension"]
    rows = [bounds_of(getattr(m, f"s_{p}")) for p in parts]
    if any(r != replaced(rows[0], at, r[at]) for r in rows):
        return None
    (start, _, stride), expected, limit = rows[0][at], rows[0][at][0], 0
    for r in rows:
        a, b, s = r[at]
        count = -(-(b - a) // s)
        if a != expected or s != stride or not count:
            return None
        expected, limit = a + count * s, a + (count - 1) * s + 1
    return {"u": slice_of(replaced(rows[0], at, (start, limit, stride)))}


for _parts in ("xy", "xyz", "xyzw"):
    _n, _list = len(_parts), of_each("{}", _parts)
    _alike = dict.fromkeys(_parts, tensors((2, 3)))
    _types = dict.fromkeys(_parts, tensors((2, 3), (1, 3), (2, 1)))
    _slices = [
        slice_of([(a, b, t), (0, k, 1)] if swap else [(0, k, 1), (a, b, t)])
        for swap in (0, 1)
        for k in (1, 2)
        for a in range(2 * _n)
        for b in range(a + 1, 3 * _n + 1)
        for t in (1, 2)
    ]
    for _first in range(_n):
        for _last in range(_first, _n - (_first == 0)):
            _kept = _parts[_first : _last + 1]
            _made = f"concatenate[c]({of_each('{}', _kept)})" if len(_kept) > 1 else _kept
            rules.add(
                f"slice[s](concatenate[c]({_list})) => slice[u]({_made})",
                name=f"slice of concatenate, parts {_first} to {_last} of {_n}",
                says=f"sliced from {'the parts that it touches' if len(_kept) > 1 else 'one part'}",
                cases=each(**_alike, c=along(0, 1), s=_slices),
            )(partial(_slice_of_concatenate, parts=_parts, first=_first, last=_last))
    rules.add(
        f"slice[s](concatenate[c]({_list})) => concatenate[c]({of_each('slice[s_{0}]({0})', _parts)})",
        name=f"slice of {_n} concatenated",
        says="each part sliced before concatenating",
        cases=each(
            **_alike, c=along(0, 1),
            s=slices(
                [(1, 2 * _n, 1), (0, 2, 1)], [(0, 2, 1), (2, 3 * _n - 1, 1)], [(0, 1, 1), (0, 3 * _n, 1)]
            ),
        ),
    )(partial(_slice_of_concatenated, parts=_parts))
    _inside, _outside = f"concatenate[c]({of_each('unary[f]({})', _parts)})", f"unary[f](concatenate[c]({_list}))"
    rules.add(
        f"{_outside} => {_inside}",
        name=f"unary of {_n} concatenated",
        says="concatenated after the pointwise op",
        cases=each(**_types, c=along(0, 1), f="negate"),
    )(None)
    rules.add(
        f"{_inside} => {_outside}",
        name=f"concatenate of {_n} unaries",
        says="concatenated before the pointwise op",
        cases=each(**_types, c=along(0, 1), f="negate"),
    )(None)
    rules.add(
        f"concatenate[c]({of_each('slice[s_{}](a)', _parts)}) => slice[u](a)",
        name=f"concatenate of {_n} slices",
        says="adjacent slices taken as one",
        cases=each(
            a=tensors((8, 2)), c={"dimension": 0},
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
    )(partial(_concatenate_of_slices, parts=_parts))

for _inner, _outer, _flat in (
    ("x, y", "concatenate[i]({}), z", "xyz"),
    ("y, z", "x, concatenate[i]({})", "xyz"),
    ("x, y, z", "concatenate[i]({}), w", "xyzw"),
    ("x, y", "concatenate[i]({}), z, w", "xyzw"),
):
    rules.add(
        f"concatenate[c]({_outer.format(_inner)}) => concatenate[c]({of_each('{}', _flat)})",
        name=f"concatenate of concatenate: {_outer.format(_inner)}",
        says="nested concatenations as one",
        cases=each(
            **dict.fromkeys(_flat, tensors((2, 3))) | {_flat[-1]: tensors((2, 3), (4, 3), (6, 3), (2, 6))},
            c=along(0, 1), i=along(0, 1),
        ),
    )(lambda m: m.c == m.i)

rules.add(
    "concatenate[c](binary[f](x, y), binary[f](u, v)) => binary[f](concatenate[c](x, u), concatenate[c](y, v))",
    name="concatenate of binaries",
    says="both operands concatenated before the pointwise op",
    enabled_by=("f", PRODUCT),
    cases=each(**dict.fromkeys("xyuv", tensors((2, 3))), c={"dimension": 0}, f="subtract"),
)(lambda m: m.x.shape == m.y.shape and m.u.shape == m.v.shape)
rules.add(
    "binary[f](concatenate[c](x, u), concatenate[c](y, v)) => concatenate[c](binary[f](x, y), binary[f](u, v))",
    name="binary of concatenates",
    says="concatenated once, after the pointwise op",
    cases=each(**dict.fromkeys("xyuv", tensors((2, 3), (1, 3))), c={"dimension": 0}, f="subtract"),
)(lambda m: m.x.shape == m.y.shape and m.u.shape == m.v.shape)


@rules.add(
    "concatenate[c](reduce[r](x), reduce[r](y)) => reduce[r](concatenate[d](x, y))",
    says="concatenated before the reduction",
    cases=each(x=tensors((2, 3, 4)), y=tensors((2, 3, 4), (5, 3, 4)), c=along(0, 1), r=REDUCTIONS),
)
def concatenate_of_reduces(m: Match) -> Any:
    at = kept_dims(m.x.rank, m.r["dimensions"])[m.c["dimension"]]
    return {"d": {"dimension": at}} if replaced(m.x.shape, at, 0) == replaced(m.y.shape, at, 0) else None
