"""Triton kernels of our own: sources, signatures, constants and options. ``PROGRAMS`` is the fixed table, ``variants``
draws others like them: block sizes, element types, warps, pipeline stages."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import triton.language as tl

from bench.programs import (
    kernels_attention as attention,
    kernels_elements as elements,
    kernels_hard as hard,
    kernels_products as products,
    kernels_rows as rows,
)

TARGETS: tuple[str, ...] = ("sm80", "sm90", "gfx942")

_TYPES = {"fp16": tl.float16, "bf16": tl.bfloat16, "fp32": tl.float32}


@dataclass(frozen=True)
class KernelProgram:
    """A kernel and what it is compiled for.

    arguments: runtime arguments' types as Triton writes them, by name in order. constants: its constexprs.
    choices: constants, ``num_warps``, ``num_stages`` and ``dtype`` (which replaces ``@`` in arguments, and is the
    constant DTYPE of kernels that have it) that a variant draws from. All pointers, and all integers but those in
    ``odd``, are multiples of 16, as the JIT finds of aligned tensors.
    """

    name: str
    function: Any
    arguments: str
    constants: Mapping[str, Any]
    dtype: str = "fp16"
    num_warps: int = 4
    num_stages: int = 3
    odd: tuple[str, ...] = ()
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def signature(self) -> dict[str, str]:
        """Every argument's type; those of constants are ``constexpr``."""
        pairs = (part.split(":") for part in self.arguments.replace("@", self.dtype).split())
        types = {name: kind for names, kind in pairs for name in names.split(",")}
        return {name: types.get(name, "constexpr") for name in self.function.arg_names}

    @property
    def constexprs(self) -> dict[str, Any]:
        names = self.function.arg_names
        return {**self.constants, **({"DTYPE": _TYPES[self.dtype]} if "DTYPE" in names else {})}

    @property
    def attributes(self) -> dict[tuple[int, ...], list[list[Any]]]:
        """What the JIT would infer of the arguments, by position."""
        return {
            (i,): [["tt.divisibility", 16]]
            for i, (name, kind) in enumerate(self.signature.items())
            if name not in self.odd and (kind.startswith("*") or kind in ("i32", "i64"))
        }

    @property
    def options(self) -> dict[str, int]:
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}

    def source(self) -> Any:
        """What `triton.compile` takes."""
        from triton.compiler import ASTSource

        return ASTSource(self.function, self.signature, self.constexprs, self.attributes)

    def drawn(self, generator: random.Random) -> KernelProgram:
        """The same kernel with every choice drawn; named by what was drawn."""
        drawn = {name: generator.choice(list(values)) for name, values in self.choices.items()}
        fields = {name: drawn.pop(name) for name in ("dtype", "num_warps", "num_stages") if name in drawn}
        found = replace(self, constants={**self.constants, **drawn}, **fields)
        what = [f"{name}{int(value)}" for name, value in drawn.items()]
        what += [found.dtype, f"w{found.num_warps}", f"s{found.num_stages}"]
        return replace(found, name=f"{self.name}[{' '.join(what)}]")


def _of(function: Any, arguments: str, constants: Mapping[str, Any], **rest: Any) -> KernelProgram:
    return KernelProgram(function.__name__, function, arguments, constants, **rest)


_WARPS = {"num_warps": (4, 8), "num_stages": (2, 3, 4)}
_HALF = {"dtype": ("fp16", "bf16")}
_ANY = {"dtype": ("fp16", "bf16", "fp32")}
_TILES = {"BM": (64, 128), "BN": (64, 128), "BK": (32, 64)}

