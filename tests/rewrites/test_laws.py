"""Every default rule's law test."""

import pytest

from eggshard.rewrites import check_law, default_rules, select

RULES = default_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_both_sides_are_equal(rule):
    for seed in range(2):
        assert check_law(rule, seed) > 0


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_both_sides_are_equal_over_the_whole_domain(rule):
    """500,000 instances of all rules together."""
    assert check_law(rule, seed=2, instances=1900) >= 1900


def test_names_are_unique():
    assert len(select(RULES)) == len(RULES)


def test_a_new_list_every_time():
    default_rules().clear()
    assert len(default_rules()) == len(RULES)
