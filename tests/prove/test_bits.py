"""Bits of floats over a field."""

import numpy as np

from eggshard.program.attributes import Attributes
from eggshard.prove.field import Field
from eggshard.prove.residues import PRIMES, Residues


def test_bits_of_residues_are_turned_back() -> None:
    field = Field(Residues(PRIMES[0]), 0)
    x = np.array([0.0, 1.0, PRIMES[0] - 1.0, np.inf, -np.inf, np.nan])
    for wide, bits in (("f32", "ui32"), ("f32", "i32"), ("f64", "ui64")):
        (out,) = field.evaluate("bitcast_convert", Attributes(dtype=bits), [x])
        assert np.unique(out).size == x.size
        (back,) = field.evaluate("bitcast_convert", Attributes(dtype=wide), [out])
        np.testing.assert_array_equal(back, x)
    one = np.array([0x3F800000], np.uint32)
    assert field.evaluate("bitcast_convert", Attributes(dtype="f32"), [one])[0] == 1
