"""Settings of the process: what goes first, what is refused, what depends on them; and what is logged."""

import logging
from contextlib import nullcontext

import numpy as np
import pytest

import eggshard as es
from eggshard.errors import ConfigError, EggshardError
from eggshard.planner.request import requested
from eggshard.settings import OPTIONS, config

PROGRAM = """
sdy.mesh @mesh = <["x"=4]>
func.func @moved(%a: tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>}) {
  return %a : tensor<8x8xf32>
}"""


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OPTIONS:
        monkeypatch.delenv(f"EGGSHARD_{name.upper()}", raising=False)
    before = dict(config._set)
    yield
    config._set.clear()
    config._set.update(before)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_what_is_nearest_goes_first(monkeypatch: pytest.MonkeyPatch, within: bool, assigned: bool, named: bool) -> None:
    if named:
        monkeypatch.setenv("EGGSHARD_SECONDS", "3")
    if assigned:
        es.config.seconds = 4
    with es.config(seconds=5) if within else nullcontext():
        want = 5 if within else 4 if assigned else 3 if named else 60
        assert es.config.seconds == want and requested(PROGRAM).limits.seconds == want
        assert requested(PROGRAM, limits=es.Limits(seconds=7)).limits.seconds == 7
    assert es.config.seconds == (4 if assigned else 3 if named else 60)


@pytest.mark.parametrize(("name", "value"), [
    ("second", 3), ("seconds", "3"), ("seconds", 0), ("seconds", True), ("guard", 1), ("cost_model", 3)])
def test_what_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        setattr(es.config, name, value)
    with pytest.raises(ConfigError, match=name), es.config(**{name: value}):
        raise AssertionError


@pytest.mark.parametrize(("name", "text"), [("SECONDS", "soon"), ("SECONDS", "-1"), ("GUARD", "perhaps")])
def test_variables_that_say_nothing(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(f"EGGSHARD_{name}", text)
    with pytest.raises(EggshardError, match=f"EGGSHARD_{name} cannot be '{text}'"):
        getattr(es.config, name.lower())


def test_the_cost_model() -> None:
    with es.config(cost_model="wire-bytes"):
        assert es.optimize(PROGRAM).cost_model == es.costmodel.WireBytes()
        assert es.optimize(PROGRAM, cost_model="messages").cost_model == es.costmodel.Messages()
    assert "cost_model" in dir(es.config) and "cost_model=None" in repr(es.config)


def test_functions_are_planned_again_under_other_settings() -> None:
    jax = pytest.importorskip("jax")
    mesh = jax.make_mesh((4,), ("x",), (jax.sharding.AxisType.Auto,))
    rows, whole = (jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec)) for spec in (("x",), ()))
    planned, x = es.jit(lambda x: x @ x.T, in_shardings=rows, out_shardings=whole), np.ones((8, 4), np.float32)
    for model in ("wire-bytes", "messages", "wire-bytes"):
        with es.config(cost_model=model):
            np.testing.assert_array_equal(planned(x), x @ x.T)
            assert planned.plan(x).cost_model == es.costmodel.named(model)
    assert len(planned._plans) == len(planned._jitted_by) == 2


def test_what_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="eggshard"):
        es.optimize(PROGRAM, cost_model="wire-bytes")
    (record,) = caplog.records
    assert record.name == "eggshard" and record.getMessage().startswith("planned moved in ")
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="eggshard"):
        es.optimize(PROGRAM, cost_model="wire-bytes")
    assert "stages: read " in caplog.text
