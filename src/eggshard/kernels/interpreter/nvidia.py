"""NVIDIA's matrix units: products of operands in shared memory, tensor memory, and the barriers around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.kernels.interpreter.dots import product, scaled
from eggshard.kernels.interpreter.elements import Array
from eggshard.kernels.interpreter.registry import pure, segmented
from eggshard.kernels.interpreter.shared import Shared
from eggshard.kernels.ir import Operation


def _elements(value: Array | Shared) -> Array:
    return value.cells if isinstance(value, Shared) else value


@pure("ttng.warp_group_dot")
def _warp_group_dot(op: Operation, a: Array | Shared, b: Shared, c: Array, use_c: Any = None) -> Array:
    start = c if use_c is None or use_c else np.zeros_like(c)
    return product(_elements(a), _elements(b), start)


@pure("ttng.warp_group_dot_wait")
def _wait(op: Operation, *values: Any) -> tuple[Any, ...]:
    return values


@pure("ttng.tc_gen5_mma")
def _tensor_core(op: Operation, *operands: Any) -> Any:
    (a,), (b,), (d,), _, (use_d,), (predicate,), *_ = segmented(op, operands)
    if predicate:
        d.cells[...] = product(_elements(a), _elements(b), d.cells if use_d else np.zeros_like(d.cells))
    return (None,) * len(op.results)


@pure("ttng.tc_gen5_mma_scaled")
def _tensor_core_scaled(op: Operation, *operands: Any) -> Any:
    (a,), (b,), (d,), _, (a_scale,), (b_scale,), (use_d,), (predicate,), *_ = segmented(op, operands)
    left, right = op.integer("a_type"), op.integer("b_type")
    assert left is not None and right is not None
    if predicate:
        d.cells[...] = product(scaled(_elements(a), _elements(a_scale), left, -1),
                               scaled(_elements(b), _elements(b_scale), right, -2),
                               d.cells if use_d else np.zeros_like(d.cells))
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


_BARRIERS = (
    "ttng.init_barrier", "ttng.inval_barrier", "ttng.barrier_expect", "ttng.wait_barrier", "ttng.arrive_barrier",
    "ttng.async_copy_mbarrier_arrive", "ttng.tc_gen5_commit", "ttng.tensormap_fenceproxy_acquire", "ttng.tmem_wait",
    "amdg.init_barrier", "amdg.arrive_barrier", "amdg.wait_barrier", "amdg.async_copy_mbarrier_arrive",
)


@pure(*_BARRIERS)
def _barrier(op: Operation, *operands: Any) -> tuple[Any, ...]:
    """What barriers wait for has happened where it was issued."""
    return (None,) * len(op.results)
