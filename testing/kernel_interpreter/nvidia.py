"""NVIDIA's matrix units: products of operands in shared memory, and tensor memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation
from testing.kernel_interpreter.concurrency import barrier_at
from testing.kernel_interpreter.dots import product, scaled
from testing.kernel_interpreter.elements import Array
from testing.kernel_interpreter.execution import Program
from testing.kernel_interpreter.registry import meaning, pure, segmented
from testing.kernel_interpreter.shared import Shared


def _elements(value: Array | Shared) -> Array:
    return value.cells if isinstance(value, Shared) else value


@pure("ttng.warp_group_dot")
def _warp_group_dot(op: Operation, a: Array | Shared, b: Shared, c: Array, use_c: Any = None) -> Array:
    start = c if use_c is None or use_c else np.zeros_like(c)
    return product(_elements(a), _elements(b), start)


@pure("ttng.warp_group_dot_wait")
def _wait(op: Operation, *values: Any) -> tuple[Any, ...]:
    return values


def _arrive(program: Program, barriers: Sequence[Shared], predicates: Sequence[Array]) -> None:
    """At the barriers that are told of a product's completion; it is complete where it was issued."""
    for barrier, predicate in zip(barriers, predicates, strict=True):
        if predicate:
            barrier_at(program, barrier).change(1)


@meaning("ttng.tc_gen5_mma")
def _tensor_core(program: Program, op: Operation, *operands: Any) -> Any:
    (a,), (b,), (d,), _, (use_d,), (predicate,), barriers, predicates = segmented(op, operands)
    if predicate:
        d.cells[...] = product(_elements(a), _elements(b), d.cells if use_d else np.zeros_like(d.cells))
        _arrive(program, barriers, predicates)
    return (None,) * len(op.results)


@meaning("ttng.tc_gen5_mma_scaled")
def _tensor_core_scaled(program: Program, op: Operation, *operands: Any) -> Any:
    (a,), (b,), (d,), _, (a_scale,), (b_scale,), (use_d,), (predicate,), barriers, predicates = segmented(op, operands)
    left, right = op.integer("a_type"), op.integer("b_type")
    assert left is not None and right is not None
    if predicate:
        d.cells[...] = product(scaled(_elements(a), _elements(a_scale), left, -1),
                               scaled(_elements(b), _elements(b_scale), right, -2),
                               d.cells if use_d else np.zeros_like(d.cells))
        _arrive(program, barriers, predicates)
    return (None,) * len(op.results)


@pure("ttng.tmem_load")
def _tensor_memory_load(op: Operation, memory: Shared, token: Any = None) -> Any:
    if op.attribute("redOp") is not None:
        raise ProgramError("reductions of loads from tensor memory are not known")
    return (memory.cells.copy(), None)[:len(op.results)]


@pure("ttng.tmem_store")
def _tensor_memory_store(op: Operation, memory: Shared, *operands: Any) -> Any:
    *_, values, predicate = operands
    if predicate:
        memory.cells[...] = values
    return (None,) * len(op.results)


@pure("ttng.tmem_copy")
def _tensor_memory_copy(op: Operation, source: Shared, target: Shared) -> None:
    if source.cells.shape != target.cells.shape:
        raise ProgramError("copies of scales to tensor memory are not known")
    target.cells[...] = source.cells


@pure("ttg.predicate_stage")
def _stage(op: Operation, index: Array, end: Array, step: Array) -> Array:
    """Whether a pipelined loop's stage still has a turn to do."""
    ahead = (op.integer("maxStage") or 0) - (op.integer("stage") or 0)
    return np.asarray(index < end - step * np.asarray(ahead, step.dtype))


@pure("ttng.tensormap_fenceproxy_acquire", "ttng.tmem_wait")
def _fence(op: Operation, *operands: Any) -> tuple[Any, ...]:
    return (None,) * len(op.results)
