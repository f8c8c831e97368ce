"""Law tests: both sides of a rule evaluated in NumPy on small instances.

A rule with mark "=" must give the same bits, on ordinary numbers and on NaN, infinities and -0 among small integers.
Rules about products and reductions only see the latter: their sums are exact in any order. NaNs are one value: their
payloads are not part of any op's meaning. A rule with mark "ρ" must agree to a tolerance on ordinary numbers, and bit
for bit where its ``exact_if`` holds. No right side multiplies at less precision than its left side does: NumPy does
not show that, but accelerators do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from eggshard.egraph.patterns import Node, Pattern, postorder
from eggshard.egraph.rules import NO_ATTRIBUTES, Match, OpUse, Rule
from eggshard.errors import ProgramError, RewriteError
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.types import TensorType, is_float, numpy_dtype

#: Most instances of one rule that are evaluated; larger generators are thinned evenly.
MAX_INSTANCES = 400
#: What `Match.shard_counts` is in law tests.
SHARD_COUNTS = (2, 3)
#: Ops that say how precisely they multiply, and how, the least precise first.
_PRODUCTS, _PRECISIONS = ("dot_general", "dot", "convolution"), ("DEFAULT", "HIGH", "HIGHEST")
_SUMMING = ("dot_general", "dot", "reduce")
_SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0)


class LawViolation(RewriteError):
    """The two sides of a rule differ."""


class Case(NamedTuple):
    """An instance of a left side: op attributes (and names, for families) by label, tensor types by name.

    signed_zeros: whether -0 may be among the values (which of two zeros a maximum returns depends on their order).
    """

    options: Mapping[str, Any]
    signed_zeros: bool = True


Generator = Callable[[], Iterable[Case]]


def each(**options: Any) -> Generator:
    """All combinations of options: ``each(x=tensors((2, 3)), t=[{"permutation": (1, 0)}], f="negate")``.

    For a tensor give a TensorType or several; for a label attributes, or the op's name where a family captures it, or
    (name, attributes), or a list of those. Combinations that the ops refuse are passed over.
    """
    lists = {k: v if isinstance(v, list) else [v] for k, v in options.items()}

    def generate() -> Iterator[Case]:
        for values in itertools.product(*lists.values()):
            yield Case(dict(zip(lists, values, strict=True)))

    return generate


def like_zeros(generator: Generator) -> Generator:
    """Generate the given cases without -0 among their values."""
    return lambda: (case._replace(signed_zeros=False) for case in generator())


def together(*generators: Generator) -> Generator:
    """The cases of several generators."""
    return lambda: itertools.chain.from_iterable(g() for g in generators)


def tensors(*shapes: tuple[int, ...], dtypes: Iterable[str] = ("f32",)) -> list[TensorType]:
    """Tensor types of these shapes and element types."""
    return [TensorType(shape, dtype) for shape in shapes for dtype in dtypes]


def check_law(rule: Rule, seed: int = 0) -> int:
    """Evaluate both sides on the rule's cases; how many right sides were compared.

    Raises LawViolation where they differ, and RewriteError if the rule held in no case at all.
    """
    rng = np.random.default_rng(seed)
    compared = 0
    # NumPy's own order of summation depends on shapes and strides; small integers keep it out of the comparison.
    ordered = any(n.op in _SUMMING for side in (rule.left, rule.right) for n in postorder(side))
    for case in _thinned(list(rule.cases())):
        uses, types = _resolve(rule, case)
        try:
            of_label, of_name = dict(zip(rule.labels, uses, strict=True)), dict(zip(rule.tensors, types, strict=True))
            match = Match(rule, of_label, of_name, SHARD_COUNTS)
        except ProgramError:
            continue
        exact = rule.mark == "=" or rule.exact_if(match)
        kinds = (exact,) if ordered or not exact else (True, False)
        for instance, special in itertools.product(rule.instances(uses, types, SHARD_COUNTS), kinds):
            arrays = {
                name: sample(rng, t, special, case.signed_zeros) for name, t in zip(rule.tensors, types, strict=True)
            }
            ops = [of_label.get(n.label, OpUse(n.op, NO_ATTRIBUTES)) for n in postorder(rule.left)]
            if _precision(made.use for made in instance) < _precision(ops):
                raise LawViolation(f"rule {rule.name!r} ({rule.text}) lowers the precision of {dict(case.options)}")
            left = _evaluate(rule.left, ops, arrays)
            right = _evaluate(rule.right, [made.use for made in instance], arrays)
            if not (same_bits(left, right) if exact else close(left, right)):
                rounded = rule.mark == "=" and close_where_finite(left, right)
                raise LawViolation(
                    f"rule {rule.name!r} ({rule.text}) does not hold for {dict(case.options)}:\n"
                    f"operands {arrays}\nleft {left!r}\nright {right!r}"
                    + ('\nthe sides differ by rounding alone: mark="ρ" says so' if rounded else "")
                )
            compared += 1
    if not compared:
        raise RewriteError(f"rule {rule.name!r} holds in none of its law test's cases; give it cases where it does")
    return compared


def _precision(uses: Iterable[OpUse]) -> int:
    """The least precision at which these ops multiply; that of arithmetic where none of them is a product."""
    named = (use.attributes.get("precision_config", ()) for use in uses if use.name in _PRODUCTS and _rounds(use))
    return min((_PRECISIONS.index(p) for pair in named for p in pair or ("DEFAULT",)), default=len(_PRECISIONS) - 1)


def _rounds(product: OpUse) -> bool:
    """Whether some hardware rounds the factors of a product at less than its highest precision."""
    return not product.attributes.get("dtype", "f32").startswith(("i", "ui", "bf16", "f8", "f4"))


def _thinned(cases: list[Case]) -> list[Case]:
    step = -(-len(cases) // MAX_INSTANCES) or 1
    return cases[::step]


def _resolve(rule: Rule, case: Case) -> tuple[tuple[OpUse, ...], tuple[TensorType, ...]]:
    nodes = {n.label: n for n in postorder(rule.left) if n.label}
    uses = []
    for label in rule.labels:
        if label not in case.options:
            raise RewriteError(f"the cases of rule {rule.name!r} give nothing for label {label!r}; give attributes of "
                               f"{nodes[label].op} to try, e.g. each(..., {label}=[{{...}}])")
        given = case.options[label]
        name = nodes[label].op
        if isinstance(given, str):
            name, given = given, {}
        elif isinstance(given, tuple):
            name, given = given
        uses.append(OpUse(name, Attributes(given)))
    missing = [v for v in rule.tensors if v not in case.options]
    if missing:
        raise RewriteError(f"the cases of rule {rule.name!r} give no types for {', '.join(missing)}")
    return tuple(uses), tuple(case.options[v] for v in rule.tensors)


def _evaluate(pattern: Pattern, uses: list[OpUse], arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The value of a pattern; ``uses`` holds its ops in postorder."""
    remaining = iter(uses)

    def value(p: Pattern) -> np.ndarray:
        if isinstance(p, str):
            return arrays[p]
        assert isinstance(p, Node)
        operands = [value(c) for c in p.children]
        use = next(remaining)
        with np.errstate(all="ignore"):
            return registry.get(use.name).evaluate(use.attributes, operands)[0]

    return np.asarray(value(pattern))


