"""Execution frequencies of blocks: trip counts of loops where known, stated guesses elsewhere."""

from __future__ import annotations

from typing import NamedTuple

from eggshard.triton.kernels.ir import Block, Kernel, Operation, Value


class Frequencies(NamedTuple):
    """What is assumed where the kernel does not say: iterations of a loop, and how often a branch is taken."""

    trips: float = 32.0
    branch: float = 0.5


#: The assumption of Triton's own authors for loops is none; 32 is what tiles of a reduction of a few thousand take.
USUAL = Frequencies()


def frequencies(kernel: Kernel, assumed: Frequencies = USUAL) -> dict[Block, float]:
    """Per block, how often it runs for one run of its function."""
    found: dict[Block, float] = {}

    def visit(op: Operation, times: float) -> None:
        if op.name == "scf.for":
            times *= trip_count(op, assumed.trips)
        elif op.name == "scf.while":
            times *= assumed.trips
        elif op.name == "scf.if":
            times *= assumed.branch
        for region in op.regions:
            for block in region.blocks:
                found[block] = times
                for inner in block.operations:
                    visit(inner, times)

    visit(kernel.module, 1.0)
    return found


def trip_count(loop: Operation, default: float) -> float:
    """The iterations of an ``scf.for`` whose bounds are constants, else ``default``; at least one."""
    low, high, step = (constant(v) for v in loop.operands[:3])
    if low is None or high is None or not step:
        return default
    return float(max(1, -(-(high - low) // step)))


def constant(value: Value) -> int | None:
    """The value of a scalar integer constant."""
    op = value.owner
    if not isinstance(op, Operation) or op.name != "arith.constant" or value.tensor is not None:
        return None
    text = op.properties["value"].split(":")[0].strip()
    return {"true": 1, "false": 0}.get(text, int(text) if text.lstrip("-").isdigit() else None)
