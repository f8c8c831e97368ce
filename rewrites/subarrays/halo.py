"""Rules on rotations and on dimensions extended by elements of their own: they merge, commute, and are sliced.

A dimension is extended by elements of its other end (`wrap`), or of the same end, repeated or mirrored (`extend`).
Programs spell this as concatenations of a tensor with slices of it, reversed or repeated. Front ends recognise them
(`frontends/normalization`), so that no slice of any part of these concatenations is explored here. What is found here
alone is not made of whole dimensions: slices of a rotation or an extension. What windows make local anyway (slices of a
rotated or extended tensor that are neither simpler nor shorter) is left as it is.
"""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, tensors, together
from eggshard.egraph.rules import Match, RuleList
from eggshard.rewrites.shapes import along, bounds_of, replaced, slice_of, slices, whole_but

rules = RuleList()

_X = tensors((4, 3), (3, 3), dtypes=("f32", "i32"))


def _around_the_end(m: Match, longer: bool) -> tuple[int, int, Any] | None:
    """Slices that end where x does and begin where it does, of fewer or of more elements than x has.

    The dimension, where the first one begins, and the slice that takes as many elements from the first one on. None for
    other slices, for those that are a rotation, and where one of more is all of x.
    """
    at = m.c["dimension"]
    n, (start, end, s), (begin, stop, t) = m.x.shape[at], bounds_of(m.s)[at], bounds_of(m.t)[at]
    if replaced(bounds_of(m.s), at, (begin, stop, t)) != bounds_of(m.t) or not whole_but(bounds_of(m.s), m.x.shape, at):
        return None
    if (end, begin, s, t) != (n, 0, 1, 1) or start == n or stop in (0, start) or (stop > start) != longer:
        return None
    if longer and (start == 0 or stop == n):
        return None
    return at, start, slice_of((0, m.result.shape[at] if d == at else k, 1) for d, k in enumerate(m.x.shape))


def _pieces(other: int) -> list[Any]:
    """All slices of a dimension of size 4, and of some of another one."""
    return slices(*([(a, b, 1), (0, other, 1)] for a in range(4) for b in range(a + 1, 5)))


_TWO = together(*(
    each(x=tensors((4, 3)), s=_pieces(k), t=_pieces(k), c=d) for k in (2, 3) for d in along(0, 1)[: 2 - k % 2]
))


@rules.add("concatenate[c](slice[s](x), slice[t](x)) => slice[u](rotate[r](x))", cases=_TWO)
def part_of_rotate_from_slices(m: Match) -> Any:
    """Fewer elements than x has: the first ones of a rotation."""
    found = _around_the_end(m, False)
    return None if found is None else {"r": {"dimension": found[0], "amount": found[1]}, "u": found[2]}


@rules.add("concatenate[c](slice[s](x), slice[t](x)) => slice[u](wrap[w](x))", cases=_TWO)
def part_of_wrap_from_slices(m: Match) -> Any:
    """More elements than x has: the first ones of a wrapped x."""
    found = _around_the_end(m, True)
    return None if found is None else {"w": _wrapped(found[0], m.x.shape[found[0]] - found[1], 0), "u": found[2]}


def _wrapped(at: int, lhs: int, rhs: int) -> dict[str, Any]:
    return {"dimension": at, "lhs": lhs, "rhs": rhs}


_ROTATES = [{"dimension": d, "amount": k} for d in (0, 1) for k in (0, 1, 2)]
_WRAPS = [_wrapped(d, low, high) for d in (0, 1) for low, high in ((0, 0), (1, 2), (2, 0), (3, 3))]
_EXTENDS = [
    {**_wrapped(d, low, high), "mode": mode}
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
