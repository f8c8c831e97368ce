"""Random programs under odd cost models: plans compute what the unsharded program means, and their figures hold."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.random_programs import Case, random_case, random_inputs, random_model

import eggshard as es
from eggshard.engines.jax.verification import difference, tolerance
from eggshard.errors import EggshardWarning
from eggshard.ops.evaluate import evaluate_program
from eggshard.program.types import is_float

#: hypothesis shrinks a failing program to few and small draws.
randoms = st.randoms(use_true_random=False)


def assert_equal(case: Case, got: tuple[np.ndarray, ...], want: tuple[np.ndarray, ...], signs: bool) -> None:
    """Bits of integers; floats up to rounding, NaN and infinities in the same places; signs of zeros where told."""
    for value, g, w in zip(case.outputs, got, want, strict=True):
        assert difference(g, w) <= tolerance(value.dtype), value.tensor
        if signs and is_float(value.dtype) and not value.rough and value.signed_zero:
            g, w = g.astype(np.float64), w.astype(np.float64)
            real = ~np.isnan(w)
            np.testing.assert_array_equal(np.signbit(g)[real], np.signbit(w)[real])


def planned(case: Case, model: Any, exact: bool) -> es.Plan:
    """A plan that was found without falling back on an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", EggshardWarning)
        return es.optimize(case.program, cost_model=model, exact=exact)


def check(rng: random.Random) -> None:
    case, model, exact = random_case(rng), random_model(rng), rng.random() < 0.4
    special = exact and rng.random() < 0.7
    plan = planned(case, model, exact)
    inputs = random_inputs(case.program, np.random.default_rng(rng.randrange(2**32)), special)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        want = evaluate_program(case.program, inputs)
        assert_equal(case, plan.run(*inputs), want, special)
        assert_equal(case, plan.baseline.run(*inputs), want, special)
    assert plan.cost.total <= plan.baseline.cost.total * (1 + 1e-9)
    assert plan.bound <= plan.cost.total * (1 + 1e-9)


slowly = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=32, derandomize=True, **slowly)
@given(randoms)
def test_plans_compute_the_program(rng):
    check(rng)


@pytest.mark.slow
@settings(max_examples=600, **slowly)
@given(randoms)
def test_plans_compute_the_program_often(rng):
    check(rng)


def check_compiled(rng: random.Random) -> None:
    """The same on XLA, which then communicates what the plan says."""
    jax_callable = pytest.importorskip("eggshard.engines.jax.callable")
    from bench import peers
    from bench.widening import count_as_written

    case, model = random_case(rng, ops=5), random_model(rng)
    plan = planned(case, model, exact=False)
    inputs = random_inputs(case.program, np.random.default_rng(rng.randrange(2**32)))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        want = evaluate_program(case.program, inputs)
        assert_equal(case, tuple(map(np.asarray, jax_callable.run_on_devices(plan, inputs))), want, signs=False)
    text = plan.to_stablehlo()
    count = count_as_written(text, peers.compile_text(text).hlo_modules()[0].to_string())
    # The compiler may find that less needs to be sent (of constants, say), never that more does.
    assert count.busiest_device_bytes <= plan.wire_bytes + 0.5


@settings(max_examples=4, derandomize=True, **slowly)
@given(randoms)
def test_plans_run_on_xla(rng):
    check_compiled(rng)


@pytest.mark.slow
@settings(max_examples=60, **slowly)
@given(randoms)
def test_plans_run_on_xla_often(rng):
    check_compiled(rng)
