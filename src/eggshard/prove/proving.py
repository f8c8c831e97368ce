"""Proofs of plans: plan and program on the same random elements of several prime fields."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from eggshard.errors import LoweringError, VerificationError
from eggshard.limits import Deadline
from eggshard.ops.arithmetic import using
from eggshard.ops.evaluate import evaluate_program
from eggshard.plan.proof import MISSED, Difference, Proof, chance_of
from eggshard.program.attributes import Literal
from eggshard.program.program import Program, Region
from eggshard.program.types import TensorType, is_float, numpy_dtype
from eggshard.prove.blending import BlendedField
from eggshard.prove.choices import choices_of, has_few_values
from eggshard.prove.effort import least_seconds, seconds_per_run
from eggshard.prove.exponents import PAIRS, ExponentField, holds_exponentials
from eggshard.prove.field import Endless, Field
from eggshard.prove.residues import PRIMES, Residues, paired
from eggshard.prove.sizes.lemmas import Lemmas, cut_at_lemmas
from eggshard.prove.sizes.repetition import rows_of
from eggshard.prove.sizes.shrinking import ENOUGH, Sizes, elements_of
from eggshard.simulate.execution import run_global

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: What runs a plan's device program on whole arrays.
Run = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
#: By a run's number, the program and what is compared with it.
Pairs = Callable[[int], tuple[Program, Run]]
#: By a run's number, a key, and whether numbers may be taken for equal ones: a field.
Fields = Callable[[int, int, bool], Field]
#: Runs unless a caller asks for others: at least two, since only every second one takes branches for equal numbers, and
#: as many more, up to the last number, as bring the chance below `CHANCE`.
RUNS, MOST = 2, 4
#: The chance that a wrong plan passes.
CHANCE = 2.0**-40
#: Runs after which an element that a comparison decides is wrong by that chance: which of two random numbers is larger
#: says nothing of a third in two runs of three.
CHOICES = math.ceil(40 / math.log2(MISSED))
#: Lemmas that leave this part of a plan's elements are held against what is left without them.
_WORTH = 10
#: How often a plan is cut at fewer values, since one in between differs, before it is taken whole.
_RECUTS = 8
#: How many times the given time is spent on a plan of which a value in between differs: most of these are right, and
#: cut where the plan makes something once more.
_DOUBT = 5
#: Seconds of an empty run; the part of the time that is given to a proof which these runs may take.
_LEAST, _SHARE = 1e-3, 0.25
#: So many times the given time a loop may run whose end is not known: estimates are good to within a few times.
_ENDS = 4.0


def prove(
    plan: PlanRecord, runs: int | None = None, seed: int = 0, shrink: bool = True, within: float | None = None,
    exponents: bool = False,
) -> Proof:
    """Compare a plan with its program over prime fields; see `Plan.prove`.

    within: seconds; a proof that is expected to take longer shows nothing, and says so.
    exponents: where plan and program differ, they are also tried with exponentials that turn sums into products.
    """
    began = time.perf_counter()
    if within is not None and (least := least_seconds(plan)) > within:
        return _late(least, within)
    deadline = None if within is None else Deadline(within)
    suspects: list[Proof] = []
    try:
        proof = _proved(plan, runs, seed, shrink, within, deadline, suspects)
    except TimeoutError:
        assert within is not None
        why = f"to cut the plan takes longer than the {within:.2g} s that it is given; plan.prove() takes what it needs"
        proof = Proof(None, late=True, refused=why)
    if proof.late and suspects:
        # Nobody knows what the last values are, but some step does not make what it is said to.
        suspect = suspects[-1]
        proof = replace(suspect, difference=Difference(-1, why=f"a value in between is another: {suspect.difference}"),
                        whole=elements_of(plan.program.region))
    elif exponents and proof.equal is False and holds_exponentials(plan.program.region):
        other = _proof(Sizes(plan, shrink=False), runs, seed, within, exponents=True)
        proof = other if other else proof
    return replace(proof, seconds=time.perf_counter() - began)


def _proved(
    plan: PlanRecord, runs: int | None, seed: int, shrink: bool, within: float | None, deadline: Deadline | None,
    suspects: list[Proof],
) -> Proof:
    """What is shown of a plan, cut and whole. TimeoutError where the deadline passes before it is cut.

    suspects: gets what differed where the plan was cut.
    """
    def left() -> float | None:
        return None if deadline is None else deadline.left

    whole = elements_of(plan.program.region)
    cuts = _cuts(plan, deadline) if shrink and whole > ENOUGH else []
    sizes = None
    took = 0.0  # by the sizes of the cut before; those of the next one take about as long
    while cuts and not (deadline is not None and deadline.left <= took):
        lemmas, rows = cuts.pop(0)
        start = time.perf_counter()
        try:
            smaller = [Sizes(part, deadline=deadline) for part in lemmas.parts]
            took = time.perf_counter() - start
            if sizes is None and sum(part.of_run(0).elements for part in smaller) * _WORTH > whole:
                sizes = Sizes(plan, deadline=deadline)
        except TimeoutError:
            if not suspects:
                raise
            break
        if sizes is None or sum(map(_work, smaller)) < _work(sizes):
            proof, part = _of_parts(smaller, runs, seed, left())
            if proof:
                suspects.clear()
                return replace(proof, lemmas=rows + lemmas.number, whole=whole)
            if proof.difference is not None:
                if deadline is not None and within is not None and not suspects:
                    deadline = Deadline(_DOUBT * within)
                suspects.append(proof)
                found = proof.difference.output
                coarser = _coarser(lemmas, part, found, deadline) if len(suspects) <= _RECUTS else None
                cuts[:0] = [(coarser, rows)] if coarser else []
    if deadline is not None and within is not None and suspects:  # what looks wrong is worth all the time once more
        deadline = Deadline(within)
    elif deadline is not None and within is not None and deadline.left <= took:
        return _late(within - deadline.left + took, within)
    proof = _proof(sizes or Sizes(plan, shrink, deadline), runs, seed, left())
    if proof.equal is False and proof.sizes < proof.whole:
        # Plans that differ at reduced sizes may be equal: what a program counts need not be what it states.
        suspects.clear()
        proof = _proof(Sizes(plan, shrink=False), runs, seed, within)
    return proof


def _cuts(plan: PlanRecord, deadline: Deadline | None) -> list[tuple[Lemmas, int]]:
    """The plan cut into what can be shown one by one, and how many of its rows are; into the most first."""
    rows = rows_of(plan)
    if rows is None:
        lemmas = cut_at_lemmas(plan, deadline)
        return [] if lemmas is None else [(lemmas, 0)]
    lemmas = cut_at_lemmas(rows[0], deadline)
    uncut = Lemmas([rows[0]], 0, rows[0], [[frozenset()] * len(rows[0].device_program.outputs)])
    return [*([] if lemmas is None else [(lemmas, rows[1])]), (uncut, rows[1])]


def _coarser(lemmas: Lemmas, part: int, output: int, deadline: Deadline | None) -> Lemmas | None:
    """The plan cut at fewer values, since an output of some part differs; None where that takes too long."""
    try:
        return lemmas.coarser(part, output, deadline)
    except TimeoutError:
        return None


def enough_runs(degree: int, exponents: bool = False) -> int:
    """The runs that bring the chance of a wrong element below `CHANCE`, if `MOST` do."""
    if exponents:
        return len(PAIRS)
    chance = chance_of(degree)
    return next((n for n in range(RUNS, MOST) if chance**n < CHANCE), MOST)


def _runs_for_choices(seconds: float, within: float | None) -> int:
    """As many runs of so many seconds as tell what comparisons decide, or as a part of the time allows."""
    return CHOICES if within is None else min(CHOICES, int(_SHARE * within / max(seconds, _LEAST)))


def _late(expected: float, within: float) -> Proof:
    why = f"it was expected to take {expected:.2g} s, and {within:.2g} s are given to it"
    return Proof(None, late=True, refused=why)


def _of_parts(parts: Sequence[Sizes], runs: int | None, seed: int, within: float | None) -> tuple[Proof, int]:
    """What is shown of plans that are one together: all, or that one is not equal, and which."""
    least = sum(_least_runs(sizes, runs) * _seconds(sizes) for sizes in parts)
    if within is not None and least > within:
        return _late(least, within), 0
    proofs: list[Proof] = []
    for number, sizes in enumerate(parts):
        proofs.append(_proof(sizes, runs, seed, within))
        if not proofs[-1]:
            return proofs[-1], number

    def total(count: Callable[[Proof], int]) -> int:
        return sum(map(count, proofs))

    return replace(
        proofs[0], runs=min(p.runs for p in proofs), degree=max(p.degree for p in proofs),
        undecided=total(lambda p: p.undecided), elements=total(lambda p: p.elements), sizes=total(lambda p: p.sizes),
        choices=total(lambda p: p.choices), choice_runs=min((p.choice_runs for p in proofs if p.choices), default=0),
    ), len(parts) - 1


def _work(sizes: Sizes) -> int:
    """Elements of all runs, of what integers have a say in those that these take."""
    reduced = sizes.of_run(0)
    region = reduced.plan.program.region
    few = any(has_few_values(region.types[v]) for v in region.inputs)
    return reduced.elements * (CHOICES if few else RUNS)


def _seconds(sizes: Sizes) -> float:
    return seconds_per_run(sizes.of_run(0).plan)


def _least_runs(sizes: Sizes, runs: int | None, exponents: bool = False) -> int:
    return max(sizes.runs, enough_runs(sizes.degree, exponents) if runs is None else runs)


def _proof(sizes: Sizes, runs: int | None, seed: int, within: float | None, exponents: bool = False) -> Proof:
    least, seconds = _least_runs(sizes, runs, exponents), _seconds(sizes)
    if within is not None and least * seconds > within:
        return _late(least * seconds, within)

    def of_run(k: int) -> tuple[Program, Run]:
        plan = sizes.of_run(k).plan
        return plan.program, partial(run_global, plan)

    most = _runs_for_choices(seconds, within) if runs is None else least
    ends = math.inf if within is None else time.monotonic() + _ENDS * within
    proof = (with_exponents if exponents else decided)(of_run, least, max(least, most), seed, ends)
    return replace(proof, degree=sizes.degree, sizes=sizes.of_run(max(proof.runs - 1, 0)).elements, whole=sizes.whole)


def decided(of_run: Pairs, runs: int, most: int, seed: int, ends: float = math.inf) -> Proof:
    """Compare with comparisons as elements of a field; in an order where they must be bits, or where results differ or
    are of no number besides those that are not chosen.

    most: runs that are made where bits decide. What differs as elements, and not in an order, obeys a law of orders, or
    differs by bits that are hard to find; as many runs are made as tell, whatever they take. ends: see `Field`.
    """
    region = of_run(0)[0].region
    integers = sum(has_few_values(region.types[v]) and region.types[v].dtype != "i1" for v in region.inputs)
    choices, least = choices_of(region), most
    if not (choices and _has_nan(region)):
        proof = _with_choices(compared(of_run, most if integers else runs, seed, blended, ends), integers)
        if proof and not (choices and proof.undecided):
            return proof
        least = max(most, CHOICES) if proof.equal is False else most if choices else runs
    return _with_choices(compared(of_run, least, seed, ordered, ends), choices)


def _with_choices(proof: Proof, choices: int) -> Proof:
    return replace(proof, choices=choices, choice_runs=proof.runs)


def with_exponents(of_run: Pairs, runs: int, most: int, seed: int, ends: float = math.inf) -> Proof:
    """Compare over fields in which exponentials turn sums into products; ``most`` is not needed."""
    choices = choices_of(of_run(0)[0].region)
    return replace(_with_choices(compared(of_run, runs, seed, exponential, ends), choices), exponents=True)


def blended(run: int, key: int, loose: bool) -> Field:
    """Comparisons as elements of the field."""
    return BlendedField(Residues(PRIMES[run % len(PRIMES)]), key, loose)


def ordered(run: int, key: int, loose: bool) -> Field:
    """Comparisons by a random order."""
    return Field(Residues(PRIMES[run % len(PRIMES)]), key, loose)


def exponential(run: int, key: int, loose: bool) -> Field:
    """Exponentials that turn sums into products."""
    return ExponentField(PAIRS[run % len(PAIRS)], key, loose)


def compared(of_run: Pairs, runs: int, seed: int, fields: Fields, ends: float = math.inf) -> Proof:
    """Compare, in each run, the outputs of a program with what a function makes of the same inputs."""
    unknown: list[np.ndarray] = []
    difference: Difference | None = None
    done = undecided = elements = 0
    for k in range(runs):
        program, run = of_run(k)
        # Every second run takes branches for equal numbers, which random numbers never are, and indices out of range.
        key, loose = seed * 7919 + k, k % 2 == 1
        field = fields(k, key, loose)
        field.ends = ends
        rng = np.random.default_rng([seed, k])
        inputs = [drawn(field, t, rng, span_of(program.region) if k % 4 > 1 else 0) for t in program.input_types]
        try:
            with using(field), np.errstate(all="ignore"):
                want = [np.asarray(w) for w in evaluate_program(program, inputs)]
                # A plan's loops run as often as the program's, or less often where they are cut into rows; those over
                # strips as often as they say.
                field.most_turns = 2 * field.turns + 1
                got = [np.asarray(g) for g in run(inputs)]
        except Endless as error:
            return Proof(None, late=True, refused=str(error))
        except LoweringError as error:  # of which `Refused` is one; others say that NumPy has no meaning of an op
            return Proof(None, refused=str(error))
        except VerificationError as error:
            difference = Difference(-1, why=str(error))
        else:
            difference = difference_of(got, want)
            same = [_nan(w) for w in want]
            alike = [u.shape for u in unknown] == [w.shape for w in same]
            unknown = [u & w for u, w in zip(unknown, same, strict=True)] if alike else same
            undecided, elements = sum(int(u.sum()) for u in unknown), sum(w.size for w in want)
        done = k + 1
        if difference is not None:
            break
    if difference is None and undecided == elements > 0:
        return Proof(None, done, refused="no element of the program's outputs is a number")
    return Proof(difference is None, done, undecided=undecided, elements=elements, difference=difference)


def _has_nan(region: Region) -> bool:
    """Whether some constant is no number. What blends with it is none."""
    def is_nan(value: Literal) -> bool:
        array = value.array
        return bool(_nan(array[(slice(1),) * array.ndim] if value.splat else array).any())

    return any(op.name == "constant" and is_nan(op.attributes["value"]) or any(map(_has_nan, op.regions))
               for op in region.ops)


def drawn(field: Field, type_: TensorType, rng: np.random.Generator, span: int = 0) -> np.ndarray:
    """Random elements of a type: residues, truth values, integers that are small, or below a span that is given.

    In loose fields integers are also what is no index.
    """
    modulus = field.residues.modulus
    if type_.dtype == "i1" and field.stored("i1") == np.bool_:
        return rng.integers(0, 2, type_.shape).astype(np.bool_)
    if type_.dtype.startswith("complex"):
        return paired(*rng.integers(0, modulus, (2, *type_.shape)).astype(np.float64))
    if is_float(type_.dtype) or type_.dtype == "i1":
        return rng.integers(0, modulus, type_.shape).astype(np.float64)
    dtype = numpy_dtype(type_.dtype)
    bits = np.iinfo(dtype) if dtype.kind in "iu" else None
    low, high = (-3 - span, 48 + 2 * span) if field.loose else (0, 5 + span)
    if bits is not None:
        low, high = max(low, int(bits.min)), min(high, int(bits.max))
    return rng.integers(low, high, type_.shape).astype(dtype)


def span_of(region: Region) -> int:
    """The longest dimension of a region, of which indices may be."""
    return max((n for t in region.types for n in t.shape), default=0)


def _nan(array: np.ndarray) -> np.ndarray:
    return np.isnan(array) if array.dtype.kind in "fc" else np.zeros(array.shape, np.bool_)


def difference_of(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> Difference | None:
    """The first element in which results differ; what is not known in one must not be known in the other."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        g, w = np.asarray(g), np.asarray(w)
        wrong = ~((g == w) | (_nan(g) & _nan(w)))
        if wrong.any():
            index = tuple(int(n) for n in np.argwhere(wrong)[0])
            return Difference(i, index, int(wrong.sum()), wrong.size)
    return None
