"""Programs of this folder's files by name, and Shardy's steps on them by jaxlib's passes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.shardy.peer import Peer, run_peer

EXPLICIT = "func.func(sdy-insert-explicit-reshards{enable-full-version=true})"
PERMUTATIONS = "sdy-resolve-permutation-factors{enable-halo-exchange=true}"
COLLECTIVES = "func.func(sdy-reshard-to-collectives),canonicalize"
PADDING = "func.func(sdy-pad-for-divisibility)"
CONVERSION = "sdy-convert-global-to-local"
#: From a program with shardings to one with collectives and divisible sizes.
STEPS = ("sdy-propagation-pipeline", EXPLICIT, PERMUTATIONS, COLLECTIVES, PADDING)


@cache
def programs(file: str) -> dict[str, str]:
    """The modules of a file by the comments before them."""
    text = (Path(__file__).parent / f"{file}.mlir").read_text()
    parts = [re.search(r"// ([^\n]*)\n(module.*)", part, re.DOTALL) for part in text.split("// -----\n")]
    return {match[1]: match[2] for match in parts if match}


@cache
def ready(text: str) -> Peer:
    """A program with shardings after all of jaxlib's steps but the last."""
    found = Peer(text)
    for step in STEPS:
        found = run_peer(found.text, step)
        if found.failure:
            return found
    return found


def localised_by_peer(text: str) -> Peer:
    """A program of collectives after jaxlib's last step."""
    return run_peer(text, CONVERSION)
