"""Whether a calibrated model ranks the plans of a program as their measured times do, on eight CPU devices.

The alternatives of a program are its baseline and the plans that other prices choose: bytes, messages, and the
machine's own prices times factors drawn for each kind of step and its axes. They run in turn, several rounds of them;
two of them tie where their medians differ by no more than twice the deviation of both. Ranks are compared within a
program only: across programs size alone would do it. Some programs are fixed, others drawn from the families by a seed.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from rich.console import Console
from rich.table import Table

import eggshard
from bench.programs import BenchProgram, spec, use_cpu_devices
from eggshard.api import Plan
from eggshard.calibration.calibrating import calibrate
from eggshard.costmodel import CostModel, Machine, Messages, StepInfo, WireBytes, load
from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.pricing import Pricer
from eggshard.errors import EggshardWarning

#: Per family the programs' names, and how many others are drawn.
PROGRAMS: dict[str, tuple[str, ...]] = {
    "reshard": ("xla#15207", "3D rotation left", "transpose split", "axis order"),
    "dense": ("MLP 2-D weights, batch 1024", "FSDP batch 1024, weight x -", "chain of 3, weights x -",
              "sum of two K-sharded products", "attention core, sequence sharded", "MLP training, FSDP"),
    "training": ("GQA block, FSDP", "MLP step, momentum, FSDP, large batch"),
}
DRAWN = {"reshard": 6, "matmul": 6, "algebra": 4, "indexing": 2, "padslice": 2, "stencil": 2}
#: How many machines with drawn factors choose plans, and the deviation of the factors' logarithms.
_MODELS, _DEVIATION = 12, 1.0
#: Rounds at least and at most, and the seconds that all of them take about.
_LEAST, _MOST, _SECONDS = 5, 11, 2.0
#: Seconds that one timing of a plan takes about, and those past which a program is left out.
_SPAN, _LONGEST = 5e-3, 0.25
#: Alternatives among which the plan chosen is to be the fastest, or within this part of it.
_BEST, _NEAR = 5, 0.10
_TAU, _CHOSEN = 0.7, 0.8


@dataclass(frozen=True)
class Alternative:
    """A plan with its price, the median of its times with its deviation, and their lower quartile, in seconds."""

    plan: Plan
    price: float
    seconds: float
    spread: float
    low: float = 0.0


@dataclass(frozen=True)
class Drawn:
    """A model's prices times a factor for each kind of step, op and axes, drawn by a seed."""

    base: Machine
    seed: int

    def seconds(self, step: StepInfo) -> float:
        return self._factor(step) * self.base.seconds(step)

    def seconds_many(self, steps: StepColumns) -> np.ndarray:
        prices: np.ndarray = np.array([self._factor(head) for head in steps.heads])[steps.head]
        return prices * self.base.seconds_many(steps)

    def _factor(self, step: StepInfo) -> float:
        key = hashlib.sha256(f"{self.seed} {step.kind} {step.op} {step.axes}".encode()).digest()
        return math.exp(_DEVIATION * np.random.default_rng(list(key)).standard_normal())


def run(console: Console, machine: str = "", seed: int = 0, programs: dict[str, tuple[str, ...]] = PROGRAMS,
        drawn: dict[str, int] = DRAWN) -> bool:
    """Calibrate on eight CPU devices, and print one row per program; true if both bounds hold.

    machine: the file of a machine that was calibrated here before.
    """
    use_cpu_devices()
    model = load(machine) if machine else _calibrated(console)
    out = Table(title="plans after calibration on 8 CPU devices: modelled against measured", pad_edge=False,
                caption="tau: Kendall's, of pairs that do not tie, by median and by lower quartile. chosen: time of "
                        f"the plan with the least price over the fastest of the {_BEST} with the least.")
    for name in ("program", "plans", "pairs", "tau", "by quartile", "by bytes", "chosen", "median error %"):
        out.add_column(name, justify="left" if name == "program" else "right")
    totals: list[float] = [0.0, 0.0, 0.0]
    pairs = near = count = 0
    left_out = []
    refused: list[str] = []
    for program in chosen(programs, drawn, seed):
        found = alternatives(program, model, refused)
        if len(found) < 2:
            left_out.append(program.name)
            continue
        score, number = kendall(found, lambda a: a.price)
        scores = (score, kendall(found, lambda a: a.price, lambda a: a.low)[0],
                  kendall(found, lambda a: float(a.plan.wire_bytes))[0])
        best = sorted(found, key=lambda a: a.price)[:_BEST]
        ratio = best[0].seconds / min(a.seconds for a in best)
        error = statistics.median(abs(a.price / a.seconds - 1) for a in found)
        totals, pairs = [t + s for t, s in zip(totals, scores, strict=True)], pairs + number
        count, near = count + 1, near + (ratio <= 1 + _NEAR)
        out.add_row(f"{program.family}: {program.name}", str(len(found)), str(number),
                    *(_ratio(s, number) for s in scores), f"{ratio:.2f}", f"{100 * error:.0f}")
    console.print(out)
    if left_out:
        console.print(f"left out, with one plan or longer than {_LONGEST} s: {'; '.join(left_out)}")
    if refused:
        console.print(f"plans that XLA refuses to compile, left out: {'; '.join(refused)}")
    tau, quartile, by_bytes = (t / pairs if pairs else 1.0 for t in totals)
    console.print(f"Kendall's tau over {pairs} pairs within programs: {tau:.2f} (at least {_TAU}), by lower quartile "
                  f"{quartile:.2f}; by bytes alone {by_bytes:.2f}")
    console.print(f"the plan chosen is the fastest of {_BEST}, or within {100 * _NEAR:.0f} % of it, in {near} of "
                  f"{count} (at least {100 * _CHOSEN:.0f} %)")
    return tau >= _TAU and near >= _CHOSEN * count


