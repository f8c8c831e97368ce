"""The lowered JAX programs of the benches, sharded by our passes and by jaxlib's."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest
from bench.programs import BenchProgram
from tests.shardy.peer import run_peer
from tests.shardy.propagation.test_import_passes import PROPAGATION, assert_pipelines_agree

from eggshard import shardy

FAMILIES = ("algebra", "dense", "matmul", "models", "padslice", "reshard", "stencil", "fields", "indexing",
            "training")


def _programs(families: tuple[str, ...], every: int = 1) -> Iterator[BenchProgram]:
    for name in families:
        yield from importlib.import_module(f"bench.programs.{name}").PROGRAMS[::every]


def _interface(text: str) -> str:
    return next(line for line in text.splitlines() if "func.func public @main" in line)


def test_some_programs_are_sharded_as_jaxlib_does() -> None:
    for program in _programs(("models", "matmul"), every=6):
        assert_pipelines_agree(program.module, PROPAGATION)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_all_programs_are_sharded_as_jaxlib_does(family: str) -> None:
    for program in _programs((family,)):
        assert_pipelines_agree(program.module, PROPAGATION)


@pytest.mark.slow
def test_training_steps_of_many_layers_are_sharded_as_jaxlib_does() -> None:
    from bench.programs import training

    for kind in ("light", "heavy", "scanned", "experts"):
        assert_pipelines_agree(training.step_of_layers(kind, 6).module, PROPAGATION)


@pytest.mark.slow
def test_the_whole_pipeline_shards_inputs_and_outputs_as_jaxlibs_does() -> None:
    for program in _programs(FAMILIES, every=8):
        theirs = run_peer(program.module, "sdy-propagation-pipeline")
        assert not theirs.failure, theirs.failure
        ours = shardy.transform(program.module, shardy.steps_of("propagation"))
        assert _interface(ours) == _interface(theirs.text), program.name
