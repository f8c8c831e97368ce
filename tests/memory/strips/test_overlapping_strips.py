"""Strips of what looks at neighbours: they overlap, and what lies beyond the ends of arrays is made before the loop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import cast

import jax.numpy as jnp
import numpy as np
import pytest
from bench.memory import compiled_memory
from bench.programs import Argument, BenchProgram, axes_of, spec
from bench.programs.spellings import FIVE_POINT, NINE_POINT, Edge, repeated, spelled, star
from jax import Array
from jax.lax import with_sharding_constraint
from tests.slowness import some

import eggshard as es
from eggshard.engines.jax.verification import random_array
from eggshard.memory.strips.margins import margins_of
from eggshard.memory.strips.spans import Span, inside, passes
from eggshard.memory.strips.strip_mining import bands, cuts, in_strips
from eggshard.memory.strips.strips import Read, lines
from eggshard.ops.windowing import Reach
from eggshard.placement.slabs import Slab
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.steps import Local, Step, StepPlan
from eggshard.steps.window_steps import HaloExchange

#: Spelling, taps, edge, steps, shape, sharding, mesh.
STENCILS = {
    "uneven rows": ("pad", FIVE_POINT, "zero", 1, (26, 12), "x -", "4"),
    "uneven columns": ("at", FIVE_POINT, "zero", 2, (8, 13), "- x", "4"),
    "tiles": ("roll", NINE_POINT, "periodic", 1, (8, 12), "x y", "2x2"),
    "two steps": ("roll", FIVE_POINT, "periodic", 2, (16, 10), "x -", "2"),
    "convolution": ("convolution", NINE_POINT, "zero", 1, (16, 12), "x -", "4"),
    "wide convolution": ("convolution", star(2, 3), "reflect", 1, (16, 12), "x -", "2"),
    "edges": ("pad", star(2, 2), "edge", 1, (16, 11), "x -", "4"),
    "reflected": ("pad each", star(2, 2), "reflect", 1, (16, 10), "- x", "2"),
    "joined": ("concat", FIVE_POINT, "edge", 2, (12, 12), "x y", "2x2"),
    "looked up": ("take", FIVE_POINT, "periodic", 1, (12, 9), "x -", "2"),
}


def planned(name: str) -> es.Plan:
    """The stencil on a domain of this shape, which is cut from an even array and padded to one again."""
    spelling, taps, edge, steps, shape, sharding, mesh = STENCILS[name]
    step = repeated(spelled(spelling, taps, cast(Edge, edge)), steps)
    parts = [math.prod(dict(axes_of(mesh))[a] for a in names.split(",") if a != "-") for names in sharding.split()]
    even = tuple(-(-n // count) * count for n, count in zip(shape, parts, strict=True))

    def function(u: Array) -> Array:
        domain = with_sharding_constraint(u[tuple(slice(n) for n in shape)], spec(sharding))
        return jnp.pad(step(domain), [(0, m - n) for n, m in zip(shape, even, strict=True)])

    program = BenchProgram(name, "stencil", axes_of(mesh), (Argument(even, sharding),), function=function,
                           out_shardings=sharding, rounding=True)
    return es.optimize(program.lower())


def cut(plan: es.Plan) -> Iterator[es.Plan]:
    """The plan cut in every way, into more parts or fewer in turn."""
    turn = cycle((0, -1, 1))
    for way in cuts(plan.device_program):
        yield replace(plan, device_program=way.into(way.parts[next(turn) % len(way.parts)]))


def inputs(plan: es.Plan) -> list[np.ndarray]:
    """Random, with something that is no number at both ends and in between."""
    rng = np.random.default_rng(1)
    (value,) = (random_array(t, rng) for t in plan.program.input_types)
    value.reshape(-1)[[0, value.size // 2, -1]] = np.nan
    return [value]


@pytest.mark.parametrize("name", some(STENCILS, 5))
def test_overlapping_strips_make_the_same_results(name: str) -> None:
    plan, found = planned(name), 0
    for mined in cut(plan):
        mined.verify(engines=("numpy",), inputs=inputs(plan))
        found += 1
    assert found > 4


@pytest.mark.parametrize("name", some(["uneven rows", "tiles", "wide convolution", "edges", "joined"], 2))
def test_overlapping_strips_run_on_devices(name: str) -> None:
    plan = planned(name)
    least = min(cut(plan), key=lambda mined: mined.memory.temporaries)
    least.verify(engines=("jax",), inputs=inputs(plan))


def test_they_take_less_memory_compiled_as_predicted() -> None:
    """And what is sent is sent once: of a halo along the strips' dimension the margins move, before the loop."""
    program = BenchProgram("heat", "stencil", axes_of("8"), (Argument((1024, 1024), "x -"),),
                           function=spelled("convolution", FIVE_POINT, "zero"), out_shardings="x -")
    plan = es.optimize(program.lower())
    limit = plan.memory.arguments + plan.memory.outputs + plan.memory.temporaries // 2
    within = es.optimize(program.lower(), memory_limit=limit)
    assert within.memory.peak <= limit and sum(compiled_memory(within)) <= limit
    assert abs(within.memory.temporaries - compiled_memory(within)[0]) < 0.1 * compiled_memory(within)[0]
    assert within.wire_bytes == plan.wire_bytes and within.device_program.messages == plan.device_program.messages


