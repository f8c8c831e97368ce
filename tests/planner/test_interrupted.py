"""Ctrl-C while a plan is searched for: the best plan so far, or the baseline."""

from __future__ import annotations

from typing import Any

import pytest
from tests.report.samples import CHAIN, MLP
from tests.slowness import some
from typer.testing import CliRunner

import eggshard as es
from eggshard.cli import app
from eggshard.planner import optimization, pipeline
from eggshard.planner.repricing import buckets
from eggshard.selection.portfolio import methods


def interrupting(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.fixture
def in_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user ends the selection when it has greedy plans."""
    monkeypatch.setattr(methods, "METHODS", (*methods.METHODS[:1], methods.METHODS[0]._replace(run=interrupting)))


def test_the_best_plan_so_far_is_in_the_exception(in_selection: None) -> None:
    with pytest.raises(es.Interrupted, match="best plan so far") as raised:
        es.optimize(CHAIN, cost_model="alpha-beta")
    plan = raised.value.plan
    assert isinstance(plan, es.Plan) and not plan.search.fallback
    assert plan.cost.total <= plan.baseline.cost.total and "the clock ended the search (select)" in str(plan)
    plan.verify()


@pytest.mark.parametrize("stage", some(["saturate", "encode", "decode"], 2))
def test_before_there_is_a_plan_it_is_the_baseline(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    for module in (pipeline, optimization):
        if hasattr(module, stage):
            monkeypatch.setattr(module, stage, interrupting)
    with pytest.raises(es.Interrupted) as raised:
        es.optimize(CHAIN, cost_model="alpha-beta")
    plan = raised.value.plan
    assert plan.search.fallback == "planning was interrupted" and plan.cost == plan.baseline.cost
    plan.verify()


def test_a_proof_that_is_interrupted_leaves_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    found = es.optimize(MLP, cost_model="alpha-beta")
    monkeypatch.setattr(optimization, "proved", interrupting)
    with pytest.raises(es.Interrupted) as raised:
        es.optimize(MLP, cost_model="alpha-beta")
    assert raised.value.plan.steps == found.steps and raised.value.plan.proved is None


def test_a_second_search_that_is_interrupted_leaves_the_plan_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.planner.repricing.test_buckets import data_parallel

    text, searches = data_parallel(3), []
    monkeypatch.setattr(buckets, "hardly_shared", lambda *_: searches.append(0))
    monkeypatch.setattr(pipeline, "decode", lambda state, decode=pipeline.decode: (
        interrupting() if searches else decode(state)))
    with pytest.raises(es.Interrupted) as raised:
        es.optimize(text, cost_model="tpu-v5e")
    assert searches and not raised.value.plan.search.fallback
    assert raised.value.plan.cost.total < raised.value.plan.baseline.cost.total


def test_no_plan_within_a_memory_limit_is_none(in_selection: None) -> None:
    with pytest.raises(es.Interrupted) as raised:
        es.optimize(CHAIN, cost_model="alpha-beta", memory_limit=1000)
    assert raised.value.plan is None


def test_the_command_line_goes_on_with_the_best_plan_so_far(in_selection: None, tmp_path: Any) -> None:
    path = tmp_path / "chain.mlir"
    path.write_text(CHAIN)
    result = CliRunner().invoke(app, ["optimize", str(path), "--cost-model", "alpha-beta"])
    assert result.exit_code == 0 and "this is the best plan so far" in result.stderr
    assert "plan of chain" in result.stdout
