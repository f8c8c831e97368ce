"""The reference interpreter: programs evaluated op by op in NumPy on whole tensors, for tests and plan verification."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eggshard.errors import EggshardError, ProgramError
from eggshard.ops import base
from eggshard.ops.arithmetic import current
from eggshard.program.program import Program, Region


def evaluate_program(program: Program, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """A program's outputs from its inputs, all whole; shardings mean nothing here.

    ProgramError when the inputs are not of the program's types.
    """
    types = program.input_types
    if len(inputs) != len(types):
        raise ProgramError(f"program {program.name!r} takes {len(types)} inputs, got {len(inputs)}")
    arrays = [np.asarray(a) for a in inputs]
    for i, (array, type_) in enumerate(zip(arrays, types, strict=True)):
        if array.shape != type_.shape or not current().holds(array, type_.dtype):
            shown = f"shape {array.shape} and element type {array.dtype}"
            raise ProgramError(f"input {i} of program {program.name!r} is {type_}, got an array of {shown}")
    return evaluate_region(program.region, arrays)


def evaluate_region(region: Region, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """A region's outputs from its inputs. Values are dropped after their last use.

    Errors of an op are raised again with its name, operand shapes and location.
    """
    last_use = {v: i for i, op in enumerate(region.ops) for v in op.operands}
    kept = set(region.outputs)
    values = dict(zip(region.inputs, (np.asarray(a) for a in arrays), strict=True))
    for i, op in enumerate(region.ops):
        operands = [values[v] for v in op.operands]
        try:
            results = current().evaluate(op.name, op.attributes, operands, op.regions)
        except EggshardError as error:
            shown = ", ".join(str(region.types[v]) for v in op.operands)
            raise type(error)(f"{op.name}({shown}){' at ' + op.location if op.location else ''}: {error}") from error
        values.update(zip(op.results, results, strict=True))
        for v in op.operands:
            if last_use[v] == i and v not in kept:
                values.pop(v, None)
    return tuple(values[v] for v in region.outputs)


def evaluate_elementwise(region: Region, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """A region of scalars (a reducer, a comparator) applied to arrays of one shape, index by index.

    Regions of pointwise ops and constants run on whole arrays at once; others once per index.
    """
    arrays = np.broadcast_arrays(*arrays)
    shape = arrays[0].shape
    if _is_pointwise(region):
        results = evaluate_region(region, arrays)
        return tuple(np.broadcast_to(r, shape) for r in results)
    outs = [np.empty(shape, current().stored(region.types[v].dtype)) for v in region.outputs]
    for index in np.ndindex(shape):
        for out, value in zip(outs, evaluate_region(region, [a[index] for a in arrays]), strict=True):
            out[index] = value
    return tuple(outs)


def _is_pointwise(region: Region) -> bool:
    return all(
        (base.get(op.name).pointwise or op.name == "constant")
        and all(region.types[v].rank == 0 for v in op.results)
        for op in region.ops
    )
