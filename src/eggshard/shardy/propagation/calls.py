"""Inlining of calls as named computations, so that shardings flow through them, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text, read_per_value
from eggshard.shardy.edges import edge_of, edge_owners, terminator
from eggshard.shardy.module import SHARDING, ShardyModule, inside_first
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.propagation.call_graph import ORIGINAL_NAME, CallGraph, FunctionTable, callee, stated_or_open
from eggshard.shardy.propagation.data_flow import add_edges

NAMED, THREAD, MANUAL_AXES = "sdy.named_computation", "execution_thread", "sdy.func_manual_axes"
#: What is not handed from a call to the computation, or back.
_OF_CALL = ("callee", "no_inline", "arg_attrs", "res_attrs", SHARDING)
_OF_COMPUTATION = ("name", "in_shardings", "out_shardings", THREAD)


@shardy_pass("import-func-calls")
def import_function_calls(module: ShardyModule, add_data_flow_edges_on_named_computations: bool = True) -> None:
    """Replace calls by named computations of the functions' bodies, with data-flow edges if asked to."""
    table, first = FunctionTable(module), dict[str, Any]()
    for call in CallGraph(module).calls_callees_first:
        name = callee(call)
        function = table[name]
        if name not in first and not function.regions[0].blocks:
            continue  # a declaration stays a call
        if name in first:
            computation = first[name].clone(ir.InsertionPoint(call))
            for number, operand in enumerate(call.operands):
                computation.operands[number] = operand
            for attribute in [a for a in computation.attributes if a not in ("name", "in_shardings")]:
                del computation.attributes[attribute]
        else:
            computation = _computation(module, call, function, table.original_name(name))
            first[name] = computation
        if SHARDING in call.attributes:
            computation.attributes["out_shardings"] = call.attributes[SHARDING]
        for attribute in call.attributes:
            if attribute not in _OF_CALL:
                computation.attributes[attribute] = call.attributes[attribute]
        if THREAD in function.attributes:
            computation.attributes[THREAD] = function.attributes[THREAD]
        replace(call, computation.results)
    for name in first:
        table[name].erase()
    if add_data_flow_edges_on_named_computations:
        for op in inside_first(module.module.operation):
            if op.name == NAMED:
                for owners in edge_owners(op):
                    add_edges(module, [owner for owner in owners if edge_of(owner) is None])


def _computation(module: ShardyModule, call: Any, function: Any, name: str) -> Any:
    """The named computation in front of a call, into which the function's body is moved."""
    attributes = {"name": ir.StringAttr.get(name)}
    block = function.regions[0].blocks[0]
    stated = stated_or_open(module.argument_shardings(function), list(block.arguments))
    if stated:
        attributes["in_shardings"] = ir.Attribute.parse(per_value_text(stated))
    with ir.InsertionPoint(call):
        computation = ir.Operation.create(
            NAMED, results=[result.type for result in call.results], operands=list(call.operands),
            attributes=attributes, regions=1, loc=call.location)
    _move_body(function, computation, "sdy.return")
    return computation


@shardy_pass("export-named-computations")
def export_named_computations(module: ShardyModule) -> None:
    """Replace named computations by calls of functions, with the shardings of their data-flow edges."""
    table = FunctionTable(module)
    called: list[Any] = []
    for op in inside_first(module.module.operation):
        if op.name != NAMED:
            continue
        arguments = list(op.regions[0].blocks[0].arguments)
        _take_from_edges(module, op, "in_shardings", arguments)
        _take_from_edges(module, op, "out_shardings", list(op.results))
        types = ir.FunctionType.get([a.type for a in arguments], [result.type for result in op.results])
        function = ir.Operation.create(
            "func.func", attributes={
                "sym_name": op.attributes["name"], "function_type": ir.TypeAttr.get(types),
                "sym_visibility": ir.StringAttr.get("private"), ORIGINAL_NAME: op.attributes["name"]},
            regions=1, loc=op.location)
        if THREAD in op.attributes:
            function.attributes[THREAD] = op.attributes[THREAD]
        name = table.add(function)
        _move_body(op, function, "func.return")
        _drop_edges(list(function.regions[0].blocks[0].arguments))
        if "in_shardings" in op.attributes:
            for number, sharding in enumerate(read_per_value(str(op.attributes["in_shardings"]))):
                module.set_sharding(function.regions[0].blocks[0].arguments[number], sharding)
        attributes = {a: op.attributes[a] for a in op.attributes if a not in _OF_COMPUTATION}
        attributes["callee"] = ir.FlatSymbolRefAttr.get(name)
        if "out_shardings" in op.attributes:
            attributes[SHARDING] = op.attributes["out_shardings"]
        with ir.InsertionPoint(op):
            call = ir.Operation.create(
                "func.call", results=[result.type for result in op.results], operands=list(op.operands),
                attributes=attributes, loc=op.location)
        replace(op, call.results)
        called.extend(call.results)
    _drop_edges(called)