def sample(rng: np.random.Generator, type_: TensorType, special: bool, signed_zeros: bool = True) -> np.ndarray:
    """Values of a type. special: small integers with NaN, infinities and -0 in between; else ordinary numbers."""
    dtype = numpy_dtype(type_.dtype)
    if type_.dtype == "i1":
        return rng.integers(0, 2, type_.shape).astype(dtype)
    if not is_float(type_.dtype):
        low = 0 if type_.dtype.startswith("ui") else -3
        small = rng.integers(low, 4, type_.shape)
        extreme = rng.random(type_.shape) < 0.1
        ends = [int(ml_dtypes.iinfo(dtype).max), int(ml_dtypes.iinfo(dtype).min)]
        return np.where(extreme, np.where(small % 2, *ends) if special else 3, small).astype(dtype)
    if not special:
        return np.asarray(rng.uniform(0.5, 2.0, type_.shape) * rng.choice([-1.0, 1.0], type_.shape)).astype(dtype)
    values = rng.integers(-4, 5, type_.shape).astype(np.float64)
    where = rng.random(type_.shape) < 0.15
    values = np.where(where, rng.choice(_SPECIAL, type_.shape), values)
    if not signed_zeros:
        values = values + 0.0
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


def same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal types, shapes and bits; all NaNs are one value."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind == "c":
        return same_bits(left.real, right.real) and same_bits(left.imag, right.imag)
    if left.dtype.kind in "biu" or not np.issubdtype(np.dtype(type(left.dtype.type(0) + 0.0)), np.floating):
        return bool(np.array_equal(left, right))
    a, b = left.astype(np.float64), right.astype(np.float64)
    equal = (a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))
    return bool(np.all(equal))


def close(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal up to a few hundred units in the last place of the largest element."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind in "biu":
        return bool(np.array_equal(left, right))
    kind = left.real.dtype
    tolerance = 256 * float(ml_dtypes.finfo(kind).eps)
    wide = np.complex128 if left.dtype.kind == "c" else np.float64
    a, b = left.astype(wide), right.astype(wide)
    scale = max(1.0, float(np.max(np.abs(a), initial=0.0)))
    return bool(np.all(np.abs(a - b) <= tolerance * scale))


def close_where_finite(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal up to rounding: `close` where both are finite, and the same elsewhere."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    finite = np.isfinite(left) & np.isfinite(right)
    return close(left[finite], right[finite]) and same_bits(left[~finite], right[~finite])
