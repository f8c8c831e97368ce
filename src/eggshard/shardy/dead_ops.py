"""Ops that nobody would miss."""

from __future__ import annotations

from collections.abc import Collection

from eggshard.shardy.module import ShardyModule, uses
from eggshard.shardy.traits import is_pure


def erase_dead(module: ShardyModule, pure: Collection[str] = ()) -> bool:
    """Erase ops without effects whose results nobody uses, and what only they use; whether there were any.

    As MLIR's greedy rewriting does, in every region. pure: names of further ops that are without effects.
    """
    changed = False
    for op in reversed(module.walk()):  # users before what they use, what is inside an op before the op
        if len(op.results) and not any(map(uses, op.results)) and is_pure(op, pure):
            op.erase()
            changed = True
    return changed
