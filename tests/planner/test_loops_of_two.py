"""A loop of two iterations is never dearer than its body twice, and it communicates as much as its steps do."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

import eggshard
from eggshard.costmodel import WireBytes


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


@pytest.mark.parametrize("model", [None, WireBytes()], ids=["alpha-beta", "wire bytes"])
@pytest.mark.parametrize("body", [smoothed, centred, turned])
def test_two_iterations_cost_at_most_twice_one(body, model) -> None:
    once, one, two = (plan(body, times, model).cost for times in (0, 1, 2))
    # The rest is what a loop counts by.
    assert one.total <= once.total * (1 + 1e-3) and two.total <= 2 * once.total * (1 + 1e-3)
    assert two.total == pytest.approx(two.communication + two.compute)
    assert one.communication == pytest.approx(once.communication, rel=1e-3)


def test_loops_say_what_was_not_searched() -> None:
    found = plan(smoothed, 2, None)
    assert "not searched: " in found.certificate and "loops and branches" in found.certificate
    assert "within the search" in str(found).replace("\n", " ")
