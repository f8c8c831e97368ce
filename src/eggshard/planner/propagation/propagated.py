"""Shardy's propagation on programs: the sharding of every value that XLA would choose before communication."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count, takewhile

from eggshard.errors import EggshardError, FallbackWarning, ShardingError
from eggshard.ops.module_text import PRINTED_REGIONS
from eggshard.planner.propagation.convergence import Propagation
from eggshard.planner.propagation.draft import CONSTRAINT, MANUAL, DraftOp, draft_of, within
from eggshard.planner.propagation.flows import with_manual
from eggshard.planner.propagation.preparation import prepare
from eggshard.planner.propagation.program_graph import ProgramGraph
from eggshard.planner.propagation.strategies import aggressive
from eggshard.program.mesh import Mesh
from eggshard.program.program import Program, Region
from eggshard.program.sharding import DimSharding, Sharding, atoms, whole_mesh


@dataclass(frozen=True)
class Propagated:
    """The shardings of a region's values, closed, None where nothing was found; the same of the regions inside it.

    regions: per number of an op (a loop, a branch, a manual computation) those of its regions. interfaces: per number
    of a manual computation what it asks of its operands, and what its results have.
    """

    values: list[Sharding | None]
    regions: dict[int, list[Propagated]] = field(default_factory=dict)
    interfaces: dict[int, tuple[list[Sharding], list[Sharding]]] = field(default_factory=dict)


def propagated(program: Program) -> Propagated:
    """The closed shardings of a program's values, those inside loops, branches and manual computations included.

    Sub-axes that the program's mesh is not refined for are dropped, with the minor axes behind them. When propagation
    fails (EggshardWarning), these are the stated shardings.
    """
    region = program.region
    stated: list[Sharding | None] = [None] * len(region.types)
    ends = ((region.outputs, program.output_shardings), (region.inputs, program.input_shardings))
    for v, sharding in (pair for values, shardings in ends for pair in zip(values, shardings, strict=True)):
        stated[v] = sharding.closed() if sharding else None
    inside = _Inside(program.mesh)
    if program.mesh.axes:
        try:
            inputs = inside.propagate(program)
        except EggshardError as error:
            warnings.warn(f"Shardy's propagation failed, so only stated shardings are used: {error}", FallbackWarning,
                          stacklevel=2)
        else:
            for v, sharding in zip(region.inputs, inputs, strict=True):
                stated[v] = sharding or stated[v]
    return inside.region(region, stated)


class _Inside:
    """What propagation finds, by ops' numbers (each before those of its regions), given back to the values of regions.

    ops: per op the shardings of its results. operands: of what a manual computation asks.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.ops: dict[int, list[Sharding]] = {}
        self.operands: dict[int, list[Sharding]] = {}
        self._numbers = count()

    def propagate(self, program: Program) -> list[Sharding | None]:
        """Find them; the shardings of the program's inputs."""
        mesh, (function, outputs) = whole_mesh(program.mesh), draft_of(program)
        prepare(function)
        graph = ProgramGraph(function, mesh, outputs)
        Propagation(graph).by_priorities([aggressive])
        for op in within(function):
            found = [graph.found(value) for value in op.results]
            if op.key < 0 or graph.is_erased(op) or not any(found):
                continue
            shardings = [s or Sharding.fully_open(v.type.rank) for s, v in zip(found, op.results, strict=True)]
            if op.name == MANUAL:
                self._manual(op, shardings, graph, mesh)
            else:
                self.ops[op.key] = shardings
        inputs = [(graph.found(value), value.type.shape) for value in function.blocks[0].arguments]
        return [None if s is None else without_sub_axes(s.evenly(shape, mesh)).closed() for s, shape in inputs]

    def _manual(self, op: DraftOp, results: list[Sharding], graph: ProgramGraph, mesh: Mesh) -> None:
        """Record the shardings of a manual computation: even at its ends, along free axes alone inside its body."""
        axes = op.attributes["manual_axes"]
        self.ops[op.key] = [s.evenly(v.type.shape, mesh) for s, v in zip(results, op.results, strict=True)]
        asked = []
        for stated, inner in zip(op.ends[0], op.blocks[0].arguments, strict=True):
            free = (graph.found(inner) or Sharding.fully_open(inner.type.rank)).evenly(inner.type.shape, mesh)
            asked.append(with_manual(stated, free, axes))
        self.operands[op.key] = asked

    def region(self, region: Region, known: list[Sharding | None]) -> Propagated:
        """A region whose inputs, and perhaps further values, are known to be sharded."""
        out = [None if s is None else _on_mesh(s, self.mesh) for s in known]
        found = Propagated(out)
        for i, op in enumerate(region.ops):
            number = next(self._numbers)
            stated: tuple[Sharding | None, ...] = op.shardings or (None,) * len(op.results)
            if op.name == CONSTRAINT:
                stated = (op.attributes["sharding"],)
            elif op.name == MANUAL:
                stated = op.attributes["out_shardings"]
            for v, sharding in zip(op.results, self._closed(self.ops.get(number) or stated), strict=True):
                out[v] = sharding or out[v]
            if op.name in PRINTED_REGIONS:
                given: list[Sharding | None]
                match op.name:
                    case "manual_computation":
                        ins = self._closed(self.operands.get(number) or op.attributes["in_shardings"])
                        outs = self._closed(self.ops.get(number) or stated)
                        found.interfaces[i] = [s for s in ins if s], [s for s in outs if s]
                        given = [s and s.without(op.attributes["manual_axes"]) for s in ins]
                    case "while":
                        given = [out[v] for v in op.results]
                    case _:
                        given = [out[v] for v in op.operands[1:]]
                found.regions[i] = [
                    self.region(r, [*given, *[None] * (len(r.types) - len(given))]) for r in op.regions
                ]
        return found

    def _closed(self, shardings: Iterable[Sharding | None]) -> list[Sharding | None]:
        return [None if s is None else _on_mesh(s.closed(), self.mesh) for s in shardings]


@lru_cache(maxsize=65536)
def _on_mesh(sharding: Sharding, mesh: Mesh) -> Sharding:
    """The sharding whose dimensions end before the first axis that cuts an axis of the mesh."""

    def kept(dim: DimSharding) -> DimSharding:
        for i, axis in enumerate(dim.axes):
            try:
                atoms([axis], mesh)
            except ShardingError:
                return DimSharding(dim.axes[:i])
        return dim

    return replace(sharding, dims=tuple(map(kept, sharding.dims)), replicated=())


def without_sub_axes(sharding: Sharding) -> Sharding:
    """Truncate the axes of every open dimension before its first sub-axis."""
    return replace(sharding, dims=tuple(
        replace(dim, axes=tuple(takewhile(lambda axis: not axis.size, dim.axes))) if dim.open else dim
        for dim in sharding.dims))
