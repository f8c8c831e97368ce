"""What rounding can do to one side of a rule: its value, what it is without rounding, and how far they can be apart.

Rules that are equal up to rounding are identities of the real numbers. They are tested as such: each side is evaluated
a second time in double precision (``exact``), and a third time with all numbers replaced by their magnitudes and all
differences by sums (``magnitude``). Identities of rings leave magnitudes alone, and a computed sum of products errs by
at most the number of its operations, times the unit roundoff, times its magnitude, in whatever order it is taken
(Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 3.1 and 4.2). ``reach`` is the magnitude with
the errors that the operands bring along, so that errors go through the ops as ``reach - magnitude`` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from eggshard.egraph.patterns import Node, Pattern
from eggshard.egraph.rules import OpUse
from eggshard.ops import numerics, registry
from eggshard.program.attributes import Attributes
from eggshard.program.types import float_limits, is_float, mlir_dtype

#: Operations that one operation of complex numbers counts as.
_COMPLEX = 4
_MOVES = ("reshape", "broadcast_in_dim", "transpose", "slice", "concatenate", "reverse", "pad", "rotate", "wrap",
          "extend", "update_slice", "convert")
_RINGS = ("add", "subtract", "multiply", "divide", "negate", "maximum", "minimum", "dot_general", "dot", "reduce",
          "reduce_window", "fft")
_LATTICES = {"max": "max", "min": "max", "add": "add", "mul": "mul"}


class Bounded(NamedTuple):
    """A value; the same without rounding; its magnitude; and that with errors. The latter three are of doubles.

    Non-finite operands count as 1 in them, and divisors 0 too, so an infinity among them is a partial result that its
    type may be too narrow for.
    """

    value: np.ndarray
    exact: np.ndarray
    magnitude: np.ndarray
    reach: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """How far value and exact can be apart."""
        with np.errstate(all="ignore"):
            return np.asarray(self.reach - self.magnitude)


class _WrapsError(Exception):
    """A partial result is of integers."""


def operand(array: np.ndarray) -> Bounded:
    """An operand, which is without error."""
    wide = numerics.widened(array).astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    finite = np.where(np.isfinite(wide), wide, 1)
    size = np.asarray(np.abs(finite))
    return Bounded(array, finite, size, size)


def bounded(pattern: Pattern, uses: Sequence[OpUse], operands: Mapping[str, np.ndarray]) -> Bounded | None:
    """One side of a rule on these operands; ``uses`` holds its ops in postorder.

    None where rounding is not bounded here: for other ops, and for arithmetic of integers, which wraps.
    """
    remaining = iter(uses)

    def of(p: Pattern) -> Bounded:
        if isinstance(p, str):
            return operand(operands[p])
        assert isinstance(p, Node)
        children = [of(c) for c in p.children]
        return _applied(next(remaining), children)

    if not all(use.name in _MOVES or use.name in _RINGS for use in uses):
        return None
    try:
        with np.errstate(all="ignore"):
            return of(pattern)
    except _WrapsError:
        return None


def _applied(use: OpUse, xs: Sequence[Bounded]) -> Bounded:
    definition = registry.get(use.name)
    value = np.asarray(definition.evaluate(use.attributes, [x.value for x in xs])[0])
    wide = use.attributes
    if "dtype" in wide and is_float(wide["dtype"]):
        wide = wide.updated(dtype="complex<f64>" if numerics.is_complex(wide["dtype"]) else "f64")
    exacts = [x.exact for x in xs]
    if use.name == "divide":
        exacts[1] = np.where(exacts[1] == 0, 1, exacts[1])
    exact = np.asarray(definition.evaluate(wide, exacts)[0])
    dtype = mlir_dtype(value.dtype)
    if not is_float(dtype):
        if use.name not in _MOVES or use.name == "convert":
            raise _WrapsError
        on = _on_magnitudes(use)
        return Bounded(value, exact, on([x.magnitude for x in xs]), on([x.reach for x in xs]))
    limits, count = float_limits(numerics.part_dtype(dtype)), _operations(use, xs)
    if use.name == "divide":
        divisor = np.abs(exacts[1])
        magnitude, reach = xs[0].magnitude / divisor, xs[0].reach / np.maximum(divisor - xs[1].error, 0)
    else:
        on = _on_magnitudes(use)
        magnitude, reach = on([x.magnitude for x in xs]), on([x.reach for x in xs])
    count *= _COMPLEX if numerics.is_complex(dtype) else 1
    # The unit roundoff is half of eps; the other half covers what is rounded here. An underflow is absolute.
    reach = reach * (1 + count * float(limits.eps)) + count * float(limits.smallest_subnormal)
    lost = reach > float(limits.max)
    if use.attributes.get("monoid") == "mul":
        lost = lost | _loses_partial_products(on, xs[0], float(limits.max), float(limits.smallest_normal))
    return Bounded(value, exact, np.where(lost, np.inf, magnitude), np.where(lost, np.inf, reach))


def _loses_partial_products(
    product: Callable[[Sequence[np.ndarray]], np.ndarray], x: Bounded, largest: float, smallest: float
) -> np.ndarray:
    """Where some factors alone may leave the range that all of them together are in."""
    up = product([np.maximum(x.reach, 1)])
    down = product([np.minimum(np.where(x.magnitude > 0, x.magnitude, 1), 1)])
    return (up > largest) | (down < smallest)


def _operations(use: OpUse, xs: Sequence[Bounded]) -> int:
    """The longest chain of rounded operations to one element of the result."""
    shape = xs[0].value.shape
    if use.name in ("dot_general", "dot"):
        contracted = (
            use.attributes["dot_dimension_numbers"]["lhs_contracting_dimensions"]
            if use.name == "dot_general" else (len(shape) - 1,)
        )
        return int(math.prod(shape[d] for d in contracted)) + 2
    if use.name == "reduce":
        return int(math.prod(shape[d] for d in use.attributes["dimensions"]))
    if use.name == "reduce_window":
        return int(math.prod(use.attributes["window_dimensions"]))
    if use.name == "fft":
        return 8 * int(math.prod(use.attributes["fft_length"]))
    return 0 if use.name in _MOVES and use.name != "convert" else 1


def _on_magnitudes(use: OpUse) -> Callable[[Sequence[np.ndarray]], np.ndarray]:
    """What an op does to magnitudes."""
    name, attributes = use.name, use.attributes
    if name == "fft":
        return lambda xs: _transformed(attributes, xs[0])
    if name in ("negate", "convert"):
        return lambda xs: xs[0]
    name = {"subtract": "add", "minimum": "maximum"}.get(name, name)
    if "monoid" in attributes:
        attributes = attributes.updated(monoid=_LATTICES[attributes["monoid"]])
    if "dtype" in attributes:
        attributes = attributes.updated(dtype="f64")
    least = attributes.get("monoid") == "max"

    def on(xs: Sequence[np.ndarray]) -> np.ndarray:
        made = np.asarray(registry.get(name).evaluate(attributes, xs)[0])
        return np.maximum(made, 0) if least else made  # the maximum of nothing is its identity

    return on


def _transformed(attributes: Attributes, x: np.ndarray) -> np.ndarray:
    lengths, kind = attributes["fft_length"], attributes["fft_type"]
    last = {"RFFT": lengths[-1] // 2 + 1}.get(kind, lengths[-1])
    scale = 2.0 if kind == "IRFFT" else 1.0
    dims = tuple(range(x.ndim - len(lengths), x.ndim))
    total = scale * np.sum(x, axis=dims, keepdims=True)
    return np.broadcast_to(total, (*x.shape[: dims[0]], *lengths[:-1], last))
