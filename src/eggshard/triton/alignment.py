"""The alignment check of a kernel's layouts: no op but ``ttg.convert_layout`` may move data between threads.

Every op must find its operands' elements in the registers where its results' elements are to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from eggshard.triton.control import ties
from eggshard.triton.kernels.ir import Kernel, Operation, Value
from eggshard.triton.kernels.text import read_type, scan
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.layouts.linear import LinearLayout, equal
from eggshard.triton.rules.movement import axis_of, halved
from eggshard.triton.rules.rule import encoding_of
from eggshard.triton.rules.table import rule_of

#: What is wrong with an op.
Faults = Iterator[str]

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
    for op in kernel.walk():
        for fault in _faults(op):
            raise op.error(fault)


def _layout(value: Value) -> LinearLayout | None:
    encoding = encoding_of(value)
    return None if value.tensor is None or encoding is None else linear_layout(encoding, value.tensor.shape)


def _changed(first: Value, second: Value, why: str,
             change: Callable[[LinearLayout], LinearLayout | None] = lambda layout: layout) -> Faults:
    """A fault unless the first value's layout, changed, is the second's; unknown ones say nothing here."""
    here, there = _layout(first), _layout(second)
    if here is not None and there is not None:
        found = change(here)
        if found is not None and not equal(found, there):
            yield f"{why}: {first.type} and {second.type} lie in different threads"


def _alike(values: Sequence[Value], why: str) -> Faults:
    """Faults of values of one shape that must lie alike."""
    tensors = [v for v in values if encoding_of(v) is not None]
    for value in tensors[1:]:
        first, second = tensors[0].tensor, value.tensor
        assert first is not None and second is not None
        if first.shape != second.shape:
            yield f"{why}: shapes {list(first.shape)} and {list(second.shape)}"
        elif first.encoding != second.encoding:
            if _layout(tensors[0]) is None or _layout(value) is None:
                yield f"{why}: encodings {first.encoding} and {second.encoding}, not both known"
            yield from _changed(tensors[0], value, why)


def _faults(op: Operation) -> Faults:
    rule = rule_of(op.name)
    tied = ties(op)
    if tied is not None:
        for tie in tied:
            uses = (use.value for use in (*tie.sources, *tie.back))
            yield from _alike([*uses, *tie.targets], "what a loop carries or a branch gives")
    elif op.name in _CHECKS:
        yield from _CHECKS[op.name](op)
    elif rule.renamed is not None:
        renamed = rule.renamed
        yield from _changed(op.operands[0], op.results[0], "the operand with its elements renamed, and the "
                           "result", lambda layout: renamed(op, layout))
    elif op.name in _POINTWISE or op.name.startswith(("arith.", "math.")):
        yield from _alike([*op.operands, *op.results], "operands and results")


def _constant(op: Operation) -> Faults:
    text = op.attribute("value") or ""
    type_ = read_type(text[scan(text, 0, ":") + 1:])
    if op.results[0].tensor is not None and type_ != op.results[0].type:
        yield f"the value is a {type_}, the result a {op.results[0].type}"


def _expand(op: Operation) -> Faults:
    yield from _changed(op.results[0], op.operands[0], "the result without the new dimension, and the operand",
                       lambda layout: layout.without_axis(axis_of(op)))


def _reduce(op: Operation) -> Faults:
    yield from _alike(op.operands, "operands")
    for operand, result in zip(op.operands, op.results, strict=True):
        yield from _changed(operand, result, "the operand without the reduced dimension, and the result",
                           lambda layout: layout.without_axis(axis_of(op)))


def _broadcast(op: Operation) -> Faults:
    source, target = op.operands[0].tensor, op.results[0].tensor
    assert source is not None and target is not None
    repeated = [d for d, (n, m) in enumerate(zip(source.shape, target.shape, strict=True)) if n != m]

    def narrowed(layout: LinearLayout) -> LinearLayout:
        for dim in repeated:
            layout = layout.dropped(dim).with_axis(dim, 1)
        return layout

    yield from _changed(op.results[0], op.operands[0], "the result where it is not repeated, and the operand",
                       narrowed)


def _pair(op: Operation) -> Faults:
    """The last dimension, of size 2, lies in registers; the rest as the halves."""
    pairs, halves = (op.results[0], op.operands) if op.name == "tt.join" else (op.operands[0], op.results)
    yield from _alike(halves, "the halves")
    whole = _layout(pairs)
    if whole is not None and halved(whole) is None:
        yield "the last dimension does not lie in the registers of one thread"
    yield from _changed(pairs, halves[0], "the pairs without the last dimension, and the halves", halved)


def _gather(op: Operation) -> Faults:
    yield from _alike([op.operands[1], op.results[0]], "the indices and the result")


def _dot(op: Operation) -> Faults:
    yield from _alike([op.operands[2], op.results[0]], "the accumulator and the result")
    parent = encoding_of(op.results[0])
    for number, operand in enumerate(op.operands[:2]):
        encoding = encoding_of(operand)
        if encoding is None or parent is None:
            continue
        if encoding.kind != "ttg.dot_op" or encoding.integer("opIdx") != number or encoding.parent != parent:
            yield f"operand {number} lies as {encoding}, not as one of the result's {parent}"


def _wait(op: Operation) -> Faults:
    for values in zip(op.operands, op.results, strict=True):
        yield from _alike(values, "what is waited for")


_CHECKS: dict[str, Callable[[Operation], Faults]] = {
    "arith.constant": _constant, "tt.expand_dims": _expand, "tt.reduce": _reduce, "tt.broadcast": _broadcast,
    "tt.join": _pair, "tt.split": _pair, "tt.gather": _gather, "tt.dot": _dot, "ttng.warp_group_dot": _dot,
    "ttng.warp_group_dot_wait": _wait,
}
