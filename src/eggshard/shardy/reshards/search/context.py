"""The context of planning a module's ops: one mesh, prices, routes, and shardings as placements."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.protocol import CostModel
from eggshard.errors import ProgramError
from eggshard.frontends.stablehlo.module_reader import ModuleReader
from eggshard.limits import Deadline, Limits
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, place, replicated
from eggshard.program.sharding import Sharding, atoms, gather_cuts
from eggshard.program.tensor_sharding import TensorSharding
from eggshard.program.types import TensorType
from eggshard.reshard.routes import Router
from eggshard.reshard.submesh import SubmeshRouter, without_axes
from eggshard.shardy.module import ShardyModule
from eggshard.shardy.reshards.search.conversions import StatedConversions, parts_of
from eggshard.shardy.rewriting import stated_shardings

#: Routes over the parts of axes are looked for on meshes of no more parts than these.
MOST_PARTS = 5
#: On meshes of more axes than these, those that no sharding names are left out of placements: there are too many.
MANY_AXES = 4


class Context:
    """The mesh of a module, refined at its sub-axes, and what its placements cost.

    deadline: when the search for reshards ends; work bounds it before. free: the axes that placements may name, all but
    those of the manual computations around. Conversions are those that Shardy has collectives for, which excludes
    point-to-point redistribution.

    ProgramError for a module whose tensors are on different meshes, or on single devices.
    """

    def __init__(self, module: ShardyModule, model: CostModel, limits: Limits):
        self.module, self.limits, self.deadline = module, limits, Deadline(limits.seconds)
        self.reader = ModuleReader(module.module)
        stated = [sharding for _, sharding in stated_shardings(module)]
        self.mesh_name = _only_mesh(module, stated)
        whole = module.mesh(stated[0]) if stated else Mesh({})
        self.mesh = whole.refined(gather_cuts((s.sharding for s in stated), whole))
        self.free = self.mesh
        if len(self.mesh.axes) > MANY_AXES:
            named = {a for s in stated for a in atoms(s.sharding.axes, self.mesh)}
            self.free = without_axes(self.mesh, tuple(a for a in self.mesh.axes if a not in named))
        self.pricer = Pricer(model, self.mesh)
        parts = parts_of(self.mesh)
        finer = None
        if parts != self.mesh and len(parts.axes) <= MOST_PARTS:
            finer = Router(parts, Pricer(model, parts), max_rounds=0, pairwise=True)
        router = Router(self.mesh, self.pricer, max_rounds=0, pairwise=True)
        self.conversions = StatedConversions(router, self.pricer, finer)
        self.orders = self._orders(stated)
        #: Sizes and axes of the dimensions that are stated to be cut unevenly: only those are.
        self.uneven = self._uneven()
        #: The offers of ops with blocks of their own: found once, whatever the block around them is planned for.
        self.nested: dict[Any, Any] = {}
        #: Whether calls of functions have effects, by name.
        self.effects: dict[str, bool] = {}
        self._within: dict[tuple[str, ...], Context] = {}

    def within(self, axes: Sequence[str]) -> Context:
        """Return the context for planning inside a computation that is manual over these axes."""
        key = tuple(axes)
        if key not in self._within:
            inner = copy.copy(self)
            inner.free = without_axes(self.free, key)
            router = SubmeshRouter(self.mesh, inner.free, self.pricer, max_rounds=0, pairwise=True)
            inner.conversions = StatedConversions(router, self.pricer)
            inner._within, inner.nested = {}, {}
            self._within[key] = inner
        return self._within[key]

    def type(self, value: Any) -> TensorType:
        """A value's type; ProgramError for dynamic shapes, and for what is neither a tensor nor a token."""
        return self.reader.type(value.type, "a value")

    def placement(self, sharding: TensorSharding | None, type_: TensorType) -> Placement:
        """The placement that a sharding means; replicated where there is none."""
        if sharding is None or not sharding.sharding.dims:
            partial = () if sharding is None else sharding.sharding.unreduced
            return self._partial_sums(replicated(type_.shape), sharding) if partial else replicated(type_.shape)
        return sharding.sharding.to_placement(self.mesh, type_)

    def _partial_sums(self, placement: Placement, sharding: TensorSharding | None) -> Placement:
        assert sharding is not None
        return sharding.sharding.to_placement(self.mesh, TensorType((), "f32"))._replace(dims=placement.dims)

    def sharding(self, placement: Placement, unreduced: Iterable[str] = ()) -> TensorSharding:
        """The closed sharding that means the dimensions of a placement, unreduced along these axes."""
        shown = Placement(placement.dims, tuple(unreduced), "add" if unreduced else "")
        return TensorSharding(self.mesh_name, Sharding.from_placement(shown, self.mesh))

    def allows(self, type_: TensorType, placement: Placement) -> bool:
        """Whether every dimension is cut evenly, or as some stated sharding cuts one of that size."""
        return all(
            n % self.mesh.count(d.axes) == 0 or (n, d.axes) in self.uneven
            for n, d in zip(type_.shape, placement.dims, strict=True) if d.axes
        )

    def placed(self, type_: TensorType, axes: Sequence[tuple[str, ...]]) -> Placement:
        """The placement of these axes per dimension."""
        return place(self.mesh, type_.shape, tuple(axes))

    def anywhere(self, type_: TensorType) -> list[Placement]:
        """All placements that cut every dimension evenly by axes in mesh order."""
        axes = [a for a, n in self.free.axes.items() if n > 1]
        found = []
        for where in itertools.product(range(-1, type_.rank), repeat=len(axes)):
            dims = [tuple(a for a, d in zip(axes, where, strict=True) if d == i) for i in range(type_.rank)]
            if all(n % self.mesh.count(d) == 0 and (n or not d) for n, d in zip(type_.shape, dims, strict=True)):
                found.append(self.placed(type_, dims))
        return found[: self.limits.placements]

    def _orders(self, stated: Sequence[TensorSharding]) -> frozenset[tuple[str, ...]]:
        """Orders of axes besides the mesh's: those that are stated, and any two where dimensions may be merged."""
        listed = (dim.axes for s in stated for dim in s.sharding.dims)
        found = {atoms(axes, self.mesh) for axes in listed if len(axes) > 1}
        if self.module.walk("stablehlo.reshape"):
            found.update(itertools.permutations([a for a, n in self.mesh.axes.items() if n > 1], 2))
        return frozenset(found)

    def _uneven(self) -> frozenset[tuple[int, tuple[str, ...]]]:
        found = set()
        for type_, sharding in stated_shardings(self.module):
            shape = tuple(type_.shape) if hasattr(type_, "shape") else ()
            for n, dim in zip(shape, sharding.sharding.dims, strict=False):
                axes = atoms(dim.axes, self.mesh)
                for end in range(1, len(axes) + 1):
                    if n % self.mesh.count(axes[:end]):
                        found.add((n, axes[:end]))
        return frozenset(found)


def _only_mesh(module: ShardyModule, stated: Sequence[TensorSharding]) -> str | Mesh:
    meshes = {module.mesh(s) for s in dict.fromkeys(stated)}
    if any(map(module.on_one_device, dict.fromkeys(stated))):
        raise ProgramError("some tensor lies on a single device, which the search knows no conversions for")
    if len(meshes) > 1:
        shown = " and ".join(sorted(map(str, meshes)))
        raise ProgramError(f"tensors lie on different meshes, {shown}, between which the search knows no conversions")
    return stated[0].mesh if stated else ""
