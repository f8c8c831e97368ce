"""Rules on linear maps: sums, scalings and signs move through products and reductions.

Where types mix, the arithmetic that moves is another one: integers wrap at their own width, and their quotients are
rounded. So what moves out of a product or into it has the product's own type, and quotients move of floats alone.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from eggshard.egraph.laws import each, like_zeros, tensors, together
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.types import is_float
from eggshard.rewrites.shapes import (
    BATCHED,
    MATMUL,
    SIDES,
    Dot,
    answer,
    kept_places,
    reduced,
    spread,
    spread_by,
)

rules = RuleList()

_CUBE = tensors((2, 3, 4), dtypes=("f32", "i32"))
_OF_INTEGERS = {**MATMUL, "dtype": "i32"}
_ADAPTER = dict(a=tensors((3, 2)), b=tensors((2, 4)), d=MATMUL, e=MATMUL)
#: Scalings by a broadcast factor: the op, the number of the order, and what writes it down.
_SCALINGS = (("multiply", 0, SIDES[0][1]), ("multiply", 1, SIDES[1][1]), ("divide", 0, SIDES[0][1]))


def _scales(m: Match, op: str) -> bool:
    """Whether a factor moves out of a sum: not out of one of nothing, which is 0 whatever the factor, and not a divisor
    of integers, whose quotients are rounded."""
    return 0 not in m.x.shape and (op != "divide" or is_float(m.x.dtype))


def _exact_scaling(m: Match, op: str) -> bool:
    return op == "multiply" and not is_float(m.result.dtype)


def _one_dtype(m: Match) -> Any:
    return m.a == m.b and m.a.dtype == m.result.dtype


rules.add(
    "negate(negate(x)) => x",
    name="double negation",
    says="two negations cancelled",
    cases=each(x=tensors((4,), dtypes=("f32", "i32", "bf16"))),
)(None)

for _op in ("add", "subtract"):
    rules.add(
        f"{_op}(dot_general[d](x, a), dot_general[d](x, b)) => dot_general[d](x, {_op}(a, b))",
        mark="ρ",
        name=f"{_op} of dots, common left",
        says=f"one product with the {'sum' if _op == 'add' else 'difference'}",
        cases=together(*(
            each(x=tensors((2, 3), dtypes=[t]), **dict.fromkeys("ab", tensors((3, 4), dtypes=[t])), d=d)
            for t, d in (("f32", MATMUL), ("i32", _OF_INTEGERS))
        )),
    )(_one_dtype)
    rules.add(
        f"{_op}(dot_general[d](a, x), dot_general[d](b, x)) => dot_general[d]({_op}(a, b), x)",
        mark="ρ",
        name=f"{_op} of dots, common right",
        says=f"one product of the {'sum' if _op == 'add' else 'difference'}",
        cases=each(x=tensors((3, 4)), a=tensors((2, 3)), b=tensors((2, 3)), d=MATMUL),
    )(_one_dtype)

# A product with (w + a b), as low-rank adapters make it, becomes one with w and one with the factors. Products with
# other sums are not taken apart: that only repeats work.
for _name, (_, _sum) in zip(("last", "first"), SIDES, strict=True):
    for _where, _operands, _shape in (("right", "x, {}", (2, 3)), ("left", "{}, x", (4, 3))):
        _product, _w, _factors = (
            f"dot_general[d]({_operands})".format(part)
            for part in (f"add({_sum('w', 'dot_general[e](a, b)')})", "w", "dot_general[e](a, b)")
        )
        rules.add(
            f"{_product} => add({_sum(_w, _factors)})",
            mark="ρ",
            name=f"dot of a sum with a product {_name}, on the {_where}",
            says=f"a product {'with' if _where == 'right' else 'of'} each term, added afterwards",
            cases=each(x=tensors(_shape), w=tensors((3, 4)), **_ADAPTER),
        )(lambda m: m.w.dtype == m.result.dtype == m.x.dtype)

for _which, (_, _pair) in enumerate(SIDES):
    rules.add(
        f"dot_general[d]({_pair('negate(x)', 'y')}) => negate(dot_general[d]({_pair('x', 'y')}))",
        name=f"dot of negated ({_which})",
        says=f"product negated instead of its {'second' if _which else 'first'} operand",
        cases=each(
            x=tensors((3, 2) if _which else (2, 3), dtypes=("f32", "i8", "i32")),
            y=tensors((4, 3) if _which else (3, 4), dtypes=("f32", "i8")),
            d=[MATMUL, _OF_INTEGERS],
        ),
        mark="ρ",  # a sum of zeros is +0 whatever their signs
    )(lambda m: m.x.dtype == m.result.dtype or (is_float(m.x.dtype) and is_float(m.result.dtype)))


def _dot_of_scaled(m: Match, which: int, op: str) -> Any:
    """The factor's broadcast on the product's result, if it is constant along what is contracted."""
    if m.x.dtype != m.result.dtype or not _scales(m, op):
        return None
    if any(n == 1 for n in m.s.shape):
        return None
    return answer(c=spread_by(m.b, Dot.beside(m.d, which, m.x, m.y).result_of(which), m.result.shape))


for _op, _k, _scaled in _SCALINGS:
    for _which, (_, _pair) in enumerate(SIDES):
        _inside = f"{_op}({_scaled('x', 'broadcast_in_dim[b](s)')})"
        _product = f"dot_general[d]({_pair('x', 'y')})"
        rules.add(
            f"dot_general[d]({_pair(_inside, 'y')}) => {_op}({_scaled(_product, 'broadcast_in_dim[c](s)')})",
            mark="ρ",
            name=f"dot of scaled: {_op}, order {_k}, side {_which}",
            says=f"{'scaled' if _op == 'multiply' else 'divided'} after the product",
            exact_if=partial(_exact_scaling, op=_op),
            cases=each(
                x=_CUBE,
                y=tensors((2, 5, 3) if _which else (2, 4, 5), dtypes=("f32", "i32")),
                s=tensors((), (2,), (3,), (2, 3), (4,), dtypes=("f32", "i32")),
                d=[BATCHED, {**BATCHED, "dtype": "i32"}],
                b=[spread((2, 3, 4), *dims) for dims in ((), (0,), (1,), (2,), (0, 1))],
            ),
        )(partial(_dot_of_scaled, which=_which, op=_op))


def _scaled_dot(m: Match, which: int) -> Any:
    """Applies where the factor varies along dimensions of this operand alone, no larger than the dot."""
    back, dims = Dot.beside(m.d, which, m.x, m.y).operand_of(which), m.b["broadcast_dimensions"]
    if m.x.dtype != m.result.dtype or m.x.elements > m.result.elements or 0 in m.x.shape:
        return None
    if any(m.s.shape[i] != m.result.shape[d] for i, d in enumerate(dims)):
        return None
    return answer(c=spread_by(m.b, back, m.x.shape))


for _name, (_, _scaled) in zip(("dot first", "dot last"), SIDES, strict=True):
    for _which, (_, _pair) in enumerate(SIDES):
        _product = f"dot_general[d]({_pair('x', 'y')})"
        _inside = f"multiply({_scaled('x', 'broadcast_in_dim[c](s)')})"
        rules.add(
            f"multiply({_scaled(_product, 'broadcast_in_dim[b](s)')}) => dot_general[d]({_pair(_inside, 'y')})",
            mark="ρ",
            name=f"scaled dot: order {_name}, side {_which}",
            says=f"{'second' if _which else 'first'} operand scaled before the product",
            cases=each(
                x=tensors((2, 3, 4)), y=tensors((2, 5, 3) if _which else (2, 4, 5)), d=BATCHED,
                s=tensors((), (2,), (3,), (5,), (4,)),
                b=[spread(shape, *dims) for dims in ((), (0,), (1,), (2,)) for shape in ((2, 3, 5), (2, 5, 4))],
            ),
        )(partial(_scaled_dot, which=_which))


def _reduces(m: Match, by: str) -> Any:
    return m.r["monoid"] == by


def _reduces_alike(m: Match, by: str) -> Any:
    return m.r["monoid"] == by and m.x == m.y


# Taking a reduction apart pays where another rule takes a part further: products and broadcasts reduce early.
_PARTS = (
    ("dot", "dot_general[d](a, b)", dict(a=tensors((2, 3)), b=tensors((3, 4)), d=MATMUL)),
    ("broadcast", "broadcast_in_dim[d](a)", dict(a=tensors((4,)), d=spread((2, 4), 1))),
)
for _op, _monoid, _apart, _first in (
    ("add", "add", "summed", "added"), ("maximum", "max", "maximum taken", "maximum taken"),
    ("minimum", "min", "minimum taken", "minimum taken"),
):
    _exact = (lambda m: not is_float(m.result.dtype)) if _op == "add" else (lambda m: True)
    for _side, (_, _pair) in zip(("left", "right"), SIDES, strict=True):
        for _kind, _inner, _types in _PARTS:
            rules.add(
                f"reduce[r]({_op}({_pair(_inner, 'y')})) => {_op}({_pair(f'reduce[r]({_inner})', 'reduce[r](y)')})",
                mark="ρ",
                exact_if=_exact,
                name=f"reduce of {_op}, {_kind} on the {_side}",
                says=f"{_apart} term by term",
                cases=like_zeros(each(**_types, y=tensors((2, 4)), r=reduced((0,), (1,), by=(_monoid,)))),
            )(partial(_reduces, by=_monoid))
    rules.add(
        f"{_op}(reduce[r](x), reduce[r](y)) => reduce[r]({_op}(x, y))",
        mark="ρ",
        name=f"{_op} of reduces",
        says=f"{_first} before one reduction",
        cases=like_zeros(each(x=_CUBE, y=[*_CUBE, *tensors((5, 3, 4))], r=reduced((0,), (0, 2), by=(_monoid,)))),
        exact_if=_exact,
    )(partial(_reduces_alike, by=_monoid))

_SUM = reduced((0,), (1,), (0, 2), by=("add",))


@rules.add(
    "reduce[r](negate(x)) => negate(reduce[r](x))", says="negated after the sum", mark="ρ", cases=each(x=_CUBE, r=_SUM)
)
def sum_of_negated(m: Match) -> Any:
    """Not exact: a sum of zeros is +0 whatever their signs."""
    return m.r["monoid"] == "add"


def _sum_of_scaled(m: Match, op: str) -> Any:
    if m.r["monoid"] != "add" or not _scales(m, op):
        return None
    return answer(c=spread_by(m.b, kept_places(m.x.rank, m.r["dimensions"]), m.result.shape))


for _op, _k, _scaled in _SCALINGS:
    rules.add(
        f"reduce[r]({_op}({_scaled('x', 'broadcast_in_dim[b](s)')})) => "
        f"{_op}({_scaled('reduce[r](x)', 'broadcast_in_dim[c](s)')})",
        mark="ρ",
        name=f"sum of scaled: {_op}, order {_k}",
        says=f"{'scaled' if _op == 'multiply' else 'divided'} after the sum",
        exact_if=partial(_exact_scaling, op=_op),
        cases=each(
            x=tensors((2, 3, 4)), s=tensors((), (2,), (3,)), r=_SUM,
            b=[spread((2, 3, 4), *dims) for dims in ((), (0,), (1,))],
        ),
    )(partial(_sum_of_scaled, op=_op))
