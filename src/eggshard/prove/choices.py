"""What of a program chance decides with few ways: comparisons of floats, and integers."""

from __future__ import annotations

from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType, is_float

_COMPARING = ("abs", "chlo.top_k", "clamp", "compare", "maximum", "minimum", "sign")


def choices_of(region: Region) -> int:
    """Ops of a region that compare floats, and inputs of few values, as integers are."""
    return comparisons(region) + sum(has_few_values(region.types[v]) for v in region.inputs)


def comparisons(region: Region) -> int:
    """Ops of a region that compare floats."""
    return sum(compares(op, region) for op in region.ops)


def compares(op: Op, region: Region) -> int:
    """How many floats' comparisons an op of a region makes, those in its own regions counted once."""
    own = op.name in _COMPARING and any(is_float(region.types[v].dtype) for v in op.operands)
    return (own or op.attributes.get("monoid") in ("max", "min")) + sum(map(comparisons, op.regions))


def has_few_values(type_: TensorType) -> bool:
    """Whether elements of a type are drawn from few."""
    return not is_float(type_.dtype)
