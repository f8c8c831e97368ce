"""Loops whose arrays alternate between two buffers on CPUs: the same bits as with one array, and in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.slowness import some

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import Array, lax  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.costmodel import AlphaBeta  # noqa: E402
from eggshard.emit import collectives_text, double_buffers  # noqa: E402
from eggshard.emit.double_buffers import assembled, turns_of  # noqa: E402
from eggshard.program.attributes import Attributes  # noqa: E402
from eggshard.program.mesh import Mesh  # noqa: E402
from eggshard.program.placement import Dim  # noqa: E402
from eggshard.program.types import TensorType  # noqa: E402
from eggshard.steps.assemble import Assembler  # noqa: E402
from eggshard.steps.control_steps import Loop  # noqa: E402
from eggshard.steps.nested import nested  # noqa: E402
from eggshard.steps.steps import CollectivePermute, Local, StepPlan  # noqa: E402
from eggshard.steps.window_steps import BoxSelect, Crop  # noqa: E402

X8, TILES = {"x": 8}, {"x": 4, "y": 2}
SHAPE = (256, 48)


def periodic(u: Array) -> Array:
    return u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u)


def held(u: Array) -> Array:
    inner = u[1:-1, 1:-1] + 0.2 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return u.at[1:-1, 1:-1].set(inner)


def zeros(u: Array) -> Array:
    p = jnp.pad(u, 1)
    return 0.25 * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:])


def copied(u: Array) -> Array:
    p = jnp.pad(u, 1, mode="edge")
    return u - 0.1 * jnp.maximum(p[2:, 1:-1] - u, u - p[1:-1, :-2])


def leapfrog(state: tuple[Array, Array]) -> tuple[Array, Array]:
    before, now = state
    return now, 2 * now - before + 0.1 * (periodic(now) - now)


def repeated(step: Callable[[Any], Any], count: int) -> Callable[..., Any]:
    def run(*state: Any) -> Any:
        given = state if len(state) > 1 else state[0]
        return lax.fori_loop(0, count, lambda _, s: step(s), given)

    return run


def lying(mesh: dict[str, int], *spec: str | None) -> NamedSharding:
    devices = np.array(jax.devices()[:8]).reshape(tuple(mesh.values()))
    return NamedSharding(jax.sharding.Mesh(devices, tuple(mesh)), PartitionSpec(*spec))


def planned(run: Callable[..., Any], sharding: NamedSharding, fields: int) -> es.Plan:
    """The plan where a message takes a millisecond, which has rows of many iterations."""
    u = jax.ShapeDtypeStruct(SHAPE, jnp.float32, sharding=sharding)
    lowered = jax.jit(run, out_shardings=sharding).lower(*[u] * fields)
    return es.optimize(lowered, cost_model=AlphaBeta(latency=1e-3), limits=es.Limits(proof=0))


def loops(plan: StepPlan) -> list[tuple[int, Loop]]:
    """The loops of a device program whose turns are known, innermost ones too."""
    own = [(turns, step.action) for step in plan.steps if (turns := turns_of(plan, step)) is not None]
    return own + [found for step in plan.steps for inner in nested(step.action) for found in loops(inner.program)]


STEPS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "periodic": (periodic, 1), "held": (held, 1), "zeros": (zeros, 1), "copied": (copied, 1), "leapfrog": (leapfrog, 2),
}  # fmt: skip
PLACES: list[tuple[int, dict[str, int], tuple[str | None, ...]]] = [
    (32, X8, ("x", None)), (18, TILES, ("x", "y")), (11, X8, (None, "x"))]


@pytest.mark.parametrize("name", some(STEPS, 3))
@pytest.mark.parametrize(("count", "mesh", "spec"), some(PLACES, 2, rows=True))
def test_two_arrays_hold_what_one_does(
    name: str, count: int, mesh: dict[str, int], spec: tuple[str | None, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, fields = STEPS[name]
    run, sharding = repeated(step, count), lying(mesh, *spec)
    plan = planned(run, sharding, fields)
    rng = np.random.default_rng(0)
    given = [jax.device_put(rng.standard_normal(SHAPE).astype(np.float32), sharding) for _ in range(fields)]
    found = jax.tree.leaves(jax.jit(plan.to_jax())(*given))
    jax.clear_caches()
    monkeypatch.setattr(collectives_text, "assembled", lambda *_: {})
    once = jax.tree.leaves(jax.jit(plan.to_jax())(*given))
    for a, b in zip(found, once, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    for a, b in zip(found, jax.tree.leaves(jax.jit(run)(*given)), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["periodic", "held", "zeros", "leapfrog"])
def test_rows_of_iterations_alternate(name: str) -> None:
    """What is compiled writes into its arrays in place: no copy is left in the loop."""
    step, fields = STEPS[name]
    sharding = lying(X8, "x", None)
    plan = planned(repeated(step, 32), sharding, fields)
    assert any(assembled(loop, turns) for turns, loop in loops(plan.device_program))
    given = jax.device_put(np.zeros(SHAPE, np.float32), sharding)
    text = jax.jit(plan.to_jax()).lower(*[given] * fields).compile().as_text()
    bodies = [part for part in text.split("\n\n") if part.count("dynamic-update-slice") >= 2 and " while(" not in part]
    assert bodies and not any(" copy(" in part for part in bodies)


SHARD, LEVEL = TensorType((12, 6), "f32"), TensorType((10, 6), "f32")


def loop_of(turns: int, body: Callable[[Assembler, int], int]) -> tuple[StepPlan, Loop]:
    """A loop that counts up to its turns, and carries one array."""
    mesh = Mesh({"x": 2})
    number = TensorType((), "i32")
    goes_on, next_, outer = Assembler(mesh), Assembler(mesh), Assembler(mesh)
    count = goes_on.input(number)
    goes_on.input(SHARD)
    compare = Local("compare", Attributes(comparison_direction="LT", compare_type="SIGNED"), (TensorType((), "i1"),))
    (holds,) = goes_on.emit(compare, (count, goes_on.scalar(turns, "i32")))
    count, x = next_.input(number), next_.input(SHARD)
    made = body(next_, x)
    (more,) = next_.emit(Local("add", Attributes(), (number,)), (count, next_.scalar(1, "i32")))
    loop = Loop(goes_on.build([holds]), next_.build([more, made]), turns)
    given = outer.input(SHARD)
    return outer.build(outer.emit(loop, (outer.scalar(0, "i32"), given))[1:]), loop


def level(a: Assembler, x: int) -> int:
    (inner,) = a.emit(Crop(0, ("x",), 10, (-1, -1)), (x,))
    return a.emit(Local("tanh", Attributes(), (LEVEL,)), (inner,))[0]


def padded(a: Assembler, x: int) -> int:
    return a.emit(Crop(0, ("x",), 12, (1, 1)), (level(a, x),))[0]


def test_what_alternates() -> None:
    plan, loop = loop_of(8, padded)
    (step,) = [s for s in plan.steps if s.action == loop]
    assert turns_of(plan, step) == 8
    found = assembled(loop, 8)
    assert list(found) == [1] and found[1].start == (1, 0) and found[1].alone
    assert assembled(loop, 9) and not assembled(loop, 1) and not assembled(loop, 3)


def test_what_is_made_whole_does_not() -> None:
    _, loop = loop_of(8, lambda a, x: a.emit(Local("tanh", Attributes(), (SHARD,)), (x,))[0])
    assert not assembled(loop, 8)


def test_what_is_laid_at_different_places_does_not() -> None:
    _, loop = loop_of(8, lambda a, x: a.emit(Crop(0, ("x",), 12, (1, 2)), (level(a, x),))[0])
    assert not assembled(loop, 8)


def test_large_bodies_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, loop = loop_of(8, padded)
    monkeypatch.setattr(double_buffers, "_STEPS", len(loop.body.steps) - 1)
    assert not assembled(loop, 8)


def test_no_iteration_too_many_that_sends_or_may_not_end() -> None:
    """Of an even number there is none, so that these may alternate."""
    def sends(a: Assembler, x: int) -> int:
        (moved,) = a.emit(CollectivePermute(((0, 1), (1, 0)), ("x",)), (x,))
        return padded(a, moved)

    def loops_inside(a: Assembler, x: int) -> int:
        _, inner = loop_of(3, lambda b, y: b.emit(Local("tanh", Attributes(), (SHARD,)), (y,))[0])
        return padded(a, a.emit(inner, (a.scalar(0, "i32"), x))[1])

    for body in (sends, loops_inside):
        _, loop = loop_of(8, body)
        assert assembled(loop, 8) and not assembled(loop, 9)


def test_effects_happen_as_often_as_they_are_stated() -> None:
    def acts(a: Assembler, x: int) -> int:
        attributes = Attributes(call_target_name="noted", result_types=(SHARD,))
        return padded(a, a.emit(Local("custom_call_effectful", attributes, (SHARD,)), (x,))[0])

    _, loop = loop_of(8, acts)
    assert loop.has_effects and not assembled(loop, 8)


def test_turns_that_are_not_known() -> None:
    """A loop whose counter does not begin with a constant."""
    mesh, number = Mesh({"x": 2}), TensorType((), "i32")
    _, loop = loop_of(8, padded)
    outer = Assembler(mesh)
    first, given = outer.input(number), outer.input(SHARD)
    plan = outer.build(outer.emit(loop, (first, given))[1:])
    assert turns_of(plan, plan.steps[0]) is None


def test_ends_that_are_as_before_are_not_written() -> None:
    """Columns that every iteration takes from the one before, all along."""
    def body(a: Assembler, x: int) -> int:
        (rows,) = a.emit(Crop(0, ("x",), 10, (-1, -1)), (x,))
        columns = Attributes(start_indices=(0, 1), limit_indices=(10, 5), strides=(1, 1))
        (inner,) = a.emit(Local("slice", columns, (TensorType((10, 4), "f32"),)), (rows,))
        (made,) = a.emit(Local("tanh", Attributes(), (TensorType((10, 4), "f32"),)), (inner,))
        padding = Attributes(edge_padding_low=(0, 1), edge_padding_high=(0, 1), interior_padding=(0, 0))
        (wide,) = a.emit(Local("pad", padding, (LEVEL,)), (made, a.scalar(0.0, "f32")))
        (kept,) = a.emit(BoxSelect(((1, Dim((), 6, 0, 0), 1, 5),)), (wide, rows))
        return a.emit(Crop(0, ("x",), 12, (1, 1)), (kept,))[0]

    _, loop = loop_of(8, body)
    (one,) = assembled(loop, 8).values()
    assert [laid.same for laid in one.then] == [False, True, False] and one.start == (1, 1)
