"""Calls of functions: which call which, calls inlined as named computations, and copies of functions as one again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext

from eggshard.errors import ProgramError
from eggshard.frontends.jaxlib_context import attributes_of
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text
from eggshard.shardy.edges import edge_of, edge_owners, terminator
from eggshard.shardy.module import SHARDING, ShardyModule, callee, create, inside_first, rank, symbol
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.propagation.data_flow import add_edges

NAMED, THREAD, MANUAL_AXES = "sdy.named_computation", "execution_thread", "sdy.func_manual_axes"
#: Where a copy of a function, or a named computation that became one, remembers what it was.
ORIGINAL_NAME = "sdy.original_func_name"
#: What is not handed from a call to the computation.
_OF_CALL = ("callee", "no_inline", "arg_attrs", "res_attrs", SHARDING)


class CallGraph:
    """Which functions call which, as it was when this was made."""

    def __init__(self, module: ShardyModule) -> None:
        self.functions = module.by_name
        self.calls = {
            name: [callee(op) for op in module.walk("func.call", root=function)]
            for name, function in self.functions.items()
        }

    @cached_property
    def callees_first(self) -> list[Any]:
        """The functions, each behind those that it calls."""
        out: dict[str, Any] = {}
        seen: set[str] = set()

        def visit(name: str) -> None:
            if name not in seen and name in self.functions:
                seen.add(name)
                for called in self.calls[name]:
                    visit(called)
                out[name] = self.functions[name]

        for name in self.functions:
            visit(name)
        return list(out.values())

    def refuse_recursion(self) -> None:
        """ProgramError for functions that call themselves, by way of others or not."""
        place = {symbol(function): i for i, function in enumerate(self.callees_first)}
        for name, called in self.calls.items():
            for other in called:
                if place.get(other, -1) >= place[name]:
                    raise ProgramError(
                        f"function @{name} calls @{other}, which calls it; write the recursion as a loop")


@shardy_pass("inline-calls", on="")
def inline_calls(module: ShardyModule) -> None:
    """Put the bodies of functions in the place of their calls, as XLA does; what a function or a call states of
    arguments and results becomes sharding constraints.

    Calls of declarations stay, and those that say that they are not ``inlineable``.
    """
    graph = CallGraph(module)
    graph.refuse_recursion()
    gone = set()
    for function in graph.callees_first:
        for call in module.walk("func.call", root=function):
            called = graph.functions[callee(call)]
            noted = str(attributes_of(call).get("mhlo.frontend_attributes", ""))
            if not called.regions[0].blocks or 'inlineable = "false"' in noted:
                continue
            arguments, results = module.argument_shardings(called), module.function_result_shardings(called)
            operands = [_constrained(x, s, call) for x, s in zip(call.operands, arguments, strict=True)]
            with ir.InsertionPoint(call):
                made = _jax_mlir_ext.inlined_func_call(called, operands, call.location)
            for stated in (results, module.result_shardings(call) or ()):
                made = [_constrained(x, s, call) for x, s in zip(made, stated, strict=True)] if stated else made
            for old, new in zip(call.results, made, strict=True):
                old.replace_all_uses_with(new)
            gone.add(callee(call))
            call.erase()
    still = {callee(op) for op in module.walk("func.call")} | {"main"}
    for name in gone - still:
        if module.main != graph.functions[name]:
            graph.functions[name].erase()


def _constrained(value: Any, sharding: TensorSharding | None, before: Any) -> Any:
    if sharding is None or not sharding.sharding.says_something or not isinstance(value.type, ir.RankedTensorType):
        return value
    made = create("sdy.sharding_constraint", [value], [value.type], {"sharding": str(sharding)}, before)
    return made.results[0]


@shardy_pass("pre-order-funcs")
def pre_order_functions(module: ShardyModule) -> None:
    """Put every function before those that it calls."""
    for function in reversed(CallGraph(module).callees_first):
        function.detach_from_parent()
        module.module.body.append(function)


@shardy_pass("import-func-calls")
def import_function_calls(module: ShardyModule, add_data_flow_edges_on_named_computations: bool = True) -> None:
    """Replace calls by named computations of the functions' bodies, with data-flow edges if asked to."""
    graph, first = CallGraph(module), dict[str, Any]()
    graph.refuse_recursion()
    functions = graph.functions
    for call in [op for function in graph.callees_first for op in inside_first(function) if op.name == "func.call"]:
        name = callee(call)
        function = functions[name]
        if name not in first and not function.regions[0].blocks:
            continue  # a declaration stays a call
        if name in first:
            computation = first[name].clone(ir.InsertionPoint(call))
            for number, operand in enumerate(call.operands):
                computation.operands[number] = operand
            for attribute in [a for a in attributes_of(computation) if a not in ("name", "in_shardings")]:
                del computation.attributes[attribute]
        else:
            computation = first[name] = _computation(module, call, function, _original_name(functions, name))
        if SHARDING in call.attributes:
            computation.attributes["out_shardings"] = call.attributes[SHARDING]
        for stated, attribute in attributes_of(call).items():
            if stated not in _OF_CALL:
                computation.attributes[stated] = attribute
        if THREAD in function.attributes:
            computation.attributes[THREAD] = function.attributes[THREAD]
        for old, new in zip(call.results, computation.results, strict=True):
            old.replace_all_uses_with(new)
        call.erase()
    for name in first:
        functions[name].erase()
    if add_data_flow_edges_on_named_computations:
        for op in inside_first(module.module.operation):
            if op.name == NAMED:
                for owners in edge_owners(op):
                    add_edges(module, [owner for owner in owners if edge_of(owner) is None])


