"""Transfer rules: from an op's factors to its strategies, the placements at which it is computed without communication.

A strategy gives each mesh axis one role: shard a factor, pass addends through (a linear role), or replicate. The
operands' and results' placements follow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

from eggshard.placement.placement import Dim, Placement, tile_size
from eggshard.program.mesh import Mesh
from eggshard.program.ops.base import PASS, REDUCE, Factor, FactorRule

#: (operand, dimension, axes, size, monoid): overwrite what lies past the end before the op reduces over it.
MaskSpec = tuple[int, int, tuple[str, ...], int, str]


class Strategy(NamedTuple):
    """Placements of an op's operands and results between which no data moves, and the masks its operands need."""

    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]
    masks: tuple[MaskSpec, ...] = ()


class Assignment(NamedTuple):
    """Axes per factor (major to minor), and the axes over which a linear role passes addends."""

    factors: tuple[tuple[str, ...], ...]
    linear: tuple[tuple[str, ...], ...]


def strategies(
    mesh: Mesh,
    rule: FactorRule,
    orders: frozenset[tuple[str, ...]] = frozenset(),
    partial_allowed: Callable[[str], bool] = lambda monoid: True,
    limit: int = 4096,
) -> tuple[Strategy, ...]:
    """All strategies of an op on a mesh, replication first; at most ``limit`` (in order of enumeration).

    orders: axis tuples, besides those in mesh order, in which a dimension may be sharded. partial_allowed: whether
    addends of a monoid may exist (false for float sums where reassociation is forbidden).
    """
    allowed = frozenset(m for m in ("add", "mul", "max", "min", "and", "or", "xor") if partial_allowed(m))
    return _strategies(mesh, rule, orders, allowed, limit)


@lru_cache(maxsize=16384)
def _strategies(
    mesh: Mesh, rule: FactorRule, orders: frozenset[tuple[str, ...]], allowed: frozenset[str], limit: int
) -> tuple[Strategy, ...]:
    composite = _composite_factors(rule)
    found: dict[Strategy, None] = {}
    rank = {axis: i for i, axis in enumerate(mesh.axes)}

    def usual(dim: Dim) -> bool:
        in_mesh_order = list(dim.axes) == sorted(dim.axes, key=rank.__getitem__)
        return in_mesh_order or _in_use(dim.axes, orders)

    for assignment in itertools.islice(_assignments(mesh, rule, orders, allowed), limit * 4):
        strategy = _resolve(mesh, rule, assignment, composite)
        if strategy is not None and all(usual(d) for p in (*strategy.operands, *strategy.results) for d in p.dims):
            found[strategy] = None
            if len(found) >= limit:
                break
    return tuple(found)


def _assignments(
    mesh: Mesh, rule: FactorRule, orders: frozenset[tuple[str, ...]], allowed: frozenset[str]
) -> Iterable[Assignment]:
    axes = [a for a, n in mesh.axes.items() if n > 1]
    shardable = [
        i for i, f in enumerate(rule.factors)
        if f.size > 1 and (f.kind == PASS or (f.kind == REDUCE and f.monoid in allowed))
    ]
    linear = [j for j, (monoid, _) in enumerate(rule.linear) if monoid in allowed]
    roles = [-1, *shardable, *(len(rule.factors) + j for j in linear)]
    for choice in itertools.product(roles, repeat=len(axes)):
        per_factor: dict[int, list[str]] = {}
        for axis, role in zip(axes, choice, strict=True):
            if role >= 0:
                per_factor.setdefault(role, []).append(axis)
        if any(
            r < len(rule.factors) and mesh.count(a) > rule.factors[r].size for r, a in per_factor.items()
        ) or not _one_monoid(rule, per_factor):
            continue
        options = [
            [(role, order) for order in _orders(tuple(a), orders)] if role < len(rule.factors) else [(role, tuple(a))]
            for role, a in per_factor.items()
        ]
        for picked in itertools.product(*options):
            by_role = dict(picked)
            yield Assignment(
                tuple(by_role.get(i, ()) for i in range(len(rule.factors))),
                tuple(by_role.get(len(rule.factors) + j, ()) for j in range(len(rule.linear))),
            )


