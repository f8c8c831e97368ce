"""Rules of global and shared memory accesses: every encoding accesses the same data, at different speeds."""

from __future__ import annotations

import math

from eggshard.triton.kernels.ir import Kernel, Operation, Value, users
from eggshard.triton.layouts.counts import NOTHING, Counts
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules.aliasing import read_and_written
from eggshard.triton.rules.costs import accesses, bits, global_accesses, layout_of, measured, registers
from eggshard.triton.rules.rule import Option, Rule, at_any, in_clusters
from eggshard.triton.rules.shared_memory import read_buffer, traffic


def first_tensor(op: Operation) -> Value | None:
    return next((v for v in (*op.operands, *op.results) if v.tensor is not None), None)


def access(pointers: int, stored: int | None = None) -> Rule:
    """A load, or store of an operand, through pointers or offsets, another operand: those, mask, other and value are at
    one encoding.

    One that has work for all threads keeps its encoding, which was chosen for the order of its addresses; a smaller one
    (each element is read by several threads, or by one of few) runs at any, as every cache line is touched anyway,
    unless the memory is both read and written (`aliasing`).
    """
    loads = stored is None

    def anchored(op: Operation, kernel: Kernel) -> bool:
        tensor = first_tensor(op)
        if tensor is None or tensor.tensor is None or op.attribute("isVolatile") == "true":
            return True
        elements = math.prod(tensor.tensor.shape)
        if elements > 1 and elements >= kernel.num_warps * kernel.threads_per_warp:
            return True
        return loads and _feeds_pipeline(op) or read_and_written(op)

    def repeatable(op: Operation, kernel: Kernel) -> bool:
        return loads and not anchored(op, kernel)

    def work(op: Operation, option: Option, machine: Machine) -> Counts:
        value = op.results[0] if stored is None else op.operands[stored]
        if value.tensor is None:
            return NOTHING
        encoding = next(e for e in (*option.operands, *option.results) if e is not None)
        count, touched = global_accesses(value, encoding, op.operands[pointers], machine)
        if loads:
            return Counts(global_loads=count, global_lines=touched)
        return Counts(global_stores=count, global_lines=touched)

    def effects(op: Operation) -> bool:
        return not loads or op.attribute("isVolatile") == "true"

    return Rule(at_any, work, anchored, repeatable=repeatable, effects=effects)


def _feeds_pipeline(op: Operation) -> bool:
    """Whether a load in a loop goes straight into a product's operand or shared memory: then the software pipeliner
    takes it up, which knows it by that shape."""
    loop: Operation | None = op
    while loop is not None and loop.name not in ("scf.for", "scf.while"):
        loop = loop.parent_op
    if loop is None:
        return False
    assert op.parent is not None
    return any(user.name == "ttg.local_alloc" or user.name == "ttg.convert_layout" and _is_dot_operand(user.results[0])
               for user, _ in users(op.parent.operations).get(op.results[0], ()))


def _is_dot_operand(value: Value) -> bool:
    return value.tensor is not None and (value.tensor.encoding or "").startswith("#ttg.dot_op")


def shared(loads: bool, copied: bool = False) -> Rule:
    """A distributed tensor read from, or written to, shared memory: any encoding is read and written there.

    A read happens at its place, but may happen twice there, unless it comes from global memory (``copied``).
    """

    def work(op: Operation, option: Option, machine: Machine) -> Counts:
        accessed = measured(op, option)
        if accessed is None:
            return NOTHING
        value, encoding = accessed
        assert value.tensor is not None
        element = value.tensor.element
        buffer = next((found for v in (*op.operands, *op.results) if (found := read_buffer(str(v.type)))), None)
        layout = layout_of(value, encoding)
        known = traffic(layout, buffer, bits(element), machine, loads) if buffer and layout else None
        if known is not None:
            instructions, waves = (float(n * machine.num_warps) for n in known)
        else:
            instructions = accesses(value, encoding, element, machine)
            amount = registers(value, encoding, machine) * machine.num_warps * max(8, bits(element)) / 32
            waves = max(instructions, float(amount))
        if loads:
            return Counts(shared_loads=instructions, shared_load_wavefronts=waves)
        return Counts(shared_stores=instructions, shared_store_wavefronts=waves)

    return Rule(at_any, work, in_clusters, repeatable=lambda op, kernel: loads and not copied,
                effects=lambda op: not loads)
