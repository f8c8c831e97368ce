"""Costs of combining elements along a dimension at a layout: reductions and scans.

Reductions are lowered as Triton lowers them: within threads, then within warps by shuffles, then, as often as warps
hold different elements of the dimension, through shared memory into lanes and by shuffles again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from eggshard.triton.layouts.conversion import conversion, xor_shuffles
from eggshard.triton.layouts.counts import NOTHING, Counts
from eggshard.triton.layouts.linear import LinearLayout, equal, pack
from eggshard.triton.layouts.machine import Machine

#: Integer combinations that one instruction does over a whole warp (PTX ``redux.sync``, compute capability 8.0).
WHOLE_WARP = frozenset({
    "arith.addi", "arith.andi", "arith.ori", "arith.xori", "arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui"})


class Combination(NamedTuple):
    """How two elements are combined: bits of each operand, instructions per class, and the op if it is a single one."""

    bits: tuple[int, ...]
    arithmetic: tuple[tuple[str, float], ...] = (("float", 1.0),)
    single: str | None = None

    def times(self, count: float) -> tuple[tuple[str, float], ...]:
        return tuple((name, each * count) for name, each in self.arithmetic) if count else ()

    @property
    def words(self) -> int:
        """32-bit registers that travel between lanes."""
        return sum(max(1, bits // 32) for bits in self.bits)


@lru_cache(maxsize=1 << 14)
def reduction(
    layout: LinearLayout, axis: int, combination: Combination, machine: Machine, result: LinearLayout | None = None
) -> Counts:
    """A reduction of tensors at ``layout`` along an axis; ``result``: the layout that is wanted, by default the one
    that the axis leaves when it is dropped."""
    source = layout.without_duplicates()
    mask = source.axis_mask(axis)
    along = sum(1 for v in source.register if v & mask)
    kept = 1 << (len(source.register) - along)
    warps = machine.num_warps
    counts = Counts(arithmetic=combination.times(((1 << along) - 1) * kept * warps))
    left = _renumbered(source._replace(register=tuple(v for v in source.register if not v & mask)), axis)
    left, work = _within_warps(left, axis, combination, machine)
    counts = counts.plus(work)
    rounds = 0
    while left.shape[axis] > 1:
        between = _into_lanes(left, axis)
        if rounds:
            counts = counts.plus(Counts(barriers=1))
        counts = counts.plus(_converted(left, between, combination, machine))
        left, work = _within_warps(between, axis, combination, machine)
        counts = counts.plus(work)
        rounds += 1
    final = left.without_axis(axis)
    wanted = layout.without_axis(axis) if result is None else result
    if not equal(final, wanted):
        counts = counts.plus(Counts(barriers=1)).plus(_converted(final, wanted, combination, machine))
    return counts._replace(takeovers=1.0 if counts.scratch else 0.0)


def _converted(source: LinearLayout, target: LinearLayout, combination: Combination, machine: Machine) -> Counts:
    """All operands change their layout, in memory side by side."""
    found = [conversion(source, target, bits, machine).counts for bits in combination.bits]
    counts = NOTHING
    for each in found:
        counts = counts.plus(each)
    return counts._replace(scratch=sum(each.scratch for each in found), takeovers=0)


def _within_warps(
    layout: LinearLayout, axis: int, combination: Combination, machine: Machine
) -> tuple[LinearLayout, Counts]:
    mask = layout.axis_mask(axis)
    lanes = [1 << i for i, v in enumerate(layout.lane) if v & mask]
    if not lanes:
        return layout, NOTHING
    registers = 1 << sum(v != 0 for v in layout.register)
    issued = registers * machine.num_warps
    whole = _whole_warp(layout, lanes, combination, machine)
    if whole:
        counts = Counts(shuffles=whole * issued)
    elif machine.vendor == "hip" and combination.single is not None and len(lanes) == len(layout.lane):
        # Shifts within rows of 16 lanes and broadcasts of rows: one data-parallel primitive per step.
        counts = Counts(combination.times(len(lanes) * issued), shuffles=len(lanes) * combination.words * issued)
    else:
        shuffles = sum(xor_shuffles(lane, machine) for lane in lanes) * combination.words
        counts = Counts(combination.times(len(lanes) * issued), shuffles=shuffles * issued)
    kept = layout._replace(lane=tuple(v & ~mask for v in layout.lane))
    return _renumbered(kept, axis), counts


def _whole_warp(layout: LinearLayout, lanes: list[int], combination: Combination, machine: Machine) -> int:
    """How many ``redux.sync`` do what shuffles along the lanes would; 0: they are not used.

    One for each group of lanes, if that are fewer than the steps of shuffles; lanes that repeat others are no groups.
    64 bits, over all lanes only, are put together of two halves, sums of three parts.
    """
    if machine.capability < 80 or combination.single not in WHOLE_WARP or len(lanes) < 2:
        return 0
    if combination.bits[0] > 32:
        parts = 3 if combination.single == "arith.addi" else 2
        return parts if len(lanes) == len(layout.lane) else 0
    others = sum(v != 0 for v in layout.lane) - len(lanes)
    groups = 1 << (len(layout.lane) - len(lanes)) if others else 1
    return groups if groups < len(lanes) else 0


def _renumbered(layout: LinearLayout, axis: int) -> LinearLayout:
    """The axis with only the indices that the bases reach, in the order of registers, lanes, warps, blocks."""
    bases = [[list(layout.coordinates(v)) for v in part] for part in layout.hardware()]
    size = 1
    for part in bases:
        for basis in part:
            if basis[axis]:
                basis[axis] = size
                size *= 2
    shape = (*layout.shape[:axis], size, *layout.shape[axis + 1:])
    return LinearLayout(shape, *(tuple(pack(basis, shape) for basis in part) for part in bases))


def _into_lanes(layout: LinearLayout, axis: int) -> LinearLayout:
    """The axis bases of warps (and blocks) exchanged with lanes: ones that hold the same, if there are enough."""
    mask = layout.axis_mask(axis)
    parts = [list(layout.warp), list(layout.block)]
    lanes = list(layout.lane)
    moving = [(part, i) for part in parts for i, v in enumerate(part) if v & mask]
    free = [i for i, v in enumerate(lanes) if v == 0]
    places = free if len(free) >= len(moving) else list(range(len(lanes)))
    if len(moving) > len(places):
        moving = [(part, i) for part, i in moving if part is parts[0]]
    for place, (part, i) in zip(places, moving, strict=False):
        lanes[place], part[i] = part[i], lanes[place]
    return layout._replace(lane=tuple(lanes), warp=tuple(parts[0]), block=tuple(parts[1]))


def scan(
    layout: LinearLayout, axis: int, order: Sequence[int], combination: Combination, machine: Machine,
    reverse: bool = False,
) -> Counts:
    """A scan along an axis of tensors at a blocked layout, ``order`` its dimensions from the fastest."""
    source = layout.without_duplicates()
    mask = source.axis_mask(axis)
    elements = 1 << len(source.register)
    contiguous = _contiguous(source, axis, order)
    chunks = elements // contiguous
    steps = sum(1 for v in source.lane if v & mask)
    axis_warps = 1 << sum(1 for v in source.warp if v & mask)
    lanes = 1 << steps
    pieces = max(1, source.shape[axis] // (contiguous * lanes * axis_warps))
    words, warps = combination.words, machine.num_warps
    combined = (contiguous - 1) * chunks + steps * chunks
    # Shifts between lanes are one instruction each; AMD's go through the permutation network.
    shuffles = steps * chunks * words
    moves = steps * chunks * len(combination.bits)
    if reverse:  # the lanes are mirrored before and after
        shuffles += 2 * elements * words
    operands = len(combination.bits)
    # The last element of the lane before is fetched, though no one may need it (AMD's compiler sees that).
    passed = contiguous > 1 or machine.vendor == "cuda"
    counts = NOTHING
    if axis_warps > 1:
        groups = chunks // pieces
        combined += chunks + (contiguous - 1) * chunks + chunks * axis_warps - groups
        shuffles += chunks * words * passed
        moves += chunks * (axis_warps + contiguous) * operands
        non_axis = 1 << sum(1 for v in source.lane + source.warp if v and not v & mask)
        # What the last warp adds to the last piece no one reads.
        loads = chunks * axis_warps - groups
        if non_axis == 1 and machine.vendor == "cuda":  # those of one piece lie side by side
            loads = chunks * max(1, axis_warps * sum(combination.bits) // 128)
        scratch = non_axis * axis_warps * chunks * sum(max(8, b) // 8 for b in combination.bits)
        counts = Counts(
            shared_stores=chunks * operands * warps,
            shared_loads=loads * operands * warps,
            shared_store_wavefronts=chunks * operands * warps,
            shared_load_wavefronts=loads * operands * warps,
            barriers=1,
            scratch=scratch,
            takeovers=1,
        )
    elif elements > 1:
        combined += chunks - chunks // pieces + (contiguous - 1) * chunks
        if lanes > 1:
            shuffles += chunks * words * passed
            if pieces > 1 and machine.vendor == "cuda":
                shuffles += chunks * words
            elif pieces > 1 and any(v and not v & mask for v in source.lane):
                # Each piece's sum but the last; where it is in the same lane for all, it is read without a shuffle.
                shuffles += (chunks - chunks // pieces) * words
        moves += chunks * contiguous * operands
    return counts.plus(Counts(combination.times(combined * warps), moves=moves * warps, shuffles=shuffles * warps))


def _contiguous(layout: LinearLayout, axis: int, order: Sequence[int]) -> int:
    """Neighbours along the axis that a thread holds in its first registers, faster dimensions before it."""
    bases = list(layout.bases("register"))
    for dim in order:
        run = 1
        while bases and bases[0] == tuple(run if d == dim else 0 for d in range(len(layout.shape))):
            bases.pop(0)
            run *= 2
        if dim == axis:
            return run
    return 1
