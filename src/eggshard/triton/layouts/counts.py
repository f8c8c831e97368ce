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
        return Counts(
            tuple(sorted(arithmetic.items())),
            self.moves + other.moves,
            self.shuffles + other.shuffles,
            self.shared_stores + other.shared_stores,
            self.shared_loads + other.shared_loads,
            self.shared_store_wavefronts + other.shared_store_wavefronts,
            self.shared_load_wavefronts + other.shared_load_wavefronts,
            self.barriers + other.barriers,
            self.warp_barriers + other.warp_barriers,
            self.global_loads + other.global_loads,
            self.global_stores + other.global_stores,
            max(self.scratch, other.scratch),
            self.takeovers + other.takeovers,
            self.global_lines + other.global_lines,
        )

    def times(self, factor: float) -> Counts:
        """As often: a loop's trip count, a branch's frequency."""
        if factor == 1 or self is NOTHING:
            return self
        return Counts(
            tuple((name, count * factor) for name, count in self.arithmetic),
            self.moves * factor,
            self.shuffles * factor,
            self.shared_stores * factor,
            self.shared_loads * factor,
            self.shared_store_wavefronts * factor,
            self.shared_load_wavefronts * factor,
            self.barriers * factor,
            self.warp_barriers * factor,
            self.global_loads * factor,
            self.global_stores * factor,
            self.scratch,
            self.takeovers * factor,
            self.global_lines * factor,
        )


NOTHING = Counts()
