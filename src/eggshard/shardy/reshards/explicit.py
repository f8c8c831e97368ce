"""The pass that makes reshards explicit: every op gets operands and results as it can compute them, by `sdy.reshard`.

The decision is Shardy's, op by op (`common_axes`), or one for the whole program (`planned`).
"""

from __future__ import annotations

import math
from typing import Any

from jaxlib.mlir import ir

from eggshard.costmodel import CostModel
from eggshard.errors import ProgramError, ShardingError
from eggshard.planner.propagation.projection import FactorSharding, Projection, TensorProjection
from eggshard.program.axes import Axes, any_overlap
from eggshard.program.op_sharding_rule import OpShardingRule, TensorFactors
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import axes_text
from eggshard.shardy.module import ShardyModule, behind, callee, elements, inside_first, shape
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.reshards import insertion
from eggshard.shardy.reshards.common_axes import common_axes
from eggshard.shardy.reshards.dots import DOTS, reshard_result
from eggshard.shardy.reshards.overflow import overflow_axes
from eggshard.shardy.reshards.reducers import repeatable
from eggshard.shardy.reshards.unreduced import make_unreduced, reduce_operand, reduce_operands, reduce_results
from eggshard.shardy.reshards.values import (
    OnMesh,
    Values,
    allowing,
    data_flow_edges,
    equivalent,
    fully_closed,
    replicated,
)
from eggshard.shardy.rules import rule_of
from eggshard.shardy.traits import is_terminator

MODES = ("shardy", "global")


@shardy_pass("insert-explicit-reshards", on="func.func")
def insert_explicit_reshards(
    module: ShardyModule, enable_full_version: bool = False, mode: str = "shardy", custom_rules: bool = False,
    cost_model: str | CostModel = "",
) -> None:
    """Insert reshards and all-reduces so that every op can compute on shards.

    enable_full_version: of every op; without it only of those that gain by it: calls, concatenates of differing
    operands, ragged products, products that are cheaper to reshard after, and ops on partial values.
    custom_rules: also of ops whose sharding rule the user has stated, which the original leaves alone.
    mode: ``shardy``, each op by itself, as the original; ``global``, the cheapest plan of the whole program.
    cost_model: of ``mode=global``, as in plan-explicit-reshards.
    """
    if mode not in MODES:
        raise ProgramError(f"mode {mode!r} of insert-explicit-reshards is none of {', '.join(MODES)}")
    if mode == "global":
        from eggshard.shardy.reshards.planned import insert_planned_reshards

        insert_planned_reshards(module, cost_model or "alpha-beta")
        return
    if cost_model:
        raise ProgramError(
            "insert-explicit-reshards decides on each op by numbers of elements, without a cost model; give one with "
            "mode=global")
    values = Values(module)
    functions = module.by_name
    for function in module.functions:
        if function.regions[0].blocks:
            _InFunction(values, functions, enable_full_version, custom_rules).run(function)


@shardy_pass("temp-explicit-reshards-for-optimizations", on="")
def temp_explicit_reshards_for_optimizations(module: ShardyModule) -> None:
    """Insert only the explicit reshards that are optimizations: today's insert-explicit-reshards without options."""
    insert_explicit_reshards(module)