def _take_from_edges(module: ShardyModule, op: Any, name: str, owners: Sequence[Any]) -> None:
    """State for a computation what its data-flow edges say, if one of them says anything."""
    edges = [edge_of(owner) for owner in owners]
    stated = stated_or_open([None if edge is None else module.sharding(edge.results[0]) for edge in edges], owners)
    if stated:
        op.attributes[name] = ir.Attribute.parse(per_value_text(stated))


def _drop_edges(owners: Sequence[Any]) -> None:
    for owner in owners:
        edge = edge_of(owner)
        if edge is not None:
            replace(edge, [owner])


def _move_body(source: Any, target: Any, returns: str) -> None:
    """Move the block of an op's region to another op, and end it by an op of that name."""
    block = source.regions[0].blocks[0]
    block.append_to(target.regions[0])
    last = terminator(target.regions[0])
    with ir.InsertionPoint(last):
        ir.Operation.create(returns, operands=list(last.operands), loc=last.location)
    last.erase()


def replace(op: Any, values: Sequence[Any]) -> None:
    """Let others use these values in place of an op's results, and erase it."""
    for result, value in zip(op.results, values, strict=True):
        result.replace_all_uses_with(value)
    op.erase()


@shardy_pass("unflatten-call-graph")
def unflatten_call_graph(module: ShardyModule, dedup_functions_fully: bool = False) -> None:
    """Let calls of copies of one function, with the same shardings, call the same one.

    dedup_functions_fully: whatever their shardings, the one that most calls have the shardings of.
    """
    table = FunctionTable(module)
    calls = [op for op in inside_first(module.module.operation) if op.name == "func.call"]

    def key(name: str, fully: bool) -> tuple[str, ...]:
        function = table[name]
        manual = str(function.attributes[MANUAL_AXES]) if MANUAL_AXES in function.attributes else ""
        same = table.original_name(name), str(function.attributes["function_type"]), manual
        if fully:
            return same
        return (*same, str(module.argument_shardings(function)), str(module.function_result_shardings(function)))

    kept: dict[tuple[str, ...], str] = {}
    counts: dict[tuple[str, ...], int] = {}
    for call in calls:
        kept.setdefault(key(callee(call), dedup_functions_fully), callee(call))
    if dedup_functions_fully:
        for call in calls:
            name, whole = callee(call), key(callee(call), True)
            counts[key(name, False)] = counts.get(key(name, False), 0) + 1
            if counts[key(name, False)] > counts.get(key(kept[whole], False), 0):
                kept[whole] = name
    for call in calls:
        call.attributes["callee"] = ir.FlatSymbolRefAttr.get(kept[key(callee(call), dedup_functions_fully)])
    for function in module.functions:
        for name in (ORIGINAL_NAME, MANUAL_AXES):
            if name in function.attributes:
                del function.attributes[name]


@shardy_pass("insert-func-call-reshards")
def insert_function_call_reshards(module: ShardyModule) -> None:
    """Shard the results of calls as the function says, and reshard them to what the calls said."""
    table = FunctionTable(module)
    for call in module.walk("func.call"):
        stated = module.result_shardings(call)
        own = stated_or_open(module.function_result_shardings(table[callee(call)]), list(call.results))
        if not own:
            own = [TensorSharding.closed(s.mesh, [()] * len(s.dims)) for s in stated or ()]
        if not own:
            continue
        for number, (result, sharding) in enumerate(zip(list(call.results), own, strict=True)):
            if not _alike(sharding, stated[number] if stated else None):
                target = stated[number] if stated else TensorSharding.closed(sharding.mesh, [()] * len(sharding.dims))
                with ir.InsertionPoint.after(call):
                    reshard = ir.Operation.create(
                        "sdy.reshard", results=[result.type], operands=[result],
                        attributes={"sharding": ir.Attribute.parse(str(target))})
                result.replace_all_uses_except(reshard.results[0], reshard)
        call.attributes[SHARDING] = ir.Attribute.parse(per_value_text(own))


def _alike(sharding: TensorSharding, other: TensorSharding | None) -> bool:
    """Whether two shardings cut a tensor alike, whatever else they allow."""
    if not any(sharding.axes):
        return other is None or not any(other.axes)
    return other is not None and (sharding.mesh, sharding.axes) == (other.mesh, other.axes)
