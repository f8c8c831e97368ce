"""Rules on reductions, in one step or in parts."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from eggshard.egraph.laws import each, like_zeros, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.program import monoids
from eggshard.rewrites.shapes import along, bounds_of, kept_dims, of_each, reduced, replaced, slices
from eggshard.rewrites.transpose import order_free

rules = RuleList()

#: The ops of some monoids.
_OPS = {monoid: monoids.MONOIDS[monoid].op for monoid in ("add", "max", "min")}
#: What people call their results.
_CALLED = {"add": "sum", "max": "maximum", "min": "minimum"}


def _combined(op: str, *parts: str) -> str:
    """The text that combines parts, from the first to the last."""
    return reduce(lambda made, part: f"{op}({made}, {part})", parts)


@rules.add(
    "reduce[outer](reduce[inner](x)) => reduce[both](x)",
    says="two reductions as one",
    mark="ρ",
    exact_if=lambda m: order_free(m.outer["monoid"], m),
    cases=like_zeros(
        each(
            x=tensors((2, 3, 4), dtypes=("f32", "i32")), inner=reduced((0,), (1,), (2,)),
            outer=reduced((0,), (1,), (0, 1)),
        )
    ),
)
def reduce_of_reduce(m: Match) -> Any:
    if m.inner["monoid"] != m.outer["monoid"]:
        return None
    kept = kept_dims(m.x.rank, m.inner["dimensions"])
    gone = tuple(sorted((*m.inner["dimensions"], *(kept[d] for d in m.outer["dimensions"]))))
    return {"both": m.outer.updated(dimensions=gone)}


@rules.add(
    "reduce[r](x) => reshape[s](x)",
    says="a reduction of size-1 dimensions as a reshape",
    mark="ρ",
    exact_if=lambda m: order_free(m.r["monoid"], m),
    cases=each(x=tensors((1, 3), (1, 3, 1), dtypes=("f32", "i32")), r=reduced((0,), (0, 2), (1,))),
)
def reduce_of_unit_dimensions(m: Match) -> Any:
    """Nothing to combine. Not exact for sums: one that starts from +0 loses the sign of a zero."""
    return {"s": {"shape": m.result.shape}} if all(m.x.shape[d] == 1 for d in m.r["dimensions"]) else None


def _reduce_of_concatenated(m: Match, monoid: str) -> Any:
    return m.r["monoid"] == monoid and m.c["dimension"] in m.r["dimensions"]


def _reduce_beside_concatenated(m: Match) -> Any:
    kept = kept_dims(len(m.type("c").shape), m.r["dimensions"])
    return {"d": {"dimension": kept.index(m.c["dimension"])}} if m.c["dimension"] in kept else None


for _parts in ("xy", "xyz"):
    _joined, _tensors = of_each("{}", _parts), dict.fromkeys(_parts, tensors((2, 3), (4, 3)))
    for _monoid, _op in _OPS.items():
        rules.add(
            f"reduce[r](concatenate[c]({_joined})) => {_combined(_op, *(f'reduce[r]({p})' for p in _parts))}",
            mark="ρ",
            name=f"reduce of {len(_parts)} concatenated ({_monoid})",
            says=f"{_CALLED[_monoid]} of each part, then of all",
            exact_if=lambda m: order_free(m.r["monoid"], m),
            cases=like_zeros(each(**_tensors, c=along(0, 1), r=reduced((0,), (0, 1), by=(_monoid,)))),
        )(partial(_reduce_of_concatenated, monoid=_monoid))
    rules.add(
        f"reduce[r](concatenate[c]({_joined})) => concatenate[d]({of_each('reduce[r]({})', _parts)})",
        name=f"reduce beside {len(_parts)} concatenated",
        says="each part reduced before concatenating",
        cases=each(**_tensors, c=along(0, 1), r=reduced((0,), (1,))),
    )(_reduce_beside_concatenated)


def _of_equal_slices(m: Match, n: int, monoid: str) -> Any:
    """The slices cut one dimension into n equal parts, in order. Truth values are added, but have no sums."""
    if monoid not in monoids.of_dtype(m.x.dtype):
        return None
    rows = [bounds_of(getattr(m, f"s{k}")) for k in range(n)]
    cut = [d for d, size in enumerate(m.x.shape) if rows[0][d] != (0, size, 1)]
    if len(cut) != 1 or m.x.shape[cut[0]] % n:
        return None
    (at,) = cut
    size = m.x.shape[at] // n
    if any(row != replaced(rows[0], at, (k * size, (k + 1) * size, 1)) for k, row in enumerate(rows)):
        return None
    shape = (*m.x.shape[:at], n, size, *m.x.shape[at + 1 :])
    return {"q": {"shape": shape}, "r": {"dimensions": (at,), "monoid": monoid}}


for _n in (2, 3, 4):
    for _monoid, _op in _OPS.items():
        rules.add(
            f"{_combined(_op, *(f'slice[s{k}](x)' for k in range(_n)))} => reduce[r](reshape[q](x))",
            mark="ρ",
            name=f"{_op} of {_n} equal slices",
            says=f"{_CALLED[_monoid]} of equal slices as one reduction",
            exact_if=lambda m, monoid=_monoid: order_free(monoid, m),
            cases=like_zeros(
                each(
                    x=tensors((2 * _n, 3), (2 * _n,), dtypes=("f32", "i32")),
                    **{f"s{k}": slices(*([(2 * k, 2 * k + 2, 1), *o] for o in ([], [(0, 3, 1)]))) for k in range(_n)},
                )
            ),
        )(partial(_of_equal_slices, n=_n, monoid=_monoid))