def _orders(axes: tuple[str, ...], orders: frozenset[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Mesh order first, then the other orders in use."""
    if len(axes) == 1:
        return [axes]
    return [axes, *(o for o in itertools.permutations(axes) if o != axes and _in_use(o, orders))]


def _in_use(order: tuple[str, ...], orders: frozenset[tuple[str, ...]]) -> bool:
    return any(order == tuple(a for a in other if a in order) for other in orders)


def _one_monoid(rule: FactorRule, roles: dict[int, list[str]]) -> bool:
    """Addends of a tensor combine by one monoid: all reducing roles of a strategy must agree on it."""
    count = len(rule.factors)
    monoids = {
        rule.factors[r].monoid if r < count else rule.linear[r - count][0]
        for r in roles
        if r >= count or rule.factors[r].kind == REDUCE
    }
    return len(monoids) <= 1


def _composite_factors(rule: FactorRule) -> frozenset[int]:
    """Factors that share some dimension with another factor of size above 1: they split evenly or not at all."""
    out: set[int] = set()
    for tensor in (*rule.operands, *rule.results):
        for dim in tensor:
            real = [f for f in dim if rule.factors[f].size > 1]
            if len(real) > 1:
                out.update(real)
    return frozenset(out)


def _resolve(mesh: Mesh, rule: FactorRule, assignment: Assignment, composite: frozenset[int]) -> Strategy | None:
    counts = [mesh.count(a) for a in assignment.factors]
    if any(rule.factors[f].size % counts[f] for f in composite):
        return None
    by_factor = zip(rule.factors, assignment.factors, strict=True)
    reduced = tuple(a for factor, axes in by_factor if factor.kind == REDUCE for a in axes)
    passed = tuple(a for axes in assignment.linear for a in axes)
    monoid = _monoid(rule, assignment)
    operands, masks = [], []
    for i, dims in enumerate(rule.operands):
        placed = _dims(mesh, rule.factors, dims, assignment, counts)
        if placed is None:
            return None
        partial = tuple(
            a for (_, who), axes in zip(rule.linear, assignment.linear, strict=True) if i in who for a in axes
        )
        operands.append(_placement(mesh, placed, partial, monoid))
        for d, factors in enumerate(dims):
            if len(factors) == 1 and rule.factors[factors[0]].kind == REDUCE:
                f = factors[0]
                size, count = rule.factors[f].size, counts[f]
                if count > 1 and placed[d].tile * count != size:
                    masks.append((i, d, assignment.factors[f], size, rule.factors[f].monoid))
    results = []
    for dims in rule.results:
        placed = _dims(mesh, rule.factors, dims, assignment, counts)
        if placed is None:
            return None
        results.append(_placement(mesh, placed, reduced + passed, monoid))
    return Strategy(tuple(operands), tuple(results), tuple(masks))


def _monoid(rule: FactorRule, assignment: Assignment) -> str:
    for factor, axes in zip(rule.factors, assignment.factors, strict=True):
        if axes and factor.kind == REDUCE:
            return factor.monoid
    for (monoid, _), axes in zip(rule.linear, assignment.linear, strict=True):
        if axes:
            return monoid
    return ""


def _placement(mesh: Mesh, dims: tuple[Dim, ...], partial: tuple[str, ...], monoid: str) -> Placement:
    if not partial:
        return Placement(dims)
    return Placement(dims, tuple(a for a in mesh.axes if a in partial), monoid)


def _dims(
    mesh: Mesh,
    factors: tuple[Factor, ...],
    dims: tuple[tuple[int, ...], ...],
    assignment: Assignment,
    counts: list[int],
) -> tuple[Dim, ...] | None:
    """Placed dimensions; None where a minor factor is sharded although a major one of the same dimension is whole."""
    out = []
    for parts in dims:
        if not parts:
            out.append(Dim((), 1))
            continue
        if len(parts) == 1:
            f = parts[0]
            out.append(Dim(assignment.factors[f], tile_size(factors[f].size, counts[f], mesh.size)))
            continue
        axes: tuple[str, ...] = ()
        tile, whole = 1, False
        for f in parts:
            if counts[f] > 1:
                if whole:
                    return None
                axes += assignment.factors[f]
            tile *= factors[f].size // counts[f]
            whole = whole or factors[f].size > counts[f]
        out.append(Dim(axes, tile))
    return tuple(out)
