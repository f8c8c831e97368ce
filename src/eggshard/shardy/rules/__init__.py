"""Op sharding rules: which dimensions of an op's operands and results are one index, and what sharding it takes.

They say what Shardy's say, word for word, so that propagation along them and comparisons with it mean the same; what an
op means to the planner is its `FactorRule`, with which they agree on the dimensions that pass.
"""

from eggshard.shardy.rules import (
    collectives as collectives,
    contraction as contraction,
    custom_calls as custom_calls,
    indexing as indexing,
    linalg as linalg,
    movement as movement,
    pointwise as pointwise,
    reduction as reduction,
    slicing as slicing,
)
from eggshard.shardy.rules.registry import RULES as RULES, implied_rule as implied_rule, rule_of as rule_of
