"""Rotations, extensions, updates and scans are found in an e-graph however they are spelled, and nothing unsound is."""

import random

import numpy as np
import pytest

pytest.importorskip("egglog")

from eggshard.egraph.laws import LawViolation, check_law, each, tensors  # noqa: E402
from eggshard.egraph.rules import rule  # noqa: E402
from eggshard.egraph.saturate import saturate  # noqa: E402
from eggshard.limits import Limits  # noqa: E402
from eggshard.ops import registry  # noqa: E402
from eggshard.ops.evaluate import evaluate_region  # noqa: E402
from eggshard.ops.region_builder import RegionBuilder
from eggshard.program.attributes import Literal  # noqa: E402
from eggshard.program.mesh import Mesh  # noqa: E402
from eggshard.program.types import TensorType  # noqa: E402
from eggshard.rewrites import default_rules, select  # noqa: E402
from eggshard.rewrites.subarrays.parts import scan  # noqa: E402

RULES = select(default_rules())
N, M = 12, 8
X = np.arange(N * M, dtype=np.float32).reshape(N, M)
LIMITS = Limits(iterations=12)


class Builder(RegionBuilder):
    def op(self, name, *operands, **attributes):
        return self.add(name, operands, attributes)[0]

    def cut(self, x, start, limit, dim=0):
        """Indices [start, limit) along one dimension, from the end where negative."""
        shape = self.types[x].shape
        n = shape[dim]
        limit = n if limit is None else limit
        bounds = [(start % n if start < 0 else start, limit + n * (limit < 0)) if d == dim else (0, k)
                  for d, k in enumerate(shape)]
        return self.op("slice", x, start_indices=tuple(b[0] for b in bounds), limit_indices=tuple(b[1] for b in bounds),
                       strides=(1,) * len(shape))

    def cat(self, *parts, dim=0):
        return self.op("concatenate", *parts, dimension=dim)

    def flip(self, x, dim=0):
        return self.op("reverse", x, dimensions=(dim,))

    def repeat(self, x, count, dim=0):
        shape = tuple(count if d == dim else n for d, n in enumerate(self.types[x].shape))
        return self.op("broadcast_in_dim", x, broadcast_dimensions=tuple(range(len(shape))), shape=shape)

    def padded(self, x, dim):
        """x mirrored by 2 on both sides of a dimension, as JAX spells it: one side after the other."""
        n = self.types[x].shape[dim]
        y = self.cat(self.flip(self.cut(x, 1, 3, dim), dim), x, dim=dim)
        return self.cat(y, self.flip(self.cut(y, n - 1, n + 1, dim), dim), dim=dim)


def mirrored_and_cut(b):
    y = b.padded(b.padded(0, 0), 1)
    return b.cut(b.cut(y, 2, -2), 2, -2, 1)


def rolled(b, x, k, dim=0):
    return b.cat(b.cut(x, k, None, dim), b.cut(x, 0, k, dim), dim=dim)


def both(lhs, rhs, **more):
    return {"dimension": 0, "lhs": lhs, "rhs": rhs, **more}


def constant(b, shape):
    return b.op("constant", value=Literal(np.zeros(shape, np.float32)))


