"""Rewrite rules, which state equalities between tensors; one file per topic.

``default_rules()`` is a list; add to it, leave out of it, and pass it to ``optimize(rewrites=...)``::

    @rule("abs[f](negate(x)) => abs[f](x)", cases=each(x=tensors((4,)), f={}))
    def abs_of_negated(m):
        return True

    optimize(program, rewrites=default_rules() + [abs_of_negated])

A rule's text is explained in `eggshard.egraph.patterns`, its function in `eggshard.egraph.rules`, and its law test in
`eggshard.egraph.laws`; `check_law` runs it.
"""

from eggshard.egraph.laws import (
    check_law as check_law,
    each as each,
    like_zeros as like_zeros,
    tensors as tensors,
    together as together,
)
from eggshard.egraph.rules import Match as Match, Rule as Rule, rule as rule, select as select
from eggshard.rewrites import (
    broadcast,
    choices,
    contraction,
    conversion,
    linearity,
    reduction,
    reshape,
    spectral,
    transpose,
)
from eggshard.rewrites.subarrays import concatenation, halo, padding, parts, slicing, updates

#: The topics of the default rules, in the order in which they are tried.
TOPICS = (
    transpose,
    reshape,
    broadcast,
    conversion,
    choices,
    parts,
    slicing,
    spectral,
    padding,
    concatenation,
    halo,
    updates,
    contraction,
    linearity,
    reduction,
)


def default_rules() -> list[Rule]:
    """All rules that eggshard ships, as a new list."""
    return [r for topic in TOPICS for r in topic.rules]
