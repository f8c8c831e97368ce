"""Attribute codecs against MLIR's own printer and parser."""

from __future__ import annotations

import numpy as np
import pytest
from jax.interpreters import mlir
from jaxlib.mlir import ir

from eggshard.errors import ProgramError
from eggshard.program import codec
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.dense import dense_text, parse_dense, parse_tensor_type
from eggshard.program.types import _NUMPY, TensorType, numpy_dtype

CASES = [
    (codec.DOT_DIMENSIONS,
     "#stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [1], lhs_contracting_dimensions = [2, 1]"
     ", rhs_contracting_dimensions = [0, 2]>",
     Attributes(lhs_batching_dimensions=(0,), rhs_batching_dimensions=(1,), lhs_contracting_dimensions=(2, 1),
                rhs_contracting_dimensions=(0, 2))),
    (codec.DOT_DIMENSIONS, "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>",
     Attributes(lhs_batching_dimensions=(), rhs_batching_dimensions=(), lhs_contracting_dimensions=(1,),
                rhs_contracting_dimensions=(0,))),
    (codec.DOT_ALGORITHM,
     "#stablehlo.dot_algorithm<lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32, "
     "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 3, "
     "allow_imprecise_accumulation = false>",
     Attributes(lhs_precision_type="bf16", rhs_precision_type="bf16", accumulation_type="f32", lhs_component_count=1,
                rhs_component_count=1, num_primitive_operations=3, allow_imprecise_accumulation=False)),
    (codec.GATHER_DIMENSIONS,
     "#stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>",
     Attributes(offset_dims=(1,), collapsed_slice_dims=(0,), operand_batching_dims=(), start_indices_batching_dims=(),
                start_index_map=(0,), index_vector_dim=1)),
    (codec.SCATTER_DIMENSIONS,
     "#stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>",
     Attributes(update_window_dims=(0,), inserted_window_dims=(0,), input_batching_dims=(),
                scatter_indices_batching_dims=(), scatter_dims_to_operand_dims=(0,), index_vector_dim=0)),
    (codec.CONVOLUTION_DIMENSIONS, "#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>",
     Attributes(input_batch_dimension=0, input_feature_dimension=3, input_spatial_dimensions=(1, 2),
                kernel_output_feature_dimension=3, kernel_input_feature_dimension=2, kernel_spatial_dimensions=(0, 1),
                output_batch_dimension=0, output_feature_dimension=3, output_spatial_dimensions=(1, 2))),
    (codec.PRECISION, "[#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]", ("DEFAULT", "HIGHEST")),
    (codec.COMPARISON_DIRECTION, "#stablehlo<comparison_direction LT>", "LT"),
    (codec.FFT_TYPE, "#stablehlo<fft_type RFFT>", "RFFT"),
    (codec.RNG_ALGORITHM, "#stablehlo<rng_algorithm PHILOX>", "PHILOX"),
    (codec.TRANSPOSE, "#stablehlo<transpose ADJOINT>", "ADJOINT"),
    (codec.Integers(), "array<i64: 1, -2>", (1, -2)),
    (codec.Integers(), "array<i64>", ()),
    (codec.Integers(), "dense<[3, 4]> : tensor<2xi64>", (3, 4)),
    (codec.Flags(), "array<i1: true, false>", (True, False)),
    (codec.Flag(), "false", False),
    (codec.Integer(), "-3 : i64", -3),
    (codec.Integer(bits=32), "8 : i32", 8),
    (codec.Matrix(), "dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>", ((0, 1), (2, 3))),
    (codec.Matrix(), "dense<7> : tensor<1x2xi64>", ((7, 7),)),
    (codec.Matrix(), "dense<> : tensor<0x2xi64>", ()),
    (codec.String(), '"a\\22b\\\\c\\0Ad"', 'a"b\\c\nd'),
    (codec.Verbatim(), "{a = 1 : i64, b = [true]}", "{a = 1 : i64, b = [true]}"),
]


@pytest.mark.parametrize("one, text, value", CASES, ids=[f"{type(c[0]).__name__}-{i}" for i, c in enumerate(CASES)])
def test_decodes_what_mlir_prints_and_encodes_what_it_reads(one: codec.Codec, text: str, value: object) -> None:
    with mlir.make_ir_context():
        attribute = ir.Attribute.parse(text)
        assert one.decode(text) == value
        assert one.decode(str(attribute)) == value
        again = ir.Attribute.parse(one.encode(value))
        assert one.decode(str(again)) == value
        if not text.startswith("dense<["):  # arrays are printed in the one form, whichever was read
            assert again == attribute


