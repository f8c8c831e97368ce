"""Rules that recognise rotations and extended dimensions in slices and concatenations, and merge and slice them.

A dimension is extended by elements of its own: of its other end (`wrap`), or of the same end, repeated or mirrored
(`extend`). Programs spell this as concatenations of a tensor with slices of it, reversed or repeated; a rule takes one
such piece at a time, so that the pieces may be on either side and there may be others beside them. What windows make
local anyway (slices of a rotated or extended tensor that are neither simpler nor shorter) is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from eggshard.egraph.laws import each, tensors, together
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.attributes import Attributes
from eggshard.rewrites.shapes import (
    along,
    answer,
    bounds_of,
    of_each,
    over,
    replaced,
    slice_of,
    slices,
    spread,
    whole_but,
)

rules = RuleList()


class _Piece(NamedTuple):
    """What a concatenation puts beside a tensor: ``width`` elements of the tensor, beginning at ``start``.

    kind: ``slice``, ``reverse`` (in opposite order), ``broadcast`` (one element, repeated).
    """

    kind: str
    start: int
    width: int

    def mode(self, n: int, low: bool) -> str | None:
        """How the piece extends a dimension of size n at its low or high end; None if it does not.

        One element that is mirrored beyond the end is that of the end, and counts as ``edge``.
        """
        nearest = self.start if low else n - self.start - (1 if self.kind == "broadcast" else self.width)
        if self.kind == "broadcast" or (nearest == 0 and self.width == 1):
            return "edge" if nearest == 0 else None
        if self.kind == "reverse" or self.width == 1:
            return {0: "symmetric", 1: "reflect"}.get(nearest)
        return None

    def wraps(self, n: int, low: bool) -> bool:
        """Whether the piece continues a dimension of size n periodically."""
        return self.kind == "slice" and (self.start + self.width == n if low else self.start == 0)


def _piece(m: Match, kind: str, shape: Sequence[int], at: int, cut: str, changed: str) -> _Piece | None:
    """The piece under two labels: its slice of a tensor of this shape, and what happens to the slice.

    None unless it is contiguous along dimension ``at`` and whole along all others.
    """
    bounds = bounds_of(getattr(m, cut))
    start, limit, stride = bounds[at]
    width = -(-(limit - start) // stride)
    if not width or (stride != 1 and width > 1) or not whole_but(bounds, shape, at):
        return None
    if kind == "reverse" and getattr(m, changed)["dimensions"] != (at,):
        return None
    if kind == "broadcast":
        b = getattr(m, changed)
        repeats = b["shape"][at] if b["broadcast_dimensions"] == tuple(range(len(shape))) else 0
        if width != 1 or not repeats or b["shape"] != replaced(shape, at, repeats):
            return None
        width = repeats
    return _Piece(kind, start, width)


def _wrapped(at: int, lhs: int, rhs: int) -> dict[str, Any]:
    return {"dimension": at, "lhs": lhs, "rhs": rhs}


def _extended(at: int, lhs: int, rhs: int, mode: str) -> dict[str, Any]:
    return {"dimension": at, "lhs": lhs, "rhs": rhs, "mode": mode}


def _with_pieces(op: str, at: int, n: int, low: _Piece | None, high: _Piece | None) -> dict[str, Any] | None:
    """The attributes of ``op`` that put these pieces around a dimension of size n; None where it puts others."""
    pieces = [(p, end) for p, end in ((low, True), (high, False)) if p is not None]
    lhs, rhs = (p.width if p is not None else 0 for p in (low, high))
    if op == "wrap":
        return _wrapped(at, lhs, rhs) if all(p.wraps(n, end) for p, end in pieces) else None
    modes = {p.mode(n, end) for p, end in pieces}
    return _extended(at, lhs, rhs, mode) if len(modes) == 1 and (mode := modes.pop()) is not None else None


#: Pieces of x: by kind the pattern with its labels, and what may happen to the slice in the law test.
_PIECES: dict[str, tuple[str, list[Any]]] = {
    "slice": ("slice[{s}](x)", []),
    "reverse": ("reverse[{k}](slice[{s}](x))", over((0,), (1,), (0, 1))),
    "broadcast": ("broadcast_in_dim[{k}](slice[{s}](x))", [spread((n, 3), 0, 1) for n in (1, 2, 3)]),
}
_X = tensors((4, 3), (3, 3), dtypes=("f32", "i32"))


def _slices(other: int) -> list[Any]:
    """All slices of a dimension of size 4, and of some of another one."""
    return slices(*([(a, b, 1), (0, other, 1)] for a in range(4) for b in range(a + 1, 5)))


_SLICES = [*_slices(3), *slices([(0, 1, 1), (0, 2, 1)], [(0, 4, 1), (0, 1, 1)]), *slices(
    *([(0, 4, 1), (a, b, 1)] for a, b in ((0, 1), (1, 2), (2, 3), (1, 3), (0, 2)))
)]
_ALONG = along(0, 1)


def _from_pieces(m: Match, op: str, kind: str, labels: Sequence[tuple[str, str] | None]) -> Any:
    """x with the pieces of the labels before and after it; None for no piece."""
    at = m.c["dimension"]
    pieces = [None if pair is None else _piece(m, kind, m.x.shape, at, *pair) for pair in labels]
    if any(pair is not None and piece is None for pair, piece in zip(labels, pieces, strict=True)):
        return None
    return answer(made=_with_pieces(op, at, m.x.shape[at], *pieces))


for _op, _kind in (("wrap", "slice"), ("extend", "slice"), ("extend", "reverse"), ("extend", "broadcast")):
    _text, _changes = _PIECES[_kind]
    for _where, _low, _high in (
        ("before it", ("s", "k"), None), ("after it", None, ("t", "h")), ("on both sides", ("s", "k"), ("t", "h"))
    ):
        _ends = [pair for pair in (_low, _high) if pair is not None]
        _parts = [_text.format(s=s, k=k) for s, k in _ends]
        _parts.insert(0 if _low is None else 1, "x")
        _both = len(_ends) == 2
        rules.add(
            f"concatenate[c]({', '.join(_parts)}) => {_op}[made](x)",
            name=f"{_op} from a {_kind} {_where}",
            cases=each(
                x=tensors((4, 3)) if _both else _X, c=_ALONG[:1] if _both else _ALONG,
                **{s: _slices(3) if _both else _SLICES for s, _ in _ends},
                **{k: _changes[:2] for _, k in _ends if _changes},
            ),
        )(partial(_from_pieces, op=_op, kind=_kind, labels=(_low, _high)))


class _Parts(NamedTuple):
    """Two neighbouring contiguous slices of a tensor, which differ along one dimension ``at`` only."""

    at: int
    first: tuple[int, int]
    second: tuple[int, int]

    @classmethod
    def of(cls, m: Match) -> _Parts | None:
        at = m.c["dimension"]
        (a, b, s), (c, d, t) = bounds_of(m.s)[at], bounds_of(m.t)[at]
        if replaced(bounds_of(m.s), at, (c, d, t)) != bounds_of(m.t) or a == b or c == d or (s, t) != (1, 1):
            return None
        return cls(at, (a, b), (c, d))


def _full_rotation(m: Match, whole: bool) -> tuple[_Parts, int, int] | None:
    """(parts, begin, end) of the range that two slices hold with its ends exchanged: all of x along ``at``, or not."""
    p = _Parts.of(m)
    if p is None or p.second[1] != p.first[0]:
        return None
    begin, end = p.second[0], p.first[1]
    everything = (begin, end) == (0, m.x.shape[p.at]) and whole_but(bounds_of(m.s), m.x.shape, p.at)
    return (p, begin, end) if everything == whole else None


_TWO = together(*(
    each(x=tensors((4, 3)), s=_slices(k), t=_slices(k), c=d) for k in (2, 3) for d in _ALONG[: 2 - k % 2]
))


@rules.add("concatenate[c](slice[s](x), slice[t](x)) => rotate[r](x)", cases=_TWO)
def rotate_from_slices(m: Match) -> Any:
    found = _full_rotation(m, True)
    return None if found is None else {"r": {"dimension": found[0].at, "amount": found[0].first[0]}}


@rules.add("concatenate[c](slice[s](x), slice[t](x)) => rotate[r](slice[u](x))", cases=_TWO)
def rotate_of_slice_from_slices(m: Match) -> Any:
    """The two slices make up a part of x."""
    found = _full_rotation(m, False)
    if found is None:
        return None
    parts, begin, end = found
    return {
        "r": {"dimension": parts.at, "amount": parts.first[0] - begin},
        "u": slice_of(replaced(bounds_of(m.s), parts.at, (begin, end, 1))),
    }


def _around_the_end(m: Match) -> _Parts | None:
    """Slices that end where x does, and begin where it does, together no rotation."""
    p = _Parts.of(m)
    if p is None or p.first[1] != m.x.shape[p.at] or p.second[0] != 0 or p.second[1] == p.first[0]:
        return None
    return p if whole_but(bounds_of(m.s), m.x.shape, p.at) else None


def _first(m: Match, p: _Parts, count: int) -> Attributes:
    """The slice of the first elements along the dimension of the parts."""
    return slice_of((0, count if d == p.at else n, 1) for d, n in enumerate(m.x.shape))


@rules.add("concatenate[c](slice[s](x), slice[t](x)) => slice[u](rotate[r](x))", cases=_TWO)
def part_of_rotate_from_slices(m: Match) -> Any:
    """Fewer elements than x has: the first ones of a rotation."""
    p = _around_the_end(m)
    if p is None or p.second[1] > p.first[0]:
        return None
    return {"r": {"dimension": p.at, "amount": p.first[0]}, "u": _first(m, p, m.result.shape[p.at])}


@rules.add("concatenate[c](slice[s](x), slice[t](x)) => slice[u](wrap[w](x))", cases=_TWO)
def part_of_wrap_from_slices(m: Match) -> Any:
    """More elements than x has, neither of the slices being all of it: the first ones of a wrapped x."""
    p = _around_the_end(m)
    n = m.x.shape[m.c["dimension"]]
    if p is None or p.second[1] < p.first[0] or p.first[0] == 0 or p.second[1] == n:
        return None
    return {"w": _wrapped(p.at, n - p.first[0], 0), "u": _first(m, p, m.result.shape[p.at])}


def _beside_slice(op: str, m: Match, low: str | None, kept: str, high: str | None) -> dict[str, Any] | None:
    """How slices of x extend another one between them, which is a part of x only."""
    at = m.c["dimension"]
    bounds = {label: bounds_of(getattr(m, label)) for label in (low, kept, high) if label}
    begin, end, stride = bounds[kept][at]
    everything = all(b == (0, n, 1) for b, n in zip(bounds[kept], m.x.shape, strict=True))
    if stride != 1 or everything:
        return None
    pieces = {}
    for label in (low, high):
        if label:
            start, limit, stride = bounds[label][at]
            if replaced(bounds[label], at, bounds[kept][at]) != bounds[kept] or stride != 1:
                return None
            if not begin <= start < limit <= end:
                return None
            pieces[label] = _Piece("slice", start - begin, limit - start)
    return _with_pieces(op, at, end - begin, pieces.get(low or ""), pieces.get(high or ""))


def _extended_slice(m: Match, op: str, labels: tuple[str | None, str, str | None]) -> Any:
    return answer(made=_beside_slice(op, m, *labels))


for _op in ("wrap", "extend"):
    for _where, _labels in (
        ("before it", ("s", "t", None)), ("after it", (None, "s", "t")), ("on both sides", ("s", "t", "u"))
    ):
        rules.add(
            f"concatenate[c]({of_each('slice[{}](x)', filter(None, _labels))}) => {_op}[made](slice[{_labels[1]}](x))",
            name=f"{_op} of a slice from a slice {_where}",
            cases=_TWO if None in _labels else each(
                x=tensors((4, 3)), s=_slices(3), u=_slices(3), c={"dimension": 0},
                t=slices(*([rows, (0, 3, 1)] for rows in ((0, 3, 1), (1, 4, 1), (1, 3, 1)))),
            ),
        )(partial(_extended_slice, op=_op, labels=_labels))


_ROTATES = [{"dimension": d, "amount": k} for d in (0, 1) for k in (0, 1, 2)]
_WRAPS = [_wrapped(d, low, high) for d in (0, 1) for low, high in ((0, 0), (1, 2), (2, 0), (3, 3))]
_EXTENDS = [
    _extended(d, low, high, mode)
    for d in (0, 1) for low, high in ((0, 0), (1, 2), (2, 0)) for mode in ("edge", "reflect", "symmetric")
]


@rules.add("rotate[outer](rotate[inner](x)) => rotate[both](x)", cases=each(x=_X, outer=_ROTATES, inner=_ROTATES))
def rotate_of_rotate(m: Match) -> Any:
    dim = m.inner["dimension"]
    if m.outer["dimension"] != dim:
        return None
    return {"both": {"dimension": dim, "amount": (m.outer["amount"] + m.inner["amount"]) % m.x.shape[dim]}}


rules.add("rotate[r](x) => x", name="identity rotate", cases=each(x=_X, r=_ROTATES))(lambda m: m.r["amount"] == 0)
for _op, _some in (("wrap", _WRAPS), ("extend", _EXTENDS)):
    rules.add(f"{_op}[e](x) => x", name=f"identity {_op}", cases=each(x=_X, e=_some))(lambda m: m.x == m.result)

_ATTRIBUTES: dict[str, list[Any]] = {"rotate": _ROTATES, "wrap": _WRAPS, "extend": _EXTENDS}
for _outer, _all_outer in _ATTRIBUTES.items():
    for _inner, _all_inner in _ATTRIBUTES.items():
        rules.add(
            f"{_outer}[outer]({_inner}[inner](x)) => {_inner}[inner]({_outer}[outer](x))",
            name=f"{_outer} of {_inner} along different dimensions",
            cases=each(x=_X, outer=_all_outer, inner=_all_inner),
        )(lambda m: m.outer["dimension"] < m.inner["dimension"])  # one order, for one form of both

for _op, _some in _ATTRIBUTES.items():
    rules.add(
        f"binary[f]({_op}[e](x), {_op}[e](y)) => {_op}[e](binary[f](x, y))",
        name=f"binary of {_op}s",
        cases=each(x=tensors((4, 3)), y=tensors((4, 3)), e=_some, f="subtract"),
    )(lambda m: m.x.shape == m.y.shape)


def _cut(m: Match) -> tuple[int, int] | None:
    """The range [start, limit) that a slice of stride 1 keeps of a rotation or extension ``e``, along its dimension,
    counted from the tensor's own first element."""
    start, limit, stride = bounds_of(m.s)[m.e["dimension"]]
    lhs = m.e["lhs"] if "lhs" in m.e else -m.e["amount"]
    return (start - lhs, limit - lhs) if stride == 1 and start < limit else None


