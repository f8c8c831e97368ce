"""Small instances of every op of the elementwise, movement, creation, contraction and reduction families.

``SAMPLES[name](rng)`` gives (attributes, operand arrays, regions) triples that the op accepts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eggshard.ops import registry
from eggshard.ops.neighbours.window_reduction import window_shape
from eggshard.ops.reductions.reduction import monoid_region
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Region
from eggshard.program.types import TensorType, is_float, mlir_dtype, numpy_dtype

Sample = tuple[Attributes, list[np.ndarray], tuple[Region, ...]]
Sampler = Callable[[np.random.Generator], list[Sample]]
SAMPLES: dict[str, Sampler] = {}

SPECIAL_FLOATS = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 3.0, 1e-3, 90.0, -110.0)
FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("i8", "i32", "i64", "ui8", "ui32", "i4")


def array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, special: bool = False) -> np.ndarray:
    """Random elements: small for floats, of the whole range for integers; ``special`` mixes in NaN, inf, -0."""
    kind = numpy_dtype(dtype)
    if dtype == "i1":
        return rng.random(shape) < 0.5
    if dtype.startswith("complex"):
        part = dtype[len("complex<") : -1]
        out = np.empty(shape, kind)
        out.real, out.imag = array(rng, shape, part), array(rng, shape, part)
        return out
    if is_float(dtype):
        out = rng.normal(size=shape) * 2
        if special:
            mask = rng.random(shape) < 0.4
            out = np.where(mask, rng.choice(SPECIAL_FLOATS, size=shape), out)
        return np.asarray(out).astype(kind)
    bits = 8 * kind.itemsize
    raw = np.asarray(rng.integers(0, 256, size=(*shape, bits // 8), dtype=np.uint8))
    out = raw.view(f"{'u' if dtype.startswith('u') else 'i'}{bits // 8}").reshape(shape)
    if special:
        out = np.where(rng.random(shape) < 0.5, rng.integers(0, 5, size=shape), out).astype(out.dtype)
    return out.astype(kind)


def _all_same(count: int, dtypes: tuple[str, ...], shape: tuple[int, ...] = (4, 6)) -> Sampler:
    def sampler(rng: np.random.Generator) -> list[Sample]:
        return [(Attributes(), [array(rng, shape, d, special=True) for _ in range(count)], ()) for d in dtypes]

    return sampler


COMPLEX = ("complex<f32>",)
SIGNED = ("i8", "i32", "i64", "i4")
for _names, _count, _dtypes in (
    ("ceil floor is_finite round_nearest_afz round_nearest_even", 1, FLOATS),
    ("chlo.is_inf chlo.is_pos_inf chlo.is_neg_inf", 1, FLOATS),
    ("cbrt", 1, FLOATS),
    ("cosine exponential exponential_minus_one log log_plus_one logistic rsqrt sine sqrt tan tanh", 1,
     FLOATS + COMPLEX),
    ("chlo.acos chlo.acosh chlo.asin chlo.asinh chlo.atan chlo.atanh chlo.cosh chlo.sinh chlo.tan", 1, FLOATS),
    ("chlo.bessel_i1e chlo.digamma chlo.erf chlo.erf_inv chlo.erfc chlo.lgamma", 1, ("f32", "f64", "bf16")),
    ("chlo.conj imag real", 1, COMPLEX),
    ("chlo.square", 1, FLOATS + COMPLEX),
    ("abs sign", 1, FLOATS + SIGNED + COMPLEX),
    ("negate", 1, FLOATS + INTEGERS + COMPLEX),
    ("not", 1, (*INTEGERS, "i1")),
    ("popcnt count_leading_zeros", 1, INTEGERS),
    ("add multiply", 2, (*FLOATS, *INTEGERS, *COMPLEX, "i1")),
    ("subtract", 2, FLOATS + INTEGERS + COMPLEX),
    ("divide remainder", 2, FLOATS + INTEGERS),
    ("maximum minimum", 2, (*FLOATS, *INTEGERS, "i1")),
    ("and or xor", 2, (*INTEGERS, "i1")),
    ("atan2", 2, FLOATS),
    ("chlo.next_after", 2, ("f32", "f64", "f16", "bf16")),
    ("complex", 2, ("f32", "f64")),
):
    for _name in _names.split():
        SAMPLES[_name] = _all_same(_count, _dtypes)


def sampler(function: Sampler) -> Sampler:
    """Register a sampler under the op's name: the function's, without the trailing underscore."""
    SAMPLES[function.__name__.rstrip("_")] = function
    return function


def _zeta(rng: np.random.Generator) -> list[Sample]:
    s, q = (rng.uniform(1.1, 6, (2, 4)).astype(np.float32) for _ in range(2))
    return [(Attributes(), [s, q], ())]


def _polygamma(rng: np.random.Generator) -> list[Sample]:
    n, x = rng.integers(0, 4, (2, 4)).astype(np.float32), rng.uniform(0.2, 20, (2, 4)).astype(np.float32)
    return [(Attributes(), [n, x], ())]


SAMPLES["chlo.zeta"], SAMPLES["chlo.polygamma"] = _zeta, _polygamma


def _shift(rng: np.random.Generator) -> list[Sample]:
    out: list[Sample] = []
    for dtype in INTEGERS:
        bits = 4 if dtype == "i4" else 8 * numpy_dtype(dtype).itemsize
        high = min(bits + 3, 8 if dtype == "i4" else bits + 3)
        amount = rng.integers(0, high, (4, 6)).astype(numpy_dtype(dtype))
        out.append((Attributes(), [array(rng, (4, 6), dtype), amount], ()))
    return out


for _name in ("shift_left", "shift_right_arithmetic", "shift_right_logical"):
    SAMPLES[_name] = _shift


@sampler
def power(rng: np.random.Generator) -> list[Sample]:
    out = _all_same(2, FLOATS)(rng)
    for dtype in ("i32", "ui8", "i8"):  # larger exponents than the bit width are not defined
        low = 0 if dtype.startswith("u") else -3
        exponent = rng.integers(low, 8, (4, 6)).astype(numpy_dtype(dtype))
        base = np.where(rng.random((4, 6)) < 0.4, rng.integers(low, 3, (4, 6)), array(rng, (4, 6), dtype))
        base = np.where((base == 0) & (exponent < 0), 5, base)
        out.append((Attributes(), [base.astype(exponent.dtype), exponent], ()))
    return out


@sampler
def compare(rng: np.random.Generator) -> list[Sample]:
    out: list[Sample] = []
    for direction in ("EQ", "NE", "LT", "LE", "GT", "GE"):
        for dtype, kinds in (("f32", ("FLOAT", "TOTALORDER", None)), ("bf16", ("FLOAT",)), ("i8", ("SIGNED", None)),
                             ("ui8", ("UNSIGNED",)), ("i1", (None,)), ("complex<f32>", ("FLOAT",))):
            if dtype.startswith("complex") and direction not in ("EQ", "NE"):
                continue
            for kind in kinds:
                x, y = array(rng, (4, 6), dtype, special=True), array(rng, (4, 6), dtype, special=True)
                y = np.where(rng.random(y.shape) < 0.3, x, y)
                out.append((Attributes(comparison_direction=direction, compare_type=kind), [x, y], ()))
    return out


@sampler
def select(rng: np.random.Generator) -> list[Sample]:
    out: list[Sample] = []
    for dtype in ("f32", "bf16", "i32", "i1", "complex<f32>"):
        x, y = array(rng, (4, 6), dtype, special=True), array(rng, (4, 6), dtype, special=True)
        out += [(Attributes(), [array(rng, shape, "i1"), x, y], ()) for shape in ((), (4, 6))]
    return out


@sampler
def clamp(rng: np.random.Generator) -> list[Sample]:
    out: list[Sample] = []
    for dtype in ("f32", "bf16", "i32", "ui8"):
        for shape in ((), (4, 6)):
            low, high = array(rng, shape, dtype), array(rng, shape, dtype)
            out.append((Attributes(), [np.minimum(low, high), array(rng, (4, 6), dtype, special=True),
                                       np.maximum(low, high)], ()))
    return out


@sampler
def convert(rng: np.random.Generator) -> list[Sample]:
    dtypes = ("f32", "f64", "f16", "bf16", "i1", "i8", "i32", "i64", "ui8", "ui32", "ui64", "i4")
    out: list[Sample] = []
    for source in dtypes:
        for target in dtypes:
            x = array(rng, (4, 6), source, special=True)
            if is_float(source) and target != "i1" and not is_float(target):
                scale = rng.choice([1.0, 100.0, 1e4], size=x.shape)
                with np.errstate(all="ignore"):
                    x = (x.astype(np.float64) * scale).astype(x.dtype)
            out.append((Attributes(dtype=target), [x], ()))
    for target in ("complex<f32>", "complex<f64>"):
        out.append((Attributes(dtype=target), [array(rng, (4, 6), "f32")], ()))
    return out


@sampler
def reduce_precision(rng: np.random.Generator) -> list[Sample]:
    out: list[Sample] = []
    for exponent, mantissa in ((8, 7), (5, 10), (5, 2), (8, 23), (4, 3), (2, 1)):
        out.append((Attributes(exponent_bits=exponent, mantissa_bits=mantissa),
                    [array(rng, (4, 6), "f32", special=True) * 1000 ** rng.integers(-3, 4, (4, 6)).astype("f4")], ()))
    return out


@sampler
def transpose(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), (1, 0)), ((2, 4, 6), (2, 0, 1)), ((4,), (0,)), ((), ()))
    return [(Attributes(permutation=p), [array(rng, s, d)], ()) for s, p in cases for d in ("f32", "i32", "i1")]


@sampler
def reshape(rng: np.random.Generator) -> list[Sample]:
    cases = (((8, 6), (2, 4, 6)), ((2, 4, 6), (8, 6)), ((4, 6), (6, 4)), ((6,), (2, 3)), ((1, 6, 1), (6,)),
             ((2, 3, 4), (3, 2, 4)), ((12, 4), (3, 4, 4)), ((2, 6), (4, 3)), ((), (1, 1)), ((0, 3), (0,)),
             ((4, 4, 3), (2, 8, 3)), ((2, 9, 4), (3, 6, 4)))
    return [(Attributes(shape=t), [array(rng, s, d)], ()) for s, t in cases for d in ("f32", "i1")]


@sampler
def broadcast_in_dim(rng: np.random.Generator) -> list[Sample]:
    cases = (((), (), (2, 4)), ((4,), (1,), (2, 4)), ((4, 2), (2, 0), (2, 3, 4)), ((1, 4), (0, 1), (6, 4)),
             ((1,), (0,), (1, 2)), ((4, 6), (0, 1), (4, 6)))
    return [(Attributes(broadcast_dimensions=d, shape=t), [array(rng, s, e)], ())
            for s, d, t in cases for e in ("f32", "i32")]


@sampler
def slice_(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), (0, 0), (4, 6), (1, 1)), ((4, 6), (1, 0), (3, 6), (1, 1)), ((4, 6), (0, 1), (4, 6), (1, 2)),
             ((4, 6), (2, 3), (2, 6), (1, 1)), ((4, 6), (2, 1), (3, 6), (1, 2)), ((4, 6), (3, 0), (4, 6), (1, 6)),
             ((), (), (), ()))
    return [(Attributes(start_indices=a, limit_indices=b, strides=c), [array(rng, s, d)], ())
            for s, a, b, c in cases for d in ("f32", "i1")]


@sampler
def pad(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), (0, 0), (0, 0), (0, 0)), ((4, 6), (1, 0), (2, 0), (0, 0)), ((4, 6), (0, -1), (0, 2), (0, 1)),
             ((4, 6), (-1, -2), (-1, 3), (2, 0)), ((3,), (2,), (-2,), (1,)), ((0, 2), (1, 0), (1, 0), (1, 0)))
    return [(Attributes(edge_padding_low=a, edge_padding_high=b, interior_padding=c),
             [array(rng, s, d), array(rng, (), d)], ()) for s, a, b, c in cases for d in ("f32", "i32")]


@sampler
def concatenate(rng: np.random.Generator) -> list[Sample]:
    cases = ((((4, 6), (4, 2)), 1), (((4, 6), (2, 6), (1, 6)), 0), (((4, 6),), 0), (((2, 4), (0, 4)), 0))
    return [(Attributes(dimension=dim), [array(rng, s, d) for s in shapes], ())
            for shapes, dim in cases for d in ("f32", "i1")]


@sampler
def reverse(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), (0,)), ((4, 6), (0, 1)), ((4, 6), ()), ((2, 4, 6), (2, 0)))
    return [(Attributes(dimensions=d), [array(rng, s, e)], ()) for s, d in cases for e in ("f32", "i32")]


@sampler
def bitcast_convert(rng: np.random.Generator) -> list[Sample]:
    cases = (("f32", (4, 6), "i32"), ("f32", (4, 6), "i16"), ("i16", (4, 6, 2), "f32"), ("f64", (4,), "ui8"),
             ("ui8", (4, 8), "f64"), ("bf16", (4, 2), "i16"), ("f32", (), "ui32"), ("f32", (), "i8"))
    return [(Attributes(dtype=t, shape=_bitcast_shape(s, d, t)), [array(rng, s, d)], ()) for d, s, t in cases]


def _bitcast_shape(shape: tuple[int, ...], source: str, target: str) -> tuple[int, ...]:
    old, new = numpy_dtype(source).itemsize, numpy_dtype(target).itemsize
    return shape if old == new else (*shape, old // new) if old > new else shape[:-1]


@sampler
def constant(rng: np.random.Generator) -> list[Sample]:
    arrays = [array(rng, s, d, special=True) for d in (*FLOATS, *INTEGERS, "i1") for s in ((), (2, 4), (10, 10))]
    arrays += [np.full((4, 6), v, np.float32) for v in (0.0, -0.0, np.nan, np.inf, 0.1)]
    return [(Attributes(value=Literal(a)), [], ()) for a in arrays]


@sampler
def iota(rng: np.random.Generator) -> list[Sample]:
    return [(Attributes(shape=s, dtype=d, iota_dimension=i), [], ())
            for s, i in (((4,), 0), ((4, 6), 1), ((4, 6), 0)) for d in ("i32", "f32", "bf16", "ui8", "complex<f32>")]


def _numbers(lb: tuple[int, ...], rb: tuple[int, ...], lc: tuple[int, ...], rc: tuple[int, ...]) -> Attributes:
    return Attributes(lhs_batching_dimensions=lb, rhs_batching_dimensions=rb,
                      lhs_contracting_dimensions=lc, rhs_contracting_dimensions=rc)


@sampler
def dot_general(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), (6, 2), _numbers((), (), (1,), (0,))), ((2, 4, 6), (6, 2, 4), _numbers((0,), (1,), (2,), (0,))),
             ((4, 2, 6), (6, 2), _numbers((), (), (2, 1), (0, 1))), ((4,), (4,), _numbers((), (), (0,), (0,))),
             ((4,), (6,), _numbers((), (), (), ())), ((2, 3), (2, 3), _numbers((0, 1), (0, 1), (), ())))
    out: list[Sample] = []
    for left, right, numbers in cases:
        for source, target in (("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32"), ("i8", "i32"), ("f64", "f64")):
            attrs = Attributes(dot_dimension_numbers=numbers, dtype=target, algorithm=None,
                               precision_config=("DEFAULT", "HIGHEST"))
            operands = [array(rng, shape, source) for shape in (left, right)]
            if source == "bf16":  # small whole numbers, whose sums are exact in any order
                operands = [np.rint(a.astype(np.float32)).astype(a.dtype) for a in operands]
            out.append((attrs, operands, ()))
    return out


@sampler
def dot(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), (6, 2)), ((6,), (6, 2)), ((4, 6), (6,)), ((6,), (6,)))
    return [(Attributes(dtype="f32", precision_config=None), [array(rng, a, "f32"), array(rng, b, "f32")], ())
            for a, b in cases]


MONOID_DTYPES = {"add": ("f32", "bf16", "i32", "complex<f32>"), "mul": ("f32", "i8"), "max": ("f32", "i8", "i1", "ui8"),
                 "min": ("f64", "i32", "bf16"), "and": ("i1", "i32", "ui8"), "or": ("i1", "i8"), "xor": ("i1", "i32")}


@sampler
def reduce(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), (0,)), ((4, 6), (0, 1)), ((2, 4, 6), (1,)), ((4, 6), ()), ((0, 4), (0,)))
    return [(Attributes(dimensions=dims, monoid=monoid), [array(rng, s, d, special=monoid in ("max", "min"))], ())
            for s, dims in cases for monoid, dtypes in MONOID_DTYPES.items() for d in dtypes]


@sampler
def reduce_window(rng: np.random.Generator) -> list[Sample]:
    cases = (((4, 6), (2, 1), (1, 1), (1, 1), (1, 1), ((1, 0), (0, 0))),
             ((4, 6), (2, 3), (2, 1), (1, 2), (1, 2), ((0, 1), (2, 2))),
             ((4, 6), (4, 1), (1, 1), (1, 1), (1, 1), ((3, 0), (0, 0))),
             ((6,), (6,), (1,), (1,), (1,), ((0, 5),)),
             ((6,), (3,), (2,), (1,), (1,), ((-1, 2),)),
             ((4, 6), (1, 1), (1, 1), (1, 1), (1, 1), ((0, 0), (0, 0))))
    out: list[Sample] = []
    for shape, size, stride, base, dilation, padding in cases:
        for monoid, dtype in (("add", "f32"), ("max", "f32"), ("min", "i32"), ("or", "i1"), ("mul", "f32"),
                              ("add", "bf16")):
            attrs = Attributes(window_dimensions=size, window_strides=stride, base_dilations=base,
                               window_dilations=dilation, padding=padding, monoid=monoid)
            out.append((attrs, [array(rng, shape, dtype, special=monoid == "max")], ()))
    return out


def argmax_region(value: str = "f32", index: str = "i32") -> Region:
    """JAX's reducer of argmax: (value, index, value, index) to the larger value, ties to the lower index."""
    builder = RegionBuilder([TensorType((), d) for d in (value, index, value, index)])

    def add(name: str, *operands: int, **attributes: str) -> int:
        return builder.add(name, operands, attributes)[0]

    def compare_(x: int, y: int, direction: str, kind: str) -> int:
        return add("compare", x, y, comparison_direction=direction, compare_type=kind)

    greater = add("or", compare_(0, 2, "GT", "FLOAT"), compare_(0, 0, "NE", "FLOAT"))
    tied = add("and", compare_(0, 2, "EQ", "FLOAT"), compare_(1, 3, "LT", "SIGNED"))
    first = add("or", greater, tied)
    return builder.build((add("select", greater, 0, 2), add("select", first, 1, 3)))


