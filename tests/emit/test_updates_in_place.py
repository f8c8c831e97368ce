"""Small parts of sharded fields are written in place, wherever they lie: XLA against NumPy on 8 CPU devices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import eggshard as es  # noqa: E402
from eggshard.api import Plan  # noqa: E402

Function = Callable[..., Any]


def field(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).integers(-9, 10, shape).astype(np.float32)


def planned(function: Function, x: np.ndarray, *others: Any) -> tuple[Plan, Any]:
    """The plan on a field that a 4x2 mesh cuts, inside the program where unevenly, and what XLA compiles of it."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
    cut, whole = NamedSharding(mesh, PartitionSpec("x", "y")), NamedSharding(mesh, PartitionSpec())
    even = not any(n % k for n, k in zip(x.shape, (4, 2), strict=True))

    def uneven(u: Any, *rest: Any) -> Any:
        on_shards = function(lax.with_sharding_constraint(u, cut), *rest)
        return lax.with_sharding_constraint(on_shards, cut)

    given = (cut if even else whole, *[whole] * len(others))
    placed = tuple(map(jax.device_put, (x, *others), given))
    plan = es.optimize(jax.jit(function if even else uneven, in_shardings=given).lower(*placed))
    return plan, jax.jit(plan.to_jax()).lower(*placed).compile()


def check(function: Function, x: np.ndarray, *others: Any, want: np.ndarray) -> str:
    """The compiled text of the plan, whose result is the one wanted on XLA and in the simulator."""
    plan, compiled = planned(function, x, *others)
    placed = map(jax.device_put, (x, *others), compiled.input_shardings[0])
    (got,) = jax.tree.leaves(compiled(*placed))
    np.testing.assert_array_equal(np.asarray(got), want)
    np.testing.assert_array_equal(plan.run(x, *map(np.asarray, others))[0], want)
    text: str = compiled.as_text()
    return text


def changed(x: np.ndarray, at: Any, value: Any) -> np.ndarray:
    out = x.copy()
    out[at] = value
    return out


BOXES = {
    "first": np.s_[0], "last": np.s_[-1], "before a border": np.s_[15], "behind a border": np.s_[16],
    "across a border": np.s_[14:18], "across two borders": np.s_[15:33], "column": np.s_[:, 7],
    "columns across": np.s_[:, 23:25], "corner": np.s_[-1, -1], "corner of shards": np.s_[15:17, 23:25],
    "part of a row": np.s_[20, 3:41], "point": np.s_[37, 5],
}


@pytest.mark.parametrize("box", BOXES.values(), ids=BOXES)
def test_boxes(box: Any) -> None:
    x = field(64, 48)
    value = 20 + np.arange(x[box].size, dtype=np.float32).reshape(x[box].shape)
    check(lambda u: u.at[box].set(value), x, want=changed(x, box, value))


@pytest.mark.parametrize("box", [np.s_[0], np.s_[-1], np.s_[:, -1], np.s_[14:18, 20:23], np.s_[58:, 44:]])
def test_uneven_shards(box: Any) -> None:
    x = field(61, 47)
    check(lambda u: (u * 2).at[box].set(30.0), x, want=changed(x * 2, box, 30))


@pytest.mark.parametrize("row", [-70, -1, 0, 15, 16, 61, 63, 64, 200])
def test_positions_at_runtime(row: int) -> None:
    """Updates are clamped; a scatter leaves out what lies outside, and counts from the end below zero."""
    x, update = field(64, 48), 20 + field(3, 48)
    first = min(max(row + 64 if row < 0 else row, 0), 61)
    check(lambda u, i: lax.dynamic_update_slice(u, jnp.asarray(update), (i, jnp.zeros_like(i))), x, np.int32(row),
          want=changed(x, np.s_[first : first + 3], update))
    check(lambda u, i: u.at[i].set(30.0), x, np.int32(row), want=changed(x, row, 30) if -64 <= row < 64 else x)


def walled(u: Any) -> Any:
    return u.at[0].set(0).at[-1].set(1).at[:, 0].set(2).at[:, -1].set(3)


def walled_by_numpy(u: np.ndarray) -> np.ndarray:
    u = u.copy()
    u[0], u[-1], u[:, 0], u[:, -1] = 0, 1, 2, 3
    return u


def test_a_chain_of_updates_copies_once() -> None:
    x = field(64, 48)
    text = check(walled, x, want=walled_by_numpy(x))
    assert len(re.findall(r"f32\[16,24\]\S* copy\(", text)) == 1 and not re.search(r"f32\[16,24\]\S* select\(", text)
    entry = text[text.index("ENTRY"):]
    assert len(re.findall(r"f32\[16,24\]\S* fusion\(", entry)) == 4


def test_a_reader_does_not_test_places() -> None:
    """What is computed from a field with walls reads it, and writes no wall."""
    x = field(64, 48)
    text = check(lambda u: walled(u) * 2 + u, x, want=walled_by_numpy(x) * 2 + x)
    bodies = re.split(r"\n(?=%|ENTRY)", text)
    assert any(" multiply(" in body for body in bodies)
    assert not any(" multiply(" in body and " dynamic-update-slice(" in body for body in bodies)


@pytest.mark.parametrize("walls", [walled, lambda u: u.at[0].set(u[1]).at[-1].set(u[-2]).at[:, 0].set(u[:, 1])],
                         ids=["set", "copied"])
def test_inside_a_loop(walls: Function) -> None:
    def steps(u: Any) -> Any:
        return lax.fori_loop(0, 5, lambda _, u: walls(u.at[1:-1].add(u[:-2] - u[2:])), u)

    x = field(64, 48)
    u = x
    for _ in range(5):
        u = u.copy()
        u[1:-1] += u[:-2] - u[2:]
        if walls is walled:
            u = walled_by_numpy(u)
        else:
            u[0], u[-1], u[:, 0] = u[1].copy(), u[-2].copy(), u[:, 1].copy()
    check(steps, x, want=u)


@pytest.mark.parametrize("after", [lambda u: u[None], lambda u: u[..., None], lambda u: u.reshape(1, 64, 1, 48)])
def test_updates_that_read_what_they_update_are_right_before_a_reshape(after: Function) -> None:
    def function(u: Any) -> Any:
        v = u * -1
        return after(v.at[0].set(v[1] + v[2]))

    x = field(64, 48)
    check(function, x, want=np.asarray(after(changed(-x, 0, -x[1] - x[2]))))
