"""What a program's shardings put in view: which roles of mesh axes are worth trying where not all can be.

Roles that some tensor of that shape is known to have an axis play come first, then other roles of axes that the program
uses, and last those of axes that it names nowhere. These are interchangeable, so all of them first play one role.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from eggshard.ops.base import FactorRule
from eggshard.program.mesh import Mesh

#: Per dimension of a tensor the mesh axes that shard it, major to minor.
Spread = tuple[tuple[str, ...], ...]
#: The spreads of an op's operands, then of its results; None where nothing is known.
Spreads = tuple[Spread | None, ...]

#: How far a role is from what is known: of an axis that the program uses, of one that it does not.
_USED, _UNUSED = 1, 3


class Role(NamedTuple):
    """What an axis may do: the role's number, how many parts it may cut, and the monoid of its partial values."""

    number: int
    size: float
    monoid: str | None


#: The role of an axis along which everything is replicated.
NONE = Role(-1, math.inf, None)


class View(NamedTuple):
    """What is known of where tensors lie, as far as it concerns one op.

    used: the axes that some sharding of the program names. known: per operand, then per result, the spreads of tensors
    of its shape. instances: the spreads of ops like this one in the program.
    """

    used: frozenset[str] = frozenset()
    known: tuple[tuple[Spread, ...], ...] = ()
    instances: tuple[Spreads, ...] = ()

    @property
    def is_blind(self) -> bool:
        """Whether nothing is known."""
        return not self.used

    def own(
        self, mesh: Mesh, rule: FactorRule, roles: Sequence[Role]
    ) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """The axes and roles by which the op is computed where some of its tensors are known to lie."""
        by_number = {role.number: role for role in roles}
        axes = tuple(a for a, n in mesh.axes.items() if n > 1)
        sizes = [mesh.axes[a] for a in axes]
        tensors = (*rule.operands, *rule.results)
        given: dict[tuple[int, ...], None] = {(-1,) * len(axes): None}
        singles = [[None] * i + [spread] for i, spreads in enumerate(self.known) for spread in spreads]
        for spreads in (*self.instances, *map(tuple, singles)):
            rows = [
                _roles_in(mesh, rule, dims, spread) for dims, spread in zip(tensors, spreads, strict=False)
                if spread is not None]
            for order in (rows, rows[::-1], *([row] for row in rows)):
                merged: dict[str, int] = {}
                for row in order:
                    merged = {**row, **merged}
                given[tuple([merged.get(a, -1) if merged.get(a) in by_number else -1 for a in axes])] = None
        for some in given:
            yield axes, _fitting(sizes, some, by_number)

    def nearest(
        self, mesh: Mesh, rule: FactorRule, roles: Sequence[Role]
    ) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
        """All axes and roles, the nearest to what is known first; such that agree on unused axes before others."""
        axes = tuple(a for a, n in mesh.axes.items() if n > 1)
        idle = [a for a in axes if a not in self.used]
        together = [(a,) for a in axes if a in self.used] + ([tuple(idle)] if idle else [])
        for units in (together, [(a,) for a in axes]) if len(idle) > 1 else ([(a,) for a in axes],):
            where = {a: i for i, unit in enumerate(units) for a in unit}
            far = [self._distances(mesh, rule, roles, unit) for unit in units]
            sizes = [mesh.count(unit) for unit in units]
            for total in range(sum(max(row.values()) for row in far) + 1):
                for given in _at_distance(sizes, roles, far, total):
                    yield axes, tuple([given[where[a]] for a in axes])

    def _distances(self, mesh: Mesh, rule: FactorRule, roles: Sequence[Role], unit: Sequence[str]) -> dict[int, int]:
        """How far each role is from what is known of these axes."""
        near = {-1}
        for dims, spreads in zip((*rule.operands, *rule.results), self.known, strict=False):
            for spread in spreads:
                near.update(role for axis, role in _roles_in(mesh, rule, dims, spread).items() if axis in unit)
        far = _USED if all(a in self.used for a in unit) else _UNUSED
        return {role.number: 0 if role.number in near else far for role in roles}


def assigned(
    sizes: Sequence[int], roles: Sequence[Sequence[Role]], given: tuple[int, ...] = (), monoid: str | None = None
) -> Iterator[tuple[int, ...]]:
    """All ways to give axes of these sizes one of their roles each, after the first ones whose roles are given.

    Partial sums of a tensor combine by one monoid: all roles that make some must agree on it.
    """
    if len(given) == len(sizes):
        yield given
        return
    for role in roles[len(given)]:
        if _fits(sizes, given, monoid, role):
            yield from assigned(sizes, roles, (*given, role.number), role.monoid or monoid)


def _at_distance(
    sizes: Sequence[int], roles: Sequence[Role], far: Sequence[dict[int, int]], total: int,
    given: tuple[int, ...] = (), monoid: str | None = None,
) -> Iterator[tuple[int, ...]]:
    """What `assigned` gives at exactly this distance from what is known."""
    if len(given) == len(sizes):
        yield given
        return
    rest = sum(max(row.values()) for row in far[len(given) + 1:])
    for role in roles:
        left = total - far[len(given)][role.number]
        if 0 <= left <= rest and _fits(sizes, given, monoid, role):
            yield from _at_distance(sizes, roles, far, left, (*given, role.number), role.monoid or monoid)


def _fits(sizes: Sequence[int], given: tuple[int, ...], monoid: str | None, role: Role) -> bool:
    """Whether the next axis may play a role: parts are left for it, and its partial values are of the same monoid."""
    if monoid is not None and role.monoid is not None and role.monoid != monoid:
        return False
    taken = math.prod([n for n, r in zip(sizes, given, strict=False) if r == role.number])
    return taken * sizes[len(given)] <= role.size


def _fitting(sizes: Sequence[int], given: Iterable[int], by_number: dict[int, Role]) -> tuple[int, ...]:
    """The roles, but for those that do not fit behind the others."""
    out: tuple[int, ...] = ()
    monoid = None
    for number in given:
        role = by_number[number]
        role = role if _fits(sizes, out, monoid, role) else NONE
        out, monoid = (*out, role.number), role.monoid or monoid
    return out


def _roles_in(mesh: Mesh, rule: FactorRule, dims: Sequence[Sequence[int]], spread: Spread) -> dict[str, int]:
    """Per axis of a spread the factor that it shards; where several make up a dimension, the major ones first."""
    found: dict[str, int] = {}
    for parts, axes in zip(dims, spread, strict=False):
        whole = [f for f in parts if rule.factors[f].size > 1]
        left = [rule.factors[f].size for f in whole]
        for axis in axes:
            while len(left) > 1 and left[0] == 1:
                whole, left = whole[1:], left[1:]
            if whole:
                found[axis] = whole[0]
                left[0] //= mesh.axes.get(axis, 1)
    return found
