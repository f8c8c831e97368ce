"""Price of a kernel as it stands: its ops at their layouts and its conversions, times how often their blocks run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from eggshard.triton.candidates import encoding_of
from eggshard.triton.classes import CONVERT, Classes, find_classes
from eggshard.triton.control import ties
from eggshard.triton.frequencies import USUAL, Frequencies, frequencies
from eggshard.triton.kernels.ir import Block, Kernel, Operation
from eggshard.triton.layout_costs import LayoutCostModel, default_costs
from eggshard.triton.layouts.conversion import Conversion, conversion
from eggshard.triton.layouts.counts import NOTHING, Counts
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import current, movable, work
from eggshard.triton.rules.costs import bits, layout_of
from eggshard.triton.rules.rule import is_laid


class Priced(NamedTuple):
    """One op of a kernel: how often it runs, what it issues, what that costs altogether, and for conversions what it
    is."""

    op: Operation
    times: float
    counts: Counts
    cost: float
    conversion: Conversion | None = None

    @property
    def is_conversion(self) -> bool:
        return self.op.name == CONVERT


def priced(kernel: Kernel, model: LayoutCostModel, assumed: Frequencies = USUAL) -> Iterator[Priced]:
    """All ops of a kernel on tensors, in the text's order, with their prices in the model's units.

    Equal ops at one layout are paid once, however that is spelled: the compiler makes the same instructions of them.
    """
    times, machine, classes = frequencies(kernel, assumed), Machine.of(kernel), find_classes(kernel)
    computed: dict[object, list[Block]] = {}
    for op in kernel.walk():
        if op.parent is None or ties(op) is not None or not any(is_laid(v) for v in (*op.operands, *op.results)):
            continue
        if op is op.parent.terminator:
            continue
        often = times[op.parent]
        if op.name == CONVERT:
            found = conversion_of(op, machine)
            counts = NOTHING if found is None else found.counts
            yield Priced(op, often, counts, often * model.price(counts), found)
            continue
        key = _computes(op, classes) if movable(op) else None
        before = computed.setdefault(key, []) if key is not None else []
        paid = any(block in before for block in _around(op))
        before.append(op.parent)
        counts = work(op, current(op), machine)
        yield Priced(op, often, counts, 0.0 if paid else often * model.price(counts))


def _computes(op: Operation, classes: Classes) -> object:
    """The tensors that an op computes and their layouts; None where nothing is said of equal ones."""
    if any(v not in classes.of for v in op.results if v.tensor is not None):
        return None
    return tuple((classes.of[v], layout_of(v, encoding_of(v)) or encoding_of(v))
                 for v in op.results if v.tensor is not None)


def _around(op: Operation) -> Iterator[Block]:
    """The blocks that an op stands in, the innermost first."""
    block = op.parent
    while block is not None:
        yield block
        block = block.around


def cost(kernel: Kernel, model: LayoutCostModel, assumed: Frequencies = USUAL) -> float:
    """The kernel's modelled cost."""
    return sum(found.cost for found in priced(kernel, model, assumed))


def scratch(kernel: Kernel) -> int:
    """The most bytes of shared memory that one op of a kernel holds while it runs, buffers of its own left out."""
    return max((found.counts.scratch for found in priced(kernel, default_costs(kernel.target))), default=0)


def conversion_of(op: Operation, machine: Machine) -> Conversion | None:
    """What a ``ttg.convert_layout`` moves; None where a layout is not understood."""
    source, target = op.operands[0], op.results[0]
    assert source.tensor is not None
    layouts = [linear_layout(encoding_of(v), source.tensor.shape) for v in (source, target)]
    if layouts[0] is None or layouts[1] is None:
        return None
    return conversion(layouts[0], layouts[1], bits(source.tensor.element), machine)
