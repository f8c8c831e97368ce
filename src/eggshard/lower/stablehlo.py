"""A plan as a StableHLO module: one manual region over all mesh axes, shard-local shapes, explicit collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eggshard.errors import LoweringError
from eggshard.lower.collectives_text import BodyText, Value, function_type
from eggshard.placement.placement import Placement, is_even, replicated
from eggshard.placement.sharding import Sharding, mesh_text, whole_mesh
from eggshard.plan.steps import CollectivePermute, Exchange, Local, Pairs, Round, Step, StepPlan
from eggshard.program.mesh import Mesh
from eggshard.program.ops.codec import String
from eggshard.program.program import Program
from eggshard.program.types import TensorType

if TYPE_CHECKING:
    from eggshard.plan.plan import Plan


def plan_text(plan: Plan) -> str:
    """The module of a plan."""
    program = plan.program
    return module_text(
        plan.device_program,
        program.input_types,
        plan.input_placements,
        program.output_types,
        plan.output_placements,
        name=program.name,
    )


def module_text(
    device_program: StepPlan,
    input_types: Sequence[TensorType],
    input_placements: Sequence[Placement],
    output_types: Sequence[TensorType],
    output_placements: Sequence[Placement],
    name: str = "main",
) -> str:
    """A module with one function ``main`` over global shapes, which XLA compiles without adding communication.

    Types are global; placements are on the device program's mesh and even. Arguments and results carry their
    sharding over the program's own mesh, and so does the manual region. ``name`` becomes the module's.
    LoweringError for a placement that is uneven or a partial sum: the boundary of a module cannot express those.
    """
    mesh = device_program.mesh
    inputs = [_boundary(mesh, "input", i, *tp) for i, tp in enumerate(zip(input_types, input_placements, strict=True))]
    outputs = [
        _boundary(mesh, "output", i, *tp) for i, tp in enumerate(zip(output_types, output_placements, strict=True))
    ]
    # A single device has no partition to be manual over, and XLA refuses the id of its only partition.
    manual = mesh.size > 1
    body = BodyText(mesh, "      " if manual else "    ")
    prefix = "%l" if manual else "%arg"
    arguments = [Value(f"{prefix}{v}", device_program.types[v]) for v in device_program.inputs]
    returned = _body(device_program, body, arguments)

    attributes = f"mhlo.num_partitions = {mesh.size} : i32, mhlo.num_replicas = 1 : i32"
    lines = [f"module @{String().encode(name)} attributes {{{attributes}}} {{"]
    if manual:
        lines.append(f"  sdy.mesh @mesh = {mesh_text(mesh)}")
    marks = [f" {{sdy.sharding = #sdy.sharding{s}}}" if manual else "" for s in (*inputs, *outputs)]
    shown_inputs = ", ".join(f"%arg{i}: {t}{m}" for i, (t, m) in enumerate(zip(input_types, marks, strict=False)))
    shown_outputs = ", ".join(f"{t}{m}" for t, m in zip(output_types, marks[len(inputs) :], strict=True))
    lines.append(f"  func.func public @main({shown_inputs}) -> ({shown_outputs}) {{")
    types = function_type(input_types, output_types)
    if manual:
        names = ", ".join(f"%arg{i}" for i in range(len(inputs)))
        pack = f"%result:{len(outputs)} = " if len(outputs) > 1 else "%result = " if outputs else ""
        axes = ", ".join(String().encode(axis) for axis in whole_mesh(mesh).axes)
        blocks = ", ".join(f"{v.name}: {v.type}" for v in arguments)
        lines.append(
            f"    {pack}sdy.manual_computation({names}) in_shardings=[{', '.join(inputs)}] "
            f"out_shardings=[{', '.join(outputs)}] manual_axes={{{axes}}} ({blocks}) {{"
        )
        lines += body.lines
        lines.append(f"      sdy.return{_typed(returned)}")
        lines.append(f"    }} : {types}")
        results = ["%result"] if len(outputs) == 1 else [f"%result#{i}" for i in range(len(outputs))]
        returned = [Value(n, t) for n, t in zip(results, output_types, strict=True)]
    else:
        lines += body.lines
    lines += [f"    func.return{_typed(returned)}", "  }", "}", ""]
    return "\n".join(lines)


def at_grid_positions(device_program: StepPlan) -> StepPlan:
    """The same program with devices numbered by their position in the mesh grid instead of by its ``device_ids``.

    JAX numbers partitions that way: it hands the order of devices over beside the module.
    """
    mesh = device_program.mesh
    if mesh.device_ids is None:
        return device_program
    position = {device: i for i, device in enumerate(mesh.device_ids)}

    def pairs(old: Pairs) -> Pairs:
        return tuple((position[s], position[t]) for s, t in old)

    def round_(r: Round) -> Round:
        rows = [tuple(starts[d] for d in mesh.device_ids or ()) for starts in (r.source_starts, r.target_starts)]
        return Round(pairs(r.pairs), *rows)

    def step(s: Step) -> Step:
        match s.action:
            case CollectivePermute():
                return replace(s, action=replace(s.action, pairs=pairs(s.action.pairs)))
            case Exchange(rounds=rounds, local=local):
                moved = replace(s.action, rounds=tuple(map(round_, rounds)), local=tuple(map(round_, local)))
                return replace(s, action=moved)
        return s

    return replace(device_program, mesh=Mesh(mesh.axes), steps=tuple(map(step, device_program.steps)))


def program_text(program: Program) -> str:
    """The unsharded program as a module for one device."""
    region = program.region
    steps = tuple(
        Step(Local(op.name, op.attributes, tuple(region.types[v] for v in op.results), op.regions), op.operands, op.results)
        for op in region.ops
    )
    one = StepPlan(Mesh({}), region.inputs, steps, region.outputs, region.types)
    placements = [[replicated(t.shape) for t in types] for types in (program.input_types, program.output_types)]
    return module_text(one, program.input_types, placements[0], program.output_types, placements[1], program.name)


def _body(device_program: StepPlan, body: BodyText, arguments: Sequence[Value]) -> list[Value]:
    values: dict[int, Value] = dict(zip(device_program.inputs, arguments, strict=True))
    for step in device_program.steps:
        try:
            results = body.emit(step.action, [values[v] for v in step.operands])
        except LoweringError as error:
            raise LoweringError(f"step {step.action.kind} {step.label or step.results}: {error}") from None
        values.update(zip(step.results, results, strict=True))
        for v in step.results:
            if values[v].type != device_program.types[v]:
                raise LoweringError(
                    f"step {step.action.kind} {step.label or step.results} makes {values[v].type}, "
                    f"the plan says {device_program.types[v]}"
                )
    return [values[v] for v in device_program.outputs]


def _boundary(mesh: Mesh, what: str, i: int, type_: TensorType, placement: Placement) -> str:
    if placement.partial or not is_even(type_.shape, placement, mesh):
        reason = "a partial sum" if placement.partial else "uneven"
        raise LoweringError(f"{what} {i} ({type_}) is placed as {placement}, which is {reason}; reduce or resize it first")
    return Sharding.from_placement(placement, mesh).text()


def _typed(values: Sequence[Value]) -> str:
    """`` %a, %b : tensor<..>, tensor<..>``, or nothing."""
    if not values:
        return ""
    return f" {', '.join(v.name for v in values)} : {', '.join(str(v.type) for v in values)}"
