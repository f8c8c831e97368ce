"""Rules that split a dimension into as many parts as a mesh can make shards, so that each part is computed in place.

JAX lowers cumsum, cumprod, cummax and cummin to sliding windows that reach one end of a dimension. Each part is reduced
by itself, and only the totals of the parts travel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eggshard.egraph.laws import each, like_zeros, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.program import monoids
from eggshard.rewrites.shapes import replaced, slice_of, spread

rules = RuleList()


def _parts(n: int, shard_counts: Sequence[int]) -> int:
    """The largest number of shards that divides a dimension of size n, 0 if none leaves several parts of several."""
    return max((c for c in shard_counts if c > 1 and n % c == 0 and n // c > 1), default=0)


def scan(shape: Sequence[int], at: int, size: int, monoid: str, low: int, high: int) -> dict[str, Any]:
    """A sliding window of this size along one dimension, padded on either side."""
    ones = (1,) * len(shape)
    return {
        "monoid": monoid,
        "window_dimensions": replaced(ones, at, size),
        "window_strides": ones,
        "base_dilations": ones,
        "window_dilations": ones,
        "padding": replaced(((0, 0),) * len(shape), at, (low, high)),
    }


def _scanned(m: Match) -> tuple[int, bool] | None:
    """The dimension that a window accumulates along, and whether from its last element on; None for other windows."""
    sizes = m.w["window_dimensions"]
    moved = [d for d, size in enumerate(sizes) if size != 1]
    if len(moved) != 1:
        return None
    at, n = moved[0], m.x.shape[moved[0]]
    for backwards, edge in ((False, (n - 1, 0)), (True, (0, n - 1))):
        if m.w.updated(**scan(m.x.shape, at, n, m.w["monoid"], *edge)) == m.w:
            return at, backwards
    return None


_CASES = each(
    x=tensors((8,), (9,), (2, 12), (12, 2), (7,), dtypes=("f32", "i32")),
    w=[
        scan((n,) if rank == 1 else (n, 2) if at == 0 else (2, n), at, n, monoid, *edge)
        for rank, at, n in ((1, 0, 8), (1, 0, 9), (1, 0, 7), (2, 0, 12), (2, 1, 12))
        for edge in ((n - 1, 0), (0, n - 1))
        for monoid in monoids.MONOIDS
    ],
)
_OWN = "reduce_window[own](reshape[cut](x))"
#: What people call the result of some monoids; the others go by their own names, in capitals.
_CALLED = {"add": "sum", "mul": "product", "max": "maximum", "min": "minimum"}
#: Where the order of combining shows in rounding.
_ROUNDED = ("add", "mul")

for _monoid, (_op, _) in monoids.MONOIDS.items():

    @rules.add(
        f"reduce_window[w](x) => reshape[join]({_op}(broadcast_in_dim[spread](reduce_window[before]("
        f"slice[most](slice[totals]({_OWN})))), {_OWN}))",
        name=f"scan by parts: {_monoid}",
        says=f"cumulative {_CALLED.get(_monoid, _monoid.upper())} within equal parts, then across them",
        mark="ρ" if _monoid in _ROUNDED else "=",
        cases=like_zeros(_CASES),
    )
    def _scan_by_parts(m: Match, monoid: str = _monoid) -> Any:
        """The largest number of shards that divides the dimension is the number of parts."""
        found = _scanned(m) if m.w["monoid"] == monoid else None
        if found is None:
            return None
        at, backwards = found
        n = m.x.shape[at]
        count = _parts(n, m.shard_counts)
        if not count:
            return None
        length = n // count
        cut = (*m.x.shape[:at], count, length, *m.x.shape[at + 1 :])
        totals = replaced(cut, at + 1, 1)
        end, most = (0, (1, count, 1)) if backwards else (length - 1, (0, count - 1, 1))
        edges = (0, length - 1) if backwards else (length - 1, 0)
        reach = (0, count - 1) if backwards else (count - 1, 0)
        return {
            "cut": {"shape": cut},
            "own": scan(cut, at + 1, length, monoid, *edges),
            "totals": slice_of(replaced([(0, k, 1) for k in cut], at + 1, (end, end + 1, 1))),
            "most": slice_of(replaced([(0, k, 1) for k in totals], at, most)),
            "before": scan(totals, at, count - 1, monoid, *reach),
            "spread": spread(cut, *range(len(cut))),
            "join": {"shape": m.x.shape},
        }
