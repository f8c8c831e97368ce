"""Loops whose iterations look at neighbours: any trip count, known or not, in rows of iterations where that pays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.slowness import some

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from tests.planner.test_stencils import PLANE, X4, X8, argument, planned  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.costmodel import AlphaBeta  # noqa: E402
from eggshard.ops.evaluate import evaluate_program  # noqa: E402
from eggshard.placement import halos  # noqa: E402
from eggshard.placement.halos import Halos  # noqa: E402
from eggshard.steps.control_steps import Loop  # noqa: E402
from eggshard.steps.steps import StepPlan  # noqa: E402
from eggshard.steps.window_steps import WindowExchange  # noqa: E402

LATENCY = AlphaBeta(launch=1e-3, latency=0, bandwidth=1e6, flops=1e15, memory=1e15)
COMPUTE = AlphaBeta(launch=1e-9, latency=0, bandwidth=1e9, flops=1e8, memory=1e8)
LINE = argument((32,), "x")
LIMIT = argument((), "")


def walls(u: Any, t: Any = 1) -> Any:
    p = jnp.pad(u, [(1, 1)] + [(0, 0)] * (u.ndim - 1))
    return p[:-2] - 3 * p[2:] + u * t


def around(u: Any, t: Any = 1) -> Any:
    return jnp.roll(u, 1, 0) - 2 * jnp.roll(u, -1, 0) + t


def loops(plan: StepPlan) -> list[Loop]:
    found = []
    for step in plan.steps:
        if isinstance(step.action, Loop):
            found += [step.action, *loops(step.action.body)]
        elif isinstance(step.action, StepPlan):
            found += loops(step.action)
    return found


def exchanges(plan: StepPlan) -> int:
    return sum(isinstance(step.action, WindowExchange) for step in plan.steps)


def check(function: Callable[..., Any], mesh: dict[str, int], *arguments: Any, limits: tuple[int, ...] = (),
          **options: Any) -> es.Plan:
    """The plan, which computes the bits that the loop does; for each of these values of the last, scalar argument."""
    options.setdefault("results", None)
    plan = planned(function, mesh, *arguments, **options)
    rng = np.random.default_rng(0)
    inputs = [a.draw(rng, False) for a in arguments]
    for limit in limits or (None,):
        if limit is not None:
            inputs[-1] = np.array(limit, np.int32)
        for got, want in zip(plan.run(*inputs), evaluate_program(plan.program, inputs), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want), err_msg=f"limit {limit}")
    return plan


@pytest.mark.parametrize("count", some([0, 1, 7, 8, 9, 100], 3))
@pytest.mark.parametrize("form", ["fori", "scan"])
def test_known_trip_counts(count: int, form: str) -> None:
    for step, model in ((walls, LATENCY), (around, COMPUTE)):
        def run(u: Any, step: Any = step) -> Any:
            if form == "fori":
                return lax.fori_loop(0, count, lambda i, v: step(v, i), u)
            return lax.scan(lambda v, _: (step(v), None), u, None, length=count)[0]

        check(run, X4, LINE, cost_model=model)


@pytest.mark.parametrize("first,stop,step", [
    (0, 9, 1), (3, 20, 1), (-5, 4, 2), (1, 20, 3), (9, 0, -1), (7, -12, -2), (4, 4, 1), (5, 3, 1),
])
def test_counters(first: int, stop: int, step: int) -> None:
    """Counters that start anywhere, by other steps, up and down; also where the limit is an argument."""
    def ahead(i: Any, end: Any) -> Any:
        return i < end if step > 0 else i > end

    def known(u: Any) -> Any:
        return lax.while_loop(lambda c: ahead(c[0], stop), lambda c: (c[0] + step, walls(c[1], c[0])),
                              (jnp.int32(first), u))

    def unknown(u: Any, end: Any) -> Any:
        return lax.while_loop(lambda c: ahead(c[0], end), lambda c: (c[0] + step, around(c[1], c[0])),
                              (jnp.int32(first), u))

    check(known, X4, LINE, cost_model=LATENCY)
    check(unknown, X4, LINE, LIMIT, limits=(stop, stop + 1, first, first + 17 * step), cost_model=LATENCY)


def test_unknown_limits() -> None:
    plan = check(lambda u, n: lax.fori_loop(0, n, lambda i, v: walls(v, i), u), X8, argument((64,), "x"), LIMIT,
                 limits=(0, 1, 2, 7, 8, 9, 31, 100), cost_model=LATENCY)
    # Rows while whole ones fit, then one by one; either ends by its own condition.
    assert [exchanges(loop.body) for loop in loops(plan.device_program)]


@pytest.mark.parametrize("dtype,first,limit", [("uint32", 9, 0), ("int16", 32760, 32767), ("uint8", 250, 255)])
def test_counters_of_other_types(dtype: str, first: int, limit: int) -> None:
    """Rows that the counter would overflow in are not begun; unsigned counters count down."""
    down = first > limit

    def run(u: Any, n: Any) -> Any:
        end = n.astype(dtype)
        one = jnp.ones((), dtype)
        return lax.while_loop(
            lambda c: c[0] > end if down else c[0] < end,
            lambda c: (c[0] - one if down else c[0] + one, walls(c[1])), (jnp.asarray(first, dtype), u),
        )[1]

    check(run, X4, LINE, LIMIT, limits=(limit, first), cost_model=LATENCY)


def test_data_dependent_conditions_are_kept() -> None:
    """Whether another iteration runs is only known after the one before."""
    def run(u: Any) -> Any:
        return lax.while_loop(lambda c: (c[0] < 40) & (jnp.max(jnp.abs(c[1])) < 1000),
                              lambda c: (c[0] + 1, walls(c[1])), (0, u))

    plan = check(run, X4, LINE, cost_model=LATENCY)
    (loop,) = loops(plan.device_program)
    assert loop.trip_count is None


def test_stacked_outputs_and_inputs() -> None:
    for output in (lambda u: u, lambda u: u[:1], lambda u: jnp.sum(u)):
        check(lambda u, output=output: lax.scan(lambda v, t: (walls(v, t), output(v)), u, jnp.arange(9)), X4, LINE,
              cost_model=LATENCY)


def test_nested_loops_and_branches() -> None:
    def nested(u: Any) -> Any:
        def outer(i: Any, v: Any) -> Any:
            return lax.fori_loop(0, 5, lambda j, w: around(w, j), walls(v, i))

        return lax.fori_loop(0, 3, outer, u)

    def branching(u: Any) -> Any:
        def body(i: Any, v: Any) -> Any:
            return lax.cond(i % 2 == 0, walls, lambda w: w + 1, around(v, i))

        return lax.fori_loop(0, 6, body, u)

    for function, model in itertools.product((nested, branching), (LATENCY, COMPUTE)):
        check(function, X4, LINE, cost_model=model)


def test_fields_that_are_exchanged_together() -> None:
    """Two fields carried, swapped, one of them read wider; and one that does not change."""
    def run(a: Any, b: Any, c: Any) -> Any:
        def body(i: Any, state: Any) -> Any:
            new, old, still = state
            return 2 * new - old + walls(new, i) * still, new, still

        return lax.fori_loop(0, 17, body, (a, b, c))

    for mesh, spec in ((X4, "x -"), (PLANE, "x y"), (PLANE, "y,x -")):
        field = argument((16, 4), spec)
        check(run, mesh, field, field, field, cost_model=LATENCY)


def test_rows_are_as_long_as_latency_makes_them() -> None:
    def run(u: Any) -> Any:
        return lax.fori_loop(0, 100, lambda i, v: walls(v), u)

    field = argument((1024,), "x")
    few, many = (check(run, X8, field, cost_model=model, results="same") for model in (LATENCY, COMPUTE))
    assert sum(few.collectives.values()) <= 2 * 13
    assert sum(few.collectives.values()) < sum(many.collectives.values()) <= 200


@pytest.mark.parametrize("count,longest", [(20, 7), (32, 8)])
def test_rows_are_about_as_long_as_one_another(count: int, longest: int) -> None:
    """As many rows as the longest kind that pays makes, of lengths that differ little: 20 = 2 * 7 + 6."""
    dear = AlphaBeta(launch=0, latency=1e-7, bandwidth=4.5e11, flops=1e12, memory=1e30)
    plan = check(lambda u: lax.fori_loop(0, count, lambda i, v: walls(v), u), X8, argument((512, 256), "x -"),
                 cost_model=dear, results="same")
    slabs = [slab.width for loop in loops(plan.device_program) for step in loop.body.steps
             if isinstance(step.action, WindowExchange) for part in step.action.exchanges for slab in part.rounds]
    assert set(slabs) == {longest}


def test_rows_that_save_nothing_are_not_made() -> None:
    """Where messages are free a row only makes the program longer."""
    free = AlphaBeta(launch=0, latency=0, bandwidth=1e6, flops=1e15, memory=1e15)
    plan = check(lambda u: lax.fori_loop(0, 100, lambda i, v: walls(v), u), X4, argument((256,), "x"), cost_model=free)
    (loop,) = loops(plan.device_program)
    assert loop.trip_count == 100


def one_sided(u: Any) -> Any:
    p = jnp.pad(u, [(2, 0), (0, 0)])
    return 3 * u - p[:-2] + p[1:-1]


def mirrored(u: Any) -> Any:
    p = jnp.pad(u, 1, mode="reflect")
    return p[:-2, 1:-1] + 2 * p[2:, 1:-1] - p[1:-1, :-2] + p[1:-1, 2:]


def repeated_ends(u: Any) -> Any:
    p = jnp.pad(u, 1, mode="edge")
    return p[:-2, 1:-1] + 2 * p[2:, 1:-1] - p[1:-1, 2:]


def round_and_walls(u: Any) -> Any:
    """Periodic along rows, zeros beyond columns."""
    p = jnp.pad(u, [(0, 0), (1, 1)])
    return jnp.roll(u, 1, 0) - 2 * jnp.roll(u, -1, 0) + p[:, :-2] - p[:, 2:]


def inner_points(u: Any) -> Any:
    return u.at[1:-1, 1:-1].add(u[:-2, 1:-1] - 3 * u[1:-1, 2:])


@pytest.mark.parametrize("mesh,spec,shape,cut", some([
    (X4, "x -", (32, 8), 0), (X4, "x -", (32, 8), 2), (PLANE, "x y", (32, 32), 0), (PLANE, "y x", (32, 40), 3),
], 2, rows=True))
@pytest.mark.parametrize("step", [one_sided, mirrored, repeated_ends, round_and_walls, inner_points])
def test_rims_go_stale_and_tiles_stay_exact(
    step: Any, mesh: dict[str, int], spec: str, shape: tuple[int, ...], cut: int
) -> None:
    """Whatever lies beyond the domain, on one side or both, uneven sizes included: rows are an inner loop that sends
    nothing, and what the simulator holds for unspecified never reaches a result."""
    def run(u: Any) -> Any:
        inside = lax.fori_loop(0, 7, lambda _, v: step(v), u[:shape[0] - cut])
        return jnp.pad(inside, [(0, cut), (0, 0)])

    plan = check(run, mesh, argument(shape, spec), cost_model=LATENCY)
    inner = [loop for loop in loops(plan.device_program) if not loop.messages]
    assert inner and all(loop.trip_count and loop.trip_count > 1 for loop in inner)


def test_what_does_not_change_is_exchanged_once() -> None:
    """A coefficient per iteration, held with halos before the loop."""
    def run(u: Any, k: Any) -> Any:
        return lax.scan(lambda v, c: (walls(v, c), None), u, k)[0]

    near = AlphaBeta(launch=1e-5, latency=0, bandwidth=1e9, flops=1e9, memory=1e15)
    plan = check(run, X4, argument((32, 256), "x -"), argument((24, 32, 256), "- x -"), cost_model=near, results="same")
    (outer, *_) = (loop for loop in loops(plan.device_program) if loop.messages)
    assert outer.body.messages == 2


def test_iterations_that_reduce_make_no_rows() -> None:
    def run(u: Any) -> Any:
        return lax.fori_loop(0, 8, lambda _, v: walls(v) - jnp.sum(v), u)

    plan = check(run, X4, LINE, cost_model=LATENCY)
    (loop,) = loops(plan.device_program)
    assert loop.trip_count == 8


@pytest.mark.parametrize("step", [walls, around])
@pytest.mark.parametrize("trips", some([20, 100], 1))
def test_windows_that_grow_steadily_are_followed_back_a_few_times(
    monkeypatch: pytest.MonkeyPatch, step: Callable[..., Any], trips: int
) -> None:
    """And are those that every iteration is followed back to."""
    asked = []
    before = Halos._before
    monkeypatch.setattr(Halos, "_before", lambda self, after: asked.append(1) or before(self, after))

    def held(steady: int) -> tuple[list[Any], int]:
        asked.clear()
        monkeypatch.setattr(halos, "STEADY", steady)
        plan = planned(lambda u: lax.fori_loop(0, trips, lambda _, u: step(u), u), X4, argument((256,), "x"),
                       cost_model=LATENCY, results=None)
        return [str(loop) for loop in loops(plan.device_program)], len(asked)

    (few, less), (all_, more) = held(3), held(10**9)
    assert few == all_ and less < more
