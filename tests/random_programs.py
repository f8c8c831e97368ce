"""Random sharded tensor programs, their inputs, and cost models that drive the planner into rarely used strategies."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eggshard.costmodel import AlphaBeta, StepInfo, WireBytes
from eggshard.frontends.builder import ProgramBuilder, Tensor
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.program import Program
from eggshard.program.types import TensorType, is_float, numpy_dtype

MESHES = ({"x": 4, "y": 2}, {"x": 2, "y": 2, "z": 2}, {"x": 2, "y": 3}, {"x": 3}, {"x": 2, "y": 2})
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 8, 12, 12)
INTEGERS = ("i32", "i32", "i8", "ui8", "i1", "i64")
FLOATS = ("f32", "f32", "f32", "f64", "bf16", "i32", "i1")
ELEMENTS = 4096
#: Computed floats stay below this, so that sums of the small integers that inputs hold are exact in every order.
EXACT = {"f32": 2.0**22, "f64": 2.0**40, "bf16": 2.0**7}


@dataclass(frozen=True)
class RandomCost:
    """Seconds = the weight of a step's kind (and op) times its size, plus a launch: any plan may be the cheapest."""

    weights: tuple[tuple[str, float], ...]
    compute: float
    launch: float

    def seconds(self, step: StepInfo) -> float:
        weights = dict(self.weights)
        if step.communicates:
            return weights.get(step.kind, 1.0) * (step.wire_bytes + self.launch * step.messages) * 1e-9
        weight = weights.get(step.kind, 1.0) * weights.get(step.op, 1.0)
        return self.compute * weight * (1 + step.flops + step.memory_bytes) * 1e-9


KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute", "exchange")


def random_model(rng: random.Random) -> Any:
    """WireBytes, AlphaBeta, random weights, or prices at which odd plans are attractive."""
    style = rng.choice(("bytes", "time", "random", "random", "one free", "compute only", "dear compute", "one dear"))
    if style == "bytes":
        return WireBytes()
    if style == "time":
        return AlphaBeta()
    if style == "random":
        # Slicing stays cheaper than making partial sums of which all but one are zeros, which the search leaves out.
        weights = {k: 10 ** rng.uniform(-3, 3) for k in (*KINDS, "mask", "resize")}
        return RandomCost(tuple(weights.items()), 10 ** rng.uniform(-4, 2), 10 ** rng.uniform(-2, 3))
    if style == "one free":
        free = rng.choice(KINDS)
        return RandomCost(tuple((k, 0.0 if k == free else 100.0) for k in KINDS), 10 ** rng.uniform(-3, 1), 1.0)
    if style == "one dear":
        dear = rng.choice(KINDS)
        return RandomCost(tuple((k, 1e4 if k == dear else 1.0) for k in KINDS), 10 ** rng.uniform(-3, 1), 1.0)
    return RandomCost(tuple((k, 0.0 if style == "compute only" else 1e-6) for k in KINDS), 100.0, 0.0)


def random_axes(rng: random.Random, mesh: dict[str, int], shape: Sequence[int], even: bool, sub_axes: bool = False
                ) -> tuple[Any, ...]:
    """A spec for `Sharding.of`: axes in any order on any dimensions, dividing them where ``even``."""
    axes: list[tuple[str, int]] = list(mesh.items())
    if sub_axes:
        axes = [part for a, n in axes for part in ([(f"{a}:(1)2", 2), (f"{a}:(2)2", 2)] if n == 4 else [(a, n)])]
    rng.shuffle(axes)
    dims: list[list[str]] = [[] for _ in shape]
    counts = [1] * len(shape)
    for axis, n in axes:
        if not shape or rng.random() < 0.3:
            continue
        d = rng.randrange(len(shape))
        fits = shape[d] % (counts[d] * n) == 0 if even else shape[d] >= counts[d] * n
        if fits:
            dims[d].append(axis)
            counts[d] *= n
    return tuple(tuple(d) if d else None for d in dims)


@dataclass
class Value:
    """A tensor of the program. rough: rounding may differ, so nothing may branch on it. bound: largest magnitude."""

    tensor: Tensor
    rough: bool = False
    bound: float = 4.0
    signed_zero: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @property
    def rank(self) -> int:
        return len(self.tensor.shape)


