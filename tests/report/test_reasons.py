"""Why, what else, and what flips: prices of alternatives against plans that have them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.random_programs import random_case
from tests.report.samples import chain, mlp
from tests.slowness import some

import eggshard
from eggshard.api import Plan
from eggshard.errors import EggshardError
from eggshard.limits import Limits
from eggshard.plan.reasons import packed, unpacked
from eggshard.planner.bodies import plans_of
from eggshard.planner.context import Context
from eggshard.planner.encoding.decode import Decoder
from eggshard.planner.encoding.weighing import Weighing
from eggshard.report.explanation import decisions_of
from eggshard.report.words import sentence
from eggshard.rewrites import default_rules, select
from eggshard.selection.search.marginal import Marginal, Switch
from eggshard.selection.verify import complete
from eggshard.steps.steps import StepPlan


def weighing_of(plan: Plan) -> Weighing:
    weighing = plan.reasons_factory.__self__  # type: ignore[union-attr]
    assert isinstance(weighing, Weighing)
    return weighing


def other_plans(plan: Plan) -> Iterator[tuple[Switch, StepPlan]]:
    """Every alternative that is kept, as a device program."""
    weighing = weighing_of(plan)
    problem = weighing.encoding.problem
    marginal = Marginal(problem, weighing.selection)
    rules = select(default_rules(), False)
    plans = plans_of(Context(plan.program, plan.cost_model, Limits(), False), rules)
    region = plan.program.region
    roots = [(weighing.graph.values[v], [p]) for v, p in zip(region.outputs, plan.output_placements, strict=True)]
    for item in list(marginal.decisions()):
        if len(item) != 2:
            continue
        for switch in marginal.choices(*item)[0]:
            selection = complete(problem, marginal.selection_with(switch, switch.followed < switch.held))
            assert selection is not None
            router = plans.context.router
            decoder = Decoder(plan.mesh, weighing.graph, weighing.encoding, selection, router, plans.action)
            yield switch, decoder.decode(plan.program.input_types, plan.input_placements, roots)[0]


@pytest.mark.parametrize("plan", [mlp, chain])
def test_an_alternatives_price_is_what_its_plan_costs_more(plan) -> None:
    planned = plan()
    seen = 0
    for switch, steps in other_plans(planned):
        seen += 1
        total = planned._price.total(steps)
        assert total - planned.cost.total == pytest.approx(min(switch.held, switch.followed), rel=1e-9, abs=1e-15)
    assert seen > 10


def test_a_reshard_by_itself_has_other_ways() -> None:
    b = eggshard.ProgramBuilder({"x": 4, "y": 2})
    b.output(b.input((64, 64), sharding=("x", "y")), sharding=("y", "x"))
    plan = eggshard.optimize(b.build(), cost_model="tpu-v5e")
    (decision,) = plan.reasons.decisions
    assert decision.kind == "reshard" and decision.weighed == len(decision.alternatives) == 3
    assert len({alternative.what for alternative in decision.alternatives}) == 3
    assert all(alternative.change > 0 for alternative in decision.alternatives) and decision.next_best.flips
    assert "reshard by one exchange" in plan.explain(0)


def test_alternatives_compute_the_same() -> None:
    """They are plans of the program: run on the simulator."""
    planned = mlp()
    for n, (_, steps) in enumerate(other_plans(planned)):
        if n % 25 == 0:
            replace(planned, device_program=steps).verify(engines=("numpy",))


@pytest.mark.parametrize("seed", some(range(6), 3))
def test_every_step_of_a_random_program_has_reasons(seed: int) -> None:
    program = random_case(random.Random(seed)).program
    program = program[0] if isinstance(program, tuple) else program
    plan = eggshard.optimize(program)
    assert unpacked(packed(plan.reasons)) == plan.reasons
    for i in range(len(plan.steps)):
        text = plan.explain(i)
        assert text.startswith(f"step {i}: ") and "WHY" in text
    for decision in plan.reasons.decisions:
        changes = [a.change for a in decision.alternatives]
        assert changes == sorted(changes) and all(a.change <= a.held for a in decision.alternatives)
        if plan.search_gap < 1e-9:
            assert all(change > -1e-9 * plan.cost.total for change in changes), "the plan was proved the best"


def test_rules_are_named() -> None:
    plan = chain()
    rules = {rule for d in plan.reasons.decisions for rule, _ in d.rules}
    assert rules, "the chain is reordered"
    step = next(i for i in range(len(plan.steps)) if any(d.rules for d in decisions_of(plan, i)[:1]))
    assert any(f": {sentence(rule)} (rule {rule})" in plan.explain(step) for rule in rules)


def test_every_rule_has_a_sentence_for_people() -> None:
    """Other than its name, in a few words, and without the jargon of rules."""
    for rule in default_rules():
        assert rule.says != rule.name and 2 <= len(rule.says.split()) <= 12, rule.name
        assert not set(rule.says.split()) & {"unary", "binary", "ternary", "identity"}, rule.says


def test_alternatives_that_are_not_listed_are_counted() -> None:
    plan = mlp()
    for i in range(len(plan.steps)):
        for decision in decisions_of(plan, i):
            if 0 < len(decision.alternatives) < decision.weighed:
                more = decision.weighed - len(decision.alternatives)
                assert f"and {more} more, none of them cheaper" in plan.explain(i)
                assert all(a.what in plan.explain(i) for a in decision.alternatives)


def test_flips_are_the_gap_to_the_alternative() -> None:
    plan = mlp()
    for decision in plan.reasons.decisions:
        for other in decision.alternatives:
            for flip in other.flips:
                if not flip.every:
                    moved = abs(flip.becomes - flip.seconds)
                    assert moved == pytest.approx(max(0.0, other.change), rel=1e-9, abs=1e-18)
                assert flip.of_plan is (flip.factor >= 1 or other.change == 0)


def test_what_both_plans_pay_for_flips_nothing() -> None:
    for plan in (mlp(), chain()):
        for decision in plan.reasons.decisions:
            for other in decision.alternatives:
                assert not set(other.leaves) & set(other.joins)
                change = sum(p.seconds for p in other.joins) - sum(p.seconds for p in other.leaves)
                assert change == pytest.approx(other.change, rel=1e-6, abs=1e-12)


def test_a_price_that_moves_past_the_flip_changes_the_plan() -> None:
    """The model itself, not only the problem: every all-reduce dearer than the stated factor, and the plan has none."""
    plan = mlp()
    flips = [
        flip for d in plan.reasons.decisions for a in d.alternatives for flip in a.flips
        if flip.every and flip.what == "every all-reduce"]
    least = min(flip.factor for flip in flips)
    model = plan.cost_model

    class Dearer:
        def __init__(self, factor: float):
            self.factor = factor

        def seconds(self, step):
            return model.seconds(step) * (self.factor if step.kind == "all-reduce" else 1.0)

    before = eggshard.optimize(plan.program, cost_model=Dearer(least * 0.99))
    after = eggshard.optimize(plan.program, cost_model=Dearer(least * 1.01))
    assert before.collectives == plan.collectives == {"all-reduce": 1}
    assert "all-reduce" not in after.collectives


def test_a_plan_from_json_explains_as_before() -> None:
    plan = mlp()
    back = Plan.from_json(plan.to_json())
    assert back.reasons == plan.reasons and back.device_program.held == plan.device_program.held
    assert [back.explain(i) for i in range(len(plan.steps))] == [plan.explain(i) for i in range(len(plan.steps))]
    without = Plan.from_json(plan.to_json(reasons=False))
    assert not without.reasons.decisions and "without reasons" in without.explain(0)


def test_a_baseline_says_that_it_has_no_reasons() -> None:
    baseline = mlp().baseline
    assert not baseline.reasons.decisions and "baseline" in baseline.explain(0)


@pytest.mark.parametrize("step", [-1, 4, "x", True])
def test_a_step_that_is_none(step) -> None:
    with pytest.raises(EggshardError, match="steps 0 to 3"):
        mlp().explain(step)
