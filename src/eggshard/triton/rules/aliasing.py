"""Alias analysis: whether memory that is read is also written, as far as pointers tell.

Threads of a block are not synchronized. Where several of them read an element, or read it at two layouts, one may do so
after another has stored what follows from it; so memory that a kernel both reads and writes is read once, at the given
layout. Two arguments of a kernel are taken not to alias, as Triton assumes when it recomputes loads.
"""

from __future__ import annotations

from eggshard.triton.kernels.ir import Block, Operation, Value

#: Ops whose first operand their pointers come from.
_THROUGH = frozenset("""
    tt.addptr tt.splat tt.broadcast tt.expand_dims tt.bitcast tt.reshape tt.trans ttg.convert_layout
    tt.make_tensor_descriptor""".split())

#: Per op that accesses global memory: the operand that says where, and whether it reads and writes.
_ACCESSES = {
    "tt.load": (0, True, False), "tt.store": (0, False, True), "tt.atomic_rmw": (0, True, True),
    "tt.atomic_cas": (0, True, True), "tt.atomic_load": (0, True, False), "tt.atomic_store": (0, False, True),
    "tt.atomic_poll": (0, True, False), "tt.descriptor_load": (0, True, False),
    "tt.descriptor_store": (0, False, True), "tt.descriptor_reduce": (0, True, True),
    "tt.descriptor_gather": (0, True, False), "tt.descriptor_scatter": (0, False, True),
    "ttg.async_copy_global_to_local": (0, True, False),
    "ttng.async_tma_copy_global_to_local": (0, True, False), "ttng.async_tma_copy_local_to_global": (0, False, True),
    "amdg.buffer_load": (0, True, False), "amdg.buffer_store": (1, False, True),
    "amdg.buffer_atomic_rmw": (1, True, True), "amdg.buffer_atomic_cas": (1, True, True),
    "amdg.buffer_load_to_local": (1, True, False),
}


def base(value: Value) -> Value | None:
    """What a pointer is computed from: an argument of the function, a pointer that was read; None if it may be one of
    several."""
    while True:
        owner = value.owner
        if isinstance(owner, Block):
            loop = owner.parent.parent if owner.parent is not None else None
            if loop is None or loop.name == "tt.func":
                return value
            if loop.name != "scf.for":
                return None
            value = loop.operands[2 + value.index]
        elif owner.name in _THROUGH:
            value = owner.operands[0]
        elif owner.name == "scf.for":
            value = owner.operands[3 + value.index]
        elif owner.name in ("arith.select", "scf.if", "scf.while"):
            return None
        else:
            return value


def read_and_written(op: Operation) -> bool:
    """Whether what an access reads is written elsewhere in its function, or what it writes is read; True in doubt."""
    where, reads, writes = _ACCESSES[op.name]
    mine = base(op.operands[where])
    function = op
    while function.parent_op is not None and function.name != "tt.func":
        function = function.parent_op
    for other in function.walk():
        found = _ACCESSES.get(other.name)
        if found is None or other is op or not (reads and found[2] or writes and found[1]):
            continue
        its = base(other.operands[found[0]])
        if mine is None or its is None or mine is its:
            return True
    return False