@dataclass
class Case:
    """A program with what is known of its outputs."""

    program: Program
    outputs: list[Value]
    floats: bool


@dataclass
class ProgramMaker:
    """Adds random ops to a builder."""

    rng: random.Random
    floats: bool
    mesh: dict[str, int]
    sub_axes: bool = False
    values: list[Value] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.b = ProgramBuilder(self.mesh)

    def make(self, ops: int) -> Case:
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            self._input(self._shape())
        attempts = 0
        target = len(self.values) + ops
        while len(self.values) < target and attempts < 4 * ops + 20:
            attempts += 1
            rng.choice(OPS)(self)
        outs = rng.sample(self.values, min(len(self.values), rng.randint(1, 3)))
        if self.values[-1] not in outs:
            outs.append(self.values[-1])
        if rng.random() < 0.1:
            outs.append(outs[0])
        for v in outs:
            stated = rng.random() < 0.6
            self.b.output(v.tensor, random_axes(rng, self.mesh, v.shape, True, self.sub_axes) if stated else None)
        return Case(self.b.build(), outs, self.floats)

    # Helpers.

    def _shape(self, rank: int | None = None) -> tuple[int, ...]:
        rng = self.rng
        rank = rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4)) if rank is None else rank
        while True:
            shape = tuple(rng.choice(SIZES) for _ in range(rank))
            if math.prod(shape) <= ELEMENTS:
                return shape

    def _dtype(self) -> str:
        return self.rng.choice(FLOATS if self.floats else INTEGERS)

    def _input(self, shape: tuple[int, ...], dtype: str | None = None) -> Value:
        dtype = dtype or self._dtype()
        sharding = random_axes(self.rng, self.mesh, shape, True, self.sub_axes)
        value = Value(self.b.input(shape, dtype, sharding), bound=2.0)
        self.values.append(value)
        return value

    def pick(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """A value with a property, recent ones and ones used before alike."""
        found = [v for v in self.values if wanted(v)]
        return self.rng.choice(found[-6:] if self.rng.random() < 0.6 else found) if found else None

    def like(self, x: Value) -> Value:
        """A value of the same type: an existing one, a broadcast one, or an input."""
        same = [v for v in self.values if v.tensor.type == x.tensor.type]
        if same and self.rng.random() < 0.75:
            return self.rng.choice(same)
        if self.rng.random() < 0.5:
            keep = [d for d in range(x.rank) if self.rng.random() < 0.5]
            small = self._input(tuple(x.shape[d] for d in keep), x.dtype)
            return self.keep(self.b.broadcast(small.tensor, x.shape, keep), small)
        return self._input(x.shape, x.dtype)

    def keep(self, tensor: Tensor, *origins: Value, computed: bool = False, bound: float | None = None,
             signed_zero: bool = True) -> Value:
        """Registers a tensor that depends on ``origins``; computed: by arithmetic that may round."""
        rough = any(o.rough for o in origins) or (computed and is_float(tensor.dtype))
        largest = max((o.bound for o in origins), default=1.0) if bound is None else bound
        zero = signed_zero and all(o.signed_zero for o in origins)
        value = Value(tensor, rough, largest, zero)
        self.values.append(value)
        return value

    def fits(self, dtype: str, bound: float) -> bool:
        return not is_float(dtype) or bound <= EXACT[dtype]


def unary(m: ProgramMaker) -> None:
    if (x := m.pick()) is None:
        return
    if x.dtype == "i1":
        m.keep(m.b.op("not", x.tensor), x)
    elif is_float(x.dtype):
        name = m.rng.choice(("negate", "abs", "negate", "tanh", "is_finite"))
        if name == "is_finite":
            if not x.rough:
                m.keep(m.b.op(name, x.tensor), x)
        else:
            m.keep(m.b.op("tanh" if name == "tanh" else name, x.tensor), x, computed=name == "tanh")
    else:
        name = m.rng.choice(("negate", "not", "abs", "sign", "popcnt"))
        if x.dtype.startswith("ui") and name in ("abs", "sign"):
            return
        m.keep(m.b.op(name, x.tensor), x)


def binary(m: ProgramMaker) -> None:
    if (x := m.pick()) is None:
        return
    y = m.like(x)
    if m.rng.random() < 0.3:
        x, y = y, x
    if x.dtype == "i1":
        m.keep(m.b.op(m.rng.choice(("and", "or", "xor")), x.tensor, y.tensor), x, y)
    elif is_float(x.dtype):
        name = m.rng.choice(("add", "add", "subtract", "multiply", "multiply", "maximum", "minimum"))
        bound = x.bound * y.bound if name == "multiply" else x.bound + y.bound
        if m.fits(x.dtype, bound):
            zero = name not in ("maximum", "minimum")
            m.keep(m.b.op(name, x.tensor, y.tensor), x, y, computed=zero, bound=bound, signed_zero=zero)
    else:
        names = ("add", "add", "subtract", "multiply", "multiply", "maximum", "minimum", "and", "or", "xor")
        m.keep(m.b.op(m.rng.choice(names), x.tensor, y.tensor), x, y)


def scalar_binary(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.dtype != "i1")) is None:
        return
    name = m.rng.choice(("multiply", "add", "subtract", "maximum", "minimum"))
    k = m.rng.choice((0, 1, 2, 3))
    bound = x.bound * max(k, 1) + k
    if m.fits(x.dtype, bound):
        c = m.b.constant(k, x.dtype, x.shape)
        pair = (x.tensor, c) if m.rng.random() < 0.7 else (c, x.tensor)
        zero = name not in ("maximum", "minimum")
        m.keep(m.b.op(name, *pair), x, computed=zero, bound=bound, signed_zero=zero)


