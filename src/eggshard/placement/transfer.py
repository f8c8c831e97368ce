"""Transfer rules: derive from an op's factors its strategies, the placements that compute it without communication.

A strategy gives each mesh axis one role: it shards a factor, passes partial sums through (a linear role), or
replicates. The operands' and results' placements follow.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar

from eggshard.ops.base import PASS, REDUCE, FactorRule
from eggshard.placement.view import NONE, Role, View, assigned
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, tile_size

T = TypeVar("T")
#: Mesh axes, major to minor.
AxisList = tuple[str, ...]
#: Per dimension the factors that make it up, major to minor.
TensorDims = tuple[tuple[int, ...], ...]
#: (operand, dimension, axes, size, monoid): overwrite what lies past the end before the op reduces over it.
MaskSpec = tuple[int, int, tuple[str, ...], int, str]


class Strategy(NamedTuple):
    """Placements of an op's operands and results between which no data moves, and the masks its operands need.

    positional: what a device computes depends on where its shards lie, and the op is written out on them. regroups:
    data does move, by an exchange that is the op itself.
    """

    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    masks: tuple[MaskSpec, ...] = ()
    positional: bool = False
    regroups: bool = False


class Enumeration(NamedTuple):
    """Strategies of an op; cut: there are others."""

    found: tuple[Strategy, ...]
    cut: bool


class Assignment(NamedTuple):
    """Mesh axes, each with its role: the number of a factor, or, behind the factors, of a linear role; -1 for none.

    Axes of one factor shard it in the order in which they stand here, major to minor.
    """

    axes: AxisList
    roles: tuple[int, ...]


def enumerated(
    mesh: Mesh,
    rule: FactorRule,
    orders: frozenset[AxisList] = frozenset(),
    partial_allowed: Callable[[str], bool] = lambda monoid: True,
    limit: int = 4096,
    sparse: bool = False,
    view: Callable[[], View] = View,
) -> Enumeration:
    """All strategies of an op on a mesh, replication first, or ``limit`` of them.

    orders: axis tuples, besides those in mesh order, in which a dimension may be sharded. partial_allowed: whether
    partial values of a monoid may exist (false for float sums where reassociation is forbidden). sparse: also those
    that share out a factor among more devices than it has indices. view: asked where there are more than ``limit``;
    those kept are then the view's own, whatever the limit, and of the others the nearest to it. Without one they are
    the first.
    """
    allowed = frozenset(m for m in ("add", "mul", "max", "min", "and", "or", "xor") if partial_allowed(m))
    found = _strategies(mesh, rule, orders, allowed, limit, sparse)
    if not found.cut:
        return found
    seen = view()
    return found if seen.is_blind else _nearest(mesh, rule, orders, allowed, limit, sparse, seen)


def useful(s: Strategy, partial_sums: Sequence[Collection[str]]) -> bool:
    """Whether some operand that is partial in the strategy can hold partial values at all; the others join it for free.

    They join the op's own partial values as well, where it reduces over an axis that shards another operand.
    partial sums: per operand the monoids under which it can hold some.
    """
    partial = [(i, p.monoid) for i, p in enumerate(s.operands) if p.partial]
    if not partial or any(monoid in partial_sums[i] for i, monoid in partial):
        return True
    sharded = {axis for p in s.operands for axis in p.sharded_axes}
    return all(sharded.issuperset(p.partial) for p in s.operands)


@lru_cache(maxsize=16384)
def _strategies(
    mesh: Mesh, rule: FactorRule, orders: frozenset[AxisList], allowed: frozenset[str], limit: int, sparse: bool
) -> Enumeration:
    """The strategies in order of enumeration, the first axis varying slowest."""
    axes = tuple(a for a, n in mesh.axes.items() if n > 1)
    roles = _roles(rule, allowed, sparse)
    given = assigned([mesh.axes[a] for a in axes], [roles] * len(axes))
    return _resolved(mesh, rule, orders, (Assignment(axes, some) for some in given), limit)


@lru_cache(maxsize=16384)
def _nearest(
    mesh: Mesh, rule: FactorRule, orders: frozenset[AxisList], allowed: frozenset[str], limit: int, sparse: bool,
    view: View,
) -> Enumeration:
    """The strategies nearest to what is in view."""
    roles = _roles(rule, allowed, sparse)
    own = [Assignment(axes, given) for axes, given in view.own(mesh, rule, roles)]
    kept = _resolved(mesh, rule, orders, own, math.inf)
    near = (Assignment(axes, given) for axes, given in view.nearest(mesh, rule, roles))
    return _resolved(mesh, rule, orders, near, limit, kept.found)


def _resolved(
    mesh: Mesh, rule: FactorRule, orders: frozenset[AxisList], assignments: Iterable[Assignment], limit: float,
    kept: Iterable[Strategy] = (),
) -> Enumeration:
    """The strategies of assignments, behind those that are kept in any case, until there are ``limit``."""
    resolver = _Resolver(mesh, rule, orders)
    found = dict.fromkeys(kept)
    for n, assignment in enumerate(_in_all_orders(assignments, len(rule.factors), orders)):
        if n >= 4 * limit:
            return Enumeration(tuple(found), True)
        strategy = resolver.strategy(assignment)
        if strategy is not None and strategy not in found:
            if len(found) >= limit:
                return Enumeration(tuple(found), True)
            found[strategy] = None
    return Enumeration(tuple(found), False)


def _roles(rule: FactorRule, allowed: frozenset[str], sparse: bool) -> tuple[Role, ...]:
    """What an axis may do in an op."""
    count = len(rule.factors)
    roles = [
        Role(i, math.inf if sparse and f.kind == PASS else f.size, f.monoid if f.kind == REDUCE else None)
        for i, f in enumerate(rule.factors)
        if f.size > 1 and (f.kind == PASS or (f.kind == REDUCE and f.monoid in allowed))
    ]
    return NONE, *roles, *(Role(count + j, math.inf, m) for j, (m, _) in enumerate(rule.linear) if m in allowed)


def _in_all_orders(
    assignments: Iterable[Assignment], count: int, orders: frozenset[AxisList]
) -> Iterator[Assignment]:
    """Assignments, each with its axes in mesh order and in the orders in use. count: how many roles are factors."""
    for axes, given in assignments:
        yield Assignment(axes, given)
        shared = [r for r in dict.fromkeys(given) if 0 <= r < count and given.count(r) > 1]
        places = [[i for i, r in enumerate(given) if r == role] for role in shared]
        options = [_orders(tuple(axes[i] for i in where), orders) for where in places]
        for picked in itertools.islice(itertools.product(*options), 1, None):  # the first is mesh order
            ordered = list(axes)
            for where, order in zip(places, picked, strict=True):
                for i, axis in zip(where, order, strict=True):
                    ordered[i] = axis
            yield Assignment(tuple(ordered), given)


def _orders(axes: tuple[str, ...], orders: frozenset[AxisList]) -> list[tuple[str, ...]]:
    """Mesh order first, then the other orders in use."""
    if len(axes) == 1:
        return [axes]
    return [axes, *(o for o in itertools.permutations(axes) if o != axes and _in_use(o, orders))]


def _in_use(order: tuple[str, ...], orders: frozenset[AxisList]) -> bool:
    return any(order == tuple(a for a in other if a in order) for other in orders)


class _Resolver:
    """Resolve assignments of roles to mesh axes into strategies."""

    def __init__(self, mesh: Mesh, rule: FactorRule, orders: frozenset[AxisList]):
        self.mesh, self.rule, self.orders = mesh, rule, orders
        #: Per role the monoid of the partial values that it makes.
        self._monoids = [*(f.monoid for f in rule.factors), *(monoid for monoid, _ in rule.linear)]
        first = len(rule.factors)
        reduced = {f for f, factor in enumerate(rule.factors) if factor.kind == REDUCE}
        self._positional = {f for f, factor in enumerate(rule.factors) if factor.positional}
        passed = [
            {first + j for j, (_, who) in enumerate(rule.linear) if i in who}
            | {f for f, factor in enumerate(rule.factors) if i in factor.accumulators}
            for i in range(len(rule.operands))
        ]
        results = reduced.union(range(first, len(self._monoids)))
        self._dim = cache(self._placed_dim)
        made = cache(self._tensor)  # tensors of the same factors share what is found
        self._operands = [made(dims, frozenset(p)) for dims, p in zip(rule.operands, passed, strict=True)]
        self._results = [made(dims, frozenset(results)) for dims in rule.results]
        #: Operand, dimension and factor where an op may reduce over what lies past a tensor's end. One that knows the
        #: place of its shards leaves that out.
        self._uneven = [
            (i, d, parts[0]) for i, tensor in enumerate(self._operands) for d, parts in enumerate(tensor.dims)
            if len(parts) == 1 and parts[0] in reduced - self._positional and rule.factors[parts[0]].size % mesh.size
        ]

    def _tensor(self, dims: TensorDims, partial: frozenset[int]) -> _Tensor:
        dims = tuple(tuple(f for f in parts if self.rule.factors[f].size != 1) for parts in dims)
        of_factors = {f for parts in dims for f in parts}
        seen = [r if r in of_factors or r in partial else -1 for r in range(len(self._monoids))]
        return _Tensor(dims, partial, (*seen, -1), {})

    def strategy(self, assignment: Assignment) -> Strategy | None:
        """The placements of an assignment; None where it shards some dimension in no usual way."""
        operands = _whole([self._placement(tensor, assignment) for tensor in self._operands])
        results = _whole([self._placement(tensor, assignment) for tensor in self._results])
        if operands is None or results is None:
            return None
        masks = []
        for i, d, f in self._uneven:
            dim, factor = operands[i].dims[d], self.rule.factors[f]
            if dim.axes and dim.tile * self.mesh.count(dim.axes) != factor.size:
                masks.append((i, d, dim.axes, factor.size, factor.monoid))
        return Strategy(operands, results, tuple(masks), not self._positional.isdisjoint(assignment.roles))

    def _placement(self, tensor: _Tensor, assignment: Assignment) -> Placement | None:
        """Return a tensor's placement under an assignment, cached for all assignments that look the same to it."""
        seen = tensor.seen
        key = assignment.axes, tuple([seen[r] for r in assignment.roles])
        if key not in tensor.known:
            tensor.known[key] = self._placed(tensor, Assignment(*key))
        return tensor.known[key]

    def _placed(self, tensor: _Tensor, assignment: Assignment) -> Placement | None:
        by_role: dict[int, AxisList] = {}
        for axis, role in zip(*assignment, strict=True):
            by_role[role] = (*by_role.get(role, ()), axis)
        dims = _whole([self._dim(parts, tuple([by_role.get(f, ()) for f in parts])) for parts in tensor.dims])
        if dims is None:
            return None
        partial_sums = [r for r in by_role if r in tensor.partial]
        if not partial_sums:
            return Placement(dims)
        partial = {a for r in partial_sums for a in by_role[r]}
        return Placement(dims, tuple([a for a in self.mesh.axes if a in partial]), self._monoids[partial_sums[0]])

    def _placed_dim(self, parts: tuple[int, ...], by_part: tuple[AxisList, ...]) -> Dim | None:
        """A dimension of these factors over these axes; None where that is no placement.

        Where several factors make it up they split evenly, and a minor one only once the major ones are split whole.
        """
        mesh, sizes = self.mesh, [self.rule.factors[f].size for f in parts]
        counts = [mesh.count(axes) for axes in by_part]
        if len(parts) == 1:
            return Dim(by_part[0], tile_size(sizes[0], counts[0], mesh.size))
        axes: AxisList = ()
        tile, whole = 1, False
        for n, count, more in zip(sizes, counts, by_part, strict=True):
            if n % count or (whole and count > 1):
                return None
            axes, tile, whole = axes + more, tile * (n // count), whole or n > count
        in_mesh_order = axes == tuple([a for a in mesh.axes if a in axes])
        return Dim(axes, tile) if in_mesh_order or _in_use(axes, self.orders) else None


def _whole(found: list[T | None]) -> tuple[T, ...] | None:
    """Return all elements as a tuple, or None if any of them is None."""
    present = tuple([x for x in found if x is not None])
    return present if len(present) == len(found) else None


class _Tensor(NamedTuple):
    """A tensor of an op.

    dims: its factors but those of size 1. partial: the roles by which it has partial values. seen: per role itself if
    its placement depends on that, else -1 (at index -1 as well). known: placements found.
    """

    dims: TensorDims
    partial: frozenset[int]
    seen: tuple[int, ...]
    known: dict[tuple[AxisList, tuple[int, ...]], Placement | None]
