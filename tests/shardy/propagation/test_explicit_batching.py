"""Gathers and scatters of rows become batched ones: jaxlib's text, and what was computed before."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.ops.oracles import assert_close
from tests.shardy.differential import assert_agrees
from tests.shardy.modules import random_module
from tests.shardy.peer import run_peer
from tests.shardy.propagation.row_programs import DIFFERING, WRITTEN, jax_programs
from tests.shardy.running import assert_runs_equal, inputs_of

from eggshard import shardy
from eggshard.frontends.stablehlo.reading import read
from eggshard.ops.evaluate import evaluate_region

COLLECTIVE = re.compile(r"all_gather|all_reduce|all_to_all|reduce_scatter|collective_permute")
PASS = "explicit-gather-scatter-batching"
PEER = f"func.func(sdy-{PASS})"
#: What random modules have. Constants have no shardings there, as jaxlib drops them where it shares constants.
ROWS: dict[str, Any] = dict(families=("row_gather", "row_scatter"), uneven=True, length=5, all_used=True)
KINDS: tuple[dict[str, Any], ...] = (
    ROWS,
    ROWS | dict(families=("row_gather", "row_scatter", "elementwise", "gather", "iota"), stated=0.0, constants=True,
                regions=("while", "case", "barrier", "manual", "named"), functions=1),
)  # fmt: skip


def batched(text: str) -> int:
    """How many gathers and scatters of a module have batching dimensions."""
    return text.count("operand_batching_dims") + text.count("input_batching_dims")


def assert_computes_the_same(text: str, after: str, seed: int = 0) -> None:
    program, changed = read(text), read(after)
    arrays = inputs_of(program, seed)
    outcomes = [evaluate_region(p.region, arrays) for p in (program, changed)]
    for got, want in zip(outcomes[1], outcomes[0], strict=True):
        assert_close(got, want, f"seed {seed}\n{text}\n{after}")


@pytest.mark.parametrize("kind", KINDS, ids=["rows", "regions"])
def test_generated_modules_agree(kind: dict[str, Any]) -> None:
    found = 0
    for seed in range(50):
        text = random_module(seed, **kind)
        assert_agrees(text, PASS)
        found += batched(shardy.transform(text, PASS))
    assert found > 50


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=["rows", "regions"])
def test_more_generated_modules_agree(kind: dict[str, Any]) -> None:
    for seed in range(50, 300):
        assert_agrees(random_module(seed, **kind), PASS)


def test_generated_modules_compute_the_same() -> None:
    for seed in range(50):
        text = random_module(seed, **ROWS)
        assert_computes_the_same(text, shardy.transform(text, PASS), seed)


@pytest.mark.parametrize("name", WRITTEN)
def test_written_modules_agree(name: str) -> None:
    text, count = WRITTEN[name]
    assert_agrees(text, PASS)
    after = shardy.transform(text, PASS)
    assert batched(after) - batched(text) == count
    assert_computes_the_same(text, after)


@pytest.mark.parametrize("name", DIFFERING)
def test_where_jaxlib_differs(name: str) -> None:
    """What jaxlib does is not what the program says, or it fails, or it leaves a gather that can be batched."""
    text, count = DIFFERING[name]
    after = shardy.transform(text, PASS)
    assert after != run_peer(text, PEER).text
    assert batched(after) == count
    assert_computes_the_same(text, after)


@pytest.mark.parametrize("name", [name for name in DIFFERING if name.startswith("wrong: ")])
def test_jaxlib_computes_something_else(name: str) -> None:
    text, _ = DIFFERING[name]
    with pytest.raises(AssertionError):
        assert_computes_the_same(text, run_peer(text, PEER).text)


def on_devices(text: str, before: str) -> tuple[str, str]:
    """A program with its table sharded by rows: with closed shardings, and of a device; after the passes `before`."""
    head, body = text.split("{\n", 1)
    table, stated = "tensor<4x8xf32>", '{sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}'
    annotated = head + '{\nsdy.mesh @mesh = <["x"=4]>\n' + body.replace(f"{table},", f"{table} {stated},", 1)
    explicit = "export{enable-insert-explicit-collectives=true}"
    for steps in (before, shardy.steps_of("import"), "user-priority-propagate", shardy.steps_of(explicit)):
        annotated = shardy.transform(annotated, steps)
    return annotated, shardy.transform(annotated, shardy.steps_of("partition")[:-1])


def test_programs_of_jax_are_batched_and_need_no_collectives() -> None:
    for name, text in jax_programs().items():
        after = shardy.transform(text, PASS)
        assert batched(after) == 1, name
        assert_computes_the_same(text, after)
        sharded, local = on_devices(text, PASS)
        assert_runs_equal(sharded, local, text)
        assert not COLLECTIVE.search(local), name
        if "x[" in name:
            assert COLLECTIVE.search(on_devices(text, "")[1]), name
