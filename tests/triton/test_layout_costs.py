"""Prices of layouts: sums of what is counted, per target."""

from __future__ import annotations

import pytest

from eggshard.triton.layout_costs import (
    GFX942,
    GFX1100,
    SM75,
    SM80,
    SM86,
    SM90,
    LayoutCostModel,
    LayoutCosts,
    WithinScratch,
    default_costs,
)
from eggshard.triton.layouts.counts import NOTHING, Counts

MUCH = Counts((("float", 3.0), ("special", 2.0)), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)


@pytest.mark.parametrize("costs", [SM75, SM80, SM86, SM90, GFX942, GFX1100])
def test_prices_add_up(costs: LayoutCosts) -> None:
    assert isinstance(costs, LayoutCostModel)
    assert costs.price(NOTHING) == 0
    assert costs.price(MUCH) > 0
    assert costs.price(MUCH.plus(MUCH)) == pytest.approx(2 * costs.price(MUCH))


def test_scratch_memory_is_used_again() -> None:
    assert MUCH.plus(MUCH._replace(scratch=64)).scratch == 64


def test_targets_without_a_table_cost_as_the_nearest_older_one() -> None:
    assert default_costs("cuda:80") is SM80
    assert default_costs("cuda:87") is SM86
    assert default_costs("cuda:70") is SM75
    assert default_costs("cuda:121") is SM86
    assert default_costs("cuda:90") is SM90
    assert default_costs("cuda:100") is SM90
    assert default_costs("cuda:103") is SM90
    assert default_costs("hip:gfx942") is GFX942
    assert default_costs("hip:gfx950") is GFX942
    assert default_costs("hip:gfx1201") is GFX1100
    assert default_costs("") is SM80


def test_an_unknown_class_of_arithmetic_costs_as_floats() -> None:
    assert SM80.price(Counts((("something", 4.0),))) == SM80.price(Counts((("float", 4.0),)))


def test_more_scratch_than_allowed_is_prohibitive():
    model = default_costs("cuda:80")
    within = WithinScratch(model, 512)
    small, large = Counts(shared_stores=4, scratch=512), Counts(shared_stores=4, scratch=513)
    assert within.price(small) == model.price(small)
    assert within.price(large) > 1e6 * model.price(large)
