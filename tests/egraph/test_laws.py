"""Law tests ask about a rule's whole domain, and tell rounding from error."""

import numpy as np
import pytest

from eggshard.egraph.law_rounding import bounded
from eggshard.egraph.law_values import Values, agree, same_bits, sample
from eggshard.egraph.laws import LawViolation, check_law, each, survey, tensors
from eggshard.egraph.patterns import parse_rule
from eggshard.egraph.rules import OpUse, rule
from eggshard.errors import RewriteError
from eggshard.program.attributes import Attributes
from eggshard.program.types import ELEMENT_TYPES, TensorType
from eggshard.rewrites.shapes import MATMUL, reduced, spread

X = tensors((4,))
ROWS = reduced((1,), by=("add",))
PRODUCT = dict(x=tensors((2, 3)), y=tensors((3, 4)), d=MATMUL)


def _same_type(m):
    return m.x.dtype == m.result.dtype


#: Rules that hold for their cases, all of them f32, and not for all that their conditions let through.
NARROW = {
    "quotients of integers are rounded": (
        "reduce[r](divide(x, broadcast_in_dim[b](s))) => divide(reduce[r](x), broadcast_in_dim[c](s))",
        dict(x=tensors((2, 3)), s=tensors(()), b=spread((2, 3)), r=ROWS),
        lambda m: {"c": spread(m.result.shape)} if m.r["monoid"] == "add" and 0 not in m.x.shape else None,
    ),
    "a negated byte is a byte": (
        "dot_general[d](negate(x), y) => negate(dot_general[d](x, y))", PRODUCT, lambda m: True,
    ),
    "a sum wraps in its own type": (
        "reduce[r](dot_general[d](x, y)) => dot_general[e](x, reduce[s](y))", dict(**PRODUCT, r=ROWS),
        lambda m: _same_type(m) and 0 not in (*m.x.shape, *m.y.shape) and m.r["monoid"] == "add" and {
            "s": {"dimensions": (1,), "monoid": "add"}, "e": m.d,
        },
    ),
    "nothing summed is 0, and times infinity NaN": (
        "reduce[r](multiply(x, broadcast_in_dim[b](s))) => multiply(reduce[r](x), broadcast_in_dim[c](s))",
        dict(x=tensors((2, 3)), s=tensors(()), b=spread((2, 3)), r=ROWS),
        lambda m: m.r["monoid"] == "add" and {"c": spread(m.result.shape)},
    ),
    "a minimum of negatives is no negated minimum": (
        "reduce[r](negate(x)) => negate(reduce[r](x))", dict(x=tensors((2, 3)), r=ROWS), lambda m: True,
    ),
    "not every op commutes": ("binary[f](x, y) => binary[f](y, x)", dict(x=X, y=X, f="add"), lambda m: True),
}


@pytest.mark.parametrize("name", NARROW)
def test_what_holds_for_the_cases_alone_is_found(name):
    text, cases, function = NARROW[name]
    narrow = rule(text, cases=each(**cases), name="narrow", mark="ρ")(function)
    assert check_law(narrow, instances=0)
    with pytest.raises(LawViolation, match="does not hold"):
        for seed in range(20):
            check_law(narrow, seed, instances=200)


def test_lower_precision_is_more_than_rounding():
    halved = rule(
        "dot_general[d](x, y) => convert[w](dot_general[e](x, y))", mark="ρ", name="halved", cases=each(**PRODUCT)
    )(lambda m: {"e": {**m.d, "dtype": "bf16"}, "w": {"dtype": m.result.dtype}} if m.result.dtype == "f32" else None)
    with pytest.raises(LawViolation):
        check_law(halved)


def test_a_condition_that_fails_for_other_sizes_is_found():
    failing = rule("negate(x) => negate(x)", name="failing", cases=each(x=X))(lambda m: 4 % m.x.shape[0] == 0)
    assert check_law(failing, instances=0)
    with pytest.raises(RewriteError, match="failed on .*ZeroDivisionError"):
        check_law(failing)


def test_a_condition_that_fails_for_other_types_is_found():
    widths = {"f32": 4, "f64": 8}
    for part in ("function", "exact_if"):
        options = {"exact_if": lambda m: widths[m.x.dtype] > 4} if part == "exact_if" else {}
        failing = rule("negate(x) => negate(x)", mark="ρ", name="failing", cases=each(x=X), **options)(
            (lambda m: widths[m.x.dtype] > 2) if part == "function" else None
        )
        with pytest.raises(RewriteError, match="failed on .*KeyError"):
            check_law(failing)


