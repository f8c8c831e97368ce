"""Swizzling of conversions through shared memory: the address of each element, and the instructions, as Triton chooses.

Shared memory is a layout too: its offset bits, from the fastest, are those of one vector (what one instruction moves
for a lane), the banks, the segments (rows of all the banks), the blocks, and the repetitions (parts of the tensor that
go through the same memory one after the other). The choice follows the published algorithm ("Linear Layouts: Robust
Code Generation of Efficient Tensor Computation Using F2", section on optimal swizzling, and Triton's
``GenericSwizzling``): registers that both sides hold make vectors; segments are built from what neither side's lanes
spread, then from sums of one lane basis of either side, so that no two lanes of a wavefront meet in a bank.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from eggshard.triton.layouts.gf2 import Span, complement, intersection
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.machine import Machine

#: Banks of shared memory.
_BANKS = 32
_WORD = 32  # bits of a bank, and of a register
_VECTOR = 128  # bits that a lane can move at most


#: Targets on which the lanes of a wavefront of ds_read_b128 are not consecutive (CDNA 3).
_INTERLEAVED = ("gfx940", "gfx941", "gfx942")


class Access(NamedTuple):
    """An instruction that a side may use, by which lane index bits run through the vector and which through a
    wavefront's rows: plain loads and stores, or the 8x8 matrices of ldmatrix and stmatrix (transposed or not)."""

    name: str
    contiguous: tuple[int, ...] = ()
    address: tuple[int, ...] = (0, 1, 2)


PLAIN = Access("plain")
MATRIX = Access("matrix", (0, 1), (2, 3, 4))
TRANSPOSED = Access("transposed matrix", (2, 3, 4), (0, 1))


class SharedLayout(NamedTuple):
    """Bases of the tensor's elements, per part of the offset; the instructions that store and load."""

    vector: tuple[int, ...]
    bank: tuple[int, ...]
    segment: tuple[int, ...]
    block: tuple[int, ...]
    repetitions: tuple[int, ...]
    store: Access = PLAIN
    load: Access = PLAIN

    @property
    def columns(self) -> tuple[int, ...]:
        return self.vector + self.bank + self.segment + self.block + self.repetitions

    @property
    def held(self) -> int:
        """Elements that a block's memory holds at a time."""
        return 1 << (len(self.vector) + len(self.bank) + len(self.segment))


def shared_layout(source: LinearLayout, target: LinearLayout, bits: int, machine: Machine) -> SharedLayout:
    """The shared memory of a conversion; layouts without duplicate registers, elements of 8 bits or more."""
    if machine.vendor == "hip":
        plain = _plain(source, target, bits, None)
        if bits << len(plain.vector) == _VECTOR and machine.architecture in _INTERLEAVED:
            # Of both orders of the lanes the one that needs less memory (found by comparing with compiled code).
            return min(_plain(source, target, bits, (0, 1, 4)), plain, key=lambda shared: shared.held)
        return plain
    crossing = source.block != target.block
    stores = [PLAIN]
    loads = [PLAIN]
    if bits <= 32 and machine.capability >= 75:
        stores += [MATRIX] if machine.capability >= 90 else []
        loads += [] if crossing else [MATRIX]
    if bits == 16 and machine.capability >= 75:
        stores += [TRANSPOSED] if machine.capability >= 90 else []
        loads += [] if crossing else [TRANSPOSED]
    found: list[tuple[SharedLayout, list[int], list[int]]] = []
    for store in stores:
        for load in loads:
            vector = _tile(source, target, bits, store, load)
            if vector is None:
                continue
            stored, loaded = _rows(source, store, vector), _rows(target, load, vector)
            if stored is None or loaded is None:
                continue
            # Matrices are moved four at a time: two bases that could be repetitions are kept for that.
            keep = min(len(access.contiguous) + len(access.address) - 3 for access in (store, load))
            shared = _swizzled(source, target, bits, vector, stored, loaded, keep)
            found.append((shared._replace(store=store, load=load), stored, loaded))
    if not found:
        return _plain(source, target, bits, None)
    if len(found) == 1:
        return found[0][0]

    def price(candidate: tuple[SharedLayout, list[int], list[int]]) -> tuple[int, int]:
        shared, *sides = candidate
        conflicts = sum(1 << len(intersection(shared.segment, side, source.size_log2)) for side in sides)
        return conflicts, -len(shared.repetitions)

    return min(found, key=price)[0]


