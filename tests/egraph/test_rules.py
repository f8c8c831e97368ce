"""The rule notation, its errors, and the law test with rules that must fail it."""

import pytest

from eggshard.egraph.laws import LawViolation, check_law, each, tensors
from eggshard.egraph.patterns import Node, parse_rule
from eggshard.egraph.rules import OpUse, rule, select
from eggshard.errors import RewriteError
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType
from eggshard.rewrites.shapes import dot, numbers

X = tensors((4,))


def test_a_rule_is_read_as_two_patterns():
    left, right = parse_rule("add(x, transpose[t](y)) => x")
    assert left == Node("add", "", ("x", Node("transpose", "t", ("y",))))
    assert right == "x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add(x, y)", "expected '=>'"),
        ("x => x", "must be an op"),
        ("add(x, y => x", "expected ','"),
        ("add(x, y) => x y", "left over"),
        ("add(x, $) => x", "cannot read"),
        ("nope[n](x) => x", "not in the registry"),
        ("negate(x) => y", "y on the right does not occur"),
        ("transpose(x) => x", "needs a label"),
        ("unary(x) => x", "needs a label"),
        ("binary[f](x) => x", "2 operand"),
        ("negate(x) => unary[f](x)", "does not occur on the left"),
        ("transpose[x](x) => x", "both a label and a tensor"),
    ],
)
def test_malformed_rules_are_refused(text, message):
    with pytest.raises(RewriteError, match=message):
        rule(text, cases=each(x=X), name="r")(lambda m: True)


def test_a_rule_without_a_law_test_does_not_load():
    with pytest.raises(RewriteError, match="without a law test does not load"):
        rule("negate(negate(x)) => x")


def test_new_labels_need_a_function():
    with pytest.raises(RewriteError, match="new labels"):
        rule("negate(x) => transpose[t](x)", cases=each(x=X), name="r")(None)


def test_a_rule_of_two_types_is_an_error_naming_them():
    bad = rule("transpose[t](x) => x", cases=each(x=tensors((2, 3)), t={"permutation": (1, 0)}), name="bad")(None)
    with pytest.raises(RewriteError, match="tensor<3x2xf32> with tensor<2x3xf32>"):
        check_law(bad)


def test_a_failing_function_is_an_error_naming_its_match():
    bad = rule("transpose[t](x) => x", cases=each(x=tensors((2, 2)), t={"permutation": (1, 0)}), name="bad")(
        lambda m: m.nothing
    )
    with pytest.raises(RewriteError, match="failed on x: tensor<2x2xf32>, t: transpose"):
        check_law(bad)


def test_a_rule_that_never_holds_fails_its_law_test():
    with pytest.raises(RewriteError, match="holds in none"):
        check_law(rule("negate(x) => x", cases=each(x=X), name="never")(lambda m: False))


def test_what_rounding_alone_tells_apart_is_said_to_be_that() -> None:
    text = "exponential(add(a, b)) => multiply(exponential(a), exponential(b))"
    bad = rule(text, cases=each(a=tensors((4,)), b=tensors((4,))), name="of a sum")(lambda m: True)
    with pytest.raises(LawViolation, match='rounding alone: mark="ρ"'):
        check_law(bad)
    wrong = rule("negate(x) => x", cases=each(x=tensors((4,))), name="wrong")(lambda m: True)
    with pytest.raises(LawViolation) as caught:
        check_law(wrong)
    assert "rounding" not in str(caught.value)


def test_cases_without_attributes_say_how_to_give_them() -> None:
    bad = rule("transpose[t](x) => x", cases=each(x=tensors((2, 2))), name="still")(lambda m: None)
    with pytest.raises(RewriteError, match=r"label 't'; give attributes of transpose.*t=\[\{"):
        check_law(bad)


def test_select_refuses_what_is_no_rule_and_repeated_names():
    with pytest.raises(RewriteError, match="is no rewrite rule"):
        select(["negate"])
    one = rule("negate(negate(x)) => x", cases=each(x=X), name="same")(None)
    other = rule("abs(abs(x)) => abs(x)", cases=each(x=X), name="same")(None)
    with pytest.raises(RewriteError, match="two rewrite rules are named 'same'"):
        select([one, other])


