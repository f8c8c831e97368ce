"""Rewriting of every sharding in a module, wherever it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text, read_per_value
from eggshard.shardy.module import BODIES, OWN_SHARDING, SHARDING, ShardyModule

#: Attributes of a function that hold one dictionary per argument or result.
ENTRIES = ("arg_attrs", "res_attrs")
PER_VALUE = "#sdy.sharding_per_value"


def transform_shardings(module: ShardyModule, change: Callable[[TensorSharding], TensorSharding]) -> None:
    """Put ``change(sharding)`` in the place of every sharding: of arguments, results, ops, edges and bodies."""
    known: dict[Any, Any] = {}

    def changed(attribute: Any) -> Any:
        if attribute not in known:
            known[attribute] = _changed(attribute, change)
        return known[attribute]

    for op in module.walk():
        for name in sharding_attributes(op):
            op.attributes[name] = changed(op.attributes[name])
        if op.name == "func.func":
            transform_entries(op, lambda entry: {k: changed(v) if k == SHARDING else v for k, v in entry.items()})


def sharding_attributes(op: Any) -> Iterator[str]:
    """The names of the attributes of an op that hold shardings; those of functions are in `ENTRIES`."""
    own = OWN_SHARDING.get(op.name)
    names = ("in_shardings", "out_shardings") if op.name in BODIES else (own, SHARDING) if own else (SHARDING,)
    return (name for name in names if name in op.attributes)


def transform_entries(function: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Put ``change(entry)`` in the place of each argument's and result's dictionary of attributes."""
    for key in ENTRIES:
        if key not in function.attributes:
            continue
        before = [{named.name: named.attr for named in ir.DictAttr(e)} for e in ir.ArrayAttr(function.attributes[key])]
        after = [change(entry) for entry in before]
        if any(after):
            function.attributes[key] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in after])
        else:
            del function.attributes[key]


def _changed(attribute: Any, change: Callable[[TensorSharding], TensorSharding]) -> Any:
    text = str(attribute)
    if text.startswith(PER_VALUE):
        return ir.Attribute.parse(per_value_text(map(change, read_per_value(text))))
    return ir.Attribute.parse(str(change(TensorSharding.parse(text))))
