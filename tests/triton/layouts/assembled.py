"""Kernels of one op, compiled as Triton compiles TTGIR, and what the code holds: the oracle of predicted counts."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from eggshard.triton.frontend import libtriton
from eggshard.triton.layouts.machine import Machine


class Assembled(NamedTuple):
    """What a warp issues: instructions in the text of the code (PTX, or LLVM IR for AMD: no branches, no loops).

    ``barriers`` of the block, ``warp_barriers`` of a warp; ``scratch`` bytes of shared memory.
    """

    shuffles: int
    shared_stores: int
    shared_loads: int
    barriers: int
    warp_barriers: int
    scratch: int
    text: str


#: How values of a width come from and go into inline assembly: the integer type, and its letter in PTX.
_ASSEMBLY = {1: ("i32", "r"), 8: ("i32", "r"), 16: ("i32", "r"), 32: ("i32", "r"), 64: ("i64", "l")}


def conversion_kernel(shape: tuple[int, ...], element: str, source: str, target: str, machine: Machine) -> str:
    """TTGIR of one conversion between values that come from and go into inline assembly."""
    dims = "".join(f"{n}x" for n in shape)
    make, lines = opaque_values(dims, element, source, "in", machine)
    use = consumed_values(dims, element, target, "out", machine)
    body = [
        *lines,
        f"%out = ttg.convert_layout %{make} : tensor<{dims}{element}, {source}> -> tensor<{dims}{element}, {target}>",
        *use,
    ]
    return kernel_text(body, machine)


def kernel_text(body: list[str], machine: Machine) -> str:
    attributes = (
        f'"ttg.num-ctas" = {machine.num_ctas} : i32, "ttg.num-warps" = {machine.num_warps} : i32, '
        f'ttg.target = "{machine.target}", "ttg.threads-per-warp" = {machine.threads_per_warp} : i32'
    )
    inside = "\n    ".join([*body, "tt.return"])
    return (
        f"module attributes {{{attributes}}} {{\n  tt.func public @kernel(%r: i32, %l: i64) "
        f"attributes {{noinline = false}} {{\n    {inside}\n  }}\n}}\n"
    )


def width_of(element: str) -> int:
    """The bits of an element: pointers have 64."""
    found = re.match(r"[a-z]*(\d+)", element)
    return 64 if element.startswith("!tt.ptr") or found is None else int(found[1])


def opaque_values(dims: str, element: str, encoding: str, name: str, machine: Machine) -> tuple[str, list[str]]:
    """The name of a tensor that the compiler knows nothing about, and the ops that make it."""
    integer, letter = _ASSEMBLY[width_of(element)]
    tensor = f"tensor<{dims}{integer}, {encoding}>"
    lines = [
        f"%{name}_s = tt.splat %{letter} : {integer} -> {tensor}",
        f"%{name}_a = {_inline(letter, machine)} {{constraints = {_constraints(letter, machine)}, "
        f"packed_element = 1 : i32, pure = false}} %{name}_s : {tensor} -> {tensor}",
    ]
    bits = width_of(element)
    wanted = f"tensor<{dims}{element}, {encoding}>"
    if element.startswith("!tt.ptr"):
        lines.append(f"%{name} = tt.int_to_ptr %{name}_a : {tensor} -> {wanted}")
    elif bits < 32:
        narrow = f"tensor<{dims}i{bits}, {encoding}>"
        lines.append(f"%{name}_n = arith.trunci %{name}_a : {tensor} to {narrow}")
        lines.append(f"%{name} = tt.bitcast %{name}_n : {narrow} -> {wanted}")
    else:
        lines.append(f"%{name} = tt.bitcast %{name}_a : {tensor} -> {wanted}")
    return name, lines


def consumed_values(dims: str, element: str, encoding: str, name: str, machine: Machine) -> list[str]:
    """Ops that take a tensor's values where the compiler cannot follow."""
    integer, letter = _ASSEMBLY[width_of(element)]
    tensor = f"tensor<{dims}{integer}, {encoding}>"
    given = f"tensor<{dims}{element}, {encoding}>"
    bits = width_of(element)
    lines = []
    if element.startswith("!tt.ptr"):
        lines.append(f"%{name}_w = tt.ptr_to_int %{name} : {given} -> {tensor}")
    elif bits == 1:
        lines.append(f"%{name}_t = tt.splat %r : i32 -> {tensor}")
        lines.append(f"%{name}_f = arith.constant dense<7> : {tensor}")
        lines.append(f"%{name}_w = arith.select %{name}, %{name}_t, %{name}_f : {given}, {tensor}")
    elif bits < 32:
        narrow = f"tensor<{dims}i{bits}, {encoding}>"
        lines.append(f"%{name}_n = tt.bitcast %{name} : {given} -> {narrow}")
        lines.append(f"%{name}_w = arith.extui %{name}_n : {narrow} to {tensor}")
    else:
        lines.append(f"%{name}_w = tt.bitcast %{name} : {given} -> {tensor}")
    lines.append(
        f"%{name}_u = {_inline(letter, machine)} {{constraints = {_constraints(letter, machine)}, "
        f"packed_element = 1 : i32, pure = false}} %{name}_w : {tensor} -> {tensor}"
    )
    return lines


