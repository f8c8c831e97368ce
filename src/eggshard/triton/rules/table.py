"""The table of rules, by op name. Ops that are not listed are not understood, and stay as they are given."""

from __future__ import annotations

from collections.abc import Callable

from eggshard.triton.kernels.ir import Operation
from eggshard.triton.layouts.counts import Counts
from eggshard.triton.layouts.encodings import Encoding
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import movement, reduction
from eggshard.triton.rules.costs import arithmetic, registers
from eggshard.triton.rules.kinds import KINDS
from eggshard.triton.rules.memory import access, shared
from eggshard.triton.rules.rule import Option, Options, Rule, at_any, droppable, free, pure, uniform

_OPAQUE = Rule()
_LEFT_OUT = Rule(effects=droppable)

#: What carries values into blocks, around and out of them: their encodings are chosen as those of `control.Tie`, or, in
#: blocks of no known meaning, stay.
CARRYING = frozenset("""
    scf.for scf.while scf.if scf.execute_region scf.index_switch scf.yield scf.condition ttg.warp_specialize
    ttg.warp_yield""".split())

#: Known, and left as they are: what they mean depends on the encoding (``tt.cat`` and ``ttg.inline_asm`` on the order
#: of registers), is observed (``tt.print``), was laid out for the hardware (matrix instructions, asynchronous copies,
#: tensor memory, atomic and indexed accesses), or is agreed with other code (calls, branches between blocks).
ANCHORS = frozenset("""
    tt.print tt.func tt.call tt.return cf.br cf.cond_br cf.switch scf.forall scf.parallel
    tt.atomic_rmw tt.atomic_cas tt.atomic_load tt.atomic_store tt.atomic_poll
    ttng.tc_gen5_mma ttng.tc_gen5_mma_scaled
    ttng.packed_arith ttg.inline_asm ttg.mask ttg.mask.return ttg.warp_specialize.partitions ttg.warp_return
    tt.make_tensor_descriptor tt.descriptor_scatter
    ttg.async_copy_global_to_local ttg.async_wait ttg.async_commit_group ttg.local_dealloc
    ttg.local_scatter ttg.local_atomic_scatter_rmw ttg.global_scratch_alloc ttg.barrier ttg.predicate_stage
    ttng.tmem_alloc ttng.tmem_load ttng.tmem_store ttng.tmem_copy ttng.tmem_subslice ttng.tmem_wait
    ttng.async_shared_store ttng.async_tma_copy_global_to_local ttng.async_tma_copy_local_to_global
    ttng.async_tma_gather ttng.async_tma_scatter ttng.async_tma_reduce ttng.async_tma_store_wait
    ttng.clc_try_cancel_sync gluon.set_auto_layout tti.dot_i8
    amdg.buffer_atomic_rmw amdg.buffer_atomic_cas amdg.buffer_load_to_local amdg.async_copy_local_to_global
    amdg.masked_store""".split())

#: As these, but without effects.
PURE_ANCHORS = frozenset("""
    tt.cat tt.dot_scaled ttng.warp_group_dot tt.descriptor_gather ttg.local_gather amdg.concat amdg.extract_slice
    amdg.in_thread_transpose amdg.local_load_packed_transposed amdg.masked_load amdg.scaled_downcast_fp4
    amdg.scaled_downcast_fp8 amdg.scaled_upcast_fp4 amdg.scaled_upcast_fp8""".split())

#: Dialects of ops without effects, and of branches between them.
_PURE = ("arith", "math", "cf", "ub")


def _pointwise(kind: str | None, options: Options = at_any, movable: Callable[[Operation], bool] = pure) -> Rule:
    """An op of so much arithmetic of a class per element; no class: it costs nothing."""

    def work(op: Operation, option: Option, machine: Machine) -> Counts:
        return arithmetic(kind, op, option, machine)

    return Rule(options, work, free, movable)


def _says_pure(op: Operation) -> bool:
    """Whether the attribute ``pure`` says that an op has no effects; others run once."""
    return op.attribute("pure") == "true"


def _packed(op: Operation, side: int, i: int, encoding: Encoding, machine: Machine) -> list[Option]:
    """A scalar region run on ``pack`` neighbouring registers at a time: there must be so many."""
    pack = op.integer("pack") or 1
    return [uniform(op, encoding)] if pack == 1 or registers(op.results[0], encoding, machine) % pack == 0 else []


def _pure_inside(op: Operation) -> bool:
    inside = (inner for region in op.regions for block in region.blocks for inner in block.operations)
    return all(op.name.partition(".")[0] in _PURE or op.name == "tt.map_elementwise.return" for op in inside)


TABLE: dict[str, Rule] = {
    **{name: _pointwise(kind) for name, kind in KINDS.items()},
    **{name: _OPAQUE for name in CARRYING | ANCHORS},
    **{name: _LEFT_OUT for name in PURE_ANCHORS},
    "tt.extern_elementwise": _pointwise("special", movable=_says_pure),
    "tt.elementwise_inline_asm": _pointwise("integer", movable=_says_pure),
    "tt.map_elementwise": _pointwise("float", _packed, _pure_inside),
    "tt.assert": Rule(at_any, anchored=free),
    "tt.broadcast": movement.BROADCAST,
    "tt.expand_dims": movement.EXPAND_DIMS,
    "tt.trans": movement.TRANSPOSE,
    "tt.reshape": movement.RESHAPE,
    "tt.join": movement.JOIN,
    "tt.split": movement.SPLIT,
    "tt.reduce": reduction.REDUCE,
    "tt.scan": reduction.SCAN,
    "tt.histogram": reduction.HISTOGRAM,
    "tt.gather": reduction.GATHER,
    "tt.dot": movement.DOT,
    "ttng.warp_group_dot_wait": movement.WAIT,
    "tt.load": access(pointers=0),
    "tt.store": access(pointers=0, stored=1),
    "amdg.buffer_load": access(pointers=1),
    "amdg.buffer_store": access(pointers=2, stored=0),
    "tt.descriptor_load": shared(loads=True, copied=True),
    "tt.descriptor_store": shared(loads=False),
    "tt.descriptor_reduce": shared(loads=False),
    "ttg.local_load": shared(loads=True),
    "ttg.local_store": shared(loads=False),
    "ttg.local_alloc": shared(loads=False),
    "ttg.convert_layout": movement.CONVERSION,
    "ttg.fp4_to_fp": movement.UNPACKING,
}


def rule_of(name: str) -> Rule:
    """The rule of an op's name."""
    return TABLE.get(name, _OPAQUE)
