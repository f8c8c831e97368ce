"""The choice of the mesh itself: of how many axes, of which sizes, and in which order on the hardware.

The last axis of a mesh is the one on the fastest links: a cost model numbers its devices in row-major order. So ordered
factorisations of the number of devices are all meshes. Each is looked at in a hurry, without rewrites; the best few are
then planned, and on these shardings are chosen once more, with rewrites, the best first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

from eggshard.errors import MeshError
from eggshard.limits import Deadline, Limits
from eggshard.memory.prediction import fits
from eggshard.ops.widening import evaluation_bytes
from eggshard.planner.choosing.choice import Choice, Chooser, planned_at, with_open_inputs, with_plan
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

    cost: seconds of the plan by which its shardings were chosen; None where they were not. planned: seconds of its
    plan, None where none was made. took: seconds of the search. why: why it was not searched.
    """

    mesh: Mesh
    cost: float | None = None
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
    search.improve(meshes)
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
        """Look at the meshes without rewrites and windows, then with windows where ops look at neighbours and are not
        many; each time at those of three axes last."""
        end = Deadline(SCREENING * self.limits.seconds)
        self._look(sorted(meshes, key=lambda m: (_slow(m), max(m.axes.values()))), 0, end)
        region = self.on(meshes[0]).region
        if _looks_at_neighbours(region) and len(region.ops) <= MANY_OPS:
            self._look(sorted(self._best(), key=_slow), self.limits.windows, end)

    def _look(self, meshes: list[Mesh], windows: int, end: Deadline) -> None:
        """Choose on these meshes in a hurry; until then, but on one in any case."""
        limits = replace(self.limits, patience=0.0, windows=windows)
        for mesh in meshes:
            if self.found and end.passed:
                self.tried.setdefault(mesh, Tried(mesh, why="time was up"))
                continue
            began, row = time.monotonic(), self.tried.get(mesh)
            asked = replace(self.request, loaded=self.on(mesh), limits=self._within(limits), rewrites=[])
            # Without rewrites, what is known is of another e-graph.
            choice = replace(Chooser(asked, self.carried).cheapest, known=Known())
            if row is None or self._order(mesh, choice) < self._order(mesh, self.found[mesh]):
                self.found[mesh] = choice
            took = time.monotonic() - began + (row.took if row else 0.0)
            self.tried[mesh] = Tried(mesh, self.found[mesh].cost, None, took)

    def plan(self) -> None:
        """Plan on the meshes that seem best, where these are several: choices are made at prices that are not yet those
        of all-reduces that share a launch, and without rewrites. Of meshes on which choices cost the same, finer ones
        mostly, one is planned on."""
        best, first = self._best(), dict[str, Mesh]()
        for mesh in best:
            first.setdefault(f"{self.found[mesh].cost:.9g}", mesh)
        few = [m for m in list(first.values())[:FEW] if self._fit(m) == self._fit(best[0]) and
               self.found[m].cost <= MOST * self.found[best[0]].cost]
        for mesh in few if len(few) > 1 else []:
            if self.deadline.passed:
                return
            began = time.monotonic()
            self.found[mesh] = self._planned(mesh, self.found[mesh])
            self._count(mesh, began)

    def improve(self, meshes: list[Mesh]) -> None:
        """Choose once more, with rewrites, which other shardings may profit from: on the mesh that is the best, and on
        others that were planned while time suffices."""
        costs, best = self._costs, self._chosen(meshes)
        others = [m for m in sorted(costs, key=costs.__getitem__) if m != best and self.found[m].known.plan is not None]
        for mesh in (best, *others):
            if self.deadline.passed:
                return
            began = time.monotonic()
            before = self._planned(mesh, self.found[mesh])
            asked = replace(self.request, loaded=self.on(mesh), limits=self._within(self.limits))
            after = self._planned(mesh, Chooser(asked, self.carried).cheapest)
            self.found[mesh] = min(before, after, key=partial(self._order, mesh))
            self._count(mesh, began)

    def result(self, meshes: list[Mesh]) -> tuple[Tried, ...]:
        """All meshes, the best first."""
        chosen, costs = self._chosen(meshes), self._costs
        rest = sorted((m for m in self._best() if m != chosen), key=lambda m: costs.get(m, math.inf))
        order = [chosen, *rest, *(m for m in meshes if m not in self.found)]
        return tuple(self.tried[m] for m in order)

    def _chosen(self, meshes: list[Mesh]) -> Mesh:
        """The mesh of the cheapest plan, or choice where none is planned; of two as good that of fewer axes."""
        costs = self._costs
        least = min(costs.values())
        return min((m for m, cost in costs.items() if cost <= least * (1 + WORTH)), key=meshes.index)

    @property
    def _costs(self) -> dict[Mesh, float]:
        """Seconds of the plans that were made; of choices that fit best where none was."""
        planned = {m: _planned_cost(choice) for m, choice in self.found.items() if choice.known.plan is not None}
        best = self._best()
        return planned or {m: self.found[m].cost for m in best if self._fit(m) == self._fit(best[0])}

    def _planned(self, mesh: Mesh, choice: Choice) -> Choice:
        """A choice with the plan that is made at it."""
        if choice.known.plan is not None:
            return choice
        asked = replace(self.request, limits=self._within(self.limits))
        return with_plan(choice, planned_at(asked, self.on(mesh), choice))

    def _count(self, mesh: Mesh, began: float) -> None:
        """Note what the plan on a mesh costs, and the time that it took."""
        row, spent = self.tried[mesh], time.monotonic() - began
        self.tried[mesh] = row._replace(planned=_planned_cost(self.found[mesh]), took=row.took + spent)

    def _within(self, limits: Limits) -> Limits:
        return replace(limits, seconds=self.deadline.left)

    def _fit(self, mesh: Mesh) -> bool:
        """Whether what was chosen on a mesh is within the limit of memory."""
        return not self._order(mesh, self.found[mesh])[0]

    def _order(self, mesh: Mesh, choice: Choice) -> tuple[bool, float, float]:
        """By which choices on a mesh are the better: those within the limit of memory, then the cheaper plans."""
        above = self.memory_limit is not None and choice.held(self.on(mesh)) > self.memory_limit
        return above, _planned_cost(choice), choice.cost

    def _best(self) -> list[Mesh]:
        return sorted(self.found, key=lambda m: (not self._fit(m), self.found[m].cost, len(m.axes)))


def _slow(mesh: Mesh) -> bool:
    """Whether a choice on a mesh takes long: placements are many on three axes."""
    return len(mesh.axes) > 2


def _planned_cost(choice: Choice) -> float:
    """Seconds of a choice's plan, infinite where none was made."""
    return choice.known.plan.cost.total if choice.known.plan is not None else math.inf


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
