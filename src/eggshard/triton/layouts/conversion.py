"""Costs of converting a tensor between layouts: by registers, shuffles or shared memory, and how many of each.

The categories follow from the map over GF(2) from the target's hardware bits to the source's: where it is the identity
on warps nothing leaves a warp, where it is so on lanes nothing leaves a thread. Between lanes, a permutation of the
index bits of registers and lanes is done with shuffles as long as it exchanges at most one register bit with a lane
bit; otherwise, and between warps, elements go through shared memory (`swizzling`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

from eggshard.triton.layouts.counts import NOTHING, Counts
from eggshard.triton.layouts.gf2 import Span
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.layouts.swizzling import PLAIN, Access, SharedLayout, map_onto, shared_layout

Category = Literal["none", "registers", "shuffles", "shared"]


#: Loads that LLVM's NVPTX back end makes of one load of truth values, by the log2 of how many there are: up to 32 bits
#: they come apart (measured in PTX).
_SPLIT_LOADS = {1: 2, 2: 3}


class Conversion(NamedTuple):
    """``repetitions``: parts of the tensor that go through shared memory one after the other (0: none do)."""

    category: Category
    counts: Counts
    repetitions: int = 0


@lru_cache(maxsize=1 << 18)
def conversion(source: LinearLayout, target: LinearLayout, bits: int, machine: Machine) -> Conversion:
    """How a tensor of elements of ``bits`` (pointers 64) comes from one layout to another of the same shape."""
    source, target = source.without_duplicates(), target.without_duplicates()
    if source == target:
        return Conversion("none", NOTHING)
    reach = _reach(source, target)
    if reach == 0:
        return Conversion("registers", _register_moves(source, target, bits, machine))
    if reach == 3 and _held_inside(source, target, 3):
        reach = _reach(source._replace(block=()), target._replace(block=()))
    if reach <= 2 and _held_inside(source, target, 2, shared_registers=False):
        shuffling = _Shuffling.of(source, target)
        if shuffling is not None and shuffling.exchanges < 2:
            return Conversion("shuffles", shuffling.counts(bits, machine))
    return _through_shared(source, target, bits, machine, reach)


def _reach(source: LinearLayout, target: LinearLayout) -> int:
    """The outermost hardware dimension between whose parts elements move: 0 registers, 1 lanes, 2 warps, 3 blocks."""
    mapped = map_onto(target, source)
    ends, end = [], 0
    for bases in source.hardware():
        ends.append((end, end + len(bases)))
        end += len(bases)
    dims = mapped.hardware()
    for dim in (3, 2, 1):
        low, high = ends[dim]
        identity = tuple(1 << i for i in range(low, high))
        inside = (1 << high) - (1 << low)
        if dims[dim] != identity or any(v & inside for other in range(dim) for v in dims[other]):
            return dim
    return 0


def _held_inside(source: LinearLayout, target: LinearLayout, dim: int, shared_registers: bool = True) -> bool:
    """Whether each part of a hardware dimension (2 warps, 3 blocks) holds itself what it wants: of parts that hold the
    same, each may want something else. ``shared_registers``: even if it lies in different registers then."""
    inside = [v for bases in source.hardware()[:dim] for v in bases]
    span = Span(inside)
    if any(v not in span for bases in target.hardware()[:dim] for v in bases):
        return False
    registers = 0 if shared_registers else (1 << len(source.register)) - 1
    for held_bases, wanted_bases in zip(source.hardware()[dim:], target.hardware()[dim:], strict=True):
        for held, wanted in zip(held_bases, wanted_bases, strict=True):
            chosen = span.solve(held ^ wanted)
            if chosen is None or chosen & registers:
                return False
    return True


def _register_moves(source: LinearLayout, target: LinearLayout, bits: int, machine: Machine) -> Counts:
    """Registers change their names; parts of registers are moved, 32 bits at a time."""
    packed = max(0, (32 // bits).bit_length() - 1)
    if source.register[:packed] == target.register[:packed]:
        return NOTHING
    return Counts(moves=_words(len(target.register), bits) * machine.num_warps)


def _words(register_bits: int, bits: int) -> int:
    """32-bit registers of a thread that hold so many elements."""
    return max(1, (max(bits, 8) << register_bits) // 32)


class _Shuffling(NamedTuple):
    """The permutation of register and lane bits as exchanges of a register with a lane bit, after permutations of lanes
    among themselves and of registers: registers (log2), the exchanges (register bit, lane bit), whether the lanes are
    otherwise not permuted."""

    registers: int
    exchanged: tuple[tuple[int, int], ...]
    lanes_stay: bool

    @property
    def exchanges(self) -> int:
        return len(self.exchanged)

    @staticmethod
    def of(source: LinearLayout, target: LinearLayout) -> _Shuffling | None:
        """None where the map is no permutation of bits."""
        registers = max(len(source.register), len(target.register))
        lanes = len(source.lane)
        # Which of the lanes that differ in a warp's bit is read depends on the warp, as if there were only one.
        outer = zip(source.warp + source.block, target.warp + target.block, strict=True)
        by_warp = {wanted for basis, wanted in outer if basis != wanted}
        held = _padded(source.register, registers) + tuple(0 if v in by_warp else v for v in source.lane)
        wanted = _padded(target.register, registers) + target.lane
        places = {basis: i for i, basis in reversed(list(enumerate(wanted))) if basis}
        image: list[int | None] = [places.get(basis) if basis else None for basis in held]
        if any(place is None and basis for place, basis in zip(image, held, strict=True)):
            return None
        for i in range(len(held)):
            if not held[i] and not wanted[i]:
                image[i] = i
        free_targets = [i for i in range(len(wanted)) if not wanted[i] and held[i]]
        free_sources = [i for i in range(len(held)) if not held[i] and wanted[i]]
        for i, j in zip(free_sources, free_targets, strict=False):
            image[i] = j
        if None in image or len(set(image)) != len(image):
            return None
        step = [place for place in image if place is not None]
        exchanged = []
        lanes_stay = not by_warp
        for i in range(registers):
            if step[i] < registers:
                continue
            # ... r_m l_j ... l_k r_i ...: the exchange (r_i l_j), and l_k goes to l_j.
            first = last = step[i]
            while step[last] >= registers:
                last = step[last]
            lanes_stay &= last == first
            exchanged.append((step[last], first - registers))
        lanes_stay &= all(
            step[lane] == lane or step[lane] < registers for lane in range(registers, registers + lanes)
            if not _leads_from_register(step, lane, registers))
        return _Shuffling(registers, tuple(exchanged), lanes_stay)

    def counts(self, bits: int, machine: Machine) -> Counts:
        m = self.exchanges
        packed = min(max(0, (min(32 // bits, 4) if bits < 32 else 1).bit_length() - 1), self.registers - m)
        words = (1 << (self.registers - packed)) * (2 if bits == 64 else 1)
        if m == 0:
            shuffles, moves = words, 0.0
        elif self.lanes_stay:
            lane = 1 << self.exchanged[0][1]
            shuffles, moves = words // 2 * xor_shuffles(lane, machine), 1.5 * words
        else:
            shuffles, moves = words, 2.0 * words
        if bits < 16:  # bytes are put together and taken apart, halves lie side by side as they are
            moves += words * ((1 << packed) - 1)
        return Counts(moves=moves * machine.num_warps, shuffles=shuffles * machine.num_warps)


def xor_shuffles(mask: int, machine: Machine) -> int:
    """Instructions that exchange 32 bits between the lanes whose numbers differ by the mask.

    AMD's data-parallel primitives reflect 8 or 16 lanes or rotate by 8, then permute groups of 4 (CDNA 3 ISA, "DPP");
    beyond 16 lanes one permutation through shared memory's network does it.
    """
    if machine.vendor != "hip" or mask >= 16:
        return 1
    reflected = (7 if mask & 4 else 0) ^ (8 if mask & 8 else 0)
    return (reflected != 0) + (mask ^ reflected != 0)


def _padded(bases: tuple[int, ...], size: int) -> tuple[int, ...]:
    return bases + (0,) * (size - len(bases))


def _leads_from_register(step: list[int], lane: int, registers: int) -> bool:
    """Whether a register bit is on the lane bit's cycle."""
    at = step[lane]
    while at != lane:
        if at < registers:
            return True
        at = step[at]
    return False