#: What is built, and the op (with attributes) that its class must hold; "input" for x itself.
SPELLINGS = {
    "roll": (lambda b: rolled(b, 0, 5), "rotate", {"dimension": 0, "amount": 5}),
    "roll of rolls": (lambda b: rolled(b, rolled(b, 0, 5), 4), "rotate", {"dimension": 0, "amount": 9}),
    "roll back": (lambda b: rolled(b, rolled(b, 0, 5), 7), "input", {"index": 0}),
    "roll of a part": (lambda b: b.cat(b.cut(0, 4, 9), b.cut(0, 2, 4)), "rotate", {"dimension": 0, "amount": 2}),
    "part of a roll": (lambda b: b.cat(b.cut(0, 9, None), b.cut(0, 0, 2)), "slice",
                       {"start_indices": (0, 0), "limit_indices": (5, M), "strides": (1, 1)}),
    "more than a roll": (lambda b: b.cat(b.cut(0, 9, None), b.cut(0, 0, 10)), "slice",
                         {"start_indices": (0, 0), "limit_indices": (13, M), "strides": (1, 1)}),
    "periodic": (lambda b: b.cat(b.cut(0, -2, None), 0, b.cut(0, 0, 1)), "wrap", both(2, 1)),
    "periodic below": (lambda b: b.cat(b.cut(0, -2, None), 0), "wrap", both(2, 0)),
    "periodic above": (lambda b: b.cat(0, b.cut(0, 0, 3)), "wrap", both(0, 3)),
    "periodic part": (lambda b: b.cat(b.cut(0, -3, -1), b.cut(0, 1, -1), b.cut(0, 1, 2)), "wrap", both(2, 1)),
    "narrower": (lambda b: b.cut(b.cat(b.cut(0, -3, None), 0, b.cut(0, 0, 3)), 1, -2), "wrap", both(2, 1)),
    "cut of a wrap": (lambda b: b.cut(b.cat(b.cut(0, -1, None), 0, b.cut(0, 0, 1)), 2, None), "rotate",
                      {"dimension": 0, "amount": 1}),
    "edges": (lambda b: b.cat(b.cut(0, 0, 1), 0, b.cut(0, -1, None)), "extend", both(1, 1, mode="edge")),
    "wide edges": (lambda b: b.cat(b.repeat(b.cut(0, 0, 1), 2), 0, b.repeat(b.cut(0, -1, None), 3)), "extend",
                   both(2, 3, mode="edge")),
    "edge of a part": (lambda b: b.cat(b.cut(0, 1, 2), b.cut(0, 1, -1)), "extend", both(1, 0, mode="edge")),
    "reflect": (lambda b: b.padded(0, 0), "extend", both(2, 2, mode="reflect")),
    "reflect by one": (lambda b: b.cat(b.cut(0, 1, 2), 0, b.cut(0, -2, -1)), "extend", both(1, 1, mode="reflect")),
    "symmetric": (lambda b: b.cat(b.flip(b.cut(0, 0, 2)), 0, b.flip(b.cut(0, -2, None))), "extend",
                  both(2, 2, mode="symmetric")),
    "mirrored and cut": (mirrored_and_cut, "input", {"index": 0}),
    "frame": (lambda b: b.cat(b.cut(0, 0, 1), b.op("negate", b.cut(0, 1, -1)), b.cut(0, -1, None)), "update_slice",
              {"start_indices": (1, 0)}),
    "written back": (lambda b: b.op("update_slice", 0, b.cut(0, 2, 4), start_indices=(2, 0)), "input", {"index": 0}),
    "read again": (lambda b: b.cut(b.op("update_slice", 0, constant(b, (3, M)), start_indices=(2, 0)), 6, 8), "slice",
                   {"start_indices": (6, 0), "limit_indices": (8, M), "strides": (1, 1)}),
}


def built(name):
    b = Builder([TensorType((N, M), "f32")])
    return b.build([SPELLINGS[name][0](b)])


def found(graph, region):
    """(op, attributes) of all nodes of the output's class."""
    return {(n.op, n.attributes) for n in graph.classes[graph.values[region.outputs[0]]].nodes}


@pytest.mark.parametrize("name", SPELLINGS)
def test_is_found(name):
    _, op, attributes = SPELLINGS[name]
    region = built(name)
    graph = saturate(region, RULES, LIMITS)
    assert (op, attributes) in [(o, dict(a)) for o, a in found(graph, region)]


@pytest.mark.parametrize("name", ["roll of rolls", "periodic", "narrower", "reflect", "edges", "mirrored and cut"])
def test_in_any_order_of_the_rules(name):
    region, forms = built(name), []
    for seed in range(3):
        shuffled = list(RULES)
        random.Random(seed).shuffle(shuffled)
        graph = saturate(region, shuffled, Limits(iterations=20))
        assert graph.report.stop == "saturated"
        forms.append(found(graph, region))
    assert forms[0] == forms[1] == forms[2]


