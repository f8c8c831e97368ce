"""Rules on pads under slices and arithmetic."""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.rewrites.shapes import bounds_of, replaced, slice_of

rules = RuleList()

_X = tensors((5, 6), dtypes=("f32", "i32"))


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
    """Applies where the inner pad cuts nothing that the outer one would put back, and neither has interior padding."""
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
    """Applies where the slice keeps some of x in every dimension."""
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

for _parts, _low, _high in (
    ("broadcast_in_dim[b](v), x", "b", None),
    ("x, broadcast_in_dim[b](v)", None, "b"),
    ("broadcast_in_dim[b](v), x, broadcast_in_dim[d](v)", "b", "d"),
):

    def _widths(m: Match, low: str | None = _low, high: str | None = _high) -> Any:
        """One value everywhere in the parts beside x."""
        if m.v.rank:
            return None
        at, none = m.c["dimension"], (0,) * m.x.rank
        lows, highs = (replaced(none, at, getattr(m, end)["shape"][at]) if end else none for end in (low, high))
        return {"p": _pad(lows, highs, none)}

    rules.add(
        f"concatenate[c]({_parts}) => pad[p](x, v)",
        name=f"pad from a concatenation: {_parts}",
        cases=each(
            x=_X, v=tensors((), dtypes=("f32", "i32")), c=[{"dimension": 0}, {"dimension": 1}],
            **{
                end: [{"broadcast_dimensions": (), "shape": s} for s in ((2, 6), (5, 1), (0, 6))]
                for end in (_low, _high) if end
            },
        ),
    )(_widths)
