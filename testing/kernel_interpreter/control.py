"""Loops, conditionals, calls; where the instance stands in the grid; assertions."""

from __future__ import annotations

from typing import Any

import numpy as np

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation, users
from testing.kernel_interpreter.elements import Array, spec
from testing.kernel_interpreter.execution import MOST_TURNS, Program
from testing.kernel_interpreter.registry import meaning, pure


@meaning("scf.for")
def _for(program: Program, op: Operation, start: Array, end: Array, step: Array, *carried: Any) -> tuple[Any, ...]:
    if op.attribute("unsignedCmp") is not None and op.attribute("unsignedCmp") != "false":
        width = 8 * start.dtype.itemsize
        first, last, stride = (int(v) & ((1 << width) - 1) for v in (start, end, step))
    else:
        first, last, stride = int(start), int(end), int(step)
    if stride <= 0:
        raise ProgramError(f"a loop's step is {stride}")
    for i in range(first, last, stride):
        carried = program.region(op.regions[0], (np.asarray(i).astype(start.dtype), *carried))
    return carried


@meaning("scf.while")
def _while(program: Program, op: Operation, *carried: Any) -> tuple[Any, ...]:
    for _ in range(MOST_TURNS):
        condition, *passed = program.region(op.regions[0], carried)
        if not condition:
            return tuple(passed)
        carried = program.region(op.regions[1], passed)
    raise ProgramError(f"no end after {MOST_TURNS} turns: does it wait for another program instance?")


@meaning("scf.if")
def _if(program: Program, op: Operation, condition: Array) -> tuple[Any, ...]:
    return program.region(op.regions[0 if condition else 1])


@meaning("scf.execute_region", "ttg.mask")
def _region(program: Program, op: Operation, *operands: Any) -> tuple[Any, ...]:
    """``ttg.mask``: the region's effects happen only under its predicate; without it the results mean nothing."""
    if op.name == "ttg.mask" and not operands[0]:
        specs = [spec(v.type) for v in op.results]
        if None in specs:
            raise ProgramError("results that are no tensors are not known of a region that is masked off")
        return tuple(program.fill(*s) for s in specs if s is not None)
    return program.region(op.regions[0])


@meaning("scf.index_switch")
def _switch(program: Program, op: Operation, selector: Array) -> tuple[Any, ...]:
    text = op.attribute("cases") or ""
    cases = [int(part) for part in text[text.index(":") + 1:-1].split(",")] if ":" in text else []
    number = int(selector)
    return program.region(op.regions[cases.index(number) + 1 if number in cases else 0])


@meaning("tt.call")
def _call(program: Program, op: Operation, *arguments: Any) -> tuple[Any, ...]:
    name = (op.attribute("callee") or "").removeprefix("@").strip('"')
    if name not in program.functions:
        raise ProgramError(f"the kernel has no function {name!r}")
    return program.call(program.functions[name], arguments)


@meaning("tt.get_program_id")
def _program_id(program: Program, op: Operation) -> Array:
    return np.asarray(program.instance[op.integer("axis") or 0], np.int32)


@meaning("tt.get_num_programs")
def _num_programs(program: Program, op: Operation) -> Array:
    return np.asarray(program.grid[op.integer("axis") or 0], np.int32)


@meaning("ttg.warp_id", "rocdl.workitem.id.x", "gpu.thread_id")
def _thread(program: Program, op: Operation) -> Array:
    """The first thread's: there are no threads here, so nothing but barriers may depend on it."""
    key = "thread", op
    if key not in program.state:
        uses = users(program.kernel.module)
        program.state[key] = waiting = [op]
        while waiting:
            for user, _ in (use for value in waiting.pop().results for use in uses.get(value, [])):
                if user.regions or (not user.name.startswith("arith.") and user.name != "amdg.cond_barrier"):
                    raise ProgramError(f"what a single thread does is not known: {user.name}")
                waiting.append(user)
    found = spec(op.results[0].type)
    assert found is not None
    return np.zeros((), found[1])


@pure("tt.assert")
def _assert(op: Operation, condition: Array) -> None:
    if not np.all(condition):
        raise ProgramError(f"the assertion {op.attribute('message')} fails")


@meaning("ub.poison", "tt.poison")
def _poison(program: Program, op: Operation) -> tuple[Any, ...]:
    found = spec(op.results[0].type)
    return (None if found is None else program.fill(*found),)


@pure("builtin.unrealized_conversion_cast")
def _conversion(op: Operation, *operands: Any) -> tuple[Any, ...]:
    if len(operands) != len(op.results):
        raise ProgramError("a conversion of values that are not one for one")
    return operands


_NOTHING = (
    "tt.print", "gpu.barrier", "ttg.barrier", "ttg.local_barrier", "rocdl.sched.barrier", "rocdl.s.setprio",
    "rocdl.sched.group.barrier", "rocdl.barrier", "rocdl.s.barrier", "amdg.cond_barrier", "amdg.instruction_sched_hint",
    "tt.grid_dependency_wait", "tt.grid_dependency_launch_dependents", "amdg.cluster_barrier_arrive",
    "amdg.cluster_barrier_wait", "ttng.cluster_barrier", "ttng.cluster_arrive", "ttng.cluster_wait",
    "ttng.fence_async_shared", "ttng.fence_mbarrier_init_release_cluster", "amdg.tdm_prefetch", "llvm.intr.assume",
    "llvm.fence", "rocdl.s.waitcnt", "rocdl.iglp.opt", "rocdl.s.sleep", "nvvm.barrier", "nvvm.barrier0",
)


@pure(*_NOTHING)
def _nothing(op: Operation, *operands: Any) -> tuple[()]:
    """Order among threads: an instance runs op by op here."""
    return ()


@pure("llvm.intr.expect")
def _expect(op: Operation, value: Any, *hints: Any) -> Any:
    return value
