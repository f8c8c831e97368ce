from __future__ import annotations

import random

import pytest
from tests.shardy.differential import assert_agrees
from tests.shardy.peer import run_peer

from eggshard import shardy

PASS = "remove-all-gather-reduce-scatter-for-cmv1"
T, S = "tensor<16x16xf32>", "#sdy.sharding_per_value"


def dots(*lines: str, returned: str = "%r", left: str = '[{"x"}, {}]', right: str = '[{}, {"y"}]') -> str:
    """A function of %a and %b whose ops are on 16x16 matrices."""
    values = returned.split(", ")
    body = "\n".join(f"  {line}" for line in lines)
    return f"""
sdy.mesh @mesh = <["x"=2, "y"=2, "z"=2]>
func.func @main(%a: {T} {{sdy.sharding = #sdy.sharding<@mesh, {left}>}},
                %b: {T} {{sdy.sharding = #sdy.sharding<@mesh, {right}>}}) -> ({', '.join([T] * len(values))}) {{
{body}
  return {', '.join(values)} : {', '.join([T] * len(values))}
}}"""


def gather(name: str, value: str, axes: str, to: str) -> str:
    return f"{name} = sdy.all_gather {axes} {value} out_sharding=<@mesh, {to}> : {T}"


def dot(name: str, left: str, right: str, sharding: str | None, general: bool = False) -> str:
    attributes = f" {{sdy.sharding = {S}<[<@mesh, {sharding}>]>}}" if sharding else ""
    types = f"({T}, {T}) -> {T}"
    if general:
        return f"{name} = stablehlo.dot_general {left}, {right}, contracting_dims = [1] x [0]{attributes} : {types}"
    return f"{name} = stablehlo.dot {left}, {right}{attributes} : {types}"


def scatter(name: str, value: str) -> str:
    return f'{name} = sdy.reduce_scatter [{{"z"}}, {{}}] {value} out_sharding=<@mesh, [{{"z"}}, {{"y"}}]> : {T}'


A = gather("%g", "%a", '[{"x"}, {}]', "[{}, {}]")
B = gather("%h", "%b", '[{}, {"y"}]', "[{}, {}]")
WRITTEN = {
    "a gathered left side": dots(A, dot("%r", "%g", "%b", '[{}, {"y"}]')),
    "a gathered right side": dots(B, dot("%r", "%a", "%h", '[{"x"}, {}]')),
    "both sides gathered": dots(A, B, dot("%r", "%g", "%h", "[{}, {}]")),
    "one value gathered for both sides": dots(A, dot("%r", "%g", "%g", "[{}, {}]")),
    "a gather with other uses": dots(A, dot("%r", "%g", "%b", '[{}, {"y"}]'), returned="%r, %g"),
    "a general product": dots(A, dot("%r", "%g", "%b", '[{}, {"y"}]', general=True)),
    "no collectives": dots(dot("%r", "%a", "%b", '[{"x"}, {"y"}]')),
    "a scattered product": dots(dot("%d", "%a", "%b", '[{}, {"y"}]'), scatter("%r", "%d")),
    "a scattered general product": dots(dot("%d", "%a", "%b", '[{}, {"y"}]', general=True), scatter("%r", "%d")),
    "a scattered product of partial sums": dots(
        dot("%d", "%a", "%b", '[{}, {"y"}], unreduced={"z"}'), scatter("%r", "%d")),
    "a scattered product with other uses": dots(
        dot("%d", "%a", "%b", '[{}, {"y"}]'), scatter("%r", "%d"), returned="%r, %d"),
    "a gather goes, the scatter stays": dots(A, dot("%d", "%g", "%b", '[{}, {"y"}]'), scatter("%r", "%d")),
    "a product that is reduced": dots(
        dot("%d", "%a", "%b", '[{}, {"y"}]'),
        f'%r = sdy.all_reduce {{"z"}} %d out_sharding=<@mesh, [{{}}, {{"y"}}]> : {T}'),
    "a gather of another op": dots(A, f"%r = stablehlo.negate %g : {T}"),
    "a chain of products": dots(
        A, dot("%d", "%g", "%b", '[{}, {"y"}]'), gather("%h", "%d", '[{}, {"y"}]', "[{}, {}]"),
        dot("%e", "%b", "%h", '[{}, {"y"}]'), scatter("%r", "%e")),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_products_as_jaxlib_leaves_them(name: str) -> None:
    assert_agrees(WRITTEN[name], PASS)


def random_products(seed: int) -> str:
    """A chain of products of gathered and plain values, some of them scattered."""
    draw = random.Random(seed)
    plain, gathered, lines = ["%a", "%b"], [], []
    returned = []
    for i in range(draw.randint(2, 8)):
        kind = draw.choice(["gather", "dot", "dot", "scatter"])
        if kind == "gather":
            value = draw.choice(["%a", "%b"])
            lines.append(gather(f"%{i}", value, *{
                "%a": ('[{"x"}, {}]', "[{}, {}]"), "%b": ('[{}, {"y"}]', "[{}, {}]")}[value]))
            gathered.append(f"%{i}")
        elif kind == "dot":
            sharding = draw.choice(['[{}, {"y"}]', '[{}, {"y"}], unreduced={"z"}'])
            sides = [draw.choice(plain + gathered * 2) for _ in range(2)]
            lines.append(dot(f"%{i}", *sides, sharding, draw.random() < 0.5))
            if draw.random() < 0.6:
                lines.append(scatter(f"%s{i}", f"%{i}"))
                plain.append(f"%s{i}")
                returned.append(f"%s{i}")
            if draw.random() < 0.4:
                returned.append(f"%{i}")
        else:
            lines += [dot(f"%c{i}", draw.choice(plain), "%b", '[{}, {"y"}]'), scatter(f"%{i}", f"%c{i}")]
            returned.append(f"%{i}")
    if not returned:
        lines.append(dot("%r", "%a", "%b", '[{}, {"y"}]'))
        returned.append("%r")
    return dots(*lines, returned=", ".join(returned))


def test_generated_products_as_jaxlib_leaves_them() -> None:
    changed = 0
    for seed in range(60):
        text = random_products(seed)
        assert_agrees(text, PASS)
        changed += shardy.transform(text, PASS) != shardy.transform(text, [])
    assert changed >= 30


def test_a_product_without_a_sharding_takes_the_scatters() -> None:
    """jaxlib's pass crashes."""
    scattered = f'%r = sdy.reduce_scatter [{{"z"}}, {{}}] %d out_sharding=<@mesh, [{{"z"}}, {{}}]> : {T}'
    text = dots(dot("%d", "%a", "%b", None), scattered)
    assert run_peer(text, f"func.func(sdy-{PASS})").failure
    left = shardy.transform(text, PASS)
    assert "reduce_scatter" not in left and 'stablehlo.dot %arg0, %arg1 {sdy.sharding = ' in left
