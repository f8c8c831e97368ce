"""Reshard routes: the cheapest sequence of collectives from one placement of a tensor to another, under any prices.

Routes are shortest paths over a space of placements (`eggshard.reshard.states`) whose edges are single collectives,
padded where uneven, and point-to-point redistributions. Prices are asked once per class of equal steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from eggshard.errors import ShardingError
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, missing_elements, tile_size
from eggshard.program.types import TensorType, element_bytes
from eggshard.reshard.conversions import Kind, Steps, convert
from eggshard.reshard.searched_states import searched, state_of
from eggshard.reshard.states import AxisList, Class, State, StateSpace, state_space
from eggshard.steps.exchange import exchange
from eggshard.steps.steps import Action, Resize

#: Prices that differ by less than this fraction are a tie, which goes to fewer messages, then to fewer steps.
TIE = 1e-12

Price = Callable[[Action, TensorType], float]


@dataclass(frozen=True, slots=True)
class Route:
    """A reshard: ``(action, placement after it)`` in order, and the sum of their prices."""

    steps: Steps
    cost: float

    @property
    def messages(self) -> int:
        """The number of collectives issued."""
        return sum(action.messages for action, _ in self.steps)


class Router:
    """Finds reshards on one mesh under one price. Of a tensor without elements nothing is sent.

    price: of an action on a shard of a local type, finite and not negative; prices of steps add up. Two actions of
    one kind over the same axes, with equal sizes and messages, must have one price. max_rounds: exchanges of more
    rounds are not considered. pairwise: nor are all-to-alls in which axes of one dimension go to several, or axes of
    several to one, of which Shardy has none.
    """

    def __init__(self, mesh: Mesh, price: Price, max_rounds: int = 16, pairwise: bool = False):
        self.mesh, self._price, self.max_rounds, self.pairwise = mesh, price, max_rounds, pairwise
        self.cut = False  # whether exchanges of too many rounds were left out of what was asked for so far
        self._graphs: dict[TensorType, list[_Graph]] = {}
        self._costs: dict[tuple[TensorType, Placement, Placement], float] = {}

    def route(self, type_: TensorType, source: Placement, target: Placement) -> Route:
        """The cheapest route found; ShardingError if there is none, e.g. between partial placements of two monoids."""
        if source == target:
            return Route((), 0.0)
        if not type_.elements:
            resize = Resize(target.local_shape)
            return Route(((resize, target),), self._price(resize, source.local_type(type_)))
        graph, (start, end) = self._graph(type_, (source, target))
        path = graph.path(start, end)
        steps = graph.steps(path)
        return Route(steps, graph.cost(start, steps))

    def table(self, type_: TensorType, placements: Sequence[Placement]) -> np.ndarray:
        """``[P, P]``: costs of the cheapest routes from row to column; inf where there is none, 0 on the diagonal."""
        if not placements:
            return np.zeros((0, 0))
        if not type_.elements:
            return np.array([[self.route(type_, a, b).cost for b in placements] for a in placements])
        graph, numbers = self._graph(type_, placements)
        out: np.ndarray = graph.closure()[np.ix_(numbers, numbers)]
        return out

    def cost(self, type_: TensorType, source: Placement, target: Placement) -> float:
        """The cost of the cheapest route, inf where there is none."""
        key = (type_, source, target)
        known = self._costs.get(key)
        if known is None and not type_.elements:
            known = self._costs[key] = self.route(type_, source, target).cost
        if known is None:
            graph, (start, end) = self._graph(type_, (source, target))
            known = self._costs[key] = float(graph.costs_from(start)[end])
        return known

    def tree(self, type_: TensorType, source: Placement, targets: Iterable[Placement]) -> list[tuple[Placement, Steps]]:
        """Paths that together reach all targets: (where it starts, its steps), in order.

        A path starts at the source or at a placement on an earlier path. Greedily, the next target is the one that is
        cheapest from anything reached so far; each target gets its try at being the first, and the best tree wins.
        ShardingError if a target cannot be reached.
        """
        if not type_.elements:
            routes = {target: self.route(type_, source, target) for target in targets if target != source}
            return [(source, route.steps) for route in routes.values()]
        graph, (start, *ends) = self._graph(type_, (source, *targets))
        wanted = sorted({*ends} - {start})
        if not wanted:
            return []
        trees = (graph.tree(start, first, wanted) for first in wanted)
        _, paths = min(trees, key=lambda tree: tree[0])
        return [(graph.placement(path[0]), graph.steps(path)) for path in paths]

    def detours(self, type_: TensorType, source: Placement, target: Placement, count: int) -> list[Route]:
        """Up to ``count`` routes by other collectives than the cheapest one's, by way of one placement each or in one
        step; the cheapest first."""
        if source == target or not type_.elements:
            return []
        graph, (start, end) = self._graph(type_, (source, target))
        return [Route(steps, graph.cost(start, steps)) for steps in graph.detours(start, end, count)]

    def lower_bound(self, type_: TensorType, source: Placement, target: Placement) -> float:
        """Bytes that the device which misses most must receive, whatever the collectives."""
        missing = missing_elements(self.mesh, type_.shape, source, target)
        return float(missing.max()) * element_bytes(type_.dtype)

    def _graph(self, type_: TensorType, placements: Sequence[Placement]) -> tuple[_Graph, list[int]]:
        """A priced graph that has these placements, and their numbers in it: one at hand, or a new one."""
        graphs = self._graphs.setdefault(type_, [])
        for graph in graphs:
            numbers = graph.numbers(placements)
            if numbers is not None:
                return graph, numbers
        active, states = searched(self.mesh, type_.shape, placements)
        graph = _Graph(self.mesh, type_, active, states, self._price, self.max_rounds, self.pairwise)
        self.cut |= graph.space.cut
        numbers = graph.numbers(placements)
        assert numbers is not None
        graphs.append(graph)
        return graph, numbers


class _Graph:
    """The states of one tensor type, with the price of each one-step conversion."""

    def __init__(self, mesh: Mesh, type_: TensorType, active: tuple[int, ...], states: tuple[State, ...],
                 price: Price, max_rounds: int, pairwise: bool):
        self.mesh, self.type, self._price = mesh, type_, price
        self._ahead: Callable[[Iterable[tuple[Action, TensorType]]], object] = getattr(price, "ahead", list)
        # Sizes that all axes divide make the same structure, whatever they are.
        whole = mesh.count(sorted({a for s in states for axes in s.axes for a in axes}))
        sizes = tuple(whole if n and n % whole == 0 else n for n in (type_.shape[i] for i in active))
        self.space: StateSpace = state_space(mesh, sizes, states, max_rounds)
        self._active = active
        self._whole = [Dim((), n) for n in type_.shape]
        self._dims: list[dict[AxisList, Dim]] = [{} for _ in active]
        self._placements: list[Placement | None] = [None] * len(states)
        self._number: dict[Placement, int] = {}
        collective, exchanged = self._collective_prices(), self._exchange_prices()
        by_collective = collective[0][self.space.collective_class]
        if pairwise:
            by_collective[self.space.regrouping] = math.inf
        by_exchange = exchanged[0][self.space.exchange_class]
        self._exchange = by_exchange < by_collective
        self._edges = np.minimum(by_exchange, by_collective)
        messages = np.where(self._exchange, exchanged[1][self.space.exchange_class],
                            collective[1][self.space.collective_class])
        communicates = self._edges[(messages > 0) & (self._edges > 0)]
        unit = TIE * float(communicates.min(initial=1.0))
        self._ranked = self._edges + unit * (messages + 0.01)
        self._closure: np.ndarray | None = None
        self._costs_from: dict[int, np.ndarray] = {}
        self._hops: dict[tuple[int, int], Steps] = {}

    def placement(self, number: int) -> Placement:
        """The placement of a state, with the standard tiles."""
        known = self._placements[number]
        if known is None:
            state, dims = self.space.states[number], self._whole.copy()
            for i, axes, seen in zip(self._active, state.axes, self._dims, strict=True):
                dim = seen.get(axes)
                if dim is None:
                    n = self.type.shape[i]
                    dim = seen[axes] = Dim(axes, tile_size(n, self.mesh.count(axes), self.mesh.size))
                dims[i] = dim
            known = self._placements[number] = Placement(tuple(dims), state.partial, state.monoid)
        return known

    def numbers(self, placements: Sequence[Placement]) -> list[int] | None:
        """The numbers of placements, or None if some are no states here; ShardingError for tiles of other sizes."""
        out = []
        for placement in placements:
            number = self._number.get(placement)
            if number is None:
                number = self.space.number.get(state_of(placement, self._active))
                if number is None or any(d.axes for i, d in enumerate(placement.dims) if i not in self._active):
                    return None
                if self.placement(number) != placement:
                    raise ShardingError(
                        f"no routes lead from or to placement {placement} of {self.type} with tiles "
                        f"{placement.local_shape}: routes are between standard tiles, here "
                        f"{self.placement(number).local_shape}; use place()"
                    )
                self._number[placement] = number
            out.append(number)
        return out

    def _collective_prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Price and messages of each class of collectives, then of no conversion at all (inf, 0)."""
        classes = self.space.collectives
        prices, messages = np.full(len(classes) + 1, math.inf), np.zeros(len(classes) + 1)
        shapeless = [self.space.shapeless.get((self._active, i)) for i in range(len(classes))]
        self._ahead((action, self.placement(c.source).local_type(self.type))
                    for action, c in zip(shapeless, classes, strict=True) if action is not None)
        for i, c in enumerate(classes):
            source, action = self.placement(c.source), shapeless[i]
            if action is not None:
                prices[i], messages[i] = self._price(action, source.local_type(self.type)), action.messages
                continue
            assert c.kind is not None
            steps = convert(self.mesh, c.kind, source, self.placement(c.target))
            prices[i], messages[i] = self.cost(c.source, steps), sum(action.messages for action, _ in steps)
            if self.space.even and c.kind != Kind.RELABEL:
                self.space.shapeless[self._active, i] = steps[0][0]
        return prices, messages

    def _exchange_prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Price and messages of each class of exchanges, then of no conversion at all (inf, 0)."""
        classes = self.space.exchanges
        prices, messages = np.full(len(classes) + 1, math.inf), np.zeros(len(classes) + 1)
        made = [(self._exchanging(c), self.placement(c.source).local_type(self.type)) for c in classes]
        self._ahead(made)
        for i, (action, local) in enumerate(made):
            prices[i], messages[i] = self._price(action, local), action.messages
        return prices, messages

    def _exchanging(self, c: Class) -> Action:
        source, target = self.placement(c.source), self.placement(c.target)
        return exchange(self.mesh, self.type.shape, source, target, c.over, c.cells, c.rounds)

    def closure(self) -> np.ndarray:
        """``[S, S]``: the costs of cheapest routes (Floyd and Warshall)."""
        if self._closure is None:
            costs = self._edges.copy()
            np.fill_diagonal(costs, 0.0)
            sums = np.empty_like(costs)
            for k in range(len(costs)):
                np.add(costs[:, k, None], costs[k], out=sums)
                np.minimum(costs, sums, out=costs)
            self._closure = costs
        return self._closure

    def costs_from(self, start: int) -> np.ndarray:
        """``[S]``: the costs of cheapest routes from one state."""
        if self._closure is not None:
            out: np.ndarray = self._closure[start]
            return out
        known = self._costs_from.get(start)
        if known is None:
            known = self._costs_from[start] = _shortest(self._edges, [start])[0]
        return known

    def tree(self, start: int, first: int, ends: Sequence[int]) -> tuple[float, list[list[int]]]:
        """Ranked cost and paths of a greedy tree that reaches ``first`` first."""
        paths: list[list[int]] = []
        total, reached, left = 0.0, {start}, {*ends}
        while left:
            distance, before = _shortest(self._ranked, sorted(reached))
            end = min(left, key=lambda n: (distance[n], n)) if paths else first
            paths.append(self._path(distance, before, start, end))
            total += float(distance[end])
            reached.update(paths[-1])
            left.difference_update(reached)
        return total, paths

    def detours(self, start: int, end: int, count: int) -> list[Steps]:
        """Paths by other collectives than the cheapest's, each the cheapest through one state, or a single edge; the
        cheapest first, and no two by the same."""
        through = self.closure()[start] + self.closure()[:, end]
        through[start] = math.inf
        through[end] = self._edges[start, end]
        found: dict[tuple[str, ...], Steps | None] = {_collectives(self.steps(self.path(start, end))): None}
        for middle in np.argsort(through, kind="stable").tolist():
            if len(found) > count or not math.isfinite(through[middle]):
                break
            path = [start, end] if middle == end else self.path(start, middle) + self.path(middle, end)[1:]
            steps = self.steps(path)
            found.setdefault(_collectives(steps), steps)
        return [steps for steps in found.values() if steps is not None]

    def path(self, start: int, end: int) -> list[int]:
        """The states on the cheapest path; ShardingError if there is none."""
        return self._path(*_shortest(self._ranked, [start]), start, end)

    def _path(self, distance: np.ndarray, before: np.ndarray, start: int, end: int) -> list[int]:
        if not math.isfinite(distance[end]):
            raise ShardingError(
                f"no sequence of collectives leads from {self.placement(start)} to {self.placement(end)} of "
                f"{self.type}"
            )
        path = [end]
        while before[path[-1]] >= 0:
            path.append(int(before[path[-1]]))
        return path[::-1]

    def steps(self, path: Sequence[int]) -> Steps:
        """The steps along a path of states."""
        return tuple(step for p, q in zip(path, path[1:], strict=False) for step in self._hop(p, q))

    def _hop(self, p: int, q: int) -> Steps:
        steps = self._hops.get((p, q))
        if steps is None:
            source, target = self.placement(p), self.placement(q)
            if self._exchange[p, q]:
                steps = ((self._exchanging(self.space.exchange(p, q)), target),)
            else:
                kind = self.space.collectives[self.space.collective_class[p, q]].kind
                assert kind is not None
                steps = convert(self.mesh, kind, source, target)
            self._hops[p, q] = steps
        return steps

    def cost(self, start: int, steps: Steps) -> float:
        """The sum of the prices of steps from a state."""
        total, local = 0.0, self.placement(start).local_type(self.type)
        for action, after in steps:
            total += self._price(action, local)
            local = after.local_type(self.type)
        return total


def _collectives(steps: Steps) -> tuple[str, ...]:
    """The kinds of the steps that send something."""
    return tuple(action.kind for action, _ in steps if action.messages)


def _shortest(edges: np.ndarray, starts: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Distances from the nearest start over a matrix of edges, and predecessors (Bellman and Ford)."""
    count = len(edges)
    distance, before = np.full(count, math.inf), np.full(count, -1)
    distance[list(starts)] = 0.0
    fresh = np.array(sorted(starts))
    while fresh.size:
        through = distance[fresh, None] + edges[fresh]
        best = through.argmin(axis=0)
        costs = through[best, np.arange(count)]
        via = fresh[best]
        fresh = np.nonzero(costs < distance)[0]
        distance[fresh], before[fresh] = costs[fresh], via[fresh]
    return distance, before
