"""Faults of device programs (`testing.plan_mutants`): how many proofs and `verify` find, by kind.

What neither finds is looked at step by step: the values that differ from those of the plan without the fault, and the
steps at which they stop to do so. A fault that changes no value, or only what is cut off, overwritten or known to be
another's, is none; any other is listed, and the run fails. Each of them is proved once more, at full size and with
other random elements.
"""

from __future__ import annotations

import dataclasses
import random
import signal
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from testing.plan_mutants import mutants

import eggshard as es
from bench.programs import dense, indexing, models, padslice, reshard, stencil, training
from eggshard.costmodel import WireBytes
from eggshard.frontends import load
from eggshard.ops.arithmetic import using
from eggshard.prove.field import Field
from eggshard.prove.proving import drawn, span_of
from eggshard.prove.residues import PRIMES, Residues
from eggshard.prove.sizes.shrinking import elements_of
from eggshard.simulate.execution import scattered
from eggshard.simulate.simulator import run as run_devices
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import Local, Step, StepPlan

FAMILIES = (dense, indexing, reshard, padslice, stencil, models, training)
#: Elements of a program's values above which its plan is left out: `verify` takes full sizes.
MOST = 5e6
#: Seconds for a proof or a verification; faults per kind of a plan; runs of what neither finds.
PATIENCE, PER_KIND, AGAIN = 30, 40, 8
#: Iterations of a loop in which values are compared.
TURNS = 40
_FOUND = {(True, True): "both", (True, False): "proof only", (False, True): "verify only", (False, False): "neither"}


def run(console: Console, seed: int = 0, only: str = "") -> tuple[bool, list[dict[str, Any]]]:
    """Print the tables; whether nothing remains unexplained; a record per kind of fault."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    unexplained: list[str] = []
    count = 0
    try:
        for name, plan in _plans(only):
            count += 1
            for kind, mutant in _chosen(plan, random.Random(seed)):
                verdict = _judged(mutant)
                found[kind][verdict] += 1
                seen = len(unexplained)
                if verdict == "neither":
                    reason = why_equal(plan, mutant, seed)
                    reasons[kind][reason or "UNEXPLAINED"] += 1
                    if reason is None:
                        unexplained.append(f"{name}: {kind}: {_changed(plan, mutant)}")
                elif verdict == "verify only":
                    unexplained.append(f"{name}: {kind}: found by verify only: {_changed(plan, mutant)}")
                for line in unexplained[seen:]:
                    print(line, file=sys.stderr)
            print(name, {k: sum(c[k] for c in found.values()) for k in _FOUND.values()}, file=sys.stderr)
    except KeyboardInterrupt:
        console.print("interrupted; these are the plans that were looked at until then")
    console.print(_table("faults found", found, (*_FOUND.values(), "ill-typed"),
                         f"{sum(sum(c.values()) for c in found.values())} faults of {count} plans; verify: on NumPy, "
                         "within its tolerance; a verification that does not end finds nothing"))
    console.print(_table("what neither finds, and why it is no fault", reasons, _in_order(reasons), ""))
    for line in unexplained:
        console.print(line, markup=False)
    return not unexplained, [{"mutants": k, **c, "why": dict(reasons[k])} for k, c in found.items()]


def _plans(only: str) -> Iterator[tuple[str, es.Plan]]:
    seen: set[str] = set()
    for family in FAMILIES:
        for program in family.PROGRAMS:
            if program.extra or only not in program.name or program.name in seen:
                continue
            seen.add(program.name)
            source = load(program.module)
            if elements_of(source.region) > MOST:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", es.EggshardWarning)
                plan = es.optimize(source, cost_model=WireBytes(), limits=es.Limits(proof=0))
            if plan.prove():
                yield program.name, plan


def _chosen(plan: es.Plan, rng: random.Random) -> Iterator[tuple[str, es.Plan]]:
    """Some mutants of every kind."""
    kinds: dict[str, list[StepPlan]] = defaultdict(list)
    for kind, device_program in mutants(plan.device_program):
        kinds[kind].append(device_program)
    for kind, programs in kinds.items():
        for device_program in rng.sample(programs, min(PER_KIND, len(programs))):
            yield kind, es.Plan.of(dataclasses.replace(plan, device_program=device_program))


def _judged(mutant: es.Plan) -> str:
    try:
        with patience(PATIENCE):
            proof = mutant.prove()
    except TimeoutError:
        return "neither"
    except es.errors.VerificationError:
        return "both"
    except (es.EggshardError, ValueError, IndexError):
        return "ill-typed"
    return "ill-typed" if proof.equal is None else _FOUND[not proof.equal, _differs(mutant)]


def _differs(mutant: es.Plan) -> bool:
    try:
        with patience(PATIENCE), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mutant.verify(engines=("numpy",))
    except es.errors.VerificationError:
        return True
    except TimeoutError:
        return False
    return False


@contextmanager
def patience(seconds: int) -> Iterator[None]:
    """Raise TimeoutError in what takes more of the processor's time: for `verify`, a mutated counter may never reach
    its limit."""

    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def why_equal(plan: es.Plan, mutant: es.Plan, seed: int = 0) -> str | None:
    """Why a mutant computes what its plan does, as far as values tell: None where proofs at full size do not agree,
    or a difference ends where it should not."""
    try:
        with patience(4 * PATIENCE):
            if not mutant.prove(runs=AGAIN, seed=seed + 1, shrink=False):
                return None
            ends = differences(plan, mutant, seed)
    except (TimeoutError, es.EggshardError):
        return None
    if not ends:
        return "no value differs"
    return "ends in " + ", ".join(sorted(ends)) if ends <= CUTTING else None


#: Where what differs may end: steps that leave out, overwrite or choose among what they take, and divisions of numbers
#: with a common factor.
CUTTING = frozenset((
    "AllGather", "AllReduce", "BoxSelect", "CollectivePermute", "Crop", "EdgeFill", "HaloExchange", "JointExchange",
    "KeepFirst", "Mask", "Resize", "and", "clamp", "compare", "divide", "dynamic_slice",
    "dynamic_update_slice", "gather", "maximum", "minimum", "or",
    "scatter", "select", "slice", "update_slice", "no step",
))  # fmt: skip


def differences(plan: es.Plan, mutant: es.Plan, seed: int) -> set[str]:
    """The steps that take a value which differs from the plan's, and make one that does not, in loops as well."""
    ends: set[str] = set()
    for k in range(4):
        field = Field(Residues(PRIMES[k % len(PRIMES)]), seed + k, loose=k % 2 == 1)
        rng = np.random.default_rng([seed, k])
        inputs = [drawn(field, t, rng, span_of(plan.program.region) if k > 1 else 0) for t in plan.program.input_types]
        with using(field), np.errstate(all="ignore"):
            shards = scattered(plan, inputs)
            ends |= _ends(plan.device_program, mutant.device_program, shards, shards)
    return ends