def compare(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: not v.rough)) is None:
        return
    y = m.like(x)
    if not y.rough:
        m.keep(m.b.compare(x.tensor, m.rng.choice(("EQ", "NE", "LT", "GE")), y.tensor), x, y)


def select(m: ProgramMaker) -> None:
    if (x := m.pick()) is None:
        return
    y = m.like(x)
    masks = [v for v in m.values if v.dtype == "i1" and v.shape in (x.shape, ())]
    p = m.rng.choice(masks) if masks and m.rng.random() < 0.7 else m._input(x.shape, "i1")
    m.keep(m.b.op("select", p.tensor, x.tensor, y.tensor), p, x, y, bound=max(x.bound, y.bound))


def convert(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: not v.rough)) is None:
        return
    dtype = m._dtype()
    if dtype == x.dtype or (is_float(x.dtype) and not is_float(dtype) and dtype != "i1"):
        return
    if is_float(dtype):
        bound = {"i1": 1.0, "i8": 128.0, "ui8": 255.0}.get(x.dtype, x.bound if is_float(x.dtype) else 2.0**62)
        if m.fits(dtype, bound):
            m.keep(m.b.convert(x.tensor, dtype), x, bound=bound, computed=True)
    else:
        m.keep(m.b.convert(x.tensor, dtype), x)


def dot(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.dtype != "i1" and v.rank)) is None:
        return
    rng, rank = m.rng, x.rank
    dims = list(range(rank))
    rng.shuffle(dims)
    n_contract, n_batch = rng.randint(0, min(2, rank)), 0
    n_batch = rng.randint(0, min(2, rank - n_contract))
    contract, batch = dims[:n_contract], dims[n_contract:n_contract + n_batch]
    free = [rng.choice(SIZES) for _ in range(rng.randint(0, 2))]
    kinds = [("c", d) for d in contract] + [("b", d) for d in batch] + [("f", i) for i in range(len(free))]
    rng.shuffle(kinds)
    shape = tuple(free[i] if k == "f" else x.shape[i] for k, i in kinds)
    out = math.prod(x.shape[d] for d in range(rank) if d not in contract) * math.prod(free)
    if math.prod(shape) > ELEMENTS or out > ELEMENTS or len(shape) > 4:
        return
    same = [v for v in m.values if v.shape == shape and v.dtype == x.dtype]
    y = rng.choice(same) if same and rng.random() < 0.6 else m._input(shape, x.dtype)
    bound = x.bound * y.bound * math.prod(x.shape[d] for d in contract)
    if not m.fits(x.dtype, bound):
        return
    theirs = {key: j for j, key in enumerate(kinds)}
    pairs = [(d, theirs["c", d]) for d in contract], [(d, theirs["b", d]) for d in batch]
    rng.shuffle(pairs[0])
    sides = [tuple(tuple(p[s] for p in pair) for s in (0, 1)) for pair in pairs]
    if rng.random() < 0.5:
        out_tensor = m.b.dot_general(x.tensor, y.tensor, sides[0], sides[1])
    else:
        out_tensor = m.b.dot_general(y.tensor, x.tensor, sides[0][::-1], sides[1][::-1])
    m.keep(out_tensor, x, y, computed=True, bound=bound)


