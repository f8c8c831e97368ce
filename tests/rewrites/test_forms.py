"""Key programs saturate to contain the form that a plan wants, and nothing unequal."""

import re

import numpy as np
import pytest
from tests.slowness import some

pytest.importorskip("egglog")

from eggshard.egraph.rules import OpUse  # noqa: E402
from eggshard.egraph.saturate import saturate  # noqa: E402
from eggshard.limits import Limits  # noqa: E402
from eggshard.ops import registry  # noqa: E402
from eggshard.ops.region_builder import RegionBuilder  # noqa: E402
from eggshard.program.attributes import Attributes  # noqa: E402
from eggshard.program.types import TensorType, numpy_dtype  # noqa: E402
from eggshard.rewrites import default_rules, select  # noqa: E402
from eggshard.rewrites.shapes import MATMUL, numbers, slice_of, spread  # noqa: E402

RULES = select(default_rules())
F = "f32"


def dot(dims=((), (), (1,), (0,)), dtype=F):
    return {"dot_dimension_numbers": numbers(*dims), "precision_config": None, "algorithm": None, "dtype": dtype}


class Builder(RegionBuilder):
    """Ops as methods: ``b.op("add", x, y)``."""

    def op(self, name, *operands, **attributes):
        return self.add(name, operands, attributes)[0]

    def broadcast(self, x, dims, shape):
        return self.op("broadcast_in_dim", x, broadcast_dimensions=dims, shape=shape)


def holds(graph, cls, term):
    """Whether a class holds a term like ``dot_general(in0, slice(in1))``; ``_`` is anything."""
    tokens = re.findall(r"\w+|[(),]", term)

    def parse(i):
        name, children = tokens[i], []
        i += 1
        if i < len(tokens) and tokens[i] == "(":
            while tokens[i] != ")":
                child, i = parse(i + 1)
                children.append(child)
            i += 1
        return (name, children), i

    def match(c, pattern):
        name, children = pattern
        if name == "_":
            return True
        if name.startswith("in") and name[2:].isdigit():
            return any(n.op == "input" and n.attributes["index"] == int(name[2:]) for n in graph.classes[c].nodes)
        return any(
            n.op == name
            and len(n.children) == len(children)
            and all(match(k, p) for k, p in zip(n.children, children, strict=True))
            for n in graph.classes[c].nodes
        )

    return match(cls, parse(0)[0])


def fused_qkv(b):
    y = b.op("dot_general", 0, 1, **dot())
    return b.op("slice", y, **slice_of([(0, 8, 1), (4, 8, 1)]))


def fused_qkv_with_bias(b):
    y = b.op("add", b.op("dot_general", 0, 1, **dot()), b.broadcast(2, (1,), (8, 12)))
    return b.op("slice", y, **slice_of([(0, 8, 1), (4, 8, 1)]))


def softmax_then_values(b):
    total = b.op("reduce", 0, dimensions=(1,), monoid="add")
    return b.op("dot_general", b.op("divide", 0, b.broadcast(total, (0,), (8, 6))), 1, **dot())


def scaled_scores(b):
    x = b.op("multiply", 0, b.broadcast(2, (), (8, 6)))
    return b.op("dot_general", x, 1, **dot())


def two_products_of_one_tensor(b):
    return b.op("concatenate", b.op("dot_general", 0, 1, **dot()), b.op("dot_general", 0, 2, **dot()), dimension=1)


def sum_of_products(b):
    return b.op("add", b.op("dot_general", 0, 1, **dot()), b.op("dot_general", 0, 2, **dot()))


def low_rank(b):
    return b.op("dot_general", 0, b.op("dot_general", 1, 2, **dot()), **dot())


def adapter(b):
    w = b.op("add", 3, b.op("dot_general", 1, 2, **dot()))
    return b.op("dot_general", 0, w, **dot())


def split_contraction(b):
    return b.op("dot_general", b.op("concatenate", 0, 1, dimension=1), b.op("concatenate", 2, 3, dimension=0), **dot())


