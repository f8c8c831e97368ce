"""What a user meets: names, limits, models, rules, files and arrays that do not fit, and plans that travel as JSON."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import eggshard as es
from eggshard import rewrites as R
from eggshard.costmodel import StepInfo

MESH = {"x": 4, "y": 2}


def product() -> es.Program:
    b = es.ProgramBuilder(mesh=MESH)
    x, w = b.input((16, 32), "f32", (None, "x")), b.input((32, 8), "f32", ("x", None))
    b.output(b.abs(b.negate(x @ w)), (None, None))
    return b.build()


class ByBytes:
    """A cost model of a user's own, which JSON cannot carry."""

    def seconds(self, step: StepInfo) -> float:
        return 1e-6 * step.messages + 1e-9 * step.wire_bytes + 1e-15 * step.flops


class Answers:
    def __init__(self, answer: Any):
        self.answer = answer

    def seconds(self, step: StepInfo) -> Any:
        return self.answer


@pytest.fixture(scope="module")
def plan() -> es.Plan:
    return es.optimize(product())


def test_import_is_light_and_the_names_are_few() -> None:
    code = "import sys, eggshard; print([m for m in ('jax', 'egglog', 'highspy') if m in sys.modules], dir(eggshard))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("[] ")
    names = {n for n in dir(es) if not n.startswith("__")}
    functions = {"optimize", "plan_reshard", "pareto", "equivalent", "explain_propagation", "jit", "load", "partition",
                 "auto"}
    rooms = {"costmodel", "errors", "rewrites", "shardy", "tactics", "triton"}
    classes = {"Plan", "Program", "ProgramBuilder", "Mesh", "Sharding", "Guard", "Limits", "AUTO"}
    assert names == functions | rooms | classes | {"EggshardError", "EggshardWarning", "config"} and len(names) <= 26
    assert all(getattr(es, n) is not None for n in names)


