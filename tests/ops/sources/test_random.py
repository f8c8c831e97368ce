"""Random bits, bit for bit as XLA makes them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.family_checks import check_laws, check_spelling, check_xla, samples_of

from eggshard.errors import LoweringError, ProgramError
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

GENERATOR = registry.get("rng_bit_generator")


def test_xla_agrees() -> None:
    # XLA:CPU gives signed results as unsigned ones.
    check_xla("rng_bit_generator", [s for s in samples_of("rng_bit_generator") if s[0]["dtype"] != "i32"])


def test_signed_results_are_the_same_bits() -> None:
    attrs = Attributes(rng_algorithm="PHILOX", shape=(9,), dtype="i32")
    state = np.array([3, 4, 5], np.uint64)
    signed, unsigned = (GENERATOR.evaluate(attrs.updated(dtype=d), [state])[1] for d in ("i32", "ui32"))
    np.testing.assert_array_equal(signed, unsigned.astype(np.int32))


def test_spelling() -> None:
    check_spelling("rng_bit_generator")


def test_nothing_is_sharded() -> None:
    assert check_laws("rng_bit_generator") == 0


def test_the_hidden_state_of_rng_cannot_be_simulated() -> None:
    rng = registry.get("rng")
    assert not rng.pure and GENERATOR.pure
    with pytest.raises(LoweringError, match="hidden state"):
        rng.evaluate(Attributes(rng_distribution="UNIFORM", shape=(3,)), [np.float32(0), np.float32(1), np.array([3])])


def test_refusals() -> None:
    attrs = Attributes(rng_algorithm="THREE_FRY", shape=(3,), dtype="ui32")
    with pytest.raises(ProgramError, match="THREE_FRY is 2"):
        GENERATOR.infer(attrs, (TensorType((3,), "ui64"),))
    with pytest.raises(ProgramError, match="none of"):
        GENERATOR.infer(attrs.updated(rng_algorithm="MERSENNE"), (TensorType((2,), "ui64"),))
    with pytest.raises(ProgramError, match="element type"):
        GENERATOR.infer(attrs.updated(dtype="i1"), (TensorType((2,), "ui64"),))
