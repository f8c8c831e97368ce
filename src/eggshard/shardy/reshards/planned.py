"""Explicit reshards by a search over the whole program: the cheapest placements of its own ops and conversions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.costmodel import AlphaBeta, CostModel, Messages, WireBytes
from eggshard.errors import FallbackWarning, LateWarning, LimitError, ProgramError, ShardingError
from eggshard.limits import Limits
from eggshard.program.placement import Placement
from eggshard.shardy.module import ShardyModule, callee, maker, symbol
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.reshards.search.blocks import BlockPlan, plan_block
from eggshard.shardy.reshards.search.context import Context
from eggshard.shardy.reshards.search.nested import nested_offers
from eggshard.shardy.reshards.search.op_by_op import keep_the_cheaper, reshard_op_by_op
from eggshard.shardy.reshards.search.writing import write
from eggshard.shardy.rewriting import stated_shardings

#: Cost models by name.
COST_MODELS: dict[str, CostModel] = {
    "wire-bytes": WireBytes(), "messages": Messages(), "alpha-beta": AlphaBeta(),
}


@shardy_pass("plan-explicit-reshards", on="")
def insert_planned_reshards(module: ShardyModule, cost_model: str | CostModel = "alpha-beta") -> None:
    """Reshards where the cheapest plan of the whole program has them, under a cost model.

    The module's ops stay; which placements they are computed at is chosen by extraction. Function arguments and stated
    results lie where they are stated to, results without a closed sharding where is cheapest; shardings of other
    values, constraints and reshards are hints, and go. Every value then has a closed sharding; partial values are
    reduced by ``sdy.all_reduce``, at once or, where the plan delays it, after values that are unreduced.

    Where the program cannot be planned so (single devices, several meshes), its reshards are those of Shardy's
    decision for each op, with an EggshardWarning; so are they where that takes less by the cost model.
    cost_model: ``alpha-beta``, whose seconds are of bytes, messages and computing, ``wire-bytes`` or ``messages``, or
    from Python a cost model itself; ProgramError for another.
    """
    model = COST_MODELS.get(cost_model) if isinstance(cost_model, str) else cost_model
    if not isinstance(model, CostModel):
        raise ProgramError(
            f"there is no cost model {cost_model!r}; there are {', '.join(COST_MODELS)}, and from Python any object "
            "with a method `seconds`")
    if next(stated_shardings(module), None) is None:
        return
    try:
        context = Context(module, model, Limits())
        plans = [(f, _planned(context, f)) for f in module.functions if len(f.regions[0].blocks)]
    except (ProgramError, ShardingError, LimitError) as error:
        reshard_op_by_op(module)
        warnings.warn(f"reshards are decided on op by op: {error}", FallbackWarning, stacklevel=3)
        return
    if context.deadline.missed:
        warnings.warn("the clock ended the search for reshards: another run may find others", LateWarning,
                      stacklevel=3)
    original = module.text()
    for function, plan in plans:
        write(plan)
        _state_ends(context, function, plan)
    keep_the_cheaper(module, original, context)


def _planned(context: Context, function: Any) -> BlockPlan:
    block = function.regions[0].blocks[0]
    if len(function.regions[0].blocks) > 1:
        raise ProgramError(f"function @{symbol(function)} branches between blocks")
    module = context.module
    stated = module.argument_shardings(function)
    inputs = {v: context.placement(s, context.type(v)) for v, s in zip(block.arguments, stated, strict=True)}
    return plan_block(context, block, inputs, _ends(context, function, block), nested_offers)


def _ends(context: Context, function: Any, block: Any) -> list[Sequence[Placement]]:
    """Where each result of a function may lie: where it is stated, else anywhere, if nothing calls it."""
    module = context.module
    *_, terminator = block.operations
    called = symbol(function) in _called(module)
    ends: list[Sequence[Placement]] = []
    pairs = zip(terminator.operation.operands, module.function_result_shardings(function), strict=True)
    for value, sharding in pairs:
        if sharding is None and maker(value, "sdy.sharding_constraint", "sdy.reshard") is not None:
            sharding = module.sharding(value)
        free = (sharding is None or not sharding.sharding.says_something) and not called
        type_ = context.type(value)
        ends.append(context.anywhere(type_) if free else [context.placement(sharding, type_)])
    return ends


def _state_ends(context: Context, function: Any, plan: BlockPlan) -> None:
    module = context.module
    *_, terminator = plan.block.operations
    for value, placement in plan.inputs:
        if isinstance(value.type, ir.RankedTensorType):
            module.set_sharding(value, context.sharding(placement, placement.partial))
    for number, (value, placement) in enumerate(zip(terminator.operation.operands, plan.ends, strict=True)):
        if isinstance(value.type, ir.RankedTensorType):
            module.set_function_result_sharding(function, number, context.sharding(placement, placement.partial))


def _called(module: ShardyModule) -> set[str]:
    return {callee(op) for op in module.walk("func.call")}
