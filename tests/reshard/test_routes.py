"""Routes: cheapest sequences of collectives, against the peers' best plans, an independent search, and the devices."""

import heapq
import itertools
import math
import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.reshard.reshards import all_placements, check_steps, placed, serial_bytes
from tests.slowness import some

from eggshard.costmodel.alpha_beta import AlphaBeta
from eggshard.costmodel.counting import Messages, WireBytes
from eggshard.costmodel.machines.machine_files import preset
from eggshard.costmodel.pricing import Pricer
from eggshard.errors import ShardingError
from eggshard.program import monoids
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Dim, Placement, missing_elements, place, replicated
from eggshard.program.types import TensorType
from eggshard.reshard.routes import Router
from eggshard.steps.exchange import BoxExchange
from eggshard.steps.steps import KeepFirst

LINE = Mesh({"x": 8})
GRID = Mesh({"x": 4, "y": 2})
CUBE = Mesh({"x": 2, "y": 2, "z": 2})
SIX = Mesh({"x": 2, "y": 3})
TWELVE = Mesh({"x": 2, "y": 3, "z": 2})
HALVES = Mesh([("a", 2), ("b", 4)])
SQUARE, BLOCK = (1024, 1024), (256, 64, 64)


def router(mesh, model=None, **options):
    return Router(mesh, Pricer(model or WireBytes(), mesh), **options)


# KiB of the best plan known for each reshard of f32: of XLA, Shardy, a plan by hand, or the lower bound.
BEST_KNOWN = [
    (LINE, SQUARE, "x|", "|x", 448),
    (LINE, SQUARE, "x|", "|", 3584),
    (LINE, SQUARE, "|", "x|", 0),
    (GRID, SQUARE, "x|", "|x", 768),
    (GRID, SQUARE, "xy|", "|xy", 448),
    (GRID, SQUARE, "xy|", "yx|", 512),
    (GRID, SQUARE, "x|y", "y|x", 512),
    (GRID, SQUARE, "x|", "y|", 2048),
    (GRID, SQUARE, "y|", "x|", 1024),
    (CUBE, SQUARE, "x|", "y|", 2048),
    (GRID, SQUARE, "x|", "|y", 1536),
    (GRID, SQUARE, "x|y", "xy|", 256),
    (GRID, SQUARE, "x|y", "yx|", 512),
    (GRID, SQUARE, "xy|", "x|y", 256),
    (GRID, SQUARE, "yx|", "x|y", 512),
    (GRID, SQUARE, "xy|", "x|", 512),
    (GRID, SQUARE, "xy|", "y|", 2048),
    (GRID, SQUARE, "x|y", "x|", 512),
    (GRID, BLOCK, "y||x", "|xy|", 448),
    (GRID, BLOCK, "|xy|", "y||x", 448),
    (GRID, BLOCK, "y||x", "|yx|", 448),
    (CUBE, BLOCK, "x|y|z", "y|z|x", 512),
    (CUBE, BLOCK, "x|y|z", "z|x|y", 512),
    (CUBE, BLOCK, "x|y|z", "y|x|z", 512),
    (CUBE, BLOCK, "x|y|z", "xyz||", 384),
    (CUBE, BLOCK, "x|y|z", "|xyz|", 512),
    (CUBE, BLOCK, "xyz||", "x|y|z", 384),
    (CUBE, BLOCK, "xyz||", "z|y|x", 512),
    (CUBE, SQUARE, "xyz|", "zyx|", 512),
    (CUBE, SQUARE, "xyz|", "yzx|", 512),
    (CUBE, BLOCK, "xy|z|", "z|xy|", 512),
    (CUBE, BLOCK, "xy|z|", "|z|xy", 384),
    (CUBE, BLOCK, "xy|z|", "z|x|", 1024),
    (CUBE, BLOCK, "x||", "y|x|z", 512),
    (CUBE, SQUARE, "xy|", "yz|", 1024),
    (CUBE, SQUARE, "xy|", "zx|", 1024),
    (GRID, BLOCK, "x||", "|x|y", 384),
    (GRID, BLOCK, "x||y", "|x|", 896),
    (GRID, SQUARE, "|", "x|y", 0),
    (GRID, (1024, 4), "xy|", "|x", 3.5),
    (HALVES, SQUARE, "a|b", "b|a", 512),
    (HALVES, SQUARE, "ab|", "a|b", 384),
    (HALVES, SQUARE, "ab|", "b|a", 512),
    (HALVES, SQUARE, "a|", "|b", 512),
    (LINE, (1000, 1000), "x|", "|x", 427.25),
    # 1003 rows lie in tiles of 126; a byte more than the 490 of XLA is the padding.
    (LINE, (1003, 1024), "x|", "|x", 441),
    (CUBE, SQUARE, "xy|z", "x|yz", 512),
    (GRID, SQUARE, "xy|", "y|x", 512),
    (GRID, (256, 256, 16), "x|y|", "|x|y", 512),
]


