"""Rules of ops that rename elements: every element stays in its register, at the index that the op gives it."""

from __future__ import annotations

from collections.abc import Callable

from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.encodings import Encoding, make
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import LinearLayout, equal
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules.costs import arithmetic, registers
from eggshard.triton.rules.derived import encoding_of_layout
from eggshard.triton.rules.rule import (
    OPERANDS,
    RESULTS,
    Option,
    Options,
    Part,
    Rule,
    both,
    current,
    droppable,
    free,
    pure,
    uniform,
)
from eggshard.triton.rules.structure import BLOCKED, DOT_OPERAND, LINEAR, SLICE, opened, sliced

#: A result's layout where the operand has one, or an operand's where the result has; None if there is none.
Change = Callable[[Operation, LinearLayout], LinearLayout | None]


def shape_of(op: Operation, side: int) -> tuple[int, ...]:
    """The shape of the first operand or result, a tensor."""
    tensor = (op.operands, op.results)[side][0].tensor
    assert tensor is not None
    return tensor.shape


def axis_of(op: Operation) -> int:
    return op.integer("axis") or 0


def changed(op: Operation, side: int, encoding: Encoding, change: Change) -> Encoding | None:
    """The encoding across an op that changes layouts."""
    layout = linear_layout(encoding, shape_of(op, side))
    found = None if layout is None else change(op, layout)
    if found is None or found == layout:
        return None if found is None else encoding
    return encoding_of_layout(found)


