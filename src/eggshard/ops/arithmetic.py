"""What elements are, and how they are combined, while ops are evaluated: NumPy's numbers, or a meaning passed down.

Programs, device programs and laws evaluate every op through `current`. A caller that means other elements by a program,
residues of a prime field for instance, evaluates it within `using`; nothing else of the program changes. Types and
constants of programs stay what they are: only arrays that evaluation makes are of `Arithmetic.stored` types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from eggshard.ops import numerics
from eggshard.ops.base import Arrays, get
from eggshard.program import monoids
from eggshard.program.attributes import Attributes
from eggshard.program.program import Region
from eggshard.program.types import is_float, mlir_dtype, numpy_dtype


class Combine(Protocol):
    """A binary function of arrays, with the methods of `numpy.ufunc` that ops call."""

    def __call__(self, a: np.ndarray, b: np.ndarray, /) -> np.ndarray: ...

    def reduce(self, array: np.ndarray, /, *, axis: tuple[int, ...], dtype: Any, initial: Any) -> np.ndarray: ...

    def accumulate(self, array: np.ndarray, /, *, axis: int, dtype: Any) -> np.ndarray: ...

    def at(self, array: np.ndarray, indices: np.ndarray, partial_sums: np.ndarray, /) -> None: ...


class Arithmetic:
    """NumPy's numbers, in which every op means what its definition says; the base of other meanings.

    exact: results do not depend on how many elements are computed at a time, as those of NumPy's loops may by rounding.
    """

    exact: ClassVar[bool] = False

    def stored(self, dtype: str) -> np.dtype:
        """The NumPy type of arrays that hold elements of an MLIR type."""
        return numpy_dtype(dtype)

    def holds(self, array: np.ndarray, dtype: str) -> bool:
        """Whether an array's elements can be of an MLIR type."""
        return array.dtype == self.stored(dtype)

    def combine(self, monoid: str) -> Combine:
        """The binary function of a monoid; ProgramError for an unknown one."""
        return cast(Combine, monoids.monoid(monoid).ufunc)

    def matmul(self, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
        """Products of matrices, as `numpy.matmul` has them."""
        return np.asarray(np.matmul(lhs, rhs))

    def truths(self, array: np.ndarray) -> np.ndarray:
        """Truth values that decide what runs, or which of some elements is taken, as NumPy has them."""
        return array

    def order(self, array: np.ndarray, total: bool) -> np.ndarray | None:
        """Numbers in the order that comparisons see (total: those with TOTALORDER); None where NaN has no place."""
        if not is_float(mlir_dtype(array.dtype)):
            return numerics.widened(array)
        if total:
            return numerics.total_order_key(array)
        wide = numerics.widened(array)
        return None if np.isnan(wide).any() else wide

    def looped(self, turns: int, counted: bool = True, stated: int = 0) -> None:
        """A loop has run its body so often, and goes on. counted: how often it runs is known before; stated: what a
        plan says of that."""

    def evaluate(
        self, name: str, attrs: Attributes, arrays: Arrays, regions: Sequence[Region] = ()
    ) -> tuple[np.ndarray, ...]:
        """The results of one op of the registry."""
        return get(name).evaluate(attrs, arrays, tuple(regions))


_NUMPY = Arithmetic()
_CURRENT: ContextVar[Arithmetic] = ContextVar("arithmetic")


def current() -> Arithmetic:
    """What ops mean in this thread at this point."""
    return _CURRENT.get(_NUMPY)


@contextmanager
def using(arithmetic: Arithmetic) -> Iterator[None]:
    """Within this context, and in this thread alone, ops mean what an arithmetic says."""
    token = _CURRENT.set(arithmetic)
    try:
        yield
    finally:
        _CURRENT.reset(token)

