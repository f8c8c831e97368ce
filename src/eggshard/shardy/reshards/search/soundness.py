"""The soundness check of explicit reshards: every op of the module must be computable on its shards."""

from __future__ import annotations

from typing import Any

from eggshard.program.placement import Placement
from eggshard.program.sharding import atoms
from eggshard.shardy.attributes import read_axis_list
from eggshard.shardy.module import BODIES
from eggshard.shardy.reshards.search.context import Context
from eggshard.shardy.reshards.search.offers import BARRIER, CALLS, LOOPS_AND_BRANCHES, plain_offers


def is_sound(context: Context) -> bool:
    """Whether every op of the context's module has its operands and results where one of its offers has them, partial
    values are combined before they are used for anything else, and results are where they are stated to be.

    False for modules with loops, branches, calls and the like, which are not looked into.
    """
    module = context.module
    if module.walk(*LOOPS_AND_BRANCHES, *BODIES, *CALLS, BARRIER):
        return False
    return all(_function_is_sound(context, f) for f in module.functions if len(f.regions[0].blocks))


def _function_is_sound(context: Context, function: Any) -> bool:
    module, block = context.module, function.regions[0].blocks[0]
    at = {v: context.placement(module.sharding(v), context.type(v)) for v in block.arguments}
    *ops, terminator = (op.operation for op in block.operations)
    for op in ops:
        have = tuple(at[v] for v in op.operands)
        want = tuple(context.placement(module.sharding(v), context.type(v)) for v in op.results)
        if op.name == "sdy.all_reduce":
            combined = atoms(read_axis_list(str(op.attributes["reduction_axes"])), context.mesh)
            left = tuple(a for a in have[0].partial if a not in combined)
            made: tuple[Placement, ...] | None = (Placement(have[0].dims, left, have[0].monoid if left else ""),)
        elif op.name in ("sdy.reshard", "sdy.sharding_constraint", "sdy.replicated_to_unreduced"):
            made = want if set(have[0].partial) <= set(want[0].partial) else None
        else:
            made = _made(context, op, have, want)
        if made is None:
            return False
        at.update(zip(op.results, made, strict=True))
    stated = module.function_result_shardings(function)
    return all(
        at[v] == context.placement(s, context.type(v)) for v, s in zip(terminator.operands, stated, strict=True))


def _made(
    context: Context, op: Any, have: tuple[Placement, ...], want: tuple[Placement, ...]
) -> tuple[Placement, ...] | None:
    """Where an op leaves its results, which are stated so; None if it cannot."""
    offers, _ = plain_offers(context, op, [{"add"}] * len(have))
    for offer in offers:
        if offer.operands == have and all(
            p.dims == w.dims and set(w.partial) <= set(p.partial) for p, w in zip(offer.results, want, strict=True)
        ):
            return offer.results
    return None
