"""What a kernel costs as it stands: its ops at their layouts and its conversions, as often as their blocks run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from eggshard.costmodel.layouts import LayoutCostModel
from eggshard.kernels.ir import Kernel, Operation, Value
from eggshard.layouts.conversion import Conversion, conversion
from eggshard.layouts.families import linear_layout
from eggshard.layouts.machine import Machine
from eggshard.triton.candidates import encoding_of
from eggshard.triton.classes import CONVERT
from eggshard.triton.control import ties
from eggshard.triton.frequencies import USUAL, Frequencies, frequencies
from eggshard.triton.rules import current, work
from eggshard.triton.rules.costs import bits


class Priced(NamedTuple):
    """One op of a kernel: how often it runs, what it costs altogether, and for conversions what it is."""

    op: Operation
    times: float
    cost: float
    conversion: Conversion | None


def priced(kernel: Kernel, model: LayoutCostModel, assumed: Frequencies = USUAL) -> Iterator[Priced]:
    """All ops of a kernel on tensors, in the text's order, with their prices in the model's units."""
    times, machine = frequencies(kernel, assumed), Machine.of(kernel)
    for op in kernel.walk():
        if op.parent is None or ties(op) is not None or not any(_laid(v) for v in (*op.operands, *op.results)):
            continue
        if op is op.parent.terminator:
            continue
        if op.name == CONVERT:
            found = conversion_of(op, machine)
            cost = 0.0 if found is None else model.price(found.counts)
            yield Priced(op, times[op.parent], times[op.parent] * cost, found)
        else:
            yield Priced(op, times[op.parent], times[op.parent] * model.price(work(op, current(op), machine)), None)


def cost(kernel: Kernel, model: LayoutCostModel, assumed: Frequencies = USUAL) -> float:
    """The kernel's modelled cost."""
    return sum(found.cost for found in priced(kernel, model, assumed))


def conversion_of(op: Operation, machine: Machine) -> Conversion | None:
    """What a ``ttg.convert_layout`` moves; None where a layout is not understood."""
    source, target = op.operands[0], op.results[0]
    assert source.tensor is not None
    layouts = [linear_layout(encoding_of(v), source.tensor.shape, machine) for v in (source, target)]
    if layouts[0] is None or layouts[1] is None:
        return None
    return conversion(layouts[0], layouts[1], bits(source.tensor.element), machine)


def _laid(value: Value) -> bool:
    return value.tensor is not None and value.tensor.encoding is not None
