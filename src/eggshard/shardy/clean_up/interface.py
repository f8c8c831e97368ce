"""Passes on the shardings of functions' arguments and results: even, without sub-axes, and consistent with returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.planner.propagation.flows import with_manual
from eggshard.planner.propagation.propagated import without_sub_axes
from eggshard.program.mesh import Mesh
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import per_value_text, read_per_value
from eggshard.shardy.module import ShardyModule, function_type, manual_axes
from eggshard.shardy.passes import shardy_pass

#: What becomes of the sharding of a value of a type.
Change = Callable[[TensorSharding, Any], TensorSharding]


@shardy_pass("update-non-divisible-input-output-shardings")
def update_non_divisible_input_output_shardings(module: ShardyModule) -> None:
    """Shard the arguments and results of functions, calls and manual computations evenly.

    Each dimension keeps the longest prefix of its axes that divides its size; of the axis that divides it no more, the
    major part that does: on dimension 4 with x=4 and y=2, ``{y, x}`` becomes ``{y, x:(1)2}``.
    """

    def divided(sharding: TensorSharding, type_: Any) -> TensorSharding:
        return evenly_sharded(sharding, type_, module.mesh(sharding))

    for function in module.functions:
        _change_interface(module, function, divided)
    for op in module.walk("func.call"):
        stated = module.result_shardings(op)
        if stated:
            module.set_result_shardings(op, [divided(s, v.type) for s, v in zip(stated, op.results, strict=True)])
    for op in module.walk("sdy.manual_computation"):
        _even_body(op, divided)


@shardy_pass("remove-sub-axes-in-input-output-shardings")
def remove_sub_axes_in_input_output_shardings(module: ShardyModule) -> None:
    """Drop from the open dimensions of main's arguments and results the first sub-axis, and all axes minor to it.

    Closed dimensions stay: there the user has asked for sub-axes. Main is the function of that name, or the only one.
    """
    function = _main(module)
    if function is not None:
        _change_interface(
            module, function, lambda sharding, _: TensorSharding(sharding.mesh, without_sub_axes(sharding.sharding)))


@shardy_pass("propagate-to-func-results")
def propagate_to_func_results(module: ShardyModule) -> None:
    """Shard the results of every function but main as the values that it returns; without a sharding there is none."""
    main = _main(module)
    for function in module.functions:
        blocks = list(function.regions[0].blocks)
        if function == main or not blocks:
            continue
        for i, value in enumerate(list(blocks[0].operations)[-1].operation.operands):
            module.set_function_result_sharding(function, i, module.sharding(value))


def _main(module: ShardyModule) -> Any:
    """The module's main function, None if it has no function; ProgramError if it has several and none is called so."""
    if module.main is None and module.functions:
        shown = ", ".join(f"@{name}" for name in module.by_name)
        raise ProgramError(f"the module has functions {shown} and none of them is @main; name the entry so")
    return module.main


def evenly_sharded(sharding: TensorSharding, type_: Any, mesh: Mesh) -> TensorSharding:
    """Trim every dimension to the longest prefix of axes that divides its size; types without static sizes are kept."""
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape or not any(sharding.axes):
        return sharding
    return TensorSharding(sharding.mesh, sharding.sharding.evenly(type_.shape, mesh))


def _change_interface(module: ShardyModule, function: Any, change: Change) -> None:
    type_ = function_type(function)
    for i, (sharding, t) in enumerate(zip(module.argument_shardings(function), type_.inputs, strict=True)):
        if sharding:
            module.set_argument_sharding(function, i, change(sharding, t))
    for i, (sharding, t) in enumerate(zip(module.function_result_shardings(function), type_.results, strict=True)):
        if sharding:
            module.set_function_result_sharding(function, i, change(sharding, t))


def _even_body(op: Any, divided: Change) -> None:
    """The shards that the body sees are divided by free axes alone; results as a whole."""
    manual = manual_axes(op)
    stated = read_per_value(str(op.attributes["in_shardings"]))
    inner: Sequence[Any] = op.regions[0].blocks[0].arguments
    shardings = []
    for sharding, value in zip(stated, inner, strict=True):
        free = TensorSharding(sharding.mesh, sharding.sharding.without(manual))
        even_free = divided(free, value.type)
        whole = with_manual(sharding.sharding, even_free.sharding, manual)
        shardings.append(TensorSharding(sharding.mesh, whole))
    op.attributes["in_shardings"] = ir.Attribute.parse(per_value_text(shardings))
    out = read_per_value(str(op.attributes["out_shardings"]))
    out = tuple(divided(sharding, value.type) for sharding, value in zip(out, op.results, strict=True))
    op.attributes["out_shardings"] = ir.Attribute.parse(per_value_text(out))
