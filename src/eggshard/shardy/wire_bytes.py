"""Bytes on the wire of Shardy's collectives, by ring formulas of their local shapes.

With n devices in a group and r bytes in a device's result a gather or an all-to-all takes r(n-1)/n, a reduce-scatter
r(n-1), an all-reduce 2r(n-1)/n, and a permute r on every device that receives from another. Shards of uneven
dimensions are rounded up, as Shardy does. Where the shards of an uneven dimension before a step do not nest in those
after it, the step moves elements across their boundaries, so that no op takes less than what its devices lack.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.program.axes import Axes, shard_count
from eggshard.program.mesh import Mesh
from eggshard.program.replica_groups import by_mesh_axes, listed_groups
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.program.types import element_bytes
from eggshard.shardy.module import ShardyModule, callee, shape
from eggshard.shardy.reshards.axis_lists import positions_along
from eggshard.shardy.reshards.collectives.kinds import Collective

#: Axes per dimension.
Dims = tuple[Axes, ...]
#: Ops of which one region runs.
_BRANCHES = ("stablehlo.case", "stablehlo.if")


class WireBytes(NamedTuple):
    """Bytes that a device receives: the busiest one of each step, and on average; and how many collectives send."""

    busiest: float = 0.0
    average: float = 0.0
    collectives: int = 0

    def plus(self, other: WireBytes) -> WireBytes:
        a, b = self, other
        return WireBytes(a.busiest + b.busiest, a.average + b.average, a.collectives + b.collectives)

    def times(self, factor: int) -> WireBytes:
        return WireBytes(self.busiest * factor, self.average * factor, self.collectives * factor)


def local_shape(shape_: tuple[int, ...], dims: Dims, mesh: Mesh) -> tuple[int, ...]:
    """The shape of a device's shard, rounded up."""
    return tuple(-(-n // shard_count(axes, mesh.axes)) for n, axes in zip(shape_, dims, strict=True))


def collective_bytes(
    step: Collective, source: Dims | None, shape_: tuple[int, ...], itemsize: int, mesh: Mesh, source_mesh: Mesh
) -> WireBytes:
    """What one collective takes. source: the operand's axes per dimension, None if unknown."""
    return step_bytes(
        step.kind, shard_count(step.moved, mesh.axes), source, step.to.axes, shape_, itemsize, mesh, source_mesh)


@lru_cache(maxsize=65536)
def step_bytes(
    kind: str, group: int, source: Dims | None, target: Dims, shape_: tuple[int, ...], itemsize: int, mesh: Mesh,
    source_mesh: Mesh,
) -> WireBytes:
    """Return the bytes on the wire of one collective, given its kind and the number of devices in its groups."""
    result = math.prod(local_shape(shape_, target, mesh)) * itemsize
    if kind == "collective_permute":
        moves = 1.0 if source is None else _moving(mesh, target, source_mesh, source)
        busiest, average = float(result if moves else 0), result * moves
    else:
        factor = {
            "all_gather": (group - 1) / group, "all_to_all": (group - 1) / group, "reduce_scatter": group - 1.0,
            "all_reduce": 2 * (group - 1) / group,
        }.get(kind, 0.0)
        busiest = average = result * factor
    if source is not None and kind != "sharded_to_unreduced" and not nested(shape_, source, target, mesh):
        lacking = lacks(shape_, source, target, mesh) * itemsize
        busiest, average = max(busiest, float(lacking.max())), max(average, float(lacking.mean()))
    return WireBytes(busiest, average, int(busiest > 0))


def nested(shape_: tuple[int, ...], source: Dims, target: Dims, mesh: Mesh) -> bool:
    """Whether every shard boundary of the one is one of the other, of all dimensions that differ."""
    for n, before, after in zip(shape_, source, target, strict=True):
        a, b = shard_count(before, mesh.axes), shard_count(after, mesh.axes)
        few, many = min(a, b), max(a, b)
        if few > 1 and (n % a or n % b):
            coarse, fine = -(-n // few), many // few * -(-n // many)  # where the second shard begins
            if many % few or min(coarse, n) != min(fine, n):
                return False
    return True


@lru_cache(maxsize=65536)
def lacks(
    shape_: tuple[int, ...], source: Dims, target: Dims, mesh: Mesh, source_mesh: Mesh | None = None
) -> np.ndarray:
    """``[devices]``: the elements that each device needs for the target and does not hold in the source.

    source_mesh: if the source is on a mesh with another order of devices.
    """
    needed, common = np.ones(mesh.size, np.int64), np.ones(mesh.size, np.int64)
    here, there = positions(source_mesh or mesh, source), positions(mesh, target)
    for i, n in enumerate(shape_):
        a, b = -(-n // shard_count(source[i], mesh.axes)), -(-n // shard_count(target[i], mesh.axes))
        start, stop = np.minimum(there[i] * b, n), np.minimum(there[i] * b + b, n)
        needed *= stop - start
        held = np.minimum(np.minimum(here[i] * a + a, n), stop) - np.maximum(here[i] * a, start)
        common *= np.maximum(held, 0)
    missing: np.ndarray = needed - common
    return missing


@lru_cache(maxsize=65536)
def positions(mesh: Mesh, dims: Dims) -> np.ndarray:
    """``[rank, devices]``: the shard of each dimension that every logical device holds."""
    return np.array([positions_along(mesh, axes) for axes in dims], np.int64).reshape(len(dims), mesh.size)


def _moving(mesh: Mesh, target: Dims, source_mesh: Mesh, source: Dims) -> float:
    """The fraction of devices whose shard is another afterwards."""
    if source_mesh.size != mesh.size or len(source) != len(target):
        return 1.0
    changed = (positions(mesh, target) != positions(source_mesh, source)).any(axis=0)
    return float(changed.mean())


def module_bytes(module: ShardyModule) -> WireBytes:
    """The bytes of a run of the module: of ``main``, else of every function that is not called.

    Calls are followed, loops that count from a constant to a constant multiplied (others count once), and of
    branches the dearest counts.
    """
    return _Counter(module).total()


def function_bytes(module: ShardyModule) -> dict[str, WireBytes]:
    """The bytes of a run of each function."""
    counter = _Counter(module)
    return {name: counter.of_function(name) for name in counter.functions}


def op_bytes(module: ShardyModule, op: Any) -> WireBytes:
    """The bytes of one op of the module."""
    return _Counter(module)._op(op)


class _Counter:
    def __init__(self, module: ShardyModule) -> None:
        self.module = module
        self.functions = module.by_name
        self.meshes = {name: mesh if isinstance(mesh, Mesh) else Mesh({}) for name, mesh in module.meshes.items()}
        self.counted: dict[str, WireBytes] = {}

    def total(self) -> WireBytes:
        if "main" in self.functions:
            return self.of_function("main")
        called = {callee(op) for op in self.module.walk("func.call")}
        return _sum(self.of_function(name) for name in self.functions if name not in called)

    def of_function(self, name: str) -> WireBytes:
        if name not in self.functions:
            return WireBytes()
        if name not in self.counted:
            self.counted[name] = WireBytes()  # a recursion counts once
            self.counted[name] = _sum(self._region(region) for region in self.functions[name].regions)
        return self.counted[name]

    def _region(self, region: Any) -> WireBytes:
        return _sum(self._op(op.operation) for block in region.blocks for op in block.operations)

    def _op(self, op: Any) -> WireBytes:
        if op.name == "func.call":
            return self.of_function(callee(op))
        step = Collective.read(op)
        if step is not None:
            return self._collective(op, step)
        if op.name in STABLEHLO:
            return _stablehlo(op, self.meshes)
        regions = [self._region(region) for region in op.regions]
        if op.name in _BRANCHES:
            return max(regions, default=WireBytes())
        return _sum(regions).times(_trips(op) if op.name == "stablehlo.while" else 1)

    def _mesh(self, sharding: TensorSharding) -> Mesh:
        return sharding.mesh if isinstance(sharding.mesh, Mesh) else self.meshes.get(sharding.mesh) or Mesh({})

    def _collective(self, op: Any, step: Collective) -> WireBytes:
        source = self.module.sharding(op.operands[0])
        mesh = self._mesh(step.to)
        known = source is not None and len(source.axes) == len(step.to.axes)
        before = source.axes if source is not None and known else None
        source_mesh = self._mesh(source) if source is not None and before is not None else mesh
        return collective_bytes(
            step, before, shape(op.results[0]), element_bytes_of(op.results[0]), mesh, source_mesh)


def element_bytes_of(value: Any) -> int:
    """Bytes of one element of a value, at least one."""
    try:
        return max(1, element_bytes(str(ir.ShapedType(value.type).element_type)))
    except ProgramError:  # quantised and other types that arrays do not have
        return 1


def _sum(parts: Iterable[WireBytes]) -> WireBytes:
    total = WireBytes()
    for part in parts:
        total = total.plus(part)
    return total


#: Collectives of manual computations, on local shapes, and their ring factors.
GROUPED = {
    "stablehlo.all_gather": lambda n: (n - 1) / n, "stablehlo.all_to_all": lambda n: (n - 1) / n,
    "stablehlo.reduce_scatter": lambda n: n - 1.0, "stablehlo.all_reduce": lambda n: 2 * (n - 1) / n,
}


#: All of StableHLO's collectives that are counted.
STABLEHLO = (*GROUPED, "stablehlo.collective_permute")


def _stablehlo(op: Any, meshes: Mapping[str, Mesh | int]) -> WireBytes:
    size = sum(math.prod(shape(r)) * element_bytes_of(r) for r in op.results)
    if op.name == "stablehlo.collective_permute":
        pairs = np.array(ir.DenseIntElementsAttr(op.attributes["source_target_pairs"])).reshape(-1, 2)
        moved = [target for source, target in pairs.tolist() if source != target]
        devices = max(int(pairs.max()) + 1, 1) if len(pairs) else 1
        return WireBytes(float(size if moved else 0), size * len(moved) / devices, int(bool(moved)))
    groups = op.attributes["replica_groups"]
    if by_mesh_axes(str(groups)):
        groups = ir.Attribute.parse(listed_groups(str(groups), meshes))
    groups = np.array(ir.DenseIntElementsAttr(groups))
    moved_bytes = size * GROUPED[op.name](max(groups.shape[-1], 1))
    return WireBytes(moved_bytes, moved_bytes, int(moved_bytes > 0))


def _trips(loop: Any) -> int:
    """Trips of a loop that counts up by one from a constant to a constant, else one."""
    test = [op.operation for block in loop.regions[0].blocks for op in block.operations]
    compare = next((op for op in test if op.name == "stablehlo.compare"), None)
    if compare is None or "LT" not in str(compare.attributes["comparison_direction"]):
        return 1
    limit = _constant(compare.operands[1])
    if limit is None or not isinstance(compare.operands[0], ir.BlockArgument):
        return 1
    number = ir.BlockArgument(compare.operands[0]).arg_number
    first = _constant(loop.operands[number])
    last = list(_operations(loop.regions[1]))[-1]
    step = last.operands[number].owner
    added = getattr(step, "operation", step)
    if first is None or getattr(added, "name", "") != "stablehlo.add":
        return 1
    by = next((c for c in map(_constant, added.operands) if c is not None), None)
    return max(0, -(-(limit - first) // by)) if by is not None and by > 0 else 1


def _operations(region: Any) -> Iterator[Any]:
    for block in region.blocks:
        for op in block.operations:
            yield op.operation


def _constant(value: Any) -> int | None:
    owner = getattr(value.owner, "operation", value.owner)
    if getattr(owner, "name", "") not in ("stablehlo.constant", "sdy.constant"):
        return None
    if not isinstance(ir.ShapedType(value.type).element_type, ir.IntegerType) or shape(value):
        return None
    return int(np.array(ir.DenseIntElementsAttr(owner.attributes["value"])).reshape(-1)[0])
