"""Transfer rules on windows: the windows of its operands from which an op computes a given window of its result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

from eggshard.ops.base import PASS, PERMUTE, REDUCE, FactorRule
from eggshard.ops.windowing import Reach, Reaches
from eggshard.placement.grids import left_on, reduced_on
from eggshard.placement.transfer import Strategy, enumerated
from eggshard.placement.view import View
from eggshard.placement.windows import reached
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement
from eggshard.program.types import TensorType

#: Axes per dimension of the result, and its partial axes.
Spread = tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]


def spread(placement: Placement) -> Spread:
    """What of a placement strategies are looked up by."""
    return tuple(d.axes for d in placement.dims), placement.partial


def linked(rule: FactorRule, reaches: Reaches) -> FactorRule:
    """The rule in which dimensions that reach one another are one factor, which may be sharded.

    A dimension of size 1 that is reached along is held whole.
    """
    factors = list(rule.factors)
    operands = [list(row) for row in rule.operands]
    for row, reach_row in zip(operands, reaches, strict=True):
        for d, reach in enumerate(reach_row):
            if reach is not None:
                (f,) = rule.results[0][reach.dim]
                factors[f] = replace(factors[f], kind=PASS) if factors[f].kind == PERMUTE else factors[f]
                if any(factors[own].size > 1 for own in row[d]):
                    for own in set(row[d]) - {f}:  # in no tensor any more
                        factors[own] = replace(factors[own], kind=PERMUTE)
                    row[d] = (f,)
    return replace(rule, factors=tuple(factors), operands=tuple(tuple(row) for row in operands))


def summing(rule: FactorRule, reaches: Reaches) -> FactorRule:
    """The rule in which dimensions of the last operand that are summed over windows of others leave partial sums."""
    factors = list(rule.factors)
    for row in reaches:
        for reach in row:
            if reach is not None:
                (f,) = rule.operands[-1][reach.dim]
                factors[f] = replace(factors[f], kind=REDUCE, monoid="add")
    return replace(rule, factors=tuple(factors))


class WindowTransfer:
    """The strategies of one op with one result, on standard tiles and on windows.

    windowed: the result dimensions that are computed through reaches; sharding them is what base strategies cannot do.
    summed: the dimensions of the last operand that are summed over windows of others, in the same way.
    """

    def __init__(
        self, mesh: Mesh, rule: FactorRule, reaches: Reaches | None, operands: Sequence[TensorType],
        result: TensorType, orders: frozenset[tuple[str, ...]], partial_allowed: Callable[[str], bool], limit: int,
        window_allowed: Callable[[Mapping[int, tuple[Dim, int]]], bool], windows_by_place: bool = False,
        view: Callable[[], View] = View, summed_reaches: Reaches | None = None,
    ):
        self.mesh, self.window_allowed, self.windows_by_place = mesh, window_allowed, windows_by_place
        self.reaches = reaches or tuple((None,) * t.rank for t in operands)
        self.operands, self.result = operands, result
        self.windowed = frozenset(
            reach.dim for row in self.reaches for reach in row
            if reach is not None and rule.factors[rule.results[0][reach.dim][0]].kind == PERMUTE
        )
        self.rule = linked(rule, self.reaches) if self.windowed else rule
        self.summed_reaches = summed_reaches or tuple((None,) * t.rank for t in operands)
        self.summed = frozenset(reach.dim for row in self.summed_reaches for reach in row if reach is not None)
        self.rule = summing(self.rule, self.summed_reaches) if self.summed else self.rule
        self._at: dict[Placement, tuple[Strategy, ...]] = {}
        self._bases = partial(enumerated, mesh, self.rule, orders, partial_allowed, limit, sparse=True, view=view)

    @cached_property
    def by_spread(self) -> dict[Spread, list[Strategy]]:
        """The strategies on standard tiles by how the result is spread; found when first asked for."""
        found: dict[Spread, list[Strategy]] = {}
        for strategy in self._bases().found:
            found.setdefault(spread(strategy.results[0]), []).append(strategy)
        return found

    @property
    def reduces(self) -> bool:
        """Whether the op reduces over a dimension that may be sharded."""
        return any(f.kind == REDUCE for f in self.rule.factors)

    def standard(self) -> Iterator[Placement]:
        """The standard placements at which the result can be computed, and every device may have a part of it."""
        for found in self.by_spread.values():
            placement = found[0].results[0]
            sizes = zip(self.result.shape, placement.dims, strict=True)
            if all(self.mesh.count(dim.axes) <= n for n, dim in sizes):
                yield placement

    @property
    def periodic(self) -> bool:
        """Whether wrapped windows of the result can be computed, although the op looks along it."""
        return bool(self.windowed) and all(
            reach is None or self._periodic(i, d, reach)
            for i, row in enumerate(self.reaches) for d, reach in enumerate(row)
        )

    @property
    def moves(self) -> bool:
        """Whether the result is a single operand in another place, with others around it or a part of it."""
        rows = [[reach for reach in row if reach is not None] for row in self.reaches]
        return sum(map(bool, rows)) == 1 and all(
            reach.first == reach.last and reach.scale == reach.divisor == 1 and not reach.mirrored
            for row in rows for reach in row
        )

    def looks(self, strategy: Strategy) -> bool:
        """Whether a strategy shards some dimension along which the op looks."""
        return self.sums(strategy) or any(strategy.results[0].dims[d].axes for d in self.windowed)

    def sums(self, strategy: Strategy) -> bool:
        """Whether a strategy shards some dimension that is summed over windows."""
        return any(strategy.operands[-1].dims[d].axes for d in self.summed)

    def left_on(self, operand: int, placement: Placement) -> Placement | None:
        """Where the result lies that is computed where an operand is, of exactly what that holds; None if nowhere."""
        return left_on(self.rule, self.reaches, operand, placement, self.result.shape)

    def reduced_on(self, base: Strategy, operand: int, placement: Placement) -> Strategy | None:
        """The strategy that reduces over an operand's tiles at this placement instead of over the standard ones."""
        found = reduced_on(self.mesh, self.rule, base, operand, placement)
        if found is None or not self.sums(found):
            return found
        operands = [self._met(i, p.dims, found.operands[-1]) for i, p in enumerate(found.operands)]
        placed = [p._replace(dims=dims) for p, dims in zip(found.operands, operands, strict=True) if dims is not None]
        return found._replace(operands=tuple(placed)) if len(placed) == len(operands) else None

    def _met(self, i: int, dims: tuple[Dim, ...], last: Placement) -> tuple[Dim, ...] | None:
        """The dimensions of an operand, windows where the last one's shards meet it; None where those begin between
        elements, or may not begin at the same place of each tile."""
        met = list(dims)
        for d, reach in enumerate(self.summed_reaches[i]):
            if reach is None or not (part := last.dims[reach.dim]).axes:
                continue
            if reach.scale * part.tile % reach.divisor or (part.windowed and reach.divisor > 1):
                return None
            sizes = self.operands[-1].shape[reach.dim], self.operands[i].shape[d]
            met[d] = reached(part, reach, self.mesh.count(part.axes), *sizes)
        return tuple(met)

    def at(self, placement: Placement) -> Sequence[Strategy]:
        """The strategies that compute the result at this placement; none where its windows cannot be computed."""
        found = self._at.get(placement)
        if found is None:
            found = self._at[placement] = tuple(self._strategies(placement))
        return found

    def _strategies(self, placement: Placement) -> Iterator[Strategy]:
        sharded = {d: placement.dims[d] for d in self.windowed if placement.dims[d].axes}
        if not self.window_allowed({d: (dim, self.mesh.count(dim.axes)) for d, dim in sharded.items()}):
            return
        for base in self.by_spread.get(spread(placement), ()):
            if base.positional and placement != base.results[0] and not self.windows_by_place:
                continue  # the op is written out on standard tiles only
            if base.results[0].monoid == placement.monoid:
                operands = [self._operand(i, base, placement) for i in range(len(base.operands))]
                if all(o is not None for o in operands):
                    placed = tuple(o for o in operands if o is not None)
                    yield Strategy(placed, (placement,), base.masks, base.positional)

    def _operand(self, i: int, base: Strategy, placement: Placement) -> Placement | None:
        standard, rule = base.results[0], self.rule
        met = self._met(i, base.operands[i].dims, base.operands[-1])
        if met is None:
            return None
        dims = list(met)
        for d, (factors, reach) in enumerate(zip(rule.operands[i], self.reaches[i], strict=True)):
            if reach is not None:
                window = placement.dims[reach.dim]
                if not window.axes:
                    dims[d] = Dim((), self.operands[i].shape[d])
                elif window.wrapped and not self._periodic(i, d, reach):
                    return None
                elif reach.scale * window.tile % reach.divisor:
                    return None  # tiles that begin between elements
                elif self.operands[i].shape[d] > 1:
                    sizes = self.result.shape[reach.dim], self.operands[i].shape[d]
                    dims[d] = reached(window, reach, self.mesh.count(window.axes), *sizes)
                continue
            for r, row in enumerate(rule.results[0]):
                if set(row) & set(factors) and placement.dims[r] != standard.dims[r]:
                    if row != factors or len(row) != 1:
                        return None  # a window of a dimension that splits or merges
                    dims[d] = placement.dims[r]
        return base.operands[i]._replace(dims=tuple(dims))

    def _periodic(self, i: int, d: int, reach: Reach) -> bool:
        """Whether indices modulo the result's size reach indices modulo the operand's."""
        same = self.operands[i].shape[d] == self.result.shape[reach.dim]
        return same and (reach.wrapped or reach.mirrored) and reach.scale == reach.divisor == 1
