"""Reductions and scans: their combine regions run on whole slices of the tensors at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.triton.kernels.ir import Operation, Region
from testing.kernel_interpreter.elements import Array
from testing.kernel_interpreter.execution import Program
from testing.kernel_interpreter.integers import element_of
from testing.kernel_interpreter.registry import meaning
from testing.kernel_interpreter.shapes import shape_of

#: Ops that choose where control goes: regions with such are run element by element.
_CHOOSING = ("scf.", "cf.")


def _combine(program: Program, region: Region, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
    """The region's results for all elements of the arrays of its arguments."""
    shape = left[0].shape
    arguments = [*left, *right]
    if not _chooses(program, region):
        found = program.region(region, arguments, batched=True)
        return [np.broadcast_to(v, shape) for v in found]
    results = [np.empty(shape, v.dtype) for v in left]
    for position in np.ndindex(*shape):
        found = program.region(region, [np.asarray(v[position]) for v in arguments], batched=True)
        for result, value in zip(results, found, strict=True):
            result[position] = value
    return results


def _chooses(program: Program, region: Region) -> bool:
    known: bool | None = program.state.get((_chooses, id(region)))
    if known is None:
        inner = [op for block in region.blocks for top in block.operations for op in top.walk()]
        calls = [(op.attribute("callee") or "")[1:].strip('"') for op in inner if op.name == "tt.call"]
        known = len(region.blocks) > 1 or any(op.name.startswith(_CHOOSING) for op in inner) or any(
            _chooses(program, program.functions[name].regions[0]) for name in calls)
        program.state[_chooses, id(region)] = known
    return known


@meaning("tt.reduce")
def _reduce(program: Program, op: Operation, *operands: Array) -> tuple[Array, ...]:
    """Neighbours are combined until one slice is left: no layout's order, but every operand stays on its side."""
    axis = op.integer("axis")
    assert axis is not None
    parts = [np.moveaxis(v, axis, 0) for v in operands]
    while len(parts[0]) > 1:
        even = len(parts[0]) // 2 * 2
        found = _combine(program, op.regions[0], [p[0:even:2] for p in parts], [p[1:even:2] for p in parts])
        if len(parts[0]) > even:
            found = [np.concatenate([f, p[-1:]]) for f, p in zip(found, parts, strict=True)]
        parts = found
    return tuple(p[0] for p in parts)


@meaning("tt.scan")
def _scan(program: Program, op: Operation, *operands: Array) -> tuple[Array, ...]:
    """From the first element to the last (``reverse``: from the last to the first), one after the other."""
    axis = op.integer("axis")
    assert axis is not None
    step = -1 if op.attribute("reverse") == "true" else 1
    parts = [np.moveaxis(v, axis, 0)[::step] for v in operands]
    carried = [p[0] for p in parts]
    results = [np.empty(p.shape, p.dtype) for p in parts]
    for i in range(len(parts[0])):
        if i:
            carried = _combine(program, op.regions[0], [np.asarray(c) for c in carried],
                               [np.asarray(p[i]) for p in parts])
        for result, value in zip(results, carried, strict=True):
            result[i] = value
    return tuple(np.moveaxis(r[::step], 0, axis) for r in results)


@meaning("tt.map_elementwise")
def _map(program: Program, op: Operation, *operands: Array) -> tuple[Array, ...]:
    """The region on ``pack`` neighbouring elements of each operand at a time."""
    pack = op.integer("pack") or 1
    flat = [v.reshape(-1) for v in operands]
    results = [np.empty(int(np.prod(shape_of(op, i))), element_of(op, i)) for i in range(len(op.results))]
    for start in range(0, len(flat[0]), pack):
        found = program.region(op.regions[0], [np.asarray(v[start + i]) for v in flat for i in range(pack)])
        for number, result in enumerate(results):
            result[start:start + pack] = found[number * pack:(number + 1) * pack]
    return tuple(r.reshape(shape_of(op, i)) for i, r in enumerate(results))
