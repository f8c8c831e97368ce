"""What the body of a manual computation asks of other devices: collectives over replica groups, and its own number.

Their meaning needs all devices; planning turns them into physical steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eggshard.errors import LoweringError
from eggshard.program.ops import codec
from eggshard.program.ops.base import Arrays, OpDef, Types, register
from eggshard.program.program import Attributes, Region

_OPTIONAL = codec.Verbatim().optional()


class PerDevice(OpDef):
    """Base of ops whose results differ between devices; the group sizes behind ``result_types`` are the module's."""

    def infer(self, attrs: Attributes, operands: Types, regions: tuple[Region, ...] = ()) -> Types:
        return tuple(attrs["result_types"])

    def from_mlir(self, attrs: dict[str, Any], operands: Types, results: Types) -> dict[str, Any]:
        return {**attrs, "result_types": tuple(results)}

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: tuple[Region, ...] = ()) -> tuple[np.ndarray, ...]:
        raise LoweringError(f"{self.name} needs the other devices; it has no meaning on one device alone")


class _Collective(PerDevice):
    """Base of collectives; ``replica_groups`` holds logical device ids where ``use_global_device_ids`` is set."""

    def __init__(self, name: str, *integers: str, global_ids: bool = True):
        """``integers``: the names of the attributes besides the groups."""
        self.name = name
        self.attributes = {
            **{i: codec.Integer() for i in integers},
            "replica_groups": codec.Matrix(),
            "channel_handle": _OPTIONAL,
            **({"use_global_device_ids": _OPTIONAL} if global_ids else {}),
        }


class _CollectivePermute(PerDevice):
    """Devices that no pair of ``source_target_pairs`` targets get zeros."""

    name = "collective_permute"
    attributes = {"source_target_pairs": codec.Matrix(), "channel_handle": _OPTIONAL}


class _PartitionId(PerDevice):
    """This device's logical id, ``tensor<ui32>``."""

    name = "partition_id"


class _ReplicaId(PerDevice):
    """Always 0: modules here have one replica."""

    name = "replica_id"


for _definition in (
    _Collective("all_reduce"),
    _Collective("reduce_scatter", "scatter_dimension"),
    _Collective("all_gather", "all_gather_dim"),
    _Collective("all_to_all", "split_dimension", "concat_dimension", "split_count", global_ids=False),
    _CollectivePermute(),
    _PartitionId(),
    _ReplicaId(),
):
    register(_definition)
