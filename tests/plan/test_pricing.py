"""What steps touch of memory."""

from eggshard.program.ops import registry
from eggshard.program.types import TensorType


def test_stacked_arrays_are_read_and_updated_in_part() -> None:
    """A loop over so many layers costs so many times one layer's slices, not the square of it."""
    stack, layer, place = TensorType((48, 64), "f32"), TensorType((1, 64), "f32"), TensorType((), "i32")
    read, update = (registry.get(name) for name in ("dynamic_slice", "dynamic_update_slice"))
    assert read.touched((stack, place, place), (layer,)) == 2 * layer.bytes + 2 * place.bytes
    assert update.touched((stack, layer, place, place), (stack,)) == 2 * layer.bytes + 2 * place.bytes
