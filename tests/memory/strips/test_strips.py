"""Steps in strips: the same results, from loops that hold less at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from bench.memory import compiled_memory

import eggshard as es
from eggshard.memory.strips.spans import even
from eggshard.memory.strips.strip_mining import bands, counts, cuts, in_strips, made_again
from eggshard.memory.strips.strips import Strip, lines
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.control_steps import Loop
from eggshard.steps.piece_steps import Exchange, Round
from eggshard.steps.steps import AllGather, AllReduce, AllToAll, Local

B = es.ProgramBuilder


def moved(b: B) -> None:
    b.output(b.input((16, 32), "f32", ("x", None)), (None, "x"))


def moved_between_two(b: B) -> None:
    b.output(b.input((16, 32, 8), "f32", (("y", "x"), None, None)), (None, "y", "x"))


def exchanged(b: B) -> None:
    b.output(b.input((24, 16), "f32", ("x", "y")), ("y", "x"))


def gathered(b: B) -> None:
    b.output(b.input((16, 32), "f32", ("x", "y")), (None, None))


def product(b: B) -> None:
    x, w = b.input((16, 32), "f32", ("x", None)), b.input((32, 64), "f32", (None, "x"))
    b.output(b.dot(b.multiply(x, x), w), ("x", None))


def product_of_partial_sums(b: B) -> None:
    x, w = b.input((16, 32), "f32", (None, "x")), b.input((32, 64), "f32", ("x", None))
    b.output(b.tanh(b.dot(x, w)), ("x", None))


def reduced_between(b: B) -> None:
    """What the second product reads of the first by way of a sum over its rows is whole."""
    x, w = b.input((16, 32), "f32", ("x", None)), b.input((32, 32), "f32", (None, "x"))
    y = b.dot(x, w)
    total = b.broadcast(b.sum(y, 0), (16, 32), (1,))
    b.output(b.dot(b.add(y, total), w), ("x", None))


def rolled(b: B) -> None:
    u = b.input((16, 32), "f32", ("x", None))
    left = b.concatenate([b.slice(u, (0, 1), (16, 32)), b.slice(u, (0, 0), (16, 1))], 1)
    above = b.concatenate([b.slice(u, (15, 0), (16, 32)), b.slice(u, (0, 0), (15, 32))], 0)
    b.output(b.add(left, above), ("x", None))


def windowed(b: B) -> None:
    u = b.input((32, 32), "f32", ("x", None))
    b.output(b.add(b.slice(u, (0, 3), (32, 19)), b.slice(u, (0, 8), (32, 24))), ("x", None))


def read_twice(b: B) -> None:
    """Two products read what is gathered, one along its rows and one along its columns."""
    x, w = b.input((16, 32), "f32", ("x", None)), b.input((32, 64), "f32", (None, "x"))
    b.output(b.dot(b.transpose(x, (1, 0)), b.tanh(b.dot(x, w))), (None, "x"))


PROGRAMS = [
    windowed, moved, moved_between_two, exchanged, gathered, product, product_of_partial_sums, reduced_between, rolled,
]  # fmt: skip


def planned(build: Callable[[B], None], mesh: dict[str, int] | None = None) -> es.Plan:
    b = B(mesh or {"x": 4, "y": 2})
    build(b)
    return es.optimize(b.build())


def cut(plan: es.Plan, parts: int, again: bool = False) -> Iterator[es.Plan]:
    for way in cuts(plan.device_program, again):
        if parts in way.parts:
            yield replace(plan, device_program=way.into(parts))


@pytest.mark.parametrize("build", PROGRAMS)
def test_strips_make_the_same_results(build: Callable[[B], None]) -> None:
    plan, found = planned(build), 0
    for parts in (2, 4):
        for mined in cut(plan, parts):
            mined.verify(engines=("numpy",))
            assert mined.wire_bytes == plan.wire_bytes
            assert any(isinstance(s.action, Loop) for s in mined.steps)
            found += 1
    assert found


@pytest.mark.parametrize("build", [moved, exchanged, product])
def test_strips_run_on_devices(build: Callable[[B], None]) -> None:
    next(cut(planned(build), 2)).verify(engines=("jax",))


def test_what_is_larger_than_what_it_is_made_of_is_made_again_by_each_reader() -> None:
    plan = planned(read_twice)
    assert plan.collectives == {"all-gather": 1}
    program, several = made_again(plan.device_program)
    gathers = [s for s in program.steps if isinstance(s.action, AllGather)]
    assert len(gathers) == 2 and gathers[0].operands == gathers[1].operands
    assert several >= {v for s in gathers for v in s.results}
    assert all(mined.wire_bytes == plan.wire_bytes for mined in cut(plan, 4))
    twice = [mined for mined in cut(plan, 4, again=True)]
    assert twice and all(mined.wire_bytes == 2 * plan.wire_bytes for mined in twice)
    for mined in twice:
        mined.verify(engines=("numpy",))
    twice[0].verify(engines=("jax",))


def test_what_is_in_no_loop_is_made_once() -> None:
    program = planned(read_twice).device_program
    cut_elsewhere = [band for band in bands(made_again(program)[0])
                     if not any(isinstance(band.program.steps[i].action, AllGather) for i in band.lines)]
    assert cut_elsewhere
    for band in cut_elsewhere:
        assert in_strips(band, 2).messages == program.messages


def test_strips_of_strips() -> None:
    once = next(cut(planned(moved_between_two), 2))
    nested = [p for p in cut(once, 2) if sum(isinstance(s.action, Loop) for s in p.steps) == 1]
    assert nested
    for plan in nested:
        plan.verify(engines=("numpy",))


def test_a_band_is_one_loop() -> None:
    """No step of it waits, by way of steps outside, for another one."""
    program = planned(reduced_between).device_program
    for band in bands(program):
        made = {v for i in band.lines for v in program.steps[i].results}
        after: set[int] = set()
        for i, step in enumerate(program.steps):
            if i in band.lines:
                assert after.isdisjoint(step.operands)
            elif made.union(after).intersection(step.operands):
                after.update(step.results)


def test_what_a_collective_cuts_is_cut_along_what_it_keeps() -> None:
    mesh = Mesh({"x": 4})
    action = AllToAll(((0, ("x",)),), ((1, ("x",)),))
    before, after = TensorType((8, 32), "f32"), TensorType((32, 8), "f32")
    assert action.result(mesh, (before,)) == (after,)
    first, second = lines(mesh, action, [before], [after])
    assert (first.operands[0], first.results[0]) == (Strip(0, 1, 8), Strip(0, 4, 8))
    assert (second.operands[0], second.results[0]) == (Strip(1, 4, 8), Strip(1, 1, 8))


def test_lengths_are_cut_into_strips_of_equal_width() -> None:
    assert counts(128) == (2, 4, 8, 16) and counts(126) == (2, 4, 8, 16)
    assert counts(7) == (2, 4, 7) and counts(1) == ()
    assert even(7, 4) == [(0, 2), (2, 4), (4, 6), (5, 7)]


def test_a_slice_is_read_from_where_it_begins() -> None:
    attributes = Attributes(start_indices=(3, 0), limit_indices=(11, 4), strides=(1, 1))
    before, after = TensorType((16, 4), "f32"), TensorType((8, 4), "f32")
    action = Local("slice", attributes, (after,))
    cut = next(line for line in lines(Mesh({"x": 2}), action, [before], [after]) if line.results[0].dim == 0)
    assert cut.operands == (Strip(0, 1, 16),)
    read = cut.read(0)
    assert read is not None and read.indices(2, 4) == (5, 4)
    assert cut.at(cut.results[0], Strip(0, 2, 4)) is None  # indices apart in the result are apart in the operand


def test_pieces_off_their_grid_are_not_cut() -> None:
    mesh = Mesh({"x": 2})
    here = TensorType((4,), "f32")
    action = Exchange((2,), (4,), (), ())
    assert lines(mesh, action, [here], [here])
    off = replace(action, local=(Round(((0, 0), (1, 1)), ((1,), (1,)), ((0,), (0,))),))
    assert not lines(mesh, off, [here], [here])


def test_strips_take_less_memory_compiled_as_predicted() -> None:
    b = B({"x": 8})
    b.output(b.input((512, 512), "f32", ("x", None)), (None, "x"))
    plan = es.optimize(b.build())
    band = next(band for band in bands(plan.device_program) if band.length >= 8)
    mined = replace(plan, device_program=in_strips(band, 4))
    assert compiled_memory(mined)[0] < compiled_memory(plan)[0] / 2
    assert abs(mined.memory.temporaries - compiled_memory(mined)[0]) < 1024


def test_what_is_summed_together_is_cut_along_what_all_of_it_has() -> None:
    """Sums of several shapes in one step: of other ranks, and of scalars."""
    mesh, action = Mesh({"x": 4}), AllReduce(("x",), "add")
    matrix, vector, scalar = (TensorType(shape, "f32") for shape in ((8, 4), (8,), ()))
    (line,) = lines(mesh, action, (matrix, vector), (matrix, vector))
    assert line.results == (Strip(0, 1, 8),) * 2
    assert not lines(mesh, action, (vector, scalar), (vector, scalar))
    assert not lines(mesh, action, (matrix, TensorType((2,), "f32")), (matrix, TensorType((2,), "f32")))
