"""The local work of a compiled XLA program, read from its HLO text: flops, and bytes read and written, per kernel.

A kernel is an instruction that a device executes by itself: a fusion, a dot, a copy. As in a roofline, its operands are
read once and its result is written once; of arrays that are only sliced, or updated in place, the slice counts. Dots
and convolutions have two flops per product, reductions one per element read, other arithmetic one per float or
complex number made; integers and truth values mostly say where, and not what. Loops count by their trip counts, and of
a conditional's branches the one with most bytes; XLA's own cost analysis counts the body of a loop once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eggshard.hlo.text import INSTRUCTION, arrays_of, blocks, callees, known_trips, plain, shapes_of, split

#: What moves or names elements: no flops.
_MOVES = frozenset(
    "bitcast broadcast concatenate constant copy dynamic-slice dynamic-update-slice gather get-tuple-element iota pad "
    "parameter reshape reverse select slice transpose tuple".split()
)
#: What a device does not execute as a kernel, or what is counted as communication.
_NO_KERNELS = frozenset(
    "add-dependency after-all all-gather all-reduce all-to-all bitcast collective-broadcast collective-permute "
    "constant get-tuple-element infeed opt-barrier outfeed parameter partition-id ragged-all-to-all recv "
    "reduce-scatter replica-id send tuple".split()
)
_CONTRACTING = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_KERNEL_LABELS = re.compile(r"dim_labels=\w+_(\w+)->")

Extents = tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """One kernel; figures are of one execution on one device."""

    op: str
    dtype: str
    flops: float
    memory_bytes: float
    trip_count: int = 1


@dataclass(frozen=True)
class _Instruction:
    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    line: str
    start: int
    root: bool


def count_kernels(hlo_text: str, unknown_trips: int = 1) -> tuple[Kernel, ...]:
    """The kernels of a compiled program, ``compiled.as_text()``; loops of unknown length run ``unknown_trips`` times.

    ProgramError for text without an entry computation, and for arrays of unknown size.
    """
    entry, lines = blocks(hlo_text)
    return _Reader(lines, unknown_trips).kernels(entry)


class _Reader:
    def __init__(self, lines: Mapping[str, Sequence[str]], unknown_trips: int):
        self.lines, self.unknown_trips = lines, unknown_trips
        self._read: dict[str, dict[str, _Instruction]] = {}
        self._kernels: dict[str, tuple[Kernel, ...]] = {}

    def instructions(self, computation: str) -> dict[str, _Instruction]:
        if computation not in self._read:
            found = {}
            for line in self.lines.get(computation, ()):
                text = plain(line)
                match = INSTRUCTION.match(text)
                if match is None:
                    continue
                operands = tuple(part.split()[-1].lstrip("%") for part in split(text[match.end() - 1 :]))
                found[match["name"]] = _Instruction(
                    match["name"], match["opcode"], match["shape"], operands, text, match.end(), "ROOT " in text[:16]
                )
            self._read[computation] = found
        return self._read[computation]

    def kernels(self, computation: str) -> tuple[Kernel, ...]:
        """The kernels of one execution of a computation."""
        if computation not in self._kernels:
            values = self.instructions(computation)
            self._kernels[computation] = tuple(k for i in values.values() for k in self._of(i, values))
        return self._kernels[computation]

    def _of(self, i: _Instruction, values: Mapping[str, _Instruction]) -> Iterable[Kernel]:
        if i.opcode.removesuffix("-start") in _NO_KERNELS or i.opcode.endswith(("-done", "-update")):
            return ()
        called = callees(i.line, i.start)
        if i.opcode == "while":
            trips = known_trips(i.line)
            trips = self.unknown_trips if trips is None else trips
            ways = (("body", trips), ("condition", trips + 1))
            return [
                replace(k, trip_count=k.trip_count * times)
                for key, times in ways if times for name in called.get(key, ()) for k in self.kernels(name)
            ]
        if i.opcode == "conditional":
            branches = [self.kernels(name) for names in called.values() for name in names]
            return max(branches, key=lambda ks: sum(k.memory_bytes * k.trip_count for k in ks), default=())
        if i.opcode in ("call", "async-start"):
            return [k for names in called.values() for name in names for k in self.kernels(name)]
        inside = called.get("calls", []) if i.opcode == "fusion" else []
        flops = sum(self._flops(j, self.instructions(name)) for name in inside for j in
                    self.instructions(name).values()) if inside else self._flops(i, values)
        touched = self._fused_bytes(i, values, inside[0]) if inside else self._bytes(i, values)
        arrays = shapes_of(i.shape)
        return [Kernel(i.opcode, arrays[0][0] if arrays else "f32", flops, touched)]

    def _flops(self, i: _Instruction, values: Mapping[str, _Instruction]) -> float:
        if i.opcode in _MOVES:
            return 0.0
        arrays = shapes_of(i.shape)
        made = sum(math.prod(extents) for _, extents in arrays)
        operands = [_first(values.get(name)) for name in i.operands]
        if i.opcode == "dot" and (match := _CONTRACTING.search(i.line)):
            return 2.0 * made * math.prod(operands[0][int(d)] for d in match[1].split(",") if d)
        if i.opcode == "convolution" and (match := _KERNEL_LABELS.search(i.line)) and len(operands) > 1:
            out = operands[1][match[1].index("o")]
            return 2.0 * made * math.prod(operands[1]) / max(out, 1)
        if i.opcode in ("reduce", "reduce-window", "sort", "scatter"):
            return float(max([made, *map(math.prod, operands)]))
        return float(sum(math.prod(extents) for dtype, extents in arrays if dtype.startswith(("f", "bf", "c"))))

    def _bytes(self, i: _Instruction, values: Mapping[str, _Instruction]) -> float:
        """Return the bytes that an unfused instruction reads and writes."""
        written = _size(i.shape)
        if i.opcode in ("dynamic-slice", "slice", "gather"):
            return 2.0 * written
        if i.opcode == "dynamic-update-slice":
            return 2.0 * _size(values[i.operands[1]].shape)
        if i.opcode in ("broadcast", "iota"):
            return float(written)
        return float(written + sum(_size(values[name].shape) for name in dict.fromkeys(i.operands) if name in values))

    def _fused_bytes(self, i: _Instruction, values: Mapping[str, _Instruction], fused: str) -> float:
        """Return the bytes of a fusion: what is read of its parameters, and its result or the updated part of it."""
        inside = self.instructions(fused)
        users: dict[str, list[tuple[_Instruction, int]]] = {}
        for j in inside.values():
            for position, name in enumerate(j.operands):
                users.setdefault(name, []).append((j, position))
        read = 0.0
        for j in inside.values():
            if j.opcode != "parameter":
                continue
            uses = users.get(j.name, [])
            if all(u.opcode in ("dynamic-slice", "slice", "gather") and at == 0 for u, at in uses):
                read += sum(_size(u.shape) for u, _ in uses)
            elif not all(u.opcode == "dynamic-update-slice" and at == 0 for u, at in uses):
                read += _size(j.shape)
        root = next((j for j in inside.values() if j.root), None)
        while root is not None and root.opcode in ("bitcast", "copy"):
            root = inside.get(root.operands[0])
        parts = [inside[n] for n in root.operands if n in inside] if root and root.opcode == "tuple" else [root]
        written = sum(
            _size(inside[p.operands[1]].shape if p.opcode == "dynamic-update-slice" else p.shape)
            for p in parts if p is not None
        )
        return read + (written if root is not None else _size(i.shape))


def _first(i: _Instruction | None) -> Extents:
    """The extents of the first array that an instruction makes."""
    arrays = shapes_of(i.shape) if i is not None else []
    return arrays[0][1] if arrays else ()


def _size(shape: str) -> int:
    return sum(size for _, size in arrays_of(shape))
