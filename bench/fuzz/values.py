"""Values of a drawn program, with what is known of their elements.

Floats are drawn as small whole numbers. As long as every partial sum stays below the largest number up to which the
element type holds all whole numbers, sums and products are exact in any order, and results are compared bit for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

#: Element types that are drawn, as `jax.numpy` calls them, common ones more often.
DTYPES = (
    "float32", "float32", "float32", "float32", "int32", "int32", "int32", "bool", "bfloat16", "float16", "float64",
    "int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64", "complex64", "complex128", "float8_e4m3fn",
    "float8_e5m2", "float8_e4m3b11fnuz", "int4", "uint4",
)
#: Up to here an element type holds every whole number.
_WHOLE = {
    "float64": 2.0**53, "complex128": 2.0**53, "float32": 2.0**24, "complex64": 2.0**24, "float16": 2.0**11,
    "bfloat16": 2.0**8, "float8_e4m3fn": 2.0**4, "float8_e4m3b11fnuz": 2.0**4, "float8_e5m2": 2.0**3,
}


@dataclass(frozen=True)
class Value:
    """A value by its name in the program's source.

    bound: the largest magnitude of its elements if they are whole numbers (integers wrap, and have none that matters);
    infinite for floats that were rounded, which nothing that jumps may look at.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bound: float = 0.0

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def inexact(self) -> bool:
        """Whether its type is a float, real or complex."""
        return self.dtype in _WHOLE

    @property
    def complex(self) -> bool:
        return self.dtype.startswith("complex")

    @property
    def integer(self) -> bool:
        return "int" in self.dtype

    @property
    def exact(self) -> bool:
        """Whether every order of computing gives the same bits."""
        return not self.inexact or math.isfinite(self.bound)

    @property
    def text(self) -> str:
        """The element type in the source of a program."""
        return "bool" if self.dtype == "bool" else f"jnp.{self.dtype}"


#: Floats in which a long sum loses all its digits, each order of adding up others.
NARROW = frozenset(dtype for dtype, most in _WHOLE.items() if most < 2.0**24)


def bounded(dtype: str, bound: float) -> float:
    """The bound of a result whose partial sums stay within ``bound``; infinite where its type rounds them."""
    if dtype not in _WHOLE:
        return 0.0
    return bound if bound <= _WHOLE[dtype] else math.inf


def draw(value: Value, generator: np.random.Generator) -> np.ndarray:
    """Elements of an input: whole numbers between -3 and 3, truth values, or any integers up to 40."""
    dtype = jnp.dtype(value.dtype)
    if value.dtype == "bool":
        return generator.integers(0, 2, value.shape).astype(bool)
    if value.integer:
        return generator.integers(0 if value.dtype.startswith("u") else -40, 40, value.shape).astype(dtype)
    whole = generator.integers(-3, 4, value.shape)
    if value.complex:
        return (whole + 1j * generator.permutation(whole.reshape(-1)).reshape(value.shape)).astype(dtype)
    return whole.astype(dtype)
