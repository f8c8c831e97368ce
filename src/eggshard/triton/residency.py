"""How many thread blocks a multiprocessor holds at once, as far as shared memory and threads limit it."""

from __future__ import annotations

from typing import NamedTuple

from eggshard.layouts.machine import Machine


class Multiprocessor(NamedTuple):
    """shared: bytes. reserved: bytes of them that each block takes besides its own. threads, blocks: at once."""

    shared: int
    reserved: int
    threads: int
    blocks: int


#: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
CUDA = {80: Multiprocessor(164 * 1024, 1024, 2048, 32), 90: Multiprocessor(228 * 1024, 1024, 2048, 32)}
#: AMD CDNA 3 instruction set: a compute unit's local data share, and 8 wavefronts of 64 on each of its 4 units.
CDNA3 = Multiprocessor(64 * 1024, 0, 2048, 32)


def resident_blocks(machine: Machine, shared: int) -> int:
    """Blocks of so many bytes of shared memory that are resident at once; of targets that are not here, as of an older
    one."""
    unit = CDNA3 if machine.vendor == "hip" else CUDA[90 if machine.capability >= 90 else 80]
    by_memory = unit.shared // max(1, shared + unit.reserved)
    return min(by_memory, unit.threads // (machine.num_warps * machine.threads_per_warp), unit.blocks)
