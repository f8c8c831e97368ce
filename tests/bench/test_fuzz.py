"""Drawn programs: the same for a seed, taken by JAX, and shrunk to what a failure needs."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
from bench.fuzz import _checked, check
from bench.fuzz.check import checked, renamed, reordered
from bench.fuzz.generate import MESHES, generate
from bench.fuzz.shrink import shrunk

import eggshard as es

#: Seeds of programs on no more devices than tests have.
SEEDS = [seed for seed in range(40) if math.prod(random.Random(seed).choice(MESHES).values()) <= 8]


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield



def test_a_seed_is_a_program() -> None:
    assert generate(SEEDS[0]) == generate(SEEDS[0]) != generate(SEEDS[1])


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_plans_of_drawn_programs_are_right(seed: int) -> None:
    drawn = generate(seed)
    assert drawn.lines
    found = checked(drawn)
    assert found is not None, "JAX takes it"
    assert not [str(p) for p in found]


def test_a_wrong_reference_is_no_wrong_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    right = check.reference
    monkeypatch.setattr(check, "reference", lambda d: (right(d)[0], [np.zeros_like(a) for a in right(d)[1]]))
    found = checked(generate(SEEDS[0]))
    assert found and {p.kind for p in found} == {"reference"}


@pytest.mark.parametrize("sent", [True, False])
def test_what_xla_knows_beforehand_is_no_wrong_prediction(sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = es.ProgramBuilder(mesh={"a": 4})
    x, y = (builder.input((8, 8), "i32", ("a", None)) for _ in range(2))
    nothing = builder.op("and", builder.op("subtract", x, x), y)
    builder.output(builder.op("reduce", nothing, dimensions=(0,), monoid="add"), (None,))
    plan = es.optimize(builder.build())
    compiled = check._Compiled(plan)
    compiled.run(*(np.ones((8, 8), np.int32) for _ in range(2)))
    if not sent:
        monkeypatch.setattr(check._Compiled, "handed", 0.0)
    assert [p.kind for p in check._figures(plan, compiled)] == [check.SIMPLIFIED if sent else "bytes"]


def test_programs_are_shrunk_to_what_fails() -> None:
    drawn = next(d for d in map(generate, SEEDS) if len(d.lines) > 4)
    culprit = drawn.lines[2].expression.split("(")[0]
    found = shrunk(drawn, lambda d: any(line.expression.startswith(culprit) for line in d.lines))
    assert len(found.lines) < len(drawn.lines) and culprit in found.script()


def test_other_names_and_orders_are_the_same_program() -> None:
    drawn = generate(SEEDS[2])
    assert [n for _, n in renamed(drawn).mesh] == [n for _, n in drawn.mesh]
    assert sorted(line.name for line in reordered(drawn).lines) == sorted(line.name for line in drawn.lines)


class Ending:
    """A checker of which some requests end the process."""

    def __init__(self, *ending: str) -> None:
        self.ending = ending

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        asked = request.get("script", "reference" if "reference" in request else "checked")
        if asked in self.ending:
            return {"error": "SIGABRT"}
        return {"checked": {"problems": ["wrong: v0"]}, "reference": {"refused": False}}.get(asked, {"script": asked})


@pytest.mark.parametrize(("ending", "problem", "script"), [
    ((), "wrong: v0", "shrunk"),
    (("shrunk",), "wrong: v0", "drawn"),
    (("checked",), "crash: the process ended: SIGABRT", "drawn"),
    (("checked", "drawn"), "crash: the process ended: SIGABRT", ""),
])
def test_the_end_of_a_process_is_a_failure(ending: tuple[str, ...], problem: str, script: str) -> None:
    found = _checked(Ending(*ending), {"seed": 1})  # type: ignore[arg-type]
    assert (found["problems"], found["script"]) == ([problem], script)


def test_what_ends_jax_alone_is_no_program() -> None:
    found = _checked(Ending("checked", "reference"), {"seed": 1})  # type: ignore[arg-type]
    assert found == {"problems": [], "refused": True}
