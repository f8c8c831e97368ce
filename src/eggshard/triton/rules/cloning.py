"""Cloning of an op at another option, with the types of its results, and of attributes that hold them, updated."""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.triton.kernels.ir import Block, Operation, TensorType, Type, Value
from eggshard.triton.kernels.text import read_type, scan
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.rules.rule import Option


def with_option(op: Operation, option: Option, operands: Sequence[Value]) -> Operation:
    """The op at an option, on operands that have its encodings; its regions are cloned, and what they take from
    outside stays. The clone stands nowhere yet (``parent`` is None)."""
    results = zip(op.results, option.results, strict=True)
    return _clone(op, operands, {value: with_encoding(value.type, encoding) for value, encoding in results}, {}, None)


def with_encoding(type_: Type, encoding: Encoding | None) -> Type:
    """A tensor's type with another encoding; any other type, and without an encoding, as it is."""
    return type_ if encoding is None or not isinstance(type_, TensorType) else type_._replace(encoding=str(encoding))


def _clone(
    op: Operation, operands: Sequence[Value], types: dict[Value, Type], known: dict[Value, Value], parent: Block | None,
) -> Operation:
    changed = {value.type: types[value] for value in op.results if value in types}
    new = op.bare(list(operands))
    new.parent = parent
    new.properties, new.attributes = (
        {name: _retyped(text, changed) for name, text in some.items()} for some in (op.properties, op.attributes))
    for value in op.results:
        known[value] = new.add_result(types.get(value, value.type), value.location)
    blocks = new.add_blocks_like(op)
    for block, new_block in blocks:
        for argument in block.arguments:
            known[argument] = new_block.add_argument(argument.type, argument.location)
    for block, new_block in blocks:
        for inner in block.operations:
            inside = [known.get(value, value) for value in inner.operands]
            new_block.operations.append(_clone(inner, inside, {}, known, new_block))
    return new


def _retyped(text: str, changed: dict[Type, Type]) -> str:
    """An attribute's text; one that is typed as a result is (``dense<0> : tensor<..>``) is typed as the new result."""
    colon = scan(text, 0, ":")
    if colon == len(text) or not text[colon + 1:].lstrip().startswith("tensor<"):
        return text
    new = changed.get(read_type(text[colon + 1:]))
    return text if new is None else f"{text[:colon].rstrip()} : {new}"