def _inline(letter: str, machine: Machine) -> str:
    if machine.vendor == "hip":
        return 'tt.elementwise_inline_asm "; $0 $1"'
    return f'tt.elementwise_inline_asm "mov.b{32 if letter == "r" else 64} $0, $1;"'


def _constraints(letter: str, machine: Machine) -> str:
    return '"=v,v"' if machine.vendor == "hip" else f'"={letter},{letter}"'


def backend_stages(machine: Machine) -> tuple[dict[str, Any], dict[str, Any]]:
    """The compiler's stages for the machine, by name, and the options that they read."""
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import make_backend

    if machine.vendor == "hip":
        target = GPUTarget("hip", machine.architecture, machine.threads_per_warp)
    else:
        target = GPUTarget("cuda", machine.capability, machine.threads_per_warp)
    backend = make_backend(target)
    clusters = {"num_ctas": machine.num_ctas} if machine.num_ctas > 1 else {}
    options = backend.parse_options({"num_warps": machine.num_warps, **clusters})
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, Language.TRITON)
    return stages, dict(vars(options))


def assemble(text: str, machine: Machine) -> Assembled:
    """The code of a kernel's TTGIR."""
    stages, metadata = backend_stages(machine)
    module = libtriton.parse(text)
    code = stages["llir"](module, metadata)
    if machine.vendor == "hip":
        return _amd(str(code), metadata)
    ptx = str(stages["ptx"](code, metadata))
    return Assembled(
        shuffles=len(re.findall(r"\b(?:shfl|redux)\.sync", ptx)),
        shared_stores=len(re.findall(r"\bst\.shared|\bstmatrix\.", ptx)),
        shared_loads=len(re.findall(r"\bld\.shared|\bldmatrix\.", ptx)),
        # A kernel of clusters has one barrier of its own.
        barriers=len(re.findall(r"\bbar(?:rier)?\.(?:cta\.)?sync|\bbarrier\.cluster\.wait", ptx))
        - (machine.num_ctas > 1),
        warp_barriers=len(re.findall(r"\bbar\.warp\.sync", ptx)),
        scratch=metadata["shared"],
        text=ptx,
    )


def _amd(code: str, metadata: dict[str, Any]) -> Assembled:
    shuffles = r"call .*@llvm\.amdgcn\.(?:ds\.bpermute|ds\.swizzle|update\.dpp|permlane\w*|mov\.dpp)"
    return Assembled(
        shuffles=len(re.findall(shuffles, code)) + code.count("call i64 @llvm.amdgcn.update.dpp.i64"),
        shared_stores=len(re.findall(r"\bstore .*ptr addrspace\(3\)", code)),
        shared_loads=len(re.findall(r"= load .*ptr addrspace\(3\)", code)),
        barriers=len(re.findall(r"call .*@llvm\.amdgcn\.s\.barrier", code)),
        warp_barriers=len(re.findall(r"call .*@llvm\.amdgcn\.wave\.barrier", code)),
        scratch=metadata["shared"],
        text=code,
    )


def combination_kernel(
    op: str, shape: tuple[int, ...], element: str, encoding: str, axis: int, combine: str, machine: Machine,
    properties: str = "",
) -> str:
    """TTGIR of one ``tt.reduce`` or ``tt.scan`` (``op``) that combines by the op ``combine``."""
    dims = "".join(f"{n}x" for n in shape)
    name, lines = opaque_values(dims, element, encoding, "in", machine)
    given = f"tensor<{dims}{element}, {encoding}>"
    kept = "".join(f"{n}x" for d, n in enumerate(shape) if d != axis)
    sliced = f"#ttg.slice<{{dim = {axis}, parent = {encoding}}}>"
    if op == "tt.scan":
        made, use = given, consumed_values(dims, element, encoding, "out", machine)
    elif kept:
        made, use = f"tensor<{kept}{element}, {sliced}>", consumed_values(kept, element, sliced, "out", machine)
    else:
        made = element
        spread = f"%all = tt.splat %out : {element} -> {given}"
        use = [spread, *consumed_values(dims, element, encoding, "all", machine)]
    body = [
        *lines,
        f'%out = "{op}"(%{name}) <{{axis = {axis} : i32{properties}}}> ({{',
        f"^bb0(%x: {element}, %y: {element}):",
        f"  %z = {combine} %x, %y : {element}",
        f"  {op}.return %z : {element}",
        f"}}) : ({given}) -> {made}",
        *use,
    ]
    return kernel_text(body, machine)
