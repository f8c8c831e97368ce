"""Laws over prime fields: which rules are identities there."""

from __future__ import annotations

import numpy as np

from eggshard.egraph.laws import Judge, LawViolation, check_law
from eggshard.egraph.rules import Rule
from eggshard.ops.arithmetic import using
from eggshard.prove.proving import Fields, difference_of, drawn, ordered


def check_over_fields(rule: Rule, seed: int = 0, fields: Fields = ordered) -> None:
    """Evaluate both sides of a rule on its law's cases, with and without branches for equal numbers.

    LawViolation where they differ: the rule is wrong, or holds only of functions that are random here.
    """
    for k in range(2):
        field = fields(k, seed + k, k == 1)
        judge = Judge(
            lambda rng, type_, field=field: drawn(field, type_, rng),  # type: ignore[misc]
            lambda left, right: left.shape == right.shape and difference_of([left], [right]) is None,
        )
        with using(field), np.errstate(all="ignore"):
            check_law(rule, seed, judge=judge)


def outside(rule: Rule) -> bool:
    """Whether a rule holds of numbers, and not over fields, so that these say nothing of plans that it made."""
    try:
        check_over_fields(rule)
    except LawViolation:
        try:
            check_law(rule)
        except LawViolation:
            return False
        return True
    return False