def _only_along(m: Match, at: int) -> bool:
    return all(a == b for d, (a, b) in enumerate(zip(m.result.shape, m.x.shape, strict=True)) if d != at)


_CUTS = slices(
    *([(a, b, 1), (0, 3, 1)] for a in range(6) for b in range(a + 1, 11)),
    *([(0, 3, 1), (a, b, 1)] for a in range(4) for b in range(a + 1, 7)),
)


def _part_of_periodic(m: Match) -> Any:
    """Applies where the slice takes a contiguous part of x."""
    at, found = m.e["dimension"], _cut(m)
    n = m.x.shape[at]
    if found is None or found[1] - found[0] > n:
        return None
    start, limit = (i % n for i in (found[0], found[1] - 1))
    return {"u": slice_of(replaced(bounds_of(m.s), at, (start, limit + 1, 1)))} if start <= limit else None


for _op, _some in (("rotate", _ROTATES), ("wrap", _WRAPS)):
    rules.add(
        f"slice[s]({_op}[e](x)) => slice[u](x)", name=f"slice of {_op}", cases=each(x=_X, e=_some, s=_CUTS)
    )(_part_of_periodic)


@rules.add("slice[s](wrap[e](x)) => rotate[r](x)", cases=each(x=_X, e=_WRAPS, s=_CUTS))
def rotate_from_wrap(m: Match) -> Any:
    """As many elements as x has, from another one on."""
    at = m.e["dimension"]
    found = _cut(m)
    if found is None or m.x != m.result or found[0] == 0:
        return None
    return {"r": {"dimension": at, "amount": found[0] % m.x.shape[at]}}


