"""The call graph: functions and their callers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from eggshard.errors import ProgramError
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text
from eggshard.shardy.module import SHARDING, ShardyModule, inside_first, rank
from eggshard.shardy.passes import shardy_pass

#: Where a copy of a function, or a named computation that became one, remembers what it was.
ORIGINAL_NAME = "sdy.original_func_name"


def main_function(module: ShardyModule) -> Any | None:
    """The only function, or the one called ``main``; None if there is neither."""
    functions = module.functions
    if len(functions) == 1:
        return functions[0]
    return next((function for function in functions if symbol(function) == "main"), None)


def symbol(function: Any) -> str:
    """A function's name."""
    return str(ir.StringAttr(function.attributes["sym_name"]).value)


def callee(call: Any) -> str:
    """The name of the function that is called."""
    return str(ir.FlatSymbolRefAttr(call.attributes["callee"]).value)


class FunctionTable:
    """A module's functions, and other symbols, by name; functions are added under names not taken yet."""

    def __init__(self, module: ShardyModule) -> None:
        self.module = module
        self.symbols = {
            symbol(op.operation): op.operation for op in module.module.body.operations
            if "sym_name" in op.operation.attributes}
        self._count = 0
        self._copying: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        """The function of a name. ProgramError if the module has none."""
        if name not in self.symbols:
            raise ProgramError(f"func.call of @{name}, a function that the module does not define")
        return self.symbols[name]

    def original_name(self, name: str) -> str:
        """The name that a function had before it was copied."""
        function = self[name]
        stated = function.attributes[ORIGINAL_NAME] if ORIGINAL_NAME in function.attributes else None
        return name if stated is None else str(ir.StringAttr(stated).value)

    def add(self, function: Any) -> str:
        """Put a function that stands nowhere at the end of the module; the name that it now has."""
        name = wanted = symbol(function)
        while name in self.symbols:
            name = f"{wanted}_{self._count}"
            self._count += 1
        function.attributes["sym_name"] = ir.StringAttr.get(name)
        self.module.module.body.append(function)
        self.symbols[name] = function
        return name

    def copy(self, name: str) -> str:
        """Copy a function, with all that it calls; the copy's name."""
        if name in self._copying:
            raise ProgramError(f"function @{name} calls itself; write the recursion as a loop")
        copied = self[name].clone(False)
        self._copying.add(name)
        copied.attributes[ORIGINAL_NAME] = ir.StringAttr.get(self.original_name(name))
        for call in inside_first(copied):
            if call.name == "func.call":
                call.attributes["callee"] = ir.FlatSymbolRefAttr.get(self.copy(callee(call)))
        self._copying.discard(name)
        return self.add(copied)


class CallGraph:
    """Which functions call which, as it was when this was made."""

    def __init__(self, module: ShardyModule) -> None:
        self.functions = {symbol(function): function for function in module.functions}
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

    @property
    def calls_callees_first(self) -> list[Any]:
        """The calls, those in a function behind those in the functions that it calls.

        ProgramError for functions that call themselves.
        """
        place = {symbol(function): i for i, function in enumerate(self.callees_first)}
        for name, called in self.calls.items():
            for other in called:
                if place.get(other, -1) >= place[name]:
                    raise ProgramError(
                        f"function @{name} calls @{other}, which calls it; write the recursion as a loop")
        return [op for function in self.callees_first for op in inside_first(function) if op.name == "func.call"]

    @property
    def callers_first(self) -> list[Any]:
        """The functions, each before those that it calls."""
        return self.callees_first[::-1]


@shardy_pass("symbol-dce", on="")
def symbol_dce(module: ShardyModule) -> None:
    """Erase private functions that nothing refers to (MLIR's own pass). All stay where ops may refer to any."""
    with suppress(ir.MLIRError):
        PassManager.parse("builtin.module(symbol-dce)").run(module.module.operation)


@shardy_pass("pre-order-funcs")
def pre_order_functions(module: ShardyModule) -> None:
    """Put every function before those that it calls."""
    for function in CallGraph(module).callers_first:
        function.detach_from_parent()
        module.module.body.append(function)


@shardy_pass("flatten-call-graph")
def flatten_call_graph(module: ShardyModule) -> None:
    """Give every call a function of its own: all calls of a function but the first get copies."""
    table, called = FunctionTable(module), set()
    for call in CallGraph(module).calls_callees_first:
        name = callee(call)
        if name in called:
            call.attributes["callee"] = ir.FlatSymbolRefAttr.get(table.copy(name))
        called.add(name)


@shardy_pass("propagate-sharding-from-func-to-call")
def propagate_sharding_from_function_to_call(module: ShardyModule) -> None:
    """State for the results of calls what is stated for those of the function, if nothing is stated for them."""
    table = FunctionTable(module)
    for call in module.walk("func.call"):
        if SHARDING not in call.attributes:
            stated = stated_or_open(module.function_result_shardings(table[callee(call)]), call.results)
            if stated:
                call.attributes[SHARDING] = ir.Attribute.parse(per_value_text(stated))


def stated_or_open(shardings: Sequence[TensorSharding | None], values: Sequence[Any]) -> list[TensorSharding]:
    """The shardings of values, fully open for those that have none; none at all if no value has one."""
    mesh = next((sharding.mesh for sharding in shardings if sharding is not None), None)
    if mesh is None:
        return []
    return [
        sharding or TensorSharding.fully_open(mesh, rank(value))
        for sharding, value in zip(shardings, values, strict=True)]
