"""Every rule holds over prime fields, without rounding: on residues, and where branches for equal numbers are taken."""

from __future__ import annotations

import numpy as np
import pytest

from eggshard.egraph.laws import Judge, check_law
from eggshard.ops.arithmetic import using
from eggshard.prove.field import Field
from eggshard.prove.proving import difference_of, drawn
from eggshard.prove.residues import PRIMES
from eggshard.rewrites import default_rules


@pytest.mark.parametrize("loose", [False, True])
def test_all_rules(loose):
    field = Field(PRIMES[loose], 5, loose)
    judge = Judge(
        lambda rng, type_: drawn(field, type_, rng),
        lambda left, right: left.shape == right.shape and difference_of([left], [right]) is None,
    )
    rules = default_rules()
    assert len(rules) > 250
    with using(field), np.errstate(all="ignore"):
        for rule in rules:
            check_law(rule, 1, judge)
