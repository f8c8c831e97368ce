"""Assembly of AMD: what its text says of the order and time in which it runs.

A wavefront issues in order; what takes long is counted, and ``s_waitcnt`` and its kin wait until so few are under way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from eggshard.triton.compiler.timing import Instruction, Kind

_LINE = re.compile(r"^\s+([a-z][a-z0-9_]+)(?:[ \t]+([^;\n]*))?|^(\.?\w+):", re.MULTILINE)
_WIDTH = re.compile(r"_[bui](\d+)\b")
#: Cycles until a result is there. AMD, "CDNA 3 instruction set architecture", and Chips and Cheese's measurements of an
#: MI300X (local data share about 64 cycles, vector L1 about 120, second-level cache about 250); scalar loads alike.
_SHARED, _GLOBAL, _SCALAR = 64.0, 250.0, 200.0
#: Cycles of a barrier besides the wait for the last wavefront: an estimate.
_SYNCHRONIZED = 20.0
#: Instructions of the local data share; it executes shuffles, too (ROCm Compute Profiler's documentation, "Local data
#: share").
_SHARING: dict[tuple[str, ...], Kind] = {
    ("ds_read", "ds_load"): "shared_loads", ("ds_write", "ds_store"): "shared_stores",
    ("ds_bpermute", "ds_permute", "ds_swizzle"): "crossbar"}
_TRANSCENDENTAL = re.compile(r"v_(?:exp|log|rcp|rsq|sqrt|sin|cos)_")
_PRODUCT = re.compile(r"v_(?:mfma|smfmac|wmma|swmmac)_\w+?_(\d+)x(\d+)x(\d+)")


def decode(text: str, lanes: int) -> list[Instruction]:
    """The instructions of a kernel's assembly, for wavefronts of so many lanes."""
    body = text.split(".section\t.rodata")[0].split(".amdgpu_metadata")[0].split(".section\t.AMDGPU.csdata")[0]
    lines = [(match[1], match[2] or "", match[3]) for match in _LINE.finditer(body)]
    labels: dict[str, int] = {}
    found: list[tuple[str, str]] = []
    for name, operands, label in lines:
        if label is not None:
            labels[label] = len(found)
        else:
            found.append((name, operands.strip()))
    return [_instruction(name, operands, labels, lanes) for name, operands in found]


def _instruction(name: str, operands: str, labels: dict[str, int], lanes: int) -> Instruction:
    # Four units of 16 lanes take four cycles each (a compute unit); four of 32 lanes one (a work-group processor).
    alone, vector, products = (4.0, 1.0, 1024.0) if lanes == 64 else (1.0, 0.25, 512.0)
    if name.startswith("s_wait"):
        return Instruction(1.0, "scalar", 0.25, waits=tuple(_waits(name, operands)))
    if name in ("s_barrier", "s_barrier_wait"):
        return Instruction(_SYNCHRONIZED, "scalar", 0.25, kind="barriers")
    if name.startswith(("s_cbranch", "s_branch")):
        return Instruction(4.0, "scalar", 0.25, target=labels.get(operands), goes_on=name != "s_branch")
    if name.startswith(("s_endpgm", "s_setpc")):
        return Instruction(1.0, "scalar", 0.25, goes_on=False)
    if name.startswith(("s_load", "s_buffer_load")):
        return Instruction(1.0, "scalar", 0.25, (("km", _SCALAR),))
    if name.startswith("s_nop"):
        return Instruction(1.0 + (int(operands) if operands.isdigit() else 0), "scalar", 0.0)
    if name.startswith("ds_"):
        kind = next((kind for prefixes, kind in _SHARING.items() if name.startswith(prefixes)), None)
        return Instruction(alone, "shared", lanes * _bytes(name) / 128, (("ds", _SHARED),), kind=kind)
    if name.startswith(("global_", "buffer_", "flat_", "scratch_")):
        counter = "store" if "store" in name else "load"
        leaves = ("store" in name or "atomic" in name) and not name.startswith("scratch_")
        return Instruction(alone, "memory", lanes * _bytes(name) / 64, ((counter, _GLOBAL),),
                           kind="global_stores" if leaves else None)
    product = _PRODUCT.match(name)
    if product is not None:
        # Multiplications of 16 bits in a cycle: AMD CDNA 3 and RDNA 3 white papers, peak rates.
        m, n, k = map(int, product.groups())
        return Instruction(alone, "product", m * n * k / products)
    if name.startswith("v_"):
        slow = 4.0 if _TRANSCENDENTAL.match(name) else 1.0
        return Instruction(alone * slow, "vector", vector * slow)
    return Instruction(1.0, "scalar", 0.25)


def _bytes(name: str) -> float:
    """What an access of memory moves per lane; 4 bytes where the name does not say."""
    pair = 2.0 if "2st64" in name or "2_b" in name or "2addr" in name else 1.0
    if "dwordx" in name:
        return 4.0 * int(name[name.index("dwordx") + 6])
    width = _WIDTH.search(name)
    return pair * (int(width[1]) / 8 if width is not None else 4.0)


#: What the counters are called, in generations that count several kinds of access together and in others.
_COUNTERS = {"vmcnt": ("load",), "vscnt": ("store",), "lgkmcnt": ("ds", "km"), "loadcnt": ("load",),
             "storecnt": ("store",), "dscnt": ("ds",), "kmcnt": ("km",), "asynccnt": ("load",)}


def _waits(name: str, operands: str) -> Iterator[tuple[str, int]]:
    """The counters that ``s_waitcnt vmcnt(0) lgkmcnt(3)``, ``s_wait_loadcnt_dscnt 0x102`` wait for, and how many of
    each may be under way."""
    for counter, count in re.findall(r"(\w+cnt)\((\d+)\)", operands):
        yield from ((kind, int(count)) for kind in _COUNTERS.get(counter, ()))
    named = re.findall(r"_([a-z]+cnt)", name)
    value = re.search(r"(0x[0-9a-f]+|\d+)$", operands)
    if value is not None:
        number = int(value[1], 0)
        for shift, counter in zip((0, 8), reversed(named), strict=False):
            yield from ((kind, number >> shift & 63) for kind in _COUNTERS.get(counter, ()))
