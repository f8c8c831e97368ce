"""Named scopes as JAX writes them, and runs of steps by scope."""

import random

import pytest

from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType
from eggshard.report.scopes import LEAST_RUN, Run, fused, merged, runs_of, scope_of
from eggshard.steps.steps import Local, Step


@pytest.mark.parametrize(("location", "scope"), [
    ("jit(step)/jvp(layer0)/attention/dot_general at train.py:9", ("layer0", "attention")),
    ("jit(step)/transpose(jvp(layer0))/mlp/mul at train.py:9", ("layer0, gradient", "mlp")),
    ("jit(step)/transpose(jvp())/div at train.py:9", ("gradient",)),
    ("jit(step)/mul at train.py:9", ()),
    ("jit(step)/while/body/closed_call/Block_0/Dense_1/add", ("Block_0", "Dense_1")),
    ("jit(f)/vmap(jit(inner))/heads/exp at a/b.py:1", ("heads",)),
    ("jit(step) at train.py:9", None), ("train.py:9", None), ("", None),
])
def test_scopes_of_locations(location: str, scope: tuple[str, ...] | None) -> None:
    assert scope_of(location) == scope


@pytest.mark.parametrize("seed", range(20))
def test_runs_cover_every_step_once(seed: int) -> None:
    rng = random.Random(seed)
    scopes = [s for _ in range(12) for s in [tuple(rng.choices("abc", k=rng.randrange(4)))] * rng.randrange(1, 15)]

    def check(runs: tuple[Run, ...], start: int, size: int) -> None:
        assert runs[0].start == start and sum(run.size for run in runs) == size
        for run, following in zip(runs, runs[1:], strict=False):
            assert run.start + run.size == following.start
        assert len({run.name for run in runs}) == len(runs)
        for run in runs:
            if run.within:
                check(run.within, run.start, run.size)

    check(runs_of(scopes), 0, len(scopes))


def test_short_runs_join_their_neighbour() -> None:
    assert merged("a" * LEAST_RUN + "b" + "a" * 3) == [("a", 0, LEAST_RUN + 4)]
    assert merged("ab" + "c" * LEAST_RUN) == [("c", 0, LEAST_RUN + 2)]


def step(name: str, operands: tuple[int, ...], result: int) -> Step:
    return Step(Local(name, Attributes(), (TensorType((4,), "f32"),)), operands, (result,))


def test_fused_steps_follow_one_another_and_read_what_was_made() -> None:
    chain = [step("add", (0, 1), 2), step("multiply", (2, 1), 3), step("tanh", (3,), 4)]
    assert fused(chain) == [0, 0, 0] and fused(chain[:2]) == [-1, -1]
    product = step("dot_general", (4, 4), 5)
    assert fused([*chain, product, step("tanh", (5,), 6)]) == [0, 0, 0, -1, -1]
    others = [step("add", (0, 0), 7), step("negate", (7,), 8), step("exponential", (8,), 9)]
    assert fused([*chain, *others]) == [0, 0, 0, 1, 1, 1]
