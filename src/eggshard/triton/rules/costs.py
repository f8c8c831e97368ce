"""Costs of ops at an encoding: instructions of warps, summed over all warps of a block."""

from __future__ import annotations

import math
from functools import cache

from eggshard.triton.kernels.ir import Operation, Value
from eggshard.triton.layouts.counts import NOTHING, Counts
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.gf2 import rank
from eggshard.triton.layouts.linear import LinearLayout, pack
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules.progressions import once, steps
from eggshard.triton.rules.rule import Option

#: The widest access of a thread to memory, in bits (``ld.global.v4.b32``, ``global_load_dwordx4``).
WIDEST = 128
#: The line of a first-level cache, in bytes.
LINE = 128


@cache
def bits(element: str) -> int:
    """The width of an element: ``f16``, ``i1``, pointers."""
    if "ptr" in element:
        return 64
    digits = "".join(c for c in element.partition("E")[0].lstrip("abcdefghijklmnopqrstuvwxyz") if c.isdigit())
    return int(digits) if digits else 64


def layout_of(value: Value, encoding: Encoding | None) -> LinearLayout | None:
    """The layout of a tensor at an encoding, without duplicate registers; None if it is not understood."""
    if value.tensor is None or encoding is None:
        return None
    found = linear_layout(encoding, value.tensor.shape)
    return None if found is None else found.without_duplicates()


def registers(value: Value, encoding: Encoding | None, machine: Machine) -> int:
    """How many different elements a thread holds of a tensor; of a layout that is not understood an even share."""
    assert value.tensor is not None
    found = layout_of(value, encoding)
    if found is not None:
        return found.elements_per_thread
    return max(1, math.prod(value.tensor.shape) // (machine.num_warps * machine.threads_per_warp * machine.num_ctas))


def measured(op: Operation, option: Option) -> tuple[Value, Encoding] | None:
    """The tensor by which an op's work is measured: the first result, else the first operand, that is one."""
    for values, encodings in ((op.results, option.results), (op.operands, option.operands)):
        for value, encoding in zip(values, encodings, strict=True):
            if value.tensor is not None and encoding is not None:
                return value, encoding
    return None


def arithmetic(kind: str | None, op: Operation, option: Option, machine: Machine) -> Counts:
    """One instruction of a class per register, or for all of them (`once`); two where elements are 64 bits wide."""
    found = measured(op, option)
    if kind is None or found is None:
        return NOTHING
    value, encoding = found
    assert value.tensor is not None
    each = 2 if bits(value.tensor.element) == 64 else 1
    count = 1 if once(op) else registers(value, encoding, machine)
    return Counts(((kind, float(each * count * machine.num_warps)),))


def accesses(value: Value, encoding: Encoding, element: str, machine: Machine, fast: int | None = None) -> float:
    """Instructions that read or write a tensor in memory, each as wide as neighbouring elements lie in a thread: along
    the dimension ``fast`` if one is given."""
    count = registers(value, encoding, machine)
    layout = layout_of(value, encoding)
    width = 1 if layout is None else contiguous(layout) if fast is None else _run(layout, fast)
    width = max(1, min(width, count, WIDEST // max(8, bits(element))))
    return float(count // width * machine.num_warps)


def global_accesses(value: Value, encoding: Encoding, pointers: Value, machine: Machine) -> tuple[float, float]:
    """Instructions that access a tensor in global memory, and the lines that they touch altogether.

    Which elements lie side by side is read off the ops that the pointers come of (`progressions.steps`). Where these do
    not say, it is those along the dimension in which a thread holds most neighbours, else the last.
    """
    layout = layout_of(value, encoding)
    assert value.tensor is not None
    element = value.tensor.element
    size = max(8, bits(element)) // 8
    if layout is None:
        count = accesses(value, encoding, element, machine)
        return count, count * max(1, machine.threads_per_warp * size // LINE)
    apart = steps(pointers)
    if 1 in apart:
        fast: int | None = apart.index(1)
    elif None not in apart:
        count = float(registers(value, encoding, machine) * machine.num_warps)
        return count, count * _starts(layout, None, 1)
    else:
        runs = [_run(layout, dim) for dim in range(len(layout.shape))]
        longest = max(runs, default=1)
        wide = [dim for dim, n in enumerate(layout.shape) if n > 1]
        fast = runs.index(longest) if longest > 1 else (wide or [0])[-1]
    count = accesses(value, encoding, element, machine, fast)
    return count, count * _starts(layout, fast, max(1, LINE // size))


def _starts(layout: LinearLayout, fast: int | None, inside: int) -> int:
    """The lines that one access of a warp touches, with so many elements in a line along a dimension."""
    starts = (tuple(i & ~(inside - 1) if dim == fast else i for dim, i in enumerate(b)) for b in layout.bases("lane"))
    return 1 << rank(pack(start, layout.shape) for start in starts)


def contiguous(layout: LinearLayout) -> int:
    """How many neighbouring elements of a row-major tensor, or of another order of its dimensions, the first registers
    of a thread hold."""
    return max((_run(layout, dim) for dim in range(len(layout.shape))), default=1)


def _run(layout: LinearLayout, dim: int) -> int:
    """How many neighbours along a dimension the first registers hold."""
    run, bases = 1, layout.bases("register")
    while any(basis[dim] == run and sum(basis) == run for basis in bases):
        run *= 2
    return run
