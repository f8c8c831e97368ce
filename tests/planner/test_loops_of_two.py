"""A loop of two iterations is never dearer than its body twice, and it communicates as much as its steps do."""

import random

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P
from tests.random_loops import random_loop
from tests.slowness import some

import eggshard
from eggshard.costmodel import AlphaBeta, WireBytes


def smoothed(u):
    """A mean of neighbours; the rim keeps its values."""
    return u.at[1:-1, 1:-1].set(0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]))


def centred(u):
    return u - u.mean(0, keepdims=True)


def turned(u):
    return jnp.tanh(u.T) + u


def plan(body, times, model):
    mesh = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    place = NamedSharding(mesh, P("x", "y"))
    function = jax.jit(lambda u: lax.fori_loop(0, times, lambda _, v: body(v), u) if times else body(u),
                       in_shardings=place, out_shardings=place)
    lowered = function.trace(jax.ShapeDtypeStruct((256, 256), jnp.float32)).lower(lowering_platforms=("cpu",))
    return eggshard.optimize(lowered.as_text(), cost_model=model)


@pytest.mark.parametrize("model", some([AlphaBeta(), WireBytes(), "cpu-host"], 2), ids=str)
@pytest.mark.parametrize("body", [smoothed, centred, turned])
def test_two_iterations_cost_at_most_twice_one(body, model) -> None:
    once, one, two = (plan(body, times, model).cost for times in (0, 1, 2))
    # The rest is what a loop counts by.
    assert one.total <= once.total * (1 + 1e-3) and two.total <= 2 * once.total * (1 + 1e-3)
    assert two.total == pytest.approx(two.communication + two.compute)
    assert one.communication == pytest.approx(once.communication, rel=1e-3)


#: Seconds that counting and asking take per iteration, at most, under the models here.
COUNTING = 5e-11


def assert_doubling_costs_at_most_twice(seed: int) -> None:
    """Of loops and written out, and a loop of one costs as much as its body."""
    loop, model = random_loop(random.Random(seed)), [AlphaBeta(), WireBytes()][seed % 2]
    cost = {
        (times, unrolled): eggshard.optimize(
            loop.lowered(times, unrolled), cost_model=model, limits=eggshard.Limits(proof=0)).cost.total
        for times, unrolled in ((1, False), (2, False), (4, False), (1, True), (2, True))
    }

    def at_most(times: int, unrolled: bool, most: float) -> None:
        assert cost[times, unrolled] <= most * (1 + 1e-3) + times * COUNTING, (seed, times, unrolled, loop)

    at_most(1, False, cost[1, True])
    at_most(2, False, 2 * cost[1, False])
    at_most(4, False, 2 * cost[2, False])
    at_most(2, True, 2 * cost[1, True])


#: The second row: a route to a halo from sums, windows exchanged by themselves, values moved and on their tiles,
#: straight-line code that is searched from where propagation has its values.
@pytest.mark.parametrize("seed", some([1, 9, 15, 32, 33, 35,
                                       16, 25, 11, 47, 173], 2))
def test_drawn_loops_of_twice_as_many_iterations_cost_at_most_twice_as_much(seed) -> None:
    assert_doubling_costs_at_most_twice(seed)


def test_what_a_loop_does_not_change_stays_where_it_lies() -> None:
    """A matrix that all devices hold is not cut, and gathered again by the loop."""
    mesh = AbstractMesh((8,), ("x",), axis_types=(AxisType.Auto,))
    columns, whole = NamedSharding(mesh, P(None, "x")), NamedSharding(mesh, P())
    shape = jax.ShapeDtypeStruct((256, 256), jnp.float32)

    def text(function):
        jitted = jax.jit(function, in_shardings=(whole, columns), out_shardings=columns)
        return jitted.trace(shape, shape).lower(lowering_platforms=("cpu",)).as_text()

    body = eggshard.optimize(text(lambda w, a: a + 0.1 * (a @ w)), cost_model=WireBytes())
    loop = eggshard.optimize(text(lambda w, a: lax.fori_loop(0, 5, lambda _, a: a + 0.1 * (a @ w), a)),
                             cost_model=WireBytes())
    assert loop.wire_bytes <= 5 * body.wire_bytes


def test_loops_say_what_was_not_searched() -> None:
    found = plan(smoothed, 2, None)
    assert "not searched: " in found.certificate and "loops and branches" in found.certificate
    assert "within the search" in str(found).replace("\n", " ")
