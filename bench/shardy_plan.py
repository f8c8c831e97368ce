"""Shardy's own plan for a module, priced. Run as ``python -m bench.shardy_plan`` it serves one request per line.

Some Shardy passes end the process instead of raising, so this runs in a process of its own; ``bench.peers`` starts
it, feeds it module texts as JSON strings, one per line, and gets back one JSON object per line.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy
from jaxlib.mlir.passmanager import PassManager

from bench.worker import serve
from eggshard.hlo.collectives import CollectiveOp

_PROPAGATE = "sdy-propagation-pipeline"
_RESHARD = "func.func(sdy-insert-explicit-reshards{enable-full-version=true})"
_HALO = "sdy-resolve-permutation-factors{enable-halo-exchange=true}"
_COLLECTIVES = "func.func(sdy-reshard-to-collectives),canonicalize"

_RING: dict[str, tuple[str, Callable[[float, int], float]]] = {
    "sdy.all_gather": ("all-gather", lambda r, n: r * (n - 1) / n),
    "sdy.all_reduce": ("all-reduce", lambda r, n: 2 * r * (n - 1) / n),
    "sdy.reduce_scatter": ("reduce-scatter", lambda r, n: r * (n - 1)),
    "sdy.all_to_all": ("all-to-all", lambda r, n: r * (n - 1) / n),
}
_NOT_COMMUNICATION = frozenset({"sdy.all_slice", "sdy.replicated_to_unreduced", "sdy.sharded_to_unreduced"})
_AXIS = re.compile(r'"([^"]+)"(?::\((\d+)\)(\d+))?')
_COUNTED_LOOP = re.compile(r"compare\s+LT")
_SHIFTING = frozenset(
    f"stablehlo.{name}"
    for name in ("slice", "pad", "concatenate", "reverse", "convolution", "reduce_window", "select_and_scatter")
)


PricedOp = tuple[CollectiveOp, bool]
"""A collective, and whether it repeats one already done on the same value."""


class UnsupportedPlanError(Exception):
    """The plan holds communication that cannot be priced."""


def plan(text: str) -> dict[str, Any]:
    """Run the passes on a module's text: propagation, explicit reshards, collectives, canonicalisation.

    Where the plan needs an exchange between neighbours that the collectives do not show, the pass that makes it
    explicit (or gathers the dimension instead) is run as well. Answers the collectives as fields of
    ``CollectiveOp``, which of them repeat an earlier one on the same value, the seconds taken, and the ops whose
    exchange is still missing from the price.
    """
    start = time.perf_counter()
    module, unpriced = _run(text, "")
    if unpriced:
        module, unpriced = _run(text, _HALO)
    seconds = time.perf_counter() - start
    pricer = _Pricer(module)
    priced = list(pricer.of_function("main"))
    ops, repeats = [asdict(op) for op, _ in priced], [again for _, again in priced]
    return {
        "ops": ops,
        "repeats": repeats,
        "devices": pricer.devices,
        "seconds": seconds,
        "unpriced": unpriced,
        "plan": str(module),
    }


def _run(text: str, extra: str) -> tuple[ir.Module, list[str]]:
    module = ir.Module.parse(text)
    for passes in filter(None, (_PROPAGATE, _RESHARD, extra, _COLLECTIVES)):
        PassManager.parse(f"builtin.module({passes})").run(module.operation)
    return module, sorted(set(_shifts(module)))


def _shifts(module: ir.Module) -> Iterator[str]:
    """Names of ops left in the plan that need data of neighbours along a sharded dimension."""
    found: list[str] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "sdy.manual_computation":
            return ir.WalkResult.SKIP  # local shapes, communication is explicit
        if op.name in _SHIFTING and _crosses_shards(op):
            found.append(op.name)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return iter(found)


def _crosses_shards(op: ir.Operation) -> bool:
    sharding = _sharding(op.results[0])
    if sharding is None:
        return False
    shape = ir.RankedTensorType(op.results[0].type).shape
    if op.name in ("stablehlo.convolution", "stablehlo.reduce_window", "stablehlo.select_and_scatter"):
        changed = _window_dimensions(op, len(shape))
    elif op.name == "stablehlo.reverse":
        changed = set(_integers(op.attributes["dimensions"]))
    elif op.name == "stablehlo.concatenate":
        changed = {ir.IntegerAttr(op.attributes["dimension"]).value}
    else:
        before = ir.RankedTensorType(op.operands[0].type).shape
        changed = {i for i, (a, b) in enumerate(zip(before, shape, strict=True)) if a != b}
        if op.name == "stablehlo.pad":  # a negative edge can undo a positive one
            low = _integers(op.attributes["edge_padding_low"])
            changed |= {i for i, amount in enumerate(low) if amount}
    dims = map(sdy.DimensionShardingAttr, sharding.dimension_shardings)
    return any(list(dim.axes) for i, dim in enumerate(dims) if i in changed)


def _window_dimensions(op: ir.Operation, rank: int) -> set[int]:
    if op.name == "stablehlo.convolution":
        match = re.search(r"->\[([^\]]*)\]", str(op.attributes["dimension_numbers"]))
        labels = [label.strip() for label in match[1].split(",")] if match else []
        return {i for i, label in enumerate(labels) if label.isdecimal()}
    window = _integers(op.attributes["window_dimensions"])
    return {i for i, size in enumerate(window) if size > 1} if len(window) == rank else set(range(rank))


def _integers(attribute: ir.Attribute) -> list[int]:
    return [int(value) for value in ir.DenseI64ArrayAttr(attribute)]


def _sharding(value: ir.Value) -> Any:
    """The sharding of a value: written on the op that makes it, or on the function's argument."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        function = owner.owner.operation
        if function.name != "func.func" or "arg_attrs" not in function.attributes:
            return None
        attributes = ir.DictAttr(ir.ArrayAttr(function.attributes["arg_attrs"])[ir.BlockArgument(value).arg_number])
        return sdy.TensorShardingAttr(attributes["sdy.sharding"]) if "sdy.sharding" in attributes else None
    for key in ("out_sharding", "sharding"):
        if key in owner.attributes:
            return sdy.TensorShardingAttr(owner.attributes[key])
    if "sdy.sharding" not in owner.attributes:
        return None
    per_value = sdy.TensorShardingPerValueAttr(owner.attributes["sdy.sharding"])
    return sdy.TensorShardingAttr(list(per_value.shardings)[ir.OpResult(value).result_number])


