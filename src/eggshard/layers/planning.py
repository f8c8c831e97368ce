"""Planning programs of many equal layers by their short form."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from eggshard.egraph.graph import EGraph
from eggshard.extract.encode import ConversionTable, Encoding
from eggshard.extract.problem import Extraction, Problem
from eggshard.layers.lifting import Lift, Lifted, copies_of
from eggshard.layers.ring import Ring
from eggshard.layers.shortening import KEPT, Short
from eggshard.placement.placement import Placement
from eggshard.placement.sharding import Sharding
from eggshard.program.ops import registry
from eggshard.program.program import Region

#: Programs of fewer ops are planned whole.
MANY_OPS = 400
#: The bound is raised to this gap.
CLOSE = 1e-2
#: Plans whose costs differ by less, relative to them, count as equal.
EQUAL = 1e-9


#: An operand that an op reaches around along some dimensions: the value, and whether it does, per dimension.
Reaching = tuple[int, tuple[bool, ...]]


def reaching(region: Region) -> list[Reaching]:
    """The operands whose neighbours some op looks at."""
    found = []
    for op in region.ops:
        if not registry.known(op.name) or op.regions:
            continue
        operands, results = (tuple([region.types[v] for v in values]) for values in (op.operands, op.results))
        reaches = registry.get(op.name).reaches(op.attributes, operands, results) or ()
        for v, row in zip(op.operands, reaches, strict=False):
            if any(r is not None for r in row):
                found.append((v, tuple([r is not None for r in row])))
    return found


def look_across_shards(found: Sequence[Reaching], shardings: Sequence[Sharding | None]) -> bool:
    """Whether one of the dimensions that ops reach along is sharded."""
    for v, row in found:
        sharding = shardings[v]
        if sharding is not None and any(r and d.axes for r, d in zip(row, sharding.dims, strict=True)):
            return True
    return False


def handed(short: Short, graph: EGraph) -> dict[int, int]:
    """Per further input of the short program's region the class that it stands for."""
    first = len(short.program.region.inputs)
    return {first + k: graph.values[short.cut_value(v)] for k, v in enumerate(short.taken)}


class LayeredPlan(NamedTuple):
    """The whole program's plan, what was extracted of the short one, and the bound of plans of the whole program that
    compute nothing twice, by the same terms in every layer.
    """

    lifted: Lifted
    extraction: Extraction
    terms: float


def extract_layers(
    short: Short, graph: EGraph, encoding: Encoding, tables: ConversionTable,
    roots: Sequence[tuple[int, Sequence[Placement]]], extract: Callable[[Problem], Extraction], deadline: float,
) -> LayeredPlan | None:
    """The cheapest plan of the whole program among those whose layers follow the copies.

    deadline: of `time.monotonic`; until then the bound is raised.
    """
    copies = copies_of(short, graph)
    found = extract(encoding.problem)
    lift = Lift(short, graph, encoding, copies, tables, roots)
    prices: list[float] = []
    patterns: list[list[int]] = []
    for follows in _patterns(short.repeats):
        price = lift.price(found.selection, follows)
        if price is None:
            return None
        if prices and math.isclose(price, prices[0], rel_tol=EQUAL):
            break  # the copies do the same
        prices.append(price)
        patterns.append(follows)
    best = lift.lift(found.selection, patterns[prices.index(min(prices))])
    if best is None:
        return None
    copy = min(range(min(KEPT, len(prices))), key=prices.__getitem__)
    bound = 0.0
    if time.monotonic() < deadline:
        bound = Ring(lift, copy).bound(found.selection, best.selection.cost, CLOSE, deadline)
    return LayeredPlan(best, found, bound)


def _patterns(repeats: int) -> Iterator[list[int]]:
    """Which copy each layer follows: all one of them, by turns, or each as near as it is to either end."""
    for copy in range(KEPT):
        yield [copy] * repeats
    yield [j % KEPT for j in range(repeats)]
    yield [0] * (repeats // 2) + [KEPT - 1] * (repeats - repeats // 2)
