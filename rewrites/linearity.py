"""Rules on linear maps: sums, scalings and signs move through products and reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eggshard.egraph.laws import each, like_zeros, tensors, together
from eggshard.egraph.rules import Match, RuleList
from eggshard.program.types import is_float
from eggshard.rewrites.shapes import Dot, kept_dims, numbers

rules = RuleList()

_DOT = {"precision_config": None, "algorithm": None, "dtype": "f32"}
_MATMUL = {**_DOT, "dot_dimension_numbers": numbers((), (), (1,), (0,))}
_BATCHED = {**_DOT, "dot_dimension_numbers": numbers((0,), (0,), (2,), (1,))}

rules.add("negate(negate(x)) => x", name="double negation", cases=each(x=tensors((4,), dtypes=("f32", "i32", "bf16"))))(
    None
)

for _op in ("add", "subtract"):
    rules.add(
        f"{_op}(dot_general[d](x, a), dot_general[d](x, b)) => dot_general[d](x, {_op}(a, b))",
        mark="ρ",
        name=f"{_op} of dots, common left",
        cases=together(
            each(x=tensors((2, 3)), a=tensors((3, 4)), b=tensors((3, 4)), d=_MATMUL),
            each(
                x=tensors((2, 3), dtypes=["i32"]),
                a=tensors((3, 4), dtypes=["i32"]),
                b=tensors((3, 4), dtypes=["i32"]),
                d={**_MATMUL, "dtype": "i32"},
            ),
        ),
    )(lambda m: m.a == m.b and m.a.dtype == m.result.dtype)
    rules.add(
        f"{_op}(dot_general[d](a, x), dot_general[d](b, x)) => dot_general[d]({_op}(a, b), x)",
        mark="ρ",
        name=f"{_op} of dots, common right",
        cases=each(x=tensors((3, 4)), a=tensors((2, 3)), b=tensors((2, 3)), d=_MATMUL),
    )(lambda m: m.a == m.b and m.a.dtype == m.result.dtype)

# A product with (w + a b), as low-rank adapters make it, becomes one with w and one with the factors. Products with
# other sums are not taken apart: that only repeats work.
for _name, _sum in (("last", "add(w, dot_general[e](a, b))"), ("first", "add(dot_general[e](a, b), w)")):
    _parts = ("dot_general[d](x, w)", "dot_general[d](x, dot_general[e](a, b))")
    rules.add(
        f"dot_general[d](x, {_sum}) => add({', '.join(_parts if _name == 'last' else _parts[::-1])})",
        mark="ρ",
        name=f"dot of a sum with a product {_name}, on the right",
        cases=each(x=tensors((2, 3)), w=tensors((3, 4)), a=tensors((3, 2)), b=tensors((2, 4)), d=_MATMUL, e=_MATMUL),
    )(lambda m: m.w.dtype == m.result.dtype == m.x.dtype)
    _parts = ("dot_general[d](w, x)", "dot_general[d](dot_general[e](a, b), x)")
    rules.add(
        f"dot_general[d]({_sum}, x) => add({', '.join(_parts if _name == 'last' else _parts[::-1])})",
        mark="ρ",
        name=f"dot of a sum with a product {_name}, on the left",
        cases=each(x=tensors((4, 3)), w=tensors((3, 4)), a=tensors((3, 2)), b=tensors((2, 4)), d=_MATMUL, e=_MATMUL),
    )(lambda m: m.w.dtype == m.result.dtype == m.x.dtype)

for _which, _operands in ((0, "{}, y"), (1, "y, {}")):
    rules.add(
        f"dot_general[d]({_operands.format('negate(x)')}) => negate(dot_general[d]({_operands.format('x')}))",
        name=f"dot of negated ({_which})",
        cases=each(
            x=tensors((2, 3)) if not _which else tensors((3, 2)),
            y=tensors((3, 4)) if not _which else tensors((4, 3)),
            d=_MATMUL,
        ),
        mark="ρ",  # a sum of zeros is +0 whatever their signs
    )(lambda m: is_float(m.result.dtype) or m.x.dtype == m.result.dtype)


def _through_dot(m: Match, which: int) -> Any:
    """The factor's broadcast on the product's result, if it is constant along what is contracted."""
    types = [m.y, m.y]
    types[which] = m.x
    where = Dot.of(m.d, *types).result_of(which)
    dims = m.b["broadcast_dimensions"]
    sized = [d for i, d in enumerate(dims) if m.s.shape[i] != 1]
    if any(d not in where for d in sized) or len(sized) != len(dims) or m.x.dtype != m.result.dtype:
        return None
    return {"c": {"broadcast_dimensions": tuple(where[d] for d in dims), "shape": m.result.shape}}


for _op, _orders in (("multiply", ("x, {}", "{}, x")), ("divide", ("x, {}",))):
    for _k, _order in enumerate(_orders):
        for _which, _operands in ((0, "{}, y"), (1, "y, {}")):
            _scaled = f"{_op}({_order.format('broadcast_in_dim[b](s)')})"
            _product = f"dot_general[d]({_operands.format('x')})"
            _moved = _order.replace("x", _product).format("broadcast_in_dim[c](s)")

            @rules.add(
                f"dot_general[d]({_operands.format(_scaled)}) => {_op}({_moved})",
                mark="ρ",
                name=f"dot of scaled: {_op}, order {_k}, side {_which}",
                exact_if=lambda m, op=_op: op == "multiply" and not is_float(m.result.dtype),
                cases=each(
                    x=tensors((2, 3, 4)),
                    y=tensors((2, 4, 5)) if not _which else tensors((2, 5, 3)),
                    s=tensors((), (2,), (3,), (2, 3), (4,)),
                    d=_BATCHED,
                    b=[{"broadcast_dimensions": i, "shape": (2, 3, 4)} for i in ((), (0,), (1,), (2,), (0, 1))],
                ),
            )
            def _dot_of_scaled(m: Match, which: int = _which) -> Any:
                return _through_dot(m, which)


for _order in ("{}, {}", "{1}, {0}"):
    for _which, _operands in ((0, "{}, y"), (1, "y, {}")):
        _left = _order.format(f"dot_general[d]({_operands.format('x')})", "broadcast_in_dim[b](s)")
        _scaled = f"multiply({_order.format('x', 'broadcast_in_dim[c](s)')})"

        @rules.add(
            f"multiply({_left}) => dot_general[d]({_operands.format(_scaled)})",
            mark="ρ",
            name=f"scaled dot: order {'dot first' if _order[1] == '}' else 'dot last'}, side {_which}",
            cases=each(
                x=tensors((2, 3, 4)),
                y=tensors((2, 4, 5)) if not _which else tensors((2, 5, 3)),
                d=_BATCHED,
                s=tensors((), (2,), (3,), (5,), (4,)),
                b=[
                    {"broadcast_dimensions": i, "shape": s}
                    for i in ((), (0,), (1,), (2,))
                    for s in ((2, 3, 5), (2, 5, 4))
                ],
            ),
        )
        def _scaled_dot(m: Match, which: int = _which) -> Any:
            """Applies where the factor varies along dimensions of this operand alone, no larger than the dot."""
            types = [m.y, m.y]
            types[which] = m.x
            back = {j: i for i, j in Dot.of(m.d, *types).result_of(which).items()}
            dims = m.b["broadcast_dimensions"]
            if any(d not in back for d in dims) or m.x.dtype != m.result.dtype or m.x.elements > m.result.elements:
                return None
            if any(m.s.shape[i] != m.result.shape[d] for i, d in enumerate(dims)):
                return None
            return {"c": {"broadcast_dimensions": tuple(back[d] for d in dims), "shape": m.x.shape}}


_SUM = [{"dimensions": d, "monoid": "add"} for d in ((0,), (1,), (0, 2))]
_CUBE = tensors((2, 3, 4), dtypes=("f32", "i32"))


def _combines_by(monoid: str) -> Callable[[Match], bool]:
    """Whether the reduction labelled r is by this monoid."""
    return lambda m: m.r["monoid"] == monoid


def _combines_alike_by(monoid: str) -> Callable[[Match], bool]:
    """Whether the reduction labelled r is by this monoid and both reduced tensors have the same type."""
    return lambda m: m.r["monoid"] == monoid and m.x == m.y


for _op, _monoid in (("add", "add"), ("maximum", "max"), ("minimum", "min")):
    _cases = like_zeros(
        each(x=_CUBE, y=[*_CUBE, *tensors((5, 3, 4))], r=[{"dimensions": d, "monoid": _monoid} for d in ((0,), (0, 2))])
    )
    _exact = (lambda m: not is_float(m.result.dtype)) if _op == "add" else (lambda m: True)
    # Taking a reduction apart pays where another rule takes a part further: products and broadcasts reduce early.
    for _first, _second in (("{}", "y"), ("y", "{}")):
        for _kind, _inner, _inside in (
            ("dot", "dot_general[d](a, b)", dict(a=tensors((2, 3)), b=tensors((3, 4)), d=_MATMUL)),
            (
                "broadcast",
                "broadcast_in_dim[d](a)",
                dict(a=tensors((4,)), d={"broadcast_dimensions": (1,), "shape": (2, 4)}),
            ),
        ):
            _pair = f"{_first}, {_second}".format(_inner)
            _reduced = ", ".join(f"reduce[r]({p.format(_inner)})" for p in (_first, _second))
            rules.add(
                f"reduce[r]({_op}({_pair})) => {_op}({_reduced})",
                mark="ρ",
                exact_if=_exact,
                name=f"reduce of {_op}, {_kind} on the {'right' if _first == 'y' else 'left'}",
                cases=like_zeros(
                    each(**_inside, y=tensors((2, 4)), r=[{"dimensions": k, "monoid": _monoid} for k in ((0,), (1,))])
                ),
            )(_combines_by(_monoid))
    rules.add(
        f"{_op}(reduce[r](x), reduce[r](y)) => reduce[r]({_op}(x, y))",
        mark="ρ",
        name=f"{_op} of reduces",
        cases=_cases,
        exact_if=_exact,
    )(_combines_alike_by(_monoid))


@rules.add("reduce[r](negate(x)) => negate(reduce[r](x))", mark="ρ", cases=each(x=_CUBE, r=_SUM))
def sum_of_negated(m: Match) -> Any:
    """Not exact: a sum of zeros is +0 whatever their signs."""
    return m.r["monoid"] == "add"


for _op, _orders in (("multiply", ("x, {}", "{}, x")), ("divide", ("x, {}",))):
    for _k, _order in enumerate(_orders):
        _moved = _order.replace("x", "reduce[r](x)").format("broadcast_in_dim[c](s)")

        @rules.add(
            f"reduce[r]({_op}({_order.format('broadcast_in_dim[b](s)')})) => {_op}({_moved})",
            mark="ρ",
            name=f"sum of scaled: {_op}, order {_k}",
            exact_if=lambda m, op=_op: op == "multiply" and not is_float(m.result.dtype),
            cases=each(
                x=tensors((2, 3, 4)),
                s=tensors((), (2,), (3,)),
                r=_SUM,
                b=[{"broadcast_dimensions": i, "shape": (2, 3, 4)} for i in ((), (0,), (1,))],
            ),
        )
        def _sum_of_scaled(m: Match, op: str = _op) -> Any:
            dims = m.b["broadcast_dimensions"]
            where = {d: i for i, d in enumerate(kept_dims(m.x.rank, m.r["dimensions"]))}
            if (
                m.r["monoid"] != "add"
                or any(d not in where for d in dims)
                or (op == "divide" and not is_float(m.x.dtype))
            ):
                return None
            return {"c": {"broadcast_dimensions": tuple(where[d] for d in dims), "shape": m.result.shape}}
