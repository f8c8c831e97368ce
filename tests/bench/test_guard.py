"""The bench of the guard: programs on other meshes are the same programs, and what is worse is told."""

from __future__ import annotations

import numpy as np
import pytest
from bench.guard import FORMS, Row, beside, form, measure, split
from bench.programs import by_name, reshard

import eggshard as es

TEXT = by_name(reshard.PROGRAMS)["dim swap"].lower().as_text()


@pytest.mark.parametrize("label, splits, unused", FORMS)
def test_a_program_in_another_form_computes_the_same(label: str, splits: bool, unused: int) -> None:
    made = form(TEXT, splits, unused)
    assert made is not None
    program, given = es.load(made), es.load(TEXT)
    assert program.input_types == given.input_types and program.mesh.size == given.mesh.size << unused
    placed = [[s.to_placement(p.mesh, t).local_shape for s, t in zip(p.input_shardings, p.input_types, strict=True)
               if s is not None] for p in (program, given)]
    assert placed[0] == placed[1]
    plan = es.optimize(made)
    x = np.arange(np.prod(given.input_types[0].shape), dtype=np.float32).reshape(given.input_types[0].shape)
    np.testing.assert_array_equal(np.asarray(plan.run(x)[0]), x)


def test_what_has_no_axes_to_split_has_no_such_form() -> None:
    assert split('sdy.mesh @mesh = <["x"=2]>') is None and split("no mesh") is None
    assert beside("no mesh", 1) is None


def test_what_is_worse_in_spite_of_the_guard_is_a_failure() -> None:
    assert not Row("", {}, (8, 16), (1.0, 1.0)).failure
    assert Row("", {}, (16, 8), (1.0, 1.0)).failure == "more bytes for no less time"
    assert not Row("", {}, (16, 8), (0.5, 1.0)).failure
    assert Row("", {}, (8, 8), (1.1, 1.0)).failure == "more modelled time"
    assert not Row("", {}, (16, 8), (2.0, 1.0), worse=("modelled time",)).failure  # XLA's program runs


def test_a_reshard_is_measured() -> None:
    row = measure("dim swap", TEXT)
    assert not row.failure and row.bytes[0] <= row.bytes[1] + 0.5
