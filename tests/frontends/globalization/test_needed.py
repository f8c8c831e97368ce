"""What is needed of local tensors: backwards through movement, pointwise ops and loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eggshard.frontends.globalization.needed import everything, in_loop, needed
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.program import Region
from eggshard.program.types import TensorType


def vector(n: int) -> TensorType:
    return TensorType((n,), "f32")


def of_input(region: Region, *outputs: Any) -> list[str | None]:
    """Per input which elements are needed, as digits."""
    found = needed(region, [everything(region.types[v]) for v in region.outputs])
    own = [found[v] for v in region.inputs]
    return [None if masks is None else "".join(str(int(m)) for m in masks[0]) for masks in own]


def unary(n: int, write: Any) -> Region:
    builder = RegionBuilder([vector(n)])
    return builder.build([write(builder, builder.inputs[0])])


@pytest.mark.parametrize(("write", "wanted"), [
    (lambda b, x: b.part(x, 0, 1, 4), "01110"),
    (lambda b, x: b.part(x, 0, 0, 5, 2), "10101"),
    (lambda b, x: b.part(b.op("reverse", x, dimensions=(0,)), 0, 0, 2), "00011"),
    (lambda b, x: b.part(b.op("rotate", x, dimension=0, amount=1), 0, 0, 2), "01100"),
    (lambda b, x: b.part(b.op("wrap", x, dimension=0, lhs=1, rhs=0), 0, 0, 2), "10001"),
    (lambda b, x: b.part(b.op("pad", x, b.scalar(0, "f32"), edge_padding_low=(2,), edge_padding_high=(0,),
                              interior_padding=(0,)), 0, 1, 4), "11000"),
    (lambda b, x: b.part(b.concatenate([x, x], 0), 0, 4, 7), "11001"),
    (lambda b, x: b.op("negate", b.part(x, 0, 3, 5)), "00011"),
    (lambda b, x: b.part(b.op("reduce_precision", x, exponent_bits=8, mantissa_bits=7), 0, 0, 1), "10000"),
    (lambda b, x: b.part(b.broadcast(x, (2, 5), [1]), 1, 1, 2), "01000"),
    (lambda b, x: b.part(b.reshape(x, (1, 5)), 1, 1, 2), "01000"),
    (lambda b, x: b.part(b.op("reduce", x, dimensions=(), monoid="add"), 0, 0, 1), "11111"),
])
def test_backwards(write: Any, wanted: str) -> None:
    assert of_input(unary(5, write)) == [wanted]


def test_of_what_is_updated_only_what_is_left() -> None:
    builder = RegionBuilder([vector(5), vector(3)])
    whole = builder.op("update_slice", *builder.inputs, start_indices=(1,))
    assert of_input(builder.build([whole])) == ["10001", "111"]
    assert of_input(builder.build([builder.part(whole, 0, 1, 4)])) == [None, "111"]


def test_nothing_is_needed_of_what_nobody_takes() -> None:
    builder = RegionBuilder([vector(5), vector(5)])
    builder.op("negate", builder.inputs[1])
    assert of_input(builder.build([builder.inputs[0]])) == ["11111", None]


def test_a_loop_needs_what_its_iterations_need() -> None:
    def loop(write: Any) -> list[str]:
        body = RegionBuilder([vector(6)])
        step = body.build([write(body, body.inputs[0])])
        condition = RegionBuilder([vector(6)])
        first = condition.reshape(condition.part(condition.inputs[0], 0, 2, 3), ())
        goes_on = condition.op("compare", first, condition.scalar(0, "f32"), comparison_direction="LT")
        builder = RegionBuilder([vector(6)])
        builder.add("while", builder.inputs, {"trip_count": None}, [condition.build([goes_on]), step])
        (op,) = builder.ops
        inner = np.array([0, 1, 1, 1, 1, 0], bool)
        return ["".join(str(int(m)) for m in masks[0]) for masks in in_loop(op, [(inner,)], [vector(6)])]

    set_ends = lambda b, x: b.concatenate([b.part(x, 0, 4, 5), b.part(x, 0, 1, 5), b.part(x, 0, 1, 2)], 0)  # noqa: E731
    assert loop(set_ends) == ["011110"]
    assert loop(lambda b, x: b.op("rotate", x, dimension=0, amount=1)) == ["111111"]
