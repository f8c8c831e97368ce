"""Resharding from and to windows: halo exchanges along one dimension after the other, routes between shardings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from eggshard.errors import ShardingError
from eggshard.placement.slabs import SlabExchange
from eggshard.placement.windows import bounding_window, inside, slab_exchange
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, is_standard, place
from eggshard.program.types import TensorType
from eggshard.reshard.conversions import Steps
from eggshard.reshard.routes import Price, Route, Router
from eggshard.steps.steps import Action
from eggshard.steps.window_steps import Crop, HaloExchange


def home(mesh: Mesh, shape: tuple[int, ...], placement: Placement) -> Placement:
    """The standard placement over the same axes."""
    return place(mesh, shape, tuple(d.axes for d in placement.dims), placement.partial, placement.monoid)


def rewindowed(mesh: Mesh, shape: tuple[int, ...], source: Placement, target: Placement) -> Steps | None:
    """The steps between placements that shard every dimension over the same axes; also from dimensions held whole.

    Dimension by dimension: what is received along one is sent on along the next, so corners need no messages of their
    own, and along which less is received than is dropped comes first. None where some index that is needed is held by
    no device, or partial values are to be combined.
    """
    if (source.partial, source.monoid) != (target.partial, target.monoid):
        return None
    found: list[tuple[float, int, SlabExchange]] = []
    for d, (n, a, b) in enumerate(zip(shape, source.dims, target.dims, strict=True)):
        if a == b:
            continue
        if a.axes != b.axes:
            if a.axes or a.windowed:
                return None
            a = Dim(b.axes, 0, 0, n)
        slabs = slab_exchange(n, mesh.count(b.axes), a, b)
        if slabs is None:
            return None
        found.append(((b.size - a.size) / slabs.width if slabs.width else -math.inf, d, slabs))
    steps: list[tuple[Action, Placement]] = []
    here = source
    for _, d, slabs in sorted(found, key=lambda x: x[0]):
        b = target.dims[d]
        here = here._replace(dims=(*here.dims[:d], b, *here.dims[d + 1 :]))
        action: Action = Crop(d, b.axes, b.size, slabs.offsets)
        if slabs.rounds:
            action = HaloExchange(d, b.axes, b.size, slabs.offsets, slabs.rounds)
        steps.append((action, here))
    return tuple(steps)


def contains(mesh: Mesh, shape: tuple[int, ...], wide: Placement, narrow: Placement) -> bool:
    """Whether every device that holds ``wide`` holds what it needs for ``narrow``; both over the same axes."""
    return all(
        a == b or (a.axes == b.axes and (
            (a.tile == b.tile and a.low <= b.low and a.high >= b.high and _specifies(n, a, b))
            or (n <= a.tile and inside(n, mesh.count(a.axes), b, a))
        ))
        for n, a, b in zip(shape, wide.dims, narrow.dims, strict=True)
    )


def bounding_window_of(shape: tuple[int, ...], windows: Iterable[Placement]) -> Placement:
    """The narrowest placement that contains all of these windows, which are of one grid."""
    along = zip(shape, zip(*(p.dims for p in windows), strict=True), strict=True)
    return Placement(tuple([bounding_window(dims, n) for n, dims in along]))


def _specifies(n: int, wide: Dim, narrow: Dim) -> bool:
    """Whether one window specifies every index that another specifies."""
    (start, stop), (first, last) = wide.specified(n), narrow.specified(n)
    return start <= first and last <= stop


def price_of(price: Callable[[Action, TensorType], float], type_: TensorType, source: Placement, steps: Steps) -> float:
    """The sum of the prices of steps from a placement."""
    total, here = 0.0, source
    for action, after in steps:
        total += price(action, here.local_type(type_))
        here = after
    return total


class WindowRouter(Router):
    """A `Router` that also leads from and to placements with windows or other than standard tiles.

    Between placements that shard over the same axes slabs are exchanged; else the way is by the standard placements
    over the source's and over the target's axes.
    """

    def __init__(self, mesh: Mesh, price: Price, max_rounds: int = 16):
        super().__init__(mesh, price, max_rounds)
        self._widened: dict[tuple[TensorType, Placement, Placement], float] = {}

    @property
    def price(self) -> Price:
        """The price of an action on shards of local types."""
        return self._price

    def route(self, type_: TensorType, source: Placement, target: Placement) -> Route:
        """The cheapest route found; ShardingError if there is none."""
        ends = [is_standard(self.mesh, type_.shape, p) for p in (source, target)]
        if source == target or all(ends) or not type_.elements:
            return super().route(type_, source, target)
        direct = rewindowed(self.mesh, type_.shape, source, target)
        if direct is not None:
            return Route(direct, price_of(self._price, type_, source, direct))
        steps: Steps = ()
        first, last = (home(self.mesh, type_.shape, p) for p in (source, target))
        for a, b in ((source, first), (last, target)):
            if a != b and rewindowed(self.mesh, type_.shape, a, b) is None:
                raise ShardingError(
                    f"no route leads from {source} to {target} of {type_}: some element that {b} needs is not held at "
                    f"{a}; compute it at a placement that covers the tensor"
                )
        steps = (rewindowed(self.mesh, type_.shape, source, first) or ()) + super().route(type_, first, last).steps
        steps += rewindowed(self.mesh, type_.shape, last, target) or ()
        return Route(steps, price_of(self._price, type_, source, steps))

    def table(self, type_: TensorType, placements: Sequence[Placement]) -> np.ndarray:
        """``[P, P]``: costs of the cheapest routes from row to column; inf where there is none, 0 on the diagonal.

        Only from windows, not to them: what a value is widened to is priced by `widened`, once for all its users.
        """
        odd = [i for i, p in enumerate(placements) if not is_standard(self.mesh, type_.shape, p)]
        if not odd or not type_.elements:
            return super().table(type_, placements)
        homes = [home(self.mesh, type_.shape, p) for p in placements]
        standard = list(dict.fromkeys(homes))
        number = [standard.index(h) for h in homes]
        out: np.ndarray = super().table(type_, standard)[np.ix_(number, number)]
        out[:, odd] = math.inf
        for i in odd:
            out[i] += self.widened(type_, placements[i], homes[i])
            out[i, i] = 0.0
        return out

    def widened(self, type_: TensorType, source: Placement, target: Placement) -> float:
        """The cost of slabs from one window to another over the same axes; inf where they do not lead there."""
        key = (type_, source, target)
        cost = self._widened.get(key)
        if cost is None:
            steps = rewindowed(self.mesh, type_.shape, source, target)
            cost = math.inf if steps is None else price_of(self._price, type_, source, steps)
            self._widened[key] = cost
        return cost

    def tree(self, type_: TensorType, source: Placement, targets: Iterable[Placement]) -> list[tuple[Placement, Steps]]:
        """Paths that together reach all targets: (where it starts, its steps), in order."""
        wanted = list(targets)
        if not type_.elements or all(is_standard(self.mesh, type_.shape, p) for p in (source, *wanted)):
            return super().tree(type_, source, wanted)
        return [(source, self.route(type_, source, target).steps) for target in wanted if target != source]
