"""Localization of functions, calls, loops, branches, other ops with bodies, and Shardy's own ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.axes import Axes, union
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.program.types import TensorType
from eggshard.shardy.attributes import read_per_value
from eggshard.shardy.local.collectives import steps_of
from eggshard.shardy.local.conversion import Conversion, Handler, tensor_type
from eggshard.shardy.local.decisions import BY_REGION, Refusal
from eggshard.shardy.local.layouts import Layout, same_layout
from eggshard.shardy.module import COLLECTIVES, HINTS, OWN_SHARDING, callee, function_type, manual_axes, symbol
from eggshard.shardy.reshards.collectives.kinds import Collective
from eggshard.steps.steps import ReduceScatter, Slice


def convert_function(conversion: Conversion, function: Any) -> None:
    """A function's signature, and its body if it has one."""
    arguments, results = conversion.signatures[symbol(function)]
    blocks = list(function.regions[0].blocks)
    for value, layout in zip(blocks[0].arguments, arguments, strict=True) if blocks else ():
        conversion.settle(value, layout)
    for value in (value for block in blocks[1:] for value in block.arguments):
        conversion.settle(value, Layout.whole(tensor_type(value.type)))
    for block in blocks:
        conversion.block(block, results)
    types = function_type(function)
    local = ir.FunctionType.get(
        [_local(t, layout) for t, layout in zip(types.inputs, arguments, strict=True)],
        [_local(t, layout) for t, layout in zip(types.results, results, strict=True)],
    )
    function.attributes["function_type"] = ir.TypeAttr.get(local)


def _local(type_: Any, layout: Layout) -> Any:
    return ir.RankedTensorType.get(layout.local.shape, type_.element_type) if layout.sharded else type_


def _call(conversion: Conversion, op: Any) -> None:
    name = callee(op)
    arguments, results = conversion.signatures[name]
    for i, (value, layout) in enumerate(zip(op.operands, arguments, strict=True)):
        conversion.require(value, layout, f"operand {i} of a call of @{name}")
    if conversion.module.result_shardings(op):
        for i, (stated, layout) in enumerate(zip(conversion.results_stated(op), results, strict=True)):
            if not same_layout(stated, layout):
                raise Refusal(
                    f"its result {i} is stated to be sharded as {stated}, @{name} returns it as {layout}; "
                    "run insert-func-call-reshards first"
                )
    for value, layout in zip(op.results, results, strict=True):
        conversion.settle(value, layout)


def _while(conversion: Conversion, op: Any) -> None:
    carried = conversion.results_stated(op)
    for i, (value, layout) in enumerate(zip(op.operands, carried, strict=True)):
        conversion.require(value, layout, f"operand {i}")
    condition, body = (region.blocks[0] for region in op.regions)
    for block in (condition, body):
        for value, layout in zip(block.arguments, carried, strict=True):
            conversion.settle(value, layout)
    conversion.block(condition, [Layout.whole(TensorType((), "i1"))])
    conversion.block(body, carried)
    for value, layout in zip(op.results, carried, strict=True):
        conversion.settle(value, layout)


def _branches(conversion: Conversion, op: Any) -> None:
    results = conversion.results_stated(op)
    for region in op.regions:
        conversion.block(region.blocks[0], results)
    for value, layout in zip(op.results, results, strict=True):
        conversion.settle(value, layout)


