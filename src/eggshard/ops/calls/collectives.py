"""Collectives over replica groups, and the device's number, in the body of a manual computation.

Their meaning involves all devices; planning turns them into physical steps. Their groups are along manual axes. Along
axes that a manual computation leaves free, shards pass through a collective one by one (`factors`).
"""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.errors import LoweringError
from eggshard.ops.base import REPLICATE, Arrays, Factor, FactorRule, OpDef, Regions, Results, Types, register
from eggshard.ops.factor_table import labelled_rule
from eggshard.program import codec
from eggshard.program.attributes import Attributes
from eggshard.program.monoids import of_dtype

_OPTIONAL = codec.Verbatim().optional()


class PerDevice(OpDef):
    """Base of ops whose results differ between devices; the group sizes behind ``result_types`` are the module's."""

    stated = ("result_types",)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        raise LoweringError(f"{self.name} needs the other devices; it has no meaning on one device alone")


class _Collective(PerDevice):
    """Base of collectives; ``replica_groups`` holds logical device ids where ``use_global_device_ids`` is set."""

    def __init__(self, name: str, *integers: str, dimensions: tuple[str, ...] = (), global_ids: bool = True):
        """The names of the attributes besides the groups; those in ``dimensions`` say which ones data moves along."""
        self.name, self._dimensions = name, dimensions
        integers += dimensions
        self.attributes = {
            **{i: codec.Integer() for i in integers},
            "replica_groups": codec.Matrix(),
            "channel_handle": _OPTIONAL,
            **({"use_global_device_ids": _OPTIONAL} if global_ids else {}),
        }

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        moved = tuple(dict.fromkeys(attrs[d] for d in self._dimensions))
        return _alike(operands, results, moved, "" if self.name in ("all_reduce", "reduce_scatter") else "all")


class _CollectivePermute(PerDevice):
    """Devices that no pair of ``source_target_pairs`` targets get zeros."""

    name = "collective_permute"
    attributes = {"source_target_pairs": codec.Matrix(), "channel_handle": _OPTIONAL}

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        return _alike(operands, results, (), "add")


class _PartitionId(PerDevice):
    """This device's logical id, ``tensor<ui32>``."""

    name = "partition_id"


class _ReplicaId(PerDevice):
    """Always 0: modules here have one replica."""

    name = "replica_id"


def _alike(operands: Types, results: Types, moved: Sequence[int], linear: str) -> FactorRule:
    """Result i is operand i shard by shard, but for the ``moved`` dimensions.

    linear: the monoids whose partial values stay partial: "all" of one operand's type, "add" (zeros, which a permute
    fills gaps with, are its identity), or none.
    """
    def labels(types: Types, side: str) -> list[list[tuple[int, int, str]]]:
        return [[(i, d, side if d in moved else "") for d in range(t.rank)] for i, t in enumerate(types)]

    before, after = labels(operands, "before"), labels(results, "after")
    own, order = dict[tuple[int, int, str], Factor](), []
    for i, (operand, result) in enumerate(zip(operands, results, strict=True)):
        order += [label for label in before[i] if not label[2]]
        for d in moved:  # as Shardy numbers them
            for label, t in ((before[i][d], operand), (after[i][d], result)):
                own[label] = Factor(t.shape[d], REPLICATE)
                order.append(label)
    known = of_dtype(operands[0].dtype) if linear and len(operands) == 1 else ()
    kept = tuple((m, (0,)) for m in known if linear == "all" or m == linear)
    return labelled_rule(operands, results, (*before, *after), own, linear=kept, order=order)


for _definition in (
    _Collective("all_reduce"),
    _Collective("reduce_scatter", dimensions=("scatter_dimension",)),
    _Collective("all_gather", dimensions=("all_gather_dim",)),
    _Collective("all_to_all", "split_count", dimensions=("split_dimension", "concat_dimension"), global_ids=False),
    _CollectivePermute(),
    _PartitionId(),
    _ReplicaId(),
):
    register(_definition)
