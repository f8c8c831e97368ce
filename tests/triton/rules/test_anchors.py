"""Which ops keep their layout, which may be computed again, and where."""

from __future__ import annotations

import pytest

from eggshard.triton import rules
from eggshard.triton.kernels.ir import Kernel, Operation
from eggshard.triton.kernels.text import read_generic
from eggshard.triton.layouts.machine import Machine
from eggshard.triton.rules import OPERANDS, anchored, current, movable, repeatable
from eggshard.triton.rules.aliasing import base
from eggshard.triton.rules.rule import encoding_of
from eggshard.triton.rules.table import TABLE

_BLOCKED = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
_WIDE = "#ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [8, 4], warpsPerCTA = [4, 1], order = [1, 0]}>"
_TALL = "#ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [4, 8], warpsPerCTA = [1, 4], order = [0, 1]}>"
_MMA = "#ttg.nvidia_mma<{versionMajor = 2, versionMinor = 0, warpsPerCTA = [2, 2], instrShape = [16, 8]}>"
_MODULE = ('"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:80", '
           '"ttg.threads-per-warp" = 32 : i32')


def kernel_of(body: str) -> Kernel:
    return read_generic(f'"builtin.module"() ({{\n{body}\n}}) {{{_MODULE}}} : () -> ()')


def find(kernel: Kernel, name: str) -> Operation:
    return next(op for op in kernel.walk() if op.name == name)


def _accesses(elements: int, volatile: str = "false", source: str = "%p") -> Kernel:
    """A load, and a store of what it read; ``source``: where from, argument %p or %q, where the store goes."""
    pointers, values = (f"tensor<{elements}x{e}, {_BLOCKED}>" for e in ("!tt.ptr<f32>", "f32"))
    return kernel_of(f"""
"tt.func"() <{{sym_name = "f"}}> ({{
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %c: i32):
  %s = "tt.splat"({source}) : (!tt.ptr<f32>) -> {pointers}
  %t = "tt.splat"(%q) : (!tt.ptr<f32>) -> {pointers}
  %e = "scf.for"(%c, %c, %c, %s) ({{
  ^bb1(%i: i32, %a: {pointers}):
    %x = "tt.load"(%a) <{{boundaryCheck = array<i32>, isVolatile = {volatile}}}> : ({pointers}) -> {values}
    "tt.store"(%t, %x) <{{boundaryCheck = array<i32>}}> : ({pointers}, {values}) -> ()
    "scf.yield"(%a) : ({pointers}) -> ()
  }}) : (i32, i32, i32, {pointers}) -> {pointers}
  "tt.return"() : () -> ()
}}) : () -> ()
""")


@pytest.mark.parametrize("elements, kept", [(1, False), (64, False), (128, True), (1024, True)])
def test_accesses_with_work_for_all_threads_are_anchors(elements: int, kept: bool) -> None:
    kernel = _accesses(elements)
    load, store = find(kernel, "tt.load"), find(kernel, "tt.store")
    assert anchored(load, kernel) == anchored(store, kernel) == kept
    assert repeatable(load, kernel) != kept
    assert not movable(load) and not repeatable(store, kernel)


def test_volatile_loads_are_anchors() -> None:
    kernel = _accesses(64, "true")
    load = find(kernel, "tt.load")
    assert anchored(load, kernel) and not repeatable(load, kernel)


def test_what_is_read_and_written_keeps_its_layout() -> None:
    """Several threads that read an element might do so after one of them has written it."""
    kernel = _accesses(64, source="%q")
    load, store = find(kernel, "tt.load"), find(kernel, "tt.store")
    assert base(load.operands[0]) is base(store.operands[0]) is kernel.functions[0].body.arguments[1]
    assert anchored(load, kernel) and anchored(store, kernel) and not repeatable(load, kernel)


def test_unknown_ops_run_as_given() -> None:
    kernel = kernel_of(f'%x = "test.op"() : () -> tensor<64xf32, {_BLOCKED}>\n'
                       f'%y = "test.op"(%x) : (tensor<64xf32, {_BLOCKED}>) -> tensor<64xf32, {_BLOCKED}>')
    _, op = (op for op in kernel.walk() if op.name == "test.op")
    given = encoding_of(op.results[0])
    assert given is not None
    assert anchored(op, kernel) and not movable(op)
    machine = Machine.of(kernel)
    assert rules.options(op, OPERANDS, 0, given, machine) == [current(op)]
    assert rules.options(op, OPERANDS, 0, given._replace(kind="ttg.other"), machine) == []


def _reshape(attributes: str, target: str) -> Kernel:
    return kernel_of(f"""
%x = "test.values"() : () -> tensor<64x16xf32, {_WIDE}>
%y = "tt.reshape"(%x) <{{{attributes}}}> : (tensor<64x16xf32, {_WIDE}>) -> tensor<16x64xf32, {target}>
""")


