"""The three findings of a plan: what they say, and of which steps."""

import pytest
from tests.report.samples import chain, mlp

import eggshard as es
from eggshard.report.findings import findings

jax = pytest.importorskip("jax")
from jax.sharding import NamedSharding, PartitionSpec as P  # noqa: E402

MESH = jax.make_mesh((4, 2), ("x", "y"), (jax.sharding.AxisType.Auto,) * 2)


def planned(function, given: P, wanted: P, **options) -> es.Plan:
    f = jax.jit(function, in_shardings=NamedSharding(MESH, given), out_shardings=NamedSharding(MESH, wanted))
    return es.optimize(f.lower(jax.ShapeDtypeStruct((512, 512), "float32")), cost_model="h100-node", **options)


@pytest.mark.parametrize("plan", [chain, mlp], ids=["chain", "mlp"])
def test_steps_are_the_dearest_first(plan) -> None:
    plan = plan()
    for finding in findings(plan):
        assert finding.text.endswith((".", "it."))
        prices = [plan.prices[i] for i in finding.steps]
        assert prices == sorted(prices, reverse=True)


def test_inputs_that_lie_elsewhere() -> None:
    _, change, _ = findings(planned(lambda a: a @ a, P("x"), P("x")))
    assert "of inputs as they are given" in change.text and "a, say, is needed at (-, -)" in change.text
    assert len(change.steps) == 1


def test_outputs_that_are_stated_elsewhere() -> None:
    _, change, _ = findings(planned(lambda a: jax.numpy.tanh(a) + 1, P("x"), P(None, "x")))
    assert "of outputs, to where they are stated" in change.text or "of inputs as they are given" in change.text


def test_nothing_is_sent() -> None:
    where, change, saved = findings(planned(jax.numpy.tanh, P("x"), P("x")))
    assert change.text == "Nothing is sent." and "0 s is communication" in where.text and saved.text


def test_beside_xla() -> None:
    plan = planned(lambda a: a @ a, P("x"), P("x"))
    *_, saved = findings(plan, plan.compare_with_xla())
    assert saved.text.startswith("Of XLA's own program, both compiled, the plan takes 1.00 of the modelled time")


def test_models_of_other_units() -> None:
    plan = planned(lambda a: a @ a, P("x"), P("x"))
    where, *_ = findings(es.optimize(plan.program, cost_model="wire-bytes"))
    assert where.title == "Where it goes" and "KiB" in where.text and " us" not in where.text
