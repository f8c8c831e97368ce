"""Rules that recognise rotations and extended dimensions in slices and concatenations, and merge and slice them.

A dimension is extended by elements of its own: of its other end (`wrap`), or of the same end, repeated or mirrored
(`extend`). Programs spell this as concatenations of a tensor with slices of it, reversed or repeated; a concatenation
is such an op where it has the indices that the op's definition says. What windows make local anyway (slices of a
rotated or extended tensor that are neither simpler nor shorter) is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eggshard.egraph.laws import each, tensors, together
from eggshard.egraph.rules import Match, RuleList
from eggshard.ops.neighbours.halo import makes
from eggshard.ops.windowing import EDGE_MODES
from eggshard.rewrites.shapes import (
    along,
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


def _wrapped(at: int, lhs: int, rhs: int) -> dict[str, Any]:
    return {"dimension": at, "lhs": lhs, "rhs": rhs}


_X = tensors((4, 3), (3, 3), dtypes=("f32", "i32"))


#: Pieces of x by kind: the pattern, and what may happen to the slice in the law test.
_PIECES: dict[str, tuple[str, list[Any]]] = {
    "slice": ("slice[{s}](x)", []),
    "reverse": ("reverse[{k}](slice[{s}](x))", over((0,), (1,), (0, 1))),
    "broadcast": ("broadcast_in_dim[{k}](slice[{s}](x))", [spread((n, 3), 0, 1) for n in (1, 2, 3)]),
}


def _indices(m: Match, kind: str, core: Sequence[tuple[int, int, int]], cut: str, changed: str) -> np.ndarray | None:
    """The indices along the dimension of concatenation that a piece has; None where it differs from the core along
    others, or skips some. Its labels are those of its slice and of what happens to it."""
    at, bounds = m.c["dimension"], bounds_of(getattr(m, cut))
    start, limit, stride = bounds[at]
    width = -(-(limit - start) // stride)
    if not width or (stride != 1 and width > 1) or replaced(bounds, at, core[at]) != tuple(core):
        return None
    indices = np.arange(start, start + width)
    if kind == "reverse":
        return indices[::-1] if getattr(m, changed)["dimensions"] == (at,) else None
    if kind == "broadcast":
        made, sizes = getattr(m, changed), tuple(-(-(b - a) // t) for a, b, t in bounds)
        repeats = made["shape"][at] if made["broadcast_dimensions"] == tuple(range(len(sizes))) else 0
        return np.repeat(indices, repeats) if width == 1 and made["shape"] == replaced(sizes, at, repeats) else None
    return indices


def _from_pieces(m: Match, op: str, kind: str, kept: str, ends: Sequence[tuple[str, str] | None]) -> Any:
    """The op on x, or on the slice ``kept`` of it, whose indices are those of the pieces around that."""
    at = m.c["dimension"]
    core = bounds_of(getattr(m, kept)) if kept else tuple((0, n, 1) for n in m.x.shape)
    begin, end, stride = core[at]
    if stride != 1 or (kept and core == tuple((0, n, 1) for n in m.x.shape)):
        return None
    found = [np.arange(0) if pair is None else _indices(m, kind, core, *pair) for pair in ends]
    low, high = found
    if low is None or high is None or any(pair and not len(one) for pair, one in zip(ends, (low, high), strict=True)):
        return None
    indices = np.concatenate([low, np.arange(begin, end), high]) - begin
    widths = _wrapped(at, len(low), len(high))
    for attributes in [widths] if op == "wrap" else [{**widths, "mode": mode} for mode in EDGE_MODES]:
        if makes(op, attributes, end - begin, indices):
            return {"made": attributes}
    return None


class _Two(NamedTuple):
    """Two contiguous slices of x, concatenated along the one dimension ``at`` along which they differ."""

    at: int
    first: tuple[int, int]
    second: tuple[int, int]
    whole: bool  # along all other dimensions

    @classmethod
    def of(cls, m: Match) -> _Two | None:
        at, bounds = m.c["dimension"], bounds_of(m.s)
        (a, b, s), (c, d, t) = bounds[at], bounds_of(m.t)[at]
        if replaced(bounds, at, (c, d, t)) != bounds_of(m.t) or a == b or c == d or (s, t) != (1, 1):
            return None
        return cls(at, (a, b), (c, d), whole_but(bounds, m.x.shape, at))


def _rotated(m: Match, part: bool) -> Any:
    """A range with its ends exchanged: a part of x, or all of it."""
    two = _Two.of(m)
    if two is None or two.second[1] != two.first[0]:
        return None
    begin, end = two.second[0], two.first[1]
    if part == (two.whole and (begin, end) == (0, m.x.shape[two.at])):
        return None
    rotation = {"r": {"dimension": two.at, "amount": two.first[0] - begin}}
    return {**rotation, "u": slice_of(replaced(bounds_of(m.s), two.at, (begin, end, 1)))} if part else rotation


def _around_the_end(m: Match, longer: bool) -> Any:
    """What ends where x does and what begins where it does, of fewer or of more elements than x has: the first ones of
    a rotation, or of a wrapped x. None where they are a rotation, and where one of more is all of x."""
    two, n = _Two.of(m), m.x.shape[m.c["dimension"]]
    if two is None or not two.whole or two.first[1] != n or two.second[0] != 0:
        return None
    at, (start, _), (_, stop) = two[:3]
    if start == stop or (stop > start) != longer or longer and (start == 0 or stop == n):
        return None
    made = {"w": _wrapped(at, n - start, 0)} if longer else {"r": {"dimension": at, "amount": start}}
    return {**made, "u": slice_of((0, m.result.shape[at] if d == at else k, 1) for d, k in enumerate(m.x.shape))}


def _pieces(other: int) -> list[Any]:
    """All slices of a dimension of size 4, and of some of another one."""
    return slices(*([(a, b, 1), (0, other, 1)] for a in range(4) for b in range(a + 1, 5)))


_SOME = [*_pieces(3), *slices([(0, 1, 1), (0, 2, 1)], [(0, 4, 1), (0, 1, 1)]), *slices(
    *([(0, 4, 1), (a, b, 1)] for a, b in ((0, 1), (1, 2), (2, 3), (1, 3), (0, 2)))
)]
#: Per place of the pieces: where they extend x, as people say it.
_PLACES = {"before it": "the start", "after it": "the end", "on both sides": "both ends"}
#: Per op: what it is, and what is done by it, as people say it.
_NOUNS = {"rotate": "rotation", "wrap": "wrap-around", "extend": "edge extension"}
_DONE = {"rotate": "rotated", "wrap": "wrapped around", "extend": "extended"}

for _op, _kind, _read in (
    ("wrap", "slice", "wrap-around"), ("extend", "slice", "repeated or mirrored values"),
    ("extend", "reverse", "mirrored values"), ("extend", "broadcast", "repeated edge values"),
):
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
            says=f"read as {_read} at {_PLACES[_where]}",
            cases=each(
                x=tensors((4, 3)) if _both else _X, c=along(0) if _both else along(0, 1),
                **{s: _pieces(3) if _both else _SOME for s, _ in _ends},
                **{k: _changes[:2] for _, k in _ends if _changes},
            ),
        )(partial(_from_pieces, op=_op, kind=_kind, kept="", ends=(_low, _high)))

_TWO = together(*(
    each(x=tensors((4, 3)), s=_pieces(k), t=_pieces(k), c=d) for k in (2, 3) for d in along(0, 1)[: 2 - k % 2]
))


for _name, _says, _made, _function in (
    ("rotate from slices", "a rotation", "rotate[r](x)", partial(_rotated, part=False)),
    ("rotate of slice from slices", "a rotation of a slice", "rotate[r](slice[u](x))", partial(_rotated, part=True)),
    (
        "part of rotate from slices", "part of a rotation", "slice[u](rotate[r](x))",
        partial(_around_the_end, longer=False),
    ),
    (
        "part of wrap from slices", "part of a wrap-around", "slice[u](wrap[w](x))",
        partial(_around_the_end, longer=True),
    ),
):
    rules.add(
        f"concatenate[c](slice[s](x), slice[t](x)) => {_made}", name=_name, says=f"read as {_says}", cases=_TWO
    )(_function)


for _op in ("wrap", "extend"):
    for _where, _before, _kept, _after in (
        ("before it", "s", "t", ""), ("after it", "", "s", "t"), ("on both sides", "s", "t", "u")
    ):
        _labels = [label for label in (_before, _kept, _after) if label]
        rules.add(
            f"concatenate[c]({of_each('slice[{}](x)', _labels)}) => {_op}[made](slice[{_kept}](x))",
            name=f"{_op} of a slice from a slice {_where}",
            says=f"read as a slice {_DONE[_op]} at {_PLACES[_where]}",
            cases=_TWO if len(_labels) == 2 else each(
                x=tensors((4, 3)), s=_pieces(3), u=_pieces(3), c={"dimension": 0},
                t=slices(*([rows, (0, 3, 1)] for rows in ((0, 3, 1), (1, 4, 1), (1, 3, 1)))),
            ),
        )(partial(
            _from_pieces, op=_op, kind="slice", kept=_kept, ends=[(e, "") if e else None for e in (_before, _after)]
        ))


@rules.add(
    "reshape[join](broadcast_in_dim[repeat](x)) => wrap[made](reshape[own](x))",
    says="repeats one after the other read as a wrap-around",
    cases=each(
        x=tensors((4, 3), (1, 4, 1, 3), dtypes=("f32", "i32")),
        repeat=[
            *(spread((k, 4, 3), 1, 2) for k in (2, 3)), spread((4, 2, 3), 0, 2), spread((4, 3, 2), 0, 1),
            *(spread((k, 4, m, 3), 0, 1, 2, 3) for k, m in ((2, 1), (1, 2), (2, 2))),
        ],
        join=[{"shape": s} for s in ((8, 3), (12, 3), (4, 6), (2, 12), (2, 4, 3), (8, 1, 3), (24,))],
    ),
)
def tiled(m: Match) -> Any:
    """One dimension is repeated as a whole, and nothing else is joined or split."""
    source = {d: i for i, d in enumerate(m.repeat["broadcast_dimensions"])}
    sizes = [(k, d in source and m.x.shape[source[d]] == k) for d, k in enumerate(m.repeat["shape"]) if k != 1]
    repeats = [i for i, (_, own) in enumerate(sizes) if not own]
    if len(repeats) != 1 or repeats[0] + 1 == len(sizes) or list(source) != sorted(source):
        return None
    (count, _), (n, _) = sizes[repeats[0] : repeats[0] + 2]
    joined = [k for k, own in sizes if own]
    joined[repeats[0]] *= count
    places = [d for d, k in enumerate(m.result.shape) if k != 1]
    if [m.result.shape[d] for d in places] != joined:
        return None
    at = places[repeats[0]]
    return {"own": {"shape": replaced(m.result.shape, at, n)}, "made": _wrapped(at, 0, (count - 1) * n)}


_ROTATES = [{"dimension": d, "amount": k} for d in (0, 1) for k in (0, 1, 2)]
_WRAPS = [_wrapped(d, low, high) for d in (0, 1) for low, high in ((0, 0), (1, 2), (2, 0), (3, 3), (5, 9))]
_EXTENDS = [
    {**_wrapped(d, low, high), "mode": mode}
    for d in (0, 1) for low, high in ((0, 0), (1, 2), (2, 0)) for mode in ("edge", "reflect", "symmetric")
]


@rules.add(
    "rotate[outer](rotate[inner](x)) => rotate[both](x)",
    says="two rotations as one",
    cases=each(x=_X, outer=_ROTATES, inner=_ROTATES),
)
def rotate_of_rotate(m: Match) -> Any:
    dim = m.inner["dimension"]
    if m.outer["dimension"] != dim or not m.x.shape[dim]:
        return None
    return {"both": {"dimension": dim, "amount": (m.outer["amount"] + m.inner["amount"]) % m.x.shape[dim]}}


rules.add(
    "rotate[r](x) => x",
    name="identity rotate",
    says="a rotation that changes nothing left out",
    cases=each(x=_X, r=_ROTATES),
)(lambda m: m.r["amount"] == 0)
for _op, _some in (("wrap", _WRAPS), ("extend", _EXTENDS)):
    rules.add(
        f"{_op}[e](x) => x",
        name=f"identity {_op}",
        says=f"{_NOUNS[_op]} of width 0 left out",
        cases=each(x=_X, e=_some),
    )(lambda m: m.x == m.result)

_ATTRIBUTES: dict[str, list[Any]] = {"rotate": _ROTATES, "wrap": _WRAPS, "extend": _EXTENDS}
for _outer, _all_outer in _ATTRIBUTES.items():
    for _inner, _all_inner in _ATTRIBUTES.items():
        rules.add(
            f"{_outer}[outer]({_inner}[inner](x)) => {_inner}[inner]({_outer}[outer](x))",
            name=f"{_outer} of {_inner} along different dimensions",
            says=f"{_DONE[_outer]} before the {_NOUNS[_inner]} along another dimension",
            cases=each(x=_X, outer=_all_outer, inner=_all_inner),
        )(lambda m: m.outer["dimension"] < m.inner["dimension"])  # one order, for one form of both

for _op, _some in _ATTRIBUTES.items():
    rules.add(
        f"binary[f]({_op}[e](x), {_op}[e](y)) => {_op}[e](binary[f](x, y))",
        name=f"binary of {_op}s",
        says=f"{_DONE[_op]} once, after the pointwise op",
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
        f"slice[s]({_op}[e](x)) => slice[u](x)",
        name=f"slice of {_op}",
        says=f"sliced without the {_NOUNS[_op]}",
        cases=each(x=_X, e=_some, s=_CUTS),
    )(_part_of_periodic)


@rules.add(
    "slice[s](wrap[e](x)) => rotate[r](x)",
    says="a sliced wrap-around read as a rotation",
    cases=each(x=_X, e=_WRAPS, s=_CUTS),
)
def rotate_from_wrap(m: Match) -> Any:
    """As many elements as x has, from another one on."""
    at = m.e["dimension"]
    found = _cut(m)
    if found is None or m.x != m.result or found[0] == 0:
        return None
    return {"r": {"dimension": at, "amount": found[0] % m.x.shape[at]}}


@rules.add(
    "slice[s](extend[e](x)) => slice[u](x)",
    says="sliced without the edge extension",
    cases=each(x=_X, e=_EXTENDS, s=_CUTS),
)
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
        says=f"sliced along other dimensions before the {_NOUNS[_op]}",
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

    @rules.add(
        f"slice[s]({_op}[e](x)) => {_op}[v](x)",
        name=f"narrower {_op}",
        says=f"{_DONE[_op]} no wider than needed",
        cases=each(x=_X, e=_some, s=_CUTS),
    )
    def _narrower(m: Match) -> Any:
        """All of x, with less around it."""
        at = m.e["dimension"]
        n, found = m.x.shape[at], _cut(m)
        if found is None or not found[0] <= 0 < n <= found[1] or not _only_along(m, at):
            return None
        return {"v": {**m.e, "lhs": -found[0], "rhs": found[1] - n}}
