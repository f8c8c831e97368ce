"""From arguments to outputs: buffers for pointers, scalars by their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Kernel, Operation, Value
from testing.kernel_interpreter import (
    accesses,
    combining,
    control,
    descriptors,
    dots,
    floats,
    integers,
    nvidia,
    shapes,
    shared,
)
from testing.kernel_interpreter.elements import Array, dtype_of, is_float, pointee
from testing.kernel_interpreter.execution import Program, Watch
from testing.kernel_interpreter.memory import Memory

#: The families of ops, which enter their meanings by being imported.
FAMILIES = (accesses, combining, control, descriptors, dots, floats, integers, nvidia, shapes, shared)


def run(kernel: Kernel, arguments: Sequence[Any], grid: tuple[int, ...] = (1, 1, 1), function: str | None = None, *,
        undefined: int = 0, watch: Watch | None = None) -> list[Array]:
    """Runs a kernel's function for every instance of a grid, one after the other; layouts do not matter.

    arguments: in the function's order. For a pointer an array, of the elements pointed to (any shape; its elements in
    row-major order are the buffer; the array itself is not written); one array given twice is one buffer. For a
    number a Python or NumPy scalar.
    function: its name; by default the one public function.
    undefined: the byte that undefined values consist of (masked elements without ``other``, fresh shared memory).
    watch: called with every op after it has run.

    Returns the arrays given for pointers, in order, as the kernel left them. Raises `ProgramError` naming the op for
    what is not understood, for accesses out of bounds, failed assertions, and arguments that do not fit.
    """
    found = entry(kernel, function)
    parameters = found.regions[0].blocks[0].arguments
    if len(parameters) != len(arguments):
        raise ProgramError(f"{found.attribute('sym_name')} takes {len(parameters)} arguments, not {len(arguments)}")
    x, y, z = (*grid, 1, 1, 1)[:3]
    if len(grid) > 3 or min(x, y, z) < 1:
        raise ProgramError(f"a grid has up to three sizes of at least 1: {grid}")
    memory = Memory()
    placed: dict[int, int] = {}
    passed = [_argument(p, a, memory, placed) for p, a in zip(parameters, arguments, strict=True)]
    Program(kernel, memory, (x, y, z), undefined, watch).run(found, passed)
    return [memory.contents(placed[id(a)], np.asarray(a)) for a in arguments if id(a) in placed]


def entry(kernel: Kernel, name: str | None) -> Operation:
    """The function of a name; by default the one public function."""
    named = {(op.attribute("sym_name") or "").strip('"'): op for op in kernel.functions}
    if name is not None:
        if name not in named:
            raise ProgramError(f"the kernel has no function {name!r} (but {', '.join(named)})")
        return named[name]
    public = [op for op in named.values() if (op.attribute("sym_visibility") or '"public"') == '"public"']
    if len(public) != 1:
        raise ProgramError(f"say which function to run: {', '.join(named)}")
    return public[0]


def _argument(parameter: Value, given: Any, memory: Memory, placed: dict[int, int]) -> Any:
    type_ = parameter.type
    if isinstance(type_, str) and type_.startswith("!tt.ptr<"):
        element = dtype_of(pointee(type_))
        if not isinstance(given, np.ndarray) or not _fits(given.dtype, element):
            what = f"an array of {given.dtype}" if isinstance(given, np.ndarray) else repr(given)
            raise ProgramError(f"argument {parameter.index} is a {type_}: it takes an array of {element}, not {what}")
        if id(given) not in placed:
            placed[id(given)] = memory.place(given)
        return np.asarray(placed[id(given)], np.int64)
    if isinstance(type_, str) and type_.startswith("!tt.tensordesc<"):
        if not isinstance(given, np.ndarray):
            raise ProgramError(f"argument {parameter.index} is a {type_}: it takes the whole tensor's array")
        if id(given) not in placed:
            placed[id(given)] = memory.place(given)
        return descriptors.described_by(given, placed[id(given)], type_)
    if not isinstance(type_, str):
        raise ProgramError(f"argument {parameter.index} is a tensor: such functions are only called")
    dtype = dtype_of(type_)
    if is_float(dtype):
        return np.asarray(given).astype(dtype)
    number, bits = int(given), 1 if dtype == np.bool_ else 8 * dtype.itemsize
    if not -(1 << bits) < 2 * number < 1 << (bits + 1):
        raise ProgramError(f"argument {parameter.index} is an {type_}, which does not hold {number}")
    return np.asarray(np.uint64(number & ((1 << bits) - 1)).astype(dtype))


def _fits(given: np.dtype[Any], element: np.dtype[Any]) -> bool:
    return given == element or (given.kind in "biu" and element.kind in "bi" and given.itemsize == element.itemsize)
