"""Manual computations (JAX's shard_map): the author's per-device body becomes part of the device program.

Over all mesh axes nothing is left to choose: every op of the body is a local step, every collective the physical step
that it spells. Over some axes only, the body's tensors are shards along these *manual* axes, and whole along the other,
*free* ones. The body is then planned like a loop's, on the mesh of the free axes, for the placements of its operands
and results; its collectives are ops whose shards along free axes are computed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from eggshard.errors import EggshardError, ProgramError
from eggshard.ops import registry
from eggshard.ops.calls.collectives import PerDevice
from eggshard.placement.transfer import Strategy
from eggshard.program.attributes import Attributes
from eggshard.program.axes import axis_ref
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, dividing, place
from eggshard.program.program import Op, Region
from eggshard.program.sharding import Sharding
from eggshard.program.types import TensorType
from eggshard.reshard.submesh import without_axes
from eggshard.spmd.authored import authored_program
from eggshard.spmd.hoisting import hoisted_loop
from eggshard.steps.assemble import Assembler
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.held import Origin
from eggshard.steps.moves import Moves
from eggshard.steps.steps import Action, AllGather, AllReduce, KeepFirst, Local, Slice, StepPlan

MANUAL = "manual_computation"

Types = tuple[TensorType, ...]
#: What a manual computation's operands and its results are to be sharded like.
Interface = tuple[Sequence[Sharding], Sequence[Sharding]]


def free_mesh(mesh: Mesh, attributes: Attributes) -> Mesh:
    """The axes of a mesh that a manual computation leaves free; ProgramError if it has axes that are not there."""
    axes = attributes["manual_axes"]
    missing = [a for a in axes if a not in {axis_ref(b).name for b in mesh.axes}]
    if missing:
        raise ProgramError(
            f"manual_computation over {{{', '.join(axes)}}}: {', '.join(missing)} is no axis that is left for it; the "
            "mesh does not have it, or a manual computation around this one has taken it"
        )
    return without_axes(mesh, axes)


def manual_strategies(mesh: Mesh, attributes: Attributes, region: Region, operands: Types, results: Types,
                      hints: Sequence[Interface] = ()) -> tuple[Strategy, ...]:
    """Where operands may come from and results may go, on the mesh of all axes that are free outside.

    Along the manual axes as the author states. Along the others first replicated, then as stated and as hinted, but
    for axes that do not divide a dimension. ProgramError if the manual axes do not cut a tensor evenly.
    """
    stated: Interface = (attributes["in_shardings"], attributes["out_shardings"])
    axes, found = attributes["manual_axes"], []
    for (ins, outs), keep in ((stated, False), *((interface, True) for interface in (stated, *hints))):
        found.append(Strategy(
            tuple(_placed(mesh, axes, keep, s, t, region.types[v])
                  for s, t, v in zip(ins, operands, region.inputs, strict=True)),
            tuple(_placed(mesh, axes, keep, s, t, region.types[v])
                  for s, t, v in zip(outs, results, region.outputs, strict=True)),
        ))
    return tuple(dict.fromkeys(found))


def placement_inside(placement: Placement, axes: Sequence[str]) -> Placement:
    """Where the part of a tensor that a device sees inside a computation manual over these axes lies."""
    dims = tuple(d._replace(axes=tuple(a for a in d.axes if axis_ref(a).name not in axes)) for d in placement.dims)
    return Placement(dims)


def _placed(mesh: Mesh, manual: Sequence[str], keep: bool, sharding: Sharding, type_: TensorType,
            inner: TensorType) -> Placement:
    """The placement of an operand or result outside; ``keep`` the free axes, where they divide what is inside."""
    stated = sharding.to_placement(mesh, type_)
    dims = []
    for n, m, dim in zip(type_.shape, inner.shape, stated.dims, strict=True):
        own = [axis_ref(a).name in manual for a in dim.axes]
        cut = own.index(False) if False in own else len(own)
        count = mesh.count(dim.axes[:cut])
        if any(own[cut:]) or m * count != n:
            raise ProgramError(
                f"manual_computation over {{{', '.join(manual)}}}: {type_} sharded as {sharding} does not give {inner} "
                "on every device; pad it to a multiple, and name manual axes before others in a dimension"
            )
        free = dividing(mesh, dim.axes[cut:], m) if keep and m else ()
        dims.append(dim.axes[:cut] + free)
    partial = tuple(a for a in stated.partial if axis_ref(a).name in manual)
    return place(mesh, type_.shape, tuple(dims), partial, stated.monoid)


@lru_cache(maxsize=1024)
def manual_program(mesh: Mesh, region: Region, free: Mesh) -> StepPlan:
    """The body as it is written, on the devices of a mesh; along the free axes everything is replicated.

    ProgramError for what has no such program.
    """
    return _Body(mesh, region, free).program()


def stated_shardings(attributes: Attributes, region: Region) -> Iterator[Sharding]:
    """The shardings of a manual computation and of those inside it."""
    yield from (*attributes["in_shardings"], *attributes["out_shardings"])
    for op in region.ops:
        for inner in op.regions:
            yield from stated_shardings(op.attributes if op.name == MANUAL else _NOTHING, inner)


_NOTHING = Attributes(in_shardings=(), out_shardings=())


def effects_message(free: Mesh) -> str:
    """Why an op with effects is refused where these axes are left to the compiler."""
    axes = ", ".join(a for a, n in free.axes.items() if n > 1)
    return f"it has effects, and axes {{{axes}}} are left to the compiler here; make all axes manual"


def contains_manual(region: Region) -> bool:
    """Whether there is a manual computation in a region, at any depth."""
    return any(op.name == MANUAL or any(map(contains_manual, op.regions)) for op in region.ops)


class _Body:
    def __init__(self, mesh: Mesh, region: Region, free: Mesh):
        self.mesh, self.region, self.free = mesh, region, free
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

    def _emit(self, action: Action | StepPlan, operands: tuple[int, ...], op: Op) -> tuple[int, ...]:
        why = () if isinstance(action, StepPlan) else ("manual",)
        return self.assembler.emit(action, operands, why, op.location, (Origin(-1, op=op.described),))

    def _op(self, op: Op, operands: tuple[int, ...]) -> tuple[int, ...]:
        region, attributes = self.region, op.attributes
        given, types = (tuple(region.types[v] for v in values) for values in (op.operands, op.results))
        definition = registry.get(op.name)
        if isinstance(definition, PerDevice):
            written = authored_program(self.mesh, self.free, op.name, attributes, op.regions, given, types)
            return self._emit(written, operands, op)
        match op.name:
            case "sharding_constraint" | "sharding_group":
                return operands[: len(op.results)]  # all is replicated along the axes that it could speak of
            case "manual_computation":
                return self._nested(op, operands, given, types)
            case "while":
                condition, body = (manual_program(self.mesh, r, self.free) for r in op.regions)
                loop = Loop(condition, body, attributes.get("trip_count"))
                return self._emit(hoisted_loop(loop, given), operands, op)
            case "case" | "if":
                branches = tuple(manual_program(self.mesh, r, self.free) for r in op.regions)
                return self._emit(Branch(branches, predicate=op.name == "if"), operands, op)
        if self.free.size > 1 and not registry.is_pure(op.name, op.regions):
            raise ProgramError(effects_message(self.free))
        flops = definition.flops(attributes, given, types)
        return self._emit(Local(op.name, attributes, types, op.regions, flops), operands, op)

    def _nested(self, op: Op, operands: tuple[int, ...], given: Types, types: Types) -> tuple[int, ...]:
        """Cut along its manual axes, run, and put together again."""
        inner = free_mesh(self.free, op.attributes)
        strategy = manual_strategies(self.free, op.attributes, op.regions[0], given, types)[0]
        parts = []
        for value, placement in zip(operands, strategy.operands, strict=True):
            if moves := _moves(placement):
                (value,) = self._emit(Slice(moves), (value,), op)
            if placement.partial:
                (value,) = self._emit(KeepFirst(placement.partial, placement.monoid), (value,), op)
            parts.append(value)
        made = list(self._emit(manual_program(self.mesh, op.regions[0], inner), tuple(parts), op))
        for i, placement in enumerate(strategy.results):
            if placement.partial:
                (made[i],) = self._emit(AllReduce(placement.partial, placement.monoid), (made[i],), op)
            if moves := _moves(placement):
                (made[i],) = self._emit(AllGather(moves), (made[i],), op)
        return tuple(made)


def _moves(placement: Placement) -> Moves:
    return tuple((i, d.axes) for i, d in enumerate(placement.dims) if d.axes)