def chosen(programs: dict[str, tuple[str, ...]], drawn: dict[str, int], seed: int) -> Iterator[BenchProgram]:
    """The programs named, and others that a seed draws from their families."""
    rng = np.random.default_rng(seed)
    named = {name for names in programs.values() for name in names}
    for family in dict.fromkeys((*programs, *drawn)):
        known = {p.name: p for p in importlib.import_module(f"bench.programs.{family}").PROGRAMS}
        yield from (known[name] for name in programs.get(family, ()))
        others = [p for p in known.values() if p.name not in named and p.function and not p.extra and not p.control]
        for i in sorted(rng.permutation(len(others))[: drawn.get(family, 0)]):
            yield others[i]


def alternatives(program: BenchProgram, machine: Machine, refused: list[str]) -> list[Alternative]:
    """Different plans of a program, timed in turn; none where one run takes too long. Those refused are named."""
    plans: dict[str, Plan] = {}
    lowered = program.lower()
    models: tuple[CostModel, ...] = (machine, WireBytes(), Messages(), *(Drawn(machine, k) for k in range(_MODELS)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EggshardWarning)
        for model in models:
            plan = eggshard.optimize(lowered, cost_model=model)
            plans.setdefault(plan.to_stablehlo(), plan)
        plans.setdefault(plan.baseline.to_stablehlo(), plan.baseline)
    arrays = [
        jax.device_put(array, NamedSharding(program.mesh, spec(argument.sharding or "")))
        for array, argument in zip(program.inputs(), program.arguments, strict=True)
    ]
    pricer = Pricer(machine, next(iter(plans.values())).mesh)
    calls = []
    for text, plan in list(plans.items()):
        try:
            calls.append(_call(jax.jit(plan.to_jax()), arrays))
        except jax.errors.JaxRuntimeError:  # XLA refuses some programs of its own language
            del plans[text]
            refused.append(f"{program.family}: {program.name}")
    once = [min(call(1), call(1)) for call in calls]
    if min(once) > _LONGEST:
        return []
    often = [max(1, math.ceil(_SPAN / seconds)) for seconds in once]
    rounds = round(_SECONDS / sum(n * seconds for n, seconds in zip(often, once, strict=True)))
    times: list[list[float]] = [[] for _ in calls]
    rng = np.random.default_rng(0)
    for _ in range(min(max(rounds, _LEAST), _MOST)):
        for i in rng.permutation(len(calls)):
            times[i].append(calls[i](often[i]))
    return [
        Alternative(plan, pricer.program(plan.device_program), statistics.median(t), _spread(t),
                    float(np.quantile(t, 0.25)))
        for plan, t in zip(plans.values(), times, strict=True)
    ]


def kendall(found: Sequence[Alternative], key: Callable[[Alternative], float],
            seconds: Callable[[Alternative], float] = lambda a: a.seconds) -> tuple[float, int]:
    """Pairs ranked as measured less those ranked the other way, and the number of pairs whose medians differ."""
    score, number = 0.0, 0
    for i, a in enumerate(found):
        for b in found[:i]:
            if abs(a.seconds - b.seconds) <= 2 * math.hypot(a.spread, b.spread):
                continue
            number += 1
            priced = key(a) - key(b)
            score += 0.0 if math.isclose(key(a), key(b), rel_tol=1e-9) else math.copysign(
                1.0, priced * (seconds(a) - seconds(b)))
    return score, number


def _calibrated(console: Console) -> Machine:
    began = time.perf_counter()
    found = calibrate(jax.devices("cpu")[:8])
    worst = max(found.errors, key=lambda e: e.median)
    console.print(f"calibrated in {time.perf_counter() - began:.0f} s on {len(found.measured)} steps; the largest "
                  f"median error is of {worst.kind}, {100 * worst.median:.0f} %")
    return found.machine


def _call(function: Callable[..., Any], arrays: Sequence[Any]) -> Callable[[int], float]:
    jax.block_until_ready(function(*arrays))

    def timed(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            jax.block_until_ready(function(*arrays))
        return (time.perf_counter() - began) / times

    return timed


def _spread(times: Sequence[float]) -> float:
    """The standard deviation of the median, from the middle half of the times."""
    low, _, high = statistics.quantiles(times, n=4)
    return 1.25 * (high - low) / 1.349 / math.sqrt(len(times))


def _ratio(score: float, number: int) -> str:
    return f"{score / number:.2f}" if number else "-"
