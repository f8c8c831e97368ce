"""What can come in: loaders that turn a source program into a Program."""

from __future__ import annotations

import os
from typing import Any

from eggshard.errors import ProgramError
from eggshard.program.program import Program


def load(program: Any) -> Program:
    """The Program that a source means.

    ``program``: a Program; a ``jax.stages.Lowered``; an MLIR module; its text or bytes; or the path of a file that
    holds it. ProgramError for anything else and for malformed sources, ShardingError for shardings that do not fit.
    """
    if isinstance(program, Program):
        return program
    from eggshard.frontends.jax import from_lowered, is_lowered

    if is_lowered(program):
        return from_lowered(program)
    is_module = hasattr(program, "operation") and hasattr(program, "context")
    if not is_module and not isinstance(program, (str, bytes, os.PathLike)):
        what = "call .lower(*arguments) on it first" if callable(program) else "give one of those"
        raise ProgramError(
            f"cannot load a program from {type(program).__name__}; eggshard takes a Program, what "
            f"jax.jit(f).lower(...) returns, StableHLO text, or a path to it: {what}"
        )
    try:
        from eggshard.frontends.stablehlo import read
    except ImportError as error:
        raise ProgramError(f"reading StableHLO needs JAX ({error}); install eggshard[jax]") from None
    return read(program)
