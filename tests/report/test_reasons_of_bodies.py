"""Steps within loops, branches and manual computations have decisions of their own; every step has a why."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from bench.programs import by_name, fields, indexing, models, padslice, stencil, training, use_cpu_devices
from tests.report.samples import scan
from tests.slowness import some
from typer.testing import CliRunner

import eggshard
from eggshard.api import Plan
from eggshard.cli import app
from eggshard.costmodel import AlphaBeta
from eggshard.errors import EggshardError
from eggshard.limits import Limits
from eggshard.plan.reasons import WithBodies
from eggshard.planner import context
from eggshard.planner.bodies import plans_of
from eggshard.planner.encoding.decode import Decoder
from eggshard.planner.encoding.weighing import Weighing
from eggshard.report.explanation import Context, decisions_of, why
from eggshard.rewrites import default_rules, select
from eggshard.selection.search.marginal import Marginal
from eggshard.selection.verify import complete
from eggshard.spmd.hoisting import price_of_iterations
from eggshard.steps.nested import Place, places, steps_within

use_cpu_devices()


def assert_every_step_has_reasons(plan: Plan) -> None:
    """A why at least; what else, wherever something else was chosen among; and no decision that no step shows."""
    seen: dict[int, None] = {}
    for place in places(plan.device_program):
        context = Context(plan, place)
        for i, step in enumerate(place.program.steps):
            found = decisions_of(plan, i, context)
            seen.update(dict.fromkeys(map(id, found)))
            assert step.origins, f"{place.address_of(i)} was chosen for nothing"
            assert any(not line.startswith(("taken so by", "noted")) for line in why(plan, i, context))
            of_input = "view" in step.why and not found
            assert found or of_input or step.origins[0].problem < 0, f"{place.address_of(i)} has no decision"
    lost = [d for d in plan.reasons.decisions if d.alternatives and d.kind != "output" and id(d) not in seen]
    assert all(d.seconds == 0 for d in lost), "what costs something is done by a step"


PROGRAMS: list[tuple[Any, str]] = [
    (models, "attention and MLP, out x"), (models, "scan of 4 layers, FSDP"), (models, "MLP training, FSDP"),
    (training, "GQA block, sequence parallel"), (training, "mixture of experts"), (training, "pipeline of 8 stages"),
    (stencil, "2D 5-point roll x8 fori (x,y)"), (stencil, "2D 5-point pad 0 x8 scan (x,-)"),
    (fields, "heat, periodic x100 fori (x,y)"), (indexing, "language model loss, vocabulary and batch"),
    (indexing, "histogram, counts sharded"), (padslice, "roll by one shard"), (padslice, "stack and reshape"),
]


@pytest.mark.parametrize(("family", "name"), some(PROGRAMS, 7, rows=True), ids=[name for _, name in PROGRAMS])
def test_every_step_of_a_bench_program_has_reasons(family: Any, name: str) -> None:
    assert_every_step_has_reasons(eggshard.optimize(by_name(family.PROGRAMS)[name].module))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "layers"), [("light", 24), ("experts", 6), ("scanned", 12)])
def test_every_step_of_many_layers_has_reasons(kind: str, layers: int) -> None:
    assert_every_step_has_reasons(eggshard.optimize(training.step_of_layers(kind, layers).module))


def test_every_step_of_a_partly_manual_program_has_reasons() -> None:
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    rows = PartitionSpec("x", None)

    def body(a: Any, w: Any) -> Any:
        return jax.lax.psum(jnp.tanh(a @ w) @ w.T, "x")

    def apply(a: Any, w: Any) -> Any:
        return jax.shard_map(body, mesh=mesh, in_specs=(rows, PartitionSpec()), out_specs=PartitionSpec(),
                             axis_names={"x"}, check_vma=False)(a, w)

    a = jax.ShapeDtypeStruct((256, 256), jnp.float32, sharding=NamedSharding(mesh, rows))
    w = jax.ShapeDtypeStruct((256, 1024), jnp.float32, sharding=NamedSharding(mesh, PartitionSpec(None, "y")))
    plan = eggshard.optimize(jax.jit(apply).lower(a, w))
    assert_every_step_has_reasons(plan)
    inner = [d for d in plan.reasons.decisions if d.problem > 0]
    assert any(d.what.startswith("dot_general") and d.alternatives for d in inner)


@cache
def plan_of_scan() -> Plan:
    return eggshard.optimize(scan(), cost_model=AlphaBeta())


def test_every_step_in_a_loop_and_a_branch_has_reasons() -> None:
    plan = plan_of_scan()
    assert_every_step_has_reasons(plan)
    kinds = {place.name for place in places(plan.device_program)}
    assert kinds == {"", "condition", "body", "branch0", "branch1"}
    for place, i in steps_within(Place(plan.device_program)):
        address = place.address_of(i)
        text = plan.explain(address)
        assert text.startswith(f"step {address}: ") and "WHY" in text
        assert ("inside step" in text) is (place.outer is not None)
    back = Plan.from_json(plan.to_json())
    assert back.reasons == plan.reasons
    for place, i in steps_within(Place(plan.device_program)):
        assert back.explain(place.address_of(i)) == plan.explain(place.address_of(i))


def test_the_command_line_explains_a_step_in_a_loop(tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"
    saved.write_text(plan_of_scan().to_json())
    result = CliRunner().invoke(app, ["explain", str(saved), "--step", "7.body.0"])
    assert result.exit_code == 0 and "inside step 7 while" in result.output, result.output


def test_prices_in_a_body_are_of_all_its_runs() -> None:
    """An alternative's price is what the loop costs more that has it in its body, what is invariant paid for once."""
    plan = eggshard.optimize(scan(), cost_model=AlphaBeta(), effort="fast")
    assert isinstance(plan.reasons_factory, WithBodies)
    place = next(place for place in places(plan.device_program) if place.name == "body")
    assert place.outer is not None
    (body,) = (body for body in plan.reasons_factory.bodies if body.number == place.problem)
    weighing = body.weigh.__self__  # type: ignore[attr-defined]
    assert isinstance(weighing, Weighing) and body.runs == place.times == weighing.trips == 6
    region = next(op for op in plan.program.region.ops if op.name == "while").regions[1]
    held, outputs = place.program.held, place.program.outputs
    given = [held[v] for v in place.program.inputs[: len(region.inputs)]]
    made = [held[v] for v in outputs[: len(region.outputs)]]
    types = tuple(region.types[v] for v in region.inputs)
    placements = [tensor.placement for tensor in given if tensor]
    roots = [(weighing.values[v], [tensor.placement]) for v, tensor in zip(region.outputs, made, strict=True) if tensor]
    plans = plans_of(context.Context(plan.program, plan.cost_model, Limits(), False), select(default_rules(), False))
    problem = weighing.encoding.problem
    marginal = Marginal(problem, weighing.selection)

    def price(chosen: dict[int, tuple[int, ...]]) -> float:
        selection = complete(problem, chosen)
        assert selection is not None
        decoder = Decoder(plan.mesh, weighing.graph, weighing.encoding, selection, plans.context.router, plans.action)
        steps = decoder.decode(types, placements, roots)[0]
        return price_of_iterations(steps, body.runs, plans.context.pricer.total)

    now = price(weighing.selection.chosen)
    changes, exact = [], 0
    for item in list(marginal.decisions()):
        for switch in marginal.choices(*item)[0] if len(item) == 2 else ():
            changes.append(body.runs * switch.followed)
            more = price(marginal.selection_with(switch, switch.followed < switch.held)) - now
            assert more <= changes[-1] * (1 + 1e-9) + 1e-15
            exact += changes[-1] == pytest.approx(more, rel=1e-9, abs=1e-15)
    # Others cost less than the problem says: reshards share steps, or more of them is taken out of the loop.
    assert exact > 0.75 * len(changes)
    shown = [a.change for d in plan.reasons.decisions if d.problem == body.number and d.kind == "op"
             for a in d.alternatives]
    assert len(shown) > 20 and sorted(shown) == pytest.approx(sorted(changes), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("address", "says"), [
    ("7.body", "such as 7.condition.0"), ("7.inside.0", "7.condition and 7.body"), ("0.body.0", "0 has no steps in it"),
    ("7.body.99", r"explain\('7'\) lists them"), ("body.1", "this plan has steps 0 to"),
])
def test_addresses_of_no_step(address: str, says: str) -> None:
    with pytest.raises(EggshardError, match=says):
        plan_of_scan().explain(address)


def test_overlapping_models_say_that_prices_are_no_times() -> None:
    plan = eggshard.optimize(scan(), cost_model=AlphaBeta(overlap=1.0))
    assert plan._price.overlap and plan.reasons.unit == "weighted seconds"
    step = next(i for i, s in enumerate(plan.steps) if decisions_of(plan, i) and s.action.messages)
    assert "in weighted seconds" in plan.explain(step)
