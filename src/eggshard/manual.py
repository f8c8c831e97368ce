"""Manual computations (JAX's shard_map): what their author wrote per device is the device program.

Every op of the body is a local step, every collective the physical step that it spells; nothing is left to choose.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from eggshard.errors import EggshardError, LoweringError, ProgramError
from eggshard.placement.placement import Placement, is_even
from eggshard.placement.sharding import Sharding, gather_cuts, whole_mesh
from eggshard.placement.transfer import Strategy
from eggshard.plan.assemble import Assembler
from eggshard.plan.authored_steps import DeviceNumber, GroupCollective
from eggshard.plan.control_steps import Branch, Loop
from eggshard.plan.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    Local,
    ReduceScatter,
    StepPlan,
)
from eggshard.program import monoids
from eggshard.program.mesh import Mesh
from eggshard.program.ops import registry
from eggshard.program.ops.collectives import PerDevice
from eggshard.program.ops.monoids import recognise_monoid
from eggshard.program.program import Attributes, Literal, Op, Region
from eggshard.program.types import TensorType

MANUAL = "manual_computation"

Types = tuple[TensorType, ...]
Groups = tuple[tuple[int, ...], ...]


def manual_strategy(mesh: Mesh, attributes: Attributes, region: Region, operands: Types, results: Types) -> Strategy:
    """The one strategy: operands and results as the author states. ProgramError if not on all axes, or not evenly."""
    whole = whole_mesh(mesh)
    automatic = [a for a, n in whole.axes.items() if n > 1 and a not in attributes["manual_axes"]]
    if automatic:
        raise ProgramError(
            f"manual_computation over {{{', '.join(attributes['manual_axes'])}}} leaves mesh axes "
            f"{{{', '.join(automatic)}}} to the compiler; make all axes manual (shard_map without axis_names), or "
            "write the computation without shard_map"
        )

    def placements(shardings: Sequence[Sharding], types: Types, inner: tuple[int, ...]) -> tuple[Placement, ...]:
        out = []
        for sharding, type_, value in zip(shardings, types, inner, strict=True):
            placement = sharding.to_placement(mesh, type_)
            if not is_even(type_.shape, placement, mesh) or placement.local_type(type_) != region.types[value]:
                raise ProgramError(
                    f"manual_computation: {type_} sharded as {sharding} does not give {region.types[value]} on every "
                    "device; pad it to a multiple"
                )
            out.append(placement)
        return tuple(out)

    return Strategy(
        placements(attributes["in_shardings"], operands, region.inputs),
        placements(attributes["out_shardings"], results, region.outputs),
    )


@lru_cache(maxsize=1024)
def manual_program(mesh: Mesh, region: Region) -> StepPlan:
    """The device program of a manual computation's body over all axes of a mesh. ProgramError for what has none."""
    return _Body(mesh, region).program()