def transposed_product(b):
    y = b.op("dot_general", b.op("transpose", 0, permutation=(1, 0)), b.op("transpose", 1, permutation=(1, 0)), **dot())
    return b.op("transpose", y, permutation=(1, 0))


def flattened_rows(b):
    x = b.op("reshape", 0, shape=(12, 6))
    return b.op("reshape", b.op("dot_general", x, 1, **dot()), shape=(3, 4, 5))


def halves(b):
    left = b.op("slice", 0, **slice_of([(0, 4, 1), (0, 6, 1)]))
    right = b.op("slice", 0, **slice_of([(4, 8, 1), (0, 6, 1)]))
    return b.op("add", left, right)


def sum_of_product(b):
    return b.op("reduce", b.op("dot_general", 0, 1, **dot()), dimensions=(0,), monoid="add")


def narrow_before_moving(b):
    x = b.op("transpose", 0, permutation=(1, 0))
    return b.op("convert", x, dtype="bf16")


FORMS = {
    fused_qkv: ([(8, 6), (6, 12)], ["dot_general(in0, slice(in1))"]),
    fused_qkv_with_bias: (
        [(8, 6), (6, 12), (12,)],
        ["add(dot_general(in0, slice(in1)), broadcast_in_dim(slice(in2)))"],
    ),
    softmax_then_values: ([(8, 6), (6, 4)], ["divide(dot_general(in0, in1), broadcast_in_dim(reduce(in0)))"]),
    scaled_scores: ([(8, 6), (6, 4), ()], ["multiply(dot_general(in0, in1), broadcast_in_dim(in2))"]),
    two_products_of_one_tensor: ([(8, 6), (6, 4), (6, 5)], ["dot_general(in0, concatenate(in1, in2))"]),
    sum_of_products: ([(8, 6), (6, 4), (6, 4)], ["dot_general(in0, add(in1, in2))"]),
    low_rank: ([(4, 8), (8, 2), (2, 8)], ["dot_general(dot_general(in0, in1), in2)"]),
    adapter: (
        [(4, 8), (8, 2), (2, 8), (8, 8)],
        ["add(dot_general(in0, in3), dot_general(dot_general(in0, in1), in2))"],
    ),
    split_contraction: ([(8, 3), (8, 3), (3, 5), (3, 5)], ["add(dot_general(in0, in2), dot_general(in1, in3))"]),
    transposed_product: ([(6, 8), (4, 6)], ["dot_general(in1, in0)"]),
    flattened_rows: ([(3, 4, 6), (6, 5)], ["dot_general(in0, in1)"]),
    halves: ([(8, 6)], ["reduce(reshape(in0))"]),
    sum_of_product: ([(8, 6), (6, 4)], ["dot_general(reduce(in0), in1)"]),
    narrow_before_moving: ([(8, 6)], ["transpose(convert(in0))"]),
}


def check_equal(graph, region, seed=0, exact=False):
    """Evaluate every node of every class from the values of its children: all nodes of a class agree."""
    rng = np.random.default_rng(seed)
    inputs = []
    for v in region.inputs:
        t = region.types[v]
        floats = t.dtype == F and not exact
        inputs.append(
            (rng.uniform(0.5, 1.5, t.shape) if floats else rng.integers(-3, 4, t.shape)).astype(numpy_dtype(t.dtype))
        )
    values = {}

    def evaluate(node):
        if node.op == "input":
            return inputs[node.attributes["index"]]
        return registry.get(node.op).evaluate(node.attributes, [values[c] for c in node.children])[0]

    while len(values) < len(graph.classes):
        ready = [
            (c, n)
            for c, cls in enumerate(graph.classes)
            if c not in values
            for n in cls.nodes
            if all(k in values for k in n.children)
        ]
        assert ready, "a class is derivable from itself alone"
        for c, node in ready:
            values.setdefault(c, evaluate(node))
    for c, cls in enumerate(graph.classes):
        for node in cls.nodes:
            value = evaluate(node)
            assert (value.shape, value.dtype) == (cls.type.shape, numpy_dtype(cls.type.dtype))
            np.testing.assert_allclose(
                value.astype(np.float64), values[c].astype(np.float64), rtol=0 if exact else 1e-2, err_msg=str(node)
            )


