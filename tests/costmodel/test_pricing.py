"""What steps touch of memory."""

import numpy as np
import pytest

import eggshard as es
from eggshard.costmodel.pricing import Pricer, op_info, step_info
from eggshard.frontends.builder import ProgramBuilder
from eggshard.ops import registry
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Action, AllGather, AllReduce, AllToAll, ReduceScatter

X, Y = ("x",), ("y",)


def test_stacked_arrays_are_read_and_updated_in_part() -> None:
    """A loop over so many layers costs so many times one layer's slices, not the square of it."""
    stack, layer, place = TensorType((48, 64), "f32"), TensorType((1, 64), "f32"), TensorType((), "i32")
    read, update = (registry.get(name) for name in ("dynamic_slice", "dynamic_update_slice"))
    assert read.touched((stack, place, place), (layer,)) == 2 * layer.bytes + 2 * place.bytes
    assert update.touched((stack, layer, place, place), (stack,)) == 2 * layer.bytes + 2 * place.bytes


@pytest.mark.parametrize(("action", "shape", "copied", "runs"), [
    # Parts along the outermost dimension are pieces of memory as they are.
    (AllGather(((0, X),)), (8, 16), 0, 0),
    (AllGather(((1, X),)), (1, 16), 0, 0),
    (ReduceScatter(((0, X),), "add"), (8, 16), 0, 0),
    (AllReduce(X, "add"), (8, 16), 0, 0),
    # Along another one operand and result are copied so that it is the outermost.
    (AllGather(((1, X),)), (8, 16), 2 * 4 * 128 * (1 + 4), 8 * (16 + 64)),
    (AllGather(((1, X),)), (8, 16, 32), 2 * 4 * 4096 * (1 + 4), 8 * (16 + 64)),
    (ReduceScatter(((1, X),), "add"), (8, 16), 2 * 4 * 128 * (1 + 1 / 4), 8 * (16 + 4)),
    # Of several dimensions, and between two of them, blocks are copied.
    (AllGather(((0, Y), (1, X))), (8, 16), 2 * 4 * 128 * 8, 16 * 4),
    (ReduceScatter(((0, Y), (1, X)), "add"), (8, 16), 2 * 4 * 128, 8 * 4),
    (AllToAll(((1, X),), ((0, X),)), (8, 16), 2 * 4 * 128, 2 * 4),
    (AllToAll(((0, X),), ((1, X),)), (8, 16), 2 * 4 * 128, 8 * 4),
    (AllToAll(((1, X),), ((2, X),)), (8, 16, 32), 2 * 2 * 4 * 4096, 8 * 16 * 4 + 8 * 4),
])
def test_collectives_copy_what_is_not_one_piece_of_memory(
    action: Action, shape: tuple[int, ...], copied: float, runs: float
) -> None:
    step = step_info(Mesh({"x": 4, "y": 2}), action, (TensorType(shape, "f32"),))
    assert (step.copied_bytes, step.runs) == (copied, runs)


def test_loops_and_branches_are_split_into_what_they_send_and_compute() -> None:
    """Ten iterations communicate and compute ten times what one does, on any machine; a branch as its dearest one."""
    builder = ProgramBuilder(mesh={"x": 4})
    x, w = builder.input((64, 64), "f32", (None, "x")), builder.input((64, 64), "f32", ("x", None))
    builder.output(builder.tanh(x @ w), (None, None))
    body = es.optimize(builder.build()).device_program
    builder = ProgramBuilder(mesh={"x": 4})
    builder.output(builder.tanh(builder.input((64, 64), "f32", (None, "x"))), (None, "x"))
    asked = es.optimize(builder.build()).device_program
    for overlap in (0.0, 1.0):
        pricer = Pricer(es.costmodel.AlphaBeta(overlap=overlap), body.mesh)
        sent, computed = pricer.parts_of(body)
        idle, asking = pricer.parts_of(asked)
        assert sent > 0 and computed > 0 and asking > 0 and not idle
        assert pricer.parts(Loop(asked, body, 10)) == pytest.approx((10 * sent, 10 * computed + 11 * asking))
        assert pricer.parts(Branch((asked, body), False)) == (sent, computed)


def test_what_is_read_in_place_is_no_pass_over_memory() -> None:
    """A constant of full size is one: it lies in memory, however its elements came to be equal."""
    small, large = TensorType((8,), "f32"), TensorType((64, 8), "f32")
    mesh = Mesh({"x": 2})
    repeats = Attributes(broadcast_dimensions=(1,), shape=(64, 8))
    broadcast = op_info(mesh, "broadcast_in_dim", repeats, (small,), (large,))
    constant = op_info(mesh, "constant", Attributes(value=Literal(np.zeros((64, 8), np.float32))), (), (large,))
    assert broadcast.memory_bytes == 0 and constant.memory_bytes == large.bytes
