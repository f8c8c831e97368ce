"""Random ops whose tensors correspond index by index, or are moved, cut and joined."""

from __future__ import annotations

import math

from tests.shardy.rules.body import Body, array, combiner, matrix, tensor

FLOATS = (
    "abs cbrt ceil convert cosine exponential exponential_minus_one floor log log_plus_one logistic negate "
    "round_nearest_afz round_nearest_even rsqrt sign sine sqrt tan tanh"
).split()
INTEGERS = "abs count_leading_zeros not popcnt negate sign".split()
BINARY = "add atan2 divide maximum minimum multiply power remainder subtract".split()
BITS = "and or xor shift_left shift_right_arithmetic shift_right_logical".split()


def pointwise(body: Body) -> None:
    shape = body.shape()
    f32, i32 = tensor(shape), tensor(shape, "i32")
    x, y, k = body.argument(shape), body.argument(shape), body.argument(shape, "i32")
    p = body.argument(body.random.choice([shape, []]), "i1")
    z = body.argument(shape, "complex<f32>")
    body.op(f"stablehlo.{body.any(*FLOATS)}", [x], [f32])
    body.op(f"stablehlo.{body.any(*INTEGERS)}", [k], [i32])
    body.op(f"stablehlo.{body.any(*BINARY)}", [x, y], [f32])
    body.op(f"stablehlo.{body.any(*BITS)}", [k, k], [i32])
    body.op("stablehlo.convert", [x], [tensor(shape, "bf16")])
    body.op("stablehlo.compare", [x, y], [tensor(shape, "i1")],
            "comparison_direction = #stablehlo<comparison_direction LT>")
    body.op("stablehlo.complex", [x, y], [tensor(shape, "complex<f32>")])
    body.op(f"stablehlo.{body.any('real', 'imag')}", [z], [f32])
    body.op("stablehlo.is_finite", [x], [tensor(shape, "i1")])
    body.op("stablehlo.reduce_precision", [x], [f32], "exponent_bits = 5 : i32, mantissa_bits = 3 : i32")
    body.op("stablehlo.select", [p, x, y], [f32])
    low, high = (body.argument(body.random.choice([shape, []])) for _ in range(2))
    body.op("stablehlo.clamp", [low, x, high], [f32])
    body.op("sdy.sharding_constraint", [x], [f32],
            f"sharding = #sdy.sharding<@mesh, [{', '.join('{?}' for _ in shape)}]>")


def batch_norm(body: Body) -> None:
    shape = body.shape(1)
    feature = body.random.randrange(len(shape))
    parts = [body.argument([shape[feature]]) for _ in range(4)]
    body.op("stablehlo.batch_norm_inference", [body.argument(shape), *parts], [tensor(shape)],
            f"epsilon = 0.1 : f32, feature_index = {feature} : i64")


def movement(body: Body) -> None:
    shape = body.shape()
    x = body.argument(shape)
    order = body.shuffled(range(len(shape)))
    body.op("stablehlo.transpose", [x], [tensor([shape[d] for d in order])], f"permutation = {array(order)}")
    body.op("stablehlo.reverse", [x], [tensor(shape)], f"dimensions = {array(body.some(range(len(shape))))}")
    result = body.shape(len(shape), 5)
    dims = body.shuffled(range(len(result)))[: len(shape)]
    source = [body.random.choice((1, result[d])) for d in dims]
    body.op("stablehlo.broadcast_in_dim", [body.argument(source)], [tensor(result)],
            f"broadcast_dimensions = {array(dims)}")
    narrow, wide, parts = body.random.choice([("i8", "f32", 4), ("f32", "f64", 2), ("f32", "i32", 0)])
    with_parts = tensor([*shape, parts] if parts else shape, narrow)
    operand = body.argument([*shape, parts] if parts else shape, narrow)
    body.op("stablehlo.bitcast_convert", [operand], [tensor(shape, wide)])
    body.op("stablehlo.bitcast_convert", [body.argument(shape, wide)], [with_parts])


def _split(body: Body, primes: list[int], keep_order: bool) -> list[int]:
    """Dimensions that multiply to the same."""
    parts = primes if keep_order else body.shuffled(primes)
    shape: list[int] = []
    for prime in parts:
        while body.random.random() < 0.15:
            shape.append(1)
        if shape and body.random.random() < 0.55:
            shape[-1] *= prime
        else:
            shape.append(prime)
    return shape + [1] * (body.random.random() < 0.2)


def reshape(body: Body) -> None:
    primes = [body.random.choice((2, 2, 2, 3, 3, 5, 7)) for _ in range(body.random.randint(0, 7))]
    source, target = (_split(body, primes, body.random.random() < 0.6) for _ in range(2))
    if body.random.random() < 0.05:
        source, target = [*source, 0], [0, *target]
    body.op("stablehlo.reshape", [body.argument(source)], [tensor(target)])