def reduce(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank)) is None:
        return
    rng = m.rng
    dims = rng.sample(range(x.rank), rng.randint(1, x.rank))
    names = ("and", "or", "xor", "max", "min") if x.dtype == "i1" else ("add", "add", "max", "min")
    name = rng.choice(names if is_float(x.dtype) or x.dtype == "i1" else (*names, "mul", "and", "or", "xor"))
    bound = x.bound * (math.prod(x.shape[d] for d in dims) if name == "add" else 1)
    if m.fits(x.dtype, bound):
        m.keep(m.b.reduce(x.tensor, name, dims, keep=rng.random() < 0.2), x, computed=name == "add", bound=bound,
               signed_zero=False)


def broadcast(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank < 4)) is None:
        return
    rng = m.rng
    rank = rng.randint(x.rank, 4)
    dims = sorted(rng.sample(range(rank), x.rank))
    if rng.random() < 0.15:
        rng.shuffle(dims)
    shape = [rng.choice(SIZES) for _ in range(rank)]
    for i, d in enumerate(dims):
        if x.shape[i] != 1 or rng.random() < 0.4:
            shape[d] = x.shape[i]
    if math.prod(shape) <= ELEMENTS:
        m.keep(m.b.broadcast(x.tensor, shape, dims), x)


def transpose(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank > 1)) is not None:
        order = list(range(x.rank))
        m.rng.shuffle(order)
        m.keep(m.b.transpose(x.tensor, order), x)


def reshape(m: ProgramMaker) -> None:
    if (x := m.pick()) is None:
        return
    rng, shape = m.rng, list(x.shape)
    for _ in range(rng.randint(1, 3)):
        how = rng.choice(("split", "merge", "merge", "one", "drop"))
        if how == "split" and shape and len(shape) < 5:
            d = rng.randrange(len(shape))
            factors = [k for k in range(1, shape[d] + 1) if shape[d] % k == 0]
            k = rng.choice(factors)
            shape[d:d + 1] = [k, shape[d] // k]
        elif how == "merge" and len(shape) > 1:
            d = rng.randrange(len(shape) - 1)
            shape[d:d + 2] = [shape[d] * shape[d + 1]]
        elif how == "one" and len(shape) < 4:
            shape.insert(rng.randint(0, len(shape)), 1)
        elif how == "drop" and 1 in shape:
            shape.remove(1)
    m.keep(m.b.reshape(x.tensor, shape), x)


def slice_(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank)) is None:
        return
    rng = m.rng
    starts, limits, strides = [], [], []
    for n in x.shape:
        if rng.random() < 0.5:
            low, high = 0, n
        else:
            low, high = sorted((rng.randint(0, n), rng.randint(0, n)))
            if low == high:
                low, high = 0, n
        starts.append(low)
        limits.append(high)
        strides.append(rng.choice((1, 1, 1, 2, 3)))
    m.keep(m.b.slice(x.tensor, starts, limits, strides), x)


def pad(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank)) is None:
        return
    rng = m.rng
    low, high, interior = [], [], []
    for _ in x.shape:
        some = rng.random() < 0.6
        low.append(rng.choice((0, 1, 2, 3, -1)) if some else 0)
        high.append(rng.choice((0, 1, 2, 3, -1)) if some else 0)
        interior.append(rng.choice((0, 0, 0, 1)) if some else 0)
    sizes = [a + b + n + max(n - 1, 0) * k for a, b, n, k in zip(low, high, x.shape, interior, strict=True)]
    if min(sizes) >= 1 and math.prod(sizes) <= ELEMENTS:
        fill = rng.choice((0, 0, 1))
        m.keep(m.b.pad(x.tensor, low, high, bool(fill) if x.dtype == "i1" else fill, interior), x)


