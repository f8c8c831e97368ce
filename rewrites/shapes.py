"""Attributes in short, for answers and law cases, and the dimension arithmetic that several topics share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType

Dims = tuple[int, ...]
T = TypeVar("T")

#: Two operands in either order: the name that a rule gets, and what puts the operands into its text.
SIDES = (("right", "{0}, {1}".format), ("left", "{1}, {0}".format))


def answer(**attributes: Mapping[str, Any] | None) -> Any:
    """Attributes by label of the right side; None, so that the rule does not apply, where one of them is None."""
    return None if None in attributes.values() else attributes


def of_each(pattern: str, parts: Iterable[str]) -> str:
    """The operands that a pattern makes of several names: ``of_each("slice[s_{0}]({0})", "xy")``."""
    return ", ".join(pattern.format(part) for part in parts)


# Attributes, one or (for cases) several.


def shaped(*shapes: Dims) -> list[dict[str, Any]]:
    """Reshapes."""
    return [{"shape": shape} for shape in shapes]


def permuted(*permutations: Dims) -> list[dict[str, Any]]:
    """Transposes."""
    return [{"permutation": permutation} for permutation in permutations]


def along(*dimensions: int) -> list[dict[str, Any]]:
    """Concatenations."""
    return [{"dimension": dimension} for dimension in dimensions]


def over(*dimensions: Dims) -> list[dict[str, Any]]:
    """Reverses."""
    return [{"dimensions": dims} for dims in dimensions]


def reduced(*dimensions: Dims, by: Iterable[str] = ("add", "max")) -> list[dict[str, Any]]:
    """Reductions by each of some monoids."""
    return [{"dimensions": dims, "monoid": monoid} for dims in dimensions for monoid in by]


def spread(shape: Dims, *dims: int) -> dict[str, Any]:
    """A broadcast."""
    return {"broadcast_dimensions": dims, "shape": shape}


def spread_by(b: Attributes, where: Mapping[int, int], shape: Dims) -> dict[str, Any] | None:
    """A broadcast to another shape, of which dimension ``where[d]`` is what d was; None where one has no place."""
    dims = b["broadcast_dimensions"]
    return spread(shape, *(where[d] for d in dims)) if all(d in where for d in dims) else None


def padding(low: Dims, high: Dims, inner: Dims | None = None) -> dict[str, Any]:
    """A pad; without interior padding unless given."""
    none = (0,) * len(low)
    return {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": none if inner is None else inner}


def slice_of(bounds: Iterable[tuple[int, int, int]]) -> Attributes:
    """Slice attributes from (start, limit, stride) per dimension."""
    starts, limits, strides = tuple(zip(*bounds, strict=True)) or ((), (), ())
    return Attributes(start_indices=starts, limit_indices=limits, strides=strides)


def slices(*bounds: Iterable[tuple[int, int, int]]) -> list[Attributes]:
    """Several slices."""
    return [slice_of(b) for b in bounds]


def full_slice(shape: Sequence[int]) -> Attributes:
    """The slice that keeps everything."""
    return slice_of((0, n, 1) for n in shape)


def bounds_of(s: Attributes) -> tuple[tuple[int, int, int], ...]:
    """(start, limit, stride) per dimension of slice attributes."""
    return tuple(zip(s["start_indices"], s["limit_indices"], s["strides"], strict=True))


def sliced_shape(s: Attributes) -> Dims:
    """The shape that a slice makes."""
    return tuple(-(-(limit - start) // stride) for start, limit, stride in bounds_of(s))


def whole_but(bounds: Sequence[tuple[int, int, int]], shape: Sequence[int], at: int) -> bool:
    """Whether a slice keeps all of every dimension but one."""
    return all(b == (0, n, 1) for d, (b, n) in enumerate(zip(bounds, shape, strict=True)) if d != at)


# Dimensions.


def inverse(permutation: Sequence[int]) -> Dims:
    """The permutation that undoes this one."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def is_identity(permutation: Sequence[int]) -> bool:
    return all(i == d for i, d in enumerate(permutation))


def replaced(values: Sequence[T], at: int, value: T) -> tuple[T, ...]:
    """The tuple with one entry replaced."""
    return (*values[:at], value, *values[at + 1 :])


def kept_dims(rank: int, dims: Iterable[int]) -> Dims:
    """The dimensions that a reduction keeps, in order."""
    gone = set(dims)
    return tuple(i for i in range(rank) if i not in gone)


def kept_places(rank: int, dims: Iterable[int]) -> dict[int, int]:
    """From the dimensions that a reduction keeps to those of its result."""
    return {d: i for i, d in enumerate(kept_dims(rank, dims))}


class Group(NamedTuple):
    """Dimensions of two shapes that hold the same elements in the same order."""

    source: Dims
    target: Dims


