"""Readers of meshes and shardings of MLIR modules: Shardy's, and GSPMD's older strings in terms of a named mesh."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from eggshard.errors import MeshError, ProgramError, ShardingError
from eggshard.program.axes import AxisRef
from eggshard.program.codec import split_top_level
from eggshard.program.cursor import read_mesh
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import DimSharding, Sharding, read_sharding

#: The one axis of a mesh made up for a module that has GSPMD shardings and no mesh; their tiles are its sub-axes.
GSPMD_AXIS = "devices"


class MeshTable:
    """The meshes of a module by name. All that have devices must be one mesh, whatever they are called."""

    def __init__(self) -> None:
        self.named: dict[str, Mesh | int] = {}
        self.mesh: Mesh | None = None

    def add(self, name: str, text: str) -> None:
        """A ``sdy.mesh`` op. ProgramError if the module then has two different meshes."""
        try:
            mesh = read_mesh(text)
        except (ShardingError, MeshError) as error:
            raise ProgramError(f"sdy.mesh @{name}: {error}") from None
        self.named[name] = mesh
        self._use(mesh)

    def _use(self, mesh: Mesh | int) -> None:
        if isinstance(mesh, int) or not mesh.axes:
            return
        if self.mesh is not None and mesh != self.mesh:
            raise ProgramError(
                f"the module has two different meshes, {self.mesh} and {mesh}; shard every tensor on one mesh, "
                "of which different axes may be used"
            )
        self.mesh = mesh

    def use_gspmd_devices(self, text: str) -> None:
        """A module without a mesh that has this GSPMD string gets one axis of as many devices as it tiles over.

        They are in the string's order where they cannot be in that of their numbers.
        """
        tiles = _gspmd_tiles(_gspmd_body(text))
        if self.mesh is None and tiles is not None and tiles.size > 1:
            in_order = sorted(tiles.flat) != list(range(tiles.size)) or _mixed_radix(tiles) is not None
            self._use(Mesh({GSPMD_AXIS: tiles.size}, None if in_order else tiles.flat))

    def sharding(self, text: str) -> Sharding:
        """One ``#sdy.sharding<...>``, or an element of a per-value list, in normal form."""
        reference, sharding = read_sharding(text)
        mesh: Mesh | int | None
        if isinstance(reference, str):
            if reference not in self.named:
                raise ProgramError(f"sharding {text} is on mesh @{reference}, which the module does not define")
            mesh = self.named[reference]
        else:
            mesh = reference
        if isinstance(mesh, int):
            return Sharding(device=mesh)
        if mesh is not None:
            self._use(mesh)
        return sharding.canonical(self.mesh) if self.mesh is not None else sharding

    def per_value(self, text: str) -> tuple[Sharding, ...]:
        """All entries of ``#sdy.sharding_per_value<[...]>``."""
        body = text[text.index("[") + 1 : text.rindex("]")]
        return tuple(self.sharding(part) for part in split_top_level(body))

    def gspmd(self, text: str, rank: int) -> Sharding:
        """A GSPMD string of a tensor of that rank, in axes of the mesh."""
        self.use_gspmd_devices(text)
        return gspmd_sharding(text, rank, self.mesh or Mesh({}))


def gspmd_sharding(text: str, rank: int, mesh: Mesh) -> Sharding:
    """The sharding that a GSPMD string such as ``{devices=[4,1,2]<=[8] last_tile_dim_replicate}`` means on a mesh.

    ProgramError for manual, unreduced or nested ones, and for tiles that no (sub-)axes of the mesh produce.
    """
    body = _gspmd_body(text)
    if body == "replicated":
        return Sharding((DimSharding(),) * rank)
    if body in ("unknown", ""):
        return Sharding((DimSharding(open=True),) * rank)
    if maximal := re.fullmatch(r"maximal device=(\d+)", body):
        return Sharding(device=int(maximal[1]))
    tiles = _gspmd_tiles(body)
    if tiles is None:
        raise ProgramError(f"GSPMD sharding {text} is not supported; lower the program with Shardy enabled in JAX")
    if tiles.size != mesh.size:
        raise ProgramError(f"GSPMD sharding {text} is over {tiles.size} devices, the mesh {mesh} has {mesh.size}")
    if sorted(tiles.flat) != list(range(mesh.size)):
        raise ProgramError(f"GSPMD sharding {text} leaves out devices of 0..{mesh.size - 1}; name each of them once")
    open_ = "unknown" in body
    position = np.empty(mesh.size, np.int64)
    position[mesh.grid.reshape(-1)] = np.arange(mesh.size)
    digits = _mixed_radix(position[tiles])
    if tiles.ndim != rank + _replicating(body):
        raise ProgramError(f"GSPMD sharding {text} is not of a tensor of {rank} dimensions; tile each of them")
    if digits is None:
        raise ProgramError(f"GSPMD sharding {text} is not made of axes of {mesh}; state it with sdy.sharding instead")
    dims = tuple(DimSharding(tuple(r for d in digits[i] for r in _axes(mesh, *d)), open_) for i in range(rank))
    return Sharding(dims).canonical(mesh)


