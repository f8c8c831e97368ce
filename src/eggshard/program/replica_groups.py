"""Groups of devices that MLIR writes as axes of a mesh: ``#stablehlo.replica_group_mesh_axes<mesh = ..., axes = ...>``.

The mesh is a symbol, or written in full; an axis is StableHLO's ``axis_ref`` or Shardy's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from eggshard.errors import ProgramError
from eggshard.program.axes import AxisRef
from eggshard.program.codec import String
from eggshard.program.dense import dense_text
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import Sharding, atoms, gather_cuts

_STRING = r"\"(?:[^\"\\]|\\.)*\""
#: A mesh by its symbol, and one in full.
NAMED = re.compile(rf"(?<=mesh = )@(?P<name>{_STRING}|[\w$.]+)")
WRITTEN = re.compile(
    r"(?<=mesh = )#stablehlo\.mesh<axes *= *\[(?P<axes>.*?)\](?:, device_ids *= *(?P<ids>.*?))?>(?=, axes)"
)
_MESH_AXIS = re.compile(rf"name = ({_STRING}), size = (\d+)")
#: Of StableHLO, ``axis_ref<name = "x", sub_axis_info = (1)2>``, and of Shardy, ``axis_ref"x":(1)2>``.
_AXIS = re.compile(
    rf"axis_ref(?:<name = )?(?P<name>{_STRING})(?::|, sub_axis_info = )?(?:\((?P<pre>\d+)\)(?P<size>\d+))?>"
)


def by_mesh_axes(text: str) -> bool:
    """Whether groups are written as axes of a mesh."""
    return text.startswith("#stablehlo.replica_group_mesh_axes")


def plain(symbol: str) -> str:
    """The name of a symbol, which MLIR quotes where it has other characters than words have."""
    return String().decode(symbol) if symbol.startswith('"') else symbol


def written_mesh(match: re.Match[str]) -> tuple[Mesh, int | None]:
    """The mesh that a match of `WRITTEN` spells; one without axes is of a single device."""
    axes = [(String().decode(name), int(size)) for name, size in _MESH_AXIS.findall(match["axes"])]
    ids = tuple(map(int, re.findall(r"\d+", match["ids"].partition(" : ")[0]))) if match["ids"] else None
    return Mesh(axes, ids if axes else None), ids[0] if ids and not axes else None


def group_axes(text: str) -> tuple[AxisRef, ...]:
    """The axes along which the devices of a group differ, major to minor."""
    found = _AXIS.finditer(text[text.rindex("axes = [") :])
    return tuple(
        AxisRef(String().decode(match["name"]), *(int(match[key]) for key in ("pre", "size") if match[key]))
        for match in found)


def with_mesh(text: str, mesh: Mesh | int) -> str:
    """The groups with their mesh in full, as StableHLO writes it, and so its axes."""
    match = NAMED.search(text) or WRITTEN.search(text)
    assert match is not None
    listed = [
        f"name = {String().encode(axis.name)}" + (f", sub_axis_info = ({axis.pre}){axis.size}" if axis.size else "")
        for axis in group_axes(text)
    ]
    axes = ", ".join(f"#stablehlo.axis_ref<{axis}>" for axis in listed)
    return f"{text[: match.start()]}{stablehlo_mesh(mesh)}, axes = [{axes}]>"


def stablehlo_mesh(mesh: Mesh | int) -> str:
    """StableHLO's own attribute of a mesh, or of a single device."""
    axes = {} if isinstance(mesh, int) else mesh.axes
    listed = ", ".join(f"#stablehlo.mesh_axis<name = {String().encode(n)}, size = {k}>" for n, k in axes.items())
    return f"#stablehlo.mesh<axes = [{listed}]{device_ids_text(mesh)}>"


def device_ids_text(mesh: Mesh | int) -> str:
    """The order of a mesh's devices behind its axes; empty where it is that of their ids."""
    ids = [mesh] if isinstance(mesh, int) else list(mesh.device_ids or ())
    shown = str(ids) if len(ids) > 1 else "".join(map(str, ids))
    return f", device_ids = dense<{shown}> : tensor<{len(ids)}xi64>" if ids else ""


def listed_groups(text: str, meshes: Mapping[str, Mesh | int]) -> str:
    """The groups as ``dense<[[0, 1], [2, 3]]>``; ProgramError for a mesh that is not defined."""
    if match := NAMED.search(text):
        name = plain(match["name"])
        if name not in meshes:
            raise ProgramError(f"replica groups are axes of mesh @{name}, which the module does not define")
        found = meshes[name]
        mesh = found if isinstance(found, Mesh) else Mesh({})
    elif match := WRITTEN.search(text):
        mesh, _ = written_mesh(match)
    else:
        raise ProgramError(f"replica groups {text} are in no form that is known; list them, or name axes of a mesh")
    axes = group_axes(text)
    fine = mesh.refined(gather_cuts((Sharding(unreduced=axes),), mesh))
    return dense_text(fine.groups(atoms(axes, fine)).astype(np.int64))