def relabelled(renamed: Change, restored: Change) -> Options:
    """The options of an op that is a bijection of the bits of the index, given by what it does to linear layouts."""

    def options(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        given = current(op)
        if given[side][i] == encoding:
            return [given]
        other = changed(op, side, encoding, restored if side else renamed)
        if other is None:
            return []
        return [both(op, other, encoding) if side else both(op, encoding, other)]

    return options


def slicing(slices: int, most: int = 1) -> Options:
    """The options of an op that adds or removes a dimension: the tensors of one side (``slices``) are slices of the
    other side's encoding, in that spelling.

    Where an encoding is no such slice, the dimension may lie in each thread's registers, up to ``most`` of it.
    """

    def options(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
        given, axis = current(op), axis_of(op)
        if given[side][i] == encoding:
            return [given]
        whole: Encoding | None = encoding
        if side == slices:
            size = shape_of(op, 1 - slices)[axis]
            if encoding.kind == SLICE and encoding.integer("dim") == axis:
                whole = encoding.parent
            elif size > most:
                whole = None
            elif encoding.kind == LINEAR:
                whole = changed(op, side, encoding, lambda op, layout: layout.with_axis(axis, size))
            else:
                whole = opened(encoding, axis)
        if whole is None:
            return []
        part = sliced(axis, whole)
        return [both(op, part, whole) if slices == OPERANDS else both(op, whole, part)]

    return options


def _broadcast(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """Operand and result share one encoding; every thread holds index 0 of a dimension of size one.

    The verifier asks for less (equal layouts where the operand has elements), so the given option may differ.
    """
    found = [uniform(op, encoding)]
    if encoding == current(op)[side][i] and current(op) not in found:
        found.append(current(op))
    return found


BROADCAST = Rule(_broadcast, anchored=free, movable=pure)
EXPAND_DIMS = Rule(slicing(OPERANDS), anchored=free, movable=pure)


def _relabelling(renamed: Change, restored: Change) -> Rule:
    return Rule(relabelled(renamed, restored), anchored=free, movable=pure, renamed=renamed)


def _transposed(op: Operation, layout: LinearLayout) -> LinearLayout:
    return layout.transposed(op.integers("order"))


def _transposed_back(op: Operation, layout: LinearLayout) -> LinearLayout:
    order = op.integers("order")
    return layout.transposed(sorted(range(len(order)), key=order.__getitem__))


def _reshaped(op: Operation, layout: LinearLayout) -> LinearLayout:
    return layout.reshaped(shape_of(op, RESULTS))


def _reshaped_back(op: Operation, layout: LinearLayout) -> LinearLayout:
    return layout.reshaped(shape_of(op, OPERANDS))


def _keeps_order(op: Operation) -> bool:
    """Whether a reshape keeps the row-major order, if only at the given layouts.

    One that may reorder is free to choose its permutation, but is one tensor.
    """
    if op.attribute("allow_reorder") is None:
        return True
    operand, result = (e[0] for e in current(op))
    if operand is None or result is None:
        return False
    before, after = linear_layout(operand, shape_of(op, OPERANDS)), linear_layout(result, shape_of(op, RESULTS))
    return before is not None and after is not None and equal(_reshaped(op, before), after)


def _reshape_is_anchored(op: Operation, kernel: Kernel) -> bool:
    """Reshapes that reorder, and those whose layouts were chosen for them."""
    return op.attribute("efficient_layout") is not None or not _keeps_order(op)


def _joined(op: Operation, layout: LinearLayout) -> LinearLayout:
    """The layout with one more dimension of two, stepped along by the first register."""
    return layout.with_axis(len(layout.shape), 2, first=True)


def halved(layout: LinearLayout) -> LinearLayout | None:
    """The layout of either half along the last dimension, of two; None unless one register alone steps along it."""
    last = len(layout.shape) - 1
    pair = layout.axis_mask(last)
    if [v for v in layout.columns if v & pair] != [pair] or pair not in layout.register:
        return None
    return layout._replace(register=tuple(v for v in layout.register if v != pair)).dropped(last)


def _halved(op: Operation, layout: LinearLayout) -> LinearLayout | None:
    return halved(layout)


TRANSPOSE = _relabelling(_transposed, _transposed_back)
RESHAPE = Rule(relabelled(_reshaped, _reshaped_back), anchored=_reshape_is_anchored, movable=_keeps_order,
               renamed=lambda op, layout: _reshaped(op, layout) if _keeps_order(op) else None)
JOIN = _relabelling(_joined, _halved)
SPLIT = _relabelling(_halved, _joined)


def _unpacked(op: Operation, layout: LinearLayout) -> LinearLayout:
    """Two elements out of each one along the axis, in neighbouring registers."""
    axis, rank = axis_of(op), len(layout.shape)
    pairs = _joined(op, layout).transposed([*range(axis + 1), rank, *range(axis + 1, rank)])
    return pairs.reshaped([n * 2 if d == axis else n for d, n in enumerate(layout.shape)])


def _packed(op: Operation, layout: LinearLayout) -> LinearLayout | None:
    axis, rank, shape = axis_of(op), len(layout.shape), layout.shape
    pairs = layout.reshaped([*shape[:axis], shape[axis] // 2, 2, *shape[axis + 1:]])
    found = halved(pairs.transposed([*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]))
    return found if found is not None and _unpacked(op, found) == layout else None


def _unpacking(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """Four bytes of a thread are unpacked at a time, so there must be so many; fragments of a matrix product have twice
    as many neighbours in its depth."""
    given = current(op)
    if encoding.kind != DOT_OPERAND:
        found = relabelled(_unpacked, _packed)(op, side, i, encoding, machine)
    elif given[side][i] == encoding:
        return [given]
    else:
        operand = _scaled(encoding, op, 1, 2) if side else encoding
        result = encoding if side else _scaled(encoding, op, 2, 1)
        found = [both(op, operand, result)] if operand is not None and result is not None else []
    return [option for option in found
            if option == given or registers(op.operands[0], option.operands[0], machine) % 4 == 0]


def _scaled(encoding: Encoding, op: Operation, factor: int, divisor: int) -> Encoding | None:
    """The fragment of a matrix product with so many times as many neighbours in the depth; None if that is none."""
    if encoding.get("kWidth") is None:
        return None
    width = encoding.integer("kWidth") * factor
    depth = len(shape_of(op, OPERANDS)) - (1 if encoding.integer("opIdx") == 0 else 2)
    if depth != op.integer("axis") or width % divisor:
        return None
    return make(DOT_OPERAND, opIdx=encoding.integer("opIdx"), parent=encoding.parent, kWidth=width // divisor)


def _unpacking_work(op: Operation, option: Option, machine: Machine) -> Counts:
    return arithmetic("conversion", op, option, machine)


UNPACKING = Rule(_unpacking, _unpacking_work, free, pure)


def _convert(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """The identity, from any encoding to any."""
    given = current(op)
    return [Option(given.operands, (encoding,)) if side else Option((encoding,), given.results)]


CONVERSION = Rule(_convert, anchored=free, movable=pure)


def _dot(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """The accumulator and the result at one encoding, the operands ``dot_op`` over it. An anchor.

    A matrix instruction's fragments fit element types and shapes: they are not for us to choose.
    """
    given = current(op)
    parent, old = encoding, given.results[0]
    if side == OPERANDS and i < 2:
        if encoding.kind != DOT_OPERAND or encoding.integer("opIdx") != i:
            return []
        parent = encoding.parent
    option = given
    if parent != old:
        if old is None or parent.kind != BLOCKED or old.kind != BLOCKED:
            return []
        factors = (make(DOT_OPERAND, opIdx=number, parent=parent) for number in (0, 1))
        option = Option((*factors, parent), (parent,))
    return [option] if side or i == 2 or option.operands[i] == encoding else []


DOT = Rule(_dot, effects=droppable)


def _pairs(op: Operation) -> tuple[Part, ...]:
    return tuple(Part((i,), (i,)) for i, value in enumerate(op.operands) if value.tensor is not None)


def _passed(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """A result lies as its operand does."""
    return [Part((i,), (i,)).put(current(op), Option((encoding,), (encoding,)))]


def _waits_for_registers(op: Operation, kernel: Kernel) -> bool:
    """Whether some operand may still be written by a matrix instruction: only then is there nothing between."""
    makers = (value.owner for value in op.operands if value.tensor is not None)
    return any(not isinstance(maker, Operation) or maker.name != "ttg.convert_layout" for maker in makers)


#: A wait for matrix instructions, which hands on what they write.
WAIT = Rule(_passed, anchored=_waits_for_registers, parts=_pairs)
