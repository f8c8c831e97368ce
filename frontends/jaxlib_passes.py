"""jaxlib's own MLIR passes on a module's text. Some abort the process on ordinary inputs: run them in a worker.

That is not the e-graph's worker: the two work at the same time, and start at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from eggshard.errors import ProgramError
from eggshard.worker import Worker, shared_worker

#: What the worker imports while idle.
_PRELOAD = ("eggshard.frontends.propagation", "eggshard.frontends.jaxlib_context", "jaxlib.mlir.passmanager")


@cache
def worker() -> Worker:
    """The process for passes, shared by all calls."""
    return shared_worker(_PRELOAD)


def after_passes(text: str, pipeline: str, read: Callable[[Any], Any]) -> Any:
    """What ``read`` answers on the module after passes, which are given as jaxlib's pass manager reads them.

    ProgramError for malformed text and for a pass that fails.
    """
    from jaxlib.mlir import ir
    from jaxlib.mlir.passmanager import PassManager

    from eggshard.frontends.jaxlib_context import make_context

    with make_context():
        try:
            module = ir.Module.parse(text)
            PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
        except (ir.MLIRError, ValueError) as error:
            raise ProgramError(f"jaxlib's {pipeline} refuses the module: {error}") from None
        return read(module)
