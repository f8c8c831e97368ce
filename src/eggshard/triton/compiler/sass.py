"""Machine code of NVIDIA: what an instruction's bits say of the order and time in which it runs.

An instruction has 128 bits since Volta. What the assembler decided is in bits 105 and up: how many cycles the warp
waits before the next one, which of six counters the instruction raises until its result is there and until its operands
are read, and which it waits for (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking",
2018, arXiv:1804.06826, section 2.1). The other fields are read off what Triton's disassembler prints, and compared with
it in the tests.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from eggshard.errors import ProgramError
from eggshard.triton.compiler.timing import Instruction, Kind


class _Kind(NamedTuple):
    """unit: of the multiprocessor. busy: cycles for which one warp's instruction keeps it busy, of 32 bits per thread
    if it is memory. latency: cycles until its result is there."""

    unit: str
    busy: float
    latency: float = 0.0


#: Cycles until the operands of an instruction that waits in a queue are read: an estimate.
_READ = 12.0
#: By the lower nine bits of the operation. Throughputs: CUDA C++ Programming Guide, "Throughput of Native Arithmetic
#: Instructions", as in `layout_costs`. Latencies: Jia et al., table 4.1 (special functions, conversions, shuffles), and
#: Luo et al., 2024, arXiv:2402.13499 (shared memory 29 cycles, second-level cache about 260). Those of barriers,
#: special registers and asynchronous products are estimates.
_KINDS = {
    0x020: _Kind("float", 0.25), 0x021: _Kind("float", 0.25), 0x023: _Kind("float", 0.25),
    0x030: _Kind("float", 0.25), 0x031: _Kind("float", 0.25), 0x035: _Kind("float", 0.25),
    0x03c: _Kind("product", 2.0),
    0x104: _Kind("special", 2.0, 14), 0x105: _Kind("special", 2.0, 14), 0x106: _Kind("special", 2.0, 14),
    0x108: _Kind("special", 2.0, 18),
    0x119: _Kind("issue", 0.25, 20), 0x1c3: _Kind("issue", 0.25, 20),
    0x182: _Kind("issue", 0.25, 30), 0x1ac: _Kind("issue", 0.25, 30),
    0x11d: _Kind("issue", 0.25, 0),
    0x181: _Kind("memory", 1.0, 260), 0x186: _Kind("memory", 1.0), 0x1ae: _Kind("memory", 1.0, 260),
    0x1af: _Kind("integer", 0.5, 260),  # ends when the copies before it do
    0x183: _Kind("memory", 1.0, 38), 0x187: _Kind("memory", 1.0),
    0x184: _Kind("memory", 1.0, 29), 0x188: _Kind("memory", 1.0), 0x18c: _Kind("memory", 2.0, 29),
    0x03b: _Kind("memory", 1.0, 33), 0x044: _Kind("memory", 4.0),
    0x189: _Kind("memory", 1.0, 23), 0x1c4: _Kind("memory", 1.0, 23),
    0x1a3: _Kind("memory", 2.0, 260), 0x1a8: _Kind("memory", 2.0, 260),
    0x1f0: _Kind("product", 16.0), 0x1ea: _Kind("product", 16.0),
}
#: What is counted.
_COUNTED: dict[int, Kind] = {
    0x11d: "barriers", 0x184: "shared_loads", 0x03b: "shared_loads", 0x188: "shared_stores", 0x044: "shared_stores",
    0x186: "global_stores", 0x18e: "global_stores", 0x1a3: "global_stores", 0x1a8: "global_stores"}
#: Of others.
_OTHER = _Kind("integer", 0.5, 30)
_BRANCH, _BARRIER, _DEPBAR, _GROUPED, _COPY = 0x147, 0x11d, 0x11a, 0x1f0, 0x1ae
_WARPGROUP, _MATRICES = 0x1c5, 0x03b
#: With their forms, what no other instruction follows where its predicate is this one: branches that are not uniform,
#: ends and returns.
_FINAL, _ALWAYS = frozenset({0x947, 0x94D, 0x950}), 7
#: Cycles of a barrier besides the wait for the last warp: an estimate.
_SYNCHRONIZED = 20.0
#: 32 bits per thread that an access of memory moves, by bits 73 to 75.
_WORDS = {4: 1, 5: 2, 6: 4}


def decode(cubin: bytes, capability: int) -> list[Instruction]:
    """The instructions of a cubin's functions, in the order of its text. Raises `ProgramError` for what is no cubin."""
    found: list[Instruction] = []
    for code in _texts(cubin):
        start = len(found)
        for i in range(len(code) // 16):
            low, high = struct.unpack_from("<QQ", code, 16 * i)
            found.append(_instruction(low | high << 64, start + i, capability))
    return found


def _instruction(word: int, position: int, capability: int) -> Instruction:
    operation = word & 0x1FF
    kind = _KINDS.get(operation, _OTHER)
    control = word >> 105
    stall, result, read, awaited = control & 15, control >> 5 & 7, control >> 8 & 7, control >> 11 & 63
    busy = kind.busy
    if kind.unit == "memory" and operation not in (0x189, 0x1c4):
        busy *= 1 << (word >> 72 & 3) if operation == _MATRICES else _WORDS.get(word >> 73 & 7, 1)
    starts = [(str(result), kind.latency)] if result < 6 else []
    starts += [(str(read), _READ)] if read < 6 else []
    waits = [(str(n), 0) for n in range(6) if awaited >> n & 1]
    if operation == _COPY:
        starts.append(("copies", kind.latency))
    elif operation == _GROUPED:
        starts.append(("products", 32.0))
    elif operation == _DEPBAR or operation == _WARPGROUP and word >> 47 & 1:
        waits.append((str(word >> 44 & 7) if operation == _DEPBAR else "products", word >> 38 & 63))
    return Instruction(
        max(1, stall) + (_SYNCHRONIZED if operation == _BARRIER else 0), kind.unit, busy, tuple(starts), tuple(waits),
        _target(word, position, capability) if operation == _BRANCH else None,
        not (word & 0xFFF in _FINAL and word >> 12 & 15 == _ALWAYS), _COUNTED.get(operation))


def _target(word: int, position: int, capability: int) -> int:
    """Where a branch goes: so many quarters of an instruction's half after the next one."""
    offset = word >> 34 & (1 << 48) - 1
    offset -= (offset >> 47) << 48
    if capability >= 90:
        offset = offset << 8 | word >> 16 & 0xFF
    return position + 1 + 4 * offset // 16


def _texts(cubin: bytes) -> list[bytes]:
    """The contents of an ELF file's sections of code."""
    try:
        if cubin[:4] != b"\x7fELF":
            raise ValueError("no ELF file")
        offset, = struct.unpack_from("<Q", cubin, 40)
        size, count, names = struct.unpack_from("<HHH", cubin, 58)
        headers = [struct.unpack_from("<IIQQQQ", cubin, offset + i * size) for i in range(count)]
        strings = headers[names][4]
        return [
            cubin[at:at + length] for name, _, _, _, at, length in headers
            if cubin.startswith(b".text.", strings + name)]
    except (struct.error, ValueError, IndexError) as error:
        raise ProgramError(f"the cubin is not understood: {error}") from error
