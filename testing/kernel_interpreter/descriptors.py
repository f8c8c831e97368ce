"""Tensor descriptors: blocks of a strided tensor in global memory, as Triton and NVIDIA's copy engine see them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation, TensorType, Type
from eggshard.triton.kernels.text import read_type, split
from testing.kernel_interpreter.accesses import UPDATES, load, store, update
from testing.kernel_interpreter.concurrency import barrier_at
from testing.kernel_interpreter.elements import Array, dtype_of
from testing.kernel_interpreter.execution import Program
from testing.kernel_interpreter.registry import meaning, pure, segmented
from testing.kernel_interpreter.shapes import shape_of
from testing.kernel_interpreter.shared import Shared

#: The number of the update that ``descriptor_reduce`` of a kind does: add, min, max, inc, dec, and, or, xor.
_KINDS = {1: 4, 2: 7, 3: 6, 6: 1, 7: 2, 8: 3}
_UNSIGNED = re.compile(r"ui\d+$")


@dataclass(frozen=True)
class Descriptor:
    """A tensor in global memory: address, sizes, strides in elements, the block that is moved at once, and what
    stands for elements outside (0, or NaN)."""

    base: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]
    dtype: np.dtype[Any]
    padding: float = 0.0


def block_of(type_: Type) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and elements of a descriptor's block, from its type's text."""
    text = str(type_)
    if not text.startswith("!tt.tensordesc<"):
        raise ProgramError(f"not a tensor descriptor: {text}")
    inner = text[len("!tt.tensordesc<"):-1]
    found = read_type(inner if inner.startswith("tensor<") else f"tensor<{split(inner)[0]}>")
    assert isinstance(found, TensorType)
    return found.shape, dtype_of(_UNSIGNED.sub(lambda m: m[0][1:], found.element))


def described_by(array: Array, base: int, type_: Type) -> Descriptor:
    """The descriptor of a whole array, rows first."""
    block, dtype = block_of(type_)
    strides = tuple(int(np.prod(array.shape[i + 1:], dtype=np.int64)) for i in range(array.ndim))
    return Descriptor(base, array.shape, strides, block, dtype)


@pure("tt.make_tensor_descriptor")
def _make(op: Operation, base: Array, *numbers: Array) -> Descriptor:
    block, dtype = block_of(op.results[0].type)
    rank = len(numbers) // 2
    sizes = tuple(int(n) & 0xFFFFFFFF for n in numbers[:rank])
    padding = op.integer("padding") or 0
    return Descriptor(int(base), sizes, tuple(int(n) for n in numbers[rank:2 * rank]), block, dtype,
                      float("nan") if padding == 2 else 0.0)


def _cells(descriptor: Descriptor, indices: Sequence[Array], shape: Sequence[int]) -> tuple[Array, Array]:
    """Addresses of the elements at indices (one array per dimension, broadcast), and which lie in the tensor."""
    inside = np.ones(shape, bool)
    cells = np.zeros(shape, np.int64)
    for index, size, stride in zip(indices, descriptor.sizes, descriptor.strides, strict=True):
        inside &= (index >= 0) & (index < size)
        cells += index * stride
    return np.asarray(descriptor.base + cells * descriptor.dtype.itemsize), inside


def block_at(descriptor: Descriptor, offsets: Sequence[Any]) -> tuple[Array, Array]:
    grid = np.indices(descriptor.block, np.int64, sparse=True)
    return _cells(descriptor, [np.asarray(g + int(o)) for g, o in zip(grid, offsets, strict=True)], descriptor.block)


def rows_at(descriptor: Descriptor, rows: Array, column: Any) -> tuple[Array, Array]:
    columns = np.arange(descriptor.block[-1], dtype=np.int64) + int(column)
    shape = (len(rows), len(columns))
    return _cells(descriptor, [rows.astype(np.int64)[:, None], columns[None, :]], shape)


def read(program: Program, descriptor: Descriptor, cells: tuple[Array, Array]) -> Array:
    outside = np.asarray(descriptor.padding).astype(descriptor.dtype)
    return load(program, cells[0], descriptor.dtype, cells[1], outside)


@meaning("tt.descriptor_load")
def _load(program: Program, op: Operation, descriptor: Descriptor, *offsets: Array) -> Array:
    return read(program, descriptor, block_at(descriptor, offsets)).reshape(shape_of(op))


