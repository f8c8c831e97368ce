"""The alignment check of a kernel's layouts: no op but ``ttg.convert_layout`` may move data between threads.

Every op must find its operands' elements in the registers where its results' elements are to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eggshard.triton.kernels.ir import Kernel, Operation, Value
from eggshard.triton.kernels.text import read_type, scan
from eggshard.triton.layouts.encodings import read
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import LinearLayout, equal
from eggshard.triton.layouts.machine import Machine

#: What is wrong with an op, one message per fault.
Faults = list[str]
Rule = Callable[["_Layouts", Operation], Faults]

_RULES: dict[str, Rule] = {}
_POINTWISE = (
    "tt.addptr", "tt.bitcast", "tt.fp_to_fp", "tt.clampf", "tt.precise_sqrt", "tt.precise_divf", "tt.approx_divf",
    "tt.mulhiui", "tt.int_to_ptr", "tt.ptr_to_int", "tt.extern_elementwise", "tt.elementwise_inline_asm",
    "tt.map_elementwise", "tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.atomic_load", "tt.atomic_store",
    "tt.scan", "ttg.async_copy_global_to_local", "amdg.buffer_load", "amdg.buffer_store", "amdg.buffer_atomic_rmw",
    "amdg.buffer_atomic_cas", "amdg.buffer_load_to_local",
)


def check_layouts(kernel: Kernel) -> None:
    """Raises `ProgramError` naming the first op whose operands and results do not lie in the same threads.

    Ops that move data themselves (conversions, copies through shared memory), or place elements as they like (cat,
    reshapes that may reorder), are free. Encodings whose layout is not known must be spelled alike.
    """
    layouts = _Layouts(Machine.of(kernel))
    for op in kernel.walk():
        rule = _RULES.get(op.name)
        if rule is None and (op.name in _POINTWISE or op.name.startswith(("arith.", "math."))):
            rule = _pointwise
        faults = rule(layouts, op) if rule is not None else []
        if faults:
            raise op.error(faults[0])


class _Layouts:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def of(self, value: Value) -> LinearLayout | None:
        tensor = value.tensor
        if tensor is None or tensor.encoding is None:
            return None
        return linear_layout(read(tensor.encoding), tensor.shape, self.machine)

    def faults(self, first: Value, second: Value, why: str,
               change: Callable[[LinearLayout], LinearLayout] = lambda layout: layout) -> Faults:
        """A fault unless the first value's layout, changed, is the second's; unknown ones say nothing here."""
        here, there = self.of(first), self.of(second)
        if here is None or there is None or equal(change(here), there):
            return []
        return [f"{why}: {first.type} and {second.type} lie in different threads"]

    def alike(self, values: Sequence[Value], why: str) -> Faults:
        """Faults of values of one shape that must lie alike."""
        tensors = [v for v in values if v.tensor is not None and v.tensor.encoding is not None]
        found: Faults = []
        for value in tensors[1:]:
            first, second = tensors[0].tensor, value.tensor
            assert first is not None and second is not None
            if first.shape != second.shape:
                found.append(f"{why}: shapes {list(first.shape)} and {list(second.shape)}")
            elif first.encoding != second.encoding:
                known = self.of(tensors[0]) is not None and self.of(value) is not None
                found += self.faults(tensors[0], value, why) if known else [
                    f"{why}: encodings {first.encoding} and {second.encoding}, not both known"]
        return found


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        for name in names:
            _RULES[name] = rule
        return rule
    return enter


def _pointwise(layouts: _Layouts, op: Operation) -> Faults:
    return layouts.alike([*op.operands, *op.results], "operands and results")


@_rule("arith.constant")
def _constant(layouts: _Layouts, op: Operation) -> Faults:
    text = op.attribute("value") or ""
    type_ = read_type(text[scan(text, 0, ":") + 1:])
    if op.results[0].tensor is None or type_ == op.results[0].type:
        return []
    return [f"the value is a {type_}, the result a {op.results[0].type}"]


def _axis(op: Operation) -> int:
    axis = op.integer("axis")
    assert axis is not None
    return axis


@_rule("tt.expand_dims")
def _expand(layouts: _Layouts, op: Operation) -> Faults:
    return layouts.faults(op.results[0], op.operands[0], "the result without the new dimension, and the operand",
                          lambda layout: layout.without_axis(_axis(op)))


@_rule("tt.broadcast")
def _broadcast(layouts: _Layouts, op: Operation) -> Faults:
    source, target = op.operands[0].tensor, op.results[0].tensor
    assert source is not None and target is not None
    kept = [n == m for n, m in zip(source.shape, target.shape, strict=True)]

    def narrowed(layout: LinearLayout) -> LinearLayout:
        bases = [[tuple(i if k else 0 for i, k in zip(layout.coordinates(v), kept, strict=True)) for v in vectors]
                 for vectors in layout.hardware()]
        return LinearLayout.of(source.shape, *bases)

    return layouts.faults(op.results[0], op.operands[0], "the result where it is not repeated, and the operand",
                          narrowed)


@_rule("tt.reduce")
def _reduce(layouts: _Layouts, op: Operation) -> Faults:
    found = layouts.alike(op.operands, "operands")
    for operand, result in zip(op.operands, op.results, strict=True):
        found += layouts.faults(operand, result, "the operand without the reduced dimension, and the result",
                                lambda layout: layout.without_axis(_axis(op)))
    return found


@_rule("tt.reshape")
def _reshape(layouts: _Layouts, op: Operation) -> Faults:
    tensor = op.results[0].tensor
    assert tensor is not None
    if op.attribute("allow_reorder") is not None:
        return []
    return layouts.faults(op.operands[0], op.results[0], "the operand reshaped, and the result",
                          lambda layout: layout.reshaped(tensor.shape))


@_rule("tt.trans")
def _transpose(layouts: _Layouts, op: Operation) -> Faults:
    order = op.integers("order")
    return layouts.faults(op.operands[0], op.results[0], "the operand transposed, and the result",
                          lambda layout: layout.transposed(order))


def _pair(layouts: _Layouts, pairs: Value, halves: Sequence[Value]) -> Faults:
    """The last dimension, of size 2, lies in registers; the rest as the halves."""
    whole = layouts.of(pairs)
    found = layouts.alike(halves, "the halves")
    if whole is None:
        return found
    last = len(whole.shape) - 1
    if not any(v == whole.axis_mask(last) for v in whole.register):
        found.append("the last dimension does not lie in the registers of one thread")
    return found + layouts.faults(pairs, halves[0], "the pairs without the last dimension, and the halves",
                                  lambda layout: layout.without_axis(last))


@_rule("tt.join")
def _join(layouts: _Layouts, op: Operation) -> Faults:
    return _pair(layouts, op.results[0], op.operands)


@_rule("tt.split")
def _split(layouts: _Layouts, op: Operation) -> Faults:
    return _pair(layouts, op.operands[0], op.results)


@_rule("tt.gather")
def _gather(layouts: _Layouts, op: Operation) -> Faults:
    return layouts.alike([op.operands[1], op.results[0]], "the indices and the result")


@_rule("tt.dot", "ttng.warp_group_dot")
def _dot(layouts: _Layouts, op: Operation) -> Faults:
    found = layouts.alike([op.operands[2], op.results[0]], "the accumulator and the result")
    result = op.results[0].tensor
    for number, operand in enumerate(op.operands[:2]):
        if operand.tensor is None or operand.tensor.encoding is None or result is None or result.encoding is None:
            continue
        encoding, parent = read(operand.tensor.encoding), read(result.encoding)
        if encoding.kind != "ttg.dot_op" or encoding.integer("opIdx") != number or encoding.parent != parent:
            found.append(f"operand {number} lies as {encoding}, not as one of the result's {parent}")
    return found


def _zipped(layouts: _Layouts, why: str, *groups: Sequence[Value]) -> Faults:
    return [fault for values in zip(*groups, strict=True) for fault in layouts.alike(values, why)]


@_rule("ttng.warp_group_dot_wait")
def _wait(layouts: _Layouts, op: Operation) -> Faults:
    return _zipped(layouts, "what is waited for", op.operands, op.results)


@_rule("scf.for")
def _for(layouts: _Layouts, op: Operation) -> Faults:
    return _zipped(layouts, "what the loop carries", op.operands[3:], op.body.arguments[1:],
                   op.body.terminator.operands, op.results)


@_rule("scf.while")
def _while(layouts: _Layouts, op: Operation) -> Faults:
    before, after = (region.blocks[0] for region in op.regions)
    found = _zipped(layouts, "what the loop carries", op.operands, before.arguments, after.terminator.operands)
    return found + _zipped(layouts, "what the condition passes on", before.terminator.operands[1:], after.arguments,
                           op.results)


@_rule("scf.if")
def _if(layouts: _Layouts, op: Operation) -> Faults:
    branches = [region.blocks[0].terminator.operands for region in op.regions if region.blocks]
    if not op.results:
        return []
    return _zipped(layouts, "what the branches give", *branches, op.results)