def concatenate(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank)) is None:
        return
    rng = m.rng
    d = rng.randrange(x.rank)

    def fits(v: Value) -> bool:
        shapes = [tuple(s for i, s in enumerate(t.shape) if i != d) for t in (v, x)]
        return v.dtype == x.dtype and v.rank == x.rank and shapes[0] == shapes[1]

    parts = [v for v in m.values if fits(v)]
    chosen = [x, *(rng.choice(parts) for _ in range(rng.randint(0, 2)))]
    if rng.random() < 0.4:
        chosen.append(m._input(tuple(rng.choice(SIZES) if i == d else n for i, n in enumerate(x.shape)), x.dtype))
    rng.shuffle(chosen)
    if math.prod(x.shape) // x.shape[d] * sum(v.shape[d] for v in chosen) <= ELEMENTS:
        m.keep(m.b.concatenate([v.tensor for v in chosen], d), *chosen)


def halo(m: ProgramMaker) -> None:
    """A stencil step: shifted pieces of one value, added."""
    if (x := m.pick(lambda v: v.rank and max(v.shape) > 2 and v.dtype != "i1")) is None:
        return
    d = max(range(x.rank), key=lambda i: x.shape[i])
    n = x.shape[d]
    pieces = []
    for k in range(2):
        starts = [k if i == d else 0 for i in range(x.rank)]
        limits = [n - 1 + k if i == d else s for i, s in enumerate(x.shape)]
        pieces.append(m.b.slice(x.tensor, starts, limits))
    if m.fits(x.dtype, 2 * x.bound):
        total = m.keep(m.b.add(*pieces), x, computed=True, bound=2 * x.bound)
        if m.rng.random() < 0.5:
            edge = m.b.slice(x.tensor, [0] * x.rank, [1 if i == d else s for i, s in enumerate(x.shape)])
            m.keep(m.b.concatenate([edge, total.tensor], d), total)


def reverse(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank)) is not None:
        m.keep(m.b.reverse(x.tensor, m.rng.sample(range(x.rank), m.rng.randint(1, x.rank))), x)


def iota(m: ProgramMaker) -> None:
    shape = m._shape(m.rng.choice((1, 2, 3)))
    dtype = m.rng.choice(("f32", "i32") if m.floats else ("i32", "ui8"))
    m.keep(m.b.iota(shape, m.rng.randrange(len(shape)), dtype), bound=float(max(shape)))


def constant(m: ProgramMaker) -> None:
    shape = m._shape(m.rng.choice((0, 1, 2)))
    dtype = m._dtype()
    array = np.random.default_rng(m.rng.randrange(2**32)).integers(0, 3, shape).astype(numpy_dtype(dtype))
    m.keep(m.b.op("constant", value=Literal(array)), bound=2.0)


def _index(m: ProgramMaker) -> Value:
    found = [v for v in m.values if v.shape == () and v.dtype in ("i32", "i64")]
    return m.rng.choice(found) if found and m.rng.random() < 0.5 else m._input((), "i32")


def dynamic_slice(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank)) is None:
        return
    starts = [_index(m)] * x.rank
    if m.rng.random() < 0.5:
        starts = [Value(m.b.constant(m.rng.choice((0, 1, 2))), bound=2.0) for _ in starts]
    sizes = tuple(m.rng.choice((n, n, m.rng.randint(1, n))) for n in x.shape)
    m.keep(m.b.op("dynamic_slice", x.tensor, *(s.tensor for s in starts), slice_sizes=sizes), x)


def dynamic_update_slice(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank)) is None:
        return
    sizes = tuple(m.rng.choice((n, n, m.rng.randint(1, n))) for n in x.shape)
    same = [v for v in m.values if v.shape == sizes and v.dtype == x.dtype]
    update = m.rng.choice(same) if same and m.rng.random() < 0.7 else m._input(sizes, x.dtype)
    starts = [_index(m)] * x.rank
    m.keep(m.b.op("dynamic_update_slice", x.tensor, update.tensor, *(s.tensor for s in starts)), x, update,
           bound=max(x.bound, update.bound))


