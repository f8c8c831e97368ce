"""The bound of a ring of one layer is one of all layers."""

import math
import random

import pytest
from tests.planner.layers.test_layers import planned
from tests.random_layers import design_of_parts, layered, random_design
from tests.slowness import some

from eggshard import Limits
from eggshard.costmodel import AlphaBeta, WireBytes
from eggshard.planner.layers import ring


@pytest.mark.parametrize("rows", ["one row", "parts"])
@pytest.mark.parametrize("seed", some(range(6), 3))
@pytest.mark.parametrize("model", [WireBytes(), AlphaBeta()], ids=["bytes", "seconds"])
def test_no_plan_of_all_layers_costs_less_than_the_ring_says(seed, model, rows):
    """Without rewrites all plans are of the same terms, those of the whole program's own search among them."""
    rng = random.Random(seed)
    design = random_design(rng)
    program = layered(design_of_parts(design, rng) if rows == "parts" else design, rng)
    options = {"cost_model": model, "rewrites": [], "limits": Limits(seconds_per_node=0.05)}
    by_layers = planned(program, **options)
    whole = planned(program, by_layers=False, **options)
    if by_layers.search.terms > by_layers.search.once:
        assert by_layers.search.terms <= min(by_layers.cost.total, whole.cost.total) * (1 + 1e-9)
        assert "by the same ops" in by_layers.certificate


def test_the_plan_of_many_layers_comes_with_a_bound():
    rng = random.Random(1)
    program = layered(random_design(rng), rng)
    plan = planned(program, cost_model=WireBytes(), limits=Limits(seconds_per_node=0.05))
    assert 0 < plan.bound <= plan.cost.total


#: Designs whose plans by layers compute nothing twice.
ONCE = (0, 5, 9, 11, 21)


@pytest.mark.parametrize("seed", ONCE)
def test_the_bound_of_the_ring_meets_the_plan(seed):
    """What passes from layer to layer is weighed, though round the ring each comes before the other."""
    rng = random.Random(seed)
    plan = planned(layered(random_design(rng), rng), rewrites=[], limits=Limits(seconds_per_node=0.05))
    assert 0.99 * plan.cost.total <= plan.search.terms <= plan.cost.total


@pytest.mark.parametrize("seed", ONCE)
def test_no_prices_make_a_plan_cost_more_than_it_does(seed, monkeypatch):
    """At all prices on the way: its layers, what the first one takes, and what is owed where the row ends.

    (The bound is the sum of the least that each of them pays in any plan.)
    """
    values = []
    plan, reprice = ring.Ring.plan, ring._Ends.reprice

    def looked_at(self, like, known, gap, deadline):
        state.update(like=like, known=known)
        return plan(self, like, known, -1.0, math.inf)

    def and_valued(self, dual):
        owed = reprice(self, dual)
        values.append((_value(self, dual, state["like"]) + owed) / state["known"])
        return owed

    state = {}
    monkeypatch.setattr(ring.Ring, "plan", looked_at)
    monkeypatch.setattr(ring._Ends, "reprice", and_valued)
    rng = random.Random(seed)
    planned(layered(random_design(rng), rng), rewrites=[], limits=Limits(seconds_per_node=0.05))
    assert values and max(values) <= 1 + 1e-6


def _value(ends, dual, like):
    """What a plan pays at a dual's prices: the slack of its labels."""
    slack = dual._charged()
    for block in dual.blocks:
        slack[block.labels] -= block.at_labels(block.charged(block.state.charge))
    total = slack[dual.root :].sum()
    for c in dual.live:
        if c in ends.added:
            continue
        some = like.chosen.get(c, ())
        assert len(some) == 1 or (not some and c in dual.optional)
        total += slack[dual.first[c] + (dual.kept[c].index(some[0]) if some else len(dual.kept[c]))]
    for link, firsts in zip(ends.links, ends._firsts, strict=True):
        for first in firsts:
            if first is not None:
                total += slack[dual.first[first] + ends._takes(link).index(like.chosen[link.taken][0])]
    return total * dual.unit
