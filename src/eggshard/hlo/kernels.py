"""The local work of a compiled XLA program, read from its HLO text: flops, and bytes read and written, per kernel.

A kernel is an instruction that a device executes by itself: a fusion, a dot, a copy. As in a roofline, its operands are
read once and its result is written once; of arrays that are only sliced, or updated in place, the slice counts. Dots
and convolutions have two flops per product, reductions one per element read, other arithmetic one per float or
complex number made; integers and truth values mostly say where, and not what. Loops count by their trip counts, and of
a conditional's branches the one with most bytes; XLA's own cost analysis counts the body of a loop once.

Kernels that lay arrays out for a collective, or as they were before, say how much they copy, and in how many pieces.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from eggshard.hlo.copies import Copied, copied_beside_collectives
from eggshard.hlo.fusions import SLICES, WHOLE, computed_parts
from eggshard.hlo.text import INSTRUCTION, Instruction, blocks, callees, known_trips, plain, shapes_of, size_of, split

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
#: StableHLO's names of what HLO calls otherwise. A concatenation that is a kernel by itself copies whole operands; the
#: price of the op is that of one in a fused loop, which tests every element's index.
_NAMES = {"dot": "dot_general", "erf": "chlo.erf", "concatenate": "copy"}
_CONTRACTING = re.compile(r"lhs_contracting_dims=\{([\d,]*)\}")
_KERNEL_LABELS = re.compile(r"dim_labels=\w+_(\w+)->")

Extents = tuple[int, ...]


class Part(NamedTuple):
    """An op that a kernel does, by its name in StableHLO, with the figures that it would have alone."""

    op: str
    dtype: str
    flops: float
    memory_bytes: float


@dataclass(frozen=True)
class Kernel:
    """One kernel; figures are of one execution on one device. op: by its name in StableHLO, or ``fusion``."""

    op: str
    dtype: str
    flops: float
    memory_bytes: float
    trip_count: int = 1
    parts: tuple[Part, ...] = ()
    copied: tuple[Copied, ...] = ()


def count_kernels(hlo_text: str, unknown_trips: int = 1) -> tuple[Kernel, ...]:
    """The kernels of a compiled program, ``compiled.as_text()``; loops of unknown length run ``unknown_trips`` times.

    ProgramError for text without an entry computation, and for arrays of unknown size.
    """
    entry, lines = blocks(hlo_text)
    return _Reader(lines, unknown_trips).kernels(entry)


class _Reader:
    def __init__(self, lines: Mapping[str, Sequence[str]], unknown_trips: int):
        self.lines, self.unknown_trips = lines, unknown_trips
        self._read: dict[str, dict[str, Instruction]] = {}
        self._kernels: dict[str, tuple[Kernel, ...]] = {}

    def instructions(self, computation: str) -> dict[str, Instruction]:
        if computation not in self._read:
            found = {}
            for line in self.lines.get(computation, ()):
                text = plain(line)
                match = INSTRUCTION.match(text)
                if match is None:
                    continue
                operands = tuple(part.split()[-1].lstrip("%") for part in split(text[match.end() - 1 :]))
                found[match["name"]] = Instruction(
                    match["name"], match["opcode"], match["shape"], operands, text, match.end(), "ROOT " in text[:16]
                )
            self._read[computation] = found
        return self._read[computation]

    def kernels(self, computation: str) -> tuple[Kernel, ...]:
        """The kernels of one execution of a computation."""
        if computation not in self._kernels:
            values = self.instructions(computation)
            copied = copied_beside_collectives(values, self._inside)
            self._kernels[computation] = tuple(
                replace(k, copied=tuple(copied[i.name])) if i.name in copied else k
                for i in values.values() for k in self._of(i, values))
        return self._kernels[computation]

    def _of(self, i: Instruction, values: Mapping[str, Instruction]) -> Iterable[Kernel]:
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
        inside = self._inside(i)
        if not inside:
            return [Kernel(_name(i), _dtype(i), self._flops(i, values), self._bytes(i, values))]
        computed = computed_parts(inside)
        flops = sum(computed[j.name] * self._flops(j, inside) for j in inside.values())
        parts = (Part(_name(j), _dtype(j), *(computed[j.name] * f(j, inside) for f in (self._flops, self._bytes)))
                 for j in inside.values() if j.opcode not in _MOVES and j.opcode not in _NO_KERNELS)
        return [Kernel(_name(i), _dtype(i), flops, self._fused_bytes(i, inside, computed), parts=tuple(parts))]

    def _inside(self, i: Instruction) -> Mapping[str, Instruction]:
        """What a fusion fuses; nothing for other instructions."""
        called = callees(i.line, i.start).get("calls", []) if i.opcode == "fusion" else []
        return self.instructions(called[0]) if called else {}

    def _flops(self, i: Instruction, values: Mapping[str, Instruction]) -> float:
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
        if i.opcode in WHOLE:
            return float(max([made, *map(math.prod, operands)]))
        return float(sum(math.prod(extents) for dtype, extents in arrays if dtype.startswith(("f", "bf", "c"))))

    def _bytes(self, i: Instruction, values: Mapping[str, Instruction]) -> float:
        """Return the bytes that an unfused instruction reads and writes."""
        written = size_of(i.shape)
        if i.opcode in SLICES:
            return 2.0 * written
        if i.opcode == "dynamic-update-slice":
            return 2.0 * size_of(values[i.operands[1]].shape)
        if i.opcode in ("broadcast", "iota"):
            return float(written)
        return float(written + sum(size_of(values[name].shape) for name in dict.fromkeys(i.operands) if name in values))

    def _fused_bytes(
        self, i: Instruction, inside: Mapping[str, Instruction], computed: Mapping[str, float]
    ) -> float:
        """Return the bytes of a fusion: what is read of its parameters, and its result or the updated part of it."""
        read = sum(computed[j.name] * size_of(j.shape) for j in inside.values() if j.opcode == "parameter")
        root = next((j for j in inside.values() if j.root), None)
        while root is not None and root.opcode in ("bitcast", "copy"):
            root = inside.get(root.operands[0])
        parts = [inside[n] for n in root.operands if n in inside] if root and root.opcode == "tuple" else [root]
        written = sum(
            size_of(inside[p.operands[1]].shape if p.opcode == "dynamic-update-slice" else p.shape)
            for p in parts if p is not None
        )
        return read + (written if root is not None else size_of(i.shape))


def _name(i: Instruction) -> str:
    """An instruction's name in StableHLO."""
    return _NAMES.get(i.opcode, i.opcode.replace("-", "_"))


def _dtype(i: Instruction) -> str:
    arrays = shapes_of(i.shape)
    return arrays[0][0] if arrays else "f32"


def _first(i: Instruction | None) -> Extents:
    """The extents of the first array that an instruction makes."""
    arrays = shapes_of(i.shape) if i is not None else []
    return arrays[0][1] if arrays else ()