class _InFunction:
    """One function's reshards. full: of all ops. custom: of those with a rule of the user's, too."""

    def __init__(self, values: Values, functions: dict[str, Any], full: bool, custom: bool) -> None:
        self.values, self.functions, self.full, self.custom = values, functions, full, custom

    def run(self, function: Any) -> None:
        for op in inside_first(function):
            if not is_terminator(op):
                self.visit(op)
        self.returned(function)

    def visit(self, op: Any) -> None:
        full = self.full or self.is_always_explicit(op)
        edges = data_flow_edges(self.values, op)
        if edges is not None:
            for sharding, sources in edges:
                for source, number in sources:
                    at = behind(source.operands[number])
                    self.reshard_operand(source, number, sharding, at, full)
        elif op.name == "func.call":
            self.call(op, full)
        elif op.name != "sdy.reshard" or not self.unreduced_reshard(op):
            self.compute(op, full)

    def is_always_explicit(self, op: Any) -> bool:
        """Whether the op is one that reshards are inserted for even where they are only optimizations."""
        if op.name == "stablehlo.concatenate":
            result = self.values.sharding(op.results[0])
            return any(self.values.sharding(operand) != result for operand in op.operands)
        return op.name in ("mhlo.ragged_dot", "func.call")

    # -- ops that values flow through --------------------------------------------------------------------------------

    def reshard_operand(self, op: Any, number: int, target: TensorSharding | None, at: Any, full: bool) -> None:
        """Bring an operand to its target's sharding; to none means to a replicated one."""
        sharding = self.values.sharding(op.operands[number])
        sharding = reduce_operand(self.values, op, number, sharding, target, at)
        sharding = make_unreduced(self.values, op, number, target, at) or sharding
        if full and not equivalent(sharding, target):
            value = op.operands[number]
            if target is None:
                assert sharding is not None
                target = fully_closed(sharding.mesh, value)
            op.operands[number] = insertion.reshard(value, target, at)

    def call(self, op: Any, full: bool) -> None:
        """Bring a call's operands to the shardings of the function's arguments."""
        name = callee(op)
        function = self.functions.get(name)
        if function is None:
            raise ProgramError(f"func.call calls @{name}, which the module does not define")
        targets: list[TensorSharding | None] = list(self.values.module.argument_shardings(function))
        mesh = self.first_mesh(targets)
        if mesh is not None:
            targets = [
                s or TensorSharding.fully_open(mesh, len(shape(v))) for s, v in zip(targets, op.operands, strict=True)]
        else:
            mesh = self.first_mesh([self.values.sharding(operand) for operand in op.operands])
            if mesh is None:
                return
            targets = [fully_closed(mesh, operand) for operand in op.operands]
        for number, target in enumerate(targets):
            self.reshard_operand(op, number, target, behind(op.operands[number]), full)

    def first_mesh(self, shardings: list[TensorSharding | None]) -> Any:
        """What the first sharding on more than one device calls its mesh."""
        return next((s.mesh for s in shardings if s is not None and not self.values.on_mesh(s).maximal), None)

    def returned(self, function: Any) -> None:
        """Bring what a function returns to the shardings of its results."""
        operations = function.regions[0].blocks[0].operations
        end = operations[len(operations) - 1].operation
        at = ir.InsertionPoint(end)
        for number, target in enumerate(self.values.module.function_result_shardings(function)):
            self.reshard_operand(end, number, target, at, self.full)

    def unreduced_reshard(self, op: Any) -> bool:
        """Replace a reshard that makes partial values by ops that make them; whether it was one."""
        if make_unreduced(self.values, op, 0, self.values.sharding(op.results[0]), ir.InsertionPoint(op)) is None:
            return False
        op.results[0].replace_all_uses_with(op.operands[0])
        op.erase()
        return True

    # -- ops that compute --------------------------------------------------------------------------------------------

    def compute(self, op: Any, full: bool) -> None:
        """Bring an op's operands and results to shardings that its rule can compute on."""
        reduce_operands(self.values, op)
        rule = rule_of(op)
        if rule is None or (rule.custom and not self.custom):
            return
        rule = repeatable(op, rule)
        operands, results = (self.values.beyond_barriers(side) for side in (op.operands, op.results))
        on = self.values.common_mesh([*operands, *results])
        if on is None:
            return
        projection = Projection.of(rule, operands, results, on.mesh, closed_if_missing=True)
        chosen = None
        if full:
            chosen = self.reshard(op, projection, operands, results, rule, on)
        elif op.name in DOTS:
            reshard_result(self.values, op, projection, rule, on)
        reduce_results(self.values, op, projection, chosen, rule, on)

    def reshard(
        self, op: Any, projection: Projection, operands: list[TensorSharding | None],
        results: list[TensorSharding | None], rule: OpShardingRule, on: OnMesh,
    ) -> list[Axes]:
        """Reshard what differs from the axes chosen for the op's factors, and return these."""
        shardings = *operands, *results
        changed = [any(f.overflow for f in tensor.factors.values()) for tensor in projection.tensors]
        if any(changed) and op.name == "stablehlo.reshape":
            chosen = overflow_axes(projection, rule, on)
            give(projection, chosen, rule)
            changed = [
                not equivalent(tensor.sharding(dims, rule, on.mesh, on.name), sharding)
                for tensor, dims, sharding in zip(projection.tensors, rule.tensors, shardings, strict=True)]
        else:
            sizes = [elements(value) for value in (*op.operands, *op.results)]
            chosen = common_axes(projection, rule, sizes, on.mesh)
            updated = give(projection, chosen, rule)
            changed = [a or b for a, b in zip(changed, updated, strict=True)]
        changed = [
            c or self.on_other_devices(s, on) for c, s in zip(changed, shardings, strict=True)]
        at = ir.InsertionPoint(op)
        for number, (tensor, dims) in enumerate(zip(projection.operands, rule.operands, strict=True)):
            if changed[number]:
                new = sharding_of(op, f"operand {number}", tensor, dims, rule, on)
                op.operands[number] = insertion.reshard(op.operands[number], new, at)
        at = ir.InsertionPoint.after(op)
        for number, (tensor, dims) in enumerate(zip(projection.results, rule.results, strict=True)):
            if changed[len(operands) + number]:
                value = op.results[number]
                new = sharding_of(op, f"result {number}", tensor, dims, rule, on)
                stated = self.values.sharding(value) or fully_closed(on.name, value)
                insertion.replace_uses(value, insertion.reshard(value, stated, at))
                self.values.set_sharding(value, new)
        return chosen

    def on_other_devices(self, sharding: TensorSharding | None, on: OnMesh) -> bool:
        """Whether a value is sharded over devices in another order than the op's."""
        return (
            sharding is not None and not replicated(sharding)
            and self.values.on_mesh(sharding).mesh.device_ids != on.mesh.device_ids)


