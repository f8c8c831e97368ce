"""Law tests: both sides of a rule evaluated in NumPy on small instances.

The instances are a rule's cases, and the cases over the rule's whole domain: of every element type alone and mixed with
another one, with dimensions of sizes 0 and 1, and with any pointwise op where the pattern takes a family of them
(`eggshard.egraph.law_domain`). On each of them both sides are evaluated on ordinary numbers (integers of their whole
range), on small whole numbers with NaN, infinities and -0 in between, and on numbers of all magnitudes, the largest and
the smallest of their type included (`eggshard.egraph.law_values`). A rule's functions must answer all of them.

What counts as equal:

- Integers and truth values: every bit, whatever the mark. Arithmetic wraps.
- Floats under the mark "=", and under "ρ" where ``exact_if`` holds: every bit. NaNs are one value: their payloads are
  not part of any op's meaning. So are non-finite complex numbers, where a rule computes. Under `like_zeros` zeros
  are one value too: which zero a maximum of both is depends on their order; and in what is made of complex
  dots and convolutions, whose kernels add up the parts of products in orders of their own.
- Floats under the mark "ρ": both sides are one real number, and the right side is off by no more than twice what the
  left side may be off by rounding (`eggshard.egraph.law_rounding`). An element that is finite on the left is finite on
  the right, and one that is not is not; a rule may turn an infinity into NaN or back, and -0 into 0. So x * 0 is never
  0. Where a partial result of either side leaves the range of its type, as it may in any other order of the same
  arithmetic, that element says nothing. Of functions that no such bound is known of, ordinary numbers must be close.

No right side multiplies at less precision than its left side does: NumPy does not show that, but accelerators do.

NumPy's own order of summation depends on shapes and strides. Exact rules on sums and products are tested on small whole
floats alone, whose sums are exact in any order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from eggshard.egraph.law_domain import Instance, variant
from eggshard.egraph.law_rounding import bounded
from eggshard.egraph.law_values import Values, agree, close_in_range, close_where_finite, same_bits, sample
from eggshard.egraph.patterns import Node, Pattern, postorder
from eggshard.egraph.rules import NO_ATTRIBUTES, Match, OpUse, Rule
from eggshard.errors import LoweringError, ProgramError, RewriteError
from eggshard.ops.arithmetic import current
from eggshard.ops.numerics import is_complex
from eggshard.program.attributes import Attributes
from eggshard.program.types import ELEMENT_TYPES, TensorType, is_float, mlir_dtype

#: How many of a rule's own cases are evaluated; larger generators are thinned evenly.
MAX_CASES = 400
#: How many instances beyond these are drawn from the rule's domain, unless said otherwise.
INSTANCES = 100
#: What `Match.shard_counts` is in law tests; the first for the rule's own cases.
SHARD_COUNTS = ((2, 3), (4,), (2, 4, 8), (1,), ())
#: Ops that say how precisely they multiply, and how, the least precise first.
_PRODUCTS, _PRECISIONS = ("dot_general", "dot", "convolution"), ("DEFAULT", "HIGH", "HIGHEST")
_SUMMING = ("dot_general", "dot", "reduce", "reduce_window", "fft")
#: How many variants are drawn at most for each instance that is asked for: ops refuse many, and conditions more.
_TRIES = 8


class LawViolation(RewriteError):
    """The two sides of a rule differ."""


class Case(NamedTuple):
    """An instance of a left side: op attributes (and names, for families) by label, tensor types by name.

    signed_zeros: whether -0 and 0 are told apart (which of both a maximum returns depends on their order).
    """

    options: Mapping[str, Any]
    signed_zeros: bool = True


Generator = Callable[[], Iterable[Case]]


class Judge(NamedTuple):
    """Elements that are no floats of NumPy's: how operands are drawn, and whether two sides are equal."""

    draw: Callable[[np.random.Generator, TensorType], np.ndarray]
    equal: Callable[[np.ndarray, np.ndarray], bool]


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
    """Generate the given cases with all zeros taken for one value."""
    return lambda: (case._replace(signed_zeros=False) for case in generator())


def together(*generators: Generator) -> Generator:
    """The cases of several generators."""
    return lambda: itertools.chain.from_iterable(g() for g in generators)


