"""Shared memory: allocations, views of them, copies in and out. Asynchronous copies happen where they are issued."""

from __future__ import annotations

from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation, TensorType, Value
from eggshard.triton.kernels.text import read_type, split
from testing.kernel_interpreter.accesses import cells, load
from testing.kernel_interpreter.elements import Array, dtype_of
from testing.kernel_interpreter.execution import Program
from testing.kernel_interpreter.registry import meaning, optional, pure, segmented


def described_memory(value: Value) -> TensorType:
    """Shape, elements and encoding of a memory descriptor's type (``!ttg.memdesc<128x32xf16, #shared, ...>``)."""
    text = str(value.type)
    if not text.startswith("!ttg.memdesc<"):
        raise ProgramError(f"not a memory descriptor: {text}")
    inner = split(text[len("!ttg.memdesc<"):-1])
    found = read_type(f"tensor<{inner[0]}, {inner[1]}>")
    assert isinstance(found, TensorType)
    return found


class Shared:
    """A view of shared (or tensor) memory: an array that shares its cells with the allocation."""

    def __init__(self, cells: Array) -> None:
        self.cells = cells


def fresh(program: Program, value: Value) -> Shared:
    type_ = described_memory(value)
    return Shared(program.fill(type_.shape, dtype_of(type_.element)))


@meaning("ttg.local_alloc", "ttng.tmem_alloc")
def _allocate(program: Program, op: Operation, initial: Any = None) -> Any:
    memory = fresh(program, op.results[0])
    if initial is not None:
        memory.cells[...] = initial
    return (memory, None)[:len(op.results)]


@pure("ttg.local_dealloc", "ttg.async_commit_group", "ttg.async_wait", "amdg.async_wait", "ttng.async_tma_store_wait")
def _waited(op: Operation, *operands: Any) -> Any:
    return (None,) * len(op.results)


@pure("ttg.local_load", "amdg.local_load_packed_transposed")
def _local_load(op: Operation, memory: Shared, token: Any = None) -> Array:
    if op.name != "ttg.local_load" and memory.cells.shape != op.results[0].type.shape:  # type: ignore[union-attr]
        raise ProgramError("packed elements are not known")
    return memory.cells.copy()


@pure("ttg.local_store")
def _local_store(op: Operation, values: Array, memory: Shared) -> None:
    memory.cells[...] = values


def _around(memory: Shared, indices: Array, axis: int) -> tuple[Array, ...]:
    """Positions of a gather or a scatter along an axis."""
    positions: list[Array] = list(np.indices(indices.shape, sparse=True))
    positions[axis] = indices.astype(np.int64)
    if ((indices < 0) | (indices >= memory.cells.shape[axis])).any():
        raise ProgramError(f"an index is outside of the {memory.cells.shape[axis]} elements of dimension {axis}")
    return tuple(positions)


@pure("ttg.local_gather")
def _local_gather(op: Operation, memory: Shared, indices: Array, token: Any = None) -> Array:
    return np.asarray(memory.cells[_around(memory, indices, op.integer("axis") or 0)])


@pure("ttg.local_scatter")
def _local_scatter(op: Operation, memory: Shared, values: Array, indices: Array, token: Any = None) -> None:
    memory.cells[_around(memory, indices, op.integer("axis") or 0)] = values


@pure("ttg.memdesc_index")
def _index(op: Operation, memory: Shared, index: Array) -> Shared:
    number = int(index)
    if not 0 <= number < len(memory.cells):
        raise ProgramError(f"index {number} of a memory of {len(memory.cells)} slices")
    return Shared(memory.cells[number])


@pure("ttg.memdesc_subslice", "ttng.tmem_subslice")
def _subslice(op: Operation, memory: Shared) -> Shared:
    shape = described_memory(op.results[0]).shape
    if op.name == "ttng.tmem_subslice":
        starts = [0] * (len(shape) - 1) + [op.integer("N") or 0]
    else:
        starts = op.integers("offsets")
    return Shared(memory.cells[tuple(slice(s, s + n) for s, n in zip(starts, shape, strict=True))])


@pure("ttg.memdesc_trans")
def _transpose(op: Operation, memory: Shared) -> Shared:
    return Shared(memory.cells.transpose(op.integers("order")))


@pure("ttg.memdesc_reshape")
def _reshape(op: Operation, memory: Shared) -> Shared:
    return Shared(_view(memory.cells, described_memory(op.results[0]).shape))


def _view(cells: Array, shape: tuple[int, ...]) -> Array:
    try:
        return np.reshape(cells, shape, copy=False)
    except ValueError as error:
        raise ProgramError(f"no view of {list(cells.shape)} elements, strided as they are, as {list(shape)}") from error


@pure("ttg.memdesc_reinterpret")
def _reinterpret(op: Operation, memory: Shared) -> Shared:
    """The same bytes as other elements, rows first: where swizzling puts them is left aside."""
    type_ = described_memory(op.results[0])
    flat = _view(memory.cells, (-1,))
    size = int(np.prod(type_.shape))
    return Shared(flat.view(dtype_of(type_.element))[:size].reshape(type_.shape))


@meaning("ttg.async_copy_global_to_local")
def _copy_in(program: Program, op: Operation, *operands: Any) -> Any:
    pointers, memory, mask, other = (optional(s) for s in segmented(op, operands))
    memory.cells[...] = load(program, pointers, memory.cells.dtype, mask, other)
    return (None,) * len(op.results)


@meaning("amdg.buffer_load_to_local")
def _buffer_in(program: Program, op: Operation, *operands: Any) -> Any:
    memory, base, offsets, mask, other, _ = (optional(s) for s in segmented(op, operands))
    dtype = memory.cells.dtype
    absent = np.zeros((), dtype) if other is None else other
    memory.cells[...] = load(program, cells(op.operands[1], base, offsets), dtype, mask, absent)
    return (None,) * len(op.results)
