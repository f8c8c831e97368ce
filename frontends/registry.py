"""The registry of front ends, which finds the one for a source: the latest registered first, then eggshard's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eggshard.errors import ProgramError
from eggshard.frontends.jax.sources import ExportedFunction, LoweredFunction
from eggshard.frontends.normalization.empty_values import without_empty_values_throughout
from eggshard.frontends.protocol import Frontend
from eggshard.frontends.stablehlo.sources import ModuleFile, ModuleText, ParsedModule
from eggshard.program.program import Program


class BuiltProgram(Frontend):
    """Programs that need no reading; as in those that are read, nothing is computed without elements."""

    name = "a Program"

    def accepts(self, source: Any) -> bool:
        return isinstance(source, Program)

    def read(self, source: Program) -> Program:
        region = without_empty_values_throughout(source.region)
        return source if region is source.region else replace(source, region=region)


#: In the order in which they are asked. Any string is text, unless it is a path.
_frontends: list[Frontend] = [
    BuiltProgram(), ModuleFile(), ModuleText(), ParsedModule(), LoweredFunction(), ExportedFunction()
]


def register(frontend: Frontend) -> None:
    """Read sources of one more kind. It is asked before all that were there: it may take over what they accept.

    ProgramError for what is no `Frontend`.
    """
    if isinstance(frontend, type) or not isinstance(frontend, Frontend):
        raise ProgramError(f"{frontend!r} is no front end; give an object of a class that derives from Frontend")
    _frontends.insert(0, frontend)


def frontend_of(source: Any) -> Frontend:
    """The front end that reads a source; ProgramError, saying what can be read, if there is none."""
    for frontend in _frontends:
        if frontend.accepts(source):
            return frontend
    what = "call .lower(*arguments) on it first" if callable(source) else "give one of those"
    raise ProgramError(
        f"cannot load a program from {type(source).__name__}; eggshard takes "
        f"{', '.join(f.name for f in _frontends[:-1])}, or {_frontends[-1].name}: {what}"
    )


def load(program: Any) -> Program:
    """The Program that a source means.

    ``program``: a Program; a ``jax.stages.Lowered``; a ``jax.export.Exported``, read as its text; an MLIR module; its
    text or bytes; the path of a file that holds it; or what a registered front end reads (`frontends.register`).
    ProgramError for anything else and for malformed sources, ShardingError for shardings that do not fit.
    """
    return frontend_of(program).read(program)
