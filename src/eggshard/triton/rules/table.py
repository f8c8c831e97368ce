"""Which rule each op has, by name. Ops that are not here are not understood: they stay as they are given."""

from __future__ import annotations

from eggshard.triton.rules.contraction import Dot
from eggshard.triton.rules.control import Carrying
from eggshard.triton.rules.conversion import Conversion, Unpacking
from eggshard.triton.rules.memory import Access, Shared
from eggshard.triton.rules.movement import Broadcast, ExpandDims, Join, Reshape, Split, Transpose
from eggshard.triton.rules.pointwise import Asserted, Observed, Packed, Pointwise
from eggshard.triton.rules.reduction import Gather, Histogram, Reduce, Scan
from eggshard.triton.rules.rule import Rule

_OPAQUE = Rule()

#: Pure ops on each element by themselves, by the class of their instructions.
_POINTWISE = {
    None: """
        arith.bitcast arith.constant tt.bitcast tt.int_to_ptr tt.ptr_to_int tt.splat tt.unsplat tt.get_program_id
        tt.get_num_programs ub.poison ttg.memdesc_index ttg.memdesc_subslice ttg.memdesc_trans ttg.memdesc_reshape
        ttg.memdesc_reinterpret ttg.warp_id""",
    "integer": """
        arith.addi arith.subi arith.muli arith.andi arith.ori arith.xori arith.shli arith.shrsi arith.shrui
        arith.maxsi arith.maxui arith.minsi arith.minui arith.cmpi arith.select arith.extsi arith.extui arith.trunci
        arith.index_cast arith.index_castui arith.addui_extended arith.subui_extended arith.mului_extended
        arith.mulsi_extended math.absi math.ctlz math.ctpop math.cttz tt.addptr tt.make_range tt.mulhiui""",
    "float": """
        arith.addf arith.subf arith.mulf arith.negf arith.maximumf arith.minimumf arith.maxnumf arith.minnumf
        arith.cmpf math.absf math.ceil math.floor math.trunc math.round math.roundeven math.copysign math.fma
        math.isfinite math.isinf math.isnan math.isnormal math.clampf tt.clampf""",
    "conversion": """
        arith.extf arith.truncf arith.sitofp arith.uitofp arith.fptosi arith.fptoui arith.convertf tt.fp_to_fp""",
    "special": """
        math.acos math.acosh math.asin math.asinh math.atan math.atan2 math.atanh math.cbrt math.cos math.cosh math.erf
        math.erfc math.exp math.exp2 math.expm1 math.fpowi math.ipowi math.log math.log10 math.log1p math.log2
        math.powf math.rsqrt math.sin math.sincos math.sinh math.sqrt math.tan math.tanh tt.approx_divf
        tt.precise_sqrt""",
    "division": "arith.divf arith.remf tt.precise_divf",
}
#: Integer division by zero is undefined: no such op runs where it would not have run.
_DIVISIONS = "arith.ceildivsi arith.ceildivui arith.divsi arith.divui arith.floordivsi arith.remsi arith.remui"

_CARRYING = """
    scf.for scf.while scf.if scf.execute_region scf.index_switch scf.yield scf.condition ttg.warp_specialize
    ttg.warp_yield"""

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
    **{name: Pointwise(kind) for kind, names in _POINTWISE.items() for name in names.split()},
    **{name: Pointwise("division", speculated=False) for name in _DIVISIONS.split()},
    **{name: Carrying() for name in _CARRYING.split()},
    **{name: _OPAQUE for name in ANCHORS},
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
    "tt.descriptor_load": Shared(loads=True),
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