def evaluate_manual(attributes: Attributes, region: Region, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results on whole arrays, by the simulator. Axes that are not manual do not matter: nothing runs along them.

    LoweringError for a computation that communicates and leaves some axes to the compiler, and for what the simulator
    does not run.
    """
    from eggshard.lower.simulator import gather_from_devices, run, scatter_to_devices

    axes = attributes["manual_axes"]
    whole: Mesh = attributes["mesh"]
    if any(a not in axes and n > 1 for a, n in whole.axes.items()):
        if _per_device(region):
            raise LoweringError("a partly manual computation with collectives has no NumPy meaning; run it with JAX")
        whole = Mesh({a: n for a, n in whole.axes.items() if a in axes})

    def manual(sharding: Sharding) -> Sharding:
        dims = (replace(d, axes=tuple(a for a in d.axes if a.name in axes)) for d in sharding.dims)
        return replace(sharding, dims=tuple(dims))

    ins, outs = (tuple(map(manual, attributes[key])) for key in ("in_shardings", "out_shardings"))
    mesh = whole.refined(gather_cuts((*ins, *outs), whole))
    given = tuple(region.types[v].with_shape(a.shape) for v, a in zip(region.inputs, arrays, strict=True))
    results: Types = attributes["result_types"]
    strategy = manual_strategy(mesh, attributes.updated(in_shardings=ins, out_shardings=outs), region, given, results)
    shards = [scatter_to_devices(mesh, a, p) for a, p in zip(arrays, strategy.operands, strict=True)]
    made = run(manual_program(mesh, region), shards)
    return tuple(
        gather_from_devices(mesh, m, t.shape, p) for m, t, p in zip(made, results, strategy.results, strict=True)
    )


def _per_device(region: Region) -> bool:
    """Whether some op of a region needs to know the device or other devices' data."""
    return any(isinstance(registry.get(op.name), PerDevice) or any(map(_per_device, op.regions)) for op in region.ops)


def contains_manual(region: Region) -> bool:
    """Whether there is a manual computation in a region, at any depth."""
    return any(op.name == MANUAL or any(map(contains_manual, op.regions)) for op in region.ops)


class _Body:
    def __init__(self, mesh: Mesh, region: Region):
        self.mesh, self.region = mesh, region
        self.assembler = Assembler(mesh)

    def program(self) -> StepPlan:
        region = self.region
        value = {v: self.assembler.input(region.types[v]) for v in region.inputs}
        for op in region.ops:
            operands = tuple(value[v] for v in op.operands)
            try:
                results = self._op(op, operands)
            except EggshardError as error:
                if error.located:
                    raise
                shown = ", ".join(str(region.types[v]) for v in op.operands)
                place = f" at {op.location}" if op.location else ""
                located = type(error)(f"{op.name}({shown}){place} in a manual computation: {error}")
                located.located = True
                raise located from None
            value.update(zip(op.results, results, strict=True))
        return self.assembler.build([value[v] for v in region.outputs])

    def _emit(self, action: Action, operands: tuple[int, ...], op: Op) -> tuple[int, ...]:
        return self.assembler.emit(action, operands, ("manual",), op.location)

    def _op(self, op: Op, operands: tuple[int, ...]) -> tuple[int, ...]:
        attributes = op.attributes
        match op.name:
            case "sharding_constraint":
                return operands  # no axis is left for it to speak of
            case "manual_computation":
                raise ProgramError("it is inside another one over all axes; no axis is left for it")
            case "while":
                condition, body = (manual_program(self.mesh, r) for r in op.regions)
                return self._emit(Loop(condition, body, attributes.get("trip_count")), operands, op)
            case "case" | "if":
                branches = tuple(manual_program(self.mesh, r) for r in op.regions)
                return self._emit(Branch(branches, predicate=op.name == "if"), operands, op)
            case "partition_id":
                return self._emit(DeviceNumber(tuple(range(self.mesh.size))), operands, op)
            case "replica_id":
                zero = Attributes(value=Literal(np.zeros((), np.uint32)))
                return self._emit(Local("constant", zero, (TensorType((), "ui32"),)), operands, op)
            case "collective_permute":
                pairs = attributes["source_target_pairs"]
                return self._emit(CollectivePermute(pairs, self._crossed(pairs)), operands, op)
            case "all_reduce" | "reduce_scatter" | "all_gather" | "all_to_all":
                return self._collective(op, operands)
        region, definition = self.region, registry.get(op.name)
        types = tuple(region.types[v] for v in op.results)
        flops = definition.flops(attributes, tuple(region.types[v] for v in op.operands), types)
        return self._emit(Local(op.name, attributes, types, op.regions, flops), operands, op)

    def _collective(self, op: Op, operands: tuple[int, ...]) -> tuple[int, ...]:
        """As a step along mesh axes where its groups are that, one operand at a time; else as it is written."""
        region, attributes = self.region, op.attributes
        axes = self._axes(op)
        monoid = recognise_monoid(op.regions[0]) if op.regions else ""
        defined = all(not op.regions or monoid in monoids.of_dtype(region.types[v].dtype) for v in op.operands)
        if axes is None or monoid is None or not defined:
            types = tuple(region.types[v] for v in op.results)
            return self._emit(GroupCollective(op.name, attributes, types, op.regions), operands, op)
        if not axes:
            return operands
        out: list[int] = []
        for value in operands:
            match op.name:
                case "all_reduce":
                    out += self._emit(AllReduce(axes, monoid), (value,), op)
                case "reduce_scatter":
                    out += self._emit(ReduceScatter(((attributes["scatter_dimension"], axes),), monoid), (value,), op)
                case "all_gather":
                    out += self._emit(AllGather(((attributes["all_gather_dim"], axes),)), (value,), op)
                case _:
                    out.append(self._all_to_all(value, axes, op))
        return tuple(out)

    def _all_to_all(self, value: int, axes: tuple[str, ...], op: Op) -> int:
        """Blocks of one dimension go to the group's members, and are concatenated along another one."""
        split, concat = op.attributes["split_dimension"], op.attributes["concat_dimension"]
        if split != concat:
            return self._emit(AllToAll(((concat, axes),), ((split, axes),)), (value,), op)[0]
        # Within one dimension: its blocks are a dimension that splits, received blocks one that grows.
        type_, count = self.assembler.types[value], self.mesh.count(axes)
        shape = type_.shape
        apart = type_.with_shape((*shape[:split], count, 1, shape[split] // count, *shape[split + 1 :]))
        value = self._reshape(value, apart, op)
        (value,) = self._emit(AllToAll(((split + 1, axes),), ((split, axes),)), (value,), op)
        return self._reshape(value, type_, op)

    def _reshape(self, value: int, type_: TensorType, op: Op) -> int:
        return self._emit(Local("reshape", Attributes(shape=type_.shape), (type_,)), (value,), op)[0]

    def _axes(self, op: Op) -> tuple[str, ...] | None:
        """The axes, first major, that a collective's groups run along; None if there are none."""
        if op.name != "all_to_all" and not op.attributes.get("use_global_device_ids"):
            return None  # the groups are of replicas then, not of devices
        return axes_of_groups(self.mesh, op.attributes["replica_groups"])

    def _crossed(self, pairs: Groups) -> tuple[str, ...]:
        """The axes along which some sender and receiver differ."""
        if not pairs:
            return ()
        senders, receivers = np.array(pairs).T
        where = self.mesh.coordinates
        return tuple(a for a in self.mesh.axes if (where[a][senders] != where[a][receivers]).any())


@lru_cache(maxsize=1024)
def axes_of_groups(mesh: Mesh, groups: Groups) -> tuple[str, ...] | None:
    """The axes (first major, without those of size 1) whose `Mesh.groups` are these, in any order of groups."""
    wanted = sorted(groups)
    names = [a for a, n in mesh.axes.items() if n > 1]
    size = len(groups[0]) if groups else 0
    for count in range(len(names) + 1):
        for subset in itertools.combinations(names, count):
            if mesh.count(subset) != size:
                continue
            for axes in itertools.permutations(subset):
                if sorted(tuple(int(d) for d in row) for row in mesh.groups(axes)) == wanted:
                    return axes
    return None