@pytest.mark.parametrize("build", FORMS, ids=lambda f: f.__name__)
def test_the_wanted_form_is_found(build):
    shapes, wanted = FORMS[build]
    b = Builder([TensorType(s, F) for s in shapes])
    region = b.build([build(b)])
    graph = saturate(region, RULES)
    for term in wanted:
        assert holds(graph, graph.values[region.outputs[0]], term), term
    check_equal(graph, region)


def test_exact_rules_do_not_reassociate_floats_and_do_reassociate_integers():
    for dtype, found in ((F, False), ("i32", True)):
        b = Builder([TensorType(s, dtype) for s in ((4, 8), (8, 2), (2, 8))])
        y = b.op("dot_general", 0, b.op("dot_general", 1, 2, **dot(dtype=dtype)), **dot(dtype=dtype))
        region = b.build([y])
        graph = saturate(region, select(default_rules(), exact=True))
        assert holds(graph, graph.values[y], "dot_general(dot_general(in0, in1), in2)") == found
        check_equal(graph, region, exact=True)


def random_region(seed, steps=12):
    """A random program of integers, so that every rule is exact."""
    rng = np.random.default_rng(seed)
    b = Builder([TensorType(s, "i32") for s in ((2, 6), (6, 2), (4, 3), ())])

    def pick(test=lambda t: True):
        found = [v for v, t in enumerate(b.types) if t.rank and t.dtype == "i32" and test(t)]
        return int(rng.choice(found)) if found else 0

    for _ in range(steps):
        x = pick()
        t = b.types[x]
        kind = rng.integers(16)
        if kind == 0:
            b.op("transpose", x, permutation=tuple(int(i) for i in rng.permutation(t.rank)))
        elif kind == 1:
            shapes = [
                s
                for s in ((12,), (2, 6), (6, 2), (4, 3), (3, 4), (2, 2, 3), (1, 12), (2, 3, 2))
                if np.prod(s) == t.elements
            ]
            if shapes:
                b.op("reshape", x, shape=shapes[rng.integers(len(shapes))])
        elif kind == 2 and t.rank < 3:
            dims = sorted(rng.choice(t.rank + 1, t.rank, replace=False).tolist())
            shape = [2] * (t.rank + 1)
            for i, d in enumerate(dims):
                shape[d] = t.shape[i]
            b.broadcast(x, tuple(dims), tuple(shape))
        elif kind == 3:
            bounds = []
            for n in t.shape:
                a = int(rng.integers(n))
                bounds.append((a, int(rng.integers(a, n)) + 1, int(rng.integers(1, 3))))
            b.op("slice", x, **slice_of(bounds))
        elif kind == 4:
            d = int(rng.integers(t.rank))
            y = pick(
                lambda o, d=d, t=t: (
                    o.rank == t.rank and o.shape[:d] + o.shape[d + 1 :] == t.shape[:d] + t.shape[d + 1 :]
                )
            )
            if (
                b.types[y].rank == t.rank
                and y
                and all(m == n for i, (m, n) in enumerate(zip(b.types[y].shape, t.shape, strict=True)) if i != d)
            ):
                b.op("concatenate", x, y, dimension=d)
        elif kind == 5:
            low, high = ([int(k) for k in rng.integers(0, 3, t.rank)] for _ in range(2))
            b.op(
                "pad", x, 3, edge_padding_low=tuple(low), edge_padding_high=tuple(high), interior_padding=(0,) * t.rank
            )
        elif kind == 6:
            b.op("reverse", x, dimensions=(int(rng.integers(t.rank)),))
        elif kind in (7, 8):
            y = pick(lambda o, t=t: o.shape == t.shape)
            b.op(str(rng.choice(["add", "multiply", "subtract", "maximum"])), x, y)
        elif kind == 9:
            b.op("negate", x)
        elif kind == 10:
            y = pick(lambda o, t=t: o.shape[0] == t.shape[-1])
            if b.types[y].shape[0] == t.shape[-1]:
                b.op("dot_general", x, y, **dot(((), (), (t.rank - 1,), (0,)), "i32"))
        elif kind == 11 and t.rank > 1:
            b.op("reduce", x, dimensions=(int(rng.integers(t.rank)),), monoid=str(rng.choice(["add", "max", "min"])))
        elif kind in (12, 13):
            d = int(rng.integers(t.rank))
            s = pick(lambda o, d=d, t=t: o.shape == t.shape[d : d + 1]) if rng.random() < 0.7 else 3
            if b.types[s].shape in ((), t.shape[d : d + 1]):
                scale = b.broadcast(s, (d,) if b.types[s].rank else (), t.shape)
                b.op("multiply", *((x, scale) if rng.random() < 0.5 else (scale, x)))
        elif kind == 14:
            d = int(rng.integers(t.rank))
            n = int(rng.choice([2, 3, 4]))
            if t.shape[d] % n == 0:
                size = t.shape[d] // n
                parts = [
                    b.op(
                        "slice",
                        x,
                        **slice_of(
                            [(k * size, k * size + size, 1) if i == d else (0, m, 1) for i, m in enumerate(t.shape)]
                        ),
                    )
                    for k in range(n)
                ]
                if rng.random() < 0.3:
                    b.op("concatenate", *parts, dimension=d)
                elif rng.random() < 0.5:
                    b.op("concatenate", *(b.op("negate", p) for p in parts), dimension=d)
                else:
                    op, total = str(rng.choice(["add", "maximum", "minimum"])), parts[0]
                    for part in parts[1:]:
                        total = b.op(op, total, part)
        elif kind == 15:
            y = pick(lambda o, t=t: o.shape == t.shape)
            b.op("select", b.op("compare", x, y, comparison_direction="LT"), x, y)
    return b.build([len(b.types) - 1])


