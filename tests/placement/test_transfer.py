"""Strategies of ops: which placements of operands give which placements of results without communication."""

import itertools

import pytest

from eggshard.ops.base import PASS, REDUCE, REPLICATE, Factor, FactorRule
from eggshard.placement.transfer import enumerated, useful
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, place, replicated

MESH = Mesh({"x": 4, "y": 2})
DOT = FactorRule(
    (Factor(64), Factor(32), Factor(16, REDUCE, "add")),
    (((0,), (2,)), ((2,), (1,))), (((0,), (1,)),), (("add", (0,)), ("add", (1,))),
)


def shown(rule: FactorRule, mesh: Mesh = MESH, **options) -> set[str]:
    return {" ".join(map(str, s.operands)) + " -> " + " ".join(map(str, s.results))
            for s in enumerated(mesh, rule, **options).found}


def test_replication_comes_first() -> None:
    first = enumerated(MESH, DOT).found[0]
    assert first.operands == (replicated((64, 16)), replicated((16, 32)))


def test_a_contraction_leaves_partial_sums() -> None:
    assert "(-, y) (y, -) -> (-, -)+{y}" in shown(DOT)
    assert "(x, y) (y, -) -> (x, -)+{y}" in shown(DOT)


def test_partial_sums_pass_through_linear_operands_one_at_a_time() -> None:
    found = shown(DOT)
    assert "(-, -)+{x} (-, -) -> (-, -)+{x}" in found
    assert not any(s.startswith("(-, -)+{x} (-, -)+{x}") for s in found)


def test_exact_planning_forbids_partial_sums() -> None:
    assert not any("+{" in s for s in shown(DOT, partial_allowed=lambda monoid: False))


def test_orders_other_than_the_mesh_s_are_tried_where_they_are_in_use() -> None:
    found = shown(DOT)
    assert "((x,y), -) (-, -) -> ((x,y), -)" in found
    assert "((y,x), -) (-, -) -> ((y,x), -)" not in found
    assert "((y,x), -) (-, -) -> ((y,x), -)" in shown(DOT, orders=frozenset({("y", "x")}))


def test_no_axis_is_used_twice_and_shapes_fit() -> None:
    for s in enumerated(MESH, DOT).found:
        for p in (*s.operands, *s.results):
            assert len(set(p.used_axes)) == len(p.used_axes)


def test_a_minor_factor_waits_for_the_major_one() -> None:
    """Merging (8, 16) into 128: the 16 can be sharded in the merged dimension only when the 8 is split completely."""
    merge = FactorRule((Factor(4), Factor(16)), (((0,), (1,)),), (((0, 1),),))
    found = shown(merge)
    assert "(x, y) -> ((x,y))" in found
    assert "(-, y) -> (y)" not in found


def test_uneven_factors_do_not_shard_inside_merged_dimensions() -> None:
    merge = FactorRule((Factor(6), Factor(5)), (((0,), (1,)),), (((0, 1),),))
    assert shown(merge) == {"(-, -) -> (-)", "(y, -) -> (y)"}


def test_uneven_reduction_is_masked() -> None:
    rule = FactorRule((Factor(10, REDUCE, "add"),), (((0,),),), ((),))
    masked = [s for s in enumerated(MESH, rule).found if s.masks]
    assert masked and all(m[3] == 10 for s in masked for m in s.masks)


def test_more_shards_than_elements_are_refused() -> None:
    rule = FactorRule((Factor(3),), (((0,),),), (((0,),),))
    assert shown(rule) == {"(-) -> (-)", "(y) -> (y)"}


def test_replicate_factors_are_never_sharded() -> None:
    rule = FactorRule((Factor(8, REPLICATE), Factor(8, PASS)), (((0,), (1,)),), (((0,), (1,)),))
    assert all(not s.operands[0].dims[0].axes for s in enumerated(MESH, rule).found)


def test_one_monoid_at_a_time() -> None:
    rule = FactorRule(
        (Factor(8, REDUCE, "add"), Factor(8, REDUCE, "max")), (((0,), (1,)),), ((),), ())
    assert all(not (s.operands[0].dims[0].axes and s.operands[0].dims[1].axes) for s in enumerated(MESH, rule).found)


@pytest.mark.parametrize("limit", [1, 5, 20])
def test_the_limit_holds(limit: int) -> None:
    assert len(enumerated(MESH, DOT, limit=limit).found) == limit


def test_three_axes_follow_orders_in_use() -> None:
    mesh = Mesh({"x": 2, "y": 2, "z": 2})
    rule = FactorRule((Factor(64),), (((0,),),), (((0,),),))
    plain = shown(rule, mesh)
    assert "((x,y,z)) -> ((x,y,z))" in plain and "((z,x,y)) -> ((z,x,y))" not in plain
    assert "((z,x,y)) -> ((z,x,y))" in shown(rule, mesh, orders=frozenset({("z", "x", "y")}))


def test_placements_have_standard_tiles() -> None:
    rule = FactorRule((Factor(10), Factor(7)), (((0,), (1,)),), (((0,), (1,)),))
    for s in enumerated(MESH, rule).found:
        p: Placement = s.results[0]
        assert p == place(MESH, (10, 7), tuple(d.axes for d in p.dims))


def test_every_axis_subset_of_an_elementwise_op_is_there() -> None:
    rule = FactorRule((Factor(64), Factor(64)), (((0,), (1,)),) * 2, (((0,), (1,)),))
    found = {tuple(d.axes for d in s.results[0].dims) for s in enumerated(MESH, rule).found}
    for a, b in itertools.product([(), ("x",), ("y",)], repeat=2):
        if not set(a) & set(b):
            assert (a, b) in found


def test_accumulators_hold_partial_sums_over_the_axes_that_shard_the_factor() -> None:
    """Adding rows to a table: each device adds its part of the rows to its partial sum of the table."""
    rule = FactorRule(
        (Factor(64), Factor(16, REDUCE, "add", accumulators=(0,))), (((0,),), ((1,),)), (((0,),),), (("add", (0, 1)),)
    )
    found = shown(rule)
    assert "(x)+{y} (y) -> (x)+{y}" in found
    assert not any(s.startswith("(x) (y)") for s in found)


def test_strategies_say_where_places_matter_and_mask_nothing_there() -> None:
    rule = FactorRule((Factor(10, REDUCE, "add", positional=True), Factor(8)), (((0,), (1,)),), (((1,),),))
    for s in enumerated(MESH, rule).found:
        assert s.positional == bool(s.operands[0].dims[0].axes) and not s.masks


def test_a_factor_of_size_one_beside_another_changes_nothing() -> None:
    """A dimension of 5 whose rule names a factor of size 1 too shards unevenly, as one of 5 alone does."""
    plain = FactorRule((Factor(5),), (((0,),),), (((0,),),))
    named = FactorRule((Factor(5), Factor(1)), (((1, 0),),), (((0,),),))
    assert shown(named) == shown(plain)


def test_useful_strategies_have_partial_sums_where_partial_sums_can_be() -> None:
    whole = replicated((64, 16)), replicated((16, 32))
    found = enumerated(MESH, DOT).found
    left, right = (
        next(s for s in found if s.operands[i].partial == ("x",) and s.operands[1 - i] == whole[1 - i])
        for i in (0, 1)
    )
    assert useful(left, [{"add"}, ()]) and not useful(right, [{"add"}, ()]) and not useful(left, [{"max"}, ()])
    assert all(useful(s, [(), ()]) for s in enumerated(MESH, DOT).found if not any(p.partial for p in s.operands))