def _computation(module: ShardyModule, call: Any, function: Any, name: str) -> Any:
    """The named computation in front of a call, into which the function's body is moved."""
    attributes: dict[str, Any] = {"name": ir.StringAttr.get(name)}
    block = function.regions[0].blocks[0]
    stated = _stated_or_open(module, module.argument_shardings(function), list(block.arguments))
    if stated:
        attributes["in_shardings"] = per_value_text(stated)
    types = [result.type for result in call.results]
    computation = create(NAMED, call.operands, types, attributes, call, 1, call.location)
    block.append_to(computation.regions[0])
    last = terminator(computation.regions[0])
    create("sdy.return", last.operands, [], {}, last, location=last.location)
    last.erase()
    return computation


def _stated_or_open(
    module: ShardyModule, shardings: Sequence[TensorSharding | None], values: Sequence[Any]
) -> list[TensorSharding]:
    """The shardings of values, fully open for those that have none; none at all if no value is on a mesh of several
    devices, as an open sharding must be."""
    mesh = next((s.mesh for s in shardings if s is not None and not module.on_one_device(s)), None)
    if mesh is None:
        return []
    return [
        sharding or TensorSharding.fully_open(mesh, rank(value))
        for sharding, value in zip(shardings, values, strict=True)]


def _original_name(functions: Mapping[str, Any], name: str) -> str:
    """The name that a function had before it was copied."""
    stated = functions[name].attributes
    return str(ir.StringAttr(stated[ORIGINAL_NAME]).value) if ORIGINAL_NAME in stated else name


@shardy_pass("unflatten-call-graph")
def unflatten_call_graph(module: ShardyModule, dedup_functions_fully: bool = False) -> None:
    """Let calls of copies of one function, with the same shardings, call the same one.

    dedup_functions_fully: whatever their shardings, the one that most calls have the shardings of.
    """
    functions = module.by_name
    calls = [op for op in inside_first(module.module.operation) if op.name == "func.call"]

    def key(name: str, fully: bool) -> tuple[str, ...]:
        function = functions[name]
        manual = str(function.attributes[MANUAL_AXES]) if MANUAL_AXES in function.attributes else ""
        same = _original_name(functions, name), str(function.attributes["function_type"]), manual
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
