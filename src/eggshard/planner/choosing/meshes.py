"""The choice of the mesh itself: of how many axes, of which sizes, and in which order on the hardware.

The last axis of a mesh is the one on the fastest links: a cost model numbers its devices in row-major order. So ordered
factorisations of the number of devices are all meshes. Each is looked at in a hurry, without rewrites; the best few are
then planned.

A mesh whose adjacent axes are joined is *coarser*: what lies evenly on it lies so on the finer one, on the same
devices, and costs as much there under models that price groups by their devices, as machines do. So bounds of a mesh
hold for coarser ones.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from eggshard.errors import MeshError
from eggshard.limits import Deadline, Limits
from eggshard.memory.prediction import fits
from eggshard.ops.widening import evaluation_bytes
from eggshard.planner.choosing.choice import CAPPED, Choice, Chooser, planned_at, with_open_inputs
from eggshard.planner.choosing.known import Known
from eggshard.planner.layers.planning import MANY_OPS
from eggshard.planner.request import Request
from eggshard.planner.rows import looks_at_neighbours
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program, Region

#: The axes of a mesh that is chosen, as many as it has.
NAMES = ("x", "y", "z")
#: The part of the time in which all meshes are looked at in a hurry; how many are then planned, and how much more these
#: may seem to cost than the best of them does; what more axes have to be worth (`python -m bench auto`).
SCREENING, FEW, MOST, WORTH = 0.7, 4, 1.1, 1e-3


class Tried(NamedTuple):
    """A mesh that was looked at.

    cost: seconds of the plan by which its shardings were chosen; None where they were not. bound: seconds that no plan
    on it undercuts of the program as it is written (`Choice`), 0 where none is known. planned: seconds of its plan,
    None where none was made. took: seconds of the search. why: why it was not searched.
    """

    mesh: Mesh
    cost: float | None = None
    bound: float = 0.0
    planned: float | None = None
    took: float = 0.0
    why: str = ""


class MeshChoice(NamedTuple):
    """The meshes that were looked at, the best first, and the shardings that were chosen on this one."""

    meshes: tuple[Tried, ...]
    choice: Choice


def candidates(devices: int) -> list[Mesh]:
    """The meshes of so many devices, of fewer axes before others; MeshError for no number of devices."""
    if not isinstance(devices, int) or isinstance(devices, bool) or devices < 1:
        raise MeshError(f"devices={devices!r}: give a number of devices, at least 1, on which a mesh is to be chosen")
    return [Mesh(zip(NAMES, sizes, strict=False)) for parts in range(1, len(NAMES) + 1)
            for sizes in _factorings(devices, parts)]


def _factorings(n: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (n,)
        return
    for d in range(2, n // 2 + 1):
        if n % d == 0:
            yield from ((d, *rest) for rest in _factorings(n // d, parts - 1))


def is_finer(mesh: Mesh, other: Mesh) -> bool:
    """Whether joining adjacent axes of a mesh gives the other one, on the same devices."""
    return mesh != other and _ends(other) <= _ends(mesh)


def _ends(mesh: Mesh) -> set[int]:
    """How many devices the first axes have together, for each number of axes."""
    sizes = list(mesh.axes.values())
    return {math.prod(sizes[:k]) for k in range(1, len(sizes) + 1)}


def choose_mesh(
    request: Request, on: Callable[[Mesh], Program], devices: int, carried: Mapping[int, int],
    memory_limit: float | None = None,
) -> MeshChoice:
    """Choose the mesh of a request, and where the open ends of its program lie there.

    on: the program on a mesh. memory_limit: bytes per device, as of `Chooser.within`; meshes are told apart by what
    inputs and outputs hold. It all takes the seconds of the request's limits at most, but for the mesh that is under
    way at the end, and for a search within the limit. LimitError where that finds none, MeshError for no number of
    devices.
    """
    meshes, limit = candidates(devices), memory_limit or getattr(request.cost_model, "capacity", None)
    search = _Search(request, on, carried, limit)
    search.screen(meshes)
    search.plan()
    rows = search.result(meshes)
    program, choice = on(rows[0].mesh), search.found[rows[0].mesh]
    if limit is not None and evaluation_bytes(program.region) > limit:  # not all values at once, and whole
        if not fits(planned_at(request, program, choice), int(limit)):
            choice = Chooser(replace(request, loaded=program), carried).within(limit)
    return MeshChoice(rows, choice)


class _Search:
    """The choices on the meshes of one request. found: per mesh the best choice; tried: what is told of it."""

    def __init__(self, request: Request, on: Callable[[Mesh], Program], carried: Mapping[int, int],
                 memory_limit: float | None):
        self.request, self.carried, self.memory_limit = request, carried, memory_limit
        self.on = cache(on)
        self.limits = request.limits
        self.deadline = Deadline(self.limits.seconds)
        self.found: dict[Mesh, Choice] = {}
        self.tried: dict[Mesh, Tried] = {}

    def screen(self, meshes: list[Mesh]) -> None:
        """Look at the meshes without rewrites, and without windows where nothing looks at neighbours or ops are many.

        The finest come first, whose bounds leave out others. Of a program of many ops bounds are seldom known, and time
        may not suffice for all: there those come first that are the most even of their number of axes, a line last.
        """
        end = Deadline(SCREENING * self.limits.seconds)
        region = self.on(meshes[0]).region
        many = len(region.ops) > MANY_OPS
        order = _evenness(meshes) if many else {m: -len(m.axes) for m in meshes}
        windows = self.limits.windows if _looks_at_neighbours(region) and not many else 0
        limits = replace(self.limits, patience=0.0, windows=windows)
        for mesh in sorted(meshes, key=order.__getitem__):
            finer = self._bounding(mesh)
            if finer is not None:
                bound = self.tried[finer].bound
                self.tried[mesh] = Tried(mesh, bound=bound, why=f"no better than {shape(finer)}")
            elif self.found and end.passed:
                self.tried[mesh] = Tried(mesh, why="time was up")
            else:
                began = time.monotonic()
                asked = replace(self.request, loaded=self.on(mesh), limits=self._within(limits), rewrites=[])
                # Without rewrites, what is known is of another e-graph.
                choice = self.found[mesh] = replace(Chooser(asked, self.carried).cheapest, known=Known())
                self.tried[mesh] = Tried(mesh, choice.cost, choice.bound, None, time.monotonic() - began)

    def plan(self) -> None:
        """Plan on the meshes that seem best, where these are several: choices are made at prices that are not yet those
        of all-reduces that share a launch, and without rewrites."""
        best = self._best()
        few = [m for m in best[:FEW] if self._fit(m) == self._fit(best[0]) and
               self.found[m].cost <= MOST * self.found[best[0]].cost]
        for mesh in few if len(few) > 1 else []:
            if self.deadline.passed:
                return
            began, asked = time.monotonic(), replace(self.request, limits=self._within(self.limits))
            planned = planned_at(asked, self.on(mesh), self.found[mesh]).cost.total
            known = self.tried[mesh]
            self.tried[mesh] = known._replace(planned=planned, took=known.took + time.monotonic() - began)

    def result(self, meshes: list[Mesh]) -> tuple[Tried, ...]:
        """All meshes, the best first: of those that are planned where some are, and of two as good that of fewer axes.
        """
        costs = {m: row.planned for m, row in self.tried.items() if row.planned is not None}
        best = self._best()
        if not costs:
            costs = {m: self.found[m].cost for m in best if self._fit(m) == self._fit(best[0])}
        least = min(costs.values())
        chosen = min((m for m, cost in costs.items() if cost <= least * (1 + WORTH)), key=meshes.index)
        rest = sorted((m for m in best if m != chosen), key=lambda m: costs.get(m, math.inf))
        order = [chosen, *rest, *(m for m in meshes if m not in self.found)]
        return tuple(self.tried[m] for m in order)

    def _within(self, limits: Limits) -> Limits:
        return replace(limits, seconds=self.deadline.left)

    def _fit(self, mesh: Mesh) -> bool:
        """Whether what was chosen on a mesh is within the limit of memory."""
        return self.memory_limit is None or self.found[mesh].held(self.on(mesh)) <= self.memory_limit

    def _best(self) -> list[Mesh]:
        return sorted(self.found, key=lambda m: (not self._fit(m), self.found[m].cost, len(m.axes)))

    def _bounding(self, mesh: Mesh) -> Mesh | None:
        """A finer mesh on which every plan is so much dearer than the best one known that it is not to be planned."""
        least = min((choice.cost for m, choice in self.found.items() if self._fit(m)), default=math.inf)
        capped = CAPPED.format(self.limits.placements)
        return next((m for m, choice in self.found.items() if is_finer(m, mesh) and choice.bound >= MOST * least
                     and capped not in choice.left_out), None)


def _evenness(meshes: Sequence[Mesh]) -> dict[Mesh, int]:
    """How many meshes of as many axes are more even, whose longest axis is shorter; of a line, that of all meshes."""
    even, before = sorted(meshes, key=lambda m: max(m.axes.values())), Counter[int]()
    found = {}
    for mesh in even:
        found[mesh] = before[len(mesh.axes)] if len(mesh.axes) > 1 else len(meshes)
        before[len(mesh.axes)] += 1
    return found


def _looks_at_neighbours(region: Region) -> bool:
    """Whether an op of a region, or of a loop or branch in it, does."""
    return looks_at_neighbours(region) or any(_looks_at_neighbours(r) for op in region.ops for r in op.regions)


def shape(mesh: Mesh) -> str:
    """The sizes of a mesh's axes, as text."""
    return " x ".join(map(str, mesh.axes.values()))


def stated_on_mesh(
    request: Request, shardings: Any, devices: int, carry: Mapping[int, int] | None, memory_limit: float | None = None
) -> Program:
    """The program on the mesh that is chosen for it, its open ends stated (`choice.chooser_of`); MeshError where it
    states a mesh."""
    program = request.read()
    if program.mesh.size > 1:
        raise MeshError(f"the program states a mesh {program.mesh.axes}, so that none can be chosen: leave mesh out")
    carried = {o: i for i, o in (carry or {}).items()}

    def on(mesh: Mesh) -> Program:
        return with_open_inputs(replace(program, mesh=mesh), shardings)

    meshes, choice = choose_mesh(request, on, devices, carried, memory_limit)
    return choice.stated(on(meshes[0].mesh))
