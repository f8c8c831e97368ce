"""Passes on meshes: as symbols or inline, without axes of size one, and removed altogether."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.planner.propagation.draft import without_size_one
from eggshard.program.codec import String
from eggshard.program.cursor import read_mesh
from eggshard.program.mesh import Mesh
from eggshard.program.replica_groups import (
    NAMED,
    WRITTEN,
    by_mesh_axes,
    device_ids_text,
    listed_groups,
    plain,
    with_mesh,
    written_mesh,
)
from eggshard.program.tensor_sharding import TensorSharding, mesh_attribute
from eggshard.shardy.module import BODIES, OWN_SHARDING, ShardyModule, create, symbol
from eggshard.shardy.passes import shardy_pass
from eggshard.shardy.rewriting import drop_shardings, transform_shardings

MESH, GROUPS = "sdy.mesh", "replica_groups"
#: Collectives whose groups may name a mesh.
GROUPED = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_broadcast")


@shardy_pass("remove-size-one-axes")
def remove_size_one_axes(module: ShardyModule) -> None:
    """Take axes of size one out of every sharding; the meshes keep them, and manual computations their names.

    A closed dimension that is left without axes has no priority any more.
    """
    if any(isinstance(mesh, Mesh) and 1 in mesh.axes.values() for mesh in module.meshes.values()):
        transform_shardings(module, lambda sharding, _: TensorSharding(
            sharding.mesh, without_size_one(sharding.sharding, module.mesh(sharding))))


@shardy_pass("inline-meshes")
def inline_meshes(module: ShardyModule) -> None:
    """Write every mesh in full where a sharding, or the groups of a collective, name it; remove the named meshes."""
    named = module.meshes

    def inlined(sharding: TensorSharding, _: Any) -> TensorSharding:
        if isinstance(sharding.mesh, Mesh):
            return sharding
        mesh = module.mesh(sharding)  # which refuses unknown names
        device = named[sharding.mesh]
        if isinstance(device, int):
            return TensorSharding(mesh, sharding.updated(device=device).sharding)
        return TensorSharding(mesh, sharding.sharding)

    def in_full(text: str) -> str:
        match = NAMED.search(text)
        return with_mesh(text, named[plain(match["name"])]) if match and plain(match["name"]) in named else text

    transform_shardings(module, inlined)
    _rewrite_groups(module, in_full)
    for op in _mesh_ops(module):
        op.erase()


@shardy_pass("lift-inlined-meshes")
def lift_inlined_meshes(module: ShardyModule) -> None:
    """Name every mesh that is written in full, and give equal meshes one name, the first.

    New meshes are called ``mesh``, ``maximal_mesh_3`` for device 3 alone, ``empty_mesh`` without axes, with a number
    where the name is taken; each mesh says in ``stablehlo.mesh`` what it is to readers without Shardy.
    """
    _Lifting(module).run()


class _Lifting:
    """Names of meshes, found and made."""

    def __init__(self, module: ShardyModule) -> None:
        self.module = module
        #: The name to use for a mesh's text, and for a name that was dropped.
        self.of_text: dict[str, str] = {}
        self.of_name: dict[str, str] = {}
        self.taken = {_symbol(op.operation) for op in module.module.body.operations} - {""}
        self.number = 0
        self.last: Any = None

    def run(self) -> None:
        for op in _mesh_ops(self.module):
            name, text = _symbol(op), str(op.attributes["mesh"])
            first = self.of_text.setdefault(text, name)
            if first == name:
                self.last = op
            else:
                self.of_name[name] = first
                self.taken.discard(name)
                op.erase()
        transform_shardings(self.module, self._lifted)
        ops = _grouped(self.module)
        for op in sorted(ops, key=lambda op: GROUPED.index(op.name.removeprefix("stablehlo."))):
            text = self._groups(str(op.attributes[GROUPS]))
            op.attributes[GROUPS] = ir.Attribute.parse(text)
        for op in _mesh_ops(self.module):
            if "stablehlo.mesh" not in op.attributes:
                op.attributes["stablehlo.mesh"] = ir.Attribute.parse(_dictionary(read_mesh(str(op.attributes["mesh"]))))

    def _lifted(self, sharding: TensorSharding, _: Any) -> TensorSharding:
        if isinstance(sharding.mesh, str):
            return TensorSharding(self.of_name.get(sharding.mesh, sharding.mesh), sharding.sharding)
        device = sharding.sharding.device
        name = self._named(sharding.mesh, device)
        return TensorSharding(name, sharding.updated(device=None).sharding)

    def _groups(self, text: str) -> str:
        match = NAMED.search(text)
        if match:
            name = self.of_name.get(plain(match["name"]), plain(match["name"]))
            return text[: match.start()] + f"@{String().encode(name)}" + text[match.end() :]
        match = WRITTEN.search(text)
        if not match:
            return text
        name = self._named(*written_mesh(match))
        return text[: match.start()] + f"@{String().encode(name)}" + text[match.end() :]

    def _named(self, mesh: Mesh, device: int | None) -> str:
        text = mesh_attribute(mesh, device)
        if text not in self.of_text:
            wanted = f"maximal_mesh_{device}" if device is not None else "mesh" if mesh.axes else "empty_mesh"
            self.of_text[text] = self._create(wanted, text)
        return self.of_text[text]

    def _create(self, wanted: str, text: str) -> str:
        name = wanted
        while name in self.taken:
            name = f"{wanted}_{self.number}"
            self.number += 1
        self.taken.add(name)
        body = self.module.module.body
        at = ir.InsertionPoint.after(self.last) if self.last else ir.InsertionPoint.at_block_begin(body)
        self.last = create(MESH, [], [], {"sym_name": ir.StringAttr.get(name), "mesh": text}, at)
        return name


@shardy_pass("drop-sharding-and-mesh")
def drop_sharding_and_mesh(module: ShardyModule) -> None:
    """Remove all shardings and all meshes: what is left is a program of one device, or of each device by itself.

    Groups of StableHLO's collectives that are axes of a mesh are listed. ProgramError where an op is nothing
    without its mesh (a reshard, a collective of Shardy's, a manual computation): such programs are made local first.
    """
    for op in module.walk():
        own = OWN_SHARDING.get(op.name)
        if (own and own in op.attributes) or op.name in BODIES:
            raise ProgramError(
                f"{op.name} needs its mesh: {str(op).partition(chr(10))[0][:160]}; "
                "run reshard-to-collectives and convert-global-to-local before drop-sharding-and-mesh"
            )
    named = module.meshes
    _rewrite_groups(module, lambda text: listed_groups(text, named))
    drop_shardings(module)
    for op in _mesh_ops(module):
        op.erase()


def _mesh_ops(module: ShardyModule) -> list[Any]:
    return [op.operation for op in module.module.body.operations if op.operation.name == MESH]


def _rewrite_groups(module: ShardyModule, change: Callable[[str], str]) -> None:
    """Change the text of all groups that are axes of a mesh."""
    for op in _grouped(module):
        text = str(op.attributes[GROUPS])
        if by_mesh_axes(text):
            op.attributes[GROUPS] = ir.Attribute.parse(change(text))


def _grouped(module: ShardyModule) -> list[Any]:
    return [op for op in module.walk(*(f"stablehlo.{name}" for name in GROUPED)) if GROUPS in op.attributes]


def _symbol(op: Any) -> str:
    return symbol(op) if "sym_name" in op.attributes else ""


def _dictionary(mesh: Mesh | int) -> str:
    axes = {} if isinstance(mesh, int) else mesh.axes
    listed = ", ".join(f"{{name = {String().encode(name)}, size = {size} : i64}}" for name, size in axes.items())
    return f"{{axes = [{listed}]{device_ids_text(mesh)}}}"