@pytest.mark.parametrize("one, text", [
    (codec.Integer(), "true"), (codec.Flag(), "1"), (codec.Integers(), "3 : i64"), (codec.String(), "plain"),
    (codec.Enum("precision"), "#stablehlo<fft_type FFT>"), (codec.Matrix(), "dense<1> : tensor<2xi64>"),
    (codec.DOT_DIMENSIONS, "#stablehlo.dot<other = [1]>"), (codec.DOT_DIMENSIONS, "#stablehlo.gather<>"),
    (codec.CONVOLUTION_DIMENSIONS, "#stablehlo.conv<[b, f, 0]x[o, i, 1]->[b, f, 0]>"),
    (codec.Dense(), "dense_resource<blob> : tensor<2xf32>"), (codec.Dense(), "dense<[1, 2]> : tensor<3xi32>"),
    (codec.Dense(), "dense<1.0> : tensor<?xf32>"), (codec.Dense(), "dense<1> : tensor<2xi7>"),
])  # fmt: skip
def test_refuses_other_text(one: codec.Codec, text: str) -> None:
    with pytest.raises(ProgramError):
        one.decode(text)


def test_defaults_are_filled_in_and_left_out() -> None:
    codecs = {"direction": codec.COMPARISON_DIRECTION, "kind": codec.COMPARISON_TYPE}
    values = codec.decode_attributes(codecs, {"direction": "#stablehlo<comparison_direction LT>", "sdy.sharding": "x"})
    assert values == {"direction": "LT", "kind": None}
    assert codec.encode_attributes(codecs, values) == [("direction", "#stablehlo<comparison_direction LT>")]
    for convert in (codec.decode_attributes, codec.encode_attributes):
        with pytest.raises(ProgramError, match="'direction' is missing"):
            convert(codecs, {})


def test_split_top_level() -> None:
    assert codec.split_top_level('a, [b, c], "d, e", f<g, h>, (i) -> (j, k)') == [
        "a", "[b, c]", '"d, e"', "f<g, h>", "(i) -> (j, k)"]  # fmt: skip
    assert codec.split_top_level("  ") == []


@pytest.mark.parametrize("dtype", sorted(_NUMPY))
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0, 3), (10, 20)])
def test_every_bit_pattern_survives(dtype: str, shape: tuple[int, ...]) -> None:
    """Random bits (NaNs with payloads and denormals too), listed, as a splat and as a blob, through MLIR's printer."""
    rng = np.random.default_rng(sum(map(ord, dtype)))
    kind = numpy_dtype(dtype)
    if dtype == "i1":
        array = rng.random(shape) < 0.5
    elif dtype in ("i2", "i4", "ui2", "ui4"):
        array = rng.integers(0, 2, shape).astype(kind)
    else:
        size = int(np.prod(shape)) * kind.itemsize
        array = np.frombuffer(rng.integers(0, 256, size, np.uint8).tobytes(), kind).reshape(shape)
    array = np.asarray(array)
    splats = [np.broadcast_to(array.reshape(-1)[0], shape)] if array.size else []
    for value in (array, *splats):
        literal = Literal(value)
        text = codec.Dense().encode(literal)
        assert codec.Dense().decode(text) == literal
        with mlir.make_ir_context():
            printed = _printed(text, literal)
        assert codec.Dense().decode(printed) == literal


def _printed(text: str, literal: Literal) -> str:
    """How MLIR prints the attribute; through an op, since Python's binding has no complex elements attribute."""
    type_ = text.rpartition(" : ")[2]
    module = ir.Module.parse(f'%0 = "stablehlo.constant"() <{{value = {text}}}> : () -> {type_}')
    line = module.operation.get_asm(print_generic_op_form=True).split("value = ")[1]
    return line[: line.index("}>")]


def test_truth_values_in_bits_and_bytes() -> None:
    array = np.arange(16) % 3 == 0
    packed = np.packbits(array, bitorder="little").tobytes().hex()
    np.testing.assert_array_equal(parse_dense(f'dense<"0x{packed}"> : tensor<16xi1>'), array)
    np.testing.assert_array_equal(parse_dense(f'dense<"0x{array.tobytes().hex()}"> : tensor<16xi1>'), array)


def test_floats_are_printed_readably_where_that_is_exact() -> None:
    assert dense_text(np.array([0.1, -0.0, 1e30, np.inf], np.float32)) == (
        "dense<[0.10000000149011612, -0.0, 1.0000000150474662e+30, 0x7F800000]> : tensor<4xf32>")
    assert dense_text(np.float64(1e-5).reshape(())) == "dense<1.0e-05> : tensor<f64>"


def test_tensor_types() -> None:
    assert parse_tensor_type("tensor<4x8xcomplex<f32>>") == TensorType((4, 8), "complex<f32>")
    assert parse_tensor_type("tensor<f32>") == TensorType((), "f32")
    with pytest.raises(ProgramError, match="static shape"):
        parse_tensor_type("tensor<*xf32>")