def gspmd_group(text: str) -> int | None:
    """The number of the group whose tensors a GSPMD string says to shard alike, as ``jax.shard_alike`` writes it."""
    found = re.search(r"\bshard_as (\d+)", text)
    return int(found[1]) if found else None


def _gspmd_body(text: str) -> str:
    """A GSPMD string without braces, metadata and its group; to be sharded *like* others binds no tensor."""
    body = text.strip().strip('"').strip().removeprefix("{").removesuffix("}").strip()
    return re.sub(r"\s*(metadata=\{.*\}|\bshard_(as|like) \d+)", "", body)


def _replicating(body: str) -> int:
    """How many of the last dimensions of a string's tiles replicate."""
    listed = re.search(r"last_tile_dims=\{([^}]*)\}", body)
    return len(listed[1].split(",")) if listed else int("last_tile_dim_replicate" in body)


@lru_cache(maxsize=4096)
def _gspmd_tiles(body: str) -> np.ndarray | None:
    """Device ids by tile, one dimension per tensor dimension and then those that replicate; None if not tiled."""
    if "manual" in body or "unreduced" in body:
        return None
    match = re.match(r"devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))", body)
    if match is None:
        return None
    shape, source, order, listed = ([int(n) for n in g.split(",")] if g else [] for g in match.groups())
    if listed:
        ids = np.array(listed)
    else:
        ids = np.arange(int(np.prod(source))).reshape(source)
        ids = ids.transpose(order) if order else ids
    return ids.reshape(shape) if ids.size == int(np.prod(shape)) else None


def _mixed_radix(positions: np.ndarray) -> list[list[tuple[int, int]]] | None:
    """Per dimension its digits (size, stride), major to minor, whose sums with weights are ``positions``; or None."""
    out: list[list[tuple[int, int]]] = []
    for dim in range(positions.ndim):
        line = positions[tuple(slice(None) if i == dim else 0 for i in range(positions.ndim))]
        digits: list[tuple[int, int]] = []
        period = 1
        while period < len(line):
            stride = int(line[period] - line[0])
            size = 1
            while period * size < len(line) and line[period * size] - line[0] == stride * size:
                size += 1
            if stride <= 0 or len(line) % (period * size):
                return None
            digits.append((size, stride))
            period *= size
        out.append(digits[::-1])
    rebuilt = np.zeros((), np.int64)
    for digits in out:
        line = np.zeros(1, np.int64)
        for size, stride in digits:
            line = (line[:, None] + np.arange(size) * stride).reshape(-1)
        rebuilt = rebuilt[..., None] + line
    return out if np.array_equal(rebuilt, positions) else None


def _axes(mesh: Mesh, size: int, stride: int) -> list[AxisRef]:
    """The (sub-)axes of the mesh, major to minor, over which a digit of the device's position runs."""
    refs: list[AxisRef] = []
    inner = 1
    for name, n in reversed(mesh.axes.items()):
        low, high = max(stride, inner), min(stride * size, inner * n)
        if low < high:
            if low % inner or (inner * n) % high or high % low:
                raise ProgramError(f"a GSPMD tile cuts axis {name!r} of {mesh} unevenly; use sdy.sharding instead")
            pre = inner * n // high
            refs.append(AxisRef(name, pre, high // low) if high // low < n else AxisRef(name))
        inner *= n
    return refs[::-1]


def stated_sharding(attributes: Mapping[str, str], rank: int, table: MeshTable) -> Sharding | None:
    """The sharding among an argument's or result's attributes (name -> text), if one is stated."""
    if text := attributes.get("sdy.sharding"):
        return table.sharding(text)
    if text := attributes.get("mhlo.sharding"):
        return table.gspmd(text, rank)
    return None
