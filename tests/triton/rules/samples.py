"""One op of each kind that has a rule, small, by its generic form."""

from __future__ import annotations

import numpy as np
from tests.triton.rules.one_op import GFX942, SM80, SM90, Sample, combine

from eggshard.triton.kernels.ir import Operation

_FAST = "fastmath = #arith.fastmath<none>"
_ACCESS = "boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32"
_ASM = 'asm_string = "mov.b32 $0, $1;", constraints = "=r,r"'
_SHARED = "#ttg.swizzled_shared<{vec = 4, perPhase = 2, maxPhase = 4, order = [1, 0]}>"
_NVMMA = "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>"
_WIDE = "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>"
_TALL = "#ttg.swizzled_shared<{vec = 8, perPhase = 2, maxPhase = 2, order = [0, 1]}>"
_BUFFER = f"!ttg.memdesc<16x64xf16, {_SHARED}, #ttg.shared_memory, mutable>"
_CONSTANT_BUFFER = f"!ttg.memdesc<16x64xf16, {_SHARED}, #ttg.shared_memory>"
_DESCRIPTOR = f"!tt.tensordesc<16x64xf16, {_NVMMA}>"
_PAIRS = ("tensor<16x64xf32>",) * 2
_NVIDIA = (SM80, SM90)
_AMD = (GFX942,)

_PAIRWISE = """({
^bb0(%x0: f32, %x1: f32):
%s0 = "arith.addf"(%x0, %x1) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
%s1 = "arith.mulf"(%x1, %x1) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
"tt.map_elementwise.return"(%s0, %s1) : (f32, f32) -> ()
})"""

POINTWISE = [
    Sample("arith.addf", _PAIRS, ("tensor<16x64xf32>",), _FAST),
    Sample("arith.extsi", ("tensor<64xi16>",), ("tensor<64xi32>",)),
    Sample("arith.constant", (), ("tensor<16x64xf32>",), "value = dense<1.0> : RESULT"),
    Sample("arith.select", ("tensor<64xi1>", "tensor<64xf32>", "tensor<64xf32>"), ("tensor<64xf32>",)),
    Sample("arith.mului_extended", ("tensor<64xi32>",) * 2, ("tensor<64xi32>",) * 2),
    Sample("arith.divf", _PAIRS, ("tensor<16x64xf32>",), _FAST),
    Sample("arith.divsi", ("tensor<64xi32>",) * 2, ("tensor<64xi32>",)),
    Sample("math.exp", ("tensor<16x64xf32>",), ("tensor<16x64xf32>",), _FAST),
    Sample("tt.splat", ("i32",), ("tensor<16x64xi32>",)),
    Sample("tt.make_range", (), ("tensor<256xi32>",), "end = 256 : i32, start = 0 : i32"),
    Sample("tt.unsplat", ("tensor<1xi32>",), ("i32",)),
    Sample("tt.addptr", ("tensor<64x!tt.ptr<f32>>", "tensor<64xi32>"), ("tensor<64x!tt.ptr<f32>>",)),
    Sample("tt.fp_to_fp", ("tensor<16x64xf8E5M2>",), ("tensor<16x64xf16>",)),
    Sample("tt.elementwise_inline_asm", ("tensor<16x64xi32>",), ("tensor<16x64xi32>",),
           f"{_ASM}, packed_element = 1 : i32, pure = true", machines=_NVIDIA),
    Sample("tt.elementwise_inline_asm", ("tensor<16x64xi8>",), ("tensor<16x64xi8>",),
           f"{_ASM}, packed_element = 4 : i32, pure = true", machines=_NVIDIA),
    Sample("tt.map_elementwise", ("tensor<16x64xf32>",), ("tensor<16x64xf32>",), "pack = 2 : i32", _PAIRWISE),
    Sample("tt.assert", ("tensor<16x64xi1>",), (), 'message = "no"'),
    Sample("ttg.convert_layout", ("tensor<16x64xf32>",), ("tensor<16x64xf32>",)),
]

MOVEMENT = [
    Sample("tt.broadcast", ("tensor<16x1xf32>",), ("tensor<16x64xf32>",)),
    Sample("tt.broadcast", ("tensor<1x1x8xf32>",), ("tensor<16x2x8xf32>",)),
    Sample("tt.expand_dims", ("tensor<64xf32>",), ("tensor<64x1xf32>",), "axis = 1 : i32"),
    Sample("tt.expand_dims", ("tensor<16x64xf32>",), ("tensor<1x16x64xf32>",), "axis = 0 : i32"),
    Sample("tt.expand_dims", ("tensor<16x64xf32>",), ("tensor<16x1x64xf32>",), "axis = 1 : i32"),
    Sample("tt.trans", ("tensor<16x64xf32>",), ("tensor<64x16xf32>",), "order = array<i32: 1, 0>"),
    Sample("tt.trans", ("tensor<16x64x4xf32>",), ("tensor<4x16x64xf32>",), "order = array<i32: 2, 0, 1>"),
    Sample("tt.reshape", ("tensor<16x64xf32>",), ("tensor<1024xf32>",)),
    Sample("tt.reshape", ("tensor<1024xf32>",), ("tensor<16x64xf32>",)),
    Sample("tt.reshape", ("tensor<16x64xf32>",), ("tensor<4x8x32xf32>",)),
    Sample("tt.reshape", ("tensor<16x64xf32>",), ("tensor<1x16x64xf32>",)),
    Sample("tt.join", _PAIRS, ("tensor<16x64x2xf32>",)),
    Sample("tt.join", ("tensor<128xf32>",) * 2, ("tensor<128x2xf32>",)),
    Sample("tt.split", ("tensor<16x64x2xf32>",), _PAIRS),
    Sample("tt.split", ("tensor<128x2xf32>",), ("tensor<128xf32>",) * 2),
    Sample("ttg.fp4_to_fp", ("tensor<32x64xi8>",), ("tensor<32x128xf16>",), "axis = 1 : i32"),
    Sample("ttg.fp4_to_fp", ("tensor<32x64xi8>",), ("tensor<64x64xf16>",), "axis = 0 : i32"),
]

