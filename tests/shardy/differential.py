"""Comparing our passes with jaxlib's on the same module."""

from __future__ import annotations

import difflib

from jax.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir
from tests.shardy.peer import peer_text, run_peer

from eggshard import shardy
from eggshard.shardy.catalogue import read_steps


def canonical(text: str) -> str:
    """The module as MLIR prints it, with names and layout of its own."""
    with jax_mlir.make_ir_context():
        return str(ir.Module.parse(text).operation.get_asm())


def assert_agrees(text: str, passes: str) -> None:
    """Ours and jaxlib's passes leave the same text."""
    theirs = run_peer(text, peer_text(read_steps(passes)))
    assert not theirs.failure, f"jaxlib's {passes} failed: {theirs.failure}\n{text}"
    ours = shardy.transform(text, passes)
    lines = difflib.unified_diff(ours.splitlines(), theirs.text.splitlines(), "ours", "jaxlib's", lineterm="")
    assert ours == theirs.text, "\n".join([text, *lines])
