"""Explicit per-device ops as physical steps: collectives over replica groups, and the device's number.

Inside a manual computation that leaves some axes free, these must act alike at every position along the free axes: a
value's shards along those axes then pass through a collective one by one, as the whole value would.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops.reductions.monoids import recognise_monoid
from eggshard.program import monoids
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.program import Region
from eggshard.program.types import TensorType
from eggshard.steps.assemble import Assembler
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective
from eggshard.steps.steps import (
    Action,
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    Local,
    ReduceScatter,
    StepPlan,
)

Types = tuple[TensorType, ...]
Groups = tuple[tuple[int, ...], ...]


def authored_program(mesh: Mesh, free: Mesh, name: str, attributes: Attributes, regions: tuple[Region, ...],
                     operands: Types, results: Types) -> StepPlan:
    """The steps of one such op on all devices of a mesh, on local operands and results.

    free: the mesh of the axes that are left to the compiler. ProgramError where the op does not act alike along them.
    """
    return _Writer(mesh, free, name, attributes, regions, results).program(operands)


class _Writer:
    def __init__(self, mesh: Mesh, free: Mesh, name: str, attributes: Attributes, regions: tuple[Region, ...],
                 results: Types):
        self.mesh, self.free, self.name, self.attributes = mesh, free, name, attributes
        self.regions, self.results = regions, results
        self.assembler = Assembler(mesh)

    def program(self, operands: Types) -> StepPlan:
        given = tuple(self.assembler.input(t) for t in operands)
        return self.assembler.build(self._values(given))

    def _emit(self, action: Action, operands: tuple[int, ...]) -> tuple[int, ...]:
        return self.assembler.emit(action, operands, ("manual",))

    def _values(self, operands: tuple[int, ...]) -> tuple[int, ...]:
        match self.name:
            case "partition_id":
                if self.free.size > 1:
                    raise ProgramError(
                        f"a device's number differs along axes {_listed(self.free)}, which are left to the compiler; "
                        "ask for it in a computation that is manual over all axes, as lax.axis_index does"
                    )
                return self._emit(DeviceNumber(tuple(range(self.mesh.size)), authored=True), ())
            case "replica_id":
                zero = Attributes(value=Literal(np.zeros((), np.uint32)))
                return self._emit(Local("constant", zero, (TensorType((), "ui32"),)), ())
            case "collective_permute":
                pairs = self.attributes["source_target_pairs"]
                _require_alike(self.mesh, self.free, pairs)
                return self._emit(CollectivePermute(pairs, self._crossed(pairs)), operands)
        return self._collective(operands)

    def _collective(self, operands: tuple[int, ...]) -> tuple[int, ...]:
        """As a step along mesh axes where its groups are that, one operand at a time; else as it is written."""
        attributes, types = self.attributes, self.assembler.types
        names_devices = self.name == "all_to_all" or bool(attributes.get("use_global_device_ids"))
        groups = attributes["replica_groups"]
        if self.free.size > 1:
            if not names_devices:
                raise ProgramError("its groups are of replicas, which no axes are left to the compiler in")
            _require_alike(self.mesh, self.free, groups)
        axes = axes_of_groups(self.mesh, groups) if names_devices else None
        monoid = recognise_monoid(self.regions[0]) if self.regions else ""
        defined = all(not self.regions or monoid in monoids.of_dtype(types[v].dtype) for v in operands)
        if axes is None or monoid is None or not defined:
            return self._emit(GroupCollective(self.name, attributes, self.results, self.regions), operands)
        if not axes:
            return operands
        out: list[int] = []
        for value in operands:
            match self.name:
                case "all_reduce":
                    out += self._emit(AllReduce(axes, monoid), (value,))
                case "reduce_scatter":
                    out += self._emit(ReduceScatter(((attributes["scatter_dimension"], axes),), monoid), (value,))
                case "all_gather":
                    out += self._emit(AllGather(((attributes["all_gather_dim"], axes),)), (value,))
                case _:
                    out.append(self._all_to_all(value, axes))
        return tuple(out)

    def _all_to_all(self, value: int, axes: tuple[str, ...]) -> int:
        """Blocks of one dimension go to the group's members, and are concatenated along another one."""
        split, concat = self.attributes["split_dimension"], self.attributes["concat_dimension"]
        if split != concat:
            return self._emit(AllToAll(((concat, axes),), ((split, axes),)), (value,))[0]
        # Within one dimension: its blocks are a dimension that splits, received blocks one that grows.
        type_, count = self.assembler.types[value], self.mesh.count(axes)
        shape = type_.shape
        apart = (*shape[:split], count, 1, shape[split] // count, *shape[split + 1 :])
        value = self.assembler.reshape(value, apart, ("manual",))
        (value,) = self._emit(AllToAll(((split + 1, axes),), ((split, axes),)), (value,))
        return self.assembler.reshape(value, shape, ("manual",))

    def _crossed(self, pairs: Groups) -> tuple[str, ...]:
        """The axes along which some sender and receiver differ."""
        if not pairs:
            return ()
        senders, receivers = np.array(pairs).T
        where = self.mesh.coordinates
        return tuple(a for a in self.mesh.axes if (where[a][senders] != where[a][receivers]).any())


def _listed(mesh: Mesh) -> str:
    return "{" + ", ".join(a for a, n in mesh.axes.items() if n > 1) + "}"


def _require_alike(mesh: Mesh, free: Mesh, groups: Groups) -> None:
    """ProgramError unless groups (or pairs) keep within one position along the free axes, and are the same at all."""
    if free.size == 1:
        return
    along = mesh.index(free.axes)
    across = mesh.index(a for a in mesh.axes if a not in free.axes)
    found: list[list[tuple[int, ...]]] = [[] for _ in range(free.size)]
    for group in groups:
        devices = [d for d in group if d >= 0]
        if not devices:
            continue
        if len({int(along[d]) for d in devices}) > 1:
            raise ProgramError(
                f"its group {tuple(devices)} crosses axes {_listed(free)}, which are left to the compiler; "
                "communicate along manual axes only, or make these manual too"
            )
        found[along[devices[0]]].append(tuple(int(across[d]) for d in devices))
    if any(sorted(part) != sorted(found[0]) for part in found):
        raise ProgramError(
            f"its groups differ from place to place along axes {_listed(free)}, which are left to the compiler; "
            "make these manual too"
        )


@lru_cache(maxsize=1024)
def axes_of_groups(mesh: Mesh, groups: Groups) -> tuple[str, ...] | None:
    """The axes (first major, without those of size 1) whose `Mesh.groups` are these, in any order of groups."""
    wanted = sorted(groups)
    names = [a for a, n in mesh.axes.items() if n > 1]
    size = len(groups[0]) if groups else 0
    for count in range(len(names) + 1):
        for subset in itertools.combinations(names, count):
            if mesh.count(subset) != size:
                continue
            for axes in itertools.permutations(subset):
                if sorted(tuple(int(d) for d in row) for row in mesh.groups(axes)) == wanted:
                    return axes
    return None
