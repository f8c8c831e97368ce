"""Comparisons as elements of a field: what one of two ways would hide shows in every run."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import eggshard as es
from eggshard.frontends import load
from eggshard.ops.arithmetic import using
from eggshard.ops.evaluate import evaluate_program
from eggshard.program.attributes import Attributes
from eggshard.prove import extrema
from eggshard.prove.blending import BlendedField, Undecided
from eggshard.prove.proving import CHOICES, blended, compared
from eggshard.prove.residues import PRIMES, Residues

R = Residues(PRIMES[0])
RNG = np.random.default_rng(0)
SEEDS = range(48)


def drawn(*shape: int) -> np.ndarray:
    return RNG.integers(0, PRIMES[0], shape).astype(np.float64)


def of(field: BlendedField, name: str, *arrays: np.ndarray, **attributes: object) -> np.ndarray:
    with using(field), np.errstate(all="ignore"):
        return field.evaluate(name, Attributes(**attributes), arrays)[0]


@pytest.mark.parametrize("kind", ["max", "min"])
def test_maxima_are_of_sets(kind):
    """However they are grouped, and however often an element is among them; integers near 0 are themselves."""
    field = BlendedField(R, 0)
    combine = field.combine(kind)
    a = np.concatenate([drawn(6, 9), R.of_numbers(RNG.integers(-9, 9, (2, 9)))])
    whole = combine.reduce(a, axis=(0,), dtype=None, initial=0.0)
    left, right = (combine.reduce(part, axis=(0,), dtype=None, initial=0.0) for part in (a[:5], a[3:]))
    np.testing.assert_array_equal(combine(right, left), whole)
    np.testing.assert_array_equal(combine(whole, a[2]), whole)
    np.testing.assert_array_equal(combine.accumulate(a, axis=0, dtype=None)[-1], whole)
    for k in range(7):
        assert (combine.reduce(np.delete(a, k, 0), axis=(0,), dtype=None, initial=0.0) != whole).any()
    weak = -np.inf if kind == "max" else np.inf
    few = R.of_numbers(np.array([3.0, -2.0]))
    assert R.signed(combine(few[:1], few[1:])) == (3 if kind == "max" else -2)
    np.testing.assert_array_equal(combine(a[0], np.full(9, weak)), a[0])
    np.testing.assert_array_equal(combine(a[0], np.full(9, -weak)), -weak)
    assert np.isnan(combine(a[0], np.full(9, np.nan))).all()


def test_a_set_that_leaves_is_a_residue():
    """What is computed of maxima depends on their residues alone, and moving them changes nothing."""
    field = BlendedField(R, 0)
    a, b, c = drawn(3, 5)
    top = of(field, "maximum", a, b)
    np.testing.assert_array_equal(of(field, "maximum", of(field, "reverse", top, dimensions=(0,))[::-1], c),
                                  of(field, "maximum", a, of(field, "maximum", b, c)))
    for made in (of(field, "add", top, c), of(field, "tanh", top), of(field, "select", drawn(5), top, c)):
        np.testing.assert_array_equal(made, np.floor(made))


def test_truth_values_are_elements():
    field = BlendedField(R, 0)
    x, y, a, b = drawn(4, 20)
    less, more = (of(field, "compare", *p, comparison_direction="LT") for p in ((x, y), (y, x)))
    np.testing.assert_array_equal(of(field, "compare", y, x, comparison_direction="GT"), less)
    np.testing.assert_array_equal(of(field, "compare", x, y, comparison_direction="GE"), of(field, "not", less))
    np.testing.assert_array_equal(of(field, "compare", y, x, comparison_direction="LE"), of(field, "not", less))
    assert (less != more).all() and (less != of(field, "not", more)).all()
    np.testing.assert_array_equal(of(field, "compare", x, x, comparison_direction="LE"), 1.0)
    chosen = of(field, "select", less, a, b)
    np.testing.assert_array_equal(of(field, "select", of(field, "not", less), b, a), chosen)
    assert (chosen != a).all() and (chosen != b).all() and (chosen != of(field, "select", less, b, a)).all()
    np.testing.assert_array_equal(of(field, "select", less, a, a), a)
    masked = of(field, "select", less, a, np.full(20, -np.inf))
    np.testing.assert_array_equal(of(field, "select", of(field, "not", less), np.full(20, -np.inf), a), masked)
    assert (masked != a).all() and np.isfinite(masked).all()
    for name in ("and", "or"):
        both = of(field, name, less, more)
        np.testing.assert_array_equal(of(field, name, more, of(field, name, both, less)), both)
        np.testing.assert_array_equal(of(field, name, less, np.full(20, float(name == "and"))), less)
        np.testing.assert_array_equal(of(field, name, less, np.full(20, float(name == "or"))), float(name == "or"))


def test_bits_are_not_decided():
    field = BlendedField(R, 0)
    less = of(field, "compare", drawn(3), drawn(3), comparison_direction="LT")
    with pytest.raises(Undecided):
        of(field, "select", less, np.arange(3), np.zeros(3, int))
    with pytest.raises(Undecided):
        field.truths(less)
    np.testing.assert_array_equal(of(field, "select", less, np.ones(3, int), np.ones(3, int)), 1)


jax = pytest.importorskip("jax")
jnp = jax.numpy
X = jax.ShapeDtypeStruct((), "float32")
#: Functions of two numbers, and one that is another of them where they are equal, or in one order, or once in a while.
FAULTS = {
    "branches swapped": (lambda x, y: jnp.where(x < y, x, 2 * y), lambda x, y: jnp.where(x < y, 2 * y, x)),
    "less or equal": (lambda x, y: jnp.where(x < y, x, 2 * y), lambda x, y: jnp.where(x <= y, x, 2 * y)),
    "minimum": (lambda x, y: jnp.maximum(x, y), lambda x, y: jnp.minimum(x, y)),
    "none": (lambda x, y: jnp.maximum(x, y), lambda x, y: y + 0 * x),
    "of another": (lambda x, y: jnp.maximum(x, y * y), lambda x, y: jnp.maximum(x, y)),
    "unclamped": (lambda x, y: jnp.clip(x * y, 0.0, 1.0), lambda x, y: jnp.maximum(x * y, 0.0)),
    "positive": (lambda x, y: jnp.abs(x) * y, lambda x, y: x * y),
    "equal": (lambda x, y: jnp.where(x == y, x, y + 1), lambda x, y: y + 1 + 0 * x),
    "one of both": (lambda x, y: jnp.where((x < 1) & (y < 1), x, y), lambda x, y: jnp.where(x < 1, x, y)),
    "either": (lambda x, y: jnp.where((x < 1) | (y < 1), x, y), lambda x, y: jnp.where((x < 1) & (y < 1), x, y)),
    "masked": (lambda x, y: jnp.where(x < y, x, -jnp.inf), lambda x, y: jnp.where(x < y, -jnp.inf, x)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found_in_one_run(name):
    """Of single numbers, by each of 48 seeds; an order tells, too, what elements of the field do."""
    right, wrong = (load(jax.jit(f).lower(X, X)) for f in FAULTS[name])
    pair = right, partial(evaluate_program, wrong)
    for seed in SEEDS:
        assert compared(lambda k: pair, 1, seed, blended).equal is False, seed
    assert es.equivalent(wrong, right, runs=1).equal is False
    proof = es.equivalent(right, right)
    assert proof and not proof.choices and proof.bound < 2.0**-40


def test_laws_of_orders_alone_take_an_order():
    """A minimum is the opposite of a maximum of opposites: not as sets, and for all orders."""
    proof = es.equivalent(lambda x, y: -jnp.maximum(-x, -y), lambda x, y: jnp.minimum(x, y), X, X)
    assert proof and proof.choices and proof.runs >= CHOICES and "comparison" in str(proof)


def test_sorts_take_an_order():
    five = jax.ShapeDtypeStruct((5,), "float32")
    proof = es.equivalent(lambda x, y: jnp.sort(x + y), lambda x, y: jnp.sort(y + x), five, five)
    assert proof and proof.choices
    assert es.equivalent(lambda x, y: jnp.sort(x - y), lambda x, y: jnp.sort(y - x), five, five).equal is False


def test_sets_of_too_many_elements_are_undecided(monkeypatch):
    """In collectives as in ops: proofs then go on with an order."""
    monkeypatch.setattr(extrema, "MOST", 10)
    field = BlendedField(R, 0)
    with pytest.raises(Undecided, match="more elements"):
        field.combine("max").reduce(drawn(6, 9), axis=(0,), dtype=None, initial=0.0)
    with pytest.raises(Undecided, match="more elements"):
        of(field, "maximum", *drawn(2, 9))
