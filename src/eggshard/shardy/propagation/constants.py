"""Splitting of constants, one per user, so that users that share one by chance do not exchange shardings through it."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.shardy.module import ShardyModule, inside_first
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.propagation.call_graph import CallGraph, FunctionTable, callee, symbol
from eggshard.shardy.propagation.groups import GROUP
from eggshard.shardy.traits import is_elementwise, is_pure, is_scalar, is_terminator

CONSTANT, NAMED = "sdy.constant", "sdy.named_computation"
_KEEPS_CONSTANT = frozenset(("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.slice"))


@shardy_pass("constant-or-scalar-splitter")
def constant_or_scalar_splitter(module: ShardyModule) -> None:
    """Compute constants, and broadcasts of scalars, anew for each of their users; scalars themselves are not split.

    A constant is one, or an iota, or what elementwise ops, broadcasts, reshapes and slices make of constants.
    """
    for op in module.walk("stablehlo.constant"):
        _to_sdy(op)
    splitter = _Splitter(module)
    for function in CallGraph(module).callees_first:
        for op in inside_first(function):
            if op.name == NAMED:
                splitter.split(op.regions[0], function)
        if function.regions[0].blocks:
            splitter.split(function.regions[0], function)


def _to_sdy(op: Any) -> None:
    """Replace a constant by Shardy's, which MLIR does not fold."""
    with ir.InsertionPoint(op):
        attributes = {name: op.attributes[name] for name in op.attributes}
        constant = ir.Operation.create(CONSTANT, results=[op.results[0].type], attributes=attributes, loc=op.location)
    op.results[0].replace_all_uses_with(constant.results[0])
    op.erase()


class _Splitter:
    """What is known of functions and named computations: whether they are constant where their operands are."""

    def __init__(self, module: ShardyModule) -> None:
        self.table = FunctionTable(module)
        self.varying_functions: set[str] = set()
        self.varying_computations: set[str] = set()

    def split(self, region: Any, function: Any) -> None:
        """Split the constants of a region."""
        constants: dict[Any, Any] = {}
        expansions: dict[Any, Any] = {}
        for op in _outside_first(region):
            if op.name == GROUP:
                continue
            if op.name in (CONSTANT, "stablehlo.iota"):
                constants[op] = op
                continue
            preserving = self._keeps_constants(op)
            if preserving and all(_definer(operand) in constants for operand in op.operands):
                constants[op] = op
                continue
            if not preserving and not is_terminator(op):
                self._varies(op, function)
            if op.name == "stablehlo.broadcast_in_dim" and is_scalar(op.operands[0]):
                expansions[op] = op
                continue
            for number, operand in enumerate(list(op.operands)):
                definer = _definer(operand)
                if (definer in constants or definer in expansions) and not is_scalar(operand):
                    copies: dict[Any, Any] = {}
                    self._copy(operand, copies)
                    op.operands[number] = copies[operand]
        for op in (*expansions, *reversed(constants)):
            users = [use.owner.operation for result in op.results for use in result.uses]
            if all(user.name == GROUP for user in users):
                for user in users:
                    user.erase()
                op.erase()

    def _keeps_constants(self, op: Any) -> bool:
        if op.name == "func.call":
            return self.table.original_name(callee(op)) not in self.varying_functions
        if op.name == NAMED:
            return str(op.attributes["name"]) not in self.varying_computations
        return (op.name in _KEEPS_CONSTANT or is_elementwise(op)) and is_pure(op)

    def _varies(self, op: Any, function: Any) -> None:
        around = op.parent
        while around is not None and around.operation.name != NAMED:
            around = around.operation.parent
        if around is not None:
            self.varying_computations.add(str(around.operation.attributes["name"]))
        self.varying_functions.add(self.table.original_name(symbol(function)))

    def _copy(self, value: Any, copies: dict[Any, Any]) -> None:
        """Compute a value anew, in front of where it was, with all that it is computed from but for scalars."""
        if is_scalar(value) or value in copies:
            return
        op = value.owner.operation
        for operand in op.operands:
            if not isinstance(operand, ir.BlockArgument):
                self._copy(operand, copies)
        copy = op.clone(ir.InsertionPoint(op))
        for number, operand in enumerate(list(copy.operands)):
            if operand in copies:
                copy.operands[number] = copies[operand]
        for result, copied in zip(op.results, copy.results, strict=True):
            copies[result] = copied
        if copy.name == "func.call":
            name = self.table.copy(callee(copy))
            copy.attributes["callee"] = ir.FlatSymbolRefAttr.get(name)
        for user in [use.owner.operation for use in value.uses]:
            if user.name == GROUP:
                member = user.clone(ir.InsertionPoint(op))
                member.operands[0] = copies[value]


def _outside_first(region: Any) -> list[Any]:
    """The ops of a region, those of inner regions behind the op that has them; not those of named computations."""
    out: list[Any] = []
    for block in region.blocks:
        for op in block.operations:
            out.append(op.operation)
            if op.operation.name != NAMED:
                for inner in op.operation.regions:
                    out.extend(_outside_first(inner))
    return out


def _definer(value: Any) -> Any | None:
    return None if isinstance(value, ir.BlockArgument) else value.owner.operation