def _ends(
    plan: StepPlan, mutant: StepPlan, given: Sequence[np.ndarray], taken: Sequence[np.ndarray]
) -> set[str]:
    """Where differences end in a device program, and in the bodies of loops in which they do, of these inputs."""
    ends: set[str] = set()
    before, after = _values(plan, given), _values(mutant, taken)
    differ = {v for v in before.keys() & after.keys() if not np.array_equal(before[v], after[v], equal_nan=True)}
    loops = {step.results: step for step in plan.steps if isinstance(step.action, Loop)}
    for step in mutant.steps:
        if differ.intersection(step.operands) and not differ.intersection(step.results):
            other = loops.get(step.results)
            if isinstance(step.action, Loop) and other is not None:
                sides = [[values[v] for v in s.operands] for values, s in ((before, other), (after, step))]
                assert isinstance(other.action, Loop)
                ends |= _ends_of_loop(other.action, step.action, *sides)
            else:
                ends.add(_name(step))
    used = {v for step in mutant.steps for v in step.operands} | {*mutant.outputs}
    if differ - used:
        ends.add("no step")
    return ends


def _ends_of_loop(
    plan: Loop, mutant: Loop, given: Sequence[np.ndarray], taken: Sequence[np.ndarray]
) -> set[str]:
    ends: set[str] = set()
    for _ in range(TURNS):
        if all(np.array_equal(g, t, equal_nan=True) for g, t in zip(given, taken, strict=True)):
            return ends
        if not all(run_devices(loop.condition, values)[0].all() for loop, values in ((plan, given), (mutant, taken))):
            return ends | {"Loop"}  # one that carries a difference, and does not return it
        ends |= _ends(plan.body, mutant.body, given, taken)
        given, taken = run_devices(plan.body, list(given)), run_devices(mutant.body, list(taken))
    return ends | {"Loop"}


def _values(device_program: StepPlan, shards: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Every value of a device program."""
    made = (*device_program.inputs, *(v for step in device_program.steps for v in step.results))
    everything = dataclasses.replace(device_program, outputs=made, held=())
    return dict(zip(made, map(np.asarray, run_devices(everything, shards)), strict=True))


def _name(step: Step) -> str:
    return step.action.name if isinstance(step.action, Local) else type(step.action).__name__


def _changed(plan: es.Plan, mutant: es.Plan) -> str:
    """The steps that only the mutant has."""
    return "; ".join(str(step)[:300] for step in mutant.steps if step not in plan.steps) or "a step is missing"


def _in_order(counts: dict[str, Counter[str]]) -> tuple[str, ...]:
    total = sum(counts.values(), Counter())
    return tuple(name for name, _ in total.most_common())


def _table(title: str, counts: dict[str, Counter[str]], columns: tuple[str, ...], caption: str) -> Table:
    out = Table(title=title, pad_edge=False, caption=caption)
    out.add_column("kind")
    for column in columns:
        out.add_column(column, justify="right")
    for kind in sorted(counts):
        out.add_row(kind, *(str(counts[kind][c]) for c in columns))
    out.add_row("all", *(str(sum(c[column] for c in counts.values())) for column in columns))
    return out
