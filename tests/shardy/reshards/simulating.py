"""Collectives on what each device holds, by their meaning: groups of devices along axes, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.program.axes import Axes, shard_count
from eggshard.program.mesh import Mesh
from eggshard.program.sharding import atoms
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.shardy.reshards.collectives.kinds import Collective
from eggshard.shardy.wire_bytes import positions


def shards(values: np.ndarray, sharding: TensorSharding, mesh: Mesh) -> list[np.ndarray]:
    """What each device holds of a tensor whose dimensions are divisible; partial sums are some that sum up to it."""
    tiles = [n // shard_count(axes, mesh.axes) for n, axes in zip(values.shape, sharding.axes, strict=True)]
    at = positions(mesh, sharding.axes)
    partial_sums = _partial_sums(values, shard_count(sharding.sharding.unreduced, mesh.axes))
    number = positions(mesh, (sharding.sharding.unreduced,))[0]
    return [
        partial_sums[number[device]][tuple(slice(p * t, p * t + t) for p, t in zip(at[:, device], tiles, strict=True))]
        for device in range(mesh.size)
    ]


def _partial_sums(values: np.ndarray, n: int) -> np.ndarray:
    parts = np.random.default_rng(n).integers(-9, 9, (n, *values.shape)).astype(values.dtype)
    parts[0] = values - parts[1:].sum(axis=0)
    return parts


def whole(held: Sequence[np.ndarray], shape: tuple[int, ...], sharding: TensorSharding, mesh: Mesh) -> list[np.ndarray]:
    """The tensors that devices hold together, one for each copy; partial sums are summed up."""
    at, number = positions(mesh, sharding.axes), positions(mesh, (sharding.sharding.unreduced,))[0]
    tiles = tuple(n // shard_count(axes, mesh.axes) for n, axes in zip(shape, sharding.axes, strict=True))
    copies: dict[tuple[int, ...], list[np.ndarray]] = {}
    for device, part in enumerate(held):
        assert part.shape == tiles
        copies.setdefault((number[device], *at[:, device]), []).append(part)
    out = [np.zeros(shape, held[0].dtype) for _ in next(iter(copies.values()))]
    for (_, *position), parts in copies.items():
        where = tuple(slice(p * t, p * t + t) for p, t in zip(position, tiles, strict=True))
        for tensor, part in zip(out, parts, strict=True):
            tensor[where] += part
    return out


def simulate(
    steps: Sequence[Collective], held: list[np.ndarray], source: TensorSharding, meshes: dict[str, Mesh]
) -> list[np.ndarray]:
    """What devices hold after collectives."""
    at = source
    for step in steps:
        assert isinstance(step.to.mesh, str) and isinstance(at.mesh, str)
        held = _after(step, held, at, meshes[at.mesh], meshes[step.to.mesh])
        at = step.to
    return held


def _after(
    step: Collective, held: list[np.ndarray], source: TensorSharding, source_mesh: Mesh, mesh: Mesh
) -> list[np.ndarray]:
    out = list(held)
    if step.kind == "collective_permute":
        return _permuted(step, held, source, source_mesh, mesh)
    assert source_mesh == mesh
    if step.kind == "replicated_to_unreduced":
        first = positions(mesh, (step.axes,))[0] == 0
        return [part if first[device] else np.zeros_like(part) for device, part in enumerate(held)]
    if step.kind in ("all_reduce", "reduce_scatter"):
        for group in _groups(mesh, step.moved):
            total = np.sum([held[device] for device in group], axis=0)
            for device in group:
                out[device] = total
    for dim, axes in enumerate(step.dims):
        before = list(out)
        for group in _groups(mesh, axes):
            for i, device in enumerate(group):
                if step.kind in ("all_slice", "reduce_scatter"):
                    out[device] = np.split(before[device], len(group), dim)[i]
                else:
                    parts = [before[other] for other in group]
                    if step.kind == "sharded_to_unreduced":
                        parts = [before[other] * (other == device) for other in group]
                    out[device] = np.concatenate(parts, dim)
    for exchange in step.exchanges:
        before = list(out)
        for group in _groups(mesh, exchange.axes):
            pieces = [np.split(before[device], len(group), exchange.target) for device in group]
            for i, device in enumerate(group):
                out[device] = np.concatenate([piece[i] for piece in pieces], exchange.source)
    return out


def _permuted(
    step: Collective, held: list[np.ndarray], source: TensorSharding, source_mesh: Mesh, mesh: Mesh
) -> list[np.ndarray]:
    """Each device gets its shard from some device that holds it, of the partial sums with its own number."""
    before, after = (
        np.concatenate([positions(m, s.axes), positions(m, (source.sharding.unreduced,))])
        for m, s in ((source_mesh, source), (mesh, step.to))
    )
    where = {tuple(before[:, device]): device for device in range(mesh.size)}
    return [held[where[tuple(after[:, device])]] for device in range(mesh.size)]


def _groups(mesh: Mesh, axes: Axes) -> list[list[int]]:
    """Devices that differ along these axes only, in their order."""
    cuts: dict[str, set[int]] = {}
    for axis in axes:
        cuts.setdefault(axis.name, set()).update(axis.span(mesh.axes))
    refined = mesh.refined(cuts)
    groups: list[list[int]] = refined.groups(atoms(axes, refined)).tolist()
    return groups
