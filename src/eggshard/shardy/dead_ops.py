"""Dead-op elimination as MLIR's greedy rewriter does it besides applying patterns."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.shardy.module import BODIES, ShardyModule, uses
from eggshard.shardy.traits import is_pure

CONSTANT = "stablehlo.constant"
#: Ops whose regions see no values from outside.
ISOLATED = ("func.func", *BODIES)


def erase_dead(module: ShardyModule, pure: Collection[str] = ()) -> bool:
    """Erase ops without effects whose results no op uses, and what only they use; whether there were any.

    As MLIR's greedy rewriting does, in every region. pure: names of further ops that are without effects.
    """
    changed = False
    for op in reversed(module.walk()):  # users before what they use, what is inside an op before the op
        if len(op.results) and not any(map(uses, op.results)) and is_pure(op, pure):
            op.erase()
            changed = True
    return changed


def share_constants(module: ShardyModule) -> None:
    """Keep one of equal constants, at the beginning of the function, manual or named computation that they are in.

    As MLIR's greedy rewriting does, which also orders them: each goes in front of those before it, unless it follows
    them already. It compares values alone; here shardings and other attributes too, so that none is lost.
    """
    for op in module.walk(*ISOLATED):
        if len(op.regions[0].blocks):
            _share_in(op.regions[0].blocks[0])


def _share_in(beginning: Any) -> None:
    known: dict[Any, Any] = {}
    following = True  # only constants that are kept stand before the op
    for op in _ops_of(beginning):
        following = following and op.block == beginning
        if op.name != CONSTANT:
            following = False
            continue
        attributes = frozenset(attributes_of(op).items())
        first = known.setdefault((attributes, op.results[0].type), op)
        if first is not op:
            op.results[0].replace_all_uses_with(first.results[0])
            op.erase()
        elif not following:
            op.move_before(beginning.operations[0])


def _ops_of(block: Any) -> list[Any]:
    """The ops of a block, each before those of its regions, which are left out where no values reach into them."""
    listed: list[Any] = []
    for op in block.operations:
        listed.append(op.operation)
        if op.operation.name not in ISOLATED:
            listed += [op for region in op.operation.regions for inner in region.blocks for op in _ops_of(inner)]
    return listed
