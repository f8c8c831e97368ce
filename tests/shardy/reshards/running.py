"""Running collectives: jaxlib makes them local, and the local ops run in NumPy on all devices at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxlib.mlir import ir
from tests.shardy.peer import run_peer

from eggshard.shardy.module import parsed


def run_functions(text: str, inputs: dict[str, list[np.ndarray]]) -> dict[str, list[np.ndarray]]:
    """What each device returns of each function of a module, given what it takes."""
    local = run_peer(text, "sdy-convert-global-to-local")
    assert not local.failure, f"{local.failure}\n{text}"
    with parsed(local.text) as module:
        functions = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in module.functions}
        return {name: _run(functions[name], np.stack(given)) for name, given in inputs.items()}


def _run(function: Any, given: np.ndarray) -> list[np.ndarray]:
    """Values are stacked over devices."""
    block = function.regions[0].blocks[0]
    values = {block.arguments[0]: given}
    for op in block.operations:
        operands = [values[value] for value in op.operands]
        if op.operation.name == "func.return":
            return list(operands[0])
        values[op.results[0]] = _OPS[op.operation.name](op.operation.attributes, *operands, devices=len(given), op=op)
    raise AssertionError("no return")


def _numbers(attribute: Any) -> np.ndarray:
    return np.array(ir.DenseElementsAttr(attribute))


def _integer(attribute: Any) -> int:
    return int(ir.IntegerAttr(attribute).value)


def _all_gather(a: Any, x: np.ndarray, **_: Any) -> np.ndarray:
    dim, out = _integer(a["all_gather_dim"]), {}
    for group in _numbers(a["replica_groups"]):
        for device in group:
            out[device] = np.concatenate([x[other] for other in group], dim)
    return np.stack([out[device] for device in sorted(out)])


def _all_to_all(a: Any, x: np.ndarray, **_: Any) -> np.ndarray:
    split, concat, out = _integer(a["split_dimension"]), _integer(a["concat_dimension"]), {}
    for group in _numbers(a["replica_groups"]):
        pieces = [np.split(x[device], len(group), split) for device in group]
        for i, device in enumerate(group):
            out[device] = np.concatenate([piece[i] for piece in pieces], concat)
    return np.stack([out[device] for device in sorted(out)])


def _permute(a: Any, x: np.ndarray, **_: Any) -> np.ndarray:
    out = np.zeros_like(x)
    for source, target in _numbers(a["source_target_pairs"]):
        out[target] = x[source]
    return out


def _all_reduce(a: Any, x: np.ndarray, **_: Any) -> np.ndarray:
    out = np.empty_like(x)
    for group in _numbers(a["replica_groups"]):
        out[group] = x[group].sum(axis=0)
    return out


def _reduce_scatter(a: Any, x: np.ndarray, **_: Any) -> np.ndarray:
    dim, out = _integer(a["scatter_dimension"]), {}
    for group in _numbers(a["replica_groups"]):
        for device, piece in zip(group, np.split(x[group].sum(axis=0), len(group), dim), strict=True):
            out[device] = piece
    return np.stack([out[device] for device in sorted(out)])


def _dynamic_slice(a: Any, x: np.ndarray, *starts: np.ndarray, op: Any, **_: Any) -> np.ndarray:
    sizes = ir.RankedTensorType(op.results[0].type).shape
    out = []
    for device, held in enumerate(x):
        at = [int(start[device]) for start in starts]
        out.append(held[tuple(slice(i, i + n) for i, n in zip(at, sizes, strict=True))])
    return np.stack(out)


def _constant(a: Any, devices: int, op: Any) -> np.ndarray:
    shape = ir.RankedTensorType(op.results[0].type).shape
    return np.broadcast_to(_numbers(a["value"]).reshape(shape), (devices, *shape))


def _reshape(a: Any, x: np.ndarray, op: Any, **_: Any) -> np.ndarray:
    return x.reshape(len(x), *ir.RankedTensorType(op.results[0].type).shape)


def _transpose(a: Any, x: np.ndarray, **_: Any) -> np.ndarray:
    return x.transpose(0, *(int(i) + 1 for i in ir.DenseI64ArrayAttr(a["permutation"])))


#: What jaxlib writes for a local collective.
_OPS: dict[str, Any] = {
    "stablehlo.all_gather": _all_gather, "stablehlo.all_to_all": _all_to_all, "stablehlo.all_reduce": _all_reduce,
    "stablehlo.collective_permute": _permute, "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.dynamic_slice": _dynamic_slice, "stablehlo.constant": _constant, "stablehlo.reshape": _reshape,
    "stablehlo.transpose": _transpose, "stablehlo.convert": lambda a, x, **_: x,
    "stablehlo.partition_id": lambda a, devices, op: np.arange(devices),
}