def tensors(*shapes: tuple[int, ...], dtypes: Iterable[str] = ("f32",)) -> list[TensorType]:
    """Tensor types of these shapes and element types."""
    return [TensorType(shape, dtype) for shape in shapes for dtype in dtypes]


class Survey(NamedTuple):
    """What a law test found: how many right sides it compared, and the instances for which the rule is unsound."""

    compared: int
    unsound: tuple[RewriteError, ...]


def check_law(rule: Rule, seed: int = 0, instances: int = INSTANCES, judge: Judge | None = None) -> int:
    """Evaluate both sides on the rule's cases and on ``instances`` more of its domain; how many were compared.

    judge: for sides that are evaluated in another arithmetic (`ops.arithmetic.using`), on the rule's cases alone.

    Raises LawViolation where the sides differ, and RewriteError if the rule held in no case at all, or its functions
    fail.
    """
    compared = 0
    for found in _trials(rule, seed, 0 if judge else instances, judge):
        if isinstance(found, RewriteError):
            raise found
        compared += found
    if not compared:
        raise RewriteError(f"rule {rule.name!r} holds in none of its law test's cases; give it cases where it does")
    return compared


def survey(rule: Rule, seed: int = 0, instances: int = INSTANCES) -> Survey:
    """`check_law` that goes on after violations and returns them all."""
    compared, unsound = 0, list[RewriteError]()
    for found in _trials(rule, seed, instances):
        if isinstance(found, RewriteError):
            unsound.append(found)
        compared += 1
    return Survey(compared, tuple(unsound))


def _trials(rule: Rule, seed: int, instances: int, judge: Judge | None = None) -> Iterator[int | RewriteError]:
    """1 for each right side that was compared and is right, an error for one that is not."""
    rng = np.random.default_rng(seed)
    cases = _thinned(list(rule.cases()))
    holding: list[tuple[Case, Instance]] = []
    given = []
    for case in cases:
        instance = _resolve(rule, case)
        given.append((case, instance))
        found = list(_compared(rule, case, instance, SHARD_COUNTS[0], rng, judge))
        if found:
            holding.append(given[-1])
        yield from found
    if not holding:
        return
    done, tries = 0, 0
    dtypes = itertools.cycle(ELEMENT_TYPES)
    while done < instances and tries < _TRIES * instances:
        tries += 1
        # Conditions may hold for other types where they do not for the case's own.
        pool = holding if rng.random() < 0.9 else given
        case, instance = pool[int(rng.integers(len(pool)))]
        counts = SHARD_COUNTS[int(rng.integers(len(SHARD_COUNTS)))]
        for one in _compared(rule, case, variant(rule, instance, next(dtypes), rng), counts, rng):
            done += 1
            yield one


def _compared(
    rule: Rule, case: Case, instance: Instance, shard_counts: tuple[int, ...], rng: np.random.Generator,
    judge: Judge | None = None,
) -> Iterator[int | RewriteError]:
    """The comparisons of one instance of the left side; none where ops refuse it or the rule does not hold."""
    uses, types = instance
    captured, named = dict(zip(rule.labels, uses, strict=True)), dict(zip(rule.tensors, types, strict=True))
    try:
        match = Match(rule, captured, named, shard_counts)
    except ProgramError:
        return
    try:
        answers = rule.instances(uses, types, shard_counts)
        exact = rule.mark == "=" or bool(answers and rule.exact_if(match))
    except RewriteError as error:
        yield error
        return
    except Exception as error:
        yield RewriteError(f"exact_if of rule {rule.name!r} failed on {named}, {captured}: {error!r}")
        return
    left = [captured.get(n.label, OpUse(n.op, NO_ATTRIBUTES)) for n in rule.left_nodes]
    for answer in answers:
        right = [made.use for made in answer]
        if _precision(right) < _precision(left):
            yield LawViolation(f"rule {rule.name!r} ({rule.text}) lowers the precision of {left}: {right}")
            continue
        if judge:
            arrays = {name: judge.draw(rng, t) for name, t in named.items()}
            one, other = (_evaluate(p, uses, arrays) for p, uses in ((rule.left, left), (rule.right, right)))
            yield 1 if judge.equal(one, other) else _violation(rule, left, arrays, one, other)
            continue
        for values in _kinds(rule, match, exact, (*left, *right)):
            arrays = {name: sample(rng, t, values) for name, t in named.items()}
            try:
                problem = _difference(rule, (left, right), arrays, exact, values, case.signed_zeros)
            except RewriteError as error:
                yield error
                return
            yield 1 if problem is None else problem


