"""The baseline: Shardy's decision for each op alone, used when there is no plan or when the plan sends more."""

from __future__ import annotations

from jaxlib.mlir import ir

from eggshard.costmodel import CostModel, WireBytes
from eggshard.errors import EggshardError
from eggshard.frontends.stablehlo.reading import parse_module
from eggshard.shardy.modelled import modelled_seconds
from eggshard.shardy.module import ShardyModule
from eggshard.shardy.passes import PASSES, read_steps
from eggshard.shardy.reshards.search.context import Context
from eggshard.shardy.reshards.search.soundness import is_sound
from eggshard.shardy.wire_bytes import module_bytes

#: What makes collectives of a module's reshards, and of what looks along sharded dimensions.
COUNTED = "resolve-permutation-factors,reshard-to-collectives{mode=global},canonicalize-collectives"


def reshard_op_by_op(module: ShardyModule) -> None:
    """Insert the reshards of the decision for each op."""
    PASSES["insert-explicit-reshards"].run(module, mode="shardy", enable_full_version=True)


def keep_the_cheaper(module: ShardyModule, original: str, context: Context) -> None:
    """Put the baseline of the original module in the place of the planned one if it takes less by the cost model.

    context: what the plan was made in; bytes on the wire are counted, everything else is priced. The plan stays where
    one of them cannot be priced, and where the baseline computes something as it cannot be: Shardy adds up what a
    reduction of several operands leaves, whatever it is.
    """
    baseline, model = ShardyModule(parse_module(original)), context.pricer.model
    try:
        reshard_op_by_op(baseline)
        if _price(baseline, model) < _price(module, model) and is_sound(Context(baseline, model, context.limits)):
            _put(module, baseline)
    except EggshardError:
        return


def _price(module: ShardyModule, model: CostModel) -> float:
    """Seconds of a run, or what the busiest device receives in all, to the byte."""
    if not isinstance(model, WireBytes):
        return modelled_seconds(module, model)
    copy = ShardyModule(parse_module(module.text()))
    for step in read_steps(COUNTED):
        step.run(copy)
    return round(module_bytes(copy).busiest)


def _put(module: ShardyModule, other: ShardyModule) -> None:
    body = module.module.body
    for op in list(body.operations):
        op.operation.erase()
    for op in other.module.body.operations:
        op.operation.clone(ir.InsertionPoint(body))
