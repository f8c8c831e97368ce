"""Small instances of every op of the indexing, scatter, convolution, sorting, linalg, random and control families.

``SAMPLES2[name](rng)`` gives (attributes, operand arrays, regions) triples that the op accepts.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from tests.ops.samples import Sample, Sampler, array

from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Region
from eggshard.program.types import TensorType

SAMPLES2: dict[str, Sampler] = {}


def sampler(function: Sampler) -> Sampler:
    SAMPLES2[function.__name__.rstrip("_")] = function
    return function


def indices(rng: np.random.Generator, shape: tuple[int, ...], size: int, dtype: str = "i32") -> np.ndarray:
    """Indices into a dimension of this size, a few of them out of range on both sides."""
    low = 0 if dtype.startswith("u") else -3
    return rng.integers(low, size + 3, shape).astype(dtype.replace("ui", "uint") if low == 0 else "int" + dtype[1:])


@sampler
def dynamic_slice(rng: np.random.Generator) -> list[Sample]:
    out: list[Sample] = []
    for dtype, sizes, starts, kind in (
        ("f32", (2, 6), (3, 0), "int32"), ("i8", (4, 3), (-1, 9), "int64"), ("bf16", (1, 1), (2, 5), "uint32"),
        ("i1", (0, 6), (4, 0), "int32"), ("f32", (4, 6), (2, 2), "int8"),
    ):  # fmt: skip
        places = [np.array(s, kind) for s in starts]
        out.append((Attributes(slice_sizes=sizes), [array(rng, (4, 6), dtype), *places], ()))
    return out


@sampler
def dynamic_update_slice(rng: np.random.Generator) -> list[Sample]:
    out: list[Sample] = []
    for dtype, sizes, starts in (
        ("f32", (2, 6), (3, 0)), ("i32", (4, 3), (-1, 9)), ("bf16", (1, 1), (2, 5)), ("f32", (4, 6), (2, 2)),
        ("f32", (0, 6), (1, 1)),
    ):  # fmt: skip
        places = [np.array(s, np.int32) for s in starts]
        out.append((Attributes(), [array(rng, (4, 6), dtype), array(rng, sizes, dtype), *places], ()))
    return out


def gather_attributes(sizes: tuple[int, ...], **numbers: Any) -> Attributes:
    fields = {name: () for name in ("offset_dims", "collapsed_slice_dims", "operand_batching_dims",
                                    "start_indices_batching_dims", "start_index_map")}
    return Attributes(dimension_numbers=Attributes({**fields, **numbers}), slice_sizes=sizes, indices_are_sorted=False)


@sampler
def gather(rng: np.random.Generator) -> list[Sample]:
    rows = {"offset_dims": (2,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 2}
    along = {"collapsed_slice_dims": (1,), "operand_batching_dims": (0,), "start_indices_batching_dims": (0,),
             "start_index_map": (1,), "index_vector_dim": 2}
    swapped = {"offset_dims": (1,), "collapsed_slice_dims": (1,), "operand_batching_dims": (0,),
               "start_indices_batching_dims": (1,), "start_index_map": (1,), "index_vector_dim": 0}
    windows = {"offset_dims": (0, 2), "start_index_map": (1, 0), "index_vector_dim": 1}
    points = {"collapsed_slice_dims": (0, 1), "start_index_map": (0, 1), "index_vector_dim": 1}
    whole = {"offset_dims": (0, 1), "start_index_map": (), "index_vector_dim": 0}
    return [
        (gather_attributes((1, 5), **rows), [array(rng, (7, 5), "f32"), indices(rng, (2, 3, 1), 7)], ()),
        (gather_attributes((1, 5), **rows), [array(rng, (7, 5), "bf16"), indices(rng, (2, 3, 1), 7, "ui8")], ()),
        (gather_attributes((1, 3), **rows), [array(rng, (7, 5), "f32"), indices(rng, (2, 3, 1), 7, "i64")], ()),
        (gather_attributes((1, 5), **{**rows, "index_vector_dim": 2, "offset_dims": (0,)}),
         [array(rng, (7, 5), "i8"), indices(rng, (4, 2, 1), 7)], ()),
        (gather_attributes((1, 5), **{**rows, "offset_dims": (1,), "index_vector_dim": 1}),
         [array(rng, (7, 5), "i1"), indices(rng, (4,), 7)], ()),
        (gather_attributes((1, 1), **along), [array(rng, (4, 6), "f32"), indices(rng, (4, 3, 1), 6)], ()),
        (gather_attributes((1, 1, 5), **swapped), [array(rng, (4, 6, 5), "f32"), indices(rng, (1, 4, 3), 6)], ()),
        (gather_attributes((4, 2), **windows), [array(rng, (4, 6), "f32"), indices(rng, (5, 2), 6)], ()),
        (gather_attributes((1, 1), **points), [array(rng, (4, 6), "complex<f32>"), indices(rng, (5, 2), 6)], ()),
        (gather_attributes((4, 6), **whole), [array(rng, (4, 6), "f32"), indices(rng, (0, 3), 6)], ()),
        (gather_attributes((1, 0), **rows), [array(rng, (7, 5), "f32"), indices(rng, (2, 3, 1), 7)], ()),
    ]


def scatter_attributes(monoid: str = "", **numbers: Any) -> Attributes:
    fields = {name: () for name in ("update_window_dims", "inserted_window_dims", "input_batching_dims",
                                    "scatter_indices_batching_dims", "scatter_dims_to_operand_dims")}
    stated = {"monoid": monoid} if monoid else {}
    return Attributes(stated, scatter_dimension_numbers=Attributes({**fields, **numbers}), indices_are_sorted=False,
                      unique_indices=False)


def scaled_difference_region() -> Region:
    """old - 2 new: a body that depends on the order of updates and is no monoid."""
    scalar = TensorType((), "f32")
    builder = RegionBuilder((scalar, scalar))
    (two,) = builder.add("constant", (), {"value": Literal(np.array(2, np.float32))})
    (twice,) = builder.add("multiply", (1, two))
    return builder.build(builder.add("subtract", (0, twice)))


def argmax_update_region() -> Region:
    """(old value, old tag, new value, new tag) to those of the larger value: two tensors at once."""
    value, tag = TensorType((), "f32"), TensorType((), "i32")
    builder = RegionBuilder((value, tag, value, tag))
    (larger,) = builder.add("compare", (2, 0), {"comparison_direction": "GT", "compare_type": None})
    return builder.build([builder.add("select", (larger, 2, 0))[0], builder.add("select", (larger, 3, 1))[0]])


@sampler
def scatter(rng: np.random.Generator) -> list[Sample]:
    rows = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,),
            "index_vector_dim": 1}
    along = {"inserted_window_dims": (1,), "input_batching_dims": (0,), "scatter_indices_batching_dims": (0,),
             "scatter_dims_to_operand_dims": (1,), "index_vector_dim": 2}
    windows = {"update_window_dims": (0, 2), "scatter_dims_to_operand_dims": (1, 0), "index_vector_dim": 1}
    out: list[Sample] = []
    for monoid, dtype in (
        ("add", "f32"), ("add", "bf16"), ("set", "f32"), ("max", "i8"), ("min", "f32"), ("mul", "f32"), ("or", "i1"),
        ("and", "i32"), ("add", "i4"), ("set", "complex<f32>"),
    ):  # fmt: skip
        out.append((scatter_attributes(monoid, **rows),
                    [array(rng, (7, 5), dtype), indices(rng, (9, 1), 7), array(rng, (9, 5), dtype)], ()))
    x, body = array(rng, (4, 6), "f32"), (scaled_difference_region(),)
    return [
        *out,
        (scatter_attributes("add", **rows), [array(rng, (7, 5), "f32"), indices(rng, (4, 1), 7, "ui32"),
                                             array(rng, (4, 3), "f32")], ()),
        (scatter_attributes("add", **along), [x, indices(rng, (4, 8, 1), 6), array(rng, (4, 8), "f32")], ()),
        (scatter_attributes("set", **windows), [x, indices(rng, (3, 2), 5), array(rng, (4, 3, 2), "f32")], ()),
        (scatter_attributes("add", **windows), [x, indices(rng, (3, 2), 5), array(rng, (2, 3, 2), "f32")], ()),
        (scatter_attributes(**rows), [x, indices(rng, (9, 1), 4), array(rng, (9, 6), "f32")], body),
        (scatter_attributes(**along), [x, indices(rng, (4, 8, 1), 6), array(rng, (4, 8), "f32")], body),
        (scatter_attributes(**rows), [x, array(rng, (4, 6), "i32"), indices(rng, (9, 1), 4), array(rng, (9, 6), "f32"),
                                      array(rng, (9, 6), "i32")], (argmax_update_region(),)),
        (scatter_attributes("add", **rows), [x, indices(rng, (0, 1), 4), array(rng, (0, 6), "f32")], ()),
    ]


def convolution_numbers(inputs: str, kernel: str, outputs: str) -> Attributes:
    """From letters as StableHLO prints them: ``"bf01"``, ``"oi01"``, ``"bf01"``."""
    out: dict[str, Any] = {}
    for side, letters, outer, feature in (("input", inputs, "b", "f"), ("kernel", kernel, "o", "i"),
                                          ("output", outputs, "b", "f")):
        spatial = tuple(letters.index(str(i)) for i in range(len(letters) - 2))
        first = "output_feature" if side == "kernel" else "batch"
        second = "input_feature" if side == "kernel" else "feature"
        out |= {f"{side}_{first}_dimension": letters.index(outer), f"{side}_spatial_dimensions": spatial,
                f"{side}_{second}_dimension": letters.index(feature)}
    return Attributes(out)


def convolution_attributes(numbers: tuple[str, str, str] = ("bf01", "oi01", "bf01"), features: int = 1,
                           batches: int = 1, dtype: str = "f32", **window: Any) -> Attributes:
    return Attributes(window, dimension_numbers=convolution_numbers(*numbers), feature_group_count=features,
                      batch_group_count=batches, dtype=dtype)


@sampler
def convolution(rng: np.random.Generator) -> list[Sample]:
    same = {"padding": ((1, 1), (1, 1))}
    odd = {"padding": ((2, -1), (0, 3)), "window_strides": (2, 1), "lhs_dilation": (2, 1), "rhs_dilation": (1, 2),
           "window_reversal": (True, False)}
    nhwc = ("b01f", "01io", "b01f")
    mixed = ("f0b1", "1o0i", "0b1f")

    def sample(x: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Sample:
        return (convolution_attributes(**attrs), [array(rng, x, "f32"), array(rng, kernel, "f32")], ())

    return [
        sample((2, 3, 5, 6), (4, 3, 3, 3), **same),
        sample((2, 3, 7, 6), (4, 3, 3, 2), **odd),
        sample((2, 5, 6, 3), (1, 1, 3, 4), numbers=nhwc),
        sample((2, 5, 6, 3), (3, 3, 3, 4), numbers=nhwc, **same),
        sample((3, 5, 2, 6), (2, 4, 3, 3), numbers=mixed, **same),
        sample((2, 6, 5, 6), (9, 2, 3, 3), features=3, **same),
        sample((2, 3, 5, 6), (3, 1, 3, 3), features=3, **same),
        sample((2, 4, 5, 6), (8, 1, 2, 2), features=4),
        sample((6, 3, 5, 6), (6, 3, 3, 3), batches=3, **same),
        sample((3, 2, 5, 6), (3, 2, 3, 3), batches=3, **odd),
        sample((2, 3, 9), (4, 3, 4), numbers=("bf0", "oi0", "bf0"), window_strides=(3,)),
        sample((2, 3), (4, 3), numbers=("bf", "oi", "bf")),
        sample((2, 3, 4, 5, 3), (2, 3, 2, 2, 2), numbers=("bf012", "oi012", "bf012")),
        # Products: of a batch and the kernel's free dimension, and of all that is summed.
        sample((5, 2, 3, 1), (5, 4, 3, 6), numbers=("0bf1", "0oi1", "0bf1"), window_strides=(4, 1),
               padding=((0, 0), (5, 5)), lhs_dilation=(5, 1), window_reversal=(False, True)),
        sample((3, 4, 5, 2), (3, 4, 5, 2), numbers=("f01b", "i01o", "01bf")),
        # Sums that are exact in bf16.
        (convolution_attributes(dtype="bf16"),
         [rng.integers(-2, 3, shape).astype(ml_dtypes.bfloat16) for shape in ((2, 3, 5, 6), (4, 3, 3, 3))], ()),
        (convolution_attributes(dtype="i32"), [array(rng, (2, 3, 5, 6), "i8"), array(rng, (4, 3, 3, 3), "i8")], ()),
        (convolution_attributes(), [array(rng, (2, 3, 2, 6), "f32"), array(rng, (4, 3, 3, 3), "f32")], ()),
        (convolution_attributes(dtype="complex<f32>"),
         [array(rng, (2, 3, 4, 4), "complex<f32>"), array(rng, (4, 3, 2, 2), "complex<f32>")], ()),
    ]


def comparator(dtypes: tuple[str, ...], direction: str = "LT", keys: int = 1, kind: str | None = None) -> Region:
    """Lexicographic comparison of the first ``keys`` operands."""
    builder = RegionBuilder([TensorType((), d) for d in dtypes for _ in range(2)])
    result = None
    for key in reversed(range(keys)):
        pair = (2 * key, 2 * key + 1)
        (before,) = builder.add("compare", pair, {"comparison_direction": direction, "compare_type": kind})
        if result is not None:
            (equal,) = builder.add("compare", pair, {"comparison_direction": "EQ", "compare_type": kind})
            (tie,) = builder.add("and", (equal, result))
            (before,) = builder.add("or", (before, tie))
        result = before
    assert result is not None
    return builder.build([result])


@sampler
def sort(rng: np.random.Generator) -> list[Sample]:
    def sample(dtypes: tuple[str, ...], shape: tuple[int, ...], dimension: int, *more: Any) -> Sample:
        arrays = [array(rng, shape, d, special=True) for d in dtypes]
        return (Attributes(dimension=dimension, is_stable=True), arrays, (comparator(dtypes, *more),))

    few = [rng.integers(0, 3, (3, 9)).astype(np.int32) for _ in range(2)]
    return [
        sample(("f32",), (4, 6), 1, "LT", 1, "TOTALORDER"),
        sample(("f32", "i32"), (5, 3), 0, "GT", 1, "TOTALORDER"),
        sample(("i8", "f32", "ui8"), (4, 7), -1, "LT", 2),
        (Attributes(dimension=1, is_stable=True), [*few, array(rng, (3, 9), "bf16")],
         (comparator(("i32", "i32", "bf16"), "LT", 2),)),
        sample(("i32",), (4, 1), 1),
        sample(("i32",), (4, 0), 1),
        sample(("i64",), (2, 3, 4), 1, "GE"),
    ]


def top_k(rng: np.random.Generator) -> list[Sample]:
    return [
        (Attributes(k=k), [array(rng, shape, dtype, special=True)], ())
        for k, shape, dtype in ((2, (4, 6), "f32"), (6, (3, 6), "bf16"), (1, (5,), "i32"), (3, (2, 3, 5), "ui8"))
    ]


SAMPLES2["chlo.top_k"] = top_k


@sampler
def fft(rng: np.random.Generator) -> list[Sample]:
    return [
        (Attributes(fft_type=kind, fft_length=length), [array(rng, shape, dtype)], ())
        for kind, length, shape, dtype in (
            ("FFT", (6,), (4, 6), "complex<f32>"), ("IFFT", (4, 6), (3, 4, 6), "complex<f32>"),
            ("RFFT", (6,), (4, 6), "f32"), ("RFFT", (3, 4, 5), (2, 3, 4, 5), "f32"),
            ("IRFFT", (6,), (5, 4), "complex<f32>"), ("IRFFT", (4, 7), (2, 4, 4), "complex<f64>"),
            ("FFT", (1,), (4, 1), "complex<f32>"),
        )
    ]  # fmt: skip


def _positive(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    a = array(rng, shape, dtype)
    return np.asarray(a @ np.swapaxes(a.conj(), -1, -2) + 3 * np.eye(shape[-1])).astype(a.dtype)


@sampler
def cholesky(rng: np.random.Generator) -> list[Sample]:
    return [
        (Attributes(lower=lower), [_positive(rng, shape, dtype)], ())
        for lower, shape, dtype in ((True, (3, 5, 5), "f32"), (False, (4, 4), "f32"), (True, (1, 1), "f64"),
                                    (False, (2, 3, 3), "complex<f32>"), (True, (2, 3, 3), "complex<f64>"))
    ]


@sampler
def triangular_solve(rng: np.random.Generator) -> list[Sample]:
    out: list[Sample] = []
    for left, lower, unit, transpose, dtype in (
        (True, True, False, "NO_TRANSPOSE", "f32"), (True, False, False, "TRANSPOSE", "f32"),
        (False, True, False, "NO_TRANSPOSE", "f64"), (False, False, True, "TRANSPOSE", "f32"),
        (True, True, False, "ADJOINT", "complex<f32>"), (False, True, True, "ADJOINT", "complex<f32>"),
    ):  # fmt: skip
        a = array(rng, (2, 4, 4), dtype) / 4 + 2 * np.eye(4)
        b = array(rng, (2, 4, 3) if left else (2, 3, 4), dtype)
        attrs = Attributes(left_side=left, lower=lower, unit_diagonal=unit, transpose_a=transpose)
        out.append((attrs, [a.astype(b.dtype), b], ()))
    return out


@sampler
def rng_bit_generator(rng: np.random.Generator) -> list[Sample]:
    out: list[Sample] = []
    for algorithm, words in (("THREE_FRY", 2), ("PHILOX", 2), ("PHILOX", 3), ("DEFAULT", 2)):
        for shape, dtype in (((), "ui32"), ((3, 5), "ui32"), ((3, 4), "i32"), ((5, 3, 7), "ui64"), ((7,), "ui8"),
                             ((2, 2), "ui16")):
            # The counter is about to carry over.
            state = np.array([0x123456789ABCDEF, 2**64 - 2, 41][:words], np.uint64)
            out.append((Attributes(rng_algorithm=algorithm, shape=shape, dtype=dtype), [state], ()))
    return out


def countdown_regions() -> tuple[Region, Region]:
    """While n > 0: (n, x, step) to (n - 1, x + step, step)."""
    types = (TensorType((), "i32"), TensorType((3,), "f32"), TensorType((3,), "f32"))
    condition, body = RegionBuilder(types), RegionBuilder(types)
    (zero,) = condition.add("constant", (), {"value": Literal(np.array(0, np.int32))})
    compared = condition.add("compare", (0, zero), {"comparison_direction": "GT", "compare_type": None})
    (one,) = body.add("constant", (), {"value": Literal(np.array(1, np.int32))})
    (fewer,), (moved,) = body.add("subtract", (0, one)), body.add("add", (1, 2))
    return condition.build(compared), body.build([fewer, moved, 2])


@sampler
def while_(rng: np.random.Generator) -> list[Sample]:
    return [
        (Attributes(trip_count=count), [np.array(n, np.int32), array(rng, (3,), "f32"), array(rng, (3,), "f32")],
         countdown_regions())
        for n, count in ((5, 5), (0, 0), (-2, None))
    ]


def branch(name: str) -> Region:
    """Of (x, y): the unary op on x, and y."""
    builder = RegionBuilder((TensorType((4,), "f32"), TensorType((2,), "i32")))
    return builder.build([builder.add(name, (0,))[0], 1])


@sampler
def case(rng: np.random.Generator) -> list[Sample]:
    return [
        (Attributes(), [np.array(i, np.int32), array(rng, (4,), "f32"), array(rng, (2,), "i32")],
         tuple(map(branch, ("negate", "abs", "floor"))))
        for i in (-1, 0, 1, 2, 7)
    ]


@sampler
def if_(rng: np.random.Generator) -> list[Sample]:
    return [
        (Attributes(), [np.array(p), array(rng, (4,), "f32"), array(rng, (2,), "i32")],
         (branch("negate"), branch("abs")))
        for p in (True, False)
    ]


@sampler
def optimization_barrier(rng: np.random.Generator) -> list[Sample]:
    return [(Attributes(), [array(rng, (4, 3), "f32"), array(rng, (5,), "i1")], ())]


@sampler
def sharding_constraint(rng: np.random.Generator) -> list[Sample]:
    return [(Attributes(sharding="any hashable"), [array(rng, (4, 3), dtype)], ()) for dtype in ("f32", "i32", "i1")]


@sampler
def rotate(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), 0, 1), ((4, 6), 1, 5), ((4, 6), 1, 0), ((2, 7, 3), 1, 3), ((0, 4), 0, 0), ((1, 4), 0, 0))
    return [(Attributes(dimension=dim, amount=k), [array(rng, s, d)], ())
            for s, dim, k in cases for d in ("f32", "i1", "bf16")]


@sampler
def wrap(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), 0, 1, 1), ((4, 6), 1, 0, 6), ((4, 6), 1, 6, 2), ((2, 7), 0, 0, 0), ((0, 4), 0, 0, 0))
    return [(Attributes(dimension=dim, lhs=low, rhs=high), [array(rng, s, d)], ())
            for s, dim, low, high in cases for d in ("f32", "i32", "bf16")]


@sampler
def extend(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), 0, 1, 1, "edge"), ((4, 6), 1, 0, 9, "edge"), ((1, 6), 0, 2, 3, "edge"), ((0, 4), 0, 0, 0, "edge"),
             ((4, 6), 1, 5, 2, "reflect"), ((4, 6), 0, 0, 3, "reflect"), ((1, 4), 0, 0, 0, "reflect"),
             ((4, 6), 1, 6, 2, "symmetric"), ((4, 6), 0, 1, 4, "symmetric"), ((1, 4), 0, 1, 1, "symmetric"))
    return [(Attributes(dimension=dim, lhs=low, rhs=high, mode=mode), [array(rng, s, d)], ())
            for s, dim, low, high, mode in cases for d in ("f32", "i1", "bf16")]


@sampler
def update_slice(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), (2, 6), (2, 0)), ((4, 6), (1, 3), (0, 3)), ((4, 6), (4, 6), (0, 0)), ((4, 6), (0, 6), (4, 0)),
             ((), (), ()))
    return [(Attributes(start_indices=starts), [array(rng, s, d), array(rng, sizes, d)], ())
            for s, sizes, starts in cases for d in ("f32", "i32", "i1")]