COMBINING = [
    Sample("tt.reduce", ("tensor<16x64xf32>",), ("tensor<16xf32>",), "axis = 1 : i32", combine("reduce")),
    Sample("tt.reduce", _PAIRS, ("tensor<64xf32>",) * 2, "axis = 0 : i32", combine("reduce", 2)),
    Sample("tt.reduce", ("tensor<16x8x4xf32>",), ("tensor<16x4xf32>",), "axis = 1 : i32", combine("reduce")),
    Sample("tt.reduce", ("tensor<64xf32>",), ("f32",), "axis = 0 : i32", combine("reduce")),
    Sample("tt.scan", ("tensor<16x64xf32>",), ("tensor<16x64xf32>",), "axis = 1 : i32, reverse = false",
           combine("scan")),
    Sample("tt.scan", ("tensor<128xf32>",) * 2, ("tensor<128xf32>",) * 2, "axis = 0 : i32, reverse = true",
           combine("scan", 2)),
    Sample("tt.histogram", ("tensor<256xi32>", "tensor<256xi1>"), ("tensor<64xi32>",)),
    Sample("tt.gather", ("tensor<16x64xf32>", "tensor<16x32xi32>"), ("tensor<16x32xf32>",), "axis = 1 : i32"),
]

MEMORY = [
    Sample("tt.load", ("tensor<64x!tt.ptr<f32>>", "tensor<64xi1>", "tensor<64xf32>"), ("tensor<64xf32>",),
           f"{_ACCESS}, isVolatile = false, operandSegmentSizes = array<i32: 1, 1, 1>"),
    Sample("tt.store", ("tensor<64x!tt.ptr<f32>>", "tensor<64xf32>", "tensor<64xi1>"), (), _ACCESS),
    Sample("amdg.buffer_load", ("!tt.ptr<f32>", "tensor<64xi32>", "tensor<64xi1>"), ("tensor<64xf32>",),
           "cache = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 0, 1, 0>", machines=_AMD),
    Sample("amdg.buffer_store", ("tensor<64xf32>", "!tt.ptr<f32>", "tensor<64xi32>"), (),
           "cache = 1 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>", machines=_AMD),
    Sample("ttg.local_load", (_BUFFER,), ("tensor<16x64xf16>",)),
    Sample("ttg.local_load", (_BUFFER.replace(_SHARED, _WIDE),), ("tensor<16x64xf16>",)),
    Sample("ttg.local_load", (_BUFFER.replace(_SHARED, _TALL),), ("tensor<16x64xf16>",)),
    Sample("ttg.local_load", (_BUFFER.replace(_SHARED, _NVMMA),), ("tensor<16x64xf16>",), machines=_NVIDIA),
    Sample("ttg.local_store", ("tensor<16x64xf16>", _BUFFER.replace(_SHARED, _NVMMA)), (), machines=_NVIDIA),
    Sample("ttg.local_store", ("tensor<16x64xf16>", _BUFFER), ()),
    Sample("ttg.local_alloc", ("tensor<16x64xf16>",), (_CONSTANT_BUFFER,)),
    Sample("tt.descriptor_load", (_DESCRIPTOR, "i32", "i32"), ("tensor<16x64xf16>",),
           "cache = 1 : i32, evict = 1 : i32", machines=(SM90,)),
    Sample("tt.descriptor_store", (_DESCRIPTOR, "tensor<16x64xf16>", "i32", "i32"), (), machines=(SM90,)),
    Sample("tt.descriptor_reduce", (_DESCRIPTOR, "tensor<16x64xf16>", "i32", "i32"), (), "kind = 1 : i32",
           machines=(SM90,)),
]

SAMPLES = [*POINTWISE, *MOVEMENT, *COMBINING, *MEMORY]


def same_elements(op: Operation, number: int, index: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Which elements of the first operand elements of result ``number`` are, of an op that moves none; of a join, the
    elements of both operands; of unpacked bytes, the bytes."""
    tensor = op.operands[0].tensor
    assert tensor is not None
    axis = op.integer("axis") or 0
    match op.name:
        case "tt.broadcast":
            return tuple(np.zeros_like(i) if n == 1 else i for i, n in zip(index, tensor.shape, strict=True))
        case "tt.expand_dims":
            return index[:axis] + index[axis + 1:]
        case "tt.trans":
            order = [int(n) for n in (op.attribute("order") or "").partition(":")[2].rstrip("> ").split(",")]
            return tuple(index[order.index(d)] for d in range(len(order)))
        case "tt.reshape":
            result = op.results[0].tensor
            assert result is not None
            flat = np.ravel_multi_index(index, result.shape)
            return tuple(np.unravel_index(flat, tensor.shape))
        case "tt.join":
            return index[:-1]
        case "tt.split":
            return (*index, np.full_like(index[0], number))
        case "ttg.fp4_to_fp":
            return tuple(i // 2 if d == axis else i for d, i in enumerate(index))
    raise AssertionError(op.name)