def test_lengths_that_do_not_divide_are_cut_into_strips_that_overlap() -> None:
    plan = planned("uneven columns")
    band = next(band for band in bands(plan.device_program) if band.length % 4)
    replace(plan, device_program=in_strips(band, 4)).verify(engines=("numpy",))


# -- intervals ---------------------------------------------------------------------------------------------------------


def test_what_a_strip_reads() -> None:
    assert Read(Reach(0, -2, 1)).indices(10, 4) == (8, 7)
    assert Read(Reach(0, 3, 3, scale=2)).indices(1, 3) == (5, 5)
    assert Read(Reach(0, 9, 9, mirrored=True)).indices(0, 4) == (6, 4)
    assert Read(Reach(0, -2, 1), "wrapped").margins(10, 10) == (2, 1)


def test_what_of_it_lies_within_the_operand() -> None:
    padded = Read(Reach(0, -3, -3))
    assert inside(padded, 0, 2, 10) == (0, 0) and inside(padded, 2, 4, 10) == (0, 3)
    assert inside(Read(Reach(0, -3, -3), "edge"), 0, 2, 10) == (0, 1)
    assert inside(Read(Reach(0, -3, -3), "reflect"), 0, 2, 10) == (0, 4)
    assert inside(Read(Reach(0, -3, -3), "symmetric"), 12, 3, 10) == (8, 10)


def test_spans_cover_what_is_needed_and_are_equally_wide() -> None:
    assert Span.of([(0, 5), (4, 10), (9, 12)], 12) == Span((0, 4, 6), 6)
    assert Span.of([(0, 0), (12, 12)], 12).ranges == [(0, 1), (11, 12)]


def test_a_value_is_computed_once_for_all_that_read_it() -> None:
    """Shifts to the left and to the right need two indices more than they make, and their ends before the loop."""
    mesh, line = Mesh({"x": 1}), TensorType((16,), "f32")

    def local(name: str, **attributes: int) -> Local:
        return Local(name, Attributes(attributes), (line,))

    program = StepPlan(mesh, (0,), (
        Step(local("tanh"), (0,), (1,)),
        Step(local("rotate", dimension=0, amount=1), (1,), (2,)),
        Step(local("rotate", dimension=0, amount=15), (1,), (3,)),
        Step(local("add"), (2, 3), (4,)),
    ), (4,), (line,) * 5)  # fmt: skip
    chosen = {i: lines(mesh, s.action, [line] * len(s.operands), [line])[0] for i, s in enumerate(program.steps)}
    found = passes(program, chosen, {4: [(0, 4), (4, 8), (8, 12), (12, 16)]})
    assert found.loop[1] == Span((0, 3, 7, 10), 6) and found.loop[2] == found.loop[4] == Span((0, 4, 8, 12), 4)
    assert found.first == {1: Span((0,), 1)} and found.last == {1: Span((15,), 1)}


def test_margins_are_exchanged_without_the_shard() -> None:
    rows = TensorType((8, 4), "f32")
    down = Slab(((0, 1), (1, 2)), 2, (6, 6, 0), (0, 0, 0))
    up = Slab(((1, 0), (2, 1)), 1, (0, 0, 0), (10, 10, 0))
    whole = HaloExchange(0, ("x",), 11, (2, 2, 2), (down, up))
    margins = margins_of(whole, rows)
    assert margins is not None and (margins.first, margins.last, margins.low, margins.high) == (1, 2, 2, 1)
    sent = [(slab.source_starts[1], slab.target_starts[1]) for slab in margins.action.rounds]
    assert sent == [(1, 0), (0, 2)] and margins.action.new == 3
    inside_ = HaloExchange(0, ("x",), 11, (2, 2, 2), (up._replace(target_starts=(5, 5, 0)),))
    assert margins_of(inside_, rows) is None
    assert margins_of(replace(whole, offsets=(2, 1, 2)), rows) is None