@pytest.mark.parametrize("seed", some(range(40), 16))
def test_random_programs_hold_only_equal_nodes(seed):
    region = random_region(seed)
    graph = saturate(region, RULES, Limits(rows=4000, iterations=5))
    check_equal(graph, region, seed, exact=True)


@pytest.mark.parametrize(
    "dtype, result, held", [("i8", "f32", 0), ("i8", "i32", 0), ("i8", "i8", 1), ("f32", "f32", 1)]
)
def test_signs_leave_products_of_their_own_width_alone(dtype, result, held):
    """The lowest of eight bits is its own negative, in a wider product it is not."""
    negated = next(r for r in default_rules() if r.name == "dot of negated (0)")
    types = TensorType((2, 3), dtype), TensorType((3, 4), dtype)
    use = OpUse("dot_general", Attributes({**MATMUL, "dtype": result}))
    assert len(negated.instances((use,), types)) == held


@pytest.mark.parametrize("dtype, held", [("i32", 0), ("f32", 1)])
def test_quotients_of_integers_stay_inside_products(dtype, held):
    """They are rounded before they are summed."""
    scaled = next(r for r in default_rules() if r.name == "dot of scaled: divide, order 0, side 0")
    types = {"x": TensorType((2, 3), dtype), "y": TensorType((3, 4), dtype), "s": TensorType((2,), dtype)}
    uses = {
        "d": OpUse("dot_general", Attributes({**MATMUL, "dtype": dtype})),
        "b": OpUse("broadcast_in_dim", Attributes(spread((2, 3), 0))),
    }
    found = scaled.instances(tuple(uses[k] for k in scaled.labels), tuple(types[k] for k in scaled.tensors))
    assert len(found) == held
