"""Wrapping of the program of one device behind whole tensors, so that XLA compiles it unchanged."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext

from eggshard.errors import ProgramError, ShardingError
from eggshard.program.axes import shard_count
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import mesh_text
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.program.types import TensorType
from eggshard.shardy.clean_up.meshes import drop_sharding_and_mesh
from eggshard.shardy.local.conversion import tensor_type
from eggshard.shardy.local.halo_exchange import manual_computation
from eggshard.shardy.module import ShardyModule, create, function_type, parsed

_MESH = "mesh"


def whole_program(text: str) -> str:
    """A module whose ``@main`` takes whole tensors, and runs that of a localised module on their shards.

    The text is what `convert-global-to-local` leaves, with the shardings of arguments and results. ProgramError without
    a function ``@main``; ShardingError where a result is to stay partial values, which a module's boundary cannot
    express.
    """
    with parsed(text) as module:
        wrap(module)
        return module.text()


def wrap(module: ShardyModule) -> None:
    """Wrap the body of ``@main`` in place, as the text of `convert-global-to-local` left it.

    Raises ProgramError without a function ``@main``.
    """
    main = _main(module)
    types = function_type(main)
    mesh, shardings = _boundary(module, main)
    drop_sharding_and_mesh(module)
    if not mesh.axes:
        return
    stated, whole = [], []
    for listed, side in zip((types.inputs, types.results), shardings, strict=True):
        closed = [_closed(type_, sharding) for type_, sharding in zip(listed, side, strict=True)]
        stated.append(closed)
        whole.append([_whole(type_, s, mesh) for type_, s in zip(listed, closed, strict=True)])
    attributes = {"sym_name": ir.StringAttr.get(_MESH), "mesh": f"#sdy.mesh{mesh_text(mesh)}"}
    create("sdy.mesh", [], [], attributes, ir.InsertionPoint.at_block_begin(module.module.body))
    attributes = {"sym_name": ir.StringAttr.get("main"), "function_type": ir.TypeAttr.get(ir.FunctionType.get(*whole))}
    function = create("func.func", [], [], attributes, main, regions=1)
    for i, sharding in enumerate(stated[1]):
        module.set_function_result_sharding(function, i, sharding)
    block = function.regions[0].blocks.append(*whole[0])
    for argument, sharding in zip(block.arguments, stated[0], strict=True):
        module.set_sharding(argument, sharding)
    at = ir.InsertionPoint(block)
    manual = manual_computation(mesh, list(block.arguments), stated[0], whole[1], stated[1], at)
    create("func.return", manual.results, [], {}, at)
    inner = manual.regions[0].blocks.append(*types.inputs)
    with ir.InsertionPoint(inner):
        results = _jax_mlir_ext.inlined_func_call(main, list(inner.arguments), main.location)
    create("sdy.return", results, [], {}, ir.InsertionPoint(inner))
    main.erase()
    i32 = ir.IntegerType.get_signless(32)
    module.module.operation.attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(i32, mesh.size)
    module.module.operation.attributes["mhlo.num_replicas"] = ir.IntegerAttr.get(i32, 1)


def boundary_mesh(module: ShardyModule) -> Mesh:
    """The mesh that the arguments and results of ``@main`` lie on, else the module's first; without axes if it has
    none."""
    return _boundary(module, _main(module))[0]


class End(NamedTuple):
    """An argument or a result: its global type, the type of a device's shard, and how it is sharded."""

    type: TensorType
    local: TensorType
    sharding: str


def boundary(module: ShardyModule) -> tuple[tuple[End, ...], tuple[End, ...]]:
    """The arguments and results of ``@main``, of a module that `convert-global-to-local` left.

    Raises ProgramError without a function ``@main``, ShardingError for partial values.
    """
    main = _main(module)
    mesh, shardings = _boundary(module, main)
    types = function_type(main)
    sides = [
        tuple(End(tensor_type(_whole(t, closed, mesh)), tensor_type(t), str(closed.sharding)) for t, s in zip(
            listed, side, strict=True) if (closed := _closed(t, s)))
        for listed, side in zip((types.inputs, types.results), shardings, strict=True)]
    return sides[0], sides[1]


def _main(module: ShardyModule) -> Any:
    main = module.by_name.get("main")
    if main is None:
        raise ProgramError("the module has no function @main; name the function to run so")
    return main


def _boundary(module: ShardyModule, main: Any) -> tuple[Mesh, list[list[TensorSharding | None]]]:
    """The one mesh of a function's arguments and results, and their shardings; the module's first if they have none."""
    sides = [module.argument_shardings(main), module.function_result_shardings(main)]
    meshes = list(dict.fromkeys(m for side in sides for s in side if s and (m := module.mesh(s)).axes))
    if len(meshes) > 1:
        raise ShardingError(f"arguments and results of @main lie on different meshes, {meshes[0]} and {meshes[1]}")
    meshes += [m for m in module.meshes.values() if isinstance(m, Mesh) and m.axes]
    return meshes[0] if meshes else Mesh({}), sides


def _closed(type_: Any, sharding: TensorSharding | None) -> TensorSharding:
    rank = tensor_type(type_).rank
    if sharding is None:
        return TensorSharding.closed(_MESH, ((),) * rank)
    if sharding.sharding.unreduced:
        raise ShardingError(
            f"an argument or result of @main holds partial sums ({sharding}); reduce them in the program"
        )
    return TensorSharding.closed(_MESH, sharding.axes)


def _whole(type_: Any, sharding: TensorSharding, mesh: Mesh) -> Any:
    """The global type of a shard's."""
    if not isinstance(type_, ir.RankedTensorType):
        return type_
    shape = [n * shard_count(axes, mesh.axes) for n, axes in zip(type_.shape, sharding.axes, strict=True)]
    return ir.RankedTensorType.get(shape, type_.element_type)
