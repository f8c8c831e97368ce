"""Op sharding rules of MLIR ops: those that they state, and those that `eggshard.ops.sharding_rule` derives."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import EggshardError
from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.frontends.stablehlo.module_reader import ModuleReader
from eggshard.frontends.stablehlo.op_readers import OP_READERS
from eggshard.frontends.stablehlo.region_reader import RegionReader
from eggshard.ops.base import Types
from eggshard.ops.sharding_rule import DEPENDENT, Nearby, ruled, sharding_rule
from eggshard.program.attributes import Attributes
from eggshard.program.codec import decode_attributes
from eggshard.program.op_sharding_rule import OpShardingRule
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.shardy.module import RULE, ShardyModule, shape, uses
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.traits import is_static

#: Ops that are not read by StableHLO's name; reductions are in their general form, whose operands are StableHLO's.
_NAMES = {
    "sdy.sharding_constraint": "sharding_constraint",
    "stablehlo.reduce": "reduce_general",
    "stablehlo.reduce_window": "reduce_window_general",
}


def rule_of(op: Any, conservative: bool = False) -> OpShardingRule | None:
    """The rule stated on an op, else the one that its name, types and attributes imply, else None.

    ShardingError, naming the op, for a stated rule that does not fit its operands and results.
    """
    operation = op.operation
    if RULE in operation.attributes:
        rule = OpShardingRule.parse(str(operation.attributes[RULE]))
        rule.check_shapes([shape(v) for v in operation.operands], [shape(v) for v in operation.results], operation.name)
        return rule
    return implied_rule(operation, conservative)


def implied_rule(
    op: Any, conservative: bool = False, sizes: Callable[[Any], tuple[int, ...]] = shape
) -> OpShardingRule | None:
    """The rule that an op's name, types and attributes imply, None where there is none.

    Ops that take or make anything but tensors of known sizes, such as tokens, have none. sizes: of a value's
    dimensions, if others than its type has.
    """
    operation = op.operation
    name = _NAMES.get(operation.name) or operation.name.removeprefix("stablehlo.")
    definition = ruled(name)
    if definition is None or not all(is_static(value) for value in (*operation.operands, *operation.results)):
        return None
    operands, results = (
        tuple(TensorType(sizes(v), str(v.type.element_type)) for v in values)
        for values in (operation.operands, operation.results))
    texts = tuple((key, str(found)) for key, found in attributes_of(operation).items() if key in definition.attributes)
    regions = _regions(operation) if name == "scatter" else ()
    nearby = _nearby(operation) if name in DEPENDENT else Nearby()
    return _derived(name, texts, operands, results, regions, nearby, conservative)


@shardy_pass("populate-op-sharding-rules", on="func.func")
def populate_op_sharding_rules(module: ShardyModule, *, conservative_propagation: bool = False) -> None:
    """State on every op in a function the sharding rule that it implies, unless one is stated.

    conservative_propagation: rules along which shardings propagate only where every shard stays where it is.
    """
    for function in module.functions:
        for op in module.walk(root=function):
            rule = None if RULE in op.attributes else implied_rule(op, conservative_propagation)
            if rule is not None:
                op.attributes[RULE] = ir.Attribute.parse(str(rule))


@lru_cache(maxsize=4096)
def _derived(
    name: str, texts: tuple[tuple[str, str], ...], operands: Types, results: Types, regions: tuple[Region, ...],
    nearby: Nearby, conservative: bool,
) -> OpShardingRule | None:
    definition = ruled(name)
    assert definition is not None
    values = definition.from_mlir(decode_attributes(definition.attributes, dict(texts)), operands, results)
    return sharding_rule(name, Attributes(values), operands, results, regions, nearby, conservative=conservative)


def _regions(op: Any) -> tuple[Region, ...]:
    """An op's regions; none if they hold what programs cannot."""
    try:
        return RegionReader(ModuleReader(), OP_READERS).regions(op)
    except EggshardError:
        return ()


def _nearby(op: Any) -> Nearby:
    made = [None if isinstance(value, ir.BlockArgument) else value.owner.operation for value in op.operands]
    makers = tuple(_name(maker) if maker else "" for maker in made)
    sources = [maker.operands[0] if maker and _name(maker) == "slice" else value
               for value, maker in zip(op.operands, made, strict=True)]
    users = frozenset(_name(user) for result in op.results for user, _ in uses(result))
    return Nearby(makers, tuple(sources.index(source) for source in sources), users)


def _name(op: Any) -> str:
    """An op's name in StableHLO; any dialect's constant is one."""
    name: str = op.name
    return "constant" if name.endswith(".constant") else name.removeprefix("stablehlo.")
