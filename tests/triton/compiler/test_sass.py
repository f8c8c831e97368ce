"""Machine code of NVIDIA beside what Triton's disassembler prints of it."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("triton")

from eggshard.errors import ProgramError  # noqa: E402
from eggshard.triton.compiler import sass  # noqa: E402
from eggshard.triton.compiler.compilation import compile_kernel  # noqa: E402
from eggshard.triton.compiler.counting import _tool  # noqa: E402

_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)([^;]*);")
#: A loop with a load, arithmetic of a special function, and a conversion through shared memory.
HEAD = ('"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:TARGET", '
        '"ttg.threads-per-warp" = 32 : i32')
LOOP = """
#a = #ttg.blocked<{sizePerThread = [1, 4], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>
#b = #ttg.blocked<{sizePerThread = [4, 1], threadsPerWarp = [8, 4], warpsPerCTA = [1, 4], order = [0, 1]}>
#s = #ttg.slice<{dim = 1, parent = #a}>
module attributes {HEAD} {
  tt.func public @loop(%x: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %n: i32) {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %rows = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32, #s>
    %r = tt.expand_dims %rows {axis = 1 : i32} : tensor<32xi32, #s> -> tensor<32x1xi32, #a>
    %s = tt.broadcast %r : tensor<32x1xi32, #a> -> tensor<32x64xi32, #a>
    %base = tt.splat %x : !tt.ptr<f32> -> tensor<32x64x!tt.ptr<f32>, #a>
    %begin = arith.constant dense<0.0> : tensor<32x64xf32, #b>
    %sum = scf.for %i = %zero to %n step %one iter_args(%acc = %begin) -> (tensor<32x64xf32, #b>) : i32 {
      %off = tt.splat %i : i32 -> tensor<32x64xi32, #a>
      %o = arith.addi %s, %off : tensor<32x64xi32, #a>
      %p = tt.addptr %base, %o : tensor<32x64x!tt.ptr<f32>, #a>, tensor<32x64xi32, #a>
      %v = tt.load %p : tensor<32x64x!tt.ptr<f32>, #a>
      %e = math.exp2 %v : tensor<32x64xf32, #a>
      %c = ttg.convert_layout %e : tensor<32x64xf32, #a> -> tensor<32x64xf32, #b>
      %next = arith.addf %acc, %c : tensor<32x64xf32, #b>
      scf.yield %next : tensor<32x64xf32, #b>
    }
    %out = ttg.convert_layout %sum : tensor<32x64xf32, #b> -> tensor<32x64xf32, #a>
    %q = tt.addptr %base, %s : tensor<32x64x!tt.ptr<f32>, #a>, tensor<32x64xi32, #a>
    tt.store %q, %out : tensor<32x64x!tt.ptr<f32>, #a>
    tt.return
  }
}
""".replace("HEAD", HEAD)


@pytest.mark.parametrize("capability", [80, 90, 100, 120])
def test_instructions_are_those_that_the_disassembler_prints(capability: int) -> None:
    cubin = compile_kernel(LOOP.replace("TARGET", str(capability)), f"sm{capability}").cubin
    code = sass.decode(cubin, capability)
    printed = _LINE.findall(_tool("cuobjdump", "-sass", cubin))
    assert len(code) == len(printed)
    busy = {"LDS": 1.0, "LDS.64": 2.0, "LDS.128": 4.0, "STS": 1.0, "STS.64": 2.0, "STS.128": 4.0, "SHFL.BFLY": 1.0}
    branches = 0
    for found, (_, name, rest) in zip(code, printed, strict=True):
        if name in busy:
            assert (found.unit, found.busy) == ("memory", busy[name])
        if name.startswith(("LDS", "LDG", "MUFU")):
            assert found.unit == ("special" if name.startswith("MUFU") else "memory")
        if name == "BRA":
            branches += 1
            assert found.target is not None and 16 * found.target == int(rest.split()[-1], 16)
    assert branches > 1
    assert any(i > found.target for i, found in enumerate(code) if found.target is not None)


def test_what_loads_is_waited_for_and_what_stores_is_counted() -> None:
    code = sass.decode(compile_kernel(LOOP.replace("TARGET", "80"), "sm80").cubin, 80)
    kinds = {found.kind for found in code}
    assert {"barriers", "shared_loads", "shared_stores", "global_stores"} <= kinds
    begun = {counter for found in code if found.unit == "memory" for counter, cycles in found.starts if cycles > 20}
    assert begun and begun <= {counter for found in code for counter, _ in found.waits}


def test_what_is_no_cubin_is_refused() -> None:
    with pytest.raises(ProgramError, match="cubin is not understood"):
        sass.decode(b"nothing", 80)
    with pytest.raises(ProgramError, match="cubin is not understood"):
        sass.decode(b"\x7fELF" + bytes(8), 80)
