"""The reductions that combine partial values: names, identities, NumPy and StableHLO meaning."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from eggshard.errors import ProgramError
from eggshard.program.types import float_limits, integer_limits, is_float, numpy_dtype


class Monoid(NamedTuple):
    """``op`` is the binary op of the registry that combines two partial values; ``ufunc`` does so in NumPy."""

    op: str
    ufunc: np.ufunc


MONOIDS: dict[str, Monoid] = {
    "add": Monoid("add", np.add),
    "mul": Monoid("multiply", np.multiply),
    "max": Monoid("maximum", np.maximum),
    "min": Monoid("minimum", np.minimum),
    "and": Monoid("and", np.bitwise_and),
    "or": Monoid("or", np.bitwise_or),
    "xor": Monoid("xor", np.bitwise_xor),
}
#: From the binary op of a reduction's body to its monoid.
OF_OP = {monoid.op: name for name, monoid in MONOIDS.items()}


def monoid(name: str) -> Monoid:
    """The monoid of a name; ProgramError for an unknown one."""
    try:
        return MONOIDS[name]
    except KeyError:
        raise ProgramError(f"reduction kind {name!r} is unknown; one of {', '.join(MONOIDS)} is meant") from None


def of_dtype(dtype: str) -> tuple[str, ...]:
    """The monoids that are defined for an element type. Truth values are combined by and, or, xor, max and min."""
    if dtype == "i1":
        return ("max", "min", "and", "or", "xor")
    if dtype.startswith("complex"):
        return ("add", "mul")
    return ("add", "mul", "max", "min") if is_float(dtype) else tuple(MONOIDS)


def identity(name: str, dtype: str) -> bool | int | float:
    """The identity element of a monoid as a Python number: combining with it changes nothing.

    For max and min of a float type without infinities it is the type's lowest and highest value.
    """
    monoid(name)
    if name in ("add", "or", "xor"):
        return False if dtype == "i1" else 0
    if name == "mul":
        return True if dtype == "i1" else 1
    if dtype == "i1":
        return name != "max"
    if is_float(dtype):
        if not np.isinf(np.array(math.inf, np.float32).astype(numpy_dtype(dtype))):
            limits = float_limits(dtype)
            return float(limits.min if name == "max" else limits.max)
        return -math.inf if name == "max" else math.inf
    lowest, highest = integer_limits(dtype)
    if name == "and":
        return highest if dtype.startswith("ui") else -1
    return lowest if name == "max" else highest


def reduced_by_collectives(name: str, dtype: str) -> bool:
    """Whether XLA's collectives reduce by it; by other monoids devices exchange blocks and combine them themselves."""
    return name not in ("and", "or", "xor") or (dtype == "i1" and name != "xor")