def test_different_dimensions_have_one_order():
    b = Builder([TensorType((N, M), "f32")])
    one = b.op("rotate", b.op("wrap", 0, dimension=0, lhs=1, rhs=1), dimension=1, amount=3)
    other = b.op("wrap", b.op("rotate", 0, dimension=1, amount=3), dimension=0, lhs=1, rhs=1)
    graph = saturate(b.build([one, other]), RULES)
    assert graph.values[one] == graph.values[other]


def test_forty_levels_of_ten_fields_saturate_without_growing():
    b = Builder([TensorType((N, M), "f32")] * 10)
    fields = list(range(10))
    for _ in range(40):
        padded = [b.op("wrap", x, dimension=0, lhs=1, rhs=1) for x in fields]
        shifted = [b.op("add", b.cut(p, 0, N), b.cut(p, 2, N + 2)) for p in padded]
        fields = [b.op("add", x, s) for x, s in zip(fields, [*shifted[1:], shifted[0]], strict=True)]
    region = b.build(fields)
    graph = saturate(region, RULES)
    assert graph.report.stop == "saturated"
    assert graph.size < 2 * len(region.ops)


# Scans.


def _inside(graph, cls, op):
    """All nodes of an op below a class."""
    seen, todo, out = set(), [cls], []
    while todo:
        c = todo.pop()
        if c not in seen:
            seen.add(c)
            for node in graph.classes[c].nodes:
                todo += node.children
                out += [node] if node.op == op else []
    return out


