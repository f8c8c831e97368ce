"""Encodings derived from encodings by their fields alone: dimensions permuted, expanded, appended and dropped."""

from __future__ import annotations

from collections.abc import Sequence

from eggshard.triton.layouts.encodings import Encoding, make

BLOCKED, SLICE, LINEAR, DOT_OPERAND = "ttg.blocked", "ttg.slice", "ttg.linear", "ttg.dot_op"
_BLOCKED_FIELDS = ("sizePerThread", "threadsPerWarp", "warpsPerCTA", "order")
_LINEAR_FIELDS = ("register", "lane", "warp", "block")

#: Basis vectors per hardware dimension.
Bases = tuple[tuple[tuple[int, ...], ...], ...]


def blocked(
    size_per_thread: Sequence[int], threads_per_warp: Sequence[int], warps: Sequence[int], order: Sequence[int]
) -> Encoding:
    return make(BLOCKED, sizePerThread=tuple(size_per_thread), threadsPerWarp=tuple(threads_per_warp),
                warpsPerCTA=tuple(warps), order=tuple(order))


def blocked_fields(encoding: Encoding) -> tuple[tuple[int, ...], ...] | None:
    """Size per thread, threads, warps and order of a blocked encoding; None of others, and of one over several CTAs."""
    if encoding.kind != BLOCKED or {name for name, _ in encoding.fields} != set(_BLOCKED_FIELDS):
        return None
    return tuple(encoding.ints(name) for name in _BLOCKED_FIELDS)


def sliced(dim: int, parent: Encoding) -> Encoding:
    return make(SLICE, dim=dim, parent=parent)


def linear(bases: Bases) -> Encoding:
    return make(LINEAR, **dict(zip(_LINEAR_FIELDS, bases, strict=True)))


def linear_bases(encoding: Encoding) -> Bases | None:
    """The bases of a linear encoding; None of others."""
    if encoding.kind != LINEAR:
        return None
    found = []
    for name in _LINEAR_FIELDS:
        value = encoding.get(name, ())
        assert isinstance(value, tuple)
        found.append(value)
    return tuple(found)


def permuted(encoding: Encoding, order: Sequence[int]) -> Encoding | None:
    """The encoding of a tensor whose dimension ``i`` was ``order[i]``; None where it has none by its fields alone."""
    if list(order) == sorted(order):
        return encoding
    fields = blocked_fields(encoding)
    if fields is not None:
        inverse = {d: i for i, d in enumerate(order)}
        sizes = [[field[d] for d in order] for field in fields[:3]]
        return blocked(sizes[0], sizes[1], sizes[2], [inverse[d] for d in fields[3]])
    if encoding.kind == SLICE:
        dim = encoding.integer("dim")
        above = [d if d < dim else d + 1 for d in order]
        parent = permuted(encoding.parent, [*above[:dim], dim, *above[dim:]])
        return None if parent is None else sliced(dim, parent)
    bases = linear_bases(encoding)
    if bases is not None:
        return linear(tuple(tuple(tuple(basis[d] for d in order) for basis in some) for some in bases))
    return None


def opened(encoding: Encoding, axis: int, size: int) -> Encoding | None:
    """An encoding with one more dimension, all of it in the registers of each thread, whose slice lies as the given
    encoding does; None where there is none by its fields alone. ``size``: of the dimension."""
    fields = blocked_fields(encoding)
    if fields is not None:
        sizes = [[*field[:axis], 1, *field[axis:]] for field in fields[:3]]
        order = [d if d < axis else d + 1 for d in fields[3]]
        return blocked(sizes[0], sizes[1], sizes[2], [*order, axis])
    if encoding.kind == SLICE:
        dim = encoding.integer("dim")
        parent = opened(encoding.parent, axis if axis <= dim else axis + 1, size)
        return None if parent is None else sliced(dim + 1 if axis <= dim else dim, parent)
    bases = linear_bases(encoding)
    if bases is not None:
        wider = [[(*basis[:axis], 0, *basis[axis:]) for basis in some] for some in bases]
        rank = len(_any(bases)) + 1
        wider[0] += [tuple(1 << bit if d == axis else 0 for d in range(rank)) for bit in range(size.bit_length() - 1)]
        return linear(tuple(tuple(some) for some in wider))
    return None


def _any(bases: Bases) -> tuple[int, ...]:
    return next(basis for some in bases for basis in some)


def joined(encoding: Encoding, rank: int) -> Encoding | None:
    """The encoding of two tensors of a rank side by side in a new last dimension; None where its fields give none."""
    fields = blocked_fields(encoding)
    if fields is not None:
        return blocked([*fields[0], 2], [*fields[1], 1], [*fields[2], 1], [rank, *fields[3]])
    bases = linear_bases(encoding)
    if bases is not None:
        wider = [[(*basis, 0) for basis in some] for some in bases]
        wider[0] = [(*(0,) * rank, 1), *wider[0]]
        return linear(tuple(tuple(some) for some in wider))
    return None


def halved(encoding: Encoding) -> Encoding | None:
    """The encoding of either half of a tensor along its last dimension, of size 2, where each thread has both; None
    where its fields give none."""
    fields = blocked_fields(encoding)
    if fields is not None:
        if (fields[0][-1], fields[1][-1], fields[2][-1]) != (2, 1, 1):
            return None
        last = len(fields[0]) - 1
        return blocked(fields[0][:-1], fields[1][:-1], fields[2][:-1], [d for d in fields[3] if d != last])
    bases = linear_bases(encoding)
    if bases is not None:
        pair = (*(0,) * (len(_any(bases)) - 1), 1)
        if bases[0].count(pair) != 1 or any(basis[-1] for some in bases for basis in some if basis != pair):
            return None
        if any(pair in some for some in bases[1:]):
            return None
        kept = (tuple(basis for basis in bases[0] if basis != pair), *bases[1:])
        return linear(tuple(tuple(basis[:-1] for basis in some) for some in kept))
    return None
