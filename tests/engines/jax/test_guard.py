"""`eggshard.jit(guard=True)`: plans are held against XLA's own program, and the better one runs."""

import warnings
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from jax import numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.costmodel import Messages, WireBytes  # noqa: E402
from eggshard.engines.jax import guard as guard_room  # noqa: E402
from eggshard.hlo.collectives import count_collectives  # noqa: E402

MESH = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
ROWS, WHOLE = NamedSharding(MESH, P("x")), NamedSharding(MESH, P())
X = jax.device_put(np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32), ROWS)
SMALL = es.Limits(seconds=10, strategies=8, placements=3)
jit = partial(es.jit, guard=True, rewrites=[], limits=SMALL, cost_model=WireBytes())


def centred(x):
    """Two small sums one after the other: in fewest messages, all rows everywhere."""
    return (jnp.tanh(x.sum(0)) * x).sum(0)


def kinds(function, *args):
    return count_collectives(function.lower(*args).compile().as_text()).by_kind


@pytest.fixture
def compared(monkeypatch):
    """The comparisons made, with nothing remembered from other tests."""
    made, compare = [], guard_room.compare_with_xla
    monkeypatch.setattr(guard_room, "_verdicts", type(guard_room._verdicts)())
    monkeypatch.setattr(guard_room, "compare_with_xla", lambda plan: made.append(compare(plan)) or made[-1])
    return made


@pytest.fixture
def poor_plans(monkeypatch):
    """Plans that are made for few messages, whatever the cost model that they are judged by."""
    optimize = es.optimize

    def poor(program, **options):
        return replace(optimize(program, **{**options, "cost_model": Messages()}), cost_model=options["cost_model"])

    monkeypatch.setattr("eggshard.planning.optimize", poor)


def test_a_good_plan_runs(compared):
    planned = jit(centred)
    assert np.allclose(planned(X), centred(X), rtol=1e-5)
    (found,) = compared
    assert not found.plan_is_worse and found is planned.comparison(X)
    planned(X)
    jit(centred)(X)  # the same program, plan and model
    assert len(compared) == 1
    assert np.allclose(planned(X[:32]), centred(X[:32]), rtol=1e-5)
    assert len(compared) == 2


def test_without_guard_nothing_is_compared(compared, poor_plans):
    planned = jit(centred, guard=False)
    planned(X)
    assert not compared and kinds(planned, X) == {"all-gather": 1}


def test_xla_runs_where_the_plan_is_worse(compared, poor_plans):
    planned = jit(centred)
    with pytest.warns(es.EggshardWarning, match="centred runs XLA's own program: .* compiled its own program in"):
        result = planned(X)
    assert np.allclose(result, centred(X), rtol=1e-5)
    (found,) = compared
    assert found.plan_is_worse and found.plan.collectives == {"all-gather": 1}
    assert kinds(planned, X) == kinds(jax.jit(centred), X) == found.xla.collectives
    assert planned.comparison(X).xla.compile_seconds > 0
    planned(X)  # says nothing again
    with pytest.warns(es.EggshardWarning, match="again runs XLA's own program"):
        again = jit(centred)
        again.__name__ = "again"
        again(X)
    assert len(compared) == 1


def test_a_guard_of_ones_own(compared, poor_plans):
    planned = es.jit(centred, guard=es.Guard(time=1e6, flops=1e6, memory=1e6), rewrites=[], limits=SMALL,
                     cost_model=WireBytes())
    with pytest.warns(es.EggshardWarning, match=r"worse in modelled (time|cost) \("):  # more bytes for more time
        planned(X)
    free = es.jit(lambda x: jnp.tanh(x) * 2, guard=es.Guard(time=0), rewrites=[], limits=SMALL,
                  cost_model=es.costmodel.AlphaBeta())
    with pytest.warns(es.EggshardWarning, match=r"modelled (time|cost) \(.* to XLA's"):  # no plan is fast enough
        free(X)


def test_gradients_are_guarded_program_by_program(compared, poor_plans):
    planned = jit(lambda x: centred(x).sum())
    with pytest.warns(es.EggshardWarning) as said:
        got = jax.grad(planned)(X)
    assert np.allclose(got, jax.grad(lambda x: centred(x).sum())(X), rtol=1e-4)
    assert len(compared) == 2  # forward and backward
    assert len(said) == sum(c.plan_is_worse for c in compared) >= 1


def test_inside_other_transformations(compared, poor_plans):
    planned = jit(centred, in_shardings=ROWS)
    with pytest.warns(es.EggshardWarning, match="runs XLA's own program"):
        got = jax.jit(lambda x: planned(x) + 1)(X)
    assert np.allclose(got, centred(X) + 1, rtol=1e-5)
    assert len(compared) == 1
    # Where shardings are not known, nothing is planned; in another planned function it is part of that one's program.
    jax.jit(lambda x: jit(centred)(x))(X)
    es.jit(lambda x: planned(x) * 2, rewrites=[], limits=SMALL)(X)
    assert len(compared) == 1
    with pytest.warns(es.EggshardWarning, match="runs XLA's own program"):
        assert np.allclose(jit(jax.vmap(centred))(jnp.stack([X, X]))[1], centred(X), rtol=1e-5)


def test_state_keeps_its_place(compared, poor_plans):
    state = jax.device_put(np.ones((8, 8), np.float32), ROWS)
    step = jit(lambda s, x: s + centred(x), donate_argnums=0)
    with pytest.warns(es.EggshardWarning, match="runs XLA's own program"):
        state = step(state, X)
    assert state.sharding.is_equivalent_to(ROWS, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert step(state, X).sharding.is_equivalent_to(ROWS, 2)
    assert len(compared) == 1


def test_what_cannot_be_compared_runs_as_planned(monkeypatch, poor_plans):
    def fail(plan):
        raise es.errors.LoweringError("no devices")

    monkeypatch.setattr(guard_room, "_verdicts", type(guard_room._verdicts)())
    monkeypatch.setattr(guard_room, "compare_with_xla", fail)
    planned = jit(centred)
    with pytest.warns(es.EggshardWarning, match="not held against XLA's program: no devices"):
        planned(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert kinds(planned, X) == {"all-gather": 1}


@dataclass
class Unhashable:
    def seconds(self, step):
        return WireBytes().seconds(step)


def test_models_that_do_not_hash(compared):
    model = Unhashable()
    for _ in range(2):
        jit(centred, cost_model=model)(X)
    assert len(compared) == 1
    jit(centred, cost_model=Unhashable())(X)
    assert len(compared) == 2


def test_explicit_axis_types(compared):
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    x = jax.device_put(np.asarray(X), NamedSharding(mesh, P("x")))
    with jax.set_mesh(mesh):
        planned = jit(centred)
        got = jax.jit(lambda x: planned(x) * 1)(x)
    assert np.allclose(got, centred(X), rtol=1e-5)
    assert len(compared) == 1
