"""Sorting along a dimension, and top-k along the last one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eggshard.errors import ProgramError
from eggshard.ops import numerics
from eggshard.ops.arithmetic import current
from eggshard.ops.base import REPLICATE, Arrays, Factor, FactorRule, OpDef, Regions, Results, Types, register
from eggshard.ops.evaluate import evaluate_elementwise
from eggshard.ops.factor_table import labelled_rule
from eggshard.ops.signatures import require_class, require_count, require_regions, require_signature
from eggshard.program import codec
from eggshard.program.attributes import Attributes
from eggshard.program.program import Region
from eggshard.program.types import TensorType, is_float, mlir_dtype


class _Sort(OpDef):
    """Operands of one shape, reordered together along ``dimension`` (negative: from the last).

    The region says of scalars (a0, b0, a1, b1, ...), elements of operand 0, 1, ... at two places, whether a's come
    before b's. Equal elements keep their order, whatever ``is_stable`` says.
    """

    name = "sort"
    attributes = {"dimension": codec.Integer(default=-1), "is_stable": codec.Flag(default=False)}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_regions(regions, 1)
        if not operands:
            raise ProgramError("takes at least one operand")
        if any(t.shape != operands[0].shape for t in operands):
            raise ProgramError("operands have different shapes")
        rank, dimension = operands[0].rank, attrs["dimension"]
        if not -max(rank, 1) <= dimension < max(rank, 1):
            raise ProgramError(f"dimension {dimension} does not exist in {operands[0]}")
        scalars = tuple(TensorType((), t.dtype) for t in operands for _ in range(2))
        require_signature(regions[0], scalars, (TensorType((), "i1"),), "the comparator")
        return tuple(operands)

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        x = operands[0]
        sorted_ = attrs["dimension"] % max(x.rank, 1)
        kinds = {sorted_: Factor(x.shape[sorted_], REPLICATE)} if x.rank else {}
        labels = (range(x.rank),) * 2 * len(operands)
        return labelled_rule(operands, results, labels, kinds, order=[d for d in range(x.rank) if d != sorted_])

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        if arrays[0].ndim == 0:
            return tuple(arrays)
        axis = attrs["dimension"] % arrays[0].ndim
        columns = [np.moveaxis(a, axis, -1) for a in arrays]
        order = _sorted_order(regions[0], columns)
        return tuple(np.moveaxis(np.take_along_axis(c, order, axis=-1), -1, axis) for c in columns)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        """n log2 n comparisons of each sorted line."""
        x = operands[0]
        length = x.shape[attrs["dimension"]] if x.rank else 1
        return float(x.elements * max(length - 1, 0).bit_length())


def _sorted_order(comparator: Region, columns: list[np.ndarray]) -> np.ndarray:
    """The stable order of the last dimension."""
    key = _key(comparator, columns)
    return _network_order(comparator, columns) if key is None else np.argsort(key, axis=-1, kind="stable")


def _key(comparator: Region, columns: list[np.ndarray]) -> np.ndarray | None:
    """Numbers in whose order elements are sorted, where the comparator compares one function of both elements."""
    # The same expression has the same number, of a as of b; sides tell which of the two it is of.
    numbers: dict[object, int] = {}
    number = {v: numbers.setdefault(("operand", k // 2), len(numbers)) for k, v in enumerate(comparator.inputs)}
    sides = {v: frozenset((k % 2,)) for k, v in enumerate(comparator.inputs)}
    for op in comparator.ops:
        operands = tuple(number[v] for v in op.operands)
        for k, v in enumerate(op.results):
            number[v] = numbers.setdefault((op.name, op.attributes, op.regions, operands, k), len(numbers))
            sides[v] = frozenset().union(*(sides[x] for x in op.operands))
    made = [op for op in comparator.ops if comparator.outputs[0] in op.results]
    if not made or made[0].name != "compare":
        return None
    x, y = made[0].operands
    direction = made[0].attributes["comparison_direction"]
    if number[x] != number[y] or len(sides[x] | sides[y]) != 2 or sides[x] & sides[y] or direction in ("EQ", "NE"):
        return None
    ops = tuple(op for op in comparator.ops if all(sides[v] <= sides[x] for v in op.results))
    function = replace(comparator, ops=ops, outputs=(x,))
    (values,) = evaluate_elementwise(function, [c for column in columns for c in (column, column)])
    order = current().order(np.asarray(values), made[0].attributes.get("compare_type") == "TOTALORDER")
    if order is None or (direction in ("LT", "LE")) == (sides[x] == {0}):
        return order
    # The bitwise complement reverses the order of integers without overflow.
    return np.asarray(-order if order.dtype.kind == "f" else ~order)


def _network_order(comparator: Region, columns: list[np.ndarray]) -> np.ndarray:
    """The stable order by a bitonic network: log2(n)^2 comparisons of whole arrays."""
    n = columns[0].shape[-1]
    size = 1 << max(n - 1, 0).bit_length()
    # Places past the end hold numbers >= n and count as last.
    order = np.broadcast_to(np.arange(size), (*columns[0].shape[:-1], size)).copy()
    if n < 2:
        return order[..., :n]
    block = 2
    while block <= size:
        reach = block // 2
        while reach:
            low = np.flatnonzero((np.arange(size) & reach) == 0)
            left, right = order[..., low], order[..., low + reach]
            rising = (low & block) == 0
            swap = _before(comparator, columns, right, left, n) == rising
            order[..., low], order[..., low + reach] = np.where(swap, right, left), np.where(swap, left, right)
            reach //= 2
        block *= 2
    return order[..., :n]


def _before(comparator: Region, columns: list[np.ndarray], a: np.ndarray, b: np.ndarray, n: int) -> np.ndarray:
    """Whether the elements numbered ``a`` come before those numbered ``b``; ties by number."""
    left = [np.take_along_axis(c, np.minimum(a, n - 1), axis=-1) for c in columns]
    right = [np.take_along_axis(c, np.minimum(b, n - 1), axis=-1) for c in columns]
    (less,) = evaluate_elementwise(comparator, [x for pair in zip(left, right, strict=True) for x in pair])
    (more,) = evaluate_elementwise(comparator, [x for pair in zip(right, left, strict=True) for x in pair])
    less, more = map(current().truths, (less, more))
    within = (a < n) & (b < n)
    return np.where(within & (less != more), less, a < b)


class _TopK(OpDef):
    """The ``k`` largest elements along the last dimension in falling order, and their indices; ties by index.

    Floats are in total order, so NaN is the largest.
    """

    name = "chlo.top_k"
    mlir_name = "chlo.top_k"
    attributes = {"k": codec.Integer()}

    def infer(self, attrs: Attributes, operands: Types, regions: Regions = ()) -> Types:
        require_count(operands, 1)
        x, k = operands[0], attrs["k"]
        require_class(x, "fiu")
        if not x.rank or not 0 <= k <= x.shape[-1]:
            raise ProgramError(f"k = {k} elements do not exist along the last dimension of {x}")
        shape = (*x.shape[:-1], k)
        return (x.with_shape(shape), TensorType(shape, "i32"))

    def factors(self, attrs: Attributes, operands: Types, results: Types) -> FactorRule:
        batch = range(operands[0].rank - 1)
        kinds = {"found": Factor(results[0].shape[-1], REPLICATE)}
        return labelled_rule(operands, results, ((*batch, None), *((*batch, "found"),) * 2), kinds)

    def evaluate(self, attrs: Attributes, arrays: Arrays, regions: Regions = ()) -> Results:
        x = arrays[0]
        key = numerics.total_order_key(x) if is_float(mlir_dtype(x.dtype)) else numerics.widened(x)
        # The bitwise complement reverses the order of integers without overflow.
        order = np.argsort(~key, axis=-1, kind="stable")[..., : attrs["k"]]
        return np.take_along_axis(x, order, axis=-1), order.astype(np.int32)

    def flops(self, attrs: Attributes, operands: Types, results: Types) -> float:
        return float(operands[0].elements)


for _definition in (_Sort(), _TopK()):
    register(_definition)