def groups(source: Sequence[int], target: Sequence[int]) -> list[Group]:
    """The finest aligned groups of a reshape, in order; unit dimensions at a boundary are groups of their own.

    >>> groups((2, 3, 4), (6, 4))
    [Group(source=(0, 1), target=(0,)), Group(source=(2,), target=(1,))]
    """
    if 0 in source or 0 in target:
        return [Group(tuple(range(len(source))), tuple(range(len(target))))]
    out: list[Group] = []
    i = j = 0
    while i < len(source) or j < len(target):
        unit_i, unit_j = i < len(source) and source[i] == 1, j < len(target) and target[j] == 1
        if unit_i or unit_j:
            out.append(Group((i,) if unit_i else (), (j,) if unit_j else ()))
            i, j = i + unit_i, j + unit_j
            continue
        left, right = [i], [j]
        a, b = source[i], target[j]
        while a != b:
            if a < b:
                left.append(left[-1] + 1)
                a *= source[left[-1]]
            else:
                right.append(right[-1] + 1)
                b *= target[right[-1]]
        i, j = left[-1] + 1, right[-1] + 1
        out.append(Group(tuple(left), tuple(right)))
    return out


def same_dims(source: Sequence[int], target: Sequence[int]) -> dict[int, int]:
    """Source dimensions that a reshape leaves alone, with the target dimension that each became."""
    return {g.source[0]: g.target[0] for g in groups(source, target) if len(g.source) == len(g.target) == 1}


# Products.


class Dot(NamedTuple):
    """The roles of the operands' dimensions in a dot_general. Free dimensions are in the operands' order."""

    lhs_batch: Dims
    rhs_batch: Dims
    lhs_contracting: Dims
    rhs_contracting: Dims
    lhs_free: Dims
    rhs_free: Dims

    @classmethod
    def of(cls, attributes: Attributes, lhs: TensorType, rhs: TensorType) -> Dot:
        n = attributes["dot_dimension_numbers"]
        lb, rb = n["lhs_batching_dimensions"], n["rhs_batching_dimensions"]
        lc, rc = n["lhs_contracting_dimensions"], n["rhs_contracting_dimensions"]
        return cls(lb, rb, lc, rc, kept_dims(lhs.rank, lb + lc), kept_dims(rhs.rank, rb + rc))

    @classmethod
    def beside(cls, attributes: Attributes, which: int, x: TensorType, y: TensorType) -> Dot:
        """The roles where operand ``which`` is x and the other one y."""
        return cls.of(attributes, *((y, x) if which else (x, y)))

    def side(self, which: int) -> tuple[Dims, Dims, Dims]:
        """Batch, contracting and free dimensions of one operand (0 or 1)."""
        return self[which], self[2 + which], self[4 + which]

    def result_of(self, which: int) -> dict[int, int]:
        """Map each batch and free dimension of one operand to its dimension of the result."""
        batch, _, free = self.side(which)
        start = len(batch) + (len(self.lhs_free) if which else 0)
        return {d: i for i, d in enumerate(batch)} | {d: start + i for i, d in enumerate(free)}

    def operand_of(self, which: int) -> dict[int, int]:
        """The inverse of `result_of`."""
        return {j: i for i, j in self.result_of(which).items()}


def numbers(
    lhs_batch: Dims = (), rhs_batch: Dims = (), lhs_contracting: Dims = (), rhs_contracting: Dims = ()
) -> Attributes:
    """Dot dimension numbers."""
    return Attributes(
        lhs_batching_dimensions=tuple(lhs_batch),
        rhs_batching_dimensions=tuple(rhs_batch),
        lhs_contracting_dimensions=tuple(lhs_contracting),
        rhs_contracting_dimensions=tuple(rhs_contracting),
    )


def dot(*sides: Dims, dtype: str = "f32", precision: tuple[str, ...] | None = None) -> dict[str, Any]:
    """A dot_general with these dimension numbers."""
    return {"precision_config": precision, "algorithm": None, "dtype": dtype, "dot_dimension_numbers": numbers(*sides)}


def arithmetic_precision(dtype: str) -> tuple[str, str] | None:
    """The precision of a product that rounds no more than multiplications and sums of this element type do.

    By default TPUs round the factors to bf16, and GPUs to tf32. Integers, bf16 and what is narrower lose nothing.
    """
    part = dtype.removeprefix("complex<").removesuffix(">")
    return ("HIGHEST", "HIGHEST") if part in ("f16", "f32", "f64") else None


#: The product of two matrices, and of two batches of them.
MATMUL = dot((), (), (1,), (0,))
BATCHED = dot((0,), (0,), (2,), (1,))


def with_numbers(dot: Attributes, *sides: Dims) -> Attributes:
    """Return the attributes of a dot_general with its dimension numbers replaced."""
    return dot.updated(dot_dimension_numbers=numbers(*sides))


def renumbered(dot: Attributes, d: Dot, which: int, mapping: Mapping[int, int]) -> Attributes:
    """Return the attributes of a dot_general whose operand ``which`` had its dimensions renumbered by ``mapping``."""
    sides = [d.lhs_batch, d.rhs_batch, d.lhs_contracting, d.rhs_contracting]
    for k in (which, 2 + which):
        sides[k] = tuple(mapping[i] for i in sides[k])
    return with_numbers(dot, *sides)
