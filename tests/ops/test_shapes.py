"""Shape rules refuse what does not fit, with messages that name the op and the shapes; factor and flop counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tests.ops.laws import check_factors, check_linear

from eggshard.errors import ProgramError
from eggshard.ops import FAMILIES, registry
from eggshard.ops.base import PASS
from eggshard.ops.factor_table import common_factors
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.types import TensorType

X, Y, WHOLE, TRUTH = (TensorType((4, 6), "f32"), TensorType((6, 4), "f32"), TensorType((4, 6), "i32"),
              TensorType((4, 6), "i1"))
SCALAR, COMPLEX = TensorType((), "f32"), TensorType((4, 6), "complex<f32>")
NUMBERS = Attributes(lhs_batching_dimensions=(), rhs_batching_dimensions=(), lhs_contracting_dimensions=(1,),
                     rhs_contracting_dimensions=(1,))
WINDOW = {"window_dimensions": (2, 1), "window_strides": (1, 1), "base_dilations": (1, 1), "window_dilations": (1, 1),
          "padding": ((0, 0), (0, 0)), "monoid": "add"}

REFUSED = [
    ("add", [X], {}, "takes 2 operands, got 1"),
    ("add", [X, Y], {}, "different shapes"),
    ("add", [X, WHOLE], {}, "different element types"),
    ("exponential", [WHOLE], {}, "does not accept"),
    ("subtract", [TRUTH, TRUTH], {}, "does not accept"),
    ("and", [X, X], {}, "does not accept"),
    ("complex", [WHOLE, WHOLE], {}, "both f32 or both f64"),
    ("compare", [X, X], {"comparison_direction": "ABOVE"}, "comparison direction"),
    ("compare", [COMPLEX, COMPLEX], {"comparison_direction": "EQ", "compare_type": "TOTALORDER"}, "does not accept"),
    ("select", [WHOLE, X, X], {}, "predicate"),
    ("select", [TRUTH, X, WHOLE], {}, "different types"),
    ("clamp", [Y, X, SCALAR], {}, "a bound is a scalar"),
    ("convert", [X], {"dtype": "f31"}, "not supported"),
    ("reduce_precision", [X], {"exponent_bits": 0, "mantissa_bits": 3}, "exponent bit"),
    ("transpose", [X], {"permutation": (0, 0)}, "permutation"),
    ("reshape", [X], {"shape": (5, 5)}, "25 elements, the operand 24"),
    ("broadcast_in_dim", [X], {"broadcast_dimensions": (0,), "shape": (4, 6)}, "do not map"),
    ("broadcast_in_dim", [X], {"broadcast_dimensions": (0, 1), "shape": (4, 7)}, "size 6 does not expand"),
    ("slice", [X], {"start_indices": (0, 0), "limit_indices": (4, 7), "strides": (1, 1)}, "within a dimension of size"),
    ("slice", [X], {"start_indices": (0,), "limit_indices": (4,), "strides": (1,)}, "each of the 2"),
    ("pad", [X, X], {"edge_padding_low": (0, 0), "edge_padding_high": (0, 0), "interior_padding": (0, 0)}, "scalar"),
    ("pad", [X, SCALAR], {"edge_padding_low": (-5, 0), "edge_padding_high": (0, 0), "interior_padding": (0, 0)},
     "cuts more"),
    ("concatenate", [X, Y], {"dimension": 0}, "differ in more than dimension 0"),
    ("concatenate", [X], {"dimension": 2}, "does not exist"),
    ("reverse", [X], {"dimensions": (2,)}, "do not exist"),
    ("bitcast_convert", [X], {"dtype": "f64"}, "does not make up"),
    ("constant", [], {"value": 3}, "Literal"),
    ("iota", [], {"shape": (4,), "dtype": "i32", "iota_dimension": 1}, "does not exist"),
    ("dot_general", [X, Y], {"dot_dimension_numbers": NUMBERS}, "differ in size"),
    ("dot_general", [X, WHOLE], {"dot_dimension_numbers": NUMBERS}, "convert one of them"),
    ("dot_general", [X, X], {"dot_dimension_numbers": NUMBERS, "dtype": "i32"}, "of f32 and f32 is none of i32"),
    ("dot_general", [COMPLEX, COMPLEX], {"dot_dimension_numbers": NUMBERS, "dtype": "f32"}, "is none of f32"),
    ("dot", [TensorType((2, 2, 2), "f32"), X], {}, "vectors or matrices"),
    ("reduce", [X], {"dimensions": (2,), "monoid": "add"}, "do not exist"),
    ("reduce", [X], {"dimensions": (0,), "monoid": "and"}, "not defined for element type f32"),
    ("reduce", [X], {"dimensions": (0,), "monoid": "mean"}, "unknown"),
    ("reduce_general", [X, SCALAR], {"dimensions": (0,)}, "takes one region"),
    ("reduce_window", [X], {**WINDOW, "window_strides": (0, 1)}, "at least 1"),
    ("reduce_window", [X], {**WINDOW, "padding": ((0, 0),)}, "each of 2 dimensions"),
]  # fmt: skip


@pytest.mark.parametrize("name, operands, attrs, message", REFUSED)
def test_refusals_say_what_is_wrong(name: str, operands: list[TensorType], attrs: dict, message: str) -> None:
    builder = RegionBuilder(operands)
    with pytest.raises(ProgramError, match=message) as caught:
        builder.add(name, range(len(operands)), attrs, location="model.py:3")
    assert str(caught.value).startswith(f"{name}(") and "at model.py:3" in str(caught.value)


def test_every_family_is_loaded_and_registers_ops() -> None:
    modules = {type(registry.get(name)).__module__ for name in registry.names()}
    assert {family.__name__ for family in FAMILIES} <= modules


@st.composite
def _two_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    primes = draw(st.lists(st.sampled_from((2, 2, 2, 3, 5)), max_size=6))

    def shape() -> tuple[int, ...]:
        dims = [1] * draw(st.integers(1, 4))
        for p in draw(st.permutations(primes)):
            dims[draw(st.integers(0, len(dims) - 1))] *= p
        return tuple(dims)

    return shape(), shape()


@given(_two_shapes())
def test_reshape_factors(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Any reshape's factors obey the law, and equal leading dimensions are found."""
    source, target = shapes
    sample = (Attributes(shape=target), [np.arange(math.prod(source), dtype=np.int32).reshape(source)], ())
    check_factors("reshape", sample)
    check_linear("reshape", sample, np.random.default_rng(0))
    factors, row, _ = common_factors(source, source)
    assert row == tuple(() if n == 1 else (sum(m > 1 for m in source[:i]),) for i, n in enumerate(source))
    assert all(f.kind == PASS for f in factors)


