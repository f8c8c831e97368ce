"""Rules on reductions, in one step or in parts."""

from __future__ import annotations

from typing import Any

from eggshard.egraph.laws import each, like_zeros, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.monoids import MONOIDS
from eggshard.rewrites.shapes import bounds_of, kept_dims, replaced, slice_of
from eggshard.rewrites.transpose import order_free

rules = RuleList()

_CUBE = tensors((2, 3, 4), dtypes=("f32", "i32"))


def _reduces(*dims: tuple[int, ...]) -> list[dict[str, Any]]:
    return [{"dimensions": d, "monoid": o} for d in dims for o in ("add", "max")]


@rules.add(
    "reduce[outer](reduce[inner](x)) => reduce[both](x)",
    mark="ρ",
    exact_if=lambda m: order_free(m.outer["monoid"], m),
    cases=like_zeros(each(x=_CUBE, inner=_reduces((0,), (1,), (2,)), outer=_reduces((0,), (1,), (0, 1)))),
)
def reduce_of_reduce(m: Match) -> Any:
    if m.inner["monoid"] != m.outer["monoid"]:
        return None
    kept = kept_dims(m.x.rank, m.inner["dimensions"])
    gone = tuple(sorted((*m.inner["dimensions"], *(kept[d] for d in m.outer["dimensions"]))))
    return {"both": m.outer.updated(dimensions=gone)}


@rules.add(
    "reduce[r](x) => reshape[s](x)",
    mark="ρ",
    exact_if=lambda m: order_free(m.r["monoid"], m),
    cases=each(x=tensors((1, 3), (1, 3, 1), dtypes=("f32", "i32")), r=_reduces((0,), (0, 2), (1,))),
)
def reduce_of_unit_dimensions(m: Match) -> Any:
    """Nothing to combine. Not exact for sums: one that starts from +0 loses the sign of a zero."""
    return {"s": {"shape": m.result.shape}} if all(m.x.shape[d] == 1 for d in m.r["dimensions"]) else None


for _n in (2, 3):
    _parts = "xyz"[:_n]
    for _monoid, (_op, _) in ((k, v) for k, v in MONOIDS.items() if k in ("add", "max", "min")):
        _made = f"{_op}(reduce[r](x), reduce[r](y))"
        if _n == 3:
            _made = f"{_op}({_made}, reduce[r](z))"

        @rules.add(
            f"reduce[r](concatenate[c]({', '.join(_parts)})) => {_made}",
            mark="ρ",
            name=f"reduce of {_n} concatenated ({_monoid})",
            exact_if=lambda m: order_free(m.r["monoid"], m),
            cases=like_zeros(
                each(
                    **dict.fromkeys(_parts, tensors((2, 3), (4, 3))),
                    c=[{"dimension": 0}, {"dimension": 1}],
                    r=[{"dimensions": d, "monoid": _monoid} for d in ((0,), (0, 1))],
                )
            ),
        )
        def _reduce_of_concatenated(m: Match, monoid: str = _monoid) -> Any:
            return m.r["monoid"] == monoid and m.c["dimension"] in m.r["dimensions"]

    @rules.add(
        f"reduce[r](concatenate[c]({', '.join(_parts)})) => "
        f"concatenate[d]({', '.join(f'reduce[r]({p})' for p in _parts)})",
        name=f"reduce beside {_n} concatenated",
        cases=each(
            **dict.fromkeys(_parts, tensors((2, 3), (4, 3))),
            c=[{"dimension": 0}, {"dimension": 1}],
            r=_reduces((0,), (1,)),
        ),
    )
    def _reduce_beside_concatenated(m: Match) -> Any:
        kept = kept_dims(len(m.type("c").shape), m.r["dimensions"])
        return {"d": {"dimension": kept.index(m.c["dimension"])}} if m.c["dimension"] in kept else None


for _n in (2, 3, 4):
    for _monoid, (_op, _) in ((k, v) for k, v in MONOIDS.items() if k in ("add", "max", "min")):
        _made = "slice[s0](x)"
        for _k in range(1, _n):
            _made = f"{_op}({_made}, slice[s{_k}](x))"

        @rules.add(
            f"{_made} => reduce[r](reshape[q](x))",
            mark="ρ",
            name=f"{_op} of {_n} equal slices",
            exact_if=lambda m, monoid=_monoid: order_free(monoid, m),
            cases=like_zeros(
                each(
                    x=tensors((2 * _n, 3), (2 * _n,), dtypes=("f32", "i32")),
                    **{
                        f"s{k}": [slice_of([(2 * k, 2 * k + 2, 1)]), slice_of([(2 * k, 2 * k + 2, 1), (0, 3, 1)])]
                        for k in range(_n)
                    },
                )
            ),
        )
        def _sum_of_equal_slices(m: Match, n: int = _n, monoid: str = _monoid) -> Any:
            """The slices cut one dimension into n equal parts, in order."""
            rows = [bounds_of(getattr(m, f"s{k}")) for k in range(n)]
            cut = [d for d, size in enumerate(m.x.shape) if rows[0][d] != (0, size, 1)]
            if len(cut) != 1:
                return None
            (at,) = cut
            size = m.x.shape[at] // n
            if size * n != m.x.shape[at] or any(
                row != replaced(rows[0], at, (k * size, (k + 1) * size, 1))
                for k, row in enumerate(rows)
            ):
                return None
            shape = (*m.x.shape[:at], n, size, *m.x.shape[at + 1 :])
            return {"q": {"shape": shape}, "r": {"dimensions": (at,), "monoid": monoid}}
