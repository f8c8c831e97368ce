"""The ops that random modules are made of: each writes one, with operands it finds or makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

#: Writers of ops by name.
FAMILIES: dict[str, Callable[[Any], None]] = {}


def family(write: Callable[[Any], None]) -> Callable[[Any], None]:
    """Register the writer of an op, under its name without a trailing underscore."""
    FAMILIES[write.__name__.rstrip("_")] = write
    return write


def array(values: Sequence[int]) -> str:
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"


def scalar_region(op: str, dtype: str = "f32") -> str:
    """A region that combines two scalars."""
    t = f"tensor<{dtype}>"
    return (
        f"{{\n^bb0(%lhs: {t}, %rhs: {t}):\n"
        f'%both = "{op}"(%lhs, %rhs) : ({t}, {t}) -> {t}\n"stablehlo.return"(%both) : ({t}) -> ()}}'
    )


# -- arithmetic ------------------------------------------------------------------------------------------------------


@family
def elementwise(w: Any) -> None:
    a = w.operand()
    kind = w.rng.choice(("unary", "binary", "binary", "binary", "select", "clamp"))
    if kind == "unary":
        w.emit(f"stablehlo.{w.rng.choice(('negate', 'abs', 'tanh', 'cosine'))}", [a], [(a.shape, "f32")])
        return
    b = w.operand(lambda v: v.shape == a.shape, a.shape)
    if kind == "binary":
        op = w.rng.choice(("add", "multiply", "subtract", "maximum", "minimum"))
        w.emit(f"stablehlo.{op}", [a, b], [(a.shape, "f32")])
    elif kind == "select":
        attributes = "comparison_direction = #stablehlo<comparison_direction LT>"
        (p,) = w.emit("stablehlo.compare", [a, b], [(a.shape, "i1")], attributes)
        w.emit("stablehlo.select", [p, a, b], [(a.shape, "f32")])
    else:
        low, high = w.constant((), value="-1.0"), w.constant((), value="1.0")
        w.emit("stablehlo.clamp", [low, a, high], [(a.shape, "f32")])


@family
def dot(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) >= 2, w.shape(w.rng.choice((2, 2, 3))))
    batch = [0] if len(a.shape) == 3 and w.maybe(0.6) else []
    contracted = w.rng.choice([i for i in range(len(a.shape)) if i not in batch])
    free = w.size()
    rest = [a.shape[contracted], free]
    order = w.rng.choice(((0, 1), (1, 0)))
    shape = (*[a.shape[i] for i in batch], *[rest[i] for i in order])
    b = w.operand(lambda v: v.shape == shape, shape)
    at = len(batch) + order.index(0)
    numbers = (
        f"dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = {batch}, rhs_batching_dimensions = {batch}, "
        f"lhs_contracting_dimensions = [{contracted}], rhs_contracting_dimensions = [{at}]>"
    )
    result = [a.shape[i] for i in batch] + [n for i, n in enumerate(a.shape) if i not in (*batch, contracted)] + [free]
    w.emit("stablehlo.dot_general", [a, b], [(result, "f32")], numbers)


@family
def reduce(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) >= 1, w.shape(2))
    dims = sorted(w.rng.sample(range(len(a.shape)), k=w.rng.randint(1, max(1, len(a.shape) - 1))))
    zero = w.constant((), value="0.0")
    shape = [n for i, n in enumerate(a.shape) if i not in dims]
    op = w.rng.choice(("stablehlo.add", "stablehlo.maximum"))
    w.emit("stablehlo.reduce", [a, zero], [(shape, "f32")], f"dimensions = {array(dims)}", [scalar_region(op)])


@family
def cholesky(w: Any) -> None:
    n = w.size()
    a = w.operand(lambda v: len(v.shape) >= 2 and v.shape[-1] == v.shape[-2], (w.size(), n, n))
    w.emit("stablehlo.cholesky", [a], [(a.shape, "f32")], "lower = true")


@family
def sort(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) >= 1, w.shape(2))
    b = w.operand(lambda v: v.shape == a.shape, a.shape)
    t = "tensor<f32>"
    region = (
        f"{{\n^bb0(%a: {t}, %b: {t}, %c: {t}, %d: {t}):\n"
        f'%less = "stablehlo.compare"(%a, %b) {{comparison_direction = #stablehlo<comparison_direction LT>}}'
        f' : ({t}, {t}) -> tensor<i1>\n"stablehlo.return"(%less) : (tensor<i1>) -> ()}}'
    )
    attributes = f"dimension = {w.rng.randrange(len(a.shape))} : i64, is_stable = true"
    w.emit("stablehlo.sort", [a, b], [(a.shape, "f32")] * 2, attributes, [region])


@family
def custom_call(w: Any) -> None:
    a = w.operand()
    w.emit("stablehlo.custom_call", [a], [(a.shape, "f32")], 'call_target_name = "unknown_to_everyone"')


# -- moving elements -------------------------------------------------------------------------------------------------


@family
def transpose(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) >= 2, w.shape(2))
    order = w.rng.sample(range(len(a.shape)), k=len(a.shape))
    w.emit("stablehlo.transpose", [a], [([a.shape[i] for i in order], "f32")], f"permutation = {array(order)}")


@family
def reshape(w: Any) -> None:
    a = w.operand()
    shape = list(a.shape)
    at = w.rng.randrange(len(shape)) if shape else 0
    splits = [k for k in (2, 3, 4) if shape and shape[at] % k == 0 and shape[at] > k]
    if splits and w.maybe(0.5) and len(shape) < 4:
        k = w.rng.choice(splits)
        shape[at : at + 1] = w.rng.choice(([k, shape[at] // k], [shape[at] // k, k]))
    elif len(shape) > 1 and at + 1 < len(shape):
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    else:
        shape.insert(at, 1)
    w.emit("stablehlo.reshape", [a], [(shape, "f32")])


@family
def broadcast(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) < 3, w.shape(1))
    at = w.rng.randint(0, len(a.shape))
    shape = [*a.shape[:at], w.size(), *a.shape[at:]]
    dims = [i for i in range(len(shape)) if i != at]
    w.emit("stablehlo.broadcast_in_dim", [a], [(shape, "f32")], f"broadcast_dimensions = {array(dims)}")


@family
def slice_(w: Any) -> None:
    a = w.operand(lambda v: any(n > 1 for n in v.shape), w.shape(2))
    start, limit, strides = [0] * len(a.shape), list(a.shape), [1] * len(a.shape)
    for i in [i for i, n in enumerate(a.shape) if n > 1][: w.rng.randint(1, 2)]:
        start[i] = w.rng.randrange(a.shape[i])
        limit[i] = w.rng.randint(start[i] + 1, a.shape[i])
        strides[i] = w.rng.choice((1, 1, 2))
    shape = [-(-(e - s) // k) for s, e, k in zip(start, limit, strides, strict=True)]
    attributes = f"start_indices = {array(start)}, limit_indices = {array(limit)}, strides = {array(strides)}"
    w.emit("stablehlo.slice", [a], [(shape, "f32")], attributes)


@family
def pad(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) >= 1, w.shape(2))
    low, high = [0] * len(a.shape), [0] * len(a.shape)
    interior = [0] * len(a.shape)
    at = w.rng.randrange(len(a.shape))
    low[at], high[at], interior[at] = w.rng.choice((0, 1, 2)), w.rng.choice((0, 1, 3)), w.rng.choice((0, 0, 0, 1))
    shape = [
        lo + n + hi + inner * max(0, n - 1) for lo, n, hi, inner in zip(low, a.shape, high, interior, strict=True)
    ]
    attributes = (
        f"edge_padding_low = {array(low)}, edge_padding_high = {array(high)}, interior_padding = {array(interior)}"
    )
    w.emit("stablehlo.pad", [a, w.constant((), value="0.0")], [(shape, "f32")], attributes)


@family
def concatenate(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) >= 1, w.shape(2))
    at = w.rng.randrange(len(a.shape))

    def joins(v: Any) -> bool:
        return len(v.shape) == len(a.shape) and all(v.shape[i] == n for i, n in enumerate(a.shape) if i != at)

    b = w.operand(joins, a.shape)
    shape = [n + b.shape[i] if i == at else n for i, n in enumerate(a.shape)]
    w.emit("stablehlo.concatenate", [a, b], [(shape, "f32")], f"dimension = {at} : i64")


@family
def reverse(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) >= 1, w.shape(2))
    at = w.rng.randrange(len(a.shape))
    w.emit("stablehlo.reverse", [a], [(a.shape, "f32")], f"dimensions = {array([at])}")


@family
def dynamic_slice(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) >= 1 and 0 not in v.shape, w.shape(2))
    sizes = [w.rng.choice((n, n, max(1, n // 2))) for n in a.shape]
    starts = [w.constant((), "i32", "1") for _ in a.shape]
    w.emit("stablehlo.dynamic_slice", [a, *starts], [(sizes, "f32")], f"slice_sizes = {array(sizes)}")


@family
def dynamic_update_slice(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) >= 1 and 0 not in v.shape, w.shape(2))
    sizes = tuple(w.rng.choice((n, n, max(1, n // 2))) for n in a.shape)
    b = w.operand(lambda v: v.shape == sizes, sizes)
    starts = [w.constant((), "i32", "1") for _ in a.shape]
    w.emit("stablehlo.dynamic_update_slice", [a, b, *starts], [(a.shape, "f32")])


@family
def iota(w: Any) -> None:
    shape = w.shape(w.rng.choice((1, 2)))
    w.emit("stablehlo.iota", [], [(shape, "f32")], f"iota_dimension = {w.rng.randrange(len(shape))} : i64")


@family
def gather(w: Any) -> None:
    """Rows of a table."""
    a = w.operand(lambda v: len(v.shape) == 2 and 0 not in v.shape, w.shape(2))
    count = w.size()
    rows = w.constant((count, 1), "i32", "1")
    attributes = (
        "dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], "
        f"index_vector_dim = 1>, slice_sizes = {array((1, a.shape[1]))}, indices_are_sorted = false"
    )
    w.emit("stablehlo.gather", [a, rows], [((count, a.shape[1]), "f32")], attributes)


@family
def reduce_window(w: Any) -> None:
    a = w.operand(lambda v: len(v.shape) == 2 and min(v.shape) > 2, (8, 8))
    at = w.rng.randrange(2)
    window = [3 if i == at else 1 for i in range(2)]
    shape = [n - k + 1 for n, k in zip(a.shape, window, strict=True)]
    attributes = f"window_dimensions = {array(window)}"
    zero = w.constant((), value="0.0")
    w.emit("stablehlo.reduce_window", [a, zero], [(shape, "f32")], attributes, [scalar_region("stablehlo.add")])


@family
def convolution(w: Any) -> None:
    batch, features, out = w.size(), w.size(), w.size()
    a, k = w.argument((batch, 8, features)), w.argument((3, features, out))
    attributes = (
        "batch_group_count = 1 : i64, feature_group_count = 1 : i64, padding = dense<1> : tensor<1x2xi64>, "
        "dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, window_strides = array<i64: 1>"
    )
    w.emit("stablehlo.convolution", [a, k], [((batch, 8, out), "f32")], attributes)


# -- Shardy's ops, constants and calls ---------------------------------------------------------------------------------


@family
def constraint(w: Any) -> None:
    a = w.operand()
    attributes = f"sharding = #sdy.sharding{w.bound(w.sharding(a.shape))}"
    w.emit("sdy.sharding_constraint", [a], [(a.shape, "f32")], attributes, stated=False)


@family
def reshard(w: Any) -> None:
    a = w.operand()
    attributes = f"sharding = #sdy.sharding{w.bound(w.sharding(a.shape, open=0.0))}"
    w.emit("sdy.reshard", [a], [(a.shape, "f32")], attributes, stated=False)


@family
def group(w: Any) -> None:
    a = w.operand()
    same = [v for v in w.function.values if v.shape == a.shape and v.dtype == "f32"]
    number = 10 * math.prod(a.shape) + len(a.shape)  # of one shape, by and large
    shapes = w.__dict__.setdefault("groups", {})
    while shapes.setdefault(number, a.shape) != a.shape:
        number += 1
    for v in w.rng.sample(same, k=min(2, len(same))):
        w.emit("sdy.sharding_group", [v], [], f"group_id = {number} : i64", stated=False)


@family
def constant(w: Any) -> None:
    """A constant and its use."""
    a = w.operand()
    b = w.constant(a.shape)
    w.emit("stablehlo.add", [a, b], [(a.shape, "f32")])


@family
def expansion(w: Any) -> None:
    """A scalar that is broadcast, and its use; the scalar may be an argument."""
    a = w.operand()
    s = w.operand(lambda v: v.shape == (), ()) if w.maybe(0.4) else w.constant(())
    (b,) = w.emit("stablehlo.broadcast_in_dim", [s], [(a.shape, "f32")], f"broadcast_dimensions = {array([])}")
    w.emit("stablehlo.multiply", [a, b], [(a.shape, "f32")])


@family
def call(w: Any) -> None:
    callee = w.rng.choice(w.done)
    operands = [w.operand(lambda v, s=a.shape: v.shape == s, a.shape) for a, _ in callee.arguments]
    types = [(r.shape, r.dtype) for r in callee.results]
    results = w.emit("func.call", operands, types, f"callee = @{callee.name}", keep=False)
    for result in results:
        if (behind := w.function_edge(result)) not in w.function.values:
            w.function.values.append(behind)