def test_splat_constants_are_sharded_for_free() -> None:
    definition = registry.get("constant")
    splat, counted = (Attributes(value=Literal(a)) for a in (np.zeros((4, 6)), np.arange(24.0).reshape(4, 6)))
    types = definition.infer(splat, ())
    local = (types[0].with_shape((2, 3)),)
    assert {f.kind for f in definition.factors(splat, (), types).factors} == {PASS}
    assert definition.localize(splat, (), types, (), local)["value"] == Literal(np.zeros((2, 3)))
    assert PASS not in {f.kind for f in definition.factors(counted, (), types).factors}


def test_flops() -> None:
    def flops(name: str, attrs: dict, *operands: TensorType) -> float:
        definition = registry.get(name)
        return definition.flops(Attributes(attrs), operands, definition.infer(Attributes(attrs), operands))

    numbers = NUMBERS.updated(rhs_contracting_dimensions=(0,))
    assert flops("dot_general", {"dot_dimension_numbers": numbers, "dtype": "f32"}, X, Y) == 2 * 4 * 6 * 4
    assert flops("add", {}, X, X) == 24
    assert flops("transpose", {"permutation": (1, 0)}, X) == 0
    assert flops("reduce", {"dimensions": (1,), "monoid": "add"}, X) == 20
    assert flops("reduce_window", WINDOW, X) == 18


def test_widening_integers_are_not_linear() -> None:
    """Narrow partial sums wrap before they are widened; dropping bits commutes with wrapping."""
    for operand, dtype, linear in ((WHOLE, "i64", False), (WHOLE, "i8", True), (X, "f64", True), (X, "bf16", False)):
        rule = registry.get("convert").factors(Attributes(dtype=dtype), (operand,), (TensorType(operand.shape, dtype),))
        assert rule.linear == ((("add", (0,)),) if linear else ())
