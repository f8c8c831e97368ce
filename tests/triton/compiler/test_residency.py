"""Blocks of a multiprocessor that are resident at once."""

import pytest

from eggshard.triton.compiler.residency import resident_blocks
from eggshard.triton.layouts.machine import Machine


@pytest.mark.parametrize(("target", "warps", "threads", "shared", "blocks"), [
    ("cuda:80", 4, 32, 0, 16),  # by threads
    ("cuda:80", 4, 32, 8192, 16),
    ("cuda:80", 4, 32, 32768, 4),  # 33 KiB each with what is reserved
    ("cuda:80", 4, 32, 49152, 3),
    ("cuda:90", 8, 32, 49152, 4),
    ("hip:gfx942", 4, 64, 8192, 8),
    ("hip:gfx942", 4, 64, 16384, 4),
    ("cuda:100", 1, 32, 0, 32),  # by blocks
    ("cuda:120", 1, 32, 0, 24),
    ("cuda:89", 4, 32, 49152, 2),
    ("cuda:75", 4, 32, 0, 8),
    ("hip:gfx950", 4, 64, 16384, 8),
    ("hip:gfx1100", 4, 32, 16384, 8),
])
def test_blocks_at_once(target, warps, threads, shared, blocks):
    assert resident_blocks(Machine(target, warps, threads), shared) == blocks


@pytest.mark.parametrize(("target", "warps", "threads", "registers", "blocks"), [
    ("cuda:80", 4, 32, 32, 16),  # 64 warps of 32 registers: by threads
    ("cuda:80", 4, 32, 33, 12),  # given 40: 12 warps on each of four units
    ("cuda:80", 4, 32, 128, 4),
    ("cuda:80", 4, 32, 129, 3),
    ("cuda:90", 8, 32, 255, 1),
    ("hip:gfx942", 4, 64, 64, 8),
    ("hip:gfx942", 4, 64, 72, 7),
    ("hip:gfx942", 4, 64, 260, 1),
    ("hip:gfx1200", 4, 32, 96, 16),  # given 96 of 1536
    ("hip:gfx1200", 4, 32, 97, 12),
])
def test_blocks_at_once_for_their_registers(target, warps, threads, registers, blocks):
    assert resident_blocks(Machine(target, warps, threads), 0, registers) == blocks
