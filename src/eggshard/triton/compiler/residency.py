"""Residency: thread blocks that a multiprocessor holds at once, limited by shared memory, registers and threads."""

from __future__ import annotations

from typing import NamedTuple

from eggshard.triton.layouts.machine import Machine


class Multiprocessor(NamedTuple):
    """shared: bytes. reserved: bytes of them that each block takes besides its own. threads, blocks: at once.

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


#: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": 65536 registers, four units; allocated
#: by the warp, 256 at a time.
CUDA = {80: Multiprocessor(164 * 1024, 1024, 2048, 32), 90: Multiprocessor(228 * 1024, 1024, 2048, 32)}
#: AMD CDNA 3 instruction set: a compute unit's local data share, and 8 wavefronts of 64 on each of its 4 units, which
#: share 512 vector registers (section "Vector registers": allocated in groups of 8, accumulation registers among them).
CDNA3 = Multiprocessor(64 * 1024, 0, 2048, 32)


def resident_blocks(machine: Machine, shared: int, registers: int = 0) -> int:
    """Blocks of so many bytes of shared memory and registers per thread that are resident at once; of targets that are
    not here, as of an older one."""
    unit = CDNA3 if machine.vendor == "hip" else CUDA[90 if machine.capability >= 90 else 80]
    by_memory = unit.shared // max(1, shared + unit.reserved)
    by_threads = unit.threads // (machine.num_warps * machine.threads_per_warp)
    given = -(-max(1, registers) // unit.granule) * unit.granule
    by_registers = unit.units * (unit.registers // given) // machine.num_warps
    return min(by_memory, by_threads, by_registers, unit.blocks)
