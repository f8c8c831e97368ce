"""Collectives of compiled programs in the element types that they were written in.

XLA:CPU computes in f32 what has narrower floats, and sends it so, too: its passes widen a bf16 all-gather as they widen
a bf16 sum, and then combine it with those of f32. Other back ends send what is written. Collectives keep their channel
from the module's text to the compiled one, so each can be told apart; of combined ones, which keep one channel, parts
are told by their numbers of elements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from eggshard.hlo.collectives import CollectiveCount, count_collectives

_CHANNEL = re.compile(r"\bchannel_id=(\d+)")
_RESULT = re.compile(r"(?<== )(?:\(.*?\)|\S+)(?= [a-z][a-z0-9\-]*\()")
#: Types of compiled HLO whose values some of MLIR's narrower floats are a part of.
_WIDE = re.compile(r"\b(f16|bf16|f32)\[([0-9,]*)\]")
#: Collectives that XLA combines, with more than one result. (An all-to-all has its pieces as results.)
_COMBINED = re.compile(r"= \(.*?\) (?:all-reduce|all-gather|reduce-scatter)(?:-start)?\(")


def count_as_written(module: Any, compiled: str) -> CollectiveCount:
    """The collectives of a compiled program, each in the element type that it has in the MLIR module it came from."""
    return count_collectives(as_written(module, compiled))


def as_written(module: Any, compiled: str) -> str:
    """Compiled HLO in which no collective has another float than its channel has in the module (or its text)."""
    narrow = {channel: (dtype, size) for channel, dtype, size in _floats(module)}
    lines = compiled.split("\n")
    channels = [int(found[1]) if (found := _CHANNEL.search(line)) else None for line in lines]
    #: Per number of elements the narrow types of collectives that others may have been combined with.
    combined: dict[int, list[str]] = {}
    alone = {c for c, line in zip(channels, lines, strict=True) if not _COMBINED.search(line)}
    for channel, (dtype, size) in narrow.items():
        if channel not in alone:
            combined.setdefault(size, []).append(dtype)

    def part_as_written(part: re.Match[str]) -> str:
        there = combined.get(math.prod(int(n) for n in part[2].split(",") if n))
        return f"{there.pop() if there else part[1]}[{part[2]}]"

    def line_as_written(line: str, channel: int | None) -> str:
        if channel is not None and channel not in alone:
            return _RESULT.sub(lambda m: _WIDE.sub(part_as_written, m[0]), line, count=1)
        if channel not in narrow:
            return line
        dtype = narrow[channel][0]
        return _RESULT.sub(lambda m: _WIDE.sub(rf"{dtype}[\2]", m[0]), line, count=1)

    return "\n".join(map(line_as_written, lines, channels))


def _floats(module: Any) -> Iterator[tuple[int, str, int]]:
    """(channel, element type as HLO spells it, elements) of every collective on floats narrower than f32."""
    from jaxlib.mlir import ir

    for op in _collectives(module):
        channel = re.search(r"handle = (\d+)", str(op.attributes["channel_handle"]))
        types = [ir.RankedTensorType(v.type) for v in op.results]
        dtypes = {str(t.element_type) for t in types}
        if channel and len(dtypes) == 1 and (dtype := dtypes.pop()).startswith(("f8", "f16", "bf16")):
            yield int(channel[1]), dtype.lower(), sum(math.prod(t.shape) for t in types)


def _collectives(module: Any) -> Iterator[Any]:
    """The collectives of a module, or of its text."""
    from jax.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir

    if isinstance(module, str):
        with make_ir_context():
            yield from _collectives(ir.Module.parse(module))
        return
    yield from (op for op in _within(module.operation) if "channel_handle" in op.attributes)


def _within(op: Any) -> Iterator[Any]:
    yield op
    for region in op.regions:
        for block in region:
            for inner in block:
                yield from _within(inner.operation)
