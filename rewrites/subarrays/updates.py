"""Rules on updates of boxes: overwritten, written back, read again, or spelled as concatenations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.attributes import Literal
from eggshard.program.types import numpy_dtype
from eggshard.rewrites.shapes import (
    SIDES,
    along,
    bounds_of,
    over,
    padding,
    replaced,
    slice_of,
    slices,
    spread,
    whole_but,
)

rules = RuleList()

#: (start, limit) of each dimension.
Box = tuple[tuple[int, int], ...]


def _box(starts: Sequence[int], shape: Sequence[int]) -> Box:
    return tuple((a, a + k) for a, k in zip(starts, shape, strict=True))


def _inside(inner: Box, outer: Box) -> bool:
    return all(c <= a and b <= d for (a, b), (c, d) in zip(inner, outer, strict=True))


def _apart(one: Box, other: Box) -> bool:
    return any(b <= c or d <= a for (a, b), (c, d) in zip(one, other, strict=True))


def _sliced(m: Match) -> Box | None:
    """The box that slice ``s`` takes; None where it skips elements."""
    bounds = bounds_of(m.s)
    return tuple((a, b) for a, b, _ in bounds) if all(stride == 1 for _, _, stride in bounds) else None


_X = tensors((4, 5), dtypes=("f32", "i32"))
_Y = tensors((2, 3), (1, 5), (4, 5), dtypes=("f32", "i32"))
_STARTS = [{"start_indices": s} for s in ((0, 0), (1, 1), (2, 2), (1, 0), (3, 0))]
_SLICES = slices(
    [(1, 3, 1), (1, 4, 1)], [(2, 3, 1), (2, 4, 1)], [(0, 1, 1), (0, 5, 2)], [(1, 2, 1), (0, 5, 1)]
)


rules.add(
    "update_slice[u](x, y) => y",
    name="update of everything",
    says="wholly overwritten values left out",
    cases=each(x=_X, y=_Y, u=_STARTS),
)(lambda m: m.x == m.y)


@rules.add(
    "update_slice[u](x, slice[s](x)) => x",
    says="an update that changes nothing left out",
    cases=each(x=_X, u=_STARTS, s=_SLICES),
)
def update_by_itself(m: Match) -> Any:
    return _sliced(m) == _box(m.u["start_indices"], m.type("s").shape)


@rules.add(
    "update_slice[u](update_slice[v](x, y), z) => update_slice[u](x, z)",
    says="an update that is overwritten later left out",
    cases=each(x=tensors((4, 5)), y=tensors((2, 3), (1, 5)), z=tensors((2, 3), (2, 5)), u=_STARTS, v=_STARTS),
)
def covered_update(m: Match) -> Any:
    """The later update covers the earlier one."""
    return _inside(_box(m.v["start_indices"], m.y.shape), _box(m.u["start_indices"], m.z.shape))


@rules.add(
    "update_slice[u](x, update_slice[v](slice[s](x), y)) => update_slice[w](x, y)",
    says="updated directly instead of through a slice",
    cases=each(x=tensors((4, 5)), y=tensors((1, 2), (2, 3)), s=_SLICES, u=_STARTS, v=_STARTS),
)
def update_by_updated_slice(m: Match) -> Any:
    """A part that is written back where it came from."""
    starts = m.u["start_indices"]
    if _sliced(m) != _box(starts, m.type("s").shape):
        return None
    return {"w": {"start_indices": tuple(a + b for a, b in zip(starts, m.v["start_indices"], strict=True))}}


@rules.add(
    "slice[s](update_slice[u](x, y)) => slice[s](x)",
    says="sliced without the update, which lies elsewhere",
    cases=each(x=_X, y=_Y, u=_STARTS, s=_SLICES),
)
def slice_beside_update(m: Match) -> Any:
    return _apart(
        tuple((a, b) for a, b, _ in bounds_of(m.s)), _box(m.u["start_indices"], m.y.shape)
    )


@rules.add(
    "slice[s](update_slice[u](x, y)) => slice[v](y)",
    says="sliced from the written values alone",
    cases=each(x=_X, y=_Y, u=_STARTS, s=_SLICES),
)
def slice_inside_update(m: Match) -> Any:
    starts, bounds = m.u["start_indices"], bounds_of(m.s)
    if not _inside(tuple((a, b) for a, b, _ in bounds), _box(starts, m.y.shape)):
        return None
    return {"v": slice_of((a - o, b - o, stride) for o, (a, b, stride) in zip(starts, bounds, strict=True))}


_PARTS = [slice_of([(a, b, 1), (0, c, 1)]) for a, b in ((0, 1), (0, 2), (1, 4), (2, 4), (3, 4)) for c in (4, 5)]


def _end(m: Match, label: str, low: bool) -> int | None:
    """Return the inner end of a slice that is a prefix or suffix of x, None for other slices."""
    at = m.c["dimension"]
    bounds = bounds_of(getattr(m, label))
    start, limit, stride = bounds[at]
    if not whole_but(bounds, m.x.shape, at) or stride != 1 or (start != 0 if low else limit != m.x.shape[at]):
        return None
    end: int = limit if low else start
    return end


def _between(m: Match, first: str | None, last: str | None) -> Any:
    """The update that new data between the ends of x is, if it has just the size of what is missing there."""
    at = m.c["dimension"]
    start = 0 if first is None else _end(m, first, True)
    limit = m.x.shape[at] if last is None else _end(m, last, False)
    if start is None or limit is None or start + m.y.shape[at] != limit:
        return None
    return {"u": {"start_indices": replaced((0,) * m.x.rank, at, start)}}


for _text, _first, _last, _where in (
    ("slice[s](x), y, slice[t](x)", "s", "t", "in the middle"),
    ("slice[s](x), y", "s", None, "at the end"),
    ("y, slice[t](x)", None, "t", "at the start"),
):
    rules.add(
        f"concatenate[c]({_text}) => update_slice[u](x, y)",
        name=f"update from a concatenation: {_text}",
        says=f"written {_where} instead of concatenated",
        cases=each(
            x=tensors((4, 5)), y=tensors((1, 5), (2, 5), (3, 5)), c={"dimension": 0},
            **{label: _PARTS for label in (_first, _last) if label},
        ),
    )(partial(_between, first=_first, last=_last))


def _wider(m: Match, low: bool) -> Any:
    """Two elements where a slice beside others takes one, with the others put over what is too much.

    Windows are known of dimensions that may be shared out; a dimension of size 1 is not.
    """
    at, bounds = m.c["dimension"], bounds_of(m.s)
    (start, limit, _), n, others = bounds[at], m.x.shape[at], m.result.shape[at] - 1
    if limit - start != 1 or others < 1 or (start + 2 > n if low else start < 1):
        return None
    if "r" in m.uses() and at in m.r["dimensions"]:
        return None
    taken = (start, start + 2, 1) if low else (start - 1, start + 1, 1)
    before, after = (0, others - 1) if low else (others - 1, 0)
    none = (0,) * m.x.rank
    return {
        "t": slice_of(replaced(bounds, at, taken)),
        "p": padding(replaced(none, at, before), replaced(none, at, after)),
        "v": {"value": Literal(np.zeros((), numpy_dtype(m.x.dtype)))},
        "u": {"start_indices": replaced(none, at, 1 if low else 0)},
    }


_ONE = [slice_of([(k, k + 1, 1), (0, c, 1)]) for k in range(4) for c in (3, 2)]
_ONE.append(slice_of([(0, 4, 1), (2, 3, 1)]))

for _kind, _piece in (("slice", "slice[{}](x)"), ("reversed slice", "reverse[r](slice[{}](x))")):
    for _others, _rest in (("y", "y"), ("y, z", "concatenate[c](y, z)")):
        for _low in (True, False):
            _parts = f"{_piece.format('s')}, {_others}" if _low else f"{_others}, {_piece.format('s')}"
            _made = f"update_slice[u](pad[p]({_piece.format('t')}, constant[v]()), {_rest})"
            rules.add(
                f"concatenate[c]({_parts}) => {_made}",
                name=f"{_kind} of one element {'before' if _low else 'after'} {_others}",
                says=f"a wider {_kind}, what {'follows' if _low else 'precedes'} written over it",
                cases=each(
                    x=tensors((4, 3), dtypes=("f32", "i32")), y=tensors((1, 3), (3, 3), (2, 2), (4, 2)), s=_ONE,
                    c=along(0, 1),
                    **({"z": tensors((2, 3), (4, 1))} if "z" in _others else {}),
                    **({"r": over((1,), (0,))} if _kind != "slice" else {}),
                ),
            )(partial(_wider, low=_low))


@rules.add(
    "update_slice[u](x, broadcast_in_dim[b](v)) => "
    "select(pad[around](constant[inside](), constant[outside]()), broadcast_in_dim[spread](v), x)",
    says="chosen by position instead of written in place",
    cases=each(
        x=_X, v=tensors((), (5,), dtypes=("f32", "i32")), u=_STARTS,
        b=[spread(s) for s in ((2, 3), (1, 5), (2, 2))],
    ),
)
def update_by_one_value(m: Match) -> Any:
    """A choice by place, which needs nothing of where the update lies."""
    if m.v.rank:
        return None
    starts, shape = m.u["start_indices"], m.b["shape"]
    ends = tuple(n - a - k for n, a, k in zip(m.x.shape, starts, shape, strict=True))
    return {
        "around": padding(starts, ends),
        "inside": {"value": Literal(np.broadcast_to(np.asarray(True), shape))},
        "outside": {"value": Literal(np.asarray(False))},
        "spread": m.b.updated(shape=m.x.shape),
    }


def _at_one_index(m: Match) -> Any:
    """A slice that is computed on and written back where it came from, as a choice by place of what is computed of x.

    A single index of a dimension lies in one shard, and has no window: to write it back takes as much as to tell all
    others. Windows do not move, and computing on all of x would be a waste there.
    """
    starts, shape = m.u["start_indices"], m.type("s").shape
    single = any(k == 1 < n for k, n in zip(shape, m.x.shape, strict=True))
    if not single or _sliced(m) != _box(starts, shape) or m.result.dtype != m.x.dtype:
        return None
    ends = tuple(n - a - k for n, a, k in zip(m.x.shape, starts, shape, strict=True))
    return {
        "around": padding(starts, ends),
        "inside": {"value": Literal(np.broadcast_to(np.asarray(True), shape))},
        "outside": {"value": Literal(np.asarray(False))},
    }


def _with_another(m: Match) -> Any:
    """`_at_one_index` with an operand that is there at that index alone: repeated along dimensions where it is one
    element, which costs no shard another's, and padded along the others."""
    found = _at_one_index(m)
    if not found:
        return None
    shape = tuple(n if k == 1 else k for k, n in zip(m.y.shape, m.x.shape, strict=True))
    starts = m.u["start_indices"]
    before = tuple(a if n != k else 0 for a, n, k in zip(starts, m.x.shape, shape, strict=True))
    after = tuple(n - a - k for a, n, k in zip(before, m.x.shape, shape, strict=True))
    return {
        **found,
        "spread": {"broadcast_dimensions": tuple(range(m.x.rank)), "shape": shape},
        "rest": padding(before, after),
        "v": {"value": Literal(np.zeros((), numpy_dtype(m.y.dtype)))},
    }


_CHOSEN = "select(pad[around](constant[inside](), constant[outside]()), {}, x)"
_MARKS = slices([(1, 2, 1), (1, 4, 1)], [(2, 3, 1), (2, 3, 1)], [(3, 4, 1), (0, 5, 1)])


rules.add(
    f"update_slice[u](x, unary[f](slice[s](x))) => {_CHOSEN.format('unary[f](x)')}",
    name="unary of one index",
    says="computed everywhere, kept at one index",
    cases=each(x=_X, u=_STARTS, s=_MARKS, f=["negate", "sign"]),
)(_at_one_index)

for _side, _pair in SIDES:
    rules.add(
        f"update_slice[u](x, binary[f]({_pair('slice[s](x)', 'y')})) => "
        + _CHOSEN.format(f"binary[f]({_pair('x', 'pad[rest](broadcast_in_dim[spread](y), constant[v]())')})"),
        name=f"binary of one index ({_side})",
        says="computed everywhere, kept at one index",
        cases=each(
            x=_X, y=tensors((1, 3), (1, 1), (1, 5), dtypes=("f32", "i32")), u=_STARTS, s=_MARKS,
            f=["add", "subtract", "maximum"],
        ),
    )(_with_another)
