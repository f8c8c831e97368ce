"""Collectives that XLA:CPU widens are counted as they were written, and no others change."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from bench import peers
from bench.widening import as_written, count_as_written
from tests.slowness import some

import eggshard as es
from eggshard.hlo.collectives import count_collectives

TYPES = ("f32", "bf16", "f16", "i8", "f8E5M2")


@pytest.mark.parametrize("dtype", some(TYPES, 3))
@pytest.mark.parametrize("kind", ["all-gather", "all-to-all", "collective-permute", "all-reduce"])
def test_bytes_are_those_of_the_plan(dtype: str, kind: str) -> None:
    builder = es.ProgramBuilder(mesh={"a": 4})
    x = builder.input((8, 8), dtype, ("a", None))
    if kind == "all-reduce":
        builder.output(builder.op("reduce", x, dimensions=(0,), monoid="max"), (None,))
    else:
        into = {"all-gather": (None, None), "all-to-all": (None, "a")}.get(kind, ("a", None))
        y = builder.op("reverse", x, dimensions=(0,)) if kind == "collective-permute" else x
        builder.output(y, into)
    plan = es.optimize(builder.build())
    text = plan.to_stablehlo()
    compiled = peers.compile_text(text).hlo_modules()[0].to_string()
    assert count_as_written(text, compiled).wire_bytes == plan.serial_bytes > 0
    if dtype in ("f32", "i8"):
        assert as_written(text, compiled) == compiled


def test_lowered_modules_count_like_their_text() -> None:
    builder = es.ProgramBuilder(mesh={"a": 4})
    builder.output(builder.input((8,), "bf16", ("a",)), (None,))
    plan = es.optimize(builder.build())
    lowered = plan.to_jax().lower(jax.ShapeDtypeStruct((8,), jnp.bfloat16))
    compiled = lowered.compile().as_text()
    assert count_as_written(lowered.compiler_ir("stablehlo"), compiled).wire_bytes == plan.serial_bytes
    assert count_collectives(compiled).wire_bytes >= plan.serial_bytes


@pytest.mark.parametrize("narrow", ["bf16", "f16"])
def test_combined_collectives_are_told_by_their_sizes(narrow: str) -> None:
    """XLA combines sums of f32 with those of narrower floats that it has widened."""
    builder = es.ProgramBuilder(mesh={"a": 4})
    for dtype, size in (("f32", 2), (narrow, 6), ("f32", 10), (narrow, 12)):
        x = builder.input((8, size), dtype, ("a", None))
        builder.output(builder.op("reduce", x, dimensions=(0,), monoid="max"), (None,))
    plan = es.optimize(builder.build())
    text = plan.to_stablehlo()
    compiled = peers.compile_text(text).hlo_modules()[0].to_string()
    assert len(count_collectives(compiled).ops) < 4
    assert count_as_written(text, compiled).wire_bytes == plan.serial_bytes
