"""Exchanges of several values at once: predicted memory against XLA's own analysis."""

from __future__ import annotations

from itertools import accumulate

import pytest
from bench.memory import compiled_memory
from tests.slowness import some

import eggshard as es
from eggshard.costmodel import WireBytes
from eggshard.memory.xla_cpu.packing import ALIGNED
from eggshard.steps.window_steps import JointExchange


def chunks(widths: tuple[int, ...], rows: int, depth: int, devices: int, dtype: str, op: str) -> es.Plan:
    """Columns of weights in chunks of these widths, each at all devices; multiplied from the left, or added."""
    b = es.ProgramBuilder({"x": devices})
    weights = b.input((depth, sum(widths)), dtype, (None, "x"))
    x = b.input((rows, depth), dtype, (None, None)) if op == "dot" else None
    whole = weights if x is None else b.dot(x, weights)
    for end, width in zip(accumulate(widths), widths, strict=True):
        part = b.slice(whole, [0, end - width], [rows if op == "dot" else depth, end])
        b.output(part if op == "dot" else part + part, (None, "x"))
    return es.optimize(b.build(), cost_model=WireBytes())


@pytest.mark.parametrize(
    ("widths", "rows", "depth", "devices", "dtype", "op", "error"),
    some([
        ((1024,) * 3, 512, 256, 8, "f32", "dot", 0.0),
        ((1024,) * 3, 512, 256, 8, "bf16", "dot", 0.1),
        ((512,) * 5, 256, 128, 8, "f32", "dot", 0.0),
        ((512,) * 7, 128, 128, 8, "f32", "add", 0.0),
        ((512, 1024, 512), 256, 128, 8, "f32", "add", 0.0),
        ((256, 768), 64, 256, 4, "f32", "add", 0.1),
        ((256, 512, 1280), 64, 256, 4, "f32", "add", 0.1),
        ((768, 256, 256), 256, 128, 8, "f32", "dot", 0.1),
    ], 4, rows=True),
    ids=str,
)
def test_temporaries_of_joint_exchanges(
    widths: tuple[int, ...], rows: int, depth: int, devices: int, dtype: str, op: str, error: float
) -> None:
    """Chunks of equal widths are known exactly; of others, whose shards are padded, what fits where is not.

    Where chunks are added, XLA takes one slot of a scalar less on some machines, nobody knows yet why.
    """
    slot = ALIGNED if op == "add" and not error else 0
    plan = chunks(widths, rows, depth, devices, dtype, op)
    assert any(isinstance(step.action, JointExchange) for step in plan.steps)
    assert plan.memory.temporaries == pytest.approx(compiled_memory(plan)[0], rel=error, abs=slot)
