"""The same plan every time: work bounds a search, and a clock that ends one is reported."""

import time

import pytest

import eggshard as es
from eggshard.emit.stablehlo import plan_text
from eggshard.frontends.builder import ProgramBuilder
from eggshard.program.program import Program


def two_layers() -> Program:
    """tanh(x @ w) @ v, contracted over sharded dimensions."""
    b = ProgramBuilder(mesh={"x": 4, "y": 2})
    x, w = b.input((64, 64), "f32", ("x", "y")), b.input((64, 64), "f32", ("y", "x"))
    v = b.input((64, 32), "f32", ("x", None))
    b.output(b.tanh(x @ w) @ v, ("x", None))
    return b.build()


@pytest.mark.parametrize("speed", [0.02, 50.0])
def test_plans_do_not_depend_on_how_fast_time_passes(speed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    want = es.optimize(two_layers())
    real, began = time.monotonic, time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began + speed * (real() - began))
    for _ in range(3):
        plan = es.optimize(two_layers(), limits=es.Limits(seconds=3000))
        assert plan_text(plan) == plan_text(want) and not plan.search.late


def test_a_search_that_the_clock_ends_says_so() -> None:
    plan = es.optimize(two_layers(), limits=es.Limits(seconds=0))
    assert plan.search.late and "the clock ended the search" in str(plan)
    assert "the clock" not in str(es.optimize(two_layers()))


def test_what_was_not_searched_stands_in_the_certificate() -> None:
    whole = es.optimize(two_layers())
    assert not whole.search.left_out and "not searched" not in whole.certificate
    few = es.optimize(two_layers(), limits=es.Limits(strategies=4, iterations=0))
    assert "all but 4 ways to place the tensors of" in few.certificate and "dot_general" in few.certificate
    assert "saturation (iterations)" in few.certificate
    assert "within the search" in str(few)