class _Pricer:
    """Walks a plan from ``main`` and prices what it meets; calls are followed and counted loops multiplied."""

    def __init__(self, module: ir.Module) -> None:
        self.functions: dict[str, ir.Operation] = {}
        self.axes: dict[str, int] = {}
        for op in module.body.operations:
            if op.operation.name == "func.func":
                self.functions[ir.StringAttr(op.attributes["sym_name"]).value] = op.operation
            elif op.operation.name == "sdy.mesh" and not self.axes:
                mesh = sdy.MeshAttr(op.attributes["mesh"])
                self.axes = {axis.name: axis.size for axis in map(sdy.MeshAxisAttr, mesh.axes)}
        self.devices = math.prod(self.axes.values())
        grid = np.indices(tuple(self.axes.values())).reshape(len(self.axes), self.devices)
        self.coordinates = dict(zip(self.axes, grid, strict=True))

    def of_function(self, name: str) -> Iterator[PricedOp]:
        """The collectives of one call; an op that repeats an earlier one on the same value says so."""
        if name not in self.functions:
            raise UnsupportedPlanError(f"the module has no function {name}")
        yield from self._of_regions(self.functions[name], name)

    def _of_regions(self, op: ir.Operation, function: str) -> Iterator[PricedOp]:
        for region in op.regions:
            yield from self._of_region(region, function)

    def _of_region(self, region: ir.Region, function: str) -> Iterator[PricedOp]:
        for block in region:
            seen: set[tuple[str, ir.Value, str]] = set()
            for inner in block.operations:
                op = inner.operation
                if op.name in _RING or op.name == "sdy.collective_permute":
                    priced = self._permute(op, function) if op.name not in _RING else self._collective(op, function)
                    key = (op.name, op.operands[0], _without_result(op))
                    yield priced, key in seen
                    seen.add(key)
                else:
                    yield from self._of_other(op, function)

    def _of_other(self, op: ir.Operation, function: str) -> Iterator[PricedOp]:
        if op.name == "func.call":
            yield from self.of_function(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
        elif op.name == "stablehlo.while":
            body = list(self._of_regions(op, function))
            trips = _trip_count(op) if body else 0
            yield from ((replace(inner, trip_count=inner.trip_count * trips), again) for inner, again in body)
        elif op.name in ("stablehlo.case", "stablehlo.if"):
            branches = [list(self._of_region(region, function)) for region in op.regions]
            yield from max(branches, key=lambda ops: sum(o.wire_bytes * o.trip_count for o, _ in ops), default=[])
        elif op.name.removeprefix("stablehlo.") in _STABLEHLO_COLLECTIVES:
            yield self._stablehlo(op, function), False
        elif op.name not in _NOT_COMMUNICATION:
            yield from self._of_regions(op, function)

    def _collective(self, op: ir.Operation, function: str) -> CollectiveOp:
        kind, formula = _RING[op.name]
        text = str(op)
        named = text.split(op.name, 1)[1].split("%", 1)[0]  # the axes stand between the name and the operand
        group = math.prod(int(size or self.axes[name]) for name, _, size in _AXIS.findall(named))
        size = self._local_bytes(op.results[0])
        received = (formula(size, group),) * self.devices
        return CollectiveOp(kind, (_element(op.results[0]),), group, size, received, 1, function, text)

    def _permute(self, op: ir.Operation, function: str) -> CollectiveOp:
        size = self._local_bytes(op.results[0])
        source, target = self._position(op.operands[0]), self._position(op.results[0])
        moves = np.ones(self.devices, bool) if source is None or target is None else (source != target).any(axis=0)
        received = tuple(float(size) if move else 0.0 for move in moves)
        dtype = (_element(op.results[0]),)
        return CollectiveOp("collective-permute", dtype, int(moves.sum()), size, received, 1, function, str(op))

    def _stablehlo(self, op: ir.Operation, function: str) -> CollectiveOp:
        """A collective inside a manual computation: shapes are local, groups are explicit."""
        kind = op.name.removeprefix("stablehlo.").replace("_", "-")
        size = sum(math.prod(ir.RankedTensorType(r.type).shape) * _itemsize(r) for r in op.results)
        received = np.zeros(self.devices)
        dtypes = tuple(_element(result) for result in op.results)
        if kind == "collective-permute":
            pairs = np.array(ir.DenseIntElementsAttr(op.attributes["source_target_pairs"])).reshape(-1, 2)
            targets = [target for source, target in pairs if source != target]
            received[targets] = size
            group = len(targets)
        else:
            groups = np.array(ir.DenseIntElementsAttr(op.attributes["replica_groups"]))
            group = groups.shape[1]
            received[groups.reshape(-1)] = _RING["sdy." + kind.replace("-", "_")][1](size, group)
        return CollectiveOp(kind, dtypes, group, size, tuple(received.tolist()), 1, function, str(op))

    def _position(self, value: ir.Value) -> np.ndarray | None:
        """Which shard of each dimension every device holds, ``[rank, devices]``; None where no sharding is written."""
        sharding = _sharding(value)
        if sharding is None:
            return None
        rows = []
        for dim in sharding.dimension_shardings:
            row = np.zeros(self.devices, np.int64)
            for name, pre, size in self._axis_parts(dim):
                row = row * size + self.coordinates[name] // (self.axes[name] // (pre * size)) % size
            rows.append(row)
        return np.array(rows)

    def _local_bytes(self, value: ir.Value) -> int:
        sharding = _sharding(value)
        if sharding is None:
            raise UnsupportedPlanError(f"no sharding on the result of {str(value.owner)[:120]}")
        shape = ir.RankedTensorType(value.type).shape
        local = [
            -(-extent // math.prod(size for _, _, size in self._axis_parts(dim)))
            for extent, dim in zip(shape, sharding.dimension_shardings, strict=True)
        ]
        return int(math.prod(local)) * _itemsize(value)

    def _axis_parts(self, dim: Any) -> Iterator[tuple[str, int, int]]:
        for axis in map(sdy.AxisRefAttr, sdy.DimensionShardingAttr(dim).axes):
            part = None if axis.sub_axis_info is None else sdy.SubAxisInfoAttr(axis.sub_axis_info)
            yield axis.name, part.pre_size if part else 1, part.size if part else self.axes[axis.name]


_STABLEHLO_COLLECTIVES = frozenset({"all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_permute"})


def _trip_count(loop: ir.Operation) -> int:
    """Trips of a loop that counts up by one from a constant to a constant, which is what JAX makes of fori and scan."""
    test = list(loop.regions[0].blocks[0].operations)
    compare = next((op.operation for op in test if op.operation.name == "stablehlo.compare"), None)
    if compare is not None and _COUNTED_LOOP.search(str(compare)):
        counter, limit = compare.operands[0], _constant(compare.operands[1])
        if isinstance(counter.owner, ir.Block) and limit is not None:
            first = _constant(loop.operands[ir.BlockArgument(counter).arg_number])
            if first is not None:
                return max(0, limit - first)
    raise UnsupportedPlanError("a loop that communicates has no known trip count")


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name not in ("stablehlo.constant", "sdy.constant"):
        return None
    if not isinstance(ir.RankedTensorType(value.type).element_type, ir.IntegerType):
        return None
    return int(np.array(ir.DenseIntElementsAttr(owner.attributes["value"])).reshape(-1)[0])


def _without_result(op: ir.Operation) -> str:
    """The op's text without the name of its result and the type, which repeat the operand's."""
    return str(op).partition(" = ")[2]


def _element(value: ir.Value) -> str:
    return str(ir.RankedTensorType(value.type).element_type)


def _itemsize(value: ir.Value) -> int:
    """Bytes of one element, at least one."""
    element = ir.RankedTensorType(value.type).element_type
    if isinstance(element, ir.ComplexType):
        return 2 * int(ir.ComplexType(element).element_type.width) // 8
    return max(8, int(element.width)) // 8


if __name__ == "__main__":
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        serve(plan)