def slicing(body: Body) -> None:
    shape = body.shape()
    x, rank = body.argument(shape), len(shape)
    cut = [(n and body.random.randint(0, n - 1), body.random.choice((1, 1, 1, 2, 3))) for n in shape]
    changed = body.some(range(rank))
    starts = [cut[d][0] if d in changed else 0 for d in range(rank)]
    strides = [cut[d][1] if d in changed else 1 for d in range(rank)]
    sizes = [math.ceil((n - s) / k) for n, s, k in zip(shape, starts, strides, strict=True)]
    body.op("stablehlo.slice", [x], [tensor(sizes)], f"start_indices = {array(starts)}, "
            f"limit_indices = {array(shape)}, strides = {array(strides)}")
    low, high, inner = ([body.random.choice((0, 0, 0, 1, 2)) for _ in shape] for _ in range(3))
    padded = [n + a + b + max(0, n - 1) * i for n, a, b, i in zip(shape, low, high, inner, strict=True)]
    body.op("stablehlo.pad", [x, body.argument([])], [tensor(padded)], f"edge_padding_low = {array(low)}, "
            f"edge_padding_high = {array(high)}, interior_padding = {array(inner)}")
    part = [body.random.randint(0, n) if d in changed else n for d, n in enumerate(shape)]
    start = [body.argument([], "i32") for _ in shape]
    body.op("stablehlo.dynamic_slice", [x, *start], [tensor(part)], f"slice_sizes = {array(part)}")
    if body.random.random() < 0.4:
        start = [body.op("stablehlo.constant", [], [tensor([], "i32")], "value = dense<0> : tensor<i32>")[0]
                 for _ in shape]
    body.op("stablehlo.dynamic_update_slice", [x, body.argument(part), *start], [tensor(shape)])


def concatenate(body: Body) -> None:
    shape = body.filled(1)
    dim, count = body.random.randrange(len(shape)), body.random.randint(1, 4)
    kinds = body.any("argument", "slice", "same", "same or slice", "slice of one", "any")
    whole = [*shape[:dim], shape[dim] + 1, *shape[dim + 1 :]]
    one, joined = body.argument(whole), 0
    operands = []
    for _ in range(count):
        kind = kinds if kinds != "any" else body.any("argument", "slice", "same", "slice of one")
        if kind == "same or slice":
            kind = body.any("same", "slice of one")
        source = one if "same" in kind or "one" in kind else body.argument(whole)
        if "slice" in kind:
            (source,) = body.op("stablehlo.slice", [source], [tensor(shape)],
                                f"start_indices = {array([0] * len(shape))}, limit_indices = {array(shape)}, "
                                f"strides = {array([1] * len(shape))}")
        operands.append(source)
        joined += shape[dim] if "slice" in kind else whole[dim]
    body.op("stablehlo.concatenate", operands, [tensor([*shape[:dim], joined, *shape[dim + 1 :]])],
            f"dimension = {dim} : i64")


def collectives(body: Body) -> None:
    groups = f"replica_groups = {matrix([[0, 1]])}, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
    shape = [2 * n for n in body.filled(1)]
    x, y, rank = body.argument(shape), body.argument(shape), len(shape)
    dim, other = body.random.randrange(rank), body.random.randrange(rank)
    adding = combiner("add")
    count = body.random.randint(1, 2)
    operands, types = [x, y][:count], [tensor(shape)] * count
    body.op("stablehlo.all_reduce", operands, types, groups, adding)
    body.op("stablehlo.collective_permute", [x], [tensor(shape)], f"source_target_pairs = {matrix([[0, 1]])}")
    body.op("stablehlo.collective_broadcast", [x], [tensor(shape)], f"replica_groups = {matrix([[0, 1]])}")

    def scaled(*factors: tuple[int, float]) -> list[int]:
        out = list(shape)
        for place, factor in factors:
            out[place] = int(out[place] * factor)
        return out

    body.op("stablehlo.all_gather", operands, [tensor(scaled((dim, 2)))] * count,
            f"all_gather_dim = {dim} : i64, {groups}")
    body.op("stablehlo.reduce_scatter", [x], [tensor(scaled((dim, 0.5)))],
            f"scatter_dimension = {dim} : i64, {groups}", adding)
    body.op("stablehlo.all_to_all", operands, [tensor(scaled((dim, 0.5), (other, 2)))] * count,
            f"split_dimension = {dim} : i64, concat_dimension = {other} : i64, split_count = 2 : i64, {groups}")
