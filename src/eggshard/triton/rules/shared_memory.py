"""Element offsets in buffers of shared memory, and costs of reading or writing a buffer at a tensor's layout.

Offsets are linear over GF(2), too: row-major order, with bits of the row added to bits of the column (swizzling).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from eggshard.triton.kernels.text import read_type, split
from eggshard.triton.layouts.conversion import accesses
from eggshard.triton.layouts.encodings import Encoding, read
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.machine import Machine


class Buffer(NamedTuple):
    """A memory descriptor: the shape of what it shows and of the memory that it shows a part of, and the encoding."""

    shape: tuple[int, ...]
    whole: tuple[int, ...]
    encoding: Encoding


@lru_cache(maxsize=1 << 12)
def read_buffer(text: str) -> Buffer | None:
    """The buffer of a type's text (``!ttg.memdesc<..>``); None of other types."""
    if not text.startswith("!ttg.memdesc<"):
        return None
    shown, encoding, *rest = split(text[len("!ttg.memdesc<"):-1])
    type_ = read_type(f"tensor<{shown}>")
    if isinstance(type_, str):
        return None
    whole = type_.shape
    for part in rest:
        if part[:1].isdigit():
            whole = tuple(int(n) for n in part.split("x"))[-len(type_.shape):]
    return Buffer(type_.shape, whole, read(encoding))


def traffic(layout: LinearLayout, buffer: Buffer, bits: int, machine: Machine, loads: bool) -> tuple[int, int] | None:
    """Instructions of a warp that move a tensor at a layout without duplicate registers between its registers and a
    buffer, and the wavefronts that they take; None for encodings that are not understood."""
    steps = _steps(buffer, max(8, bits))
    if steps is None or len(layout.shape) != len(buffer.shape):
        return None
    moved = [tuple(_offset(layout.coordinates(v), steps) for v in bases) for bases in layout.hardware()]
    offsets = LinearLayout((1 << sum(len(s) for s in steps),), *moved)
    if bits == 16 and machine.capability >= (75 if loads else 90) and _matrices(offsets):
        words = max(1, (bits << len(offsets.register)) // 32)
        return max(1, words // 4), words
    return accesses(offsets, max(8, bits))


def _matrices(offsets: LinearLayout) -> bool:
    """Whether rows of 8 neighbours lie as ``ldmatrix`` and ``stmatrix`` deal them out, transposed or not, and nothing
    parts them."""
    lanes = offsets.lane
    if sorted(v for v in offsets.columns if v & 7) != [1, 2, 4]:
        return False
    return 1 in offsets.register and lanes[:2] == (2, 4) or lanes[2:5] == (1, 2, 4)


def _offset(index: Sequence[int], steps: Sequence[Sequence[int]]) -> int:
    found = 0
    for i, some in zip(index, steps, strict=True):
        for k, step in enumerate(some):
            found ^= step if i >> k & 1 else 0
    return found


@lru_cache(maxsize=1 << 12)
def _steps(buffer: Buffer, bits: int) -> tuple[tuple[int, ...], ...] | None:
    """Per dimension and bit of its index, the offset in elements that it adds."""
    encoding, rank = buffer.encoding, len(buffer.whole)
    if encoding.kind in ("ttg.swizzled_shared", "ttg.amd_rotating_shared"):
        order = encoding.ints("order")
        width = encoding.integer("vec", 1)
        phase, phases = encoding.integer("perPhase", 1), encoding.integer("maxPhase", 1)
        starts = [phase] if encoding.kind == "ttg.swizzled_shared" else [phase, phase * phases]
        inner = buffer.whole[order[0]] if len(order) == rank else 0
    elif encoding.kind == "ttg.nvmma_shared" and rank >= 2:
        order = tuple(reversed(range(rank)))
        if encoding.get("transposed") == "true":
            order = (order[1], order[0], *order[2:])
        span = encoding.integer("swizzlingByteWidth")
        inner = min(buffer.whole[order[0]], max(span, 16) * 8 // bits)
        width, phases = 128 // bits, max(1, span // 16)
        starts = [8 // phases]
    else:
        return None
    if len(order) != rank or any(n & (n - 1) for n in buffer.whole):
        return None
    steps: list[list[int]] = [[] for _ in range(rank)]
    step = 1
    while step < inner:
        steps[order[0]].append(step)
        step *= 2
    for dim in order[1:2]:
        for k in range(buffer.whole[dim].bit_length() - 1):
            added = 0
            for start in starts:
                if start <= 1 << k < start * phases:
                    added ^= (width << k) // start
            steps[dim].append(step ^ (added if added < inner else 0))
            step *= 2
    for dim in (order[0], *order[2:]):
        while 1 << len(steps[dim]) < buffer.whole[dim]:
            steps[dim].append(step)
            step *= 2
    return tuple(map(tuple, steps))
