"""What a module with Shardy's ops computes, by the StableHLO interpreter: reshards and collectives are identities of
global values, and a computation that is manual over all axes is a copy of its body for every device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _stablehlo
from jaxlib.mlir.dialects import stablehlo

from eggshard.program.mesh import Mesh
from eggshard.program.sharding import atoms, gather_cuts
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.attributes import read_per_value
from eggshard.shardy.local.emission import zero_text
from eggshard.shardy.module import ShardyModule, shape

IDENTITIES = (
    "sdy.reshard", "sdy.sharding_constraint", "sdy.all_gather", "sdy.all_slice", "sdy.all_to_all",
    "sdy.collective_permute", "sdy.all_reduce", "sdy.reduce_scatter", "sdy.replicated_to_unreduced",
    "sdy.sharded_to_unreduced",
)
GROUPED = ("stablehlo.all_gather", "stablehlo.all_to_all", "stablehlo.all_reduce", "stablehlo.reduce_scatter")


def evaluate(text: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of @main."""
    context = jax_mlir.make_ir_context()
    with context, ir.Location.unknown():
        module = ShardyModule(ir.Module.parse(text))
        for op in module.walk("sdy.manual_computation"):
            _on_all_devices(module, op)
        for op in module.walk(*IDENTITIES):
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()
        for op in module.walk():
            if "sdy.sharding" in op.attributes:
                del op.attributes["sdy.sharding"]
            for name in ("arg_attrs", "res_attrs"):
                if name in op.attributes:
                    del op.attributes[name]
        for op in module.walk("sdy.constant"):
            with ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(stablehlo.constant(op.attributes["value"]))
            op.erase()
        for op in module.walk("stablehlo.scatter", "stablehlo.dynamic_update_slice"):
            with ir.InsertionPoint(op):  # the interpreter writes into an operand's own buffer
                for i in range(len(op.results)):
                    if shape(op.operands[i]):
                        op.operands[i] = stablehlo.concatenate([op.operands[i]], 0)
        for op in module.walk("sdy.mesh"):
            op.erase()
        found = ir.Module.parse(module.text())
        values = [_attribute(value) for value in inputs]
        return [np.array(result) for result in _stablehlo.eval_module(found, values)]


def _attribute(value: np.ndarray) -> Any:
    if value.dtype != bool:
        return ir.DenseElementsAttr.get(np.ascontiguousarray(value))
    bits = np.packbits(value, bitorder="little")
    return ir.DenseElementsAttr.get(bits, type=ir.IntegerType.get_signless(1), shape=value.shape)


def _on_all_devices(module: ShardyModule, op: Any) -> None:
    """A copy of the body for every device, in which permutes are the operands of other devices' copies."""
    ins, outs = (read_per_value(str(op.attributes[n])) for n in ("in_shardings", "out_shardings"))
    mesh = module.mesh((*outs, *ins)[0])
    mesh = mesh.refined(gather_cuts([s.sharding for s in (*ins, *outs)], mesh))
    body = op.regions[0].blocks[0]
    with ir.InsertionPoint(op):
        values: list[dict[Any, Any]] = [
            {argument: stablehlo.slice(x, *_box(mesh, sharding, shape(x), device), [1] * len(shape(x)))
             for argument, x, sharding in zip(body.arguments, op.operands, ins, strict=True)}
            for device in range(mesh.size)]
        for inner in body.operations:
            if inner.operation.name != "sdy.return":
                _copied(inner.operation, values)
                continue
            for i, (result, sharding) in enumerate(zip(op.results, outs, strict=True)):
                pieces = [known[inner.operation.operands[i]] for known in values]
                result.replace_all_uses_with(_whole(mesh, sharding, pieces))
    op.erase()


