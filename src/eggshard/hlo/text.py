"""Parser of compiled HLO text: instructions, array types, callees and trip counts."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from eggshard.errors import ProgramError

_BITS = {"pred": 8, "token": 0, "opaque": 0, "bf16": 16, "tf32": 32, "c64": 64, "c128": 128}
_NUMBER_TYPE = re.compile(r"[fsu](\d+)(?:e\d+m\d+\w*)?")

_COMPUTATION = re.compile(r"(ENTRY\s+)?%?([\w.\-]+)\s*(?:\(.*)?\{\s*$")
ATTRIBUTE = r"(?:^|[\s,])"
CALLEES = re.compile(
    ATTRIBUTE + r"(calls|to_apply|called_computations|branch_computations|true_computation|false_computation"
    r"|body|condition|select|scatter|comparator|update_computation)=(\{[^{}]*\}|%?[\w.\-]+)"
)
INSTRUCTION = re.compile(
    r"\s+(?:ROOT\s+)?%?(?P<name>[\w.\-]+) = (?P<shape>\(.*?\)|\S+) (?P<opcode>[a-z][a-z0-9\-]*)\("
)
_ORIGIN = re.compile(r'\bop_name="([^"]*)"')
_METADATA = re.compile(r",?\s*metadata=\{(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\"|\{[^{}]*\})*\}")
_COMMENT = re.compile(r"/\*.*?\*/")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([^\]]*)\]")
_LAYOUT = re.compile(r"\b[a-z]\w*\[(\d+(?:,\d+)*)\]\{(\d+(?:,\d+)*)")
_TRIPS = re.compile(r'known_trip_count\\?"?\s*[:=]\s*\{\s*\\?"?n\\?"?\s*[:=]\s*\\?"?(\d+)')


@dataclass(frozen=True)
class Instruction:
    """One instruction. line: its text without metadata and comments; its operands begin at ``start``."""

    name: str
    opcode: str
    shape: str
    operands: tuple[str, ...]
    line: str
    start: int
    root: bool


def plain(line: str) -> str:
    """An instruction without metadata and comments."""
    return _COMMENT.sub("", _METADATA.sub("", line))


def origin_of(line: str) -> str:
    """What an instruction was made of, such as ``jit(step)/mlp/dot_general``; empty where the text does not tell."""
    match = _ORIGIN.search(line)
    return match[1] if match else ""


def known_trips(line: str) -> int | None:
    """How often a while instruction runs, where its text says."""
    match = _TRIPS.search(line)
    return int(match[1]) if match else None


def callees(line: str, start: int) -> Mapping[str, list[str]]:
    """The computations that an instruction calls, by attribute; its operands begin at ``start``."""
    return {key: _names(value) for key, value in CALLEES.findall(line, start)}


def arrays_of(shape: str) -> list[tuple[str, int]]:
    """(dtype, bytes) of each array of a shape. ProgramError for an unknown size."""
    return [(dtype, -(-math.prod(extents) * _bits(dtype) // 8)) for dtype, extents in shapes_of(shape)]


def shapes_of(shape: str) -> list[tuple[str, tuple[int, ...]]]:
    """(dtype, extents) of each array of a shape. ProgramError for an unknown size."""
    arrays = []
    for dtype, dims in _ARRAY.findall(shape):
        extents = [dim.strip().removeprefix("<=") for dim in dims.split(",") if dim.strip()]
        if not all(extent.isdecimal() for extent in extents):
            raise ProgramError(f"compiled HLO: the size of {dtype}[{dims}] is not known")
        arrays.append((dtype, tuple(map(int, extents))))
    return arrays


def size_of(shape: str) -> int:
    """Bytes of all arrays of a shape. ProgramError for an unknown size."""
    return sum(size for _, size in arrays_of(shape))


def layouts_of(shape: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(extents, dimensions from the minor-most) of each array of a shape whose text says how it is laid out."""
    return [
        (tuple(int(n) for n in dims.split(",")), tuple(int(d) for d in order.split(",")))
        for dims, order in _LAYOUT.findall(shape)
    ]


def _bits(dtype: str) -> int:
    if dtype in _BITS:
        return _BITS[dtype]
    if match := _NUMBER_TYPE.fullmatch(dtype):
        return int(match[1])
    raise ProgramError(f"compiled HLO: unknown element type {dtype!r}; its bytes cannot be counted")


def blocks(text: str) -> tuple[str, dict[str, list[str]]]:
    """The name of the entry computation, and the lines of every computation. ProgramError without an entry."""
    entry = ""
    lines: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.splitlines():
        if not line or line.startswith("HloModule"):
            continue
        if line[0] not in " \t}":
            if match := _COMPUTATION.match(line):
                current = lines.setdefault(match[2], [])
                if match[1]:
                    entry = match[2]
        elif current is not None and "=" in line:
            current.append(line)
    if not entry:
        raise ProgramError("compiled HLO: no ENTRY computation; give the text of a whole module")
    return entry, lines


def split(text: str) -> list[str]:
    """The elements of the parenthesised list that ``text`` begins with."""
    depth, start, parts = 0, 1, []
    for i, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        if (char == "," and depth == 1) or depth == 0:
            if text[start:i].strip():
                parts.append(text[start:i].strip())
            start = i + 1
            if depth == 0:
                break
    return parts


def _names(value: str) -> list[str]:
    return [name.strip().lstrip("%") for name in value.strip("{}").split(",") if name.strip()]
