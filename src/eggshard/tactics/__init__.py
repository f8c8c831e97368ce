"""Tactics: what users fix of where arguments and results lie, and leave the rest to the search (`eggshard.auto`).

A tactic says of some leaves where they may lie, by the mesh axes that shard their dimensions; several are applied in
order, and each leaves to a leaf those placements that it asks for. So `shard` and `replicate` say of any leaves, and
the others of those that one means by their names. ``of``, of all of them: other leaves, as a glob over their names
(``"args[0]['w*']"``; ``*`` alone is special), or a function from an `End` to whether it is one of them.
"""

from eggshard.planner.choosing.narrowing import End, Restriction, Tactic
from eggshard.tactics.fields import halo
from eggshard.tactics.logical import logical_axes
from eggshard.tactics.primitives import replicate, shard
from eggshard.tactics.training import data_parallel, expert_parallel, megatron, sequence_parallel, zero

__all__ = [
    "End", "Restriction", "Tactic", "data_parallel", "expert_parallel", "halo", "logical_axes", "megatron",
    "replicate", "sequence_parallel", "shard", "zero",
]