@meaning("tt.descriptor_store")
def _store(program: Program, op: Operation, descriptor: Descriptor, values: Array, *offsets: Array) -> None:
    addresses, inside = block_at(descriptor, offsets)
    store(program, addresses, values.reshape(descriptor.block), inside)


def reduce(program: Program, op: Operation, descriptor: Descriptor, values: Array, offsets: Sequence[Any]) -> None:
    kind = _KINDS.get(op.integer("kind") or 0)
    if kind is None or kind not in UPDATES:
        raise ProgramError(f"the interpreter does not know reductions of kind {op.attribute('kind')}")
    addresses, inside = block_at(descriptor, offsets)
    update(program, kind, addresses, values.reshape(descriptor.block), inside)


@meaning("tt.descriptor_reduce")
def _reduce(program: Program, op: Operation, descriptor: Descriptor, values: Array, *offsets: Array) -> None:
    reduce(program, op, descriptor, values, offsets)


@meaning("tt.descriptor_gather")
def _gather(program: Program, op: Operation, descriptor: Descriptor, rows: Array, column: Array) -> Array:
    return read(program, descriptor, rows_at(descriptor, rows, column))


@meaning("tt.descriptor_scatter")
def _scatter(program: Program, op: Operation, descriptor: Descriptor, rows: Array, column: Array,
             values: Array) -> None:
    addresses, inside = rows_at(descriptor, rows, column)
    store(program, addresses, values, inside)


@meaning("ttng.async_tma_copy_global_to_local")
def _copy_in(program: Program, op: Operation, *operands: Any) -> None:
    (descriptor,), offsets, around, (barrier,), (memory,), (predicate,) = segmented(op, operands)
    if around:
        raise ProgramError("im2col copies are not known")
    if predicate:
        memory.cells[...] = read(program, descriptor, block_at(descriptor, offsets)).reshape(memory.cells.shape)
        barrier_at(program, barrier).change(expected=-memory.cells.nbytes)


@meaning("ttng.async_tma_copy_local_to_global", "ttng.async_tma_reduce")
def _copy_out(program: Program, op: Operation, descriptor: Descriptor, *operands: Any) -> tuple[Any, ...]:
    offsets, memory = operands[:len(descriptor.sizes)], operands[len(descriptor.sizes)]
    if op.name == "ttng.async_tma_reduce":
        reduce(program, op, descriptor, memory.cells, offsets)
    else:
        addresses, inside = block_at(descriptor, offsets)
        store(program, addresses, memory.cells.reshape(descriptor.block), inside)
    return (None,) * len(op.results)


@meaning("ttng.async_tma_gather")
def _gather_in(program: Program, op: Operation, descriptor: Descriptor, rows: Array, column: Array, barrier: Shared,
               memory: Shared, predicate: Array) -> None:
    if predicate:
        memory.cells[...] = read(program, descriptor, rows_at(descriptor, rows, column))
        barrier_at(program, barrier).change(expected=-memory.cells.nbytes)


@meaning("ttng.async_tma_scatter")
def _scatter_out(program: Program, op: Operation, descriptor: Descriptor, rows: Array, column: Array,
                 memory: Shared) -> tuple[Any, ...]:
    addresses, inside = rows_at(descriptor, rows, column)
    store(program, addresses, memory.cells, inside)
    return (None,) * len(op.results)


@meaning("ttng.tensormap_create")
def _create(program: Program, op: Operation, *operands: Any) -> None:
    """A descriptor in memory: remembered by its address. Its dimensions are given fastest first, strides in bytes."""
    (where,), (base,), box, sizes, strides, steps = segmented(op, operands)
    if any(int(step) != 1 for step in steps):
        raise ProgramError("descriptors that leave out elements are not known")
    program.state["descriptor", int(where)] = (
        int(base), [int(n) for n in sizes][::-1], [int(n) for n in strides][::-1], op.integer("fill_mode") or 0)


@meaning("ttng.reinterpret_tensor_descriptor", "tt.reinterpret_tensor_descriptor")
def _reinterpret(program: Program, op: Operation, where: Array) -> Descriptor:
    if ("descriptor", int(where)) not in program.state:
        raise ProgramError("no descriptor was made at this address")
    base, sizes, strides, fill = program.state["descriptor", int(where)]
    block, dtype = block_of(op.results[0].type)
    return Descriptor(base, tuple(sizes), (*(n // dtype.itemsize for n in strides), 1), block, dtype,
                      float("nan") if fill else 0.0)
