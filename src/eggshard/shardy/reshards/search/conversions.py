"""Conversions that a module can state: addends stay apart on the way only where a sharding can say so.

``unreduced`` means a sum. Maxima and other addends are combined by one all-reduce, or reduce-scatter, before anything
else is done to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from eggshard.placement.conversions import Kind, Steps, convert
from eggshard.placement.placement import Placement
from eggshard.placement.routes import Router
from eggshard.plan.pricing import Pricer
from eggshard.plan.steps import AllReduce, ReduceScatter, Resize
from eggshard.program.types import TensorType


class StatedConversions:
    """The routes of a router, and those that begin with the reduction of addends that are no sum's."""

    def __init__(self, router: Router, pricer: Pricer):
        self.router, self.pricer = router, pricer

    def table(self, type_: TensorType, placements: Sequence[Placement]) -> np.ndarray:
        """``[P, P]``: costs from row to column; inf where there is no conversion."""
        others = [i for i, p in enumerate(placements) if p.monoid not in ("", "add")]
        combined = {i: Placement(placements[i].dims) for i in others}
        listed = list(dict.fromkeys([*placements, *combined.values()]))
        place = {p: n for n, p in enumerate(listed)}
        whole = self.router.table(type_, listed)
        out: np.ndarray = whole[: len(placements), : len(placements)].copy()
        for i in others:
            source = placements[i]
            first = self._cost(type_, source, self._all_reduce(source))
            for j, target in enumerate(placements):
                if i != j:
                    at_once = self._at_once(type_, source, target)
                    out[i, j] = whole[i, j] if at_once else first + whole[place[combined[i]], place[target]]
        return out

    def tree(self, type_: TensorType, source: Placement, targets: Iterable[Placement]) -> list[tuple[Placement, Steps]]:
        """Paths that together reach all targets, as `Router.tree` has them."""
        if source.monoid in ("", "add"):
            return self.router.tree(type_, source, targets)
        out: list[tuple[Placement, Steps]] = []
        left = []
        for target in targets:
            steps = self._at_once(type_, source, target)
            out += [(source, steps)] if steps else []
            left += [] if steps else [target]
        if left:
            combined = Placement(source.dims)
            out.append((source, self._all_reduce(source)))
            out += self.router.tree(type_, combined, [t for t in left if t != combined])
        return out

    def _at_once(self, type_: TensorType, source: Placement, target: Placement) -> Steps:
        """The one collective that leads to the target, if there is one that combines all addends; else nothing."""
        if target.partial:
            return ()
        steps = self.router.route(type_, source, target).steps
        moves = [action for action, _ in steps if not isinstance(action, Resize)]
        return steps if len(moves) == 1 and isinstance(moves[0], (AllReduce, ReduceScatter)) else ()

    def _all_reduce(self, source: Placement) -> Steps:
        return convert(self.router.mesh, Kind.ALL_REDUCE, source, Placement(source.dims))

    def _cost(self, type_: TensorType, at: Placement, steps: Steps) -> float:
        total = 0.0
        for action, after in steps:
            total += self.pricer(action, at.local_type(type_))
            at = after
        return total
