"""Equal parts of programs that are no row of layers: found by structure, each row planned by two of them."""

from __future__ import annotations

import dataclasses
import random

import pytest
from bench.programs.parts import KINDS, step_of_parts
from tests.planner.layers.test_layers import PLAIN, check, planned
from tests.random_layers import layered
from tests.slowness import some

import eggshard as es
from eggshard.frontends import load
from eggshard.planner.layers.parts import find_parts
from eggshard.planner.layers.shortening import shorten


@pytest.mark.parametrize(("kind", "rows"), some([
    ("encoder and decoder", [4, 5]), ("ensemble", [8]), ("unrolled experts", [7] * 4), ("recurrent steps", [22]),
    ("U-Net", [4] * 5),
], 3, rows=True))
def test_parts_of_models_are_found(kind, rows):
    found = find_parts(load(step_of_parts(kind, KINDS[kind][1]).lower()))
    assert found is not None and sorted(map(len, found.rows)) == rows


def test_the_layers_of_a_decoder_are_a_row_of_their_own():
    found = find_parts(layered(dataclasses.replace(PLAIN, backward=False, decoder=6), random.Random(0)))
    assert found is not None and sorted(len(row) for row in found.rows) == [5, 7]


def test_experts_of_several_layers_are_a_row_in_each():
    b = es.ProgramBuilder({"x": 2})
    x = b.input((4, 4), "i32")
    for _ in range(3):
        y = b.dot(x, x)
        for _ in range(6):
            x = x + b.dot(b.dot(y, b.input((4, 8), "i32")) * 2, b.input((8, 4), "i32"))
    b.output(x)
    found = find_parts(b.build())
    assert found is not None and len(found.rows) == 3 and all(len(row) >= 5 for row in found.rows)


def test_places_of_slices_are_beside_the_layers_that_take_them():
    design = dataclasses.replace(PLAIN, backward=False, positions=True)
    program = layered(design, random.Random(0))
    found = find_parts(program)
    assert found is not None and [len(row) for row in found.rows] == [7]
    assert all(found.part[i] < 0 for i, op in enumerate(program.region.ops) if op.name == "slice")
    plan = planned(program)
    assert "layers" in plan.search.seconds
    check(program, plan)


def test_what_only_left_out_layers_take_is_made_in_its_cheapest_way():
    """Values beside the layers, one for each, of which the short program needs two."""
    b = es.ProgramBuilder({"x": 4})
    x, table = b.input((8, 8), "i32", ("x", None)), b.input((9, 8, 8), "i32", (None, "x", None))
    for i in range(9):
        w = b.reshape(b.slice(table, (i, 0, 0), (i + 1, 8, 8)), (8, 8)) * (i + 2)
        x = b.dot(x, w) * 2 + b.dot(x, b.input((8, 8), "i32"))
    b.output(x, ("x", None))
    program = b.build()
    short = shorten(program)
    assert short is not None
    plan = planned(program)
    assert "layers" in plan.search.seconds
    check(program, plan)
    assert plan.cost.total <= 1.2 * planned(program, by_layers=False).cost.total