def test_exact_rules_hold_for_integers_alone():
    made = rule("add(subtract(x, y), y) => x", mark="ρ", name="r", cases=each(x=X, y=X))(None)
    (exact,) = select([made], exact=True)
    for dtype, found in (("f32", 0), ("i32", 1)):
        assert len(exact.instances((), (TensorType((4,), dtype),) * 2)) == found
        assert len(made.instances((), (TensorType((4,), dtype),) * 2)) == 1


def test_answers_are_remembered_per_match():
    calls = []
    made = rule("transpose[t](x) => x", cases=each(x=X), name="r")(lambda m: calls.append(m) is not None)
    key = (OpUse("transpose", Attributes(permutation=(0,))),), (TensorType((4,), "f32"),)
    assert made.instances(*key) == made.instances(*key)
    assert len(calls) == 1


SQUARE = tensors((2, 2))
MATMUL = {
    "dot_dimension_numbers": numbers((), (), (1,), (0,)),
    "dtype": "f32",
    "precision_config": None,
    "algorithm": None,
}
PAD = {"edge_padding_low": (2,), "edge_padding_high": (1,), "interior_padding": (0,)}
#: Rules found in the field that are not exact, or wrong.
UNSOUND = {
    "a sum in another order": ("add(add(x, y), z) => add(x, add(y, z))", dict(x=X, y=X, z=X)),
    "x + (-x) is not 0 for NaN": ("subtract(x, x) => multiply(subtract(x, x), x)", dict(x=X)),
    "x - y is not y - x": ("subtract(x, y) => subtract(y, x)", dict(x=X, y=X)),
    "a product does not commute": ("dot_general[d](x, y) => dot_general[d](y, x)", dict(x=SQUARE, y=SQUARE, d=MATMUL)),
    "exp turns padding 0 into 1": (
        "exponential(pad[p](x, v)) => pad[p](exponential(x), v)",
        dict(x=X, v=tensors(()), p=PAD),
    ),
    "0 * NaN is not 0": (
        "multiply(a, pad[p](x, v)) => pad[p](multiply(x, x), v)",
        dict(x=tensors((3,)), a=tensors((6,)), v=tensors(()), p=PAD),
    ),
    "reverse is not the identity": ("reverse[r](x) => x", dict(x=X, r={"dimensions": (0,)})),
    "a maximum of sums is no sum of maxima": (
        "maximum(add(x, y), add(x, z)) => add(x, minimum(y, z))",
        dict(x=X, y=X, z=X),
    ),
    "sums of zeros lose their sign": (
        "negate(reduce[r](x)) => reduce[r](negate(x))",
        dict(x=tensors((2,)), r={"dimensions": (0,), "monoid": "add"}),
    ),
    "a narrowing conversion loses bits": (
        "convert[a](convert[b](x)) => convert[a](x)",
        dict(x=tensors((64,), dtypes=["i32"]), b={"dtype": "i8"}, a={"dtype": "i32"}),
    ),
    "integers saturate in floats and wrap in integers": (
        "convert[a](convert[b](x)) => convert[a](x)",
        dict(x=tensors((64,), dtypes=["i32"]), b={"dtype": "f64"}, a={"dtype": "i8"}),
    ),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_rules_fail_the_law_test(name):
    text, cases = UNSOUND[name]
    bad = rule(text, cases=each(**cases), name=name)(None)
    with pytest.raises(LawViolation, match="does not hold"):
        for seed in range(60):
            check_law(bad, seed)


def test_a_rule_that_lowers_precision_fails_its_law_test() -> None:
    types, row = dict(x=tensors((2, 3)), y=tensors((3, 4))), tensors((4,))
    precise = {**MATMUL, "precision_config": ("HIGHEST", "HIGH")}
    bad = rule("dot_general[d](x, y) => dot_general[e](x, y)", mark="ρ", cases=each(**types, d=precise), name="less")
    with pytest.raises(LawViolation, match="lowers the precision"):
        check_law(bad(lambda m: {"e": MATMUL}))
    pointwise = dot((0,), (0,), (), ())
    bad = rule("multiply(x, y) => dot_general[e](x, y)", mark="ρ", name="default", cases=each(x=row, y=row))
    with pytest.raises(LawViolation, match="lowers the precision"):
        check_law(bad(lambda m: {"e": pointwise}))
