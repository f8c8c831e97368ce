"""The state space of planned reshards: arrangements of mesh-axis parts, and the single collectives between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, permutations, product
from typing import NamedTuple

from eggshard.errors import MeshError
from eggshard.program.axes import Axes, AxisRef, Sizes, in_mesh_order, merged
from eggshard.program.mesh import Mesh
from eggshard.shardy.attributes import Exchange
from eggshard.shardy.reshards.collectives.kinds import Move

#: More orders of prime factors than this are not tried.
MOST_PARTITIONS = 4

#: Numbers of parts, per dimension major to minor.
Arrangement = tuple[tuple[int, ...], ...]


class State(NamedTuple):
    """A sharding: the mesh it is on (the first, or the last), its parts per dimension, and those of partial values."""

    mesh: int
    dims: Arrangement
    partial_sums: tuple[int, ...] = ()


class Edge(NamedTuple):
    """A collective to a state; group: devices that exchange; the other fields are those of a `Move`, by parts."""

    kind: str
    state: State
    group: int = 1
    dims: Arrangement = ()
    axes: tuple[int, ...] = ()
    exchanges: tuple[tuple[tuple[int, ...], int, int], ...] = ()


def partitions(sizes: Sizes, axes: Iterable[AxisRef], names: Iterable[str], primes: bool) -> list[Axes]:
    """Parts of the named axes such that the given ones are made of them, in several orders of prime factors.

    Empty if there are none, because sub-axes do not fit together.
    """
    cuts: dict[str, set[int]] = {}
    for axis in axes:
        cuts.setdefault(axis.name, set()).update(axis.span(sizes))
    try:
        Mesh(sizes).refined(cuts)
    except MeshError:
        return []
    options: list[list[Axes]] = []
    for name in sizes:
        if name in names:
            for part in AxisRef(name).cut(cuts.get(name, ()), sizes):
                options.append(_orders(part, sizes) if primes else [(part,)])
    while math.prod(map(len, options)) > MOST_PARTITIONS:
        longest = max(range(len(options)), key=lambda i: len(options[i]))
        options[longest] = options[longest][:-1]
    single = {name for name in sizes if sizes[name] == 1} - set(cuts)
    return [tuple(p for parts in choice for p in parts if p.name not in single) for choice in product(*options)]


def prime_factors(n: int) -> list[int]:
    """The prime factors of a number, ascending."""
    factors, p = [], 2
    while n > 1:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
    return factors


def _orders(part: AxisRef, sizes: Sizes) -> list[Axes]:
    """A part cut into its prime factors, ascending and descending."""
    factors = prime_factors(part.devices(sizes))
    out: list[Axes] = []
    for order in (factors, factors[::-1]):
        points = [part.pre * math.prod(order[:i]) for i in range(len(order))]
        parts = part.cut(points, sizes)
        if parts not in out:
            out.append(parts)
    return out


class Parts:
    """The shardings that are made of some parts of axes.

    fixed: axes that both source and target begin with stay where they are.
    """

    def __init__(self, sizes: Sizes, parts: Axes, source: Sequence[Axes], target: Sequence[Axes], fixed: bool) -> None:
        self.sizes, self.parts = sizes, parts
        self.size = [part.devices(sizes) for part in parts]
        self.kept: Arrangement = tuple(() for _ in source)
        if fixed:
            pairs = zip(self.of(source), self.of(target), strict=True)
            self.kept = tuple(before[: _common(before, after)] for before, after in pairs)
        self.free = frozenset(range(len(parts))) - {part for dim in self.kept for part in dim}
        self._axes: dict[Arrangement, tuple[Axes, ...]] = {}

    @property
    def states(self) -> int:
        """How many shardings there are."""
        n, rank = len(self.free), max(len(self.kept), 1)
        return sum(math.perm(n, k) * math.comb(k + rank - 1, rank - 1) for k in range(n + 1))

    def of(self, dims: Sequence[Axes]) -> Arrangement:
        """The parts of axes per dimension."""
        return tuple(tuple(part for axis in axes for part in self._inside(axis)) for axes in dims)

    def set_of(self, axes: Axes) -> tuple[int, ...]:
        """The parts of a set of axes, in order."""
        return tuple(sorted(part for axis in axes for part in self._inside(axis)))

    def _inside(self, axis: AxisRef) -> list[int]:
        return [i for i, part in enumerate(self.parts) if axis.contains(part)]

    def merged(self, parts: Sequence[int]) -> Axes:
        """Parts as axes, major to minor."""
        return merged((self.parts[i] for i in parts), self.sizes)

    def in_mesh_order(self, parts: Sequence[int]) -> Axes:
        """Parts as a set of axes."""
        return in_mesh_order((self.parts[i] for i in parts), self.sizes)

    def axes(self, dims: Arrangement) -> tuple[Axes, ...]:
        """An arrangement as axes per dimension."""
        if dims not in self._axes:
            self._axes[dims] = tuple(map(self.merged, dims))
        return self._axes[dims]

    def count(self, parts: Iterable[int]) -> int:
        return math.prod(self.size[i] for i in parts)

    def move(self, edge: Edge) -> Move:
        """The collective of an edge."""
        exchanges = (Exchange(self.merged(parts), i, j) for parts, i, j in sorted(edge.exchanges, key=lambda e: e[1]))
        return Move(
            edge.kind, self.axes(edge.state.dims), self.in_mesh_order(edge.state.partial_sums),
            tuple(map(self.merged, edge.dims)), self.in_mesh_order(edge.axes), tuple(exchanges))

    # -- edges -------------------------------------------------------------------------------------------------------

    def edges(self, state: State, goal: State, shape: tuple[int, ...], at_once: bool = False) -> Iterator[Edge]:
        """The single collectives that apply to a sharding; no dimension without elements is sharded.

        at_once: partial values that the goal does not have are to be reduced before anything else, all together.
        """
        spare = len(set(state.partial_sums) - set(goal.partial_sums))
        if at_once and spare:
            yield from self._reductions(state, goal, shape, spare)
            return
        yield from self._slices(state, shape)
        yield from self._gathers(state)
        yield from self._exchanges(state, shape)
        yield from self._permutes(state, goal)
        if state.partial_sums or goal.partial_sums:
            yield from self._reductions(state, goal, shape)

    def _slices(self, state: State, shape: tuple[int, ...]) -> Iterator[Edge]:
        used = {part for dim in state.dims for part in dim} | set(state.partial_sums)
        for part in sorted(self.free - used):
            for i in range(len(shape)):
                if shape[i]:
                    dims = _appended(state.dims, i, (part,))
                    sliced = State(state.mesh, dims, state.partial_sums)
                    yield Edge("all_slice", sliced, dims=_at(len(shape), i, (part,)))

    def _gathers(self, state: State) -> Iterator[Edge]:
        loose = [len(dim) - len(kept) for dim, kept in zip(state.dims, self.kept, strict=True)]
        for taken in product(*(range(n + 1) for n in loose)):
            if any(taken):
                ends = [len(dim) - n for dim, n in zip(state.dims, taken, strict=True)]
                gathered = tuple(dim[end:] for dim, end in zip(state.dims, ends, strict=True))
                left = tuple(dim[:end] for dim, end in zip(state.dims, ends, strict=True))
                group = self.count(part for dim in gathered for part in dim)
                yield Edge("all_gather", State(state.mesh, left, state.partial_sums), group, dims=gathered)

    def _exchanges(self, state: State, shape: tuple[int, ...]) -> Iterator[Edge]:
        """All-to-alls, also several between different dimensions at once."""
        single = [
            (dim[end:], i, j)
            for i, dim in enumerate(state.dims) for end in range(len(self.kept[i]), len(dim))
            for j in range(len(shape)) if j != i and shape[j]
        ]
        for n in range(1, len(shape) // 2 + 1):
            for chosen in combinations(single, n):
                touched = [dim for _, i, j in chosen for dim in (i, j)]
                if len(set(touched)) < len(touched):
                    continue
                dims = state.dims
                for parts, i, j in chosen:
                    dims = _appended(_replaced(dims, i, dims[i][: len(dims[i]) - len(parts)]), j, parts)
                group = self.count(part for parts, _, _ in chosen for part in parts)
                yield Edge("all_to_all", State(state.mesh, dims, state.partial_sums), group, exchanges=chosen)

    def _permutes(self, state: State, goal: State) -> Iterator[Edge]:
        counts = tuple(self.count(dim[len(kept):]) for dim, kept in zip(state.dims, self.kept, strict=True))
        available = self.free - set(state.partial_sums)
        for loose in _arrangements(counts, available, tuple(self.size)):
            dims = tuple(kept + more for kept, more in zip(self.kept, loose, strict=True))
            if dims != state.dims or goal.mesh != state.mesh:
                yield Edge("collective_permute", State(goal.mesh, dims, state.partial_sums))

    def _reductions(self, state: State, goal: State, shape: tuple[int, ...], least: int = 1) -> Iterator[Edge]:
        """Ops that make partial values or reduce them, at least so many parts."""
        spare = [part for part in state.partial_sums if part not in goal.partial_sums]
        for n in range(least, len(spare) + 1):
            for chosen in combinations(spare, n):
                left = tuple(part for part in state.partial_sums if part not in chosen)
                group = self.count(chosen)
                yield Edge("all_reduce", State(state.mesh, state.dims, left), group, axes=chosen)
                for scattered in _spread(chosen, tuple(bool(extent) for extent in shape)):
                    dims = tuple(a + b for a, b in zip(state.dims, scattered, strict=True))
                    yield Edge("reduce_scatter", State(state.mesh, dims, left), group, dims=scattered)
        wanted = set(goal.partial_sums) - set(state.partial_sums)
        unused = tuple(sorted(wanted - {part for dim in state.dims for part in dim}))
        if unused:
            partial_sums = tuple(sorted((*state.partial_sums, *unused)))
            yield Edge("replicated_to_unreduced", State(state.mesh, state.dims, partial_sums), axes=unused)
        for i, dim in enumerate(state.dims):
            if dim and dim[-1] in wanted:
                dims = _replaced(state.dims, i, dim[:-1])
                partial_sums = tuple(sorted((*state.partial_sums, dim[-1])))
                placed = _at(len(shape), i, dim[-1:])
                yield Edge("sharded_to_unreduced", State(state.mesh, dims, partial_sums), dims=placed)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    n = 0
    while n < min(len(first), len(second)) and first[n] == second[n]:
        n += 1
    return n


def _replaced(dims: Arrangement, i: int, parts: tuple[int, ...]) -> Arrangement:
    return (*dims[:i], parts, *dims[i + 1 :])


def _appended(dims: Arrangement, i: int, parts: tuple[int, ...]) -> Arrangement:
    return _replaced(dims, i, dims[i] + parts)


def _at(rank: int, i: int, parts: tuple[int, ...]) -> Arrangement:
    return tuple(parts if j == i else () for j in range(rank))


@lru_cache(maxsize=1024)
def _arrangements(
    counts: tuple[int, ...], available: frozenset[int], sizes: tuple[int, ...]
) -> tuple[Arrangement, ...]:
    """All arrangements of available parts that make these numbers of shards."""
    if not counts:
        return ((),)
    out = []
    for first in _sequences(counts[0], available, sizes):
        out += [(first, *rest) for rest in _arrangements(counts[1:], available - set(first), sizes)]
    return tuple(out)


@lru_cache(maxsize=4096)
def _sequences(count: int, available: frozenset[int], sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """All sequences of available parts whose sizes multiply to a number."""
    if count == 1:
        return ((),)
    return tuple(
        (part, *rest) for part in sorted(available) if count % sizes[part] == 0
        for rest in _sequences(count // sizes[part], available - {part}, sizes)
    )


@lru_cache(maxsize=1024)
def _spread(parts: tuple[int, ...], dims: tuple[bool, ...]) -> tuple[Arrangement, ...]:
    """All ways to put all parts, in any order, on the dimensions that may have some."""
    out = []
    for order in permutations(parts):
        for edges in combinations(range(len(order) + len(dims) - 1), len(dims) - 1):
            bounds = [-1, *edges, len(order) + len(dims) - 1]
            starts = [bounds[i] + 1 - i for i in range(len(dims))]
            stops = [bounds[i + 1] - i for i in range(len(dims))]
            spread = tuple(order[a:b] for a, b in zip(starts, stops, strict=True))
            if all(allowed or not given for allowed, given in zip(dims, spread, strict=True)):
                out.append(spread)
    return tuple(out)
