"""Halos that pass from layer to layer, which layers planned apart could not exchange together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eggshard.ops import registry
from eggshard.planner.layers.shortening import Short
from eggshard.planner.rows import reaching
from eggshard.program.program import Op, Region
from eggshard.program.sharding import Sharding

#: A dimension of a value.
Along = tuple[int, int]


def looks_across_layers(short: Short, shardings: Sequence[Sharding | None]) -> bool:
    """Whether what a layer takes of another one is looked along a sharded dimension that leads on to the next layer.

    shardings: of the short program's values. A dimension leads on by factors: a product that sums over it ends it.
    """
    region = short.region
    first = len(short.program.region.inputs)
    places = {short.cut_value(v): s for v, s in enumerate(shardings)}
    looked = {
        (v, d) for v, row in reaching(region) for d, reach in enumerate(row)
        if reach and (s := places.get(v)) is not None and s.dims[d].axes
    }
    passed = {(first + k, d) for k in range(len(short.seams)) for d in range(region.types[first + k].rank)}
    across: set[Along] = set()
    for op in region.ops:
        for taken, given in _leads(region, op):
            if taken in across or (taken in passed and taken in looked):
                across.add(given)
            elif taken in passed:
                passed.add(given)
    return any(short.cut_value(v) == c for seam, v in zip(short.seams, short.taken, strict=True) if seam.user >= 0
               for c, _ in across)


def _leads(region: Region, op: Op) -> Iterator[tuple[Along, Along]]:
    """The dimensions of an op's operands and results that belong together: all of them, where no rule says which."""
    operands, results = ([region.types[v] for v in values] for values in (op.operands, op.results))
    if not registry.known(op.name) or op.regions:
        yield from (((v, d), (u, e)) for v, t in zip(op.operands, operands, strict=True) for d in range(t.rank)
                    for u, other in zip(op.results, results, strict=True) for e in range(other.rank))
        return
    rule = registry.get(op.name).factors(op.attributes, tuple(operands), tuple(results))
    given = {f: (u, e) for u, dims in zip(op.results, rule.results, strict=True)
             for e, factors in enumerate(dims) for f in factors}
    for v, dims in zip(op.operands, rule.operands, strict=True):
        for d, factors in enumerate(dims):
            yield from (((v, d), given[f]) for f in factors if f in given)
