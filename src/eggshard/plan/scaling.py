"""Scaling of a whole plan to another number of devices: its device program, its global input and output arrays, and
its program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from eggshard.errors import LoweringError, MeshError
from eggshard.frontends import frontend_of
from eggshard.frontends.protocol import CallingConvention
from eggshard.ops.region_builder import RegionBuilder
from eggshard.plan.identity import region_difference
from eggshard.plan.reasons import Reasons
from eggshard.plan.record import PlanRecord, Search
from eggshard.plan.retargeting import on_mesh
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.program import Program
from eggshard.program.sharding import Sharding, whole_mesh
from eggshard.program.types import TensorType

Types = tuple[TensorType, ...]


def on_devices(plan: PlanRecord, devices: int | Mapping[str, int], program: Any = None) -> PlanRecord:
    """The plan on another number of devices. See `Plan.on`."""
    mesh = _resized(plan.mesh, devices)
    if mesh == plan.mesh and program is None:
        return plan
    device_program = on_mesh(plan.device_program, mesh)
    old = plan.program
    inputs, outputs = (
        tuple(_global_type(mesh, t, p) for t, p in zip(types, placements, strict=True))
        for types, placements in ((old.input_types, plan.input_placements), (old.output_types, plan.output_placements))
    )
    convention = plan.calling_convention
    if program is not None:
        made, convention = _given(program, plan, mesh, inputs, outputs)
    else:
        made = _unstated(plan, mesh, inputs, outputs)
        convention = None if convention is None else convention.resized(inputs, outputs)
    note = f"planned for mesh {whole_mesh(plan.mesh).axes}, put on {whole_mesh(mesh).axes}"
    return replace(
        plan, program=made, device_program=device_program, search=Search(method="another number of devices",
        notes=(*plan.search.notes, note)), baseline_factory=None, calling_convention=convention,
        reasons_factory=Reasons(note=f"decided elsewhere: {note}"),
    )


def _resized(mesh: Mesh, devices: int | Mapping[str, int]) -> Mesh:
    """The mesh with other sizes of some whole axes; MeshError for axes that are not there or whose parts are used."""
    whole = whole_mesh(mesh)
    if not isinstance(devices, Mapping):
        if devices == whole.size:
            return mesh
        names = [a for a, n in whole.axes.items() if n > 1] or list(whole.axes)
        if len(names) != 1:
            raise MeshError(f"{devices!r} devices along which axis of {whole.axes}? give a size per axis, such as "
                            f"{{{next(iter(whole.axes), 'x')!r}: {devices!r}}}")
        devices = {names[0]: devices}
    missing = [a for a in devices if a not in whole.axes]
    if missing:
        raise MeshError(f"mesh {whole.axes} has no axis {', '.join(map(repr, missing))}")
    sizes = Mesh({**whole.axes, **devices}).axes
    changed = [a for a in whole.axes if sizes[a] != whole.axes[a]]
    if not changed:
        return mesh
    if cut := [a for a in changed if a not in mesh.axes]:
        raise LoweringError(f"the plan uses parts of axis {', '.join(map(repr, cut))}, which only its size of "
                            f"{', '.join(str(whole.axes[a]) for a in cut)} has; plan for the other size")
    if mesh.device_ids is not None:
        raise LoweringError(f"the mesh orders its devices as {list(mesh.device_ids)}, which says nothing of the order "
                            "of others; plan on a mesh in plain order")
    return Mesh({a: sizes.get(a, n) for a, n in mesh.axes.items()})


def _global_type(mesh: Mesh, type_: TensorType, placement: Placement) -> TensorType:
    """What such parts make up on the mesh; placements at the ends of a plan are even."""
    return type_.with_shape(tuple(d.tile * mesh.count(d.axes) for d in placement.dims))


def _unstated(plan: PlanRecord, mesh: Mesh, inputs: Types, outputs: Types) -> Program:
    """A program of which no more is known than its types, and where its inputs and outputs lie."""
    body = RegionBuilder(inputs)
    results = body.add("unstated", body.inputs, {"result_types": outputs})
    ins, outs = (
        tuple(Sharding.from_placement(p, mesh) for p in placements)
        for placements in (plan.input_placements, plan.output_placements)
    )
    return replace(plan.program, mesh=whole_mesh(mesh), region=body.build(results), input_shardings=ins,
                   output_shardings=outs, text=None)


def _given(program: Any, plan: PlanRecord, mesh: Mesh, inputs: Types, outputs: Types
           ) -> tuple[Program, CallingConvention | None]:
    """The program that was given, and how it is called; LoweringError unless it is the planned one at other sizes."""
    frontend = frontend_of(program)
    loaded = frontend.read(program)
    if whole_mesh(loaded.mesh) != whole_mesh(mesh):
        raise LoweringError(f"the program given is on {loaded.mesh}, and the plan is to be put on {whole_mesh(mesh)}")
    for what, got, wanted in (("inputs", loaded.input_types, inputs), ("outputs", loaded.output_types, outputs)):
        if got != wanted:
            raise LoweringError(
                f"the {what} of the program given are {_listed(got)}, and those of the plan on mesh "
                f"{whole_mesh(mesh).axes} are {_listed(wanted)}; give the program at these sizes"
            )
    if found := region_difference(plan.program.region, loaded.region, _same_but_for_sizes):
        raise LoweringError(
            f"the program given is another one than was planned: {found}; give the same function at other sizes; where "
            "this depends on the sizes, plan for that number of devices, or pass such a number as an argument"
        )
    return loaded, frontend.calling_convention(program)


def _same_but_for_sizes(a: Any, b: Any) -> bool:
    if isinstance(a, Literal) and isinstance(b, Literal):
        if a.splat and b.splat:
            first, second = (np.asarray(x.array).reshape(-1)[:1].tobytes() for x in (a, b))
            return first == second and a.array.dtype == b.array.dtype
        return a == b
    if isinstance(a, (Attributes, tuple)):
        return type(a) is type(b)
    if isinstance(a, int) and not isinstance(a, bool):
        return isinstance(b, int)
    return bool(a == b) or type(a) is type(b) and not isinstance(a, (str, bool, float, Literal, type(None)))


def _listed(types: Types) -> str:
    return ", ".join(map(str, types)) or "none"