def _through_shared(
    source: LinearLayout, target: LinearLayout, bits: int, machine: Machine, reach: int
) -> Conversion:
    width = max(bits, 8)
    shared = shared_layout(source, target, width, machine)
    repetitions = 1 << len(shared.repetitions)
    stores, store_waves = _accesses(source, shared, shared.store, width)
    loads, load_waves = _accesses(target, shared, shared.load, width)
    if bits == 1 and machine.vendor == "cuda" and shared.load is PLAIN:
        loads *= _SPLIT_LOADS.get(_vector_bits(_offsets(target, shared), width), 1)
    barriers = 2 * repetitions - 1
    # No element leaves its warp and none is held by two: a barrier of the warp is enough.
    within_warp = reach <= 1 and _independent_warps(source) and _independent_warps(target)
    warps = machine.num_warps
    counts = Counts(
        shared_stores=stores * repetitions * warps,
        shared_loads=loads * repetitions * warps,
        shared_store_wavefronts=store_waves * repetitions * warps,
        shared_load_wavefronts=load_waves * repetitions * warps,
        barriers=0 if within_warp else barriers,
        warp_barriers=barriers * warps if within_warp else 0,
        scratch=shared.held * width // 8,
        takeovers=1,
    )
    return Conversion("shared", counts, repetitions)