def scalar_reshaping_region() -> Region:
    """An adder that is not made of pointwise ops alone."""
    scalar = TensorType((), "f32")
    builder = RegionBuilder([scalar, scalar])
    (row,) = builder.add("reshape", (0,), {"shape": (1,)})
    (back,) = builder.add("reshape", (row,), {"shape": ()})
    return builder.build(builder.add("add", (back, 1)))


def _argmax_operands(rng: np.random.Generator, shape: tuple[int, ...], dim: int) -> list[np.ndarray]:
    x = rng.integers(-3, 4, shape).astype(np.float32)
    index = np.broadcast_to(np.arange(shape[dim]).reshape((-1,) + (1,) * (len(shape) - dim - 1)), shape)
    return [x, index.astype(np.int32), np.array(-np.inf, np.float32), np.array(0, np.int32)]


@sampler
def reduce_general(rng: np.random.Generator) -> list[Sample]:
    out: list[Sample] = []
    for shape, dim in (((5, 6), 0), ((4, 6), 1), ((2, 7, 2), 1)):
        out.append((Attributes(dimensions=(dim,)), _argmax_operands(rng, shape, dim), (argmax_region(),)))
    summed = [array(rng, (4, 3), "f32"), np.array(0, np.float32)]
    return [*out, (Attributes(dimensions=(0,)), summed, (scalar_reshaping_region(),))]


