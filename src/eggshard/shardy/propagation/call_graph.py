"""Functions and who calls them."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir

from eggshard.shardy.module import ShardyModule


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
