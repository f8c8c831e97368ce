"""Shardy's own passes, as jaxlib registers them, in the worker process: ordinary inputs abort some of them."""

from __future__ import annotations

from typing import NamedTuple

SECONDS = 60.0


class Peer(NamedTuple):
    """What jaxlib's passes made of a module: its text, or what they failed with."""

    text: str = ""
    failure: str = ""


def run_peer(text: str, pipeline: str, seconds: float = SECONDS) -> Peer:
    """The module after jaxlib's passes, given as its pass manager reads them (``sdy-close-shardings``)."""
    from eggshard.errors import EggshardError
    from eggshard.frontends.jaxlib_passes import worker

    try:
        return Peer(text=worker().call(f"{__name__}:passed", text, pipeline, seconds=seconds))
    except EggshardError as error:
        return Peer(failure=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__)


def passed(text: str, pipeline: str) -> str:
    """The same in this process, which it may abort."""
    from eggshard.frontends.jaxlib_passes import after_passes

    found: str = after_passes(text, pipeline, lambda module: str(module.operation.get_asm()))
    return found
