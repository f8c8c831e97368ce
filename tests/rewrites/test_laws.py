"""Every default rule's law test."""

import pytest

from eggshard.rewrites import check_law, default_rules, select

RULES = default_rules()


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_both_sides_are_equal(rule):
    for seed in range(2):
        assert check_law(rule, seed) > 0


def test_names_are_unique():
    assert len(select(RULES)) == len(RULES)


def test_a_new_list_every_time():
    default_rules().clear()
    assert len(default_rules()) == len(RULES)
