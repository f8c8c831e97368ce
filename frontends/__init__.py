"""What can come in: loaders that turn a source program into a Program."""

from __future__ import annotations

import os
from typing import Any

from eggshard.errors import ProgramError
from eggshard.program.program import Program


def load(program: Any) -> Program:
    """The Program that a source means.

    ``program``: a Program; a ``jax.stages.Lowered``; a ``jax.export.Exported``, read as its text; an MLIR module; its
    text or bytes; or the path of a file that holds it. ProgramError for anything else and for malformed sources,
    ShardingError for shardings that do not fit.
    """
    if isinstance(program, Program):
        return program
    from eggshard.frontends.jax import from_lowered, is_exported, is_lowered

    if is_lowered(program):
        return from_lowered(program)
    if is_exported(program):
        program = program.mlir_module()
    is_module = hasattr(program, "operation") and hasattr(program, "context")
    if not is_module and not isinstance(program, (str, bytes, os.PathLike)):
        what = "call .lower(*arguments) on it first" if callable(program) else "give one of those"
        raise ProgramError(
            f"cannot load a program from {type(program).__name__}; eggshard takes a Program, what "
            f"jax.jit(f).lower(...) or jax.export.export(...)(...) returns, StableHLO text, or a path to it: {what}"
        )
    try:
        from eggshard.frontends.stablehlo import read
    except ImportError as error:
        raise ProgramError(f"reading StableHLO needs JAX ({error}); install eggshard[jax]") from None
    return read(program)


def op_count(program: Any) -> int:
    """About how many ops a source holds, where that is known without reading it; else 0."""
    from eggshard.frontends.jax import is_lowered

    if isinstance(program, Program):
        return len(program.region.ops)
    module = program.compiler_ir("stablehlo") if is_lowered(program) else program
    if module is None or not hasattr(module, "body"):
        return 0
    return sum(len(block.operations) for function in module.body.operations
               for region in function.regions for block in region.blocks)
