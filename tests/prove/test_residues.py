"""Arithmetic modulo primes, against Python's integers; random functions and the random order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from eggshard.program.attributes import Attributes
from eggshard.prove.combining import Combination
from eggshard.prove.exponents import PAIRS, ExponentField
from eggshard.prove.field import Field
from eggshard.prove.hashing import SMALL, Hashes
from eggshard.prove.residues import PRIMES, Residues, paired

P = PRIMES[0]
R = Residues(P)
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    """Random residues, with the largest ones among them."""
    out = RNG.integers(0, P, shape).astype(np.float64)
    out.reshape(-1)[:2] = P - 1
    return out


def ints(array: np.ndarray) -> np.ndarray:
    return np.vectorize(int, otypes=[object])(array)


def is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, int(n**0.5) + 1))


def test_moduli():
    for p in PRIMES:
        assert is_prime(p) and p < 2**26 and p % 4 == 3
        assert all(pow(a, (p - 1) // 2, p) == 1 for a in (2, 3, 5, 7, 11, 13))
    for p, q in PAIRS:
        assert is_prime(p) and is_prime(q) and p * q < 2**26 and p == 2 * q + 1 and q % 4 == 3
        assert pow(4, q, p) == 1


def test_sums_products_and_inverses():
    a, b = drawn(1000), drawn(1000)[::-1].copy()
    for got, want in ((R.add(a, b), ints(a) + ints(b)), (R.subtract(a, b), ints(a) - ints(b)),
                      (R.multiply(a, b), ints(a) * ints(b)), (R.negate(a), -ints(a))):
        np.testing.assert_array_equal(got, (want % P).astype(np.float64))
    np.testing.assert_array_equal(R.multiply(R.inverse(a + 0.0), a), np.ones(1000))
    assert np.isnan(R.inverse(np.zeros(1))).all() and R.inverse(np.array([np.inf])) == 0
    np.testing.assert_array_equal(R.total(a.reshape(10, 100), (1,)), ints(a).reshape(10, 100).sum(1).astype(object) % P)


@pytest.mark.parametrize("inner", [1, 7, 8192, 20000])
def test_matrices(inner):
    a, b = drawn(3, inner), drawn(inner, 2)
    want = (ints(a) @ ints(b)) % P
    np.testing.assert_array_equal(R.matmul(a, b), want.astype(np.float64))


def test_complex_numbers_are_a_field():
    a, b = paired(drawn(50), drawn(50)), paired(drawn(50), drawn(50))
    np.testing.assert_array_equal(R.divide(R.multiply(a, b), b), a)
    np.testing.assert_array_equal(R.multiply(np.array([1j]), np.array([1j])), np.array([P - 1 + 0j]))


def test_numbers_are_the_fractions_that_they_are():
    numbers = np.array([0.1, -2.5, 1e30, 2.0**-1074, 3.0, -0.0])
    want = [(f := Fraction(float(n))).numerator * pow(f.denominator, -1, P) % P for n in numbers]
    np.testing.assert_array_equal(R.of_numbers(numbers), np.array(want, np.float64))
    assert R.of_numbers(np.array([2**63 + 5], np.uint64)) == (2**63 + 5) % P
    assert R.of_numbers(np.array([-3], np.int8)) == P - 3


def test_infinities_keep_the_sign_of_simple_fractions():
    factor = R.of_numbers(np.array([0.125, -0.5, 1.5, np.inf]))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(R.multiply(np.full(4, -np.inf), factor), [-np.inf, np.inf, -np.inf, -np.inf])


def test_order_is_odd_and_that_of_small_integers():
    hashes = Hashes(R, 3)
    a = drawn(1000)
    np.testing.assert_array_equal(hashes.rank(R.negate(a)), -hashes.rank(a))
    few = np.arange(-SMALL + 1, SMALL)
    np.testing.assert_array_equal(hashes.rank(R.of_numbers(few)), few)
    high, low = hashes.rank(np.array([np.inf, -np.inf]))
    assert low < hashes.rank(a).min() and hashes.rank(a).max() < high


def test_functions_are_functions():
    first, second = Hashes(R, 0), Hashes(R, 1)
    a = drawn(1000)
    np.testing.assert_array_equal(first.function("f", a), first.function("f", a.copy()))
    for other in (first.function("g", a), second.function("f", a), first.function("f", a + 1)):
        assert (first.function("f", a) == other).mean() < 0.01
    assert np.isnan(first.function("f", np.array([np.nan]))).all()


@pytest.mark.parametrize("monoid", ["add", "mul", "max", "min"])
def test_monoids_accumulate_what_they_combine(monoid):
    combine = Field(R, 0).combine(monoid)
    assert isinstance(combine, Combination)
    a = drawn(13, 4)
    rows = [a[0]]
    for row in a[1:]:
        rows.append(combine(rows[-1], row))
    np.testing.assert_array_equal(combine.accumulate(a, axis=0, dtype=None), np.stack(rows))
    np.testing.assert_array_equal(combine.reduce(a, axis=(0,), dtype=None, initial=0.0), rows[-1])
    total = np.zeros(3)
    combine.at(total, np.array([1, 1, 2]), a[0, :3])
    np.testing.assert_array_equal(total[1:], [combine(combine(total[:1], a[0, :1]), a[0, 1:2])[0],
                                              combine(total[:1], a[0, 2:3])[0]])


@pytest.mark.parametrize("pair", PAIRS)
def test_exponentials_turn_sums_into_products(pair):
    field = ExponentField(pair, 0)
    a, b = (RNG.integers(0, pair[0] * pair[1], 500).astype(np.float64) for _ in range(2))

    def exp(x: np.ndarray) -> np.ndarray:
        return field.evaluate("exponential", Attributes(), [x])[0]

    r = field.residues
    np.testing.assert_array_equal(exp(r.add(a, b)), r.multiply(exp(a), exp(b)))
    np.testing.assert_array_equal(exp(np.array([0.0, -np.inf, np.inf])), [1.0, 0.0, np.inf])
    assert len(set(exp(a))) > 400
