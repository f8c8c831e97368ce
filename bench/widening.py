"""Collectives of compiled programs in the element types that they were written in.

XLA:CPU computes in f32 what has narrower floats, and sends it so, too: its passes widen a bf16 all-gather as they widen
a bf16 sum. Other back ends send what is written. Collectives keep their channel from the module's text to the compiled
one, so each can be told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from eggshard.hlo.collectives import CollectiveCount, count_collectives

_CHANNEL = re.compile(r"\bchannel_id=(\d+)")
_RESULT = re.compile(r"(?<== )(?:\(.*?\)|\S+)(?= [a-z][a-z0-9\-]*\()")
#: Element types of compiled HLO whose values some of MLIR's narrower floats are a part of.
_WIDE = ("f16", "bf16", "f32")


def count_as_written(module: Any, compiled: str) -> CollectiveCount:
    """The collectives of a compiled program, each in the element type that it has in the MLIR module it came from."""
    return count_collectives(as_written(module, compiled))


def as_written(module: Any, compiled: str) -> str:
    """Compiled HLO in which no collective has another float than its channel has in the module (or its text)."""
    narrow = dict(_floats(module))

    def line_as_written(line: str) -> str:
        channel = _CHANNEL.search(line)
        written = narrow.get(int(channel[1])) if channel else None
        if written is None:
            return line
        return _RESULT.sub(lambda m: re.sub(rf"\b({'|'.join(_WIDE)})(?=\[)", written, m[0]), line, count=1)

    return "\n".join(map(line_as_written, compiled.split("\n")))


def _floats(module: Any) -> Iterator[tuple[int, str]]:
    """(channel, element type as HLO spells it) of every collective on floats narrower than f32."""
    from jax.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir

    if isinstance(module, str):
        with make_ir_context():
            yield from _floats(ir.Module.parse(module))
        return
    for op in _within(module.operation):
        if "channel_handle" not in op.attributes:
            continue
        channel = re.search(r"handle = (\d+)", str(op.attributes["channel_handle"]))
        dtypes = {str(ir.ShapedType(v.type).element_type) for v in op.results}
        if channel and len(dtypes) == 1 and (dtype := dtypes.pop()).startswith(("f8", "f16", "bf16")):
            yield int(channel[1]), dtype.lower()


def _within(op: Any) -> Iterator[Any]:
    yield op
    for region in op.regions:
        for block in region:
            for inner in block:
                yield from _within(inner.operation)