def gather(m: ProgramMaker) -> None:
    """``take`` along one dimension."""
    if (x := m.pick(lambda v: v.rank)) is None:
        return
    rng = m.rng
    d = rng.randrange(x.rank)
    count = rng.choice(SIZES)
    rest = [n for i, n in enumerate(x.shape) if i != d]
    if math.prod(rest) * count > ELEMENTS:
        return
    indices = m._input((count, 1), "i32")
    at = rng.randint(0, len(rest))
    numbers = Attributes(
        offset_dims=tuple(i for i in range(len(rest) + 1) if i != at), collapsed_slice_dims=(d,),
        operand_batching_dims=(), start_indices_batching_dims=(), start_index_map=(d,), index_vector_dim=1,
    )
    sizes = tuple(1 if i == d else n for i, n in enumerate(x.shape))
    m.keep(m.b.op("gather", x.tensor, indices.tensor, dimension_numbers=numbers, slice_sizes=sizes), x)


def cumulative(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank and v.dtype != "i1")) is None:
        return
    d = m.rng.randrange(x.rank)
    n = x.shape[d]
    name = m.rng.choice(("add", "max", "min"))
    bound = x.bound * n
    if not m.fits(x.dtype, bound):
        return
    if m.rng.random() < 0.6:
        window, edge = n, (n - 1, 0)
    else:
        window = m.rng.randint(1, min(3, n))
        edge = m.rng.choice(((0, 0), (window // 2, window // 2)))
    at = lambda k, other: tuple(k if i == d else other for i in range(x.rank))  # noqa: E731
    ones = (1,) * x.rank
    m.keep(m.b.op("reduce_window", x.tensor, monoid=name, window_dimensions=at(window, 1), window_strides=ones,
                  base_dilations=ones, window_dilations=ones, padding=at(edge, (0, 0))),
           x, computed=name == "add", bound=bound, signed_zero=False)


def sort(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank and not v.rough and v.dtype != "i1")) is None:
        return
    region = RegionBuilder([TensorType((), x.dtype)] * 2)
    kind = "TOTALORDER" if is_float(x.dtype) else "UNSIGNED" if x.dtype.startswith("ui") else "SIGNED"
    (less,) = region.add("compare", [0, 1], Attributes(comparison_direction="LT", compare_type=kind))
    m.keep(m.b.op("sort", x.tensor, regions=(region.build([less]),), dimension=m.rng.randrange(x.rank),
                  is_stable=True), x)


def constrain(m: ProgramMaker) -> None:
    if (x := m.pick(lambda v: v.rank)) is None:
        return
    spec = random_axes(m.rng, m.mesh, x.shape, False, m.sub_axes)
    m.keep(m.b.constrain(x.tensor, spec), x)


def nothing_used(m: ProgramMaker) -> None:
    m._input(m._shape())


OPS: tuple[Callable[[ProgramMaker], None], ...] = (
    unary, binary, binary, binary, scalar_binary, compare, select, convert, dot, dot, dot, reduce, reduce, reduce,
    broadcast, transpose, transpose, reshape, reshape, slice_, slice_, pad, concatenate, halo, reverse, iota, constant,
    dynamic_slice, dynamic_update_slice, gather, cumulative, sort, constrain, constrain, nothing_used,
)


def random_case(rng: random.Random, ops: int = 8) -> Case:
    """A random program: integers only, or floats too."""
    maker = ProgramMaker(rng, rng.random() < 0.5, dict(rng.choice(MESHES)), rng.random() < 0.15)
    return maker.make(rng.randint(1, ops))


def random_inputs(program: Program, rng: np.random.Generator, special: bool = False) -> list[np.ndarray]:
    """Small integers; bits for ints of all sizes; with ``special`` floats that are NaN, infinite or -0 too."""
    out = []
    for t in program.input_types:
        array = rng.integers(-2, 3, t.shape) if is_float(t.dtype) else rng.integers(0, 2 if t.dtype == "i1" else 100,
                                                                                    t.shape)
        if t.dtype in ("i32", "i64") and t.shape:
            array = rng.integers(-(2**31), 2**31, t.shape)
        if t.dtype == "i32" and (not t.shape or t.shape[-1] == 1):
            array = rng.integers(-2, 14, t.shape)
        array = np.asarray(array).astype(numpy_dtype(t.dtype))
        if special and is_float(t.dtype):
            odd = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0]), t.shape).astype(array.dtype)
            array = np.where(rng.random(t.shape) < 0.1, odd, array)
        out.append(np.asarray(array))
    return out
