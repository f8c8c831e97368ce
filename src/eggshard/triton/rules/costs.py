"""What ops cost at an encoding: instructions of warps, all warps of a block added up."""

from __future__ import annotations

import math
from functools import cache

from eggshard.kernels.ir import Operation, Value
from eggshard.layouts.counts import NOTHING, Counts
from eggshard.layouts.encodings import Encoding
from eggshard.layouts.families import linear_layout
from eggshard.layouts.linear import LinearLayout
from eggshard.layouts.machine import Machine
from eggshard.triton.rules.rule import Option

#: The widest access of a thread to memory, in bits (``ld.global.v4.b32``, ``global_load_dwordx4``).
WIDEST = 128


@cache
def bits(element: str) -> int:
    """The width of an element: ``f16``, ``i1``, pointers."""
    if "ptr" in element:
        return 64
    digits = "".join(c for c in element.partition("E")[0].lstrip("abcdefghijklmnopqrstuvwxyz") if c.isdigit())
    return int(digits) if digits else 64


def layout_of(value: Value, encoding: Encoding | None, machine: Machine) -> LinearLayout | None:
    """The layout of a tensor at an encoding, without duplicate registers; None if it is not understood."""
    if value.tensor is None or encoding is None:
        return None
    found = linear_layout(encoding, value.tensor.shape, machine)
    return None if found is None else found.without_duplicates()


def registers(value: Value, encoding: Encoding | None, machine: Machine) -> int:
    """How many different elements a thread holds of a tensor; of a layout that is not understood an even share."""
    assert value.tensor is not None
    found = layout_of(value, encoding, machine)
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
    """One instruction of a class per register, two where elements are 64 bits wide."""
    found = measured(op, option)
    if kind is None or found is None:
        return NOTHING
    value, encoding = found
    assert value.tensor is not None
    each = 2 if bits(value.tensor.element) == 64 else 1
    return Counts(((kind, float(each * registers(value, encoding, machine) * machine.num_warps)),))


def accesses(value: Value, encoding: Encoding, element: str, machine: Machine, widest: int = WIDEST) -> float:
    """Instructions that read or write a tensor in memory, each as wide as neighbouring elements lie in a thread."""
    count = registers(value, encoding, machine)
    layout = layout_of(value, encoding, machine)
    width = 1 if layout is None else contiguous(layout)
    width = max(1, min(width, count, widest // max(8, bits(element))))
    return float(count // width * machine.num_warps)


def contiguous(layout: LinearLayout) -> int:
    """How many neighbouring elements of a row-major tensor, or of another order of its dimensions, the first registers
    of a thread hold."""
    best = 1
    bases = layout.bases("register")
    for dim in range(len(layout.shape)):
        run = 1
        while any(basis[dim] == run and sum(basis) == run for basis in bases):
            run *= 2
        best = max(best, run)
    return best