def evaluate_local(text: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a module of one device's shards, whose @main takes and gives whole tensors, by its last device."""
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        module = ShardyModule(ir.Module.parse(text))
        mesh = next(mesh for mesh in module.meshes.values() if isinstance(mesh, Mesh))
        main = next(f for f in module.functions if ir.StringAttr(f.attributes["sym_name"]).value == "main")
        block = main.regions[0].blocks[0]
        values: list[dict[Any, Any]] = [{a: a for a in block.arguments} for _ in range(mesh.size)]
        ops = [op.operation for op in block.operations]
        with ir.InsertionPoint(ops[-1]):
            for op in ops[:-1]:
                _copied(op, values)
        for i, x in enumerate(ops[-1].operands):
            ops[-1].operands[i] = values[-1][x]
        for op in reversed(ops[:-1]):
            op.erase()
        return evaluate(module.text(), inputs)


def _grouped(op: Any, values: list[dict[Any, Any]]) -> None:
    """A collective among groups of devices."""
    numbers = {n: ir.IntegerAttr(op.attributes[n]).value for n in (
        "all_gather_dim", "split_dimension", "concat_dimension", "scatter_dimension") if n in op.attributes}
    for group in np.array(ir.DenseIntElementsAttr(op.attributes["replica_groups"])):
        shards = [[values[d][x] for d in group] for x in op.operands]
        for place, device in enumerate(group):
            for parts, result in zip(shards, op.results, strict=True):
                if op.name == "stablehlo.all_gather":
                    found = stablehlo.concatenate(parts, numbers["all_gather_dim"])
                elif op.name == "stablehlo.all_to_all":
                    split = [_share(x, numbers["split_dimension"], len(group), place) for x in parts]
                    found = stablehlo.concatenate(split, numbers["concat_dimension"])
                else:
                    found = parts[0]
                    combine = op.regions[0].blocks[0].operations[0].operation.name
                    for part in parts[1:]:
                        found = ir.Operation.create(
                            combine, results=[found.type], operands=[found, part]).results[0]
                    if op.name == "stablehlo.reduce_scatter":
                        found = _share(found, numbers["scatter_dimension"], len(group), place)
                values[device][result] = found


def _share(x: Any, dim: int, count: int, place: int) -> Any:
    size = shape(x)[dim] // count
    starts = [place * size if d == dim else 0 for d in range(len(shape(x)))]
    limits = [starts[d] + size if d == dim else n for d, n in enumerate(shape(x))]
    return stablehlo.slice(x, starts, limits, [1] * len(starts))


def _copied(op: Any, values: list[dict[Any, Any]]) -> None:
    if op.name in GROUPED:
        _grouped(op, values)
        return
    if op.name == "stablehlo.collective_permute":
        zeros = stablehlo.constant(ir.DenseElementsAttr.get_splat(
            op.results[0].type, ir.Attribute.parse(f"{zero_text(op.results[0].type.element_type)} : "
                                                   f"{op.results[0].type.element_type}")))
        senders = {int(r): int(s) for s, r in np.array(ir.DenseIntElementsAttr(op.attributes["source_target_pairs"]))}
        moved = [values[senders[d]][op.operands[0]] if d in senders else zeros for d in range(len(values))]
        for known, value in zip(values, moved, strict=True):
            known[op.results[0]] = value
        return
    inside = {inner.name for inner in ShardyModule(None).walk(root=op)} - {op.name}
    if inside & {"stablehlo.collective_permute", "stablehlo.partition_id", *GROUPED}:
        raise NotImplementedError(f"collectives inside {op.name}")
    for device, known in enumerate(values):
        if op.name == "stablehlo.partition_id":
            known[op.results[0]] = stablehlo.constant(ir.DenseElementsAttr.get(np.asarray(device, np.uint32)))
            continue
        copy = op.clone(ip=ir.InsertionPoint.current)
        for inner in ShardyModule(None).walk(root=copy):
            for i, operand in enumerate(inner.operands):
                if operand in known:
                    inner.operands[i] = known[operand]
        known.update(zip(op.results, copy.results, strict=True))


def _positions(mesh: Mesh, sharding: TensorSharding) -> list[np.ndarray]:
    return [mesh.index(atoms(axes, mesh)) for axes in sharding.axes]


def _box(mesh: Mesh, sharding: TensorSharding, sizes: Sequence[int], device: int) -> tuple[list[int], list[int]]:
    starts, limits = [], []
    for n, axes, position in zip(sizes, sharding.axes, _positions(mesh, sharding), strict=True):
        count = mesh.count(atoms(axes, mesh))
        assert n % count == 0, "a manual computation of uneven shards"
        starts.append(int(position[device]) * (n // count))
        limits.append(starts[-1] + n // count)
    return starts, limits


def _whole(mesh: Mesh, sharding: TensorSharding, pieces: list[Any]) -> Any:
    """The tensor of its shards; of devices that hold the same, a later one tells."""
    positions = _positions(mesh, sharding)
    grid = {tuple(int(p[device]) for p in positions): piece for device, piece in enumerate(pieces)}
    for d in reversed(range(len(positions))):
        rows: dict[tuple[int, ...], list[Any]] = {}
        for position in sorted(grid):
            rows.setdefault(position[:d], []).append(grid[position])
        grid = {p: stablehlo.concatenate(found, d) if len(found) > 1 else found[0] for p, found in rows.items()}
    return grid[()]


def random_inputs(text: str, seed: int, nan: bool = False) -> list[np.ndarray]:
    """Small whole numbers for the arguments of @main, so that sums are exact in any order; with some NaN."""
    rng = np.random.default_rng(seed)
    out = []
    with jax_mlir.make_ir_context():
        module = ShardyModule(ir.Module.parse(text))
        main = next(f for f in module.functions if ir.StringAttr(f.attributes["sym_name"]).value == "main")
        for argument in main.regions[0].blocks[0].arguments:
            kind = str(ir.RankedTensorType(argument.type).element_type)
            value = rng.integers(-8, 9, shape(argument))
            if kind == "f32":
                value = value.astype(np.float32)
                if nan and math.prod(value.shape):
                    value[rng.random(value.shape) < 0.05] = np.nan
            out.append(np.asarray(value, {"f32": np.float32, "i32": np.int32, "i1": np.bool_, "i64": np.int64}[kind]))
    return out


def assert_same_meaning(before: str, after: str, seed: int = 0) -> None:
    """Both compute the same, of numbers with NaN among them."""
    inputs = random_inputs(before, seed, nan=True)
    for want, got in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
        np.testing.assert_array_equal(got, want, err_msg=f"{before}\n{after}")


def assert_equal_shards(text: str) -> None:
    """Every stated sharding outside of manual computations cuts its tensor evenly."""
    with jax_mlir.make_ir_context():
        module = ShardyModule(ir.Module.parse(text))
        bodies = [(op, module.walk(root=op)) for op in module.walk("sdy.manual_computation")]
        inside = {inner for op, body in bodies for inner in body if inner != op}
        for op in module.walk():
            for value in op.results if op not in inside else ():
                found = module.sharding(value)
                if found is not None and found.sharding.device is None:
                    mesh = module.mesh(found).refined(gather_cuts([found.sharding], module.mesh(found)))
                    counts = [mesh.count(atoms(axes, mesh)) for axes in found.axes]
                    assert not any(n % c for n, c in zip(shape(value), counts, strict=True)), f"{op}\n{text}"
