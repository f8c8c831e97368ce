"""Shardy's rules of a program's own ops; those of MLIR's are held against jaxlib's in ``tests/shardy/rules``."""

from __future__ import annotations

import pytest

from eggshard.errors import ShardingError
from eggshard.frontends import load
from eggshard.ops import registry
from eggshard.ops.sharding_rule import DEPENDENT, Nearby, ruled, sharding_rule
from eggshard.program.attributes import Attributes
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType

X = TensorType((8, 4), "f32")
CALL = Attributes({"call_target_name": "own", "sdy.sharding_rule": "#sdy.op_sharding_rule<([i])->([i]) {i=8}, custom>"})
ALONE = Nearby()


def rule(name: str, attributes: Attributes, *types: TensorType, nearby: Nearby = ALONE) -> str:
    """The body of the rule of an op of one result, the last type; empty if it has none."""
    found = sharding_rule(name, attributes, types[:-1], types[-1:], nearby=nearby)
    return str(found).removeprefix("#sdy.op_sharding_rule<")[:-1] if found else ""


def test_reductions_by_a_monoid_reduce() -> None:
    attributes = Attributes(dimensions=(1,), monoid="max")
    assert rule("reduce", attributes, X, X.with_shape((8,))) == "([i, j])->([i]) {i=8, j=4} reduction={j}"


def test_scatters_by_a_monoid_reduce_where_shardy_knows_it() -> None:
    numbers = Attributes(update_window_dims=(1,), inserted_window_dims=(0,), input_batching_dims=(), index_vector_dim=1,
                         scatter_indices_batching_dims=(), scatter_dims_to_operand_dims=(0,))
    for dtype, monoid, kind in (("i32", "add", "reduction"), ("i32", "or", "need_replication"),
                                ("i1", "or", "reduction"), ("i32", "set", "need_replication")):
        x, indices = TensorType((8, 4), dtype), TensorType((3,), "i32")
        attributes = Attributes(scatter_dimension_numbers=numbers, monoid=monoid)
        text = "([k, j], [i], [i, j])->([k, j]) {i=3, j=4, k=8} " + kind + "={i}"
        assert rule("scatter", attributes, x, indices, x.with_shape((3, 4)), x) == text


def test_joined_slices_of_one_tensor_are_a_shift() -> None:
    text = "([i, j], [i, j])->([i, j]) {i=16, j=4} %s={i}"
    for nearby, kind in (
        (ALONE, "need_replication"), (Nearby(("slice", ""), (0, 0)), "permutation"),
        (Nearby(("slice", ""), (0, 1)), "need_replication"), (Nearby(("slice", "slice"), (0, 1)), "permutation"),
    ):
        joined = X.with_shape((16, 4))
        assert rule("concatenate", Attributes(dimension=0), X, X, joined, nearby=nearby) == text % kind


def test_ops_that_are_printed_as_several_have_the_rule_of_what_moves() -> None:
    text = "([i, j])->([i, j]) {i=8, j=4} permutation={i}"
    assert rule("rotate", Attributes(dimension=0, amount=3), X, X) == text
    assert rule("wrap", Attributes(dimension=0, lhs=1, rhs=1), X, X.with_shape((10, 4))) == text
    updated = rule("update_slice", Attributes(start_indices=(2, 0)), X, X.with_shape((3, 4)), X)
    assert updated == "([i, k], [j, k])->([i, k]) {i=8, j=3, k=4}"


def test_a_custom_calls_own_rule_is_its_rule() -> None:
    vector = TensorType((8,), "f32")
    assert rule("custom_call", CALL, vector, vector) == "([i])->([i]) {i=8}, custom"
    with pytest.raises(ShardingError, match="custom_call: operand 0"):
        rule("custom_call", CALL, X, vector)


def test_ops_that_shardy_has_no_rule_for() -> None:
    assert not rule("chlo.erf", Attributes(), X, X)
    assert not rule("custom_call", Attributes(call_target_name="own"), X, X)
    assert ruled("while") is None and ruled("never heard of") is None
    assert all(ruled(name) for name in DEPENDENT)
    assert sharding_rule("add", Attributes(), (X, X), ()) is None


def test_an_op_of_a_program_has_the_rule_of_its_text() -> None:
    region: Region = load("""
    func.func @main(%a: tensor<8x4xf32>, %b: tensor<4x2xf32>) -> tensor<16xf32> {
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
          : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
      %1 = stablehlo.reshape %0 : (tensor<8x2xf32>) -> tensor<16xf32>
      return %1 : tensor<16xf32>
    }""").region

    def types(op: Op, values: tuple[int, ...]) -> tuple[TensorType, ...]:
        return tuple(region.types[v] for v in values)

    found = [rule(op.name, op.attributes, *types(op, op.operands), *types(op, op.results)) for op in region.ops]
    assert found == ["([i, k], [k, j])->([i, j]) {i=8, j=2, k=4} reduction={k}", "([i, j])->([ij]) {i=8, j=2}"]


@pytest.mark.parametrize("name", [name for name in registry.names() if ruled(name)])
def test_ops_with_rules_are_spelled_in_stablehlo_or_printed_as_several_of_its_ops(name: str) -> None:
    several = ("extend", "rotate", "update_slice", "wrap")
    assert registry.get(name).spelling.startswith(("stablehlo.", "sdy.")) != (name in several)