def _body(conversion: Conversion, op: Any) -> None:
    """A manual or a named computation: its ops are put in its place."""
    block, axes = op.regions[0].blocks[0], manual_axes(op)
    ins, outs = (_stated_for_body(op, key, values) for key, values in (
        ("in_shardings", op.operands), ("out_shardings", op.results)))
    returned = list(block.operations)[-1].operation.operands

    def inside(value: Any, sharding: TensorSharding | None, what: str) -> Layout:
        free = sharding and TensorSharding(sharding.mesh, sharding.sharding.without(axes))
        return conversion.stated(tensor_type(value.type), free, f"{what} of its body")

    for i, (value, sharding) in enumerate(zip(op.operands, ins, strict=True)):
        wanted = conversion.stated(conversion.layout(value).type, sharding, f"operand {i}")
        conversion.require(value, wanted, f"operand {i}")
    for i, (value, sharding) in enumerate(zip(block.arguments, ins, strict=True)):
        conversion.settle(value, inside(value, sharding, f"argument {i}"))
    results = [
        conversion.stated(tensor_type(value.type), sharding, f"result {i}")
        for i, (value, sharding) in enumerate(zip(op.results, outs, strict=True))
    ]
    pairs = enumerate(zip(returned, outs, strict=True))
    conversion.block(block, [inside(value, sharding, f"result {i}") for i, (value, sharding) in pairs])
    for old, new in zip(block.arguments, list(op.operands), strict=True):
        old.replace_all_uses_with(new)
    *ops, terminator = [inner.operation for inner in block.operations]
    for inner in ops:
        inner.move_before(op)
    values = list(terminator.operands)
    terminator.erase()
    conversion.replace(op, values, results)


def _stated_for_body(op: Any, key: str, values: Sequence[Any]) -> Sequence[TensorSharding | None]:
    """The shardings of a body's operands or results; those of a named computation may be left out."""
    return read_per_value(str(op.attributes[key])) if key in op.attributes else [None] * len(values)


def _identity(conversion: Conversion, op: Any) -> None:
    """What only states a sharding: nothing, where the value has it."""
    value = op.operands[0]
    if op.name in OWN_SHARDING:
        conversion.require(value, conversion.results_stated(op)[0], "its operand")
    conversion.replace(op, [value], [conversion.layout(value)])


def _group(conversion: Conversion, op: Any) -> None:
    values = list(op.operands)[: len(op.results)]
    conversion.replace(op, values, [conversion.layout(v) for v in values])


def _collective(conversion: Conversion, op: Any) -> None:
    value, (stated,) = op.operands[0], conversion.results_stated(op)
    source = conversion.layout(value)
    collective = Collective.read(op)
    assert collective is not None
    if collective.reduces:
        if value in conversion.combined:
            source = source.partial(conversion.combined[value], BY_REGION)
        elif _is_given(conversion, value):
            source = _as_partial_sums(source, stated.mesh, (collective.axes, *collective.dims))
    mesh, actions, made = steps_of(collective, source, stated, conversion.options)
    if source.monoid == BY_REGION:  # it is reduced already
        made = made.partial((), "")
        actions = [Slice(a.moves) for a in actions if isinstance(a, ReduceScatter)]
    name = conversion.mesh_name(op)
    new = conversion.splicer.act(mesh, actions, value, source.local, op, name)
    if _is_given(conversion, value):
        conversion.given.add(new)
    conversion.replace(op, [new], [made])


def _is_given(conversion: Conversion, value: Any) -> bool:
    """Whether a value is an argument of a function, moved and reduced or not: what devices hold, only callers know."""
    if isinstance(value, ir.BlockArgument):
        return bool(value.owner.owner.operation.name == "func.func")
    return value in conversion.given


def _as_partial_sums(layout: Layout, mesh: Mesh, lists: Sequence[Axes]) -> Layout:
    """The layout of a value that is summed over axes which nothing is said about: its devices hold addends."""
    if not layout.plain:
        mesh = layout.mesh
    held = union(layout.unreduced, tuple(a for axes in lists for a in axes), mesh.axes)
    return replace(layout, mesh=mesh).partial(held, layout.monoid or "add")


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(COLLECTIVES, _collective),
    **dict.fromkeys(HINTS, _identity),
    "sdy.sharding_group": _group,
    "sdy.manual_computation": _body,
    "sdy.named_computation": _body,
    "stablehlo.while": _while,
    "stablehlo.case": _branches,
    "stablehlo.if": _branches,
    "func.call": _call,
}
