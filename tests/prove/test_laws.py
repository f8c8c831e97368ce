"""Every rule holds over prime fields, without rounding: on residues, and where branches for equal numbers are taken."""

from __future__ import annotations

import pytest

from eggshard.egraph.laws import LawViolation, each, tensors
from eggshard.egraph.rules import rule
from eggshard.prove.laws import check_over_fields, outside
from eggshard.prove.proving import blended, ordered
from eggshard.rewrites import default_rules

#: Rules by which truth values of numbers become integers or themselves: there integers are random functions of them.
OF_BITS = {"convert of convert", "identity convert"}


@pytest.mark.parametrize("fields", [ordered, blended])
@pytest.mark.parametrize("start", range(4))
def test_all_rules(start, fields):
    rules = [one for one in default_rules() if fields is ordered or one.name not in OF_BITS]
    assert len(rules) > 250
    for one in rules[start::4]:
        check_over_fields(one, 1, fields)


def test_rules_of_functions_that_are_random_here_lie_outside():
    cases = each(x=tensors((2, 3)), y=tensors((2, 3)))
    sums = rule("exponential(add(x, y)) => multiply(exponential(x), exponential(y))", name="sum", mark="ρ", cases=cases)
    wrong = rule("multiply(x, y) => add(x, y)", name="wrong", cases=cases)
    even = rule("cosine(negate(x)) => cosine(x)", name="even", cases=each(x=tensors((2, 3))))
    assert outside(sums(None)) and not outside(wrong(None)) and not outside(even(None))
    with pytest.raises(LawViolation):
        check_over_fields(wrong(None))
