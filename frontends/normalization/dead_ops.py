"""Dead-op elimination, for example of the init values of reductions that are read in their simple form."""

from __future__ import annotations

from dataclasses import replace

from eggshard.ops import registry
from eggshard.program.program import Op, Region


def without_dead_ops(region: Region) -> Region:
    """The region of the ops that its outputs or effects need, or that ops without results speak of."""
    live = set(region.outputs)
    kept: list[Op] = []
    for op in reversed(region.ops):
        if any(v in live for v in op.results) or not op.results or not registry.is_pure(op.name, op.regions):
            live.update(op.operands)
            kept.append(op)
    if len(kept) == len(region.ops):
        return region
    kept.reverse()
    number: dict[int, int] = {}
    for v in (*region.inputs, *(v for op in kept for v in op.results)):
        number[v] = len(number)

    def renumbered(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([number[v] for v in values])

    ops = tuple(replace(op, operands=renumbered(op.operands), results=renumbered(op.results)) for op in kept)
    types = tuple(region.types[v] for v in number)
    return Region(renumbered(region.inputs), ops, renumbered(region.outputs), types)