@sampler
def reduce_window_general(rng: np.random.Generator) -> list[Sample]:
    attrs = Attributes(window_dimensions=(3, 1), window_strides=(1, 1), base_dilations=(1, 1),
                       window_dilations=(1, 1), padding=((1, 1), (0, 0)))
    return [(attrs, _argmax_operands(rng, (5, 6), 0), (argmax_region(),))]


@sampler
def select_and_scatter(rng: np.random.Generator) -> list[Sample]:
    scalar = TensorType((), "f32")
    builder = RegionBuilder([scalar, scalar])
    keep = builder.build(builder.add("compare", (0, 1), {"comparison_direction": "GE", "compare_type": "FLOAT"}))
    cases = (((4, 6), (2, 1), (2, 1), ((0, 0), (0, 0))), ((6, 6), (3, 2), (1, 2), ((1, 1), (0, 0))),
             ((2, 5, 5), (1, 3, 3), (1, 2, 2), ((0, 0), (1, 1), (0, 2))))
    out: list[Sample] = []
    for shape, size, stride, padding in cases:
        attrs = Attributes(window_dimensions=size, window_strides=stride, padding=padding)
        source = window_shape(attrs, shape)
        operands = [array(rng, shape, "f32"), array(rng, source, "f32"), np.array(0, np.float32)]
        out.append((attrs, operands, (keep, monoid_region("add", "f32"))))
    return out


def types_of(arrays: list[np.ndarray]) -> tuple[TensorType, ...]:
    return tuple(TensorType(a.shape, mlir_dtype(a.dtype)) for a in arrays)


def one_op_region(name: str, attrs: Attributes, types: tuple[TensorType, ...], regions: tuple[Region, ...]) -> Region:
    """A region that is just this op."""
    builder = RegionBuilder(types)
    return builder.build(builder.add(name, range(len(types)), attrs, regions))


def missing(families: tuple[str, ...]) -> list[str]:
    """Ops defined in these modules of eggshard.ops that have no sample here."""
    modules = {f"eggshard.ops.{family}" for family in families}
    return [n for n in registry.names() if type(registry.get(n)).__module__ in modules and n not in SAMPLES]