def _tile(
    source: LinearLayout, target: LinearLayout, bits: int, store: Access, load: Access
) -> tuple[int, ...] | None:
    """The elements that one lane's 128 bits span so that both instructions find them contiguous; None if they do
    not."""
    total = (_VECTOR // bits).bit_length() - 1
    first, second = (source, target), (target, source)
    wide, narrow = (store, load) if len(store.contiguous) <= len(load.contiguous) else (load, store)
    a, b = first if wide is store else second
    registers_a, registers_b = total - len(wide.contiguous), total - len(narrow.contiguous)
    if registers_b < 0:
        return None
    vector = intersection(a.register, b.register, a.size_log2)
    if len(vector) < registers_b:
        return None
    vector = vector[:registers_b]
    lanes_a = [a.lane[i] for i in wide.contiguous]
    lanes_b = [b.lane[i] for i in narrow.contiguous]
    if 0 in lanes_a or 0 in lanes_b:
        return None
    if not narrow.contiguous:
        return tuple(vector)
    columns = map_onto(b, a).lane
    lane_start = len(a.register)
    lane_bits = ((1 << len(a.lane)) - 1) << lane_start
    for i in range(registers_a - registers_b):
        if not columns[narrow.contiguous[i]] & ((1 << lane_start) - 1):
            return None
    for i, j in zip(wide.contiguous, narrow.contiguous[len(narrow.contiguous) - len(wide.contiguous):], strict=True):
        if columns[j] & lane_bits != 1 << (lane_start + i):
            return None
    return tuple(vector + lanes_b)


def _rows(layout: LinearLayout, access: Access, vector: tuple[int, ...]) -> list[int] | None:
    """What the rows of a wavefront run through: eight rows of 128 bits."""
    needed = 3 - len(access.address)
    registers = [r for r in layout.register if r not in vector][:needed]
    if len(registers) < needed:
        return None
    return registers + [layout.lane[i] for i in access.address]


def _vector(source: LinearLayout, target: LinearLayout, bits: int) -> tuple[list[int], bool | None]:
    """The vector of plain accesses; of less than 32 bits it is filled up with what one side holds in registers and
    warps of the other: whether that side is the source (None: nothing was filled up)."""
    size = source.size_log2
    vector = intersection(source.register, target.register, size)[: (_VECTOR // bits).bit_length() - 1]
    if bits << len(vector) >= _WORD:
        return vector, None
    wanted = (_WORD // bits).bit_length() - 1
    source_warps = [w for w in source.warp if w]
    target_warps = [w for w in target.warp if w]
    from_source = intersection([r for r in source.register if r not in vector], target_warps, size)
    from_target = intersection([r for r in target.register if r not in vector], source_warps, size)
    if len(from_source) == len(from_target) > 0:
        fills = min(from_source) < min(from_target)
    else:
        fills = len(from_source) > len(from_target)
    vector += from_source if fills else from_target
    if len(vector) < wanted:
        vector += intersection(source_warps, target_warps, size)
    i = 0
    while len(vector) < wanted and (i < len(source_warps) or i < len(target_warps)):
        if i < len(source_warps) and source_warps[i] not in vector:
            vector.append(source_warps[i])
        if (len(vector) < wanted and i < len(target_warps)
                and target_warps[i] not in vector and target_warps[i] not in source.block):
            vector.append(target_warps[i])
        i += 1
    return vector[:wanted], fills


def _plain(source: LinearLayout, target: LinearLayout, bits: int, loading: tuple[int, ...] | None) -> SharedLayout:
    """Plain stores and loads; ``loading``: the lanes of a loading wavefront, if they are not the first ones."""
    vector, fills = _vector(source, target, bits)
    words = max(1, (bits << len(vector)) // _WORD).bit_length() - 1

    def first(lanes: Sequence[int]) -> list[int]:
        later = max(0, words + len(lanes) - (_BANKS.bit_length() - 1))
        return list(lanes[: len(lanes) - later])

    loads = first(target.lane) if loading is None else [target.lane[i] for i in loading]
    found = _swizzled(source, target, bits, tuple(vector), first(source.lane), loads, 0)
    if words >= 2:
        return found
    # One side may still move more at a time than both can: the banks that its registers run through come first.
    in_source = [b for b in found.bank if b in source.register]
    in_target = [b for b in found.bank if b in target.register]
    prefer_source = fills if fills is not None else len(in_source) > len(in_target)
    leading = in_source if prefer_source else in_target
    return found._replace(bank=tuple(leading + [b for b in found.bank if b not in leading]))


def _swizzled(
    source: LinearLayout,
    target: LinearLayout,
    bits: int,
    vector: tuple[int, ...],
    source_rows: Sequence[int],
    target_rows: Sequence[int],
    keep: int,
) -> SharedLayout:
    size = source.size_log2
    blocks = [b for b in source.block if b]
    free = size - len(vector) - len(blocks)
    banks = min(((_BANKS * _WORD) // (bits << len(vector))).bit_length() - 1, free)
    segment = _segment([*vector, *source_rows], [*vector, *target_rows], blocks, size, free - banks)
    bank = complement([*vector, *segment, *blocks], size)
    registers = set(source.register) & set(target.register)
    repetitions, staying = [], []
    for basis in dict.fromkeys(segment):
        if basis in registers and keep <= 0:
            repetitions.append(basis)
        else:
            keep -= basis in registers
            staying.append(basis)
    return SharedLayout(vector, tuple(bank), tuple(staying), source.block, tuple(repetitions))


def _segment(first: list[int], second: list[int], blocks: list[int], size: int, length: int) -> list[int]:
    """Bases that tell the segments apart: units that neither wavefront runs through, then sums of one basis of either,
    then, with conflicts, single ones."""
    one = set(first) | set(blocks)
    other = set(second) | set(blocks)
    one.discard(0)
    other.discard(0)
    found = [1 << i for i in range(size) if 1 << i not in one and 1 << i not in other]
    if len(found) >= length:
        return found[:length]
    left, right = sorted(one - other), sorted(other - one)
    if len(left) > len(right):
        left, right = right, left
    conflicts = min(max(0, length - len(left) - len(found)), len(left))
    found += [a ^ b for a, b in zip(left[conflicts:], right[conflicts:], strict=False)]
    found += left[:conflicts] + right[:conflicts]
    return found[:length]


@lru_cache(maxsize=1 << 16)
def map_onto(source: LinearLayout, target: LinearLayout) -> LinearLayout:
    """Per hardware bit of ``source``, the hardware bits of ``target`` that hold its element: bit sets over the target's
    columns (registers first). Dimensions with the same bases on both sides are mapped to themselves."""
    span = Span()
    start = 0
    for bases, others in zip(target.hardware(), source.hardware(), strict=True):
        if bases != others:
            for i, basis in enumerate(bases):
                span.add(basis, 1 << (start + i))
        start += len(bases)
    whole: Span | None = None
    found: list[tuple[int, ...]] = []
    start = 0
    for bases, others in zip(target.hardware(), source.hardware(), strict=True):
        if bases == others:
            found.append(tuple(1 << (start + i) for i in range(len(bases))))
        else:
            mapped = []
            for basis in others:
                chosen = span.solve(basis)
                if chosen is None:
                    whole = whole or Span(target.columns)
                    chosen = whole.solve(basis)
                    assert chosen is not None, "a layout holds every element"
                mapped.append(chosen)
            found.append(tuple(mapped))
        start += len(bases)
    return LinearLayout(target.shape, *found)
