"""Writer of a plan as a StableHLO module: one region manual over all mesh axes, local shapes, explicit collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eggshard.emit.body_text import Value
from eggshard.emit.collectives_text import StepText
from eggshard.errors import LoweringError
from eggshard.ops.spelling import function_type
from eggshard.program.codec import String
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, is_even, replicated
from eggshard.program.program import Program
from eggshard.program.sharding import Sharding, mesh_text, whole_mesh
from eggshard.program.types import TensorType
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective, OnFirstDevice
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import BoxExchange
from eggshard.steps.handlers import Handlers
from eggshard.steps.nested import with_nested
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    Local,
    Mask,
    Pairs,
    ReduceScatter,
    Resize,
    Slice,
    Step,
    StepPlan,
)
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, WindowExchange

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord


def plan_text(plan: PlanRecord, platform: str = "") -> str:
    """The module of a plan, for a platform."""
    program = plan.program
    return module_text(
        plan.device_program,
        program.input_types,
        plan.input_placements,
        program.output_types,
        plan.output_placements,
        name=program.name,
        platform=platform,
    )


def module_text(
    device_program: StepPlan,
    input_types: Sequence[TensorType],
    input_placements: Sequence[Placement],
    output_types: Sequence[TensorType],
    output_placements: Sequence[Placement],
    name: str = "main",
    platform: str = "",
    processes: int = 1,
) -> str:
    """A module with one function ``main`` over global shapes, which XLA compiles without adding communication.

    Types are global; placements are on the device program's mesh and even. Arguments and results carry their
    sharding over the program's own mesh, and so does the manual region. ``name`` becomes the module's.
    ``platform``: what it is compiled for, as JAX spells it ("cpu", "gpu", "tpu"); empty: for all of them, without
    fences, which each of them has a form of its own for. `processes`: how many the devices belong to.
    LoweringError for a placement that is uneven, windowed or a partial sum: the boundary of a module cannot express
    those.
    """
    mesh = device_program.mesh
    inputs = [_boundary(mesh, "input", i, *tp) for i, tp in enumerate(zip(input_types, input_placements, strict=True))]
    outputs = [
        _boundary(mesh, "output", i, *tp) for i, tp in enumerate(zip(output_types, output_placements, strict=True))
    ]
    # A single device has no partition to be manual over, and XLA refuses the id of its only partition.
    manual = mesh.size > 1
    tables: dict[str, str] = {}
    body = StepText(mesh, "      " if manual else "    ", tables=tables, platform=platform, processes=processes)
    prefix = "%l" if manual else "%arg"
    arguments = [Value(f"{prefix}{v}", device_program.types[v]) for v in device_program.inputs]
    # XLA drops what leads into a manual region for an array without elements, and then refuses a region without any.
    passed = [i for i, v in enumerate(arguments) if v.type.elements or not manual]
    body.lines += (f"      {v.name} = stablehlo.constant dense<> : {v.type}" for i, v in enumerate(arguments)
                   if i not in passed)
    returned = body.program(device_program, arguments)

    attributes = f"mhlo.num_partitions = {mesh.size} : i32, mhlo.num_replicas = 1 : i32"
    lines = [f"{table} = {text}" for text, table in tables.items()]
    lines.append(f"module @{String().encode(name)} attributes {{{attributes}}} {{")
    if manual:
        lines.append(f"  sdy.mesh @mesh = {mesh_text(mesh)}")
    marks = [f" {{sdy.sharding = #sdy.sharding{s}}}" if manual else "" for s in (*inputs, *outputs)]
    shown_inputs = ", ".join(f"%arg{i}: {t}{m}" for i, (t, m) in enumerate(zip(input_types, marks, strict=False)))
    shown_outputs = ", ".join(f"{t}{m}" for t, m in zip(output_types, marks[len(inputs) :], strict=True))
    lines.append(f"  func.func public @main({shown_inputs}) -> ({shown_outputs}) {{")
    if manual:
        names = ", ".join(f"%arg{i}" for i in passed)
        pack = f"%result:{len(outputs)} = " if len(outputs) > 1 else "%result = " if outputs else ""
        axes = ", ".join(String().encode(axis) for axis in whole_mesh(mesh).axes)
        blocks = ", ".join(f"{arguments[i].name}: {arguments[i].type}" for i in passed)
        lines.append(
            f"    {pack}sdy.manual_computation({names}) in_shardings=[{', '.join(inputs[i] for i in passed)}] "
            f"out_shardings=[{', '.join(outputs)}] manual_axes={{{axes}}} ({blocks}) {{"
        )
        lines += body.lines
        lines.append(f"      sdy.return{_typed(returned)}")
        lines.append(f"    }} : {function_type([input_types[i] for i in passed], output_types)}")
        results = ["%result"] if len(outputs) == 1 else [f"%result#{i}" for i in range(len(outputs))]
        returned = [Value(n, t) for n, t in zip(results, output_types, strict=True)]
    else:
        lines += body.lines
    lines += [f"    func.return{_typed(returned)}", "  }"]
    for type_, function in body.identities.items():
        lines += [f"  func.func private @{function}(%x: {type_}) -> {type_} {{", f"    func.return %x : {type_}", "  }"]
    lines += ["}", ""]
    return "\n".join(lines)


def at_grid_positions(device_program: StepPlan) -> StepPlan:
    """Renumber the devices of a program by their position in the mesh grid instead of by the mesh's ``device_ids``.

    JAX numbers partitions this way: it passes the device order separately from the module.
    """
    ids = device_program.mesh.device_ids
    return device_program if ids is None else _Renumbering(ids).plan(device_program)


_RENUMBERED: Handlers[Action] = Handlers("renumbering of devices")


class _Renumbering:
    """Devices by their position in a mesh grid of these ids."""

    def __init__(self, ids: tuple[int, ...]):
        self.ids = ids
        self.position = {device: i for i, device in enumerate(ids)}

    def plan(self, plan: StepPlan) -> StepPlan:
        steps = tuple(replace(s, action=self.action(s.action)) for s in plan.steps)
        return replace(plan, mesh=Mesh(plan.mesh.axes), steps=steps)

    def action(self, action: Action) -> Action:
        return _RENUMBERED.of(action)(self, action)

    @_RENUMBERED.handles(AllGather, AllReduce, AllToAll, BoxExchange, BoxSelect, Crop, EdgeFill, KeepFirst, Local, Mask,
                         OnFirstDevice, ReduceScatter, Resize, Slice, WindowExchange)
    def _same(self, action: Action) -> Action:
        """Return the action unchanged: it depends on a device's position along axes alone."""
        return action

    @_RENUMBERED.handles(Loop, Branch)
    def _control(self, action: Action) -> Action:
        return with_nested(action, self.plan)

    @_RENUMBERED.handles(CollectivePermute)
    def _permute(self, action: CollectivePermute) -> Action:
        return replace(action, pairs=self.pairs(action.pairs))

    @_RENUMBERED.handles(Exchange)
    def _exchange(self, action: Exchange) -> Action:
        rounds, local = (tuple(map(self.round, part)) for part in (action.rounds, action.local))
        return replace(action, rounds=rounds, local=local)

    @_RENUMBERED.handles(DeviceNumber)
    def _device_number(self, action: DeviceNumber) -> Action:
        return replace(action, numbers=tuple(action.numbers[d] for d in self.ids))

    @_RENUMBERED.handles(GroupCollective)
    def _group_collective(self, action: GroupCollective) -> Action:
        if not action.names_devices:
            return action
        listed = action.attributes["replica_groups"]
        groups = tuple(tuple(self.position.get(d, d) for d in group) for group in listed)
        return replace(action, attributes=action.attributes.updated(replica_groups=groups))

    def pairs(self, pairs: Pairs) -> Pairs:
        return tuple((self.position[s], self.position[t]) for s, t in pairs)

    def round(self, old: Round) -> Round:
        source, target = (tuple(rows[d] for d in self.ids) for rows in (old.source_starts, old.target_starts))
        return Round(self.pairs(old.pairs), source, target)


