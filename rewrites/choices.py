"""Rules on operands that tell the result: equal ones, between which nothing is chosen or left, and integer zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from eggshard.egraph.laws import each, tensors
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.attributes import Literal
from eggshard.program.types import is_float, numpy_dtype
from eggshard.rewrites.shapes import SIDES

rules = RuleList()

_X = tensors((4,), (2, 3), dtypes=("f32", "i32", "i1"))

rules.add(
    "select(p, x, x) => x",
    name="select of equals",
    says="a choice between equal values left out",
    cases=each(p=tensors((4,), (2, 3), dtypes=("i1",)), x=_X),
)(None)
for _op, _called in (("maximum", "maximum"), ("minimum", "minimum"), ("and", "AND"), ("or", "OR")):
    rules.add(
        f"{_op}(x, x) => x",
        name=f"{_op} of equals",
        says=f"{_called} of a value with itself left out",
        cases=each(x=_X),
    )(None)


def _nothing(m: Match) -> Any:
    """Not of floats: an infinity less itself is no number."""
    if is_float(m.x.dtype):
        return None
    zero = np.zeros((), numpy_dtype(m.result.dtype))
    return {"c": {"value": Literal(np.broadcast_to(zero, m.result.shape))}}


for _op, _says in (("subtract", "a value minus itself as zeros"), ("xor", "XOR of a value with itself as zeros")):
    rules.add(f"{_op}(x, x) => constant[c]()", name=f"{_op} of equals", says=_says, cases=each(x=_X))(_nothing)


@rules.add(
    "compare[f](x, x) => constant[c]()",
    says="comparison of a value with itself as a constant",
    cases=each(x=_X, f=[{"comparison_direction": d} for d in ("EQ", "NE", "LT", "GE")]),
)
def compare_of_equals(m: Match) -> Any:
    """Not of floats: what is no number differs from itself."""
    if is_float(m.x.dtype):
        return None
    same = np.asarray(m.f["comparison_direction"] in ("EQ", "LE", "GE"))
    return {"c": {"value": Literal(np.broadcast_to(same, m.result.shape))}}


def _zeros(m: Match) -> Any:
    """Not of floats: an infinity times zero is no number."""
    literal = m.c["value"]
    return not is_float(m.x.dtype) and literal.splat and not literal.array.reshape(-1)[0]


for _where, _pair in SIDES:
    rules.add(
        f"multiply({_pair('x', 'constant[c]()')}) => constant[c]()",
        name=f"product with zeros on the {_where}",
        says="a product with zeros as zeros",
        cases=each(x=_X, c=[
            {"value": Literal(np.broadcast_to(np.asarray(value, kind), shape))}
            for kind in (np.float32, np.int32, np.bool_) for value in (0, 1) for shape in ((4,), (2, 3))
        ]),
    )(_zeros)
