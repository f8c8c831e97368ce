"""Rules of ops that combine elements along a dimension, or that look elements up."""

from __future__ import annotations

from collections import Counter

from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.layouts.counts import NOTHING, Counts
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.lookup import gather, histogram
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.layouts.reduction import Combination, reduction, scan
from eggshard.triton.rules.costs import bits, layout_of
from eggshard.triton.rules.kinds import KINDS
from eggshard.triton.rules.movement import axis_of, slicing
from eggshard.triton.rules.rule import RESULTS, Option, Part, Rule, current, free, in_clusters, pure, uniform
from eggshard.triton.rules.structure import BLOCKED

#: A dimension longer than this is not gathered in single threads in order to reduce it there.
MOST_IN_A_THREAD = 8


def _reduce_work(op: Operation, option: Option, machine: Machine) -> Counts:
    layout = layout_of(op.operands[0], option.operands[0])
    return NOTHING if layout is None else reduction(layout, axis_of(op), combination(op), machine)


REDUCE = Rule(slicing(RESULTS, MOST_IN_A_THREAD), _reduce_work, free, pure)


def _scan(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """All tensors at one encoding, a blocked one: others verify, but are not lowered."""
    return [uniform(op, encoding)] if encoding.kind == BLOCKED else []


def _scan_work(op: Operation, option: Option, machine: Machine) -> Counts:
    encoding = option.operands[0]
    layout = layout_of(op.operands[0], encoding)
    if encoding is None or layout is None:
        return NOTHING
    reverse = op.attribute("reverse") == "true"
    return scan(layout, axis_of(op), encoding.ints("order"), combination(op), machine, reverse)


SCAN = Rule(_scan, _scan_work, in_clusters, pure)


def _histogram_parts(op: Operation) -> tuple[Part, ...]:
    """Operand (and mask), and result."""
    return Part(operands=tuple(range(len(op.operands)))), Part(results=(0,))


def _gather_parts(op: Operation) -> tuple[Part, ...]:
    """The table; indices and result."""
    return Part(operands=(0,)), Part(operands=(1,), results=(0,))


def _by_parts(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """Each part at an encoding of its own, whichever: what is asked for with the other's given one, and the same for
    all."""
    parts = _gather_parts(op) if op.name == "tt.gather" else _histogram_parts(op)
    (part,) = (part for part in parts if i in part[side])
    same = Option((encoding,) * len(part.operands), (encoding,) * len(part.results))
    return list(dict.fromkeys((part.put(current(op), same), uniform(op, encoding))))


def _histogram_work(op: Operation, option: Option, machine: Machine) -> Counts:
    source = layout_of(op.operands[0], option.operands[0])
    result = layout_of(op.results[0], option.results[0])
    tensor = op.results[0].tensor
    if source is None or result is None or tensor is None:
        return NOTHING
    return histogram(source, result, bits(tensor.element), machine)


def _gather_work(op: Operation, option: Option, machine: Machine) -> Counts:
    table, indices = (layout_of(op.operands[i], option.operands[i]) for i in (0, 1))
    tensor = op.operands[0].tensor
    if table is None or indices is None or tensor is None:
        return NOTHING
    return gather(table, indices, axis_of(op), bits(tensor.element), machine)


def _gather_is_anchored(op: Operation, kernel: Kernel) -> bool:
    return op.attribute("efficient_layout") is not None or in_clusters(op, kernel)


HISTOGRAM = Rule(_by_parts, _histogram_work, in_clusters, pure, parts=_histogram_parts)
GATHER = Rule(_by_parts, _gather_work, _gather_is_anchored, pure, parts=_gather_parts)


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
