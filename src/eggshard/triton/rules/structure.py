"""Encodings by their fields, which say more than a layout at one shape does: how threads lie along sizes of one."""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.triton.layouts.encodings import Encoding, make

BLOCKED, SLICE, LINEAR, DOT_OPERAND = "ttg.blocked", "ttg.slice", "ttg.linear", "ttg.dot_op"
_BLOCKED_FIELDS = ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")


def blocked(
    size_per_thread: Sequence[int], threads_per_warp: Sequence[int], warps: Sequence[int], order: Sequence[int]
) -> Encoding:
    return make(BLOCKED, sizePerThread=tuple(size_per_thread), threadsPerWarp=tuple(threads_per_warp),
                warpsPerCTA=tuple(warps), order=tuple(order))


def sliced(dim: int, parent: Encoding) -> Encoding:
    return make(SLICE, dim=dim, parent=parent)


def opened(encoding: Encoding, axis: int) -> Encoding | None:
    """An encoding with one more dimension, all of it in the registers of each thread, whose slice lies as the given
    encoding does; None but of blocked encodings (over one CTA) and their slices."""
    if encoding.kind == SLICE:
        dim = encoding.integer("dim")
        parent = opened(encoding.parent, axis if axis <= dim else axis + 1)
        return None if parent is None else sliced(dim + 1 if axis <= dim else dim, parent)
    if encoding.kind != BLOCKED or {name for name, _ in encoding.fields} != set(_BLOCKED_FIELDS):
        return None
    *sizes, order = (encoding.ints(name) for name in _BLOCKED_FIELDS)
    wider = [(*size[:axis], 1, *size[axis:]) for size in sizes]
    return blocked(wider[0], wider[1], wider[2], [*(d if d < axis else d + 1 for d in order), axis])
