"""The propagation schedule: which kinds of op propagate first."""

from __future__ import annotations

from eggshard.planner.propagation.strategies import BACKWARD, BOTH, FORWARD, NOWHERE
from eggshard.program.op_sharding_rule import PASS_THROUGH, OpShardingRule

#: The phases by kinds of op: first what keeps the shape, where its operands have no other uses, then wherever; then
#: factors that no op reduces, gathers or shifts along; then all of them, but not from an operand to its broadcast; then
#: everything. A direction once allowed stays so.
PHASES = 5
ANYTHING = PHASES - 1
#: Names, without dialect, of ops besides elementwise ones that keep their operand's shape, or its elements in order.
SAME_SHAPE = frozenset(("reshape", "transpose"))
_DYNAMIC_SLICES = frozenset(("dynamic_slice", "dynamic_update_slice"))


def schedule(name: str, keeps_shape: bool, rule: OpShardingRule) -> tuple[tuple[int, ...], ...]:
    """Per phase the directions per factor in which shardings flow through an op; blocked factors never do.

    In the first phase they hold only if no operand, but for scalars, has other uses. name: without its dialect.
    """
    early = BOTH if keeps_shape else FORWARD if name in _DYNAMIC_SLICES else NOWHERE
    late = BACKWARD if name == "broadcast_in_dim" else BOTH

    def directions(phase: int) -> tuple[int, ...]:
        out = []
        for factor in rule.factors:
            found = early
            if phase >= 3 or (phase == 2 and factor.kind == PASS_THROUGH):
                found |= late
            out.append(NOWHERE if factor.blocked else BOTH if phase == ANYTHING else found)
        return tuple(out)

    return tuple(map(directions, range(PHASES)))
