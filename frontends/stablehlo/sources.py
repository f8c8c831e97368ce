"""Front ends for StableHLO modules. JAX, whose MLIR parses them, is imported only when there is one to read."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from eggshard.errors import ProgramError
from eggshard.extras import named_extras
from eggshard.frontends.protocol import Frontend, is_of_class
from eggshard.program.program import Program


class ModuleText(Frontend):
    """Text, bytecode, or a portable artifact."""

    name = "StableHLO text or bytecode"

    def accepts(self, source: Any) -> bool:
        return isinstance(source, (str, bytes))

    def read(self, source: str | bytes) -> Program:
        return _read(source)


class ModuleFile(Frontend):
    """The path of a file that holds text, bytecode, or a portable artifact."""

    name = "the path of a StableHLO file"

    def accepts(self, source: Any) -> bool:
        return isinstance(source, os.PathLike) or (isinstance(source, str) and _is_path(source))

    def read(self, source: str | os.PathLike[str]) -> Program:
        try:
            data = Path(source).read_bytes()
        except OSError as error:
            why = "" if isinstance(source, os.PathLike) else " (a string without spaces or braces is taken for a path)"
            raise ProgramError(f"cannot read {source}: {error.strerror or error}{why}") from None
        return _read(data)


class ParsedModule(Frontend):
    """A module of jaxlib's MLIR, which is not changed."""

    name = "a module of jaxlib.mlir"

    def accepts(self, source: Any) -> bool:
        return is_of_class(source, "jaxlib", "Module", "ModuleOp")

    def read(self, source: Any) -> Program:
        return _read(source)


def _is_path(text: str) -> bool:
    """Whether a string is a path rather than a module, which has a space or a brace at least."""
    if text and not re.search(r"[\s{]", text):
        return True
    return "\n" not in text and (text.endswith(".mlir") or (len(text) < 4096 and os.path.isfile(text)))


@named_extras()
def _read(source: Any) -> Program:
    from eggshard.frontends.stablehlo.reading import read

    return read(source)