def test_nothing_leaks_from_the_public_rooms() -> None:
    for room in (es.shardy, es.tactics, es.triton, es.costmodel, es.errors):
        names = {n for n in dir(room) if not n.startswith("_")}
        assert not names & {"Any", "Callable", "Mapping", "Sequence", "TYPE_CHECKING", "annotations"}, room.__name__
    assert {"run", "pipeline", "transform", "close_shardings"} <= set(dir(es.shardy))


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"limits": {"seconds": 1}}, es.errors.LimitError, "eggshard.Limits"),
        ({"memory_limit": "1GB"}, es.errors.LimitError, "bytes per device"),
        ({"cost_model": "abacus"}, es.errors.CostModelError, "h100-node"),
        ({"cost_model": es.costmodel.WireBytes}, es.errors.CostModelError, r"instance, WireBytes\(\)"),
        ({"cost_model": Answers("1.5")}, es.errors.CostModelError, "answered '1.5'"),
        ({"cost_model": Answers(None)}, es.errors.CostModelError, "answered None"),
        ({"rewrites": R.default_rules}, es.errors.RewriteError, "give a list"),
        ({"rewrites": R.default_rules()[0]}, es.errors.RewriteError, "give a list"),
    ],
)
def test_options_of_another_kind(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        es.optimize(product(), **options)


@pytest.mark.parametrize(
    "limit", [{"seconds": -1}, {"seconds": float("nan")}, {"rows": 0}, {"strategies": 0}, {"iterations": "a"}]
)
def test_impossible_limits(limit: dict[str, Any]) -> None:
    with pytest.raises(es.errors.LimitError, match=f"{next(iter(limit))}=.*at least"):
        es.Limits(**limit)


def test_effort_is_a_choice() -> None:
    plans = {effort: es.optimize(product(), effort=effort) for effort in ("fast", "default", "certify")}
    assert plans["certify"].cost.total <= plans["default"].cost.total <= plans["fast"].cost.total
    assert plans["fast"].cost.total <= plans["fast"].baseline.cost.total
    assert plans["certify"].search_gap <= plans["default"].search_gap <= plans["fast"].search_gap
    assert "shards" not in "".join(plans["fast"].search.notes)
    with es.config(effort="fast"):
        assert es.optimize(product()).search.notes == plans["fast"].search.notes
    with pytest.raises(es.errors.LimitError, match="effort='much'; there are fast, default, certify"):
        es.optimize(product(), effort="much")
    with pytest.raises(es.errors.ConfigError, match="fast, default or certify"):
        es.config.effort = "much"


@pytest.mark.parametrize("answer, words", [(7, "answered 7"), (["b"], "by label"), ({"b": {}}, "malformed")])
def test_a_rule_that_answers_nonsense_is_the_users_error(answer: Any, words: str) -> None:
    @R.rule("abs(negate(x)) => broadcast_in_dim[b](x)", cases=R.each(x=R.tensors((4,))))
    def nonsense(m: R.Match) -> Any:
        return answer

    with pytest.raises(es.errors.RewriteError, match=words):
        es.optimize(product(), rewrites=[nonsense])


def test_a_users_rule() -> None:
    @R.rule("abs(negate(x)) => abs(x)", cases=R.each(x=R.tensors((4,))))
    def abs_of_negated(m: R.Match) -> bool:
        return True

    R.check_law(abs_of_negated)
    found = es.optimize(product(), rewrites=[*R.default_rules(), abs_of_negated])
    assert "abs of negated" in found.explain()
    assert not any(getattr(s.action, "name", "") == "negate" for s in found.steps)
    found.verify(engines=("numpy",))


@pytest.mark.parametrize(
    "source, words",
    [
        ("/nonexistent/program", "cannot read"),
        (str(Path(__file__).parent), "directory"),
        (b"ML\xefR\x00\x01\x02", "malformed MLIR"),
        (b"ML\xefR", "malformed MLIR"),
    ],
)
def test_unreadable_sources(source: str | bytes, words: str) -> None:
    with pytest.raises(es.errors.ProgramError, match=words):
        es.optimize(source)


@pytest.mark.parametrize("shape", [64, None, (64, -1), (64.5, 2), ("a",)])
def test_shapes_that_are_none(shape: Any) -> None:
    with pytest.raises(es.errors.ProgramError, match="non-negative integers"):
        es.plan_reshard(shape, "f32", MESH, (), ())
    with pytest.raises(es.errors.ProgramError, match="input arg0: .*non-negative integers"):
        es.ProgramBuilder(mesh=MESH).input(shape)


def test_a_missing_element_type_is_not_float64() -> None:
    with pytest.raises(es.errors.ProgramError, match="element type None"):
        es.plan_reshard((8, 8), None, MESH, (), ())


def test_a_reshard_between_uneven_shards_is_refused() -> None:
    with pytest.raises(es.errors.ShardingError, match="source .*7x8.*different sizes"):
        es.plan_reshard((7, 8), "f32", MESH, ("x", None), (None, "x"))


def test_a_mesh_beyond_counting() -> None:
    with pytest.raises(es.errors.MeshError, match="at most"):
        es.Mesh({"x": 2**40})


def test_a_function_of_nothing_is_planned() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert es.optimize(jax.jit(lambda x: None).lower(1.0)).steps == ()


def test_baselines_claim_no_gap(plan: es.Plan) -> None:
    assert "no bound" in str(plan.baseline) and "gap" not in str(plan.baseline)
    assert "no bound" not in str(plan)


def test_json_of_a_users_model_keeps_the_prices() -> None:
    plan = es.optimize(product(), cost_model=ByBytes())
    back = es.Plan.from_json(plan.to_json())
    assert back.cost == plan.cost and str(back) == str(plan)
    assert "baseline" not in back.explain().partition("searched")[0].splitlines()[-2]
    assert es.Plan.from_json(back.to_json()) == back
    with pytest.raises(es.errors.CostModelError, match="ByBytes"):
        es.optimize(back.program, cost_model=back.cost_model, limits=es.Limits(iterations=0))


def test_a_plan_from_json_takes_the_model_that_it_was_made_under() -> None:
    lowered = jax.jit(lambda x, w: x @ w).lower(np.ones((16, 32), np.float32), np.ones((32, 8), np.float32))
    text = es.optimize(lowered, cost_model=ByBytes()).to_json()
    with pytest.raises(es.errors.CostModelError, match="give the model to Plan.from_json"):
        es.Plan.from_json(text, program=lowered).compare_with_xla()
    back = es.Plan.from_json(text, program=lowered, cost_model=ByBytes())
    assert back.compare_with_xla().xla.modelled_seconds > 0
    with pytest.raises(es.errors.CostModelError, match=r"step 0 \(local\) takes .+ under the cost model given"):
        es.Plan.from_json(text, cost_model="tpu-v5e")


@pytest.mark.parametrize("damage", [
    lambda text: '{"eggshard plan": 2}', lambda text: text.replace('"shape"', '"shap"'), lambda text: None,
    lambda text: text[:-9], lambda text: text.replace('"axes"', '"axs"'),
])
def test_damaged_json(plan: es.Plan, damage: Any) -> None:
    with pytest.raises(es.errors.ProgramError, match="JSON|altered|format"):
        es.Plan.from_json(damage(plan.to_json()))


def test_json_names_a_model_by_its_class_not_its_name() -> None:
    class WireBytes(ByBytes):
        pass

    model = json.loads(es.optimize(product(), cost_model=WireBytes()).to_json())["cost_model"]
    assert model["@"] == "Recorded" and model["name"] == "WireBytes"


def test_arrays_that_are_none(plan: es.Plan) -> None:
    x, w = np.ones((16, 32), np.float32), np.ones((32, 8), np.float32)
    with pytest.raises(es.errors.LoweringError, match=r"input 1 \(.+\) is no array"):
        plan.run(x, [[1.0], [1.0, 2.0]])
    with pytest.raises(es.errors.LoweringError, match=r"args\[1\] of main is str"):
        plan.to_jax()(x, "w")
    with pytest.raises(es.errors.LoweringError, match=r"\.\.\. \(528 leaves\)"):
        plan.to_jax()(x.tolist(), *w[:16])


def test_planned_functions_on_constants_of_a_trace(plan: es.Plan) -> None:
    x, w = np.ones((16, 32), np.float32), np.ones((32, 8), np.float32)
    g, f = plan.to_jax(), es.jit(lambda x, w: abs(x @ w))
    for function in (g, f):
        want = np.asarray(jax.tree.leaves(function(x, w))[0])
        got = jax.jit(lambda function=function: jax.tree.leaves(function(x, w))[0] + 0)()
        np.testing.assert_allclose(got, want)


def test_es_jit_of_what_is_no_function() -> None:
    with pytest.raises(es.errors.ProgramError, match="takes a function"):
        es.jit(3)  # type: ignore[arg-type]


def test_no_module_hides_what_is_public_under_its_name() -> None:
    """Whatever is imported first: a submodule becomes an attribute of its package."""
    names = sorted(set(dir(es)) - {"costmodel", "errors", "rewrites", "shardy", "tactics", "triton"})
    assert [name for name in names if importlib.util.find_spec(f"eggshard.{name}")] == []
