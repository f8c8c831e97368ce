"""Simulation of collectives over device groups that are not spanned by mesh axes."""

from __future__ import annotations

import numpy as np

from eggshard.errors import LoweringError
from eggshard.ops.evaluate import evaluate_elementwise
from eggshard.program.mesh import Mesh
from eggshard.program.program import Region
from eggshard.simulate.device_arrays import PERFORMED, Arrays
from eggshard.steps.authored_steps import GroupCollective


@PERFORMED.handles(GroupCollective)
def _group_collective(action: GroupCollective, mesh: Mesh, operands: Arrays) -> Arrays:
    """The results of a collective over the groups that it lists (LoweringError: `groups_of`)."""
    out = [np.empty((mesh.size, *t.shape), a.dtype) for t, a in zip(action.result_types, operands, strict=True)]
    for group in groups_of(mesh.size, action):
        members = list(group)
        for result, array in zip(out, operands, strict=True):
            result[members] = _within(action, array[members])
    return tuple(out)


def groups_of(devices: int, action: GroupCollective) -> tuple[tuple[int, ...], ...]:
    """The groups, each in its order. LoweringError for groups of replicas, of unequal size, or not of all devices."""
    groups: tuple[tuple[int, ...], ...] = action.attributes["replica_groups"]
    listed = sorted(device for group in groups for device in group)
    if not action.names_devices or listed != list(range(devices)) or len({len(group) for group in groups}) > 1:
        raise LoweringError(
            f"the simulator runs {action.name} over groups of equal size that name every device once, not over {groups}"
        )
    return groups


def _within(action: GroupCollective, parts: np.ndarray) -> np.ndarray:
    """The group's results from its operands; both ``[members, ...]``."""
    attributes, count = action.attributes, len(parts)
    if action.name == "all_gather":
        whole = np.concatenate(list(parts), axis=attributes["all_gather_dim"])
        return np.stack([whole] * count)
    if action.name == "all_to_all":
        split, concat = attributes["split_dimension"], attributes["concat_dimension"]
        blocks = [np.split(part, count, axis=split) for part in parts]
        return np.stack([np.concatenate([row[i] for row in blocks], axis=concat) for i in range(count)])
    reduced = combined_by(action.regions[0], parts)
    if action.name == "all_reduce":
        return np.stack([reduced] * count)
    return np.stack(np.split(reduced, count, axis=attributes["scatter_dimension"]))


def combined_by(region: Region, parts: np.ndarray) -> np.ndarray:
    """The members' elements combined by a region, in the group's order."""
    total: np.ndarray = parts[0]
    for part in parts[1:]:
        (total,) = evaluate_elementwise(region, [total, part])
    return total
