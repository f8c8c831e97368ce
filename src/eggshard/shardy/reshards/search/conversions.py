"""Reshardings that a module can state: partial values stay partial on the way only where a sharding can say so.

``unreduced`` means a sum. Maxima and other partial values are combined by one all-reduce, or reduce-scatter, before
anything else is done to them. Between placements without partial values a conversion is one reshard, whose collectives
are planned later by parts of axes; here it costs what routes over such parts cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import ClassVar

import numpy as np

from eggshard.costmodel.pricing import Pricer
from eggshard.program.axes import axis_ref
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, place
from eggshard.program.sharding import atoms, whole_mesh
from eggshard.program.types import TensorType
from eggshard.reshard.conversions import Kind, Steps, convert
from eggshard.reshard.routes import Router
from eggshard.shardy.reshards.collectives.parts import prime_factors
from eggshard.steps.steps import Action


@dataclass(frozen=True, slots=True)
class Reshard(Action):
    """Shards move by whatever collectives are planned for it."""

    kind: ClassVar[str] = "reshard"


class StatedConversions:
    """The routes of a router, and those that begin with the reduction of partial values that are no sum's.

    finer: routes on the mesh of the axes' parts, for moves without partial values.
    """

    def __init__(self, router: Router, pricer: Pricer, finer: Router | None = None):
        self.router, self.pricer, self.finer = router, pricer, finer
        #: Per type the placements without partial values that there are.
        self._known: dict[TensorType, dict[Placement, None]] = {}

    def table(self, type_: TensorType, placements: Sequence[Placement]) -> np.ndarray:
        """``[P, P]``: costs from row to column; inf where there is no conversion."""
        others = [i for i, p in enumerate(placements) if p.monoid not in ("", "add")]
        first = {i: self._combined(type_, placements[i]) for i in others}
        listed = list(dict.fromkeys([*placements, *(p for found in first.values() for p in found)]))
        number = {p: n for n, p in enumerate(listed)}
        whole = self._moved(type_, listed, self.router.table(type_, listed))
        out: np.ndarray = whole[: len(placements), : len(placements)].copy()
        for i, found in first.items():
            rows = [cost + whole[number[p], : len(placements)] for p, (_, cost) in found.items()]
            out[i] = np.minimum.reduce(rows)
            out[i, [j for j, p in enumerate(placements) if p.partial]] = np.inf
            out[i, i] = 0.0
        return out

    def _combined(self, type_: TensorType, source: Placement) -> dict[Placement, tuple[Steps, float]]:
        """What one collective can make of partial values, all of them combined: steps and cost. On every device, or
        scattered over a dimension."""
        mesh, found = self.router.mesh, {}
        scattered = [
            place(mesh, type_.shape, tuple(
                (*d.axes, *source.partial) if i == at else d.axes for i, d in enumerate(source.dims)))
            for at, n in enumerate(type_.shape)
            if n and n % mesh.count((*source.dims[at].axes, *source.partial)) == 0
        ]
        for target in (Placement(source.dims), *scattered):
            kind = Kind.REDUCE_SCATTER if target.sharded_axes != source.sharded_axes else Kind.ALL_REDUCE
            steps = convert(mesh, kind, source, target)
            found[target] = steps, self._cost(type_, source, steps)
        return found

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
            d._replace(axes=atoms(map(axis_ref, d.axes), self.finer.mesh))
            for d in placement.dims
        )
        return Placement(dims)

    def tree(self, type_: TensorType, source: Placement, targets: Iterable[Placement]) -> list[tuple[Placement, Steps]]:
        """Paths that together reach all targets, as `Router.tree` has them."""
        if source.monoid not in ("", "add"):
            return self._combining(type_, source, targets)
        out: list[tuple[Placement, Steps]] = []
        left = [t for t in targets if t != source]
        if self.finer is None:
            return self.router.tree(type_, source, left) if left else []
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
        """Return the placement from which a reshard by sub-axes leads to the target; None if a route is cheaper."""
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

    def _combining(
        self, type_: TensorType, source: Placement, targets: Iterable[Placement]
    ) -> list[tuple[Placement, Steps]]:
        """Combine all partial values first: as is best for each target."""
        found, users = self._combined(type_, source), dict[Placement, list[Placement]]()
        for target in targets:
            best = min(found, key=lambda p: found[p][1] + self._move(type_, p, target))
            users.setdefault(best, []).append(target)
        out: list[tuple[Placement, Steps]] = []
        for start, reached in users.items():
            out += [(source, found[start][0]), *self.tree(type_, start, reached)]
        return out

    def _move(self, type_: TensorType, source: Placement, target: Placement) -> float:
        cost = self.router.cost(type_, source, target)
        if self.finer is None or source.partial or target.partial:
            return cost
        return min(cost, self.finer.cost(type_, self._fine(source), self._fine(target)))

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
        axis = axis_ref(name)
        start = axis.pre if axis.size else 1
        cuts.setdefault(axis.name, []).extend(accumulate(prime_factors(size), mul, initial=start))
    return whole_mesh(mesh).refined(cuts)
