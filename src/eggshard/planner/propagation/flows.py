"""Flows of shardings: an op or edge with a rule, and the slots of the tensors that the rule relates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from eggshard.planner.propagation.schedule import PHASES, schedule
from eggshard.planner.propagation.strategies import BOTH, Step
from eggshard.planner.propagation.table import NONE, ShardingTable
from eggshard.program.op_sharding_rule import OpShardingRule, RuleFactor
from eggshard.program.sharding import DimSharding, Sharding
from eggshard.program.tensor_sharding import TensorSharding


class ManualEdge:
    """The edge of an argument, or else a result, of a computation that is manual along some axes.

    An argument's edge has the body's view of the sharding, and what flows into it the view from outside; with a result
    it is the other way round. stated: how the manual axes shard it.
    """

    def __init__(self, table: ShardingTable, argument: bool, axes: tuple[str, ...], stated: Sharding) -> None:
        self.table, self.argument, self.axes, self.stated = table, argument, axes, stated
        self._inflow: dict[int, int] = {}

    def inflow(self, number: int) -> int:
        """What is kept at the edge, as seen by what flows into it."""
        found = self._inflow.get(number)
        if found is None:
            found = self._inflow[number] = self._seen(number, self.argument)
        return found

    def kept(self, number: int) -> int:
        """What flows into the edge, as it is kept there."""
        return self._seen(number, not self.argument)

    def _seen(self, number: int, outside: bool) -> int:
        sharding = self.table.shardings[number]
        if sharding is None:
            return NONE
        own = sharding.sharding
        seen = with_manual(self.stated, own, self.axes) if outside else own.without(self.axes)
        return self.table.number(TensorSharding(sharding.mesh, seen))


@dataclass(eq=False, slots=True)
class Flow:
    """The slots between which shardings flow, those of operands first, and per phase the step that moves them.

    values: the values at which they are looked at. single_use: in the first phase shardings flow only if none of these
    values has other uses. manual: how the edge of a manual computation looks from the values that flow into it.
    """

    rule: OpShardingRule
    slots: tuple[int, ...]
    operands: int
    steps: tuple[Step, ...]
    values: tuple[int, ...]
    single_use: tuple[int, ...] = ()
    manual: ManualEdge | None = None


def scheduled(name: str, rule: OpShardingRule, keeps_shape: bool, elementwise: bool, conservative: bool = False
              ) -> tuple[Step, ...]:
    """The steps of an op, or edge, by its name without dialect."""
    return tuple(
        step(rule, directions, conservative, elementwise) for directions in schedule(name, keeps_shape, rule))


def always(rule: OpShardingRule, direction: int = BOTH, elementwise: bool = False) -> tuple[Step, ...]:
    """The steps of what shardings flow through in every phase."""
    return (step(rule, (direction,) * len(rule.factors), False, elementwise),) * PHASES


@lru_cache(maxsize=65536)
def step(rule: OpShardingRule, directions: tuple[int, ...], conservative: bool, elementwise: bool) -> Step:
    """The one step of these."""
    return Step(rule, directions, conservative, elementwise)


@lru_cache(maxsize=4096)
def identity(sizes: tuple[int, ...], operands: int) -> OpShardingRule:
    """The rule by which tensors of one shape, of which the last is the result, are sharded alike."""
    tensor = tuple((factor,) for factor in range(len(sizes)))
    return OpShardingRule(tuple(map(RuleFactor, sizes)), (tensor,) * operands, (tensor,))


def with_manual(outer: Sharding, inner: Sharding, manual: Sequence[str]) -> Sharding:
    """A body's sharding seen from outside, where `outer` says how the manual axes shard it."""
    dims = tuple(
        DimSharding(tuple(a for a in was.axes if a.name in manual) + now.axes, now.open, now.priority)
        for was, now in zip(outer.dims, inner.dims, strict=True))
    return replace(outer, dims=dims)
