"""What steps touch of memory."""

import pytest

from eggshard.costmodel.pricing import step_info
from eggshard.ops import registry
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType
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
