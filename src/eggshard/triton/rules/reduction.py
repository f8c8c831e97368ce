"""Rules of ops that combine elements along a dimension, or that look elements up.

Ops that use the block's own shared memory keep their layouts in clusters, since it lacks other blocks' elements.
"""

from __future__ import annotations

from collections import Counter

from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.layouts.counts import NOTHING, Counts
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.lookup import gather, histogram
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.layouts.reduction import Combination, reduction, scan
from eggshard.triton.rules import structure
from eggshard.triton.rules.costs import bits, layout_of
from eggshard.triton.rules.kinds import KINDS
from eggshard.triton.rules.movement import shape_of
from eggshard.triton.rules.rule import Mapped, Option, Part, Rule, Uniform, both, current, uniform

#: A dimension longer than this is not gathered in single threads in order to reduce it there.
MOST_IN_A_THREAD = 8


class Reduce(Mapped):
    """The results are slices of the operands' encoding, in that spelling; scalars of tensors of one dimension.

    Where the results' encoding is no slice, the dimension that is reduced may lie in each thread's registers.
    """

    def forward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding:
        return structure.sliced(op.integer("axis") or 0, encoding)

    def backward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        if encoding.kind == structure.SLICE and encoding.integer("dim") == op.integer("axis"):
            return encoding.parent
        return None

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        found = super().from_result(op, i, encoding, machine)
        if found:
            return found
        axis = op.integer("axis") or 0
        size = shape_of(op, True)[axis]
        parent = structure.opened(encoding, axis, size) if size <= MOST_IN_A_THREAD else None
        return [] if parent is None else [both(op, parent, self.forward(op, parent, machine))]


    def work(self, op: Operation, option: Option, machine: Machine) -> Counts:
        layout = layout_of(op.operands[0], option.operands[0], machine)
        return NOTHING if layout is None else reduction(layout, op.integer("axis") or 0, combination(op), machine)


class Scan(Uniform):
    """All tensors at one encoding, a blocked one: others verify, but are not lowered."""

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return [uniform(op, encoding)] if encoding.kind == structure.BLOCKED else []

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return self.from_operand(op, i, encoding, machine)

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        return kernel.num_ctas > 1  # no scan crosses blocks

    def movable(self, op: Operation) -> bool:
        return True


    def work(self, op: Operation, option: Option, machine: Machine) -> Counts:
        encoding = option.operands[0]
        layout = layout_of(op.operands[0], encoding, machine)
        if encoding is None or layout is None:
            return NOTHING
        reverse = op.attribute("reverse") == "true"
        return scan(layout, op.integer("axis") or 0, encoding.ints("order"), combination(op), machine, reverse)


class Histogram(Rule):
    """Operand (and mask) and result at one encoding each, whichever: what is asked for with the other's given one, and
    the same on both sides."""

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return _distinct(Option((encoding,) * len(op.operands), current(op).results), uniform(op, encoding))

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return _distinct(Option(current(op).operands, (encoding,)), uniform(op, encoding))

    def parts(self, op: Operation) -> tuple[Part, ...]:
        return Part(operands=tuple(range(len(op.operands)))), Part(results=(0,))

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        return kernel.num_ctas > 1

    def movable(self, op: Operation) -> bool:
        return True


    def work(self, op: Operation, option: Option, machine: Machine) -> Counts:
        source = layout_of(op.operands[0], option.operands[0], machine)
        result = layout_of(op.results[0], option.results[0], machine)
        tensor = op.results[0].tensor
        if source is None or result is None or tensor is None:
            return NOTHING
        return histogram(source, result, bits(tensor.element), machine)


class Gather(Rule):
    """Indices and result at one encoding, the table at another, whichever: what is asked for with the other's given
    one, and the same for all."""

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        (table, indices), results = current(op)
        if i == 0:
            return _distinct(Option((encoding, indices), results), uniform(op, encoding))
        return _distinct(Option((table, encoding), (encoding,)), uniform(op, encoding))

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return self.from_operand(op, 1, encoding, machine)

    def parts(self, op: Operation) -> tuple[Part, ...]:
        return Part(operands=(0,)), Part(operands=(1,), results=(0,))

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        return op.attribute("efficient_layout") is not None or kernel.num_ctas > 1

    def movable(self, op: Operation) -> bool:
        return True

    def work(self, op: Operation, option: Option, machine: Machine) -> Counts:
        table, indices = (layout_of(op.operands[i], option.operands[i], machine) for i in (0, 1))
        tensor = op.operands[0].tensor
        if table is None or indices is None or tensor is None:
            return NOTHING
        return gather(table, indices, op.integer("axis") or 0, bits(tensor.element), machine)


def _distinct(*options: Option) -> list[Option]:
    return list(dict.fromkeys(options))


def combination(op: Operation) -> Combination:
    """How a reduction or scan combines two elements: the ops of its region."""
    inside = [inner for block in op.regions[0].blocks for inner in block.operations[:-1]]
    arithmetic: Counter[str] = Counter()
    for inner in inside:
        kind = KINDS.get(inner.name, "float")
        if kind is not None and inner.results:
            arithmetic[kind] += 2 if bits(str(inner.results[0].type)) == 64 else 1
    widths = tuple(bits(v.tensor.element) for v in op.operands if v.tensor is not None)
    single = inside[0].name if len(inside) == 1 and len(widths) == 1 else None
    return Combination(widths, tuple((name, float(n)) for name, n in sorted(arithmetic.items())), single)
