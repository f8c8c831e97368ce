"""Shardy's own passes, as jaxlib registers them, run in a worker process because ordinary inputs abort some of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from eggshard.errors import EggshardError, ProgramError
from eggshard.shardy.passes import PREFIX, Step
from eggshard.worker import Worker, shared_worker

#: The default time limit of a call, in seconds.
SECONDS = 60.0


class Peer(NamedTuple):
    """What jaxlib's passes made of a module: its text, or what they failed with."""

    text: str = ""
    failure: str = ""


@cache
def _worker() -> Worker:
    return shared_worker(("eggshard.frontends.jaxlib_context", "jaxlib.mlir.passmanager"))


def run_peer(text: str, pipeline: str, seconds: float = SECONDS) -> Peer:
    """The module after jaxlib's passes, given as its pass manager reads them (``sdy-close-shardings``)."""
    try:
        return Peer(text=_worker().call(f"{__name__}:passed", text, pipeline, seconds=seconds))
    except EggshardError as error:
        return Peer(failure=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)


def passed(text: str, pipeline: str) -> str:
    """Run jaxlib's passes on a module's text in this process, which they may abort.

    Raises ProgramError for malformed text and for a pass that fails.
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
        return str(module.operation.get_asm())


def peer_text(steps: Sequence[Step]) -> str:
    """Write a pipeline in the syntax of jaxlib's pass manager; ProgramError for passes that it does not have."""
    parts = []
    for step in steps:
        if not step.pass_.on:
            raise ProgramError(f"jaxlib has no pass {PREFIX}{step.pass_.name}")
        given = " ".join(f"{key}={str(value).lower()}" for key, value in step.options.items())
        text = PREFIX + step.pass_.name + (f"{{{given}}}" if given else "")
        parts.append(f"func.func({text})" if step.pass_.on == "func.func" else text)
    return ",".join(parts)
