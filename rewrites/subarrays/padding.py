"""Rules on pads under slices and arithmetic."""

from __future__ import annotations

from functools import partial
from typing import Any

from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.attributes import Attributes
from eggshard.rewrites.shapes import along, bounds_of, padding, replaced, slice_of, slices, spread

rules = RuleList()

_PADS = [
    padding((1, 0), (0, 2)), padding((2, 1), (1, 1)), padding((0, 0), (0, 0)), padding((-1, 0), (0, -2)),
    padding((1, 0), (0, 0), (0, 1)),
]
_X = dict(x=tensors((5, 6), dtypes=("f32", "i32")), v=tensors((), dtypes=("f32", "i32")))


def _widths(p: Attributes) -> list[tuple[int, int]] | None:
    """(low, high) per dimension; None where there is interior padding."""
    pairs = list(zip(p["edge_padding_low"], p["edge_padding_high"], strict=True))
    return None if any(p["interior_padding"]) else pairs


@rules.add(
    "pad[outer](pad[inner](x, v), v) => pad[both](x, v)",
    says="two pads as one",
    cases=each(**_X, inner=_PADS, outer=_PADS),
)
def pad_of_pad(m: Match) -> Any:
    """Applies where the inner pad cuts nothing that the outer one would put back, and neither has interior padding."""
    inner, outer = _widths(m.inner), _widths(m.outer)
    if inner is None or outer is None:
        return None
    if any(a < 0 < b for one, other in zip(inner, outer, strict=True) for a, b in zip(one, other, strict=True)):
        return None
    both = [(a + c, b + d) for (a, b), (c, d) in zip(inner, outer, strict=True)]
    if any(min(low, 0) + min(high, 0) + n < 0 for n, (low, high) in zip(m.x.shape, both, strict=True)):
        return None
    return {"both": padding(tuple(low for low, _ in both), tuple(high for _, high in both))}


rules.add(
    "pad[p](x, v) => x",
    name="identity pad",
    says="a pad that changes nothing left out",
    cases=each(**_X, p=_PADS),
)(lambda m: m.x == m.result and not any((*m.p["edge_padding_low"], *m.p["edge_padding_high"])))


@rules.add("pad[p](x, v) => slice[s](x)", says="a negative pad written as a slice", cases=each(**_X, p=_PADS))
def pad_that_is_a_slice(m: Match) -> Any:
    """Negative padding on both sides."""
    widths = _widths(m.p)
    if widths is None or any(low > 0 or high > 0 for low, high in widths) or m.x == m.result:
        return None
    return {"s": slice_of((-low, n + high, 1) for n, (low, high) in zip(m.x.shape, widths, strict=True))}


@rules.add(
    "slice[s](pad[p](x, v)) => slice[u](x)",
    says="sliced without padding first",
    cases=each(
        **_X, p=_PADS, s=slices([(1, 4, 1), (0, 4, 1)], [(2, 6, 2), (1, 5, 2)], [(0, 4, 1), (0, 4, 1)])
    ),
)
def slice_inside_pad(m: Match) -> Any:
    if _widths(m.p) is None:
        return None
    bounds = [(a - low, b - low, s) for low, (a, b, s) in zip(m.p["edge_padding_low"], bounds_of(m.s), strict=True)]
    inside = all(0 <= a <= b <= n for n, (a, b, _) in zip(m.x.shape, bounds, strict=True))
    return {"u": slice_of(bounds)} if inside else None


@rules.add(
    "slice[s](pad[p](x, v)) => pad[q](slice[u](x), v)",
    says="padded after slicing",
    cases=each(
        **_X, p=_PADS,
        s=slices(
            [(1, 4, 1), (0, 4, 1)], [(0, 4, 1), (2, 7, 1)], [(0, 6, 1), (1, 8, 1)], [(0, 1, 1), (0, 4, 1)]
        ),
    ),
)
def slice_of_pad(m: Match) -> Any:
    """Applies where the slice keeps some of x in every dimension."""
    if _widths(m.p) is None or any(s != 1 for _, _, s in bounds_of(m.s)):
        return None
    cut, lows, highs = [], [], []
    for n, low, (a, b, _) in zip(m.x.shape, m.p["edge_padding_low"], bounds_of(m.s), strict=True):
        cut.append((max(a - low, 0), min(b - low, n), 1))
        lows.append(max(low - a, 0))
        highs.append(max(b - low - n, 0))
    if any(start >= limit for start, limit, _ in cut) or not any((*lows, *highs)):
        return None
    return {"u": slice_of(cut), "q": padding(tuple(lows), tuple(highs))}


rules.add(
    "unary[f](pad[p](x, v)) => pad[p](unary[f](x), unary[f](v))",
    name="unary of pad",
    says="padded after the pointwise op",
    cases=each(**_X, p=_PADS, f="negate"),
)(None)
rules.add(
    "binary[f](pad[p](x, v), pad[p](y, w)) => pad[p](binary[f](x, y), binary[f](v, w))",
    name="binary of pads",
    says="padded once, after the pointwise op",
    cases=each(
        x=tensors((5, 6)), y=tensors((5, 6)), v=tensors(()), w=tensors(()), p=_PADS, f="subtract"
    ),
)(None)


def _pad_of_parts(m: Match, low: str, high: str) -> Any:
    """One value everywhere in the parts beside x."""
    if m.v.rank:
        return None
    at, none = m.c["dimension"], (0,) * m.x.rank
    return {"p": padding(*(replaced(none, at, getattr(m, end)["shape"][at]) if end else none for end in (low, high)))}


for _parts, _low, _high, _where in (
    ("broadcast_in_dim[b](v), x", "b", "", "the start"),
    ("x, broadcast_in_dim[b](v)", "", "b", "the end"),
    ("broadcast_in_dim[b](v), x, broadcast_in_dim[d](v)", "b", "d", "both ends"),
):
    rules.add(
        f"concatenate[c]({_parts}) => pad[p](x, v)",
        name=f"pad from a concatenation: {_parts}",
        says=f"padded at {_where} instead of concatenated",
        cases=each(
            **_X, c=along(0, 1),
            **{end: [spread(s) for s in ((2, 6), (5, 1), (0, 6))] for end in (_low, _high) if end},
        ),
    )(partial(_pad_of_parts, low=_low, high=_high))
