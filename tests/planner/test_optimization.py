"""The whole way: programs in, checked plans out, and what happens when something goes wrong."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.slowness import some

import eggshard as es
from eggshard.costmodel import StepInfo, WireBytes
from eggshard.engines.jax.verification import difference, random_array
from eggshard.frontends.builder import ProgramBuilder
from eggshard.ops.evaluate import evaluate_program
from eggshard.planner import pipeline
from eggshard.program.program import Program
from eggshard.selection.problem import Problem

MESH = {"x": 4, "y": 2}


def two_products() -> Program:
    """x @ a + y @ b, both contracted over x: one reduction is enough."""
    b = ProgramBuilder(mesh=MESH)
    x, a = b.input((32, 64), "f32", (None, "x")), b.input((64, 16), "f32", ("x", None))
    y, c = b.input((32, 64), "f32", (None, "x")), b.input((64, 16), "f32", ("x", None))
    b.output(x @ a + y @ c, (None, None))
    return b.build()


def chain(rows: int = 24, widths: tuple[int, ...] = (40, 56, 32), spec: tuple = ("x", None)) -> Program:
    """tanh(tanh(x @ w0) @ w1) with weights sharded by rows."""
    b = ProgramBuilder(mesh=MESH)
    h = b.input((rows, widths[0]), "f32", spec)
    for m, n in zip(widths, widths[1:], strict=False):
        h = b.tanh(h @ b.input((m, n), "f32", ("y", None)))
    b.output(h, spec)
    return b.build()


def softmax(rows: int, columns: int, spec: tuple) -> Program:
    b = ProgramBuilder(mesh=MESH)
    x = b.input((rows, columns), "f32", spec)
    centred = x - b.broadcast(b.max(x, (1,)), (rows, columns), (0,))
    e = b.exp(centred)
    b.output(e / b.broadcast(b.sum(e, (1,)), (rows, columns), (0,)), spec)
    return b.build()


PROGRAMS = {
    "two products": two_products, "chain": chain,
    "softmax over a sharded dimension": lambda: softmax(16, 32, (None, ("x", "y"))),
    "softmax, both sharded": lambda: softmax(16, 32, ("x", "y")),
}


@pytest.mark.parametrize("name", some(PROGRAMS, 2))
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("model", [WireBytes(), es.costmodel.AlphaBeta()], ids=["bytes", "alpha-beta"])
def test_plans_are_right_certified_and_not_worse_than_the_baseline(name: str, exact: bool, model: object) -> None:
    plan = es.optimize(PROGRAMS[name](), cost_model=model, exact=exact)
    plan.verify()
    plan.baseline.verify(engines=("numpy",))
    assert not plan.search.fallback
    assert plan.cost.total <= plan.baseline.cost.total * (1 + 1e-9)
    assert plan.search_gap <= 0.01
    assert plan.search.exact is exact
    assert plan.wire_bytes <= plan.serial_bytes


def test_two_products_share_one_reduction() -> None:
    plan = es.optimize(two_products(), cost_model=WireBytes())
    reductions = ("all-reduce", "reduce-scatter")
    assert sum(plan.collectives.get(kind, 0) for kind in reductions) == 1
    assert sum(plan.baseline.collectives.get(kind, 0) for kind in reductions) == 2
    assert plan.serial_bytes <= plan.baseline.serial_bytes / 2


def test_exact_plans_reassociate_nothing() -> None:
    plan = es.optimize(two_products(), cost_model=WireBytes(), exact=True)
    assert "all-reduce" not in plan.collectives and "reduce-scatter" not in plan.collectives
    program = two_products()
    inputs = [random_array(t, np.random.default_rng(3)) for t in program.input_types]
    assert difference(plan.run(*inputs)[0], evaluate_program(program, inputs)[0]) < 1e-6


def test_a_users_cost_model_changes_the_plan() -> None:
    """Messages only: two all-gathers of small operands become one reduction, whatever its bytes."""

    class OnlyMessages:
        def seconds(self, step: StepInfo) -> float:
            return float(step.messages) + 1e-12 * step.wire_bytes

    mesh, shape = {"x": 4, "y": 2}, (64, 64)
    by_bytes = es.plan_reshard(shape, "f32", mesh, ("x", "y"), ("y", "x"), cost_model=WireBytes())
    by_messages = es.plan_reshard(shape, "f32", mesh, ("x", "y"), ("y", "x"), cost_model=OnlyMessages())
    assert sum(by_messages.collectives.values()) < sum(by_bytes.collectives.values())
    assert by_bytes.serial_bytes < by_messages.serial_bytes
    by_messages.verify(engines=("numpy",))


@pytest.mark.parametrize("rows", [8, 10, 13, 24])
def test_uneven_sizes(rows: int) -> None:
    """Rows that the mesh does not divide lie unevenly inside the program and whole at its boundary."""
    b = ProgramBuilder(mesh=MESH)
    x = b.input((rows, 16), "f32", (None, "x"))
    y = b.constrain(x * x, ("x", None))
    b.output(b.sum(b.tanh(y), (0,)), (None,))
    plan = es.optimize(b.build(), cost_model=WireBytes())
    plan.verify()
    plan.baseline.verify()


def test_nan_and_infinities_pass_through() -> None:
    program = chain()
    plan = es.optimize(program, cost_model=WireBytes())
    inputs = [random_array(t, np.random.default_rng(0)) for t in program.input_types]
    inputs[0][3, 5], inputs[0][7, 1] = np.nan, np.inf
    (got,), (want,) = plan.run(*inputs), evaluate_program(program, inputs)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got[~np.isnan(want)], want[~np.isnan(want)], atol=1e-5)  # of order one: tanh


def test_equal_calls_give_equal_plans() -> None:
    texts = {es.optimize(chain(), cost_model=WireBytes()).to_stablehlo() for _ in range(3)}
    assert len(texts) == 1


def test_json_round_trip() -> None:
    plan = es.optimize(chain(), cost_model=WireBytes())
    again = es.Plan.from_json(plan.to_json())
    assert again.device_program == plan.device_program
    assert again.to_stablehlo() == plan.to_stablehlo()
    assert (again.cost, again.bound, again.serial_bytes) == (plan.cost, plan.bound, plan.serial_bytes)
    again.verify(engines=("numpy",))
    with pytest.raises(es.errors.ProgramError, match="not JSON"):
        es.Plan.from_json("plan")
    with pytest.raises(es.errors.ProgramError, match="format"):
        es.Plan.from_json("{}")


def test_a_failed_search_gives_the_baseline_and_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(problem: Problem, **options: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(pipeline, "extract", broken)
    with pytest.warns(es.EggshardWarning, match="out of luck"):
        plan = es.optimize(two_products(), cost_model=WireBytes())
    assert plan.search.method == "baseline" and "out of luck" in plan.search.fallback
    assert "FALLBACK" in str(plan)
    plan.verify(engines=("numpy",))


@pytest.mark.parametrize("limits", [
    {"rows": 1}, {"iterations": 0}, {"strategies": 1}, {"strategies": 2}, {"placements": 1}, {"placements": 3},
    {"permutes": 0}, {"seconds": 1e-3},
], ids=str)
def test_every_limit_ends_in_a_valid_plan(limits: dict[str, Any]) -> None:
    plan = es.optimize(chain(), cost_model=WireBytes(), limits=es.Limits(**limits))
    plan.verify(engines=("numpy",))


def test_memory_limit() -> None:
    plan = es.optimize(chain(), cost_model=WireBytes())
    assert es.optimize(chain(), cost_model=WireBytes(), memory_limit=plan.peak_bytes).peak_bytes <= plan.peak_bytes
    with pytest.raises(es.errors.LimitError, match="smallest one found takes"):
        es.optimize(chain(), cost_model=WireBytes(), memory_limit=64)


@pytest.mark.parametrize("answer", [float("nan"), -1.0, float("inf")])
def test_a_bad_cost_model_is_named(answer: float) -> None:
    class Odd:
        def seconds(self, step: StepInfo) -> float:
            return answer

    with pytest.raises(es.errors.CostModelError, match="Odd"):
        es.optimize(two_products(), cost_model=Odd())


@pytest.mark.parametrize("bad, error, words", [
    ("func.func @main(", es.errors.ProgramError, "line|expected"),
    ("module {}", es.errors.ProgramError, "main|function"),
    (3.5, es.errors.ProgramError, "float"),
    ("no/such/file.mlir", es.errors.ProgramError, "file"),
])
def test_bad_programs(bad: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        es.optimize(bad)


@pytest.mark.parametrize(
    "source, words", [(("q", None), "q"), (("x", "x"), "x"), (("x", None, None), "rank|dimension")]
)
def test_bad_shardings(source: tuple, words: str) -> None:
    with pytest.raises(es.errors.ShardingError, match=words):
        es.plan_reshard((8, 8), "f32", MESH, source, (None, None))


def test_spellings_of_meshes_and_shardings_agree() -> None:
    from jax.sharding import PartitionSpec as P

    plans = [
        es.plan_reshard((64, 32), np.float32, mesh, source, target, cost_model=WireBytes()).to_stablehlo()
        for mesh, source, target in [
            ({"x": 4, "y": 2}, ("x", "y"), (("x", "y"), None)),
            (es.Mesh({"x": 4, "y": 2}), P("x", "y"), P(("x", "y"), None)),
            ({"x": 4, "y": 2}, '[{"x"}, {"y"}]', '[{"x", "y"}, {}]'),
        ]
    ]
    assert len(set(plans)) == 1


def test_sub_axes() -> None:
    plan = es.plan_reshard((16, 16), "f32", {"x": 8}, '[{"x"}, {}]', '[{"x":(1)2}, {"x":(2)4}]', cost_model=WireBytes())
    assert plan.collectives == {"all-to-all": 1}
    plan.verify(engines=("numpy",))


def test_explain_names_rules_and_baseline() -> None:
    text = es.optimize(two_products(), cost_model=WireBytes()).explain()
    assert "baseline" in text and "rules used" in text


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_paused_and_then_as_it_was(enabled: bool) -> None:
    seen = []

    class Watching:
        def seconds(self, step: StepInfo) -> float:
            seen.append(gc.isenabled())
            return WireBytes().seconds(step)

    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        es.optimize(two_products(), cost_model=Watching())
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
    assert seen and not any(seen)


def test_an_error_leaves_the_collector_running() -> None:
    with pytest.raises(es.errors.ProgramError):
        es.optimize(3)
    assert gc.isenabled()


@pytest.mark.parametrize("dropped", some(["before", "after"], 1))
def test_garbage_of_the_caller_stays_young_to_the_collector(dropped: str) -> None:
    """Else it waits until the whole heap is visited, which is once in hundreds of plans."""

    class Node:
        pass

    gc.collect()  # else what earlier tests made may have its next passes visit the node while it lives
    node: Any = Node()
    node.itself, seen = node, weakref.ref(node)
    if dropped == "before":
        del node
    es.optimize(two_products())
    if dropped == "after":
        del node
    gc.collect(1)
    assert seen() is None


def test_what_the_user_has_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        es.optimize(two_products())
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()


def test_a_models_capacity_is_the_memory_limit_where_none_is_given() -> None:
    machine = replace(es.costmodel.preset("h100-node"), capacity=64.0)
    with pytest.raises(es.errors.LimitError, match="capacity of Machine"):
        es.optimize(two_products(), cost_model=machine)
    assert es.optimize(two_products(), cost_model=machine, memory_limit=1 << 30).memory.peak > 64


def test_a_cost_model_may_be_given_by_name() -> None:
    assert es.optimize(two_products(), cost_model="h100-node").cost_model == es.costmodel.preset("h100-node")
    with pytest.raises(es.errors.CostModelError, match="alpha-beta"):
        es.optimize(two_products(), cost_model="abacus")


def test_verify_refuses_what_would_not_fit_here() -> None:
    """Before inputs are made: these would be 256 TiB."""
    b = ProgramBuilder(mesh={"x": 64, "y": 64})
    x = b.input((1 << 23, 1 << 23), "f32", ("x", "y"))
    b.output(b.tanh(x), ("x", "y"))
    with pytest.raises(es.errors.VerificationError, match=r"4096 devices .* give verify\(limit=None\)"):
        es.optimize(b.build()).verify(engines=("numpy",))


def test_verify_goes_on_without_a_limit() -> None:
    plan = es.optimize(chain())
    with pytest.raises(es.errors.VerificationError, match="more than the limit"):
        plan.verify(engines=("numpy",), limit=1000)
    assert plan.verify(engines=("numpy",), limit=None).differences
    assert plan.verify(engines=("numpy",)).differences