def test_equations_of_numbers_are_not_asked_about_scales():
    absolute = rule("abs(negate(x)) => abs(x)", name="absolute", cases=each(x=X))(None)
    moved = rule("unary[f](reverse[r](x)) => reverse[r](unary[f](x))", name="moved",
                 cases=each(x=X, f="negate", r={"dimensions": (0,)}))(None)
    assert check_law(absolute, instances=300) and check_law(moved, instances=300)
    scales = (TensorType((4,), "f8E8M0FNU"),)
    assert not absolute.instances((), scales)
    uses = {"f": OpUse("negate", Attributes()), "r": OpUse("reverse", Attributes(dimensions=(0,)))}
    assert moved.instances(tuple(uses[label] for label in moved.labels), scales)


def test_a_survey_goes_on_after_violations():
    wrong = rule("abs[f](x) => x", name="wrong", cases=each(x=X, f={}))(lambda m: m.x.dtype == m.result.dtype)
    found = survey(wrong, instances=200)
    assert found.compared > 200 and 10 < len(found.unsound) < found.compared


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
@pytest.mark.parametrize("values", Values)
def test_operands_are_of_every_type(dtype, values):
    made = sample(np.random.default_rng(0), TensorType((200,), dtype), values)
    assert made.shape == (200,) and same_bits(made, made)
    if dtype not in ("i1", "f8E8M0FNU") and values is not Values.SPECIAL:
        assert len(np.unique(made.astype(np.complex128))) > 2
    if values is Values.EXTREME and dtype in ("f16", "bf16", "f32", "f64", "f8E5M2"):
        wide = made.astype(np.float64)
        assert np.isnan(wide).any() and np.isinf(wide).any() and (wide == 0).any()


def _side(text, uses, **arrays):
    left, _ = parse_rule(f"{text} => x")
    return bounded(left, uses, arrays)


ADD, MULTIPLY = OpUse("add", Attributes()), OpUse("multiply", Attributes())


@pytest.mark.parametrize("dtype", ["f8E4M3FN", "f8E5M2", "f16", "bf16", "f32", "f64", "complex<f32>", "complex<f64>"])
def test_sums_in_another_order_agree_and_others_do_not(dtype):
    rng = np.random.default_rng(0)
    for _ in range(50):
        x, y, z = (sample(rng, TensorType((6,), dtype), Values.ORDINARY) for _ in range(3))
        first = _side("add(add(x, y), z)", [ADD, ADD], x=x, y=y, z=z)
        assert agree(first, _side("add(x, add(y, z))", [ADD, ADD], x=x, y=y, z=z), Values.ORDINARY)
        assert not agree(first, _side("add(x, add(y, y))", [ADD, ADD], x=x, y=y), Values.ORDINARY)
        assert not agree(first, _side("add(x, multiply(y, z))", [MULTIPLY, ADD], x=x, y=y, z=z), Values.ORDINARY)


def test_what_leaves_the_range_says_nothing_and_nan_does():
    big, one = np.float32([3e38, 1.0]), np.float32([1.0, 1.0])
    over = _side("add(add(x, x), y)", [ADD, ADD], x=big, y=-big)
    assert agree(over, _side("add(x, add(x, y))", [ADD, ADD], x=big, y=-big), Values.EXTREME)
    missing, full = (_side("add(x, y)", [ADD], x=np.float32([x, 1.0]), y=one) for x in (np.nan, 1.0))
    assert not agree(missing, full, Values.SPECIAL) and not agree(full, missing, Values.SPECIAL)


def test_zeros_and_nans_are_one_value_where_that_is_said():
    zeros, nans = np.float32([0.0, -0.0]), np.array([np.nan, -np.nan], np.float32)
    assert not same_bits(zeros, zeros[::-1]) and same_bits(zeros, zeros[::-1], signed_zeros=False)
    assert same_bits(nans, nans[::-1])
    parts = np.array([complex(np.inf, np.nan), complex(np.nan, np.inf)])
    assert not same_bits(parts, parts[::-1]) and same_bits(parts, parts[::-1], whole_complex=True)
