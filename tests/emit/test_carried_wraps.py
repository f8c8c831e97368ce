"""Loops that carry wrap-arounds: which values they carry so, and that they compute what they did before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import Array, lax  # noqa: E402
from tests.emit.test_double_buffers import SHAPE, SHARD, loop_of, lying, planned  # noqa: E402

from eggshard.emit.carried_wraps import carrying_wraps, middle  # noqa: E402
from eggshard.ops import registry  # noqa: E402
from eggshard.program.attributes import Attributes  # noqa: E402
from eggshard.program.types import TensorType  # noqa: E402
from eggshard.simulate.simulator import run  # noqa: E402
from eggshard.steps.assemble import Assembler  # noqa: E402
from eggshard.steps.control_steps import Loop  # noqa: E402
from eggshard.steps.steps import Local  # noqa: E402
from eggshard.steps.window_steps import Crop  # noqa: E402

ROWS = TensorType((10, 6), "f32")


def wrap(a: Assembler, x: int, dim: int = 1, lhs: int = 1, rhs: int = 2) -> int:
    attributes = Attributes(dimension=dim, lhs=lhs, rhs=rhs)
    return a.emit(Local("wrap", attributes, registry.get("wrap").infer(attributes, (a.types[x],))), (x,))[0]


def cut(a: Assembler, x: int, start: int) -> int:
    """Six columns."""
    rows = a.types[x].shape[0]
    part = Attributes(start_indices=(0, start), limit_indices=(rows, start + 6), strides=(1, 1))
    return a.emit(Local("slice", part, (TensorType((rows, 6), "f32"),)), (x,))[0]


def stencil(a: Assembler, x: int) -> int:
    """Rows within, and their neighbours to both sides, put back between the rows at the ends."""
    (rows,) = a.emit(Crop(0, ("x",), 10, (-1, -1)), (x,))
    around = wrap(a, rows)
    left, right = cut(a, around, 0), cut(a, around, 3)
    (added,) = a.emit(Local("add", Attributes(), (ROWS,)), (left, right))
    (made,) = a.emit(Local("subtract", Attributes(), (ROWS,)), (added, rows))
    return a.emit(Crop(0, ("x",), 12, (1, 1)), (made,))[0]


def names(loop: Loop) -> list[str]:
    return [step.action.name for step in loop.body.steps if isinstance(step.action, Local)]


def test_a_wrap_around_is_carried() -> None:
    """It is made of what an iteration leaves, and no longer of what it is given."""
    plan, loop = loop_of(8, stencil)
    wider, found = carrying_wraps(loop, 8)
    assert list(found) == [1] and wider.body.types[wider.body.inputs[1]].shape == (12, 9)
    (made,) = [step for step in wider.body.steps if isinstance(step.action, Local) and step.action.name == "wrap"]
    assert made.results[0] == wider.body.outputs[1]

    shards = [np.random.default_rng(0).normal(size=(2, *SHARD.shape)).astype(np.float32)]
    outer = Assembler(plan.mesh)
    (given,) = outer.emit(found[1], (outer.input(SHARD),))
    (result,) = outer.emit(middle(found[1]), (outer.emit(wider, (outer.scalar(0, "i32"), given))[1],))
    (want,), (got,) = run(plan, shards), run(outer.build([result]), shards)
    np.testing.assert_array_equal(got, want)


def test_what_stays_as_it_is_stays_wrapped() -> None:
    """Coefficients that a loop carries unchanged are wrapped around once, before it; so no iteration joins arrays."""
    def step(u: Array, k: Array) -> Array:
        return u + 0.1 * k * jnp.roll(k, 1, 1) * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, -1, 1) - 3 * u)

    def many(u: Array, k: Array) -> Array:
        return lax.fori_loop(0, 32, lambda _, v: step(v, k), u)

    sharding = lying({"x": 8}, "x", None)
    plan = planned(many, sharding, 2)
    rng = np.random.default_rng(0)
    given = [jax.device_put(rng.standard_normal(SHAPE).astype(np.float32), sharding) for _ in range(2)]
    compiled = jax.jit(plan.to_jax()).lower(*given).compile()
    np.testing.assert_allclose(compiled(*given), jax.jit(many)(*given), rtol=2e-4, atol=2e-4)
    bodies = [part for part in compiled.as_text().split("\n\n") if "add(" in part and "dynamic-update-slice(" in part]
    assert bodies and not any("concatenate(" in part for part in bodies)


def too_few_turns() -> tuple[Loop, int]:
    return loop_of(2, stencil)[1], 2


def of_a_part() -> tuple[Loop, int]:
    """What wraps a part of the dimension around is no wrap-around of the carried value."""
    def body(a: Assembler, x: int) -> int:
        part = Attributes(start_indices=(0, 1), limit_indices=(12, 5), strides=(1, 1))
        (inner,) = a.emit(Local("slice", part, (TensorType((12, 4), "f32"),)), (x,))
        (rows,) = a.emit(Crop(0, ("x",), 10, (-1, -1)), (wrap(a, inner, lhs=1, rhs=1),))
        return a.emit(Crop(0, ("x",), 12, (1, 1)), (rows,))[0]

    return loop_of(8, body)[1], 8


@pytest.mark.parametrize("case", [too_few_turns, of_a_part])
def test_what_is_not_carried(case: Callable[[], tuple[Loop, int]]) -> None:
    loop, turns = case()
    assert carrying_wraps(loop, turns) == (loop, {})
