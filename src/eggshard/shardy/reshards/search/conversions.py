"""Conversions that a module can state: addends stay apart on the way only where a sharding can say so.

``unreduced`` means a sum. Maxima and other addends are combined by one all-reduce, or reduce-scatter, before anything
else is done to them. Between placements without addends a conversion is one reshard, whose collectives are planned
later, by parts of axes; here it costs what routes over such parts cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eggshard.placement.conversions import Kind, Steps, convert
from eggshard.placement.placement import Placement
from eggshard.placement.routes import Router
from eggshard.placement.sharding import atoms, whole_mesh
from eggshard.plan.pricing import Pricer
from eggshard.plan.steps import Action, AllReduce, ReduceScatter, Resize
from eggshard.program.mesh import Mesh, axis_ref
from eggshard.program.types import TensorType


@dataclass(frozen=True, slots=True)
class Reshard(Action):
    """Shards move by whatever collectives are planned for it."""

    kind: ClassVar[str] = "reshard"


class StatedConversions:
    """The routes of a router, and those that begin with the reduction of addends that are no sum's.

    finer: routes on the mesh of the axes' parts, for moves without addends.
    """

    def __init__(self, router: Router, pricer: Pricer, finer: Router | None = None):
        self.router, self.pricer, self.finer = router, pricer, finer
        #: Per type the placements without addends that there are.
        self._known: dict[TensorType, dict[Placement, None]] = {}

    def table(self, type_: TensorType, placements: Sequence[Placement]) -> np.ndarray:
        """``[P, P]``: costs from row to column; inf where there is no conversion."""
        others = [i for i, p in enumerate(placements) if p.monoid not in ("", "add")]
        combined = {i: Placement(placements[i].dims) for i in others}
        listed = list(dict.fromkeys([*placements, *combined.values()]))
        place = {p: n for n, p in enumerate(listed)}
        whole = self._moved(type_, listed, self.router.table(type_, listed))
        out: np.ndarray = whole[: len(placements), : len(placements)].copy()
        for i in others:
            source = placements[i]
            first = self._cost(type_, source, self._all_reduce(source))
            for j, target in enumerate(placements):
                if i != j:
                    at_once = self._at_once(type_, source, target)
                    out[i, j] = whole[i, j] if at_once else first + whole[place[combined[i]], place[target]]
        return out

    def _moved(self, type_: TensorType, placements: Sequence[Placement], costs: np.ndarray) -> np.ndarray:
        """The costs where moves may go by parts of axes, in as many reshards as there are placements on the way."""
        plain = [i for i, p in enumerate(placements) if not p.partial]
        self._known.setdefault(type_, {}).update(dict.fromkeys(placements[i] for i in plain))
        if self.finer is None or len(plain) < 2:
            return costs
        costs = costs.copy()
        square = np.ix_(plain, plain)
        moves = np.minimum(costs[square], self.finer.table(type_, [self._fine(placements[i]) for i in plain]))
        for k in range(len(plain)):
            np.minimum(moves, moves[:, k, None] + moves[k], out=moves)
        costs[square] = moves
        for i in set(range(len(placements))).difference(plain):
            costs[i, plain] = np.minimum(costs[i, plain], (costs[i, plain][:, None] + moves).min(axis=0))
        return costs

    def _fine(self, placement: Placement) -> Placement:
        assert self.finer is not None
        dims = tuple(
            d._replace(axes=tuple(part for a in d.axes for part in atoms(axis_ref(a), self.finer.mesh)))
            for d in placement.dims
        )
        return Placement(dims)

    def tree(self, type_: TensorType, source: Placement, targets: Iterable[Placement]) -> list[tuple[Placement, Steps]]:
        """Paths that together reach all targets, as `Router.tree` has them."""
        out: list[tuple[Placement, Steps]] = []
        left = list(targets)
        if source.monoid not in ("", "add"):
            at_once = {t: steps for t in left if (steps := self._at_once(type_, source, t))}
            out += [(source, steps) for steps in at_once.values()]
            left = [t for t in left if t not in at_once]
            if left:
                out.append((source, self._all_reduce(source)))
                source = Placement(source.dims)
        left = [t for t in left if t != source]
        if self.finer is None:
            return out + (self.router.tree(type_, source, left) if left else [])
        shared = [t for t in left if t.partial]
        for target in left:
            if not target.partial:
                stop = self._stop(type_, source, target)
                if stop is None:
                    shared.append(target)
                    continue
                if stop != source and not any(stop == steps[-1][1] for _, steps in out) and stop not in shared:
                    shared.append(stop)
                out.append((stop, ((Reshard(), target),)))
        return (self.router.tree(type_, source, shared) if shared else []) + out

    def _stop(self, type_: TensorType, source: Placement, target: Placement) -> Placement | None:
        """From where a reshard by parts of axes leads to the target, if that is cheaper than a route."""
        assert self.finer is not None
        route = self.router.cost(type_, source, target)
        stops = [source] if not source.partial else list(self._known.get(type_, ()))
        best, found = route * (1 - 1e-9), None
        for stop in stops:
            cost = self.finer.cost(type_, self._fine(stop), self._fine(target))
            cost += self.router.cost(type_, source, stop) if stop != source else 0.0
            if cost < best:
                best, found = cost, stop
        return found

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


def parts_of(mesh: Mesh) -> Mesh:
    """The mesh whose axes are the prime parts of another's, the major ones the smallest."""
    cuts: dict[str, list[int]] = {}
    for name, size in mesh.axes.items():
        axis, pre, factor = axis_ref(name), 1, 2
        start = axis.pre if axis.size else 1
        found = cuts.setdefault(axis.name, [])
        found += [start, start * size]
        while size > 1:
            while size % factor == 0:
                size //= factor
                pre *= factor
                found.append(start * pre)
            factor += 1
    return whole_mesh(mesh).refined(cuts)
