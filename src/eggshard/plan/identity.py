"""Identity of plans: what a plan was made for and by which versions, so that it is not applied to anything else.

Fingerprints cover what is computed. Names, places in source files and the notes of a search are no part of them.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from eggshard.errors import MeshError, ProgramError
from eggshard.extras import installed
from eggshard.frontends import load
from eggshard.plan.json_values import encode
from eggshard.plan.record import PlanRecord
from eggshard.program.mesh import Mesh
from eggshard.program.program import Op, Program, Region
from eggshard.program.sharding import whole_mesh
from eggshard.steps.nested import with_nested
from eggshard.steps.steps import Step, StepPlan
from eggshard.version import __version__

#: Ops that are kept word for word, as one version of JAX wrote them.
_VERBATIM = ("custom_call", "custom_call_effectful", "opaque", "opaque_effectful")


def program_fingerprint(program: Program) -> str:
    """Return the fingerprint of a program's mesh, ops, types and stated shardings."""
    ends = program.input_shardings, program.output_shardings
    return _digest((program.mesh, _plain_region(program.region), *ends))


def plan_fingerprint(plan: PlanRecord) -> str:
    """Return the fingerprint of a plan's device program and of the placements of its inputs and outputs."""
    return _digest((_plain(plan.device_program), plan.input_placements, plan.output_placements))


def device_program_fingerprint(program: StepPlan) -> str:
    """Return the fingerprint of a device program."""
    return _digest(_plain(program))


def versions(program: Program) -> dict[str, str]:
    """Return the versions that a plan for this program depends on: eggshard's, and JAX's if ops are kept verbatim."""
    found = {"eggshard": __version__}
    jax = _installed_jax()
    if jax and any(op.name in _VERBATIM for op in _ops(program.region)):
        found["jax"] = jax
    return found


def require_versions(written: dict[str, str]) -> None:
    """ProgramError where a plan was written by other versions than are installed (JAX may be missing).

    Patches of eggshard read each other's plans.
    """
    here = {"eggshard": __version__, "jax": _installed_jax()}
    for name, version in written.items():
        if here.get(name) and _kept(name, here[name]) != _kept(name, version):
            raise ProgramError(
                f"the plan was written by {name} {version}, and {here[name]} is installed here; plan again, or install "
                f"{name} {version}"
            )


def _kept(name: str, version: str) -> str:
    """The part of a version that plans depend on."""
    return version.rpartition(".")[0] if name == "eggshard" else version


def device_order(plan: PlanRecord) -> tuple[int, ...] | None:
    """Return the rank of each of a plan's devices, in mesh order, among their sorted ids; None if none were stated."""
    ids = () if plan.calling_convention is None else plan.calling_convention.device_ids
    return plan.device_order if not ids or len(ids) != plan.mesh.size else _ranks(ids)


def require(plan: PlanRecord, program: Any = None, mesh: Any = None) -> None:
    """See `Plan.require`."""
    if mesh is not None:
        _require_mesh(plan, mesh)
    if program is not None:
        given = load(program)
        _require_mesh(plan, given.mesh)
        if program_fingerprint(given) != program_fingerprint(plan.program):
            raise ProgramError(
                f"the plan is of another program than {given.name}: {_difference(plan.program, given)}; plan again"
            )


def _require_mesh(plan: PlanRecord, mesh: Any) -> None:
    planned, given = whole_mesh(plan.mesh), whole_mesh(Mesh.of(mesh))
    if planned.axes != given.axes or tuple(planned.axes) != tuple(given.axes):
        names = tuple(planned.axes) != tuple(given.axes)
        what = "axes of other names" if names and sorted(planned.axes) != sorted(given.axes) else (
            "axes in another order" if names else "axes of other sizes"
        )
        raise MeshError(
            f"the plan is for mesh {planned.axes}, and the mesh given has {what}: {given.axes}; plan for this one"
            + ("" if names else ", or put the plan on it with Plan.on where it goes to other numbers of devices")
        )
    if isinstance(mesh, Mesh):
        order, wanted = given.device_ids, planned.device_ids
    else:
        order, wanted = _order_of(mesh), device_order(plan)
        if order is None or wanted is None:
            return
    if order != wanted:
        raise MeshError(
            f"the plan is for devices in the order {_shown(wanted)}, and the mesh given takes them in the order "
            f"{_shown(order)}; build the mesh in that order, or state sizes alone where the order does not matter"
        )


def _order_of(mesh: Any) -> tuple[int, ...] | None:
    """Return the rank of each device of a JAX mesh among the sorted ids; None for a mesh without devices."""
    try:
        return _ranks([device.id for device in mesh.devices.flat])
    except (AttributeError, ValueError):  # JAX's abstract meshes raise the latter
        return None


def _difference(planned: Program, given: Program) -> str:
    """Where two programs differ first."""
    for what, old, new in (
        ("inputs", planned.input_types, given.input_types), ("outputs", planned.output_types, given.output_types),
        ("input shardings", planned.input_shardings, given.input_shardings),
        ("output shardings", planned.output_shardings, given.output_shardings),
    ):
        if old != new:
            return f"its {what} are {_shown(new)}, those of the plan {_shown(old)}"
    return region_difference(planned.region, given.region) or "its values are numbered differently"


def region_difference(planned: Region, given: Region, same: Callable[[Any, Any], bool] = operator.eq) -> str:
    """Where two regions differ first, "" where they do not; ``same`` compares attributes and shardings."""
    for i, (old, new) in enumerate(zip(planned.ops, given.ops, strict=False)):
        where = f"op {i}{' at ' + new.location if new.location else ''}"
        if old.name != new.name:
            return f"{where} is {new.name}, in the plan {old.name}"
        where = f"{where} ({new.name})"
        if old.operands != new.operands or len(old.regions) != len(new.regions):
            return f"{where} has other operands"
        for name in sorted({*old.attributes, *new.attributes}):
            first, second = old.attributes.get(name), new.attributes.get(name)
            if not same(first, second):
                return f"{where} has {name} {second!r}"[:200] + f", in the plan {first!r}"[:200]
        if not same(old.shardings, new.shardings):
            return f"{where} has the sharding {_shown(new.shardings)}, in the plan {_shown(old.shardings)}"
        for a, b in zip(old.regions, new.regions, strict=True):
            if found := region_difference(a, b, same):
                return f"{where}: {found}"
    if len(planned.ops) != len(given.ops):
        return f"it has {len(given.ops)} ops, that of the plan {len(planned.ops)}"
    return "" if planned.outputs == given.outputs else "it returns other values"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(encode(value), sort_keys=True).encode()).hexdigest()


def _plain(plan: StepPlan) -> StepPlan:
    steps = tuple(Step(with_nested(s.action, _plain), s.operands, s.results) for s in plan.steps)
    return replace(plan, steps=steps, held=())


def _plain_region(region: Region) -> Region:
    ops = tuple(replace(op, location="", regions=tuple(map(_plain_region, op.regions))) for op in region.ops)
    return replace(region, ops=ops)


def _ops(region: Region) -> Iterator[Op]:
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from _ops(inner)


@cache
def _installed_jax() -> str:
    return installed("jax")


def _ranks(ids: Sequence[int]) -> tuple[int, ...]:
    place = {device: i for i, device in enumerate(sorted(ids))}
    return tuple(place[device] for device in ids)


def _shown(values: Sequence[Any] | None) -> str:
    if values is None:
        return "in which they are numbered"
    text = ", ".join(map(str, values[:16]))
    return f"({text}{', ...' if len(values) > 16 else ''})"
