"""Shapes, combine regions, products, memory and control flow, op by op; and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from testing.kernel_interpreter import run
from tests.testing.kernel_interpreter.single_ops import apply, call, function, module

from eggshard.errors import ProgramError

RNG = np.random.default_rng(2)


def numbered(*shape: int) -> Any:
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)


def test_arrangements() -> None:
    x = numbered(2, 4)
    tensor = ("tensor<2x4xi32>", x)
    assert apply("tt.make_range", [], ["tensor<4xi32>"], "end = 6 : i32, start = 2 : i32")[0].tolist() == [2, 3, 4, 5]
    assert apply("tt.splat", [("i32", np.int32(3))], ["tensor<2x2xi32>"])[0].tolist() == [[3, 3], [3, 3]]
    np.testing.assert_array_equal(
        apply("tt.expand_dims", [tensor], ["tensor<2x1x4xi32>"], "axis = 1 : i32")[0], x[:, None])
    np.testing.assert_array_equal(
        apply("tt.broadcast", [("tensor<2x1xi32>", x[:, :1])], ["tensor<2x4xi32>"])[0], np.repeat(x[:, :1], 4, 1))
    np.testing.assert_array_equal(apply("tt.reshape", [tensor], ["tensor<8xi32>"])[0], x.ravel())
    cube = numbered(2, 3, 4)
    np.testing.assert_array_equal(
        apply("tt.trans", [("tensor<2x3x4xi32>", cube)], ["tensor<4x2x3xi32>"], "order = array<i32: 2, 0, 1>")[0],
        cube.transpose(2, 0, 1))
    (joined,) = apply("tt.join", [tensor, ("tensor<2x4xi32>", -x)], ["tensor<2x4x2xi32>"])
    np.testing.assert_array_equal(joined, np.stack([x, -x], -1))
    first, second = apply("tt.split", [("tensor<2x4x2xi32>", joined)], ["tensor<2x4xi32>"] * 2)
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, -x)
    np.testing.assert_array_equal(
        apply("tt.cat", [("tensor<8xi32>", x.ravel()), ("tensor<8xi32>", -x.ravel())], ["tensor<16xi32>"])[0],
        np.concatenate([x.ravel(), -x.ravel()]))
    np.testing.assert_array_equal(
        apply("amdg.extract_slice", [tensor], ["tensor<1x2xi32>"], "static_offsets = array<i64: 1, 2>")[0], x[1:, 2:])
    tiles = [("tensor<1x2xi32>", x[i:i + 1, j:j + 2]) for i in (0, 1) for j in (0, 2)]
    np.testing.assert_array_equal(apply("amdg.concat", tiles, ["tensor<2x4xi32>"])[0], x)


def test_gather_and_histogram() -> None:
    x, indices = numbered(3, 4), RNG.integers(0, 3, (2, 4)).astype(np.int32)
    operands = [("tensor<3x4xi32>", x), ("tensor<2x4xi32>", indices)]
    np.testing.assert_array_equal(apply("tt.gather", operands, ["tensor<2x4xi32>"], "axis = 0 : i32")[0],
                                  np.take_along_axis(x, indices, 0))
    indices[1, 2] = 3
    with pytest.raises(ProgramError, match="tt.gather.*outside of the 3 elements"):
        apply("tt.gather", operands, ["tensor<2x4xi32>"], "axis = 0 : i32")
    values, mask = RNG.integers(0, 8, 64).astype(np.int32), RNG.integers(0, 2, 64).astype(bool)
    found = apply("tt.histogram", [("tensor<64xi32>", values), ("tensor<64xi1>", mask)], ["tensor<8xi32>"])[0]
    np.testing.assert_array_equal(found, np.bincount(values[mask], minlength=8))
    with pytest.raises(ProgramError, match="outside of the 4 bins"):
        apply("tt.histogram", [("tensor<64xi32>", values)], ["tensor<4xi32>"])


def combine(end: str, body: str, types: list[str]) -> str:
    arguments = ", ".join(f"%{side}{i}: {t}" for side in "xy" for i, t in enumerate(types))
    return f"^bb0({arguments}):\n{body}\n\"{end}\"(%r0, %r1) : ({types[0]}, {types[1]}) -> ()"


#: Composition of affine maps x -> p x + q, modulo 2**32: associative, and the order matters.
AFFINE = '''
%r0 = "arith.muli"(%x0, %y0) : (i32, i32) -> i32
%t = "arith.muli"(%x1, %y0) : (i32, i32) -> i32
%r1 = "arith.addi"(%t, %y1) : (i32, i32) -> i32
'''


def affine(pairs: Any) -> tuple[int, int]:
    p, q = 1, 0
    for a, b in pairs:
        p, q = p * int(a) & 0xFFFFFFFF, (q * int(a) + int(b)) & 0xFFFFFFFF
    return p, q


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_reductions_keep_the_order_of_their_operands(size: int) -> None:
    p, q = (RNG.integers(0, 100, (4, size)).astype(np.int32) for _ in range(2))
    operands = [(f"tensor<4x{size}xi32>", v) for v in (p, q)]
    region = combine("tt.reduce.return", AFFINE, ["i32", "i32"])
    found = apply("tt.reduce", operands, ["tensor<4xi32>"] * 2, "axis = 1 : i32", region)
    for i in range(4):
        assert tuple(int(f[i]) & 0xFFFFFFFF for f in found) == affine(zip(p[i], q[i], strict=True))


@pytest.mark.parametrize("reverse", ["false", "true"])
def test_scans(reverse: str) -> None:
    p, q = (RNG.integers(0, 100, (6, 3)).astype(np.int32) for _ in range(2))
    operands = [("tensor<6x3xi32>", v) for v in (p, q)]
    region = combine("tt.scan.return", AFFINE, ["i32", "i32"])
    found = apply("tt.scan", operands, ["tensor<6x3xi32>"] * 2, f"axis = 0 : i32, reverse = {reverse}", region)
    for i, j in itertools.product(range(6), range(3)):
        part = range(5, i - 1, -1) if reverse == "true" else range(i + 1)
        assert tuple(int(f[i, j]) & 0xFFFFFFFF for f in found) == affine((p[k, j], q[k, j]) for k in part)


def test_regions_that_branch() -> None:
    """The larger by a branch rather than by an op, with what comes along."""
    region = combine("tt.reduce.return", '''
%c = "arith.cmpi"(%x0, %y0) <{predicate = 4 : i64}> : (i32, i32) -> i1
%r0, %r1 = "scf.if"(%c) ({
  "scf.yield"(%x0, %x1) : (i32, f32) -> ()
}, {
  "scf.yield"(%y0, %y1) : (i32, f32) -> ()
}) : (i1) -> (i32, f32)
''', ["i32", "f32"])
    keys, values = RNG.permutation(32).reshape(4, 8).astype(np.int32), RNG.standard_normal((4, 8)).astype(np.float32)
    operands = [("tensor<4x8xi32>", keys), ("tensor<4x8xf32>", values)]
    best, along = apply("tt.reduce", operands, ["tensor<4xi32>", "tensor<4xf32>"], "axis = 1 : i32", region)
    np.testing.assert_array_equal(best, keys.max(1))
    np.testing.assert_array_equal(along, np.take_along_axis(values, keys.argmax(1)[:, None], 1)[:, 0])


def test_map_elementwise() -> None:
    region = '''^bb0(%x0: i32, %x1: i32):
%s = "arith.addi"(%x0, %x1) : (i32, i32) -> i32
"tt.map_elementwise.return"(%s, %x0) : (i32, i32) -> ()'''
    (found,) = apply("tt.map_elementwise", [("tensor<4xi32>", np.array([1, 2, 3, 4], np.int32))], ["tensor<4xi32>"],
                     "pack = 2 : i32", region)
    assert found.tolist() == [3, 1, 7, 3]


@pytest.mark.parametrize(("element", "total"), [("f16", "f32"), ("bf16", "f32"), ("f32", "f32"), ("f64", "f64"),
                                                ("f8E4M3FN", "f32"), ("i8", "i32"), ("f16", "f16")])
def test_products(element: str, total: str) -> None:
    from testing.kernel_interpreter.elements import dtype_of

    a, b = (RNG.integers(-8, 8, s).astype(dtype_of(element)) for s in ((2, 16, 32), (2, 32, 8)))
    c = RNG.integers(-8, 8, (2, 16, 8)).astype(dtype_of(total))
    operands = [(f"tensor<2x16x32x{element}>", a), (f"tensor<2x32x8x{element}>", b), (f"tensor<2x16x8x{total}>", c)]
    (found,) = apply("tt.dot", operands, [f"tensor<2x16x8x{total}>"], "inputPrecision = 0 : i32")
    exact = a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)
    np.testing.assert_array_equal(found.astype(np.float64), exact.astype(dtype_of(total)).astype(np.float64))


def test_scaled_products() -> None:
    a = RNG.integers(0, 256, (4, 32)).astype(np.uint8)  # 64 numbers of 4 bits in a row
    b = RNG.standard_normal((64, 8)).astype(ml_dtypes.float8_e4m3fn)
    a_scale, b_scale = (RNG.integers(120, 134, s).astype(np.uint8) for s in ((4, 2), (8, 2)))
    c = RNG.standard_normal((4, 8)).astype(np.float32)
    operands = [("tensor<4x32xi8>", a.view(np.int8)), ("tensor<64x8xf8E4M3FN>", b), ("tensor<4x8xf32>", c),
                ("tensor<4x2xi8>", a_scale.view(np.int8)), ("tensor<8x2xi8>", b_scale.view(np.int8))]
    (found,) = apply("tt.dot_scaled", operands, ["tensor<4x8xf32>"], "a_elem_type = 4 : i32, b_elem_type = 0 : i32, "
                     "operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>, lhs_k_pack = true, rhs_k_pack = true")
    nibbles = np.stack([a & 15, a >> 4], -1).reshape(4, 64)
    left = nibbles.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    left *= np.repeat(2.0 ** (a_scale.astype(np.float64) - 127), 32, 1)
    right = b.astype(np.float64) * np.repeat(2.0 ** (b_scale.astype(np.float64) - 127), 32, 1).T
    np.testing.assert_allclose(found, left @ right + c, rtol=1e-5, atol=1e-3)


def test_shared_memory() -> None:
    """Stores through one view are seen through the others; what was loaded stays."""
    memory = "#s, #ttg.shared_memory, mutable>"  # an encoding, a space
    kernel = module(function(["tensor<2x4xi32>"], '''
%m = "ttg.local_alloc"() : () -> !ttg.memdesc<3x2x4xi32, MEMORY
%one = "arith.constant"() <{value = 1 : i32}> : () -> i32
%i = "ttg.memdesc_index"(%m, %one) : (!ttg.memdesc<3x2x4xi32, MEMORY, i32)
  -> !ttg.memdesc<2x4xi32, MEMORY
"ttg.local_store"(%a0, %i) : (tensor<2x4xi32>, !ttg.memdesc<2x4xi32, MEMORY) -> ()
%t = "ttg.memdesc_trans"(%i) <{order = array<i32: 1, 0>}> : (!ttg.memdesc<2x4xi32, MEMORY)
  -> !ttg.memdesc<4x2xi32, MEMORY
%s = "ttg.memdesc_subslice"(%t) <{offsets = array<i32: 2, 0>}> : (!ttg.memdesc<4x2xi32, MEMORY)
  -> !ttg.memdesc<2x2xi32, MEMORY
%old = "ttg.local_load"(%s) : (!ttg.memdesc<2x2xi32, MEMORY) -> tensor<2x2xi32>
"ttg.local_store"(%old, %s) : (tensor<2x2xi32>, !ttg.memdesc<2x2xi32, MEMORY) -> ()
%r = "ttg.memdesc_reshape"(%i) : (!ttg.memdesc<2x4xi32, MEMORY)
  -> !ttg.memdesc<8xi32, MEMORY
%twice = "arith.addi"(%old, %old) : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
"ttg.local_store"(%twice, %s) : (tensor<2x2xi32>, !ttg.memdesc<2x2xi32, MEMORY) -> ()
%all = "ttg.local_load"(%r) : (!ttg.memdesc<8xi32, MEMORY) -> tensor<8xi32>
"tt.return"(%old, %all) : (tensor<2x2xi32>, tensor<8xi32>) -> ()'''.replace("\n  ->", " ->").replace("MEMORY", memory)))
    x = numbered(2, 4)
    old, whole = call(kernel, [x])
    np.testing.assert_array_equal(old, x.T[2:])
    expected = x.copy()
    expected[:, 2:] *= 2
    np.testing.assert_array_equal(whole, expected.ravel())


def test_shared_memory_by_indices_and_as_other_elements() -> None:
    memory = "!ttg.memdesc<4x4xi32, #s, #ttg.shared_memory, mutable>"
    bytes_ = "!ttg.memdesc<64xi8, #s, #ttg.shared_memory, mutable>"
    kernel = module(function(["tensor<4x4xi32>", "tensor<4x4xi32>", "tensor<2x4xi32>"], f'''
%m = "ttg.local_alloc"() : () -> {memory}
"ttg.local_scatter"(%m, %a0, %a1) <{{axis = 0 : i32}}> : ({memory}, tensor<4x4xi32>, tensor<4x4xi32>) -> ()
%g = "ttg.local_gather"(%m, %a2) <{{axis = 1 : i32}}> : ({memory}, tensor<2x4xi32>) -> tensor<2x4xi32>
%b = "ttg.memdesc_reinterpret"(%m) : ({memory}) -> {bytes_}
%all = "ttg.local_load"(%b) : ({bytes_}) -> tensor<64xi8>
"tt.return"(%g, %all) : (tensor<2x4xi32>, tensor<64xi8>) -> ()'''))
    values = RNG.integers(-1000, 1000, (4, 4)).astype(np.int32)
    rows = np.argsort(RNG.random((4, 4)), 0).astype(np.int32)
    columns = RNG.integers(0, 4, (2, 4)).astype(np.int32)
    gathered, whole = call(kernel, [values, rows, columns])
    expected = np.zeros_like(values)
    np.put_along_axis(expected, rows.astype(np.int64), values, 0)
    np.testing.assert_array_equal(gathered, np.take_along_axis(expected[:2], columns.astype(np.int64), 1))
    np.testing.assert_array_equal(whole, expected.view(np.int8).ravel())


def test_packed_floats() -> None:
    packed = RNG.integers(0, 256, (4, 8)).astype(np.uint8)
    (found,) = apply("ttg.fp4_to_fp", [("tensor<4x8xi8>", packed.view(np.int8))], ["tensor<4x16xf16>"],
                     "axis = 1 : i32")
    nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(4, 16).view(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(found, nibbles.astype(np.float16))
    (found,) = apply("ttg.fp4_to_fp", [("tensor<4x8xi8>", packed.view(np.int8))], ["tensor<8x8xbf16>"],
                     "axis = 0 : i32")
    nibbles = np.stack([packed & 15, packed >> 4], 1).reshape(8, 8).view(ml_dtypes.float4_e2m1fn)
    np.testing.assert_array_equal(found.astype(np.float32), nibbles.astype(np.float32))


@pytest.mark.parametrize("predicate", [False, True])
def test_masked_regions(predicate: bool) -> None:
    region = '''%x = "tt.splat"(%a1) : (i32) -> tensor<4xi32>
"ttg.mask.return"(%x) : (tensor<4xi32>) -> ()'''
    body = f'''%r = "ttg.mask"(%a0) ({{
{region}
}}) : (i1) -> tensor<4xi32>
"tt.return"(%r) : (tensor<4xi32>) -> ()'''
    (found,) = call(module(function(["i1", "i32"], body)), [np.bool_(predicate), np.int32(7)], undefined=0xFF)
    assert found.tolist() == ([7] * 4 if predicate else [-1] * 4)


def test_stages_of_pipelined_loops() -> None:
    """Of 3 stages, the first runs two turns ahead: it has none left in the last two."""
    properties = "maxStage = 2 : i32, stage = 0 : i32"
    for turn, expected in enumerate([True, True, True, False, False]):
        operands = [("i32", np.int32(turn)), ("i32", np.int32(5)), ("i32", np.int32(1))]
        assert bool(apply("ttg.predicate_stage", operands, ["i1"], properties)[0]) == expected


def test_threads_do_nothing_alone() -> None:
    start = '''%t = "rocdl.workitem.id.x"() : () -> i32
%h = "arith.cmpi"(%t, %a0) <{predicate = 2 : i64}> : (i32, i32) -> i1'''
    end = '"tt.return"(%a0) : (i32) -> ()'
    barrier = '"amdg.cond_barrier"(%h) : (i1) -> ()'
    assert call(module(function(["i32"], f"{start}\n{barrier}\n{end}")), [np.int32(4)]) == [4]
    branch = '"scf.if"(%h) ({\n"scf.yield"() : () -> ()\n}, {\n}) : (i1) -> ()'
    with pytest.raises(ProgramError, match="rocdl.workitem.id.x.*what a single thread does is not known: scf.if"):
        call(module(function(["i32"], f"{start}\n{branch}\n{end}")), [np.int32(4)])


def test_switches() -> None:
    def case(value: int) -> str:
        return f'''{{
%c = "arith.constant"() <{{value = {value} : i32}}> : () -> i32
"scf.yield"(%c) : (i32) -> ()
}}'''
    body = f'''%r = "scf.index_switch"(%a0) <{{cases = array<i64: 3, 5>}}> ({case(10)}, {case(30)}, {case(50)})
 : (index) -> i32
"tt.return"(%r) : (i32) -> ()'''.replace("\n : (index)", " : (index)")
    kernel = module(function(["index"], body))
    assert [int(call(kernel, [np.int64(i)])[0]) for i in (0, 3, 5)] == [10, 30, 50]


LOADS = function(["!tt.ptr<f32>", "!tt.ptr<f32>", "i32"], '''
%r = "tt.make_range"() <{end = 8 : i32, start = 0 : i32}> : () -> tensor<8xi32>
%n = "tt.splat"(%a2) : (i32) -> tensor<8xi32>
%m = "arith.cmpi"(%r, %n) <{predicate = 2 : i64}> : (tensor<8xi32>, tensor<8xi32>) -> tensor<8xi1>
%p = "tt.splat"(%a0) : (!tt.ptr<f32>) -> tensor<8x!tt.ptr<f32>>
%x = "tt.addptr"(%p, %r) : (tensor<8x!tt.ptr<f32>>, tensor<8xi32>) -> tensor<8x!tt.ptr<f32>>
%v = "tt.load"(%x, %m) <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (tensor<8x!tt.ptr<f32>>, tensor<8xi1>)
 -> tensor<8xf32>
%q = "tt.splat"(%a1) : (!tt.ptr<f32>) -> tensor<8x!tt.ptr<f32>>
%y = "tt.addptr"(%q, %r) : (tensor<8x!tt.ptr<f32>>, tensor<8xi32>) -> tensor<8x!tt.ptr<f32>>
"tt.store"(%y, %v) : (tensor<8x!tt.ptr<f32>>, tensor<8xf32>) -> ()
"tt.return"() : () -> ()'''.replace("\n ->", " ->"))


def test_bounds_and_undefined_elements() -> None:
    kernel = module(LOADS)
    x, y = np.arange(5, dtype=np.float32), np.zeros(8, np.float32)
    left, right = run(kernel, [x, y, 5])
    assert left.tolist() == x.tolist() and right.tolist() == [0, 1, 2, 3, 4, 0, 0, 0]
    assert np.isnan(run(kernel, [x, y, 5], undefined=0xFF)[1][5:]).all()
    assert y.sum() == 0  # what was given is not written
    with pytest.raises(ProgramError, match=r"tt.load : \(tensor<8x!tt.ptr<f32>>.*byte 20 of buffer 0, which has 20"):
        run(kernel, [x, y, 6])
    with pytest.raises(ProgramError, match="tt.store.*byte 16 of buffer 1"):
        run(kernel, [x, y[:4], 2])
    both = run(kernel, [y, y, 3])
    assert len(both) == 2  # one buffer, given twice


def test_arguments_that_do_not_fit() -> None:
    kernel = module(LOADS)
    x = np.zeros(8, np.float32)
    with pytest.raises(ProgramError, match="takes 3 arguments, not 2"):
        run(kernel, [x, x])
    with pytest.raises(ProgramError, match="argument 1 is a !tt.ptr<f32>.*not an array of float64"):
        run(kernel, [x, x.astype(np.float64), 1])
    with pytest.raises(ProgramError, match="argument 2 is an i32, which does not hold 4294967296"):
        run(kernel, [x, x, 1 << 32])
    with pytest.raises(ProgramError, match="no function 'g'"):
        run(kernel, [x, x, 1], function="g")
    with pytest.raises(ProgramError, match="grid"):
        run(kernel, [x, x, 1], (0,))


def test_what_is_refused_names_the_op() -> None:
    x = np.zeros(4, np.float32)
    for name, properties in (("tt.elementwise_inline_asm", 'asm_string = "mov", pure = true'), ("ttg.unheard_of", "")):
        with pytest.raises(ProgramError, match=rf"{name} : \(tensor<4xf32>\) -> \(tensor<4xf32>\)"):
            apply(name, [("tensor<4xf32>", x)], ["tensor<4xf32>"], properties)
    with pytest.raises(ProgramError, match='tt.assert.*"all positive"'):
        apply("tt.assert", [("tensor<4xi1>", x > 0)], [], 'message = "all positive"')
    with pytest.raises(ProgramError, match="elements of type i3"):
        apply("tt.splat", [("i32", np.int32(1))], ["tensor<4xi3>"])


def test_atomics_on_equal_addresses_come_one_after_the_other() -> None:
    kernel = module(function(["!tt.ptr<i32>", "tensor<6xi32>", "tensor<6xi32>"], '''
%p = "tt.splat"(%a0) : (!tt.ptr<i32>) -> tensor<6x!tt.ptr<i32>>
%x = "tt.addptr"(%p, %a1) : (tensor<6x!tt.ptr<i32>>, tensor<6xi32>) -> tensor<6x!tt.ptr<i32>>
%old = "tt.atomic_rmw"(%x, %a2) <{atomic_rmw_op = 4 : i32, scope = 1 : i32, sem = 4 : i32}>
 : (tensor<6x!tt.ptr<i32>>, tensor<6xi32>) -> tensor<6xi32>
"tt.return"(%old) : (tensor<6xi32>) -> ()'''.replace("\n :", " :")))
    from testing.kernel_interpreter.memory import Memory

    memory, start = Memory(), np.array([100, 200, 300], np.int32)
    address = memory.place(start)
    cells, values = np.array([0, 1, 0, 0, 2, 1], np.int32), np.array([1, 2, 3, 4, 5, 6], np.int32)
    (old,) = call(kernel, [np.int64(address), cells, values], memory)
    assert old.tolist() == [100, 200, 101, 104, 300, 202]
    assert memory.contents(address, start).tolist() == [108, 208, 305]


def test_branches_between_blocks() -> None:
    """Euclid's algorithm by cf.cond_br, behind a call."""
    kernel = module(
        function(["i32", "i32"], '''
%r = "tt.call"(%a0, %a1) <{callee = @gcd}> : (i32, i32) -> i32
"tt.return"(%r) : (i32) -> ()'''),
        '''"tt.func"() <{function_type = (i32, i32) -> i32, sym_name = "gcd", sym_visibility = "private"}> ({
^bb0(%a: i32, %b: i32):
  %zero = "arith.constant"() <{value = 0 : i32}> : () -> i32
  %done = "arith.cmpi"(%b, %zero) <{predicate = 0 : i64}> : (i32, i32) -> i1
  "cf.cond_br"(%done, %a, %a, %b)[^bb2, ^bb1] <{operandSegmentSizes = array<i32: 1, 1, 2>}>
    : (i1, i32, i32, i32) -> ()
^bb1(%c: i32, %d: i32):
  %m = "arith.remsi"(%c, %d) : (i32, i32) -> i32
  "cf.br"(%d, %m)[^bb0] : (i32, i32) -> ()
^bb2(%e: i32):
  "tt.return"(%e) : (i32) -> ()
}) : () -> ()''')
    assert call(kernel, [np.int32(84), np.int32(36)])[0] == 12
