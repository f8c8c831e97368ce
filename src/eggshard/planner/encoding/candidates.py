"""Pruning of candidate placements to a cap per class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eggshard.program.placement import Placement
from eggshard.selection.candidates import Shard, within_cap
from eggshard.selection.problem import Choice, Problem

#: The placement of a value, those of an op's results, or None where a choice only picks among those of another class.
Listed = Placement | tuple[Placement, ...] | None


def kept_choices(
    problem: Problem, placements: Sequence[Sequence[Listed]], pinned: Iterable[Shard], cap: int
) -> list[list[Choice]]:
    """The choices among at most ``cap`` placements of each class, those of the cheapest plans, and ``pinned`` ones.

    Every class keeps its choice over the fewest axes, mostly replication, so that some plan remains under every cap. Of
    equally cheap placements all classes prefer the same ones, so that values pass from one to the next as they lie.
    """
    number: dict[Listed, int] = {}
    order = [[number.setdefault(p, len(number)) for p in listed] for listed in placements]
    axes = {p: _axes(p) for p in number}
    return within_cap(problem, pinned, [[axes[p] for p in listed] for listed in placements], order, cap)


def _axes(placement: Listed) -> int:
    """Over how many axes the placement spreads something."""
    if placement is None:
        return 0
    return len(placement.used_axes) if isinstance(placement, Placement) else sum(map(_axes, placement))
