"""Proofs of plans: plan and program on the same random elements of several prime fields."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from eggshard.errors import VerificationError
from eggshard.ops.arithmetic import using
from eggshard.ops.evaluate import evaluate_program
from eggshard.plan.proof import Difference, Proof
from eggshard.program.program import Program
from eggshard.program.types import TensorType, is_float, numpy_dtype
from eggshard.prove.field import Field, Refused
from eggshard.prove.residues import PRIMES, paired
from eggshard.prove.shrinking import elements_of, shrunk
from eggshard.simulate.execution import run_global

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

Run = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


def prove(plan: PlanRecord, runs: int | None = None, seed: int = 0, shrink: bool = True) -> Proof:
    """Compare a plan with its program over prime fields; see `Plan.prove`."""
    began = time.perf_counter()
    small, sizes, whole = shrunk(plan) if shrink else (plan, elements_of(plan.program.region), 0)
    proof = proof_of(small.program, lambda arrays: run_global(small, arrays), runs or 2, seed)
    if proof.equal is False and small is not plan:
        # That sizes may be cut where plans agree says nothing of plans that do not.
        sizes, whole = whole, whole
        proof = proof_of(plan.program, lambda arrays: run_global(plan, arrays), runs or 2, seed)
    return replace(proof, sizes=sizes, whole=whole or sizes, seconds=time.perf_counter() - began)


def proof_of(program: Program, run: Run, runs: int, seed: int) -> Proof:
    """Compare what ``run`` makes of a program's inputs with the program's outputs."""
    began = time.perf_counter()
    elements = sum(t.elements for t in program.output_types)
    unknown = [np.ones(t.shape, np.bool_) for t in program.output_types]
    difference: Difference | None = None
    done = 0
    for k in range(runs):
        # Every second run takes branches for equal numbers, which random numbers never are, and indices out of range.
        field = Field(PRIMES[k % len(PRIMES)], seed * 7919 + k, loose=k % 2 == 1)
        rng = np.random.default_rng([seed, k])
        inputs = [_drawn(field, t, rng) for t in program.input_types]
        try:
            with using(field), np.errstate(all="ignore"):
                want = evaluate_program(program, inputs)
                got = run(inputs)
        except Refused as error:
            return Proof(None, refused=str(error), seconds=time.perf_counter() - began)
        except VerificationError as error:
            difference = Difference(-1, why=str(error))
        else:
            difference = _difference(got, want)
            unknown = [u & _nan(np.asarray(w)) for u, w in zip(unknown, want, strict=True)]
        done = k + 1
        if difference is not None:
            break
    undecided = sum(int(u.sum()) for u in unknown)
    return Proof(difference is None, done, undecided=undecided, elements=elements, difference=difference,
                 seconds=time.perf_counter() - began)


def _drawn(field: Field, type_: TensorType, rng: np.random.Generator) -> np.ndarray:
    """Random elements of a type: residues, truth values, small integers (in loose fields also what is no index)."""
    if type_.dtype == "i1":
        return rng.integers(0, 2, type_.shape).astype(np.bool_)
    prime = field.residues.prime
    if type_.dtype.startswith("complex"):
        return paired(*rng.integers(0, prime, (2, *type_.shape)).astype(np.float64))
    if is_float(type_.dtype):
        return rng.integers(0, prime, type_.shape).astype(np.float64)
    low, high = (-3, 48) if field.loose and not type_.dtype.startswith("ui") else (0, 5)
    return rng.integers(low, high, type_.shape).astype(numpy_dtype(type_.dtype))


def _nan(array: np.ndarray) -> np.ndarray:
    return np.isnan(array) if array.dtype.kind in "fc" else np.zeros(array.shape, np.bool_)


def _difference(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> Difference | None:
    """The first element in which results differ; what is not known in one must not be known in the other."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        g, w = np.asarray(g), np.asarray(w)
        wrong = ~((g == w) | (_nan(g) & _nan(w)))
        if wrong.any():
            index = tuple(int(n) for n in np.argwhere(wrong)[0])
            return Difference(i, index, int(wrong.sum()), wrong.size)
    return None
