"""The table of rules, by op name. Ops that are not listed are not understood, and stay as they are given."""

from __future__ import annotations

from eggshard.triton.rules.contraction import Dot
from eggshard.triton.rules.conversion import Conversion, Unpacking
from eggshard.triton.rules.kinds import KINDS
from eggshard.triton.rules.memory import Access, Shared
from eggshard.triton.rules.movement import Broadcast, ExpandDims, Join, Reshape, Split, Transpose
from eggshard.triton.rules.pointwise import Asserted, Observed, Packed, Pointwise
from eggshard.triton.rules.reduction import Gather, Histogram, Reduce, Scan
from eggshard.triton.rules.rule import Rule

_OPAQUE = Rule()

#: What carries values into blocks, around and out of them: their encodings are chosen as those of `control.Tie`, or, in
#: blocks of no known meaning, stay.
CARRYING = frozenset("""
    scf.for scf.while scf.if scf.execute_region scf.index_switch scf.yield scf.condition ttg.warp_specialize
    ttg.warp_yield""".split())

#: Known, and left as they are: what they mean depends on the encoding (``tt.cat`` and ``ttg.inline_asm`` on the order
#: of registers), is observed (``tt.print``), was laid out for the hardware (matrix instructions, asynchronous copies,
#: tensor memory, atomic and indexed accesses), or is agreed with other code (calls, branches between blocks).
ANCHORS = frozenset("""
    tt.cat tt.print tt.func tt.call tt.return cf.br cf.cond_br cf.switch scf.forall scf.parallel
    tt.atomic_rmw tt.atomic_cas tt.atomic_load tt.atomic_store tt.atomic_poll
    tt.dot_scaled ttng.warp_group_dot ttng.warp_group_dot_wait ttng.tc_gen5_mma ttng.tc_gen5_mma_scaled
    ttng.packed_arith ttg.inline_asm ttg.mask ttg.mask.return ttg.warp_specialize.partitions ttg.warp_return
    tt.make_tensor_descriptor tt.descriptor_gather tt.descriptor_scatter
    ttg.async_copy_global_to_local ttg.async_wait ttg.async_commit_group ttg.local_dealloc ttg.local_gather
    ttg.local_scatter ttg.local_atomic_scatter_rmw ttg.global_scratch_alloc ttg.barrier ttg.predicate_stage
    ttng.tmem_alloc ttng.tmem_load ttng.tmem_store ttng.tmem_copy ttng.tmem_subslice ttng.tmem_wait
    ttng.async_shared_store ttng.async_tma_copy_global_to_local ttng.async_tma_copy_local_to_global
    ttng.async_tma_gather ttng.async_tma_scatter ttng.async_tma_reduce ttng.async_tma_store_wait
    ttng.clc_try_cancel_sync gluon.set_auto_layout tti.dot_i8
    amdg.buffer_atomic_rmw amdg.buffer_atomic_cas amdg.buffer_load_to_local amdg.async_copy_local_to_global
    amdg.concat amdg.extract_slice amdg.in_thread_transpose amdg.local_load_packed_transposed
    amdg.masked_load amdg.masked_store amdg.scaled_downcast_fp4 amdg.scaled_downcast_fp8 amdg.scaled_upcast_fp4
    amdg.scaled_upcast_fp8""".split())

TABLE: dict[str, Rule] = {
    **{name: Pointwise(kind) for name, kind in KINDS.items()},
    **{name: _OPAQUE for name in CARRYING | ANCHORS},
    "tt.extern_elementwise": Asserted("special"),
    "tt.elementwise_inline_asm": Asserted("integer"),
    "tt.map_elementwise": Packed("float"),
    "tt.assert": Observed(),
    "tt.broadcast": Broadcast(),
    "tt.expand_dims": ExpandDims(),
    "tt.trans": Transpose(),
    "tt.reshape": Reshape(),
    "tt.join": Join(),
    "tt.split": Split(),
    "tt.reduce": Reduce(),
    "tt.scan": Scan(),
    "tt.histogram": Histogram(),
    "tt.gather": Gather(),
    "tt.dot": Dot(),
    "tt.load": Access(),
    "tt.store": Access(stored=1),
    "amdg.buffer_load": Access(),
    "amdg.buffer_store": Access(stored=0),
    "tt.descriptor_load": Shared(loads=True, copied=True),
    "tt.descriptor_store": Shared(loads=False),
    "tt.descriptor_reduce": Shared(loads=False),
    "ttg.local_load": Shared(loads=True),
    "ttg.local_store": Shared(loads=False),
    "ttg.local_alloc": Shared(loads=False),
    "ttg.convert_layout": Conversion(),
    "ttg.fp4_to_fp": Unpacking(),
}


def rule_of(name: str) -> Rule:
    """The rule of an op's name."""
    return TABLE.get(name, _OPAQUE)