def unsharded_text(program: Program) -> str:
    """The program as a module for one device, without any sharding."""
    region = program.region
    types = region.types
    actions = [Local(op.name, op.attributes, tuple(types[v] for v in op.results), op.regions) for op in region.ops]
    steps = tuple(Step(a, op.operands, op.results) for a, op in zip(actions, region.ops, strict=True))
    one = StepPlan(Mesh({}), region.inputs, steps, region.outputs, types)
    whole = [replicated(t.shape) for t in (*program.input_types, *program.output_types)]
    inputs, outputs = whole[: len(program.input_types)], whole[len(program.input_types) :]
    return module_text(one, program.input_types, inputs, program.output_types, outputs, program.name)


def _boundary(mesh: Mesh, what: str, i: int, type_: TensorType, placement: Placement) -> str:
    if placement.partial or not is_even(type_.shape, placement, mesh):
        reason = "a partial sum" if placement.partial else "a window" if placement.windowed else "uneven"
        raise LoweringError(
            f"{what} {i} ({type_}) is placed as {placement}, which is {reason}; reduce or resize it first"
        )
    return Sharding.from_placement(placement, mesh).text()


def _typed(values: Sequence[Value]) -> str:
    """`` %a, %b : tensor<..>, tensor<..>``, or nothing."""
    if not values:
        return ""
    return f" {', '.join(v.name for v in values)} : {', '.join(str(v.type) for v in values)}"
