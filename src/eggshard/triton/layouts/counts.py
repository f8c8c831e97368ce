"""Counts of instructions, in which all costs of layouts are stated."""

from __future__ import annotations

from typing import NamedTuple


class Counts(NamedTuple):
    """What one execution by one thread block issues: instructions of warps, all warps added up.

    arithmetic: by class (`triton.layout_costs` names them), (class, instructions) pairs. moves: selects, byte permutes.
    shuffles: between the lanes of a warp, 32 bits each. shared_stores, shared_loads: of any width.
    shared_store_wavefronts, shared_load_wavefronts: how often they occupy shared memory, bank conflicts and width
    included. barriers: of the block, each counted once. warp_barriers: of single warps, all warps added up.
    global_loads, global_stores: instructions; global_lines: the lines of 128 bytes that they touch, where neighbouring
    elements lie side by side in memory, each counted once per instruction of a warp. scratch: bytes of shared memory,
    held while it runs. takeovers: how often such memory is taken over, for which all warps must have done with what was
    there before: one more barrier, unless nothing was.
    """

    arithmetic: tuple[tuple[str, float], ...] = ()
    moves: float = 0
    shuffles: float = 0
    shared_stores: float = 0
    shared_loads: float = 0
    shared_store_wavefronts: float = 0
    shared_load_wavefronts: float = 0
    barriers: float = 0
    warp_barriers: float = 0
    global_loads: float = 0
    global_stores: float = 0
    scratch: int = 0
    takeovers: float = 0
    global_lines: float = 0

    def plus(self, other: Counts) -> Counts:
        """Return the counts of running both in sequence: instructions add up, scratch memory is reused."""
        if other is NOTHING:
            return self
        if self is NOTHING:
            return other
        arithmetic = dict(self.arithmetic)
        for name, count in other.arithmetic:
            arithmetic[name] = arithmetic.get(name, 0) + count
        sums = (a + b for a, b in zip(self[1:], other[1:], strict=True))
        total = Counts._make((tuple(sorted(arithmetic.items())), *sums))
        return total._replace(scratch=max(self.scratch, other.scratch))


NOTHING = Counts()
