"""The bound of a ring of one layer is one of all layers."""

import random

import pytest
from tests.layers.test_layers import planned
from tests.random_layers import layered, random_design

from eggshard import Limits
from eggshard.costmodel import AlphaBeta, WireBytes


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("model", [WireBytes(), AlphaBeta()], ids=["bytes", "seconds"])
def test_no_plan_of_all_layers_costs_less_than_the_ring_says(seed, model):
    """Without rewrites all plans are of the same terms, those of the whole program's own search among them."""
    rng = random.Random(seed)
    program = layered(random_design(rng), rng)
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
