"""Ops that keep all elements and move them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eggshard.program.op_sharding_rule import NEED_REPLICATION, PASS_THROUGH, PERMUTATION, OpShardingRule
from eggshard.shardy.rules.attributes import integers
from eggshard.shardy.rules.builder import RuleBuilder
from eggshard.shardy.rules.registry import rule_for


@rule_for("stablehlo.transpose")
def _transpose(op: Any, conservative: bool) -> OpShardingRule:
    rule = RuleBuilder(op)
    for dim, source in enumerate(integers(op, "permutation") or ()):
        rule.add(rule.results[0][dim], {0: source}, {0: dim})
    return rule.built()


@rule_for("stablehlo.broadcast_in_dim")
def _broadcast_in_dim(op: Any, conservative: bool) -> OpShardingRule:
    """A dimension of size 1 that is expanded is a factor of its own; so is what it becomes, and each new dimension."""
    rule = RuleBuilder(op)
    (source,), (target,) = rule.operands, rule.results
    sources = {dim: number for number, dim in enumerate(integers(op, "broadcast_dimensions") or ())}
    for dim, size in enumerate(target):
        places = {0: sources[dim]} if dim in sources else {}
        if places and source[sources[dim]] != size:
            rule.add(1, places, {})
            places = {}
        rule.add(size, places, {0: dim})
    return rule.built()


@rule_for("stablehlo.bitcast_convert")
def _bitcast_convert(op: Any, conservative: bool) -> OpShardingRule:
    """The parts of the wider elements are the minor dimension of the other side, which stays whole."""
    rule = RuleBuilder(op)
    (source,), (target,) = rule.operands, rule.results
    rule.add_pointwise(min(source, target, key=len))
    if len(source) != len(target):
        parts = max(source, target, key=len)
        place = {0: len(parts) - 1}
        rule.add(parts[-1], place if parts is source else {}, place if parts is target else {}, NEED_REPLICATION)
    return rule.built()


@rule_for("stablehlo.reverse")
def _reverse(op: Any, conservative: bool) -> OpShardingRule:
    rule = RuleBuilder(op)
    reversed_ = integers(op, "dimensions") or ()
    rule.add_pointwise(rule.results[0], lambda dim: PERMUTATION if dim in reversed_ else PASS_THROUGH)
    return rule.built()


@rule_for("stablehlo.reshape")
def _reshape(op: Any, conservative: bool) -> OpShardingRule | None:
    """The factors that the dimensions of both sides have in common, major to minor; None without elements.

    Where the sides share no factor, each has factors of its own up to where as many elements are behind them again.
    """
    rule = RuleBuilder(op)
    if 0 in rule.operands[0]:
        return None
    sides = _Side(rule.operands[0]), _Side(rule.results[0])
    while any(side.dim < len(side.sizes) for side in sides):
        for number, side in enumerate(sides):
            if side.dim < len(side.sizes) and side.sizes[side.dim] == 1:
                rule.add(1, *_on(number, side))
                side.dim += 1
                break
        else:
            _add_next(rule, *sides)
    return rule.built()


class _Side:
    """The dimensions of one side of a reshape, as factors are taken off them.

    dim: the current dimension; left: what of it is in no factor yet; taken: elements of the factors so far.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes, self.dim, self.taken, self._left = sizes, 0, 1, 1

    @property
    def left(self) -> int:
        if self._left == 1 and self.dim < len(self.sizes):
            self._left = self.sizes[self.dim]
        return self._left

    def take(self, factor: int) -> None:
        """Go on behind a factor, to the next dimension if this one is used up."""
        self._left = self.left // factor
        self.taken *= factor
        self.dim += self._left == 1


def _on(number: int, side: _Side) -> tuple[dict[int, int], dict[int, int]]:
    """The places of the side's current dimension."""
    return ({0: side.dim}, {}) if number == 0 else ({}, {0: side.dim})


def _add_next(rule: RuleBuilder, source: _Side, target: _Side) -> None:
    common = math.gcd(source.left, target.left)
    if source.taken == target.taken and common > 1:
        rule.add(common, {0: source.dim}, {0: target.dim})
        source.take(common)
        target.take(common)
        return
    if source.taken == target.taken:
        for number, side in enumerate((source, target)):
            rule.add(side.left, *_on(number, side))
            side.take(side.left)
        return
    number = int(target.taken < source.taken)
    behind, ahead = (target, source) if number else (source, target)
    missing, rest = divmod(ahead.taken, behind.taken)
    if not rest and behind.left % missing == 0:
        factor = missing
    else:
        factor = behind.left // common if behind.left > common else behind.left
    rule.add(factor, *_on(number, behind))
    behind.take(factor)
