"""jaxlib's own MLIR passes on a module's text. Some abort the process on ordinary inputs: run them in the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eggshard.errors import ProgramError


def after_passes(text: str, pipeline: str, read: Callable[[Any], Any]) -> Any:
    """What ``read`` answers on the module after passes, which are given as jaxlib's pass manager reads them.

    ProgramError for malformed text and for a pass that fails.
    """
    from jax.interpreters import mlir as jax_mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.passmanager import PassManager

    with jax_mlir.make_ir_context():
        try:
            module = ir.Module.parse(text)
            PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
        except (ir.MLIRError, ValueError) as error:
            raise ProgramError(f"jaxlib's {pipeline} refuses the module: {error}") from None
        return read(module)
