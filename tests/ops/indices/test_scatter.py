"""Combining updates at positions that are data."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.family_checks import check_interpreter, check_laws, check_spelling, check_xla, samples_of
from tests.ops.samples2 import scaled_difference_region, scatter_attributes

from eggshard.errors import ProgramError
from eggshard.ops import registry
from eggshard.ops.reductions.monoids import identity_of, recognise_monoid
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.program import Region
from eggshard.program.types import TensorType

ROWS = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1}


def test_laws() -> None:
    assert check_laws("scatter") > 10


def test_spelling() -> None:
    check_spelling("scatter")


def test_xla_agrees() -> None:
    # XLA:CPU widens bf16 sums over all updates; the interpreter rounds each, as the op is defined.
    check_xla("scatter", [s for s in samples_of("scatter") if str(s[1][0].dtype) not in ("bfloat16", "int4")])


def test_interpreter_agrees() -> None:
    # The interpreter drops single elements that are out of range where XLA drops the window.
    in_range = []
    for attrs, (x, indices, *updates), regions in samples_of("scatter"):
        if x.dtype.kind != "c" and len(updates) == 1:
            inside = np.clip(indices, 0, max(0, x.shape[0] - 4)).astype(indices.dtype)
            in_range.append((attrs, [x, inside, *updates], regions))
    check_interpreter("scatter", in_range)


def test_a_window_that_leaves_the_tensor_is_dropped_whole() -> None:
    attrs = scatter_attributes("set", update_window_dims=(1,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1)
    indices = np.array([[3], [-1], [0]], np.int32)
    updates = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
    (out,) = registry.get("scatter").evaluate(attrs, [np.zeros(4, np.float32), indices, updates])
    np.testing.assert_array_equal(out, [5, 6, 0, 0])


def test_partial_sums_pass_jointly_through_tensor_and_updates() -> None:
    operands = (TensorType((7, 5), "f32"), TensorType((9, 1), "i32"), TensorType((9, 5), "f32"))
    definition = registry.get("scatter")
    assert definition.factors(scatter_attributes("add", **ROWS), operands, operands[:1]).linear == (("add", (0, 2)),)
    assert definition.factors(scatter_attributes("max", **ROWS), operands, operands[:1]).linear == (("max", (0, 2)),)
    linear = definition.factors(scatter_attributes("set", **ROWS), operands, operands[:1]).linear
    assert ("add", (0, 2)) in linear and ("max", (0, 2)) in linear
    assert definition.factors(scatter_attributes(**ROWS), operands, operands[:1]).linear == ()


def test_devices_add_a_part_of_the_updates_each_and_promise_nothing_of_indices_past_their_end() -> None:
    attrs = scatter_attributes("add", **ROWS).updated(unique_indices=True, indices_are_sorted=True)
    operands = (TensorType((7, 5), "f32"), TensorType((9, 1), "i32"), TensorType((9, 5), "f32"))
    definition = registry.get("scatter")
    rule = definition.factors(attrs, operands, operands[:1])
    batch, table = (rule.factors[rule.operands[i][0][0]] for i in (1, 0))
    assert (batch.kind, batch.monoid, batch.accumulators) == ("reduce", "add", (0,))
    assert (table.kind, table.positional) == ("pass", True)
    local = (operands[0], TensorType((3, 1), "i32"), TensorType((3, 5), "f32"))
    assert definition.localize(attrs, operands, operands[:1], operands, operands[:1]) == attrs
    made = definition.localize(attrs, operands, operands[:1], local, operands[:1])
    assert not made["unique_indices"] and not made["indices_are_sorted"]
    # Replacing depends on the order of updates: they stay together.
    rule = definition.factors(scatter_attributes("set", **ROWS), operands, operands[:1])
    assert rule.factors[rule.operands[1][0][0]].kind == "replicate"


@pytest.mark.parametrize(
    ("shapes", "attrs", "message"),
    [
        (((7, 5), (9, 1), (9, 6)), scatter_attributes("add", **ROWS), "do not fit"),
        (((7, 5), (9, 1), (8, 5)), scatter_attributes("add", **ROWS), "do not fit"),
        (((7, 5), (9, 2), (9, 5)), scatter_attributes("add", **ROWS), "components"),
        (((7, 5), (9, 1), (9, 5)), scatter_attributes(**ROWS), "needs a body"),
        (((7, 5), (9, 1), (9, 5)), scatter_attributes("average", **ROWS), "average"),
    ],
)
def test_scatter_refuses(shapes: tuple[tuple[int, ...], ...], attrs: object, message: str) -> None:
    operands = tuple(TensorType(s, d) for s, d in zip(shapes, ("f32", "i32", "f32"), strict=True))
    with pytest.raises(ProgramError, match=message):
        registry.get("scatter").infer(attrs, operands)  # type: ignore[arg-type]


def body(name: str, order: tuple[int, int] = (0, 1), dtype: str = "f32") -> Region:
    scalar = TensorType((), dtype)
    builder = RegionBuilder((scalar, scalar))
    return builder.build(builder.add(name, order))


def test_monoids_are_recognised() -> None:
    assert recognise_monoid(body("add")) == "add" and recognise_monoid(body("multiply", (1, 0))) == "mul"
    assert recognise_monoid(body("maximum")) == "max" and recognise_monoid(body("minimum", (1, 0))) == "min"
    assert recognise_monoid(body("and", dtype="i1")) == "and" and recognise_monoid(body("or", dtype="i1")) == "or"
    second = RegionBuilder((TensorType((), "f32"),) * 2).build((1,))
    assert recognise_monoid(second) == "set"
    first = RegionBuilder((TensorType((), "f32"),) * 2).build((0,))
    assert recognise_monoid(first) is None
    assert recognise_monoid(body("add", (0, 0))) is None and recognise_monoid(body("subtract")) is None
    assert recognise_monoid(scaled_difference_region()) is None


def test_identities() -> None:
    assert identity_of("add", "f32") == 0 and identity_of("max", "f32") == -np.inf and identity_of("min", "i8") == 127
