"""The table of what ops do. Every op has one meaning, in the module of its family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from eggshard.errors import ProgramError
from eggshard.triton.kernels.ir import Operation

if TYPE_CHECKING:
    from eggshard.triton.kernels.interpreter.execution import Program

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


def lookup(program: Program, op: Operation) -> Callable[..., Any]:
    """``f(op, *operands)`` of an op. Raises `ProgramError` for one without a meaning."""
    if op.name in PURE:
        return PURE[op.name]
    if op.name in MEANINGS:
        found = MEANINGS[op.name]
        return lambda op, *operands: found(program, op, *operands)
    raise at(op, "the interpreter does not know what this op means")


def at(op: Operation, message: str) -> ProgramError:
    """An error whose message names the op."""
    error = ProgramError(f"{described(op)}: {message}")
    error.located = True
    return error


def described(op: Operation) -> str:
    """An op and its types, for messages."""
    operands = ", ".join(str(v.type) for v in op.operands)
    results = ", ".join(str(v.type) for v in op.results)
    where = f" at {op.location}" if op.location and not op.location.startswith("loc(#") else ""
    return f"{op.name} : ({operands}) -> ({results}){where}"


def integers(text: str | None) -> list[int]:
    """The numbers of ``array<i32: 1, 2>``; [] without it."""
    if text is None or ":" not in text:
        return []
    return [int(part) for part in text[text.index(":") + 1:-1].split(",")]


def segmented(op: Operation, operands: Sequence[Any]) -> list[list[Any]]:
    """Operands by the op's segments (``operandSegmentSizes``)."""
    parts, start = [], 0
    for size in integers(op.attribute("operandSegmentSizes")):
        parts.append(list(operands[start:start + size]))
        start += size
    return parts


def optional(part: list[Any]) -> Any:
    """The one operand of a segment, or None."""
    return part[0] if part else None