PROGRAMS: tuple[KernelProgram, ...] = (
    _of(products.matmul_epilogue, "a_ptr,b_ptr,bias_ptr,c_ptr:*@ M,N,K,stride_am,stride_bk,stride_cm:i32",
        {"BM": 128, "BN": 128, "BK": 32, "GROUP": 8, "TF32": True}, choices={**_TILES, **_WARPS, **_ANY}),
    _of(rows.softmax, "x_ptr,y_ptr:*@ columns,stride:i32", {"B": 1024}, odd=("columns",), num_warps=4,
        choices={"B": (256, 512, 2048, 4096), **_WARPS, **_ANY}),
    _of(rows.layer_norm, "x_ptr,y_ptr,w_ptr,b_ptr:*@ mean_ptr,scale_ptr:*fp32 M,N,stride:i32 eps:fp32",
        {"BM": 16, "BN": 128}, odd=("M",),
        choices={"BM": (4, 8, 16, 32), "BN": (64, 128, 256), **_WARPS, **_ANY}),
    _of(rows.layer_norm_gradient, "x_ptr,grad_ptr,w_ptr,dx_ptr:*@ mean_ptr,scale_ptr,dw_ptr,db_ptr:*fp32 M,N:i32",
        {"BM": 4, "BN": 1024}, odd=("M",), choices={"BM": (1, 2, 4, 8), "BN": (256, 512, 1024), **_WARPS, **_ANY}),
    _of(rows.cross_entropy, "logits_ptr,grad_ptr:*@ labels_ptr:*i64 loss_ptr:*fp32 M,N:i32", {"BM": 8, "BN": 256},
        odd=("M",), choices={"BM": (1, 4, 8, 16), "BN": (128, 256, 512), **_WARPS, **_ANY}),
    _of(attention.attention, "q_ptr,k_ptr,v_ptr,out_ptr:*@ lse_ptr:*fp32 N:i32 scale:fp32",
        {"BM": 128, "BN": 64, "D": 64, "CAUSAL": True},
        choices={"BM": (64, 128), "BN": (32, 64), "D": (32, 64, 128), "CAUSAL": (False, True), **_WARPS, **_HALF}),
    _of(attention.attention_gradient_keys,
        "q_ptr,k_ptr,v_ptr,grad_ptr,dk_ptr,dv_ptr:*@ lse_ptr,delta_ptr:*fp32 N:i32 scale:fp32",
        {"BM": 32, "BN": 128, "D": 64, "CAUSAL": True},
        choices={"BM": (32, 64), "BN": (64, 128), "D": (32, 64), "CAUSAL": (False, True), **_WARPS, **_HALF}),
    _of(attention.attention_gradient_queries,
        "q_ptr,k_ptr,v_ptr,out_ptr,grad_ptr,dq_ptr:*@ lse_ptr,delta_ptr:*fp32 N:i32 scale:fp32",
        {"BM": 128, "BN": 32, "D": 64},
        choices={"BM": (64, 128), "BN": (32, 64), "D": (32, 64), **_WARPS, **_HALF}),
    _of(products.gate, "x_ptr,w_ptr:*@ weights_ptr,lse_ptr:*fp32 experts_ptr:*i32 M,K,stride_x,stride_w:i32",
        {"BM": 64, "E": 64, "BK": 64, "TOP": 4}, odd=("M",),
        choices={"BM": (32, 64, 128), "E": (16, 32, 64, 128), "BK": (32, 64), "TOP": (1, 2, 4), **_WARPS, **_HALF}),
    _of(products.matmul_int8_weights,
        "x_ptr,y_ptr:*@ w_ptr:*i8 scale_ptr:*fp32 M,N,K,stride_x,stride_w,stride_s,stride_y:i32",
        {"BM": 64, "BN": 128, "BK": 64}, odd=("M",), choices={**_TILES, **_WARPS, **_HALF}),
    _of(products.matmul_int4_weights, "x_ptr,y_ptr:*@ w_ptr:*i8 scale_ptr:*fp32 M,N,K,stride_x,stride_w,stride_y:i32",
        {"BM": 64, "BN": 128, "BK": 32}, odd=("M",), choices={**_TILES, **_WARPS, **_HALF}),
    _of(products.grouped_matmul, "a_table,b_table,c_table:*i64 sizes_ptr:*i32 groups,workers:i32",
        {"BM": 128, "BN": 128, "BK": 32}, odd=("groups", "workers"), choices={**_TILES, **_WARPS, **_HALF}),
    _of(products.batched_outer, "a_ptr,b_ptr,c_ptr:*@ K:i32", {"BM": 32, "BN": 32, "BK": 32, "B": 4},
        choices={"BM": (16, 32), "BN": (16, 32, 64), "B": (2, 4), **_WARPS, **_HALF}),
    _of(elements.transpose_gate, "x_ptr,gate_ptr,y_ptr:*@ M,N:i32", {"BM": 64, "BN": 64},
        choices={"BM": (32, 64, 128), "BN": (32, 64, 128), **_WARPS, **_ANY}),
    _of(elements.add_transposed, "x_ptr,z_ptr,y_ptr:*@ M,N:i32", {"BM": 64, "BN": 64},
        choices={"BM": (32, 64, 128), "BN": (32, 64, 128), **_WARPS, **_ANY}),
    _of(elements.fused_elementwise,
        "x_ptr,gate_ptr,bias_ptr,residual_ptr,y_ptr:*@ row_ptr:*fp32 rate:fp32 seed,M,N:i32", {"BM": 32, "BN": 128},
        odd=("seed", "M"), choices={"BM": (8, 32, 64), "BN": (64, 128, 256), **_WARPS, **_ANY}),
    _of(elements.rotary, "x_ptr,y_ptr:*@ cos_ptr,sin_ptr:*fp32 T:i32", {"HEADS": 8, "D": 64, "BT": 32}, odd=("T",),
        choices={"D": (32, 64, 128), "BT": (16, 32, 64), **_WARPS, **_ANY}),
    _of(elements.scan_histogram, "x_ptr,prefix_ptr,histogram_ptr:*i32 N:i32", {"B": 1024, "BINS": 256}, odd=("N",),
        choices={"B": (512, 1024, 2048), "BINS": (64, 128, 256), **_WARPS}),
    _of(elements.row_scan, "x_ptr,y_ptr:*@ decay_ptr:*fp32 N:i32", {"BM": 16, "BN": 128},
        choices={"BM": (4, 16, 32), "BN": (64, 128, 256), **_WARPS, **_ANY}),
    _of(elements.sort_rows, "x_ptr,y_ptr:*@ N:i32", {"BM": 4, "BN": 64}, odd=("N",), dtype="fp32",
        choices={"BM": (1, 4, 16), "BN": (32, 64), **_WARPS, **_ANY}),
    _of(elements.gather_rows, "x_ptr,y_ptr:*@ index_ptr:*i32 N:i32", {"BM": 16, "BN": 128}, dtype="fp32",
        choices={"BM": (4, 16, 32), "BN": (64, 128), **_WARPS, **_ANY}),
    _of(rows.batched_reductions, "x_ptr:*@ sum_ptr,top_ptr:*fp32 where_ptr:*i32 N:i32",
        {"BATCH": 4, "BM": 16, "BN": 64},
        choices={"BATCH": (2, 4), "BM": (8, 16), "BN": (32, 64, 128), **_WARPS, **_ANY}),
    _of(hard.masked_matmul, "a_ptr,b_ptr,mask_ptr,c_ptr:*@ M,N,K:i32", {"BM": 64, "BN": 64, "BK": 32},
        choices={**_TILES, **_WARPS, **_HALF}),
    _of(hard.branch_in_loop, "x_ptr:*@ w_ptr,y_ptr:*fp32 flags_ptr:*i32 N:i32", {"BM": 16, "BN": 128},
        choices={"BM": (4, 16, 64), "BN": (64, 128, 256), **_WARPS, **_ANY}),
    _of(hard.pairwise_distance, "x_ptr,z_ptr:*@ y_ptr:*fp32 N,K:i32", {"BM": 64, "BN": 64, "BK": 32},
        choices={**_TILES, **_WARPS, **_HALF}),
    _of(hard.two_accumulators, "x_ptr,gate_ptr,up_ptr,y_ptr:*@ top_ptr:*fp32 N,K:i32", {"BM": 64, "BN": 64, "BK": 32},
        choices={**_TILES, **_WARPS, **_HALF}),
    _of(hard.used_after_loop, "x_ptr:*@ w_ptr,y_ptr,last_ptr:*fp32 N:i32", {"BM": 32, "BN": 64},
        choices={"BM": (16, 32, 64), "BN": (32, 64, 128), **_WARPS, **_ANY}),
    _of(hard.power_iteration, "a_ptr,x_ptr,y_ptr:*fp32 tolerance:fp32", {"B": 64},
        choices={"B": (32, 64, 128), **_WARPS}),
    _of(hard.broadcast_slices, "x_ptr:*@ row_ptr,column_ptr,y_ptr,top_ptr:*fp32 M,N:i32", {"BM": 64, "BN": 64},
        choices={"BM": (32, 64, 128), "BN": (32, 64), **_WARPS, **_ANY}),
)


def variants(seed: int, count: int) -> list[KernelProgram]:
    """``count`` kernels of the table, in an order and with choices drawn from the seed; none twice before all once."""
    generator = random.Random(f"kernels:{seed}")
    order = generator.sample(PROGRAMS, len(PROGRAMS))
    return [order[i % len(order)].drawn(generator) for i in range(count)]