@pytest.mark.parametrize(("mesh", "shape", "a", "b", "kib"), BEST_KNOWN)
def test_best_known_plans_are_met(mesh, shape, a, b, kib):
    type_, source, target = TensorType(shape, "f32"), placed(mesh, shape, a), placed(mesh, shape, b)
    finder = router(mesh)
    route = finder.route(type_, source, target)
    assert serial_bytes(mesh, type_, source, route.steps) <= kib * 1024
    small = TensorType(tuple(n // 4 if n % 32 == 0 else n for n in shape), "f32")
    source, target = placed(mesh, small.shape, a), placed(mesh, small.shape, b)
    alike = finder.route(small, source, target)
    assert [action.kind for action, _ in alike.steps] == [action.kind for action, _ in route.steps]
    check_steps(mesh, small, source, target, alike.steps, np.random.default_rng(0))


@pytest.mark.parametrize(("mesh", "shape", "a", "b"), some([case[:4] for case in BEST_KNOWN[:20]], 8, rows=True))
def test_detours_are_other_ways_to_the_same_place(mesh, shape, a, b):
    type_, source, target = TensorType(shape, "f32"), placed(mesh, shape, a), placed(mesh, shape, b)
    pricer = Pricer(preset("tpu-v5e"), mesh)
    finder = Router(mesh, pricer)
    cheapest = finder.route(type_, source, target)
    found = finder.detours(type_, source, target, 3)
    kinds = [tuple(action.kind for action, _ in r.steps if action.messages) for r in (cheapest, *found)]
    assert len(set(kinds)) == len(kinds)
    assert [r.cost for r in found] == sorted(r.cost for r in found)
    for route in found:
        assert route.steps[-1][1] == target
        assert route.cost >= cheapest.cost * (1 - 1e-12)
        assert route.cost == pytest.approx(sum(
            pricer(action, before.local_type(type_))
            for (action, _), before in zip(route.steps, [source, *(p for _, p in route.steps)], strict=False)))
        check_steps(mesh, type_, source, target, route.steps, np.random.default_rng(0))


def test_what_is_not_resharded_has_no_detours():
    there = placed(GRID, SQUARE, "x|y")
    assert router(GRID).detours(TensorType(SQUARE, "f32"), there, there, 3) == []
    whole, rows = (placed(GRID, (0, 8), text) for text in ("|", "x|"))
    assert router(GRID).detours(TensorType((0, 8), "f32"), whole, rows, 3) == []


def test_three_axes_merge_in_one_all_to_all():
    for mesh, a, b in [(GRID, "y||x", "|xy|"), (CUBE, "x|y|z", "xyz||"), (CUBE, "xyz||", "x|y|z")]:
        route = router(mesh).route(TensorType(BLOCK, "f32"), placed(mesh, BLOCK, a), placed(mesh, BLOCK, b))
        assert [action.kind for action, _ in route.steps] == ["all-to-all"]


def best_sequences(mesh, shape, placements):
    """Independent of the router: bytes of the best sequence of one-axis slices, gathers, all-to-alls and permutes."""
    number = {p: i for i, p in enumerate(placements)}
    size = 4 * math.prod(shape)
    local = [4 * math.prod(p.local_shape) for p in placements]
    by_shape = defaultdict(list)
    for i, p in enumerate(placements):
        by_shape[p.local_shape].append(i)

    def edges(i):
        axes = [d.axes for d in placements[i].dims]
        yield from ((j, local[i]) for j in by_shape[placements[i].local_shape] if j != i)
        for d, here in enumerate(axes):
            for axis in mesh.axes:
                if not any(axis in other for other in axes):
                    yield number[place(mesh, shape, (*axes[:d], (*here, axis), *axes[d + 1 :]))], 0
            if here:
                n = mesh.axes[here[-1]]
                without = [*axes[:d], here[:-1], *axes[d + 1 :]]
                yield number[place(mesh, shape, tuple(without))], local[i] * (n - 1)
                for e in range(len(axes)):
                    if e != d:
                        moved = list(without)
                        moved[e] = (*moved[e], here[-1])
                        yield number[place(mesh, shape, tuple(moved))], local[i] * (n - 1) // n

    graph = [list(edges(i)) for i in range(len(placements))]
    for start in range(len(placements)):
        best, queue = {start: 0}, [(0, start)]
        while queue:
            cost, i = heapq.heappop(queue)
            if cost > best[i]:
                continue
            for j, more in graph[i]:
                if cost + more < best.get(j, size * mesh.size):
                    best[j] = cost + more
                    heapq.heappush(queue, (cost + more, j))
        for end, cost in best.items():
            yield placements[start], placements[end], cost


@pytest.mark.parametrize(("mesh", "shape", "met"), [(CUBE, (16, 16), 1440), (TWELVE, (72, 72), 1176)])
def test_every_pair_costs_the_lower_bound(mesh, shape, met):
    type_, finder, chosen = TensorType(shape, "f32"), router(mesh), random.Random(0)
    pairs = met_by_sequences = 0
    for source, target, best in best_sequences(mesh, shape, all_placements(mesh, shape)):
        if source == target:
            continue
        route = finder.route(type_, source, target)
        bound = 4 * missing_elements(mesh, shape, source, target).max()
        assert serial_bytes(mesh, type_, source, route.steps) == bound <= best, (str(source), str(target))
        pairs, met_by_sequences = pairs + 1, met_by_sequences + (best == bound)
        if chosen.random() < 0.1:
            check_steps(mesh, type_, source, target, route.steps, np.random.default_rng(0))
    # The best sequences of one-axis steps meet the bound on 61 % and 50 % of the pairs.
    assert (pairs, met_by_sequences) == (2352, met)


@pytest.mark.slow
@pytest.mark.parametrize(("mesh", "shape"), [(CUBE, (16, 16)), (TWELVE, (24, 36)), (GRID, (9, 16, 8)), (SIX, (10, 7))])
@pytest.mark.parametrize("model", [WireBytes(), Messages(), AlphaBeta(), AlphaBeta.preset("tpu-v5e")], ids=repr)
def test_every_route_is_correct(mesh, shape, model):
    finder, rng, type_ = router(mesh, model), np.random.default_rng(0), TensorType(shape, "f32")
    for source, target in itertools.permutations(all_placements(mesh, shape), 2):
        check_steps(mesh, type_, source, target, finder.route(type_, source, target).steps, rng)


MONOIDS = [(monoid, dtype) for dtype in ("f32", "i32", "i1") for monoid in monoids.of_dtype(dtype)]


@st.composite
def reshards(draw):
    mesh = draw(st.sampled_from([GRID, CUBE, SIX, TWELVE, Mesh({"x": 2, "y": 4}, device_ids=(7, 6, 5, 4, 0, 2, 1, 3))]))
    shape = tuple(draw(st.lists(st.sampled_from([1, 3, 7, 8, 10, 12, 24]), max_size=3)))
    monoid, dtype = draw(st.sampled_from(MONOIDS))

    def placement():
        axes, dims = list(draw(st.permutations(list(mesh.axes)))), [()] * len(shape)
        partial = []
        for axis in axes:
            where = draw(st.integers(-2, len(shape) - 1))
            if where == -1:
                partial.append(axis)
            elif where >= 0:
                dims[where] += (axis,)
        return place(mesh, shape, tuple(dims), tuple(partial), monoid)

    return mesh, TensorType(shape, dtype), placement(), placement(), draw(st.integers(0, 2**32))


def check_any_route(reshard, model):
    mesh, type_, source, target, seed = reshard
    price = Pricer(model, mesh)
    finder = Router(mesh, price)
    route = finder.route(type_, source, target)
    check_steps(mesh, type_, source, target, route.steps, np.random.default_rng(seed))
    cost, local = 0.0, source.local_type(type_)
    for action, after in route.steps:
        assert action.result(mesh, (local,)) == (after.local_type(type_),)
        cost += price(action, local)
        local = after.local_type(type_)
    assert route.cost == pytest.approx(cost, rel=1e-12)
    assert finder.cost(type_, source, target) == pytest.approx(cost, rel=1e-9)
    if not source.partial:
        assert serial_bytes(mesh, type_, source, route.steps) >= finder.lower_bound(type_, source, target)


@settings(max_examples=50)
@given(reshards(), st.sampled_from([WireBytes(), Messages(), AlphaBeta()]))
def test_any_route_is_correct_and_costs_what_its_steps_cost(reshard, model):
    check_any_route(reshard, model)


@pytest.mark.slow
@settings(max_examples=150)
@given(reshards(), st.sampled_from([WireBytes(), Messages(), AlphaBeta()]))
def test_any_route_is_correct_and_costs_what_its_steps_cost_often(reshard, model):
    check_any_route(reshard, model)


PARTIALS = [((), ""), (("y",), "add"), (("x", "y"), "add"), (("x",), "max")]


@pytest.mark.parametrize(
    ("mesh", "shape", "partials"),
    [(GRID, (16, 8), PARTIALS), (GRID, (32, 64, 3), PARTIALS), (CUBE, (8, 8, 8), PARTIALS[:2]),
     (SIX, (10, 7), PARTIALS), (SIX, (), PARTIALS)],
)
@pytest.mark.parametrize("model", [AlphaBeta(), preset("cpu-host")], ids=["messages and bytes", "copies too"])
def test_tables_are_shortest_and_agree_with_routes(mesh, shape, partials, model):
    placements = all_placements(mesh, shape, partials)[::3]
    type_, finder = TensorType(shape, "f32"), router(mesh, model)
    table = finder.table(type_, placements)
    assert table.shape == (len(placements),) * 2
    assert (np.diagonal(table) == 0).all()
    through = (table[:, :, None] + table[None]).min(axis=1)
    assert (table <= through * (1 + 1e-12)).all()
    for i, j in itertools.product(range(len(placements)), repeat=2):
        if math.isfinite(table[i, j]) and (i + j) % 3 == 0:
            assert finder.route(type_, placements[i], placements[j]).cost == pytest.approx(table[i, j], rel=1e-9)


def test_cutting_and_joining_pieces_takes_time_on_a_host():
    mesh, shape = Mesh({"x": 4, "y": 2}), (64, 256, 64)
    route = router(mesh, preset("cpu-host")).route(
        TensorType(shape, "f32"), placed(mesh, shape, "|xy|"), placed(mesh, shape, "|x|y"))
    assert [action.kind for action, _ in route.steps] == ["all-to-all"]  # not a permute and an exchange


def test_partial_sums_are_reduced_on_the_way():
    def kinds(a, b, mesh=GRID, shape=(64, 64)):
        route = router(mesh).route(TensorType(shape, "f32"), placed(mesh, shape, a), placed(mesh, shape, b))
        return [action.kind for action, _ in route.steps]

    assert kinds("|+x", "|", LINE) == kinds("|+xy", "|") == ["all-reduce"]
    assert kinds("|+xy", "y|x") == ["reduce-scatter"]
    assert kinds("|+xy", "x|") == ["reduce-scatter", "all-gather"]
    assert kinds("y|+x", "yx|") == ["reduce-scatter"]
    assert kinds("y|+x", "y|") == ["all-reduce"]
    assert kinds("|", "|+x") == ["keep-first"]
    assert kinds("x|", "x|+yz", CUBE) == ["keep-first"]
    assert kinds("y|+x", "|y+x") == ["all-to-all"]
    # Devices along z hold the same partial sums: each reduces half of them.
    type_, source, target = TensorType((64, 64), "f32"), placed(CUBE, (64, 64), "|+xy"), placed(CUBE, (64, 64), "|")
    steps = router(CUBE).route(type_, source, target).steps
    assert serial_bytes(CUBE, type_, source, steps) == (0.5 * 1.5 + 0.5) * type_.bytes < 1.5 * type_.bytes


def test_monoids_do_not_mix():
    shape = (8, 8)
    finder, type_ = router(LINE), TensorType(shape, "f32")
    source, target = placed(LINE, shape, "|+x", "add"), placed(LINE, shape, "|+x", "max")
    route = finder.route(type_, source, target)
    assert [action.kind for action, _ in route.steps] == ["all-reduce", "keep-first"]
    assert isinstance(route.steps[1][0], KeepFirst) and route.steps[1][0].monoid == "max"


def test_trees_share_prefixes():
    type_ = TensorType(SQUARE, "f32")
    source = placed(GRID, SQUARE, "|+xy")
    targets = [placed(GRID, SQUARE, t) for t in ("|", "x|", "xy|", "|x")]
    finder = router(GRID)
    paths = finder.tree(type_, source, [*targets, source, targets[0]])
    reached, total = {source}, 0.0
    for start, steps in paths:
        assert start in reached
        total += serial_bytes(GRID, type_, start, steps)
        reached |= {after for _, after in steps}
    assert reached >= set(targets)
    # One reduction serves all four.
    assert total == serial_bytes(GRID, type_, source, finder.route(type_, source, targets[0]).steps)
    assert finder.tree(type_, source, [source]) == []


def test_ties_go_to_fewer_messages_and_are_stable():
    free = Router(CUBE, lambda action, operand: 0.0)
    type_ = TensorType((16, 16), "f32")
    for source, target in itertools.islice(itertools.permutations(all_placements(CUBE, (16, 16)), 2), 0, None, 17):
        route = free.route(type_, source, target)
        assert route.messages <= 1 or route.messages == 2 and route.cost == 0
        assert route == Router(CUBE, lambda action, operand: 0.0).route(type_, source, target)


def test_rounds_are_limited():
    type_, source, target = TensorType((64, 64), "f32"), placed(GRID, (64, 64), "x|y"), placed(GRID, (64, 64), "y|x")
    for rounds in (0, 1, 2):
        route = router(GRID, max_rounds=rounds).route(type_, source, target)
        assert any(isinstance(action, BoxExchange) for action, _ in route.steps) == (rounds == 2)


def test_pairwise_all_to_alls_go_from_one_dimension_to_one_other():
    type_ = TensorType((64, 64, 64), "f32")
    apart = place(CUBE, type_.shape, (("x",), ("y",), ()))
    together = place(CUBE, type_.shape, ((), (), ("x", "y")))
    crossed = place(CUBE, type_.shape, (("y",), ("x",), ()))
    at_once = router(CUBE, max_rounds=0).route(type_, apart, together)
    assert [action.kind for action, _ in at_once.steps] == ["all-to-all"]
    one_by_one = router(CUBE, max_rounds=0, pairwise=True)
    route = one_by_one.route(type_, apart, together)
    assert len(route.steps) > 1 and route.cost > at_once.cost
    for source, target in itertools.permutations((apart, together, crossed), 2):
        for action, _ in one_by_one.route(type_, source, target).steps:
            if action.kind == "all-to-all":
                assert sorted(axes for _, axes in action.sources) == sorted(axes for _, axes in action.targets)


def test_bad_placements_are_refused():
    type_, finder = TensorType((8, 8), "f32"), router(GRID)
    with pytest.raises(ShardingError, match="standard tiles"):
        finder.route(type_, Placement((Dim((), 9), Dim((), 8))), placed(GRID, (8, 8), "x|"))
    with pytest.raises(ShardingError, match="not in"):
        finder.route(type_, Placement((Dim(("w",), 4), Dim((), 8))), placed(GRID, (8, 8), "x|"))
    assert finder.table(type_, []).shape == (0, 0)
    assert finder.route(type_, replicated((8, 8)), replicated((8, 8))).steps == ()


def test_size_one_axes_cost_no_message():
    mesh, shape = Mesh({"x": 4, "one": 1}), (8, 8)
    type_, finder = TensorType(shape, "f32"), router(mesh)
    a, b = place(mesh, shape, (("x", "one"), ())), place(mesh, shape, (("x",), ("one",)))
    route = finder.route(type_, a, b)
    assert route.messages == 0
    check_steps(mesh, type_, a, b, route.steps, np.random.default_rng(0))


def test_many_axes_are_searched_in_part():
    mesh = Mesh({"a": 2, "b": 2, "c": 2, "d": 2, "e": 2})
    shape = (64, 64, 64, 32)
    finder, type_, rng = router(mesh), TensorType(shape, "bf16"), np.random.default_rng(0)
    pairs = [("ab|cd|e|", "|ab|cd|e"), ("abcde|||", "|||edcba"), ("ab|c||+de", "d|e|ab|c"), ("a|b|c|d+e", "abcde|||")]
    for a, b in pairs:
        source, target = placed(mesh, shape, a), placed(mesh, shape, b)
        assert math.isfinite(finder.cost(type_, source, target))
    small = TensorType((32, 32), "f32")
    some = rng.permutation(np.array([f"{p[:k]}|{p[k:n]}" for p in map("".join, itertools.permutations("abcde"))
                                     for n in (3, 5) for k in range(n + 1)]))[:40]
    table = finder.table(small, [placed(mesh, small.shape, t) for t in dict.fromkeys(some.tolist())])
    assert np.isfinite(table).all()
    for a, b in itertools.pairwise(some[:8]):
        source, target = placed(mesh, small.shape, a), placed(mesh, small.shape, b)
        check_steps(mesh, small, source, target, finder.route(small, source, target).steps, rng)


def test_dimensions_of_one_are_sharded_only_where_that_is_asked_for():
    route = router(GRID)
    source, target = (place(GRID, (64, 1, 32), axes) for axes in ((("x",), (), ()), ((), (), ("x",))))
    flat = tuple(p._replace(dims=(p.dims[0], p.dims[2])) for p in (source, target))
    assert route.cost(TensorType((64, 1, 32), "f32"), source, target) == route.cost(TensorType((64, 32), "f32"), *flat)
    odd = place(GRID, (64, 1, 32), (("x",), ("y",), ()))
    assert math.isfinite(route.cost(TensorType((64, 1, 32), "f32"), odd, target))
