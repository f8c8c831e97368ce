"""The table of what ops do. Every op has one meaning, in the module of its family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from eggshard.triton.kernels.ir import Operation

#: What an op does in a program instance: the op and its operands' values in, its results out (one alone, or several).
Meaning = Callable[..., Any]

MEANINGS: dict[str, Meaning] = {}
PURE: dict[str, Meaning] = {}


def pure(*names: str) -> Callable[[Meaning], Meaning]:
    """Enters ``f(op, *operands)`` as the meaning of ops that neither read nor write anything else."""
    def enter(function: Meaning) -> Meaning:
        for name in names:
            PURE[name] = function
        return function
    return enter


def meaning(*names: str) -> Callable[[Meaning], Meaning]:
    """Enters ``f(program, op, *operands)`` as the meaning of ops with regions or effects."""
    def enter(function: Meaning) -> Meaning:
        for name in names:
            MEANINGS[name] = function
        return function
    return enter


def segmented(op: Operation, operands: Sequence[Any]) -> list[list[Any]]:
    """Operands by the op's segments (``operandSegmentSizes``)."""
    parts, start = [], 0
    for size in op.integers("operandSegmentSizes"):
        parts.append(list(operands[start:start + size]))
        start += size
    return parts


def optional(part: list[Any]) -> Any:
    """The one operand of a segment, or None."""
    return part[0] if part else None
