"""Whether two kernels mean the same: run on the same memory, they must leave the same bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from eggshard.errors import ProgramError, VerificationError
from eggshard.triton.kernels.ir import Kernel, Operation, Value
from eggshard.triton.kernels.text import split
from eggshard.triton.layouts.encodings import read
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import equal
from testing.kernel_interpreter.descriptors import Descriptor, block_of
from testing.kernel_interpreter.elements import dtype_of, is_float
from testing.kernel_interpreter.endless import Endless, difference
from testing.kernel_interpreter.execution import Program
from testing.kernel_interpreter.running import entry

#: What undefined elements consist of here: floats near one hundredth and one, integers that stand out.
_UNDEFINED = 0x3C
_DIVISIBLE = re.compile(r"tt\.divisibility = (\d+)")


class Judgement(NamedTuple):
    """What two kernels were compared on. pages: of memory that was written. unreached: ops of the given kernel that
    did not run; about what they do nothing is known."""

    pages: int
    unreached: tuple[Operation, ...]


def judge(given: Kernel, rewritten: Kernel, *, numbers: Mapping[int, Any] | None = None,
          grid: tuple[int, int, int] = (2, 1, 1), function: str | None = None, seed: int = 0,
          tolerance: float = 0.0) -> Judgement:
    """Raises `VerificationError` unless a rewritten kernel leaves what the given one leaves, bit for bit.

    Pointers get memory without bounds, of drawn contents. numbers: the other arguments by position; those not given
    are a few hundred and different, integers multiples of what the function's attributes say. grid: the instances run.
    tolerance: floats may differ by it, relative to the larger of 1 and their size: for rewrites that sum in another
    order, which new layouts are not.
    Ops that place elements by their encodings (concatenations, reshapes that may reorder) must keep the given ones, but
    for reshapes that keep the order at the given ones and at theirs: here all are run in one order. Raises
    `ProgramError` for ops that are not understood, and where the kernels' arguments differ.
    """
    functions = [entry(kernel, function) for kernel in (given, rewritten)]
    types, others = ([str(p.type) for p in f.regions[0].blocks[0].arguments] for f in functions)
    if types != others:
        raise ProgramError(f"the kernels take different arguments: {', '.join(types)} and {', '.join(others)}")
    (moves, keeps), (ours_moves, ours_keeps) = map(_by_order, (given, rewritten))
    for text in (ours_moves - moves) | (ours_keeps - keeps if moves - ours_moves else set()):
        raise VerificationError(f"the rewritten kernel orders elements otherwise: {text}")
    reached: set[Operation] = set()
    memories = []
    for kernel, found in zip((given, rewritten), functions, strict=True):
        memory = Endless(seed)
        arguments = [_argument(found, p, memory, numbers or {}) for p in found.regions[0].blocks[0].arguments]
        Program(kernel, memory, grid, _UNDEFINED, reached.add if kernel is given else None).run(found, arguments)
        memories.append(memory)
    fault = difference(memories[0], memories[1], tolerance)
    if fault is not None:
        raise VerificationError(f"the rewritten kernel computes something else: {fault}")
    unreached = [op for block in functions[0].regions[0].blocks for top in block.operations for op in top.walk()
                 if op not in reached and not (op.parent is not None and op is op.parent.operations[-1])]
    return Judgement(len(memories[0].written), tuple(unreached))


def _argument(function: Operation, parameter: Value, memory: Endless, numbers: Mapping[int, Any]) -> Any:
    type_ = str(parameter.type)
    if type_.startswith("!tt.ptr<"):
        return np.asarray(memory.buffer(), np.int64)
    if type_.startswith("!tt.tensordesc<"):
        block, dtype = block_of(type_)
        sizes = tuple(2 * n for n in block)
        strides = tuple(int(np.prod(sizes[i + 1:])) for i in range(len(sizes)))
        return Descriptor(memory.buffer(), sizes, strides, block, dtype)
    dtype = dtype_of(type_)
    if parameter.index in numbers:
        return np.asarray(numbers[parameter.index]).astype(dtype)
    if dtype == np.bool_:
        return np.asarray(True)
    if is_float(dtype):
        return np.asarray(0.5).astype(dtype)
    attributes = split((function.attribute("arg_attrs") or "[]")[1:-1])
    multiple = _DIVISIBLE.search(attributes[parameter.index]) if attributes else None
    # large enough for most loops over tiles to take several turns
    size = (20 + parameter.index) * int(multiple[1]) if multiple else 269 + 2 * parameter.index
    return np.asarray(size if dtype.itemsize > 1 else 1).astype(dtype)


def _by_order(kernel: Kernel) -> tuple[set[str], set[str]]:
    """The ops whose order of elements depends on encodings, with these: those that change it, or may, and reshapes that
    keep it."""
    moves, keeps = set[str](), set[str]()
    for op in kernel.walk():
        if op.name == "tt.cat" or (op.name == "tt.reshape" and op.attribute("allow_reorder") is not None):
            (keeps if _keeps_order(op) else moves).add(op.described.partition(" at ")[0])
    return moves, keeps


def _keeps_order(op: Operation) -> bool:
    """Whether each thread has the same elements in row-major order before a reshape and after it, in its registers'
    order."""
    before, after = (v.tensor for v in (op.operands[0], op.results[0]))
    if op.name != "tt.reshape" or before is None or after is None or None in (before.encoding, after.encoding):
        return False
    source, target = (linear_layout(read(str(t.encoding)), t.shape) for t in (before, after))
    return source is not None and target is not None and equal(source.reshaped(after.shape), target)