def _offsets(layout: LinearLayout, shared: SharedLayout) -> LinearLayout:
    """Per hardware bit of a side, the bits of the offset in shared memory, without repetitions and blocks."""
    span = Span(shared.columns)
    inside = (1 << (len(shared.vector) + len(shared.bank) + len(shared.segment))) - 1
    block_bits = ((1 << len(shared.block)) - 1) * (inside + 1)

    def offset(basis: int) -> int:
        chosen = span.solve(basis)
        assert chosen is not None, "shared memory holds every element"
        return chosen & (inside | block_bits)

    repeated = set(shared.repetitions)
    registers = tuple(offset(r) for r in layout.register if r not in repeated)
    return LinearLayout(layout.shape, registers, *(tuple(map(offset, b)) for b in layout.hardware()[1:]))


def _accesses(layout: LinearLayout, shared: SharedLayout, access: Access, bits: int) -> tuple[int, int]:
    """Instructions of a warp for one repetition, and the wavefronts that they take."""
    offsets = _offsets(layout, shared)
    registers = len(offsets.register)
    if access is not PLAIN:
        # Up to four matrices of 8 rows of 128 bits at a time; each is one wavefront if its rows meet no bank twice.
        words = (bits << registers) // 32
        return max(1, words // 4), words
    return accesses(offsets, bits)


def accesses(offsets: LinearLayout, bits: int) -> tuple[int, int]:
    """Instructions of a warp that move registers between offsets in shared memory and threads, and the wavefronts that
    they take. ``offsets``: the bases are the offsets, in elements, that hardware bits add."""
    vector = _vector_bits(offsets, bits)
    instructions = 1 << (len(offsets.register) - vector)
    return instructions, instructions * _wavefronts(offsets.lane, bits << vector, bits)


def _vector_bits(offsets: LinearLayout, bits: int) -> int:
    """How many offset bits one instruction covers (log2 of elements): those that registers step through one by one and
    nothing else touches, up to 128 bits."""
    for size in range((128 // bits).bit_length() - 1, 0, -1):
        low = (1 << size) - 1
        steps = [r for r in offsets.register if r & low]
        if (sorted(steps) == [1 << i for i in range(size)]
                and not any(v & low for v in offsets.lane + offsets.warp + offsets.block)):
            return size
    return 0


def _wavefronts(lanes: tuple[int, ...], moved: int, bits: int) -> int:
    """Wavefronts of one instruction that moves so many bits for each lane: as many lanes at a time as 32 banks serve,
    and as often as two of them meet in a bank at different words."""
    words = max(1, moved // 32)
    together = max(0, min(len(lanes), 5 - (words.bit_length() - 1)))
    width = max(1, 32 // bits).bit_length() - 1  # offset bits within a word
    scale = max(0, (bits // 32).bit_length() - 1)
    places = [(v >> width) << scale for v in lanes[:together]]
    banks = 31
    degree = Span(places).rank - Span(p & banks for p in places).rank
    return (1 << degree) << (len(lanes) - together)


@lru_cache(maxsize=1 << 14)
def _independent_warps(layout: LinearLayout) -> bool:
    span = Span(layout.register + layout.lane)
    return all(span.add(v) for v in layout.warp)
