"""Rules of ops that rename elements: every element stays in its register, at the index that the op gives it."""

from __future__ import annotations

import re

from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.layouts.counts import NOTHING, Counts
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import LinearLayout, equal
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import structure
from eggshard.triton.rules.derived import encoding_of_layout
from eggshard.triton.rules.rule import Mapped, Option, Uniform, both, current, uniform


def shape_of(op: Operation, operand: bool) -> tuple[int, ...]:
    """The shape of the first operand or result, a tensor."""
    tensor = (op.operands if operand else op.results)[0].tensor
    assert tensor is not None
    return tensor.shape


class Broadcast(Uniform):
    """Operand and result share one encoding; every thread holds index 0 of a dimension of size one.

    The verifier asks for less (equal layouts where the operand has elements), so the given option may differ.
    """

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return self._with_given(op, current(op).operands[i], encoding)

    def from_result(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        return self._with_given(op, current(op).results[i], encoding)

    def _with_given(self, op: Operation, given: Encoding | None, encoding: Encoding) -> list[Option]:
        found = [uniform(op, encoding)]
        if encoding == given and current(op) not in found:
            found.append(current(op))
        return found

    def movable(self, op: Operation) -> bool:
        return True


class ExpandDims(Mapped):
    """The operand is a slice of the result's encoding, in that spelling; no other will do."""

    def forward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        if encoding.kind == structure.SLICE and encoding.integer("dim") == op.integer("axis"):
            return encoding.parent
        return None

    def backward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding:
        return structure.sliced(op.integer("axis") or 0, encoding)

    def from_operand(self, op: Operation, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        found = super().from_operand(op, i, encoding, machine)
        if found:
            return found
        parent = structure.opened(encoding, op.integer("axis") or 0, 1)
        return [] if parent is None else [both(op, self.backward(op, parent, machine), parent)]


class Relabelled(Mapped):
    """An op that is a bijection of the bits of the index, given by what it does to linear layouts."""

    def renamed(self, op: Operation, layout: LinearLayout) -> LinearLayout | None:
        """The result's layout where the operand has one."""
        raise NotImplementedError

    def restored(self, op: Operation, layout: LinearLayout) -> LinearLayout | None:
        """The operand's layout where the result has one."""
        raise NotImplementedError

    def forward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        layout = linear_layout(encoding, shape_of(op, True), machine)
        found = None if layout is None else self.renamed(op, layout)
        return None if found is None else encoding_of_layout(found)

    def backward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        layout = linear_layout(encoding, shape_of(op, False), machine)
        found = None if layout is None else self.restored(op, layout)
        return None if found is None else encoding_of_layout(found)

    def work(self, op: Operation, option: Option, machine: Machine) -> Counts:
        return NOTHING


class Transpose(Relabelled):
    """Dimension i of the result is dimension ``order[i]`` of the operand."""

    def renamed(self, op: Operation, layout: LinearLayout) -> LinearLayout:
        return layout.transposed(_order(op))

    def restored(self, op: Operation, layout: LinearLayout) -> LinearLayout:
        return layout.transposed(_inverse(_order(op)))

    def forward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        return structure.permuted(encoding, _order(op)) or super().forward(op, encoding, machine)

    def backward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        return structure.permuted(encoding, _inverse(_order(op))) or super().backward(op, encoding, machine)


def _order(op: Operation) -> list[int]:
    """``array<i32: 1, 0>``."""
    return [int(n) for n in re.findall(r"\d+", (op.attribute("order") or "").partition(":")[2])]


def _inverse(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


class Reshape(Relabelled):
    """Row-major order stays.

    A reshape that may reorder is free to choose its permutation, but is one tensor: it is treated as any other where
    the given layouts keep the order, and stays as it is given where they do not, or where they were chosen for it.
    """

    def renamed(self, op: Operation, layout: LinearLayout) -> LinearLayout:
        return layout.reshaped(shape_of(op, False))

    def restored(self, op: Operation, layout: LinearLayout) -> LinearLayout:
        return layout.reshaped(shape_of(op, True))

    def forward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        same = shape_of(op, True) == shape_of(op, False)
        return encoding if same else super().forward(op, encoding, machine)

    def backward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        same = shape_of(op, True) == shape_of(op, False)
        return encoding if same else super().backward(op, encoding, machine)

    def anchored(self, op: Operation, kernel: Kernel) -> bool:
        return op.attribute("efficient_layout") is not None or not self.movable(op)

    def movable(self, op: Operation) -> bool:
        if op.attribute("allow_reorder") is None:
            return True
        operand, result = (e[0] for e in current(op))
        if operand is None or result is None:
            return False
        before, after = linear_layout(operand, shape_of(op, True)), linear_layout(result, shape_of(op, False))
        return before is not None and after is not None and equal(self.renamed(op, before), after)


class Join(Relabelled):
    """Two tensors side by side in a last dimension of two, both elements in one thread."""

    def renamed(self, op: Operation, layout: LinearLayout) -> LinearLayout:
        return joined_layout(layout)

    def restored(self, op: Operation, layout: LinearLayout) -> LinearLayout | None:
        return halved_layout(layout)

    def forward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        return structure.joined(encoding, len(shape_of(op, True))) or super().forward(op, encoding, machine)

    def backward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        return structure.halved(encoding) or super().backward(op, encoding, machine)


class Split(Relabelled):
    """The two halves along a last dimension of two, of which each thread holds both elements."""

    def renamed(self, op: Operation, layout: LinearLayout) -> LinearLayout | None:
        return halved_layout(layout)

    def restored(self, op: Operation, layout: LinearLayout) -> LinearLayout:
        return joined_layout(layout)

    def forward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        return structure.halved(encoding) or super().forward(op, encoding, machine)

    def backward(self, op: Operation, encoding: Encoding, machine: Machine) -> Encoding | None:
        return structure.joined(encoding, len(shape_of(op, False))) or super().backward(op, encoding, machine)


def joined_layout(layout: LinearLayout) -> LinearLayout:
    """The layout with one more dimension of two, stepped along by the first register."""
    shape = (*layout.shape, 2)
    register, lane, warp, block = (
        [(*layout.coordinates(basis), 0) for basis in bases] for bases in layout.hardware())
    return LinearLayout.of(shape, [(*(0,) * len(layout.shape), 1), *register], lane, warp, block)


def halved_layout(layout: LinearLayout) -> LinearLayout | None:
    """The layout of either half along the last dimension, of two; None unless one register alone steps along it."""
    pair = (*(0,) * (len(layout.shape) - 1), 1)
    bases = [[layout.coordinates(basis) for basis in some] for some in layout.hardware()]
    stepping = [basis for some in bases for basis in some if basis[-1]]
    if stepping != [pair] or pair not in bases[0]:
        return None
    kept = [[basis[:-1] for basis in some if basis != pair] for some in bases]
    return LinearLayout.of(layout.shape[:-1], *kept)
