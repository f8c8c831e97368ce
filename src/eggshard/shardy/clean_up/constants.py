"""The pass that merges constants which propagation's import had split into one per use."""

from __future__ import annotations

from typing import Any

from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.shardy.module import ShardyModule, shape
from eggshard.shardy.passes import shardy_pass

#: Ops that make a value of nothing but their attributes.
CONSTANTS = frozenset(
    {"sdy.constant", "stablehlo.constant", "mhlo.constant", "chlo.constant", "arith.constant", "func.constant"}
)
BROADCAST = "stablehlo.broadcast_in_dim"


@shardy_pass("constant-merger", on="")
def constant_merger(module: ShardyModule) -> None:
    """Merge constants of one region that are equal, their shardings included.

    The older form of constant-or-scalar-merger: expansions of scalars stay as they are.
    """
    for function in module.functions:
        _merge(function, scalars=False)


@shardy_pass("constant-or-scalar-merger", on="func.func")
def constant_or_scalar_merger(module: ShardyModule) -> None:
    """Merge constants and expansions of scalars of one region that are equal, their shardings included.

    Nothing is moved: constants of different regions stay apart, as a loop's body may be sharded otherwise than what is
    around it. Ops are equal if all their attributes are, ``sdy.sharding`` and those unknown to Shardy too.
    """
    for function in module.functions:
        _merge(function, scalars=True)


def _merge(op: Any, scalars: bool) -> None:
    for region in op.regions:
        known: dict[Any, Any] = {}
        for block in region.blocks:
            for inner in [inner.operation for inner in block.operations]:
                _merge(inner, scalars)
                key = _key(inner, scalars)
                first = known.setdefault(key, inner) if key else inner
                if first is not inner:
                    inner.results[0].replace_all_uses_with(first.results[0])
                    inner.erase()


def _key(op: Any, scalars: bool) -> Any:
    """What equal ops have in common; None for ops that are not merged."""
    if op.name not in CONSTANTS and not (scalars and op.name == BROADCAST and _is_scalar(op.operands[0])):
        return None
    attributes = frozenset(attributes_of(op).items())
    return (op.name, attributes, op.results[0].type, *op.operands)


def _is_scalar(value: Any) -> bool:
    return "tensor<" in str(value.type) and not shape(value)
