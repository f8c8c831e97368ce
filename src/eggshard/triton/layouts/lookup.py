"""Costs of gathers and histograms at a layout, which go through shared memory unless they stay within warps."""

from __future__ import annotations

from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.linear import LinearLayout
from eggshard.triton.layouts.machine import Machine


def gather(source: LinearLayout, indices: LinearLayout, axis: int, bits: int, machine: Machine) -> Counts:
    """Looking up elements of ``bits`` along an axis, the results where the indices lie.

    Where warps hold whole columns, and lanes the same columns of both, by shuffles and selects; else the table is
    written to shared memory and read one element at a time (wavefronts as if no two lanes met in a bank).
    """
    table, wanted = source.without_duplicates(), indices.without_duplicates()
    words, warps = max(1, bits // 32), machine.num_warps
    reads = 1 << len(wanted.register)
    if _within_warps(table, wanted, axis):
        mask = table.axis_mask(axis)
        held = 1 << sum(1 for v in table.register if v & mask)
        shuffled = held * words if any(v & mask for v in table.lane) else 0
        return Counts(moves=held * words * reads * warps, shuffles=shuffled * reads * warps)
    writes = (1 << len(table.register)) // _neighbours(table, max(8, bits))
    return Counts(
        shared_stores=writes * warps,
        shared_loads=reads * warps,
        shared_store_wavefronts=writes * words * warps,
        shared_load_wavefronts=reads * words * warps,
        barriers=1,
        scratch=(1 << table.size_log2) * max(8, bits) // 8,
        takeovers=1,
    )


def _neighbours(layout: LinearLayout, bits: int) -> int:
    """Elements of a table that lies in memory with dimension 0 the fastest, up to 128 bits, that the registers of a
    thread hold side by side."""
    count = 1
    while count in layout.register and 2 * count * bits <= 128:
        count *= 2
    return count


def _within_warps(table: LinearLayout, indices: LinearLayout, axis: int) -> bool:
    mask, other = table.axis_mask(axis), indices.axis_mask(axis)
    if any(v & mask for v in table.warp + table.block) or any(v & other for v in indices.warp + indices.block):
        return False
    return all(
        [_columns(table, v, axis) for v in mine] == [_columns(indices, v, axis) for v in theirs]
        for mine, theirs in zip(table.hardware()[1:], indices.hardware()[1:], strict=True))


def _columns(layout: LinearLayout, vector: int, axis: int) -> tuple[int, ...]:
    indices = layout.coordinates(vector)
    return indices[:axis] + indices[axis + 1:]


def histogram(source: LinearLayout, result: LinearLayout, bits: int, machine: Machine) -> Counts:
    """Counting in as many bins as ``result`` has elements (of ``bits``): cleared, added to one by one, read.

    Atomic additions count as stores of two wavefronts.
    """
    (bins,) = result.shape
    warps = machine.num_warps
    threads = warps * machine.threads_per_warp
    clears = max(1, -(-bins // threads))
    adds = source.unique_per_thread
    reads = result.unique_per_thread
    return Counts(
        shared_stores=(clears + adds) * warps,
        shared_loads=reads * warps,
        shared_store_wavefronts=(clears + 2 * adds) * warps,
        shared_load_wavefronts=reads * warps,
        barriers=2,
        scratch=max(bins, machine.threads_per_warp) * bits // 8,
        takeovers=1,
    )
