"""Planning programs of many equal layers by their short form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from eggshard.egraph.graph import EGraph
from eggshard.extract.encode import ConversionTable, Encoding
from eggshard.extract.problem import Extraction, Problem
from eggshard.extract.verify import complete
from eggshard.layers.lifting import Lift, Lifted, copies_of, weighted
from eggshard.layers.shortening import KEPT, Short
from eggshard.placement.placement import Placement
from eggshard.placement.sharding import Sharding
from eggshard.program.ops import registry
from eggshard.program.program import Region

#: Programs of fewer ops are planned whole.
MANY_OPS = 400
#: Plans whose costs differ by less, relative to them, count as equal.
EQUAL = 1e-9


def looks_across_shards(region: Region, shardings: Sequence[Sharding | None]) -> bool:
    """Whether some op looks at neighbours along a dimension of an operand that is sharded."""
    for op in region.ops:
        if not registry.known(op.name) or op.regions:
            continue
        operands, results = (tuple([region.types[v] for v in values]) for values in (op.operands, op.results))
        reaches = registry.get(op.name).reaches(op.attributes, operands, results) or ()
        for v, row in zip(op.operands, reaches, strict=False):
            sharding = shardings[v]
            if sharding is not None and any(
                r is not None and d.axes for r, d in zip(row, sharding.dims, strict=True)
            ):
                return True
    return False


def handed(short: Short, graph: EGraph) -> dict[int, int]:
    """Per further input of the short program's region the class that it stands for."""
    first = len(short.program.region.inputs)
    return {first + k: graph.values[short.cut_value(v)] for k, v in enumerate(short.taken)}


class LayeredPlan(NamedTuple):
    """The whole program's plan, what was extracted of the short one, and what the short one's plan costs."""

    lifted: Lifted
    extraction: Extraction
    cost: float


def extract_layers(
    short: Short, graph: EGraph, encoding: Encoding, tables: ConversionTable,
    roots: Sequence[tuple[int, Sequence[Placement]]], extract: Callable[[Problem], Extraction],
) -> LayeredPlan | None:
    """The cheapest plan of the whole program among those whose layers follow the copies."""
    copies = copies_of(short, graph)
    found = extract(weighted(encoding.problem, copies, encoding.views.group, short.weight))
    lift = Lift(short, graph, encoding, copies, tables, roots)
    best: Lifted | None = None
    for follows in _patterns(short.repeats):
        lifted = lift.lift(found.selection, follows)
        if lifted is None:
            return None
        if best is not None and math.isclose(lifted.selection.cost, best.selection.cost, rel_tol=EQUAL):
            break  # the copies do the same
        if best is None or lifted.selection.cost < best.selection.cost:
            best = lifted
    plan = complete(encoding.problem, found.selection.chosen)
    return None if best is None or plan is None else LayeredPlan(best, found, plan.cost)


def _patterns(repeats: int) -> Iterator[list[int]]:
    """Which copy each layer follows: all one of them, by turns, or each as near as it is to either end."""
    for copy in range(KEPT):
        yield [copy] * repeats
    yield [j % KEPT for j in range(repeats)]
    yield [0] * (repeats // 2) + [KEPT - 1] * (repeats - repeats // 2)
