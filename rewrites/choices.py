"""Rules on choices between equals: whatever chooses need not be known, nor sent."""

from __future__ import annotations

from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import RuleList

rules = RuleList()

_X = tensors((4,), (2, 3), dtypes=("f32", "i32", "i1"))

rules.add("select(p, x, x) => x", name="select of equals", cases=each(p=tensors((4,), (2, 3), dtypes=("i1",)), x=_X))(
    None
)
for _op in ("maximum", "minimum", "and", "or"):
    rules.add(f"{_op}(x, x) => x", name=f"{_op} of equals", cases=each(x=_X))(None)
