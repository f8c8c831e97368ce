"""Statistics of assembled code that depend on layouts: barriers, shared memory, shuffles, registers."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from eggshard.errors import ProgramError
from eggshard.triton.compiler.compilation import Compiled


class Usage(NamedTuple):
    """What machine code takes: vector registers per thread, and bytes per thread that are kept in memory for want of
    registers."""

    registers: int
    spills: int


class CodeCounts(NamedTuple):
    """Instructions in a program's text, each once however often it runs.

    instructions: all. barriers: of a whole thread block. shared_loads, shared_stores: matrix forms included. shuffles:
    between the lanes of a warp, through registers or the crossbar of shared memory. registers, spills: as in `Usage`.
    """

    instructions: int
    barriers: int
    shared_loads: int
    shared_stores: int
    shuffles: int
    registers: int = 0
    spills: int = 0


_SASS = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T\d]+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)
_AMDGCN = re.compile(r"^\s+([a-z][a-z0-9_]+)(?:[ \t]+(\S.*))?$", re.MULTILINE)
#: ROCm Compute Profiler's documentation, "Local data share": it executes loads, stores and shuffles.
_CROSSBAR = ("ds_bpermute", "ds_permute", "ds_swizzle")
_DPP = re.compile(r"\b(?:quad_perm|row_(?:shl|shr|ror|mirror|half_mirror|bcast|newbcast)|wave_\w+)\b")


def count(compiled: Compiled) -> CodeCounts:
    """Count instructions of the machine code, SASS or amdgcn. Raises `ProgramError` if it cannot be disassembled."""
    return count_sass(compiled.cubin) if "cubin" in compiled.stages else count_amdgcn(compiled.amdgcn)


def usage(compiled: Compiled) -> Usage:
    """Registers and spills, without a disassembler, which takes longer than ptxas."""
    if "cubin" in compiled.stages:
        return _cubin_usage(_tool("cuobjdump", "-res-usage", compiled.cubin))
    return _amdgcn_usage(compiled.amdgcn)


def count_sass(cubin: bytes) -> CodeCounts:
    """Count SASS instructions of a cubin, using the disassembler that ships with Triton."""
    text, used = disassembled(cubin)
    found = _counted(
        [match[1] for match in _SASS.finditer(text)],
        barriers=("BAR.",), loads=("LDS", "LDSM"), stores=("STS", "STSM"), shuffles=("SHFL",),
    )
    return found._replace(**_cubin_usage(used)._asdict())


def _cubin_usage(text: str) -> Usage:
    return Usage(_number(text, r"REG:(\d+)"), _number(text, r"LOCAL:(\d+)"))


def _amdgcn_usage(text: str) -> Usage:
    return Usage(_number(text, r"\.vgpr_count:\s*(\d+)"), 4 * _number(text, r"\.vgpr_spill_count:\s*(\d+)"))


def disassembled(cubin: bytes) -> tuple[str, str]:
    """SASS text and the resource usage of a cubin. Raises `ProgramError` without the tools or for what they refuse."""
    return _tool("nvdisasm", "-c", cubin), _tool("cuobjdump", "-res-usage", cubin)


def _tool(name: str, option: str, cubin: bytes) -> str:
    """What one of the tools that Triton brings says of a cubin."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        try:
            command = [getattr(knobs.nvidia, name).path, option, str(path)]
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            raise ProgramError(f"{name} failed: {error} {getattr(error, 'stderr', '')}") from error


def count_amdgcn(text: str) -> CodeCounts:
    """Count instructions of amdgcn assembly; operand modifiers that exchange lanes (DPP) count as shuffles."""
    body = text.split(".amdgpu_metadata")[0].split(".section\t.AMDGPU.csdata")[0].split(".section\t.rodata")[0]
    lines = [(match[1], match[2] or "") for match in _AMDGCN.finditer(body)]
    found = _counted(
        [name for name, _ in lines],
        barriers=("s_barrier",), loads=("ds_read", "ds_load"), stores=("ds_write", "ds_store"),
        shuffles=(*_CROSSBAR, "v_permlane"),
    )
    moved = sum(name.startswith("v_") and bool(_DPP.search(operands)) for name, operands in lines)
    return found._replace(shuffles=found.shuffles + moved, **_amdgcn_usage(text)._asdict())


def _counted(
    names: list[str], barriers: Iterable[str], loads: Iterable[str], stores: Iterable[str], shuffles: Iterable[str],
) -> CodeCounts:
    def of(prefixes: Iterable[str]) -> int:
        return sum(name.startswith(tuple(prefixes)) for name in names)

    return CodeCounts(len(names), of(barriers), of(loads), of(stores), of(shuffles))


def _number(text: str, pattern: str) -> int:
    return max((int(n) for n in re.findall(pattern, text)), default=0)
