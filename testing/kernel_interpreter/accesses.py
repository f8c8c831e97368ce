"""Global memory: loads, stores and atomics of tensors of pointers, and AMD's of a base and offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation, TensorType, Value
from testing.kernel_interpreter.elements import (
    Array,
    bitcast,
    dtype_of,
    is_float,
    pointee,
    rounded,
    spec,
    unsigned,
    wide,
)
from testing.kernel_interpreter.execution import Program
from testing.kernel_interpreter.integers import element_of
from testing.kernel_interpreter.registry import meaning, optional, pure, segmented


def element_size(pointer: Value) -> int:
    """Bytes of what a pointer, or a tensor of pointers, points to."""
    type_ = pointer.type.element if isinstance(pointer.type, TensorType) else pointer.type
    return dtype_of(pointee(type_)).itemsize


@pure("tt.addptr")
def _add(op: Operation, pointers: Array, offsets: Array) -> Array:
    return np.asarray(pointers + offsets.astype(np.int64) * element_size(op.operands[0]))


def load(program: Program, addresses: Array, dtype: np.dtype[Any], mask: Any = None, other: Any = None) -> Array:
    """Elements at addresses; where the mask is off, ``other``, or something undefined."""
    if mask is None:
        return program.memory.load(addresses, dtype)
    mask = np.broadcast_to(mask, addresses.shape)
    if mask.all():
        return program.memory.load(addresses, dtype)
    if other is None:
        result = program.fill(addresses.shape, dtype)
    else:
        result = np.array(np.broadcast_to(other, addresses.shape))
    result[mask] = program.memory.load(addresses[mask], dtype)
    return result


def store(program: Program, addresses: Array, values: Array, mask: Any = None) -> None:
    if mask is None:
        program.memory.store(addresses, values)
    else:
        mask = np.broadcast_to(mask, addresses.shape)
        program.memory.store(addresses[mask], values[mask])


@meaning("tt.load")
def _load(program: Program, op: Operation, *operands: Array) -> Array:
    segments = segmented(op, operands) or [[v] for v in operands]
    pointers, mask, other = ([*(optional(s) for s in segments), None, None])[:3]
    return load(program, pointers, element_of(op), mask, other)


@meaning("tt.store")
def _store(program: Program, op: Operation, pointers: Array, values: Array, mask: Any = None) -> None:
    store(program, pointers, values, mask)


@meaning("tt.atomic_load")
def _atomic_load(program: Program, op: Operation, pointers: Array, mask: Any = None) -> Array:
    return load(program, pointers, element_of(op), mask)


@meaning("tt.atomic_store")
def _atomic_store(program: Program, op: Operation, pointers: Array, values: Array, mask: Any = None) -> None:
    store(program, pointers, values, mask)


def _by_sign(function: Callable[..., Any], sign: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda old, new: function(sign(old), sign(new))


def _as_is(values: Array) -> Array:
    return values


#: What atomics do, by the number of their kind.
UPDATES: dict[int, Callable[[Array, Array], Array]] = {
    1: np.bitwise_and, 2: np.bitwise_or, 3: np.bitwise_xor, 4: _by_sign(np.add, unsigned),
    5: lambda old, new: np.add(wide(old), wide(new)), 6: _by_sign(np.fmax, wide), 7: _by_sign(np.fmin, wide),
    8: _by_sign(np.maximum, unsigned), 9: _by_sign(np.minimum, unsigned), 10: lambda old, new: new,
}


def update(program: Program, kind: int, addresses: Array, values: Array, mask: Any = None) -> Array:
    """What stood at the addresses before each element's update."""
    change = UPDATES.get(kind)
    if change is None:
        raise ProgramError(f"the interpreter does not know atomics of kind {kind}")
    dtype = values.dtype
    kept = np.ones(addresses.shape, bool) if mask is None else np.broadcast_to(mask, addresses.shape)
    chosen = values[kept].reshape(-1)

    def changed(old: Array, which: Array) -> Array:
        if kind == 4 and is_float(dtype):
            found = np.add(wide(old), wide(chosen[which]))
        else:
            found = np.asarray(change(old, chosen[which]))
        return rounded(found, dtype) if is_float(dtype) else bitcast(found, dtype)

    result = program.fill(addresses.shape, dtype)
    result[kept] = program.memory.update(addresses[kept], changed, dtype)
    return result


@meaning("tt.atomic_rmw")
def _atomic(program: Program, op: Operation, pointers: Array, values: Array, mask: Any = None) -> Array:
    kind = op.integer("atomic_rmw_op")
    assert kind is not None
    return update(program, kind, pointers, values, mask)


def exchange(program: Program, addresses: Array, compared: Array, values: Array) -> Array:
    """What stood at the addresses; where its bits are those compared with, it is replaced."""
    dtype = values.dtype
    bits = np.dtype(f"i{dtype.itemsize}")
    expected, new = bitcast(compared, bits).reshape(-1), values.reshape(-1)

    def changed(old: Array, which: Array) -> Array:
        return np.where(bitcast(old, bits) == expected[which], new[which], old)

    return program.memory.update(addresses, changed, dtype)


@meaning("tt.atomic_cas")
def _compare_and_swap(program: Program, op: Operation, pointers: Array, compared: Array, values: Array) -> Array:
    return exchange(program, pointers, compared, values)


def cells(pointer: Value, base: Array, offsets: Array) -> Array:
    """Addresses from a base and offsets in elements, which a buffer access takes without a sign."""
    return np.asarray(base + unsigned(offsets).astype(np.int64) * element_size(pointer))


@meaning("amdg.buffer_load")
def _buffer_load(program: Program, op: Operation, *operands: Array) -> Array:
    """Where the mask is off and no ``other`` is given, the hardware's answer to accesses out of range: 0."""
    base, offsets, _, mask, other = (optional(s) for s in segmented(op, operands))
    dtype = element_of(op)
    return load(program, cells(op.operands[0], base, offsets), dtype, mask, np.zeros((), dtype) if other is None
                else other)


@meaning("amdg.buffer_store")
def _buffer_store(program: Program, op: Operation, *operands: Array) -> None:
    values, base, offsets, _, mask = (optional(s) for s in segmented(op, operands))
    store(program, cells(op.operands[1], base, offsets), values, mask)


@meaning("amdg.buffer_atomic_rmw")
def _buffer_atomic(program: Program, op: Operation, *operands: Array) -> Array:
    base, offsets, values, _, mask = (optional(s) for s in segmented(op, operands))
    kind = op.integer("atomic_rmw_op")
    assert kind is not None
    return update(program, kind, cells(op.operands[0], base, offsets), values, mask)


@meaning("amdg.buffer_atomic_cas")
def _buffer_exchange(program: Program, op: Operation, *operands: Array) -> Array:
    base, offsets, compared, values = operands[:4]
    return exchange(program, cells(op.operands[0], base, offsets), compared, values)


@meaning("ttg.global_scratch_alloc")
def _scratch(program: Program, op: Operation) -> Array:
    size = op.integer("nbytes")
    assert size is not None
    found = spec(op.results[0].type)
    assert found is not None
    return np.asarray(program.memory.place(program.fill((size,), np.dtype(np.uint8))), np.int64)
