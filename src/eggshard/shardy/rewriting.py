"""Rewriting of every sharding in a module, wherever it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text, read_per_value
from eggshard.shardy.module import BODIES, OWN_SHARDING, SHARDING, ShardyModule, function_type

#: What becomes of the sharding of a value of an MLIR type.
Change = Callable[[TensorSharding, Any], TensorSharding]


def transform_shardings(module: ShardyModule, change: Change) -> None:
    """Put ``change(sharding, type)`` in the place of every sharding: of arguments, results, ops, edges and bodies."""
    known: dict[Any, Any] = {}

    def changed(attribute: Any, types: Sequence[Any]) -> Any:
        key = attribute, tuple(types)
        if key not in known:
            known[key] = _changed(attribute, types, change)
        return known[key]

    for op in module.walk():
        for name, types in sharding_attributes(op):
            op.attributes[name] = changed(op.attributes[name], types)
        if op.name == "func.func":
            transform_entries(op, lambda entry, type_: {
                k: changed(v, (type_,)) if k == SHARDING else v for k, v in entry.items()})


def stated_shardings(module: ShardyModule) -> Iterator[tuple[Any, TensorSharding]]:
    """Every sharding that a module states, with the MLIR type of its value, None for an op without values."""
    for op in module.walk():
        for name, types in sharding_attributes(op):
            stated = _read(str(op.attributes[name]))
            yield from zip(types or [None] * len(stated), stated, strict=True)
        if op.name == "func.func":
            of = function_type(op)
            ends = (of.inputs, module.argument_shardings(op)), (of.results, module.function_result_shardings(op))
            yield from ((t, s) for types, listed in ends for t, s in zip(types, listed, strict=True) if s is not None)


def drop_shardings(module: ShardyModule) -> None:
    """Take away the shardings that are stated for values, but not those of which an op consists."""
    for op in module.walk():
        if SHARDING in op.attributes:
            del op.attributes[SHARDING]
        if op.name == "func.func":
            transform_entries(op, lambda entry, _: {k: v for k, v in entry.items() if k != SHARDING})


def sharding_attributes(op: Any) -> Iterator[tuple[str, list[Any]]]:
    """The attributes of an op that hold shardings, and the types of their values; not those of a function's entries."""
    own, results = OWN_SHARDING.get(op.name), [value.type for value in op.results]
    listed = [("in_shardings", [value.type for value in op.operands]), ("out_shardings", results)]
    if op.name not in BODIES:
        listed = [*([(own, results)] if own else []), (SHARDING, results)]
    return ((name, types) for name, types in listed if name in op.attributes)


def transform_entries(function: Any, change: Callable[[dict[str, Any], Any], dict[str, Any]]) -> None:
    """Put ``change(entry, type)`` in the place of each argument's and result's dictionary of attributes."""
    of = function_type(function)
    for key, types in (("arg_attrs", of.inputs), ("res_attrs", of.results)):
        if key not in function.attributes:
            continue
        before = [{named.name: named.attr for named in ir.DictAttr(e)} for e in ir.ArrayAttr(function.attributes[key])]
        after = [change(entry, type_) for entry, type_ in zip(before, types, strict=True)]
        if any(after):
            function.attributes[key] = ir.ArrayAttr.get([ir.DictAttr.get(entry) for entry in after])
        else:
            del function.attributes[key]


def _read(text: str) -> tuple[TensorSharding, ...]:
    return read_per_value(text) if text.startswith("#sdy.sharding_per_value") else (TensorSharding.parse(text),)


def _changed(attribute: Any, types: Sequence[Any], change: Change) -> Any:
    text = str(attribute)
    stated = _read(text)
    after = list(map(change, stated, types or [None] * len(stated)))
    return ir.Attribute.parse(per_value_text(after) if text.startswith("#sdy.sharding_per_value") else str(after[0]))