def give(projection: Projection, chosen: list[Axes], rule: OpShardingRule) -> list[bool]:
    """Shard factors by these axes in every tensor; which tensors that changed."""
    changed = [False] * len(rule.tensors)
    for factor, axes in enumerate(chosen):
        changed = [a or b for a, b in zip(changed, projection.update(factor, axes), strict=True)]
    for tensor, dims in zip(projection.tensors, rule.tensors, strict=True):
        for dim in dims:
            for factor in dim:
                tensor.factors.setdefault(factor, FactorSharding(closed=True))
    return changed


def sharding_of(
    op: Any, where: str, tensor: TensorProjection, dims: TensorFactors, rule: OpShardingRule, on: OnMesh,
) -> TensorSharding:
    """The sharding that an op's tensor takes; axes that were not to shard the value may shard it within the op.

    ShardingError if axes of its partial values would shard it as well.
    """
    out = allowing(tensor.sharding(dims, rule, on.mesh, on.name))
    if any_overlap([axis for axes in out.axes for axis in axes], tensor.unreduced):
        raise ShardingError(
            f"{op.name}: {where} of shape {shape_of(dims, rule)} is unreduced along {axes_text(tensor.unreduced)}, and "
            f"other operands and results make it {out}; make those unreduced along these axes first, or reduce before "
            "the op")
    return out


def shape_of(dims: TensorFactors, rule: OpShardingRule) -> tuple[int, ...]:
    return tuple(math.prod(rule.factors[factor].size for factor in dim) for dim in dims)