@pytest.mark.parametrize("axes, parts", [({"x": 8}, 8), ({"x": 4, "y": 2}, 8), ({"x": 5, "y": 4}, 4), ({"x": 5}, None)])
def test_scans_are_cut_into_as_many_parts_as_there_can_be_shards(axes, parts):
    b = Builder([TensorType((64,), "f32")])
    out = b.op("reduce_window", 0, **scan((64,), 0, 64, "add", 63, 0))
    region = b.build([out])
    graph = saturate(region, RULES, None, Mesh(axes))
    shapes = {n.attributes["shape"] for n in _inside(graph, graph.values[out], "reshape")}
    assert (parts is None and not shapes) or (parts, 64 // parts) in shapes
    assert not _inside(saturate(region, RULES), 0, "reshape")
    exact = saturate(region, select(default_rules(), exact=True), None, Mesh(axes))
    assert not _inside(exact, exact.values[out], "reshape")


def test_updates_by_one_value_are_choices_by_place():
    b = Builder([TensorType((N, M), "f32"), TensorType((), "f32")])
    row = b.op("broadcast_in_dim", 1, broadcast_dimensions=(), shape=(1, M))
    out = b.op("update_slice", 0, row, start_indices=(3, 0))
    graph = saturate(b.build([out]), RULES)
    assert "select" in {n.op for n in graph.classes[graph.values[out]].nodes}


@pytest.mark.parametrize("low, high, size", [(62, 0, 64), (63, 0, 63), (32, 31, 64), (64, 0, 65)])
def test_other_windows_are_no_scans(low, high, size):
    b = Builder([TensorType((64,), "f32")])
    out = b.op("reduce_window", 0, **scan((64,), 0, size, "max", low, high))
    graph = saturate(b.build([out]), RULES, None, Mesh({"x": 8}))
    assert not _inside(graph, graph.values[out], "reshape")


# What must not hold: each of these is in some catalogue of rewrites, and gives wrong numbers.

_TWO_SIDES = [{"dimension": 0, "lhs": a, "rhs": b} for a in (0, 1, 2) for b in (0, 1, 2)]
_MIRRORED = [{**e, "mode": "reflect"} for e in _TWO_SIDES]


def _sum_of_widths(m):
    return {"e": {**m.inner, "lhs": m.inner["lhs"] + m.outer["lhs"], "rhs": m.inner["rhs"] + m.outer["rhs"]}}


def _one_more(m):
    return {"made": {**m.e, "lhs": m.e["lhs"] + 1}} if m.e["lhs"] else None


def _first_row(n):
    return {"start_indices": (0, 0), "limit_indices": (1, n), "strides": (1, 1)}


def _literal(value, *shape):
    return {"value": Literal(np.full(shape, value, np.float32))}


def _padding(low, high):
    return {"edge_padding_low": (low, 0), "edge_padding_high": (high, 0), "interior_padding": (0, 0)}


def _masked(m):
    start = m.u["start_indices"][0]
    around = _padding(start, 5 - start - 2)
    return {"p": around, "q": around, "block": _literal(0, 2, 3), "one": _literal(1), "zero": _literal(0)}


def _halves(m):
    k = m.r["amount"]
    rest = {"start_indices": (k, 0), "limit_indices": (5, 3), "strides": (1, 1)}
    start = {"start_indices": (0, 0), "limit_indices": (k, 3), "strides": (1, 1)}
    return {"rest": rest, "start": start, "p": _padding(0, k), "q": _padding(5 - k, 0), "zero": _literal(0)}


UNSOUND = {
    # The period of the outer one is the wrapped size.
    "wrap of wrap": rule(
        "wrap[outer](wrap[inner](x)) => wrap[e](x)", name="wrap of wrap",
        cases=each(x=tensors((5, 3)), inner=_TWO_SIDES, outer=_TWO_SIDES),
    )(_sum_of_widths),
    # Mirrored elements are mirrored again, which only looks the same up to the width of the inner one.
    "extend of extend": rule(
        "extend[outer](extend[inner](x)) => extend[e](x)", name="extend of extend",
        cases=each(x=tensors((5, 3)), inner=_MIRRORED, outer=_MIRRORED),
    )(_sum_of_widths),
    # x0 before x1 x0 x1 ... is no wider mirror.
    "widen extend": rule(
        "concatenate[c](slice[s](x), extend[e](x)) => extend[made](x)", name="widen extend",
        cases=each(x=tensors((5, 3)), s=_first_row(3), c={"dimension": 0}, e=_MIRRORED),
    )(_one_more),
    # 0 * NaN is NaN.
    "update as product and sum": rule(
        "update_slice[u](x, y) => add(multiply(x, pad[p](constant[block](), constant[one]())), "
        "pad[q](y, constant[zero]()))",
        name="update as product and sum",
        cases=each(x=tensors((5, 3)), y=tensors((2, 3)), u=[{"start_indices": (k, 0)} for k in range(4)]),
    )(_masked),
    # -0 + 0 is 0.
    "rotate as pads": rule(
        "rotate[r](x) => add(pad[p](slice[rest](x), constant[zero]()), pad[q](slice[start](x), constant[zero]()))",
        name="rotate as pads", cases=each(x=tensors((5, 3)), r=[{"dimension": 0, "amount": k} for k in (1, 2, 4)]),
    )(_halves),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_rules_fail_their_law(name):
    with pytest.raises(LawViolation):
        for seed in range(20):
            check_law(UNSOUND[name], seed)


def _value(graph, cls, path=()):
    """A class by its first node that does not need the class itself; None if there is none."""
    for node in graph.classes[cls].nodes:
        if (found := _evaluated(graph, node, (*path, cls))) is not None:
            return found
    return None


def _evaluated(graph, node, path):
    if node.op == "input":
        return X
    if any(c in path for c in node.children):
        return None
    operands = [_value(graph, c, path) for c in node.children]
    return None if any(v is None for v in operands) else registry.get(node.op).evaluate(node.attributes, operands)[0]


@pytest.mark.parametrize("name", [name for name in SPELLINGS if name != "mirrored and cut"])
def test_all_forms_compute_what_was_built(name):
    region = built(name)
    (want,) = evaluate_region(region, [X])
    graph = saturate(region, RULES, LIMITS)
    cls = graph.values[region.outputs[0]]
    compared = [_evaluated(graph, node, (cls,)) for node in graph.classes[cls].nodes]
    assert any(got is not None for got in compared)
    for got in compared:
        if got is not None:
            np.testing.assert_array_equal(got, want)
