"""The domain of a rule: what its law's cases say, of other element types and sizes, and with other pointwise ops.

A rule's cases give shapes and attributes that its left side is made of. Its conditions are asked about all others too:
every element type alone and mixed with another, dimensions of sizes 0 and 1, and any pointwise op where a pattern takes
a family of them. Attributes follow the sizes; what ops refuse all the same is passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from eggshard.egraph.patterns import FAMILIES
from eggshard.egraph.rules import NO_ATTRIBUTES, OpUse, Rule
from eggshard.errors import ProgramError
from eggshard.ops import numerics, registry
from eggshard.program import monoids
from eggshard.program.attributes import Attributes, Literal
from eggshard.program.types import ELEMENT_TYPES, TensorType, is_float

#: The ops and tensors of a left side, in the order of `Rule.labels` and `Rule.tensors`.
Instance = tuple[tuple[OpUse, ...], tuple[TensorType, ...]]

Types = Sequence[TensorType]
_DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
#: How often a variant mixes element types, changes a size, and takes another op of a family, or another reduction.
_MIXES, _RESIZES, _OTHER_OPS, _OTHER_MONOIDS = 0.4, 0.4, 0.7, 0.2
#: How often it keeps the element types of its case: some rules hold of few combinations, such as transforms of what is
#: converted to complex numbers.
_KEEPS = 0.1


def variant(rule: Rule, instance: Instance, dtype: str, rng: np.random.Generator) -> Instance:
    """An instance of the left side like the given one, of this element type; some mix in others, or change a size."""
    uses, types = instance
    if rng.random() < _RESIZES:
        uses, types = _resized(rule, uses, types, rng)
    if rng.random() < _OTHER_OPS:
        uses = _other_ops(rule, uses, rng)
    return (uses, types) if rng.random() < _KEEPS else _retyped(uses, types, dtype, rng)


@cache
def _of_the_kind(dtype: str) -> tuple[str, ...]:
    return tuple(d for d in ELEMENT_TYPES if is_float(d) == is_float(dtype))


def _one_of(rng: np.random.Generator, things: Sequence[Any]) -> Any:
    return things[int(rng.integers(len(things)))]


def _retyped(
    uses: tuple[OpUse, ...], types: tuple[TensorType, ...], dtype: str, rng: np.random.Generator
) -> Instance:
    """All tensors of one element type, or each of one of two or three. Predicates stay what they are."""
    palette = [dtype]
    if rng.random() < _MIXES:  # products mix types of a kind, and make others of them
        palette += [_one_of(rng, _of_the_kind(dtype)), _one_of(rng, (dtype, *ELEMENT_TYPES))]
    predicates = len({t.dtype == "i1" for t in types}) == 2

    def made(t: TensorType) -> TensorType:
        return t if predicates and t.dtype == "i1" else TensorType(t.shape, _one_of(rng, palette))

    def of(use: OpUse) -> OpUse:
        attributes = use.attributes
        if use.name == "convert":
            attributes = attributes.updated(dtype=_one_of(rng, (*palette, *ELEMENT_TYPES)))
        elif "dtype" in attributes:
            attributes = attributes.updated(dtype=_one_of(rng, palette))
        elif "monoid" in attributes and rng.random() < _OTHER_MONOIDS:
            attributes = attributes.updated(monoid=_one_of(rng, tuple(monoids.MONOIDS)))
        elif use.name == "constant":
            value = numerics.convert(np.asarray(attributes["value"].array), _one_of(rng, palette))
            attributes = attributes.updated(value=Literal(value))
        return OpUse(use.name, attributes)

    return tuple(map(of, uses)), tuple(map(made, types))


# Pointwise ops.


@cache
def _pointwise(arity: int) -> tuple[str, ...]:
    """The library's own: what attributes an op of a user's has, only its own cases know."""
    found = ((name, registry.get(name)) for name in sorted(registry.names()))
    return tuple(
        name for name, op in found
        if op.pointwise and getattr(op, "arity", 0) == arity and type(op).__module__.startswith("eggshard.")
    )


def _other_ops(rule: Rule, uses: tuple[OpUse, ...], rng: np.random.Generator) -> tuple[OpUse, ...]:
    families = {n.label: FAMILIES[n.op] for n in rule.left_nodes if n.is_family}

    def of(label: str, use: OpUse) -> OpUse:
        if families.get(label, 3) == 3:  # predicates of a choice have a type of their own
            return use
        name = _one_of(rng, _pointwise(families[label]))
        if name == "compare":
            order = _one_of(rng, (None, "TOTALORDER"))
            return OpUse(name, Attributes(comparison_direction=_one_of(rng, _DIRECTIONS), compare_type=order))
        if name == "reduce_precision":
            return OpUse(name, Attributes(exponent_bits=int(rng.integers(1, 9)), mantissa_bits=int(rng.integers(0, 8))))
        return OpUse(name, Attributes(dtype="f32") if name == "convert" else NO_ATTRIBUTES)

    return tuple(of(label, use) for label, use in zip(rule.labels, uses, strict=True))


# Sizes.


class Change(NamedTuple):
    """A size and what it becomes; where attributes may follow in several ways, ``rng`` chooses."""

    old: int
    new: int
    rng: np.random.Generator

    def of(self, shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.new if n == self.old else n for n in shape)


def _resized(
    rule: Rule, uses: tuple[OpUse, ...], types: tuple[TensorType, ...], rng: np.random.Generator
) -> Instance:
    """One size becomes 0 or 1, wherever it occurs or in one dimension alone, and the attributes follow."""
    dims = [(i, d) for i, t in enumerate(types) for d in range(t.rank)]
    if not dims:
        return uses, types
    at = _one_of(rng, dims)
    old, new = types[at[0]].shape[at[1]], int(rng.integers(2))
    everywhere = rng.random() < 0.7

    def size(i: int, d: int, n: int) -> int:
        return new if (i, d) == at or (everywhere and n == old) else n

    changed = tuple(
        t.with_shape(tuple(size(i, d, n) for d, n in enumerate(t.shape))) for i, t in enumerate(types)
    )
    return _fitted(rule, uses, (types, changed), Change(old, new, rng)), changed


def _fitted(
    rule: Rule, uses: tuple[OpUse, ...], types: tuple[tuple[TensorType, ...], tuple[TensorType, ...]], change: Change
) -> tuple[OpUse, ...]:
    """The ops with attributes that fit other operands; as they were from where an op refuses these on."""
    captured = dict(zip(rule.labels, uses, strict=True))
    before, after = (dict(zip(rule.tensors, some, strict=True)) for some in types)
    made: dict[str, OpUse] = {}
    results: dict[int, tuple[TensorType, TensorType]] = {}
    for node in rule.left_nodes:
        use = captured.get(node.label, OpUse(node.op, NO_ATTRIBUTES))
        pairs = [(before[c], after[c]) if isinstance(c, str) else results[id(c)] for c in node.children]
        try:
            result = _result(use, [p[0] for p in pairs])
            new = made.get(node.label)
            if new is None:
                fit = _FITS.get(use.name)
                attributes = fit(use.attributes, [p[0] for p in pairs], [p[1] for p in pairs], change) if fit else None
                new = use if attributes is None else OpUse(use.name, use.attributes.updated(**attributes))
            results[id(node)] = (result, _result(new, [p[1] for p in pairs]))
        except ProgramError:
            break
        if node.label:
            made[node.label] = new
    return tuple(made.get(label, captured[label]) for label in rule.labels)


def _result(use: OpUse, operands: Sequence[TensorType]) -> TensorType:
    return registry.get(use.name).infer(use.attributes, tuple(operands))[0]


Fit = Callable[[Attributes, Types, Types, Change], "Mapping[str, Any] | None"]


def _reshape(a: Attributes, old: Types, new: Types, change: Change) -> Any:
    rank, wanted = len(a["shape"]), new[0].elements
    if math.prod(a["shape"]) == wanted or not rank:
        return None
    if math.prod(change.of(a["shape"])) == wanted:
        return {"shape": change.of(a["shape"])}
    if wanted == 0:
        at = int(change.rng.integers(rank))
        return {"shape": tuple(0 if d == at else n for d, n in enumerate(a["shape"]))}
    sizes, rest = [], wanted
    for n in a["shape"]:
        sizes.append(math.gcd(n, rest) if n else 1)
        rest //= sizes[-1]
    sizes[int(change.rng.integers(rank))] *= rest
    return {"shape": tuple(sizes)}


def _broadcast(a: Attributes, old: Types, new: Types, change: Change) -> Any:
    shape = list(change.of(a["shape"]) if change.rng.random() < 0.7 else a["shape"])
    for d in range(len(shape)):
        if d not in a["broadcast_dimensions"] and change.rng.random() < 0.3:
            shape[d] = int(change.rng.integers(2))
    for n, d in zip(new[0].shape, a["broadcast_dimensions"], strict=True):
        if n != 1 or change.rng.random() < 0.5:
            shape[d] = n
    return {"shape": tuple(shape)}


def _slice(a: Attributes, old: Types, new: Types, change: Change) -> Any:
    limits = tuple(
        n if limit == whole else min(limit, n)
        for limit, whole, n in zip(a["limit_indices"], old[0].shape, new[0].shape, strict=True)
    )
    return {"limit_indices": limits, "start_indices": tuple(map(min, a["start_indices"], limits))}


def _update(a: Attributes, old: Types, new: Types, change: Change) -> Any:
    room = (max(n - k, 0) for n, k in zip(new[0].shape, new[1].shape, strict=True))
    return {"start_indices": tuple(map(min, a["start_indices"], room))}


def _around(a: Attributes, old: Types, new: Types, change: Change) -> Any:
    if not a["dimension"] < new[0].rank:
        return None
    n = new[0].shape[a["dimension"]]
    return {key: min(a[key], n) for key in ("lhs", "rhs", "amount") if key in a}


def _window(a: Attributes, old: Types, new: Types, change: Change) -> Any:
    """A window as long as a dimension stays as long."""
    sizes, edges = list(a["window_dimensions"]), list(a["padding"])
    for d, (n, m) in enumerate(zip(old[0].shape, new[0].shape, strict=True)):
        if sizes[d] == n > 1:
            sizes[d] = max(m, 1)
            edges[d] = tuple(max(m - 1, 0) if width == n - 1 else width for width in edges[d])
    return {"window_dimensions": tuple(sizes), "padding": tuple(edges)}


def _transform(a: Attributes, old: Types, new: Types, change: Change) -> Any:
    lengths = new[0].shape[-len(a["fft_length"]) :]
    if a["fft_type"] == "IRFFT":
        lengths = (*lengths[:-1], max(2 * (lengths[-1] - 1), 0))
    return {"fft_length": lengths}


def _constant(a: Attributes, old: Types, new: Types, change: Change) -> Any:
    array = a["value"].array
    shape = tuple(int(change.rng.integers(3)) for _ in array.shape)
    return {"value": Literal(np.broadcast_to(array.reshape(-1)[:1].reshape(()), shape))} if array.size else None


_FITS: dict[str, Fit] = {
    "reshape": _reshape, "broadcast_in_dim": _broadcast, "slice": _slice, "update_slice": _update, "rotate": _around,
    "wrap": _around, "extend": _around, "reduce_window": _window, "fft": _transform, "constant": _constant,
}