@rules.add("slice[s](extend[e](x)) => slice[u](x)", cases=each(x=_X, e=_EXTENDS, s=_CUTS))
def slice_of_extend(m: Match) -> Any:
    """Applies where the slice takes nothing but x's own elements."""
    at = m.e["dimension"]
    found = _cut(m)
    if found is None or not 0 <= found[0] <= found[1] <= m.x.shape[at]:
        return None
    return {"u": slice_of(replaced(bounds_of(m.s), at, (*found, 1)))}


_CORNERS = slices([(0, 2, 1), (1, 3, 1)], [(1, 4, 1), (0, 2, 1)])

for _op, _some in (("wrap", _WRAPS), ("extend", _EXTENDS)):

    @rules.add(
        f"slice[s]({_op}[e](x)) => slice[t]({_op}[e](slice[u](x)))",
        name=f"slice of {_op} along both",
        cases=each(x=_X, e=_some, s=_CORNERS),
    )
    def _along_both(m: Match) -> Any:
        """What it cuts along other dimensions is cut first: then corners lie beyond one dimension and then the other,
        and what lies beyond one alone is had without the other."""
        at, whole = m.e["dimension"], tuple((0, n, 1) for n in m.x.shape)
        bounds = bounds_of(m.s)
        others = replaced(bounds, at, whole[at])
        if others == whole or bounds[at] == (0, m.x.shape[at] + m.e["lhs"] + m.e["rhs"], 1):
            return None
        return {"u": slice_of(others), "t": slice_of(replaced([(0, n, 1) for n in m.result.shape], at, bounds[at]))}

    @rules.add(f"slice[s]({_op}[e](x)) => {_op}[v](x)", name=f"narrower {_op}", cases=each(x=_X, e=_some, s=_CUTS))
    def _narrower(m: Match) -> Any:
        """All of x, with less around it."""
        at = m.e["dimension"]
        n, found = m.x.shape[at], _cut(m)
        if found is None or not found[0] <= 0 < n <= found[1] or not _only_along(m, at):
            return None
        return {"v": {**m.e, "lhs": -found[0], "rhs": found[1] - n}}