def test_reshapes_that_reorder_keep_their_layouts() -> None:
    """Where the given layouts keep the row-major order, a permission to reorder changes nothing."""
    other = _reshape("allow_reorder", _TALL)
    assert anchored(find(other, "tt.reshape"), other) and not movable(find(other, "tt.reshape"))
    plain = _reshape("", _TALL)
    assert not anchored(find(plain, "tt.reshape"), plain)
    linear = ("#ttg.linear<{register = [[0, 1], [0, 2]], lane = [[0, 4], [0, 8], [0, 16], [0, 32], [1, 0]], "
              "warp = [[2, 0], [4, 0]], block = []}>")
    kept = _reshape("allow_reorder", linear.replace("[[0, 1], [0, 2]]", "[[0, 1], [0, 2], [8, 0]]"))
    assert not anchored(find(kept, "tt.reshape"), kept) and movable(find(kept, "tt.reshape"))
    chosen = _reshape("allow_reorder, efficient_layout", linear.replace("[[0, 1], [0, 2]]", "[[0, 1], [0, 2], [8, 0]]"))
    assert anchored(find(chosen, "tt.reshape"), chosen)


def test_assembly_moves_only_where_it_is_pure() -> None:
    for pure in ("true", "false"):
        kernel = kernel_of(
            '%x = "tt.elementwise_inline_asm"() <{asm_string = "mov $0, 0;", constraints = "=r", '
            f'packed_element = 1 : i32, pure = {pure}}}> : () -> tensor<64xi32, {_BLOCKED}>')
        op = find(kernel, "tt.elementwise_inline_asm")
        assert not anchored(op, kernel)
        assert movable(op) == repeatable(op, kernel) == (pure == "true")


def test_partitions_keep_everything() -> None:
    """Their warps are not the module's."""
    kernel = kernel_of(f"""
"ttg.warp_specialize"() <{{partitionNumWarps = array<i32: 1>}}> ({{
  %a = "arith.constant"() <{{value = dense<0> : tensor<64xi32, {_BLOCKED}>}}> : () -> tensor<64xi32, {_BLOCKED}>
  "ttg.warp_yield"() : () -> ()
}}, {{
  "ttg.warp_specialize.partitions"() ({{
    %b = "tt.make_range"() <{{end = 64 : i32, start = 0 : i32}}> : () -> tensor<64xi32, {_BLOCKED}>
    "ttg.warp_return"() : () -> ()
  }}) : () -> ()
}}) : () -> ()
""")
    assert not anchored(find(kernel, "arith.constant"), kernel)
    assert anchored(find(kernel, "tt.make_range"), kernel)


@pytest.mark.parametrize("name", ["tt.dot", "tt.cat", "tt.atomic_rmw", "tt.print", "ttng.warp_group_dot", "tt.return"])
def test_anchors(name: str) -> None:
    kernel = kernel_of(f'"{name}"() : () -> ()')
    op = find(kernel, name)
    assert name in TABLE
    assert anchored(op, kernel) and not movable(op)


@pytest.mark.parametrize("name", ["tt.scan", "tt.gather", "tt.histogram", "ttg.local_load", "ttg.local_store"])
def test_blocks_of_clusters_have_their_own_shared_memory(name: str) -> None:
    for count in (1, 2):
        kernel = read_generic(f'"builtin.module"() ({{\n"{name}"() : () -> ()\n}}) '
                              f'{{"ttg.num-ctas" = {count} : i32}} : () -> ()')
        assert anchored(find(kernel, name), kernel) == (count > 1)


def test_dots_on_cuda_cores() -> None:
    """Operands over the accumulator's blocked encoding; a matrix instruction's fragments are not moved."""
    sides = [f"#ttg.dot_op<{{opIdx = {i}, parent = {_WIDE}}}>" for i in (0, 1)]
    types = [f"tensor<64x64xf32, {e}>" for e in (*sides, _WIDE)]
    made = "\n".join(f'%v{i} = "test.values"() : () -> {t}' for i, t in enumerate(types))
    kernel = kernel_of(f'{made}\n%d = "tt.dot"(%v0, %v1, %v2) : ({", ".join(types)}) -> {types[2]}')
    op, machine = find(kernel, "tt.dot"), Machine.of(kernel)
    other = kernel_of(f'%v = "test.values"() : () -> tensor<64x64xf32, {_TALL}>').module.body.operations[0].results[0]
    tall = encoding_of(other)
    assert tall is not None
    (option,) = rules.options(op, OPERANDS, 2, tall, machine)
    assert option.results == (tall,)
    assert [str(e) for e in option.operands] == [
        *(f"#ttg.dot_op<{{opIdx = {i}, parent = {_TALL}}}>" for i in (0, 1)), _TALL]
    assert rules.options(op, OPERANDS, 0, option.operands[0] or tall, machine) == [option]
    assert rules.options(op, OPERANDS, 1, option.operands[0] or tall, machine) == []
