"""Residency: thread blocks that a multiprocessor holds at once, limited by shared memory, registers and threads."""

from __future__ import annotations

from typing import NamedTuple

from eggshard.triton.layouts.machine import Machine


class Multiprocessor(NamedTuple):
    """shared: bytes; reserved: bytes of them that each block takes besides its own; largest: bytes that one block may
    have, 0 for all others. threads, blocks: at once.

    units: parts among which a block's warps are shared out evenly. registers: of 32 bits per lane of a unit, and per
    thread of a warp that is there alone; granule: they are given to a thread in multiples of so many.
    """

    shared: int
    reserved: int
    threads: int
    blocks: int
    units: int = 4
    registers: int = 512
    granule: int = 8
    largest: int = 0


def _cuda(shared: int, threads: int, blocks: int) -> Multiprocessor:
    return Multiprocessor(shared * 1024, 1024, threads, blocks)


#: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": 65536 registers, four units; allocated
#: by the warp, 256 at a time.
CUDA = {75: _cuda(64, 1024, 16)._replace(reserved=0), 80: _cuda(164, 2048, 32), 86: _cuda(100, 1536, 16),
        89: _cuda(100, 1536, 24), 90: _cuda(228, 2048, 32), 100: _cuda(228, 2048, 32), 120: _cuda(100, 1536, 24)}
#: AMD CDNA 3 instruction set: a compute unit's local data share, and 8 wavefronts of 64 on each of its 4 units, which
#: share 512 vector registers (section "Vector registers": allocated in groups of 8, accumulation registers among them).
CDNA3 = Multiprocessor(64 * 1024, 0, 2048, 32)
#: AMD CDNA 4 white paper: a local data share of 160 KiB.
CDNA4 = CDNA3._replace(shared=160 * 1024)
#: AMD RDNA 3 instruction set: a work-group processor has a local data share of 128 KiB and four units, each with 16
#: wavefronts of 32 and 1536 vector registers, allocated in groups of 24 (LLVM, AMDGPU back end, "1.5x VGPRs"); a block
#: has 64 KiB at most.
RDNA = Multiprocessor(128 * 1024, 0, 2048, 32, registers=1536, granule=24, largest=64 * 1024)


def multiprocessor(machine: Machine) -> Multiprocessor:
    """What a target's blocks run on; of targets that are not here, that of the nearest older one, or of A100."""
    if machine.vendor == "hip":
        if machine.threads_per_warp == 32:
            return RDNA
        return CDNA4 if machine.architecture == "gfx950" else CDNA3
    return CUDA[max((n for n in CUDA if n <= machine.capability), default=80)]


def most_shared(machine: Machine) -> int:
    """The most bytes of shared memory that a block may have."""
    unit = multiprocessor(machine)
    return unit.largest or unit.shared - unit.reserved


def resident_blocks(machine: Machine, shared: int, registers: int = 0) -> int:
    """Blocks of so many bytes of shared memory and registers per thread that are resident at once."""
    unit = multiprocessor(machine)
    by_memory = unit.shared // max(1, shared + unit.reserved)
    by_threads = unit.threads // (machine.num_warps * machine.threads_per_warp)
    given = -(-max(1, registers) // unit.granule) * unit.granule
    by_registers = unit.units * (unit.registers // given) // machine.num_warps
    return min(by_memory, by_threads, by_registers, unit.blocks)