def _kinds(rule: Rule, match: Match, exact: bool, uses: Iterable[OpUse]) -> tuple[Values, ...]:
    if not any(is_float(t.dtype) for t in match.all_types()):
        return Values.ORDINARY, Values.SPECIAL
    return (Values.SPECIAL,) if exact and _sums(uses) else tuple(Values)


def _sums(uses: Iterable[OpUse]) -> bool:
    return any(use.name in _SUMMING for use in uses)


def _difference(
    rule: Rule, sides: tuple[list[OpUse], list[OpUse]], arrays: Mapping[str, np.ndarray], exact: bool, values: Values,
    signed_zeros: bool,
) -> LawViolation | None:
    """What is wrong on these operands; None if nothing is."""
    left, right = (_evaluate(p, uses, arrays) for p, uses in zip((rule.left, rule.right), sides, strict=True))
    if exact or not is_float(mlir_dtype(left.dtype)):
        uses = [use for side in sides for use in side]
        computed = rule.is_arithmetic or _sums(uses)
        if is_complex(mlir_dtype(left.dtype)) and any(use.name in _PRODUCTS for use in uses):
            signed_zeros = False
        good = same_bits(left, right, signed_zeros, whole_complex=computed)
    else:
        one, other = (bounded(p, uses, arrays) for p, uses in zip((rule.left, rule.right), sides, strict=True))
        if one is not None and other is not None:
            good = agree(one, other, values)
        else:
            good = values is not Values.ORDINARY or close_in_range(left, right)
    if good:
        return None
    by_rounding = rule.mark == "=" and close_where_finite(left, right)
    return _violation(rule, sides[0], arrays, left, right, by_rounding)


def _precision(uses: Iterable[OpUse]) -> int:
    """The least precision at which these ops multiply; that of arithmetic where none of them is a product."""
    named = (use.attributes.get("precision_config", ()) for use in uses if use.name in _PRODUCTS and _rounds(use))
    return min((_PRECISIONS.index(p) for pair in named for p in pair or ("DEFAULT",)), default=len(_PRECISIONS) - 1)


def _rounds(product: OpUse) -> bool:
    """Whether some hardware rounds the factors of a product at less than its highest precision."""
    return not product.attributes.get("dtype", "f32").startswith(("i", "ui", "bf16", "f8", "f4"))


def _violation(
    rule: Rule, uses: list[OpUse], arrays: Mapping[str, np.ndarray], left: np.ndarray, right: np.ndarray,
    by_rounding: bool = False,
) -> LawViolation:
    operands = ", ".join(f"{name}: {array.dtype}{array.shape}" for name, array in arrays.items())
    return LawViolation(
        f"rule {rule.name!r} ({rule.text}) does not hold for {operands} and {uses}:\n"
        f"operands {dict(arrays)}\nleft {left!r}\nright {right!r}"
        + ('\nthe sides differ by rounding alone: mark="ρ" says so' if by_rounding else "")
    )


def _thinned(cases: list[Case]) -> list[Case]:
    step = -(-len(cases) // MAX_CASES) or 1
    return cases[::step]


def _resolve(rule: Rule, case: Case) -> Instance:
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
        # Some of NumPy's loops round otherwise where elements are apart.
        operands = [np.array(value(c), order="C") for c in p.children]
        use = next(remaining)
        try:
            with np.errstate(all="ignore"):
                return current().evaluate(use.name, use.attributes, operands)[0]
        except LoweringError:  # another arithmetic has no meaning for it
            raise
        except Exception as error:
            shown = ", ".join(f"{a.dtype}{a.shape}" for a in operands)
            raise RewriteError(f"{use.name}{use.attributes!r} failed on {shown}: {error!r}") from error

    return np.asarray(value(pattern))
