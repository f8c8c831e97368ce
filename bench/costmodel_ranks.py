"""Whether a calibrated model ranks the plans of a program as their measured times do, on eight CPU devices.

The alternatives of a program are the plans that a dozen different models choose, and the baseline. They run in turn,
several rounds of them; two of them tie where the difference of their medians is within the spread of both. Ranks are
compared within a program only: across programs size alone would do it.
"""

from __future__ import annotations

import importlib
import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from rich.console import Console
from rich.table import Table

import eggshard
from bench.programs import BenchProgram, spec, use_cpu_devices
from eggshard.costmodel import AlphaBeta, CostModel, Machine, Messages, WireBytes, preset
from eggshard.costmodel.calibrating import calibrate
from eggshard.errors import EggshardWarning
from eggshard.plan.plan import Plan
from eggshard.plan.pricing import Pricer

#: Models that choose alternatives, beside the calibrated one.
CHOOSERS: tuple[CostModel, ...] = (
    WireBytes(), Messages(), AlphaBeta(), AlphaBeta(launch=1e-3, latency=0.0), AlphaBeta(bandwidth=1e8),
    AlphaBeta(flops=1e9, memory=1e8), AlphaBeta("ring", 1e-6, 1e-5, 1e9), preset("tpu-v5e"),
)
#: Per family the programs' names.
PROGRAMS = {
    "reshard": ("xla#15207", "3D rotation left", "transpose split", "axis order"),
    "dense": ("MLP 2-D weights, batch 1024", "FSDP batch 1024, weight x -", "chain of 3, weights x -",
              "sum of two K-sharded products", "attention core, sequence sharded", "MLP training, FSDP"),
    "training": ("GQA block, FSDP", "MLP step, momentum, FSDP, large batch"),
}
_ROUNDS = 9
#: Seconds that one timing of a plan takes about; seconds of difference that no timing tells.
_SPAN = 5e-3
#: Alternatives among which the plan chosen is to be the fastest, or within this part of it.
_BEST, _NEAR = 5, 0.10
_TAU, _CHOSEN = 0.7, 0.8


@dataclass(frozen=True)
class Alternative:
    """A plan with its price, and the median of its times with their spread, in seconds."""

    plan: Plan
    price: float
    seconds: float
    spread: float


def run(console: Console, sizes: Sequence[int] = tuple(1 << p for p in range(10, 23, 2)), repeats: int = 5,
        programs: dict[str, tuple[str, ...]] = PROGRAMS) -> bool:
    """Calibrate on eight CPU devices, and print one row per program; true if both bounds hold."""
    use_cpu_devices()
    machine = calibrate(jax.devices("cpu")[:8], sizes, repeats=repeats).machine
    out = Table(title="plans after calibration on 8 CPU devices: modelled against measured", pad_edge=False,
                caption="tau: Kendall's, of pairs that do not tie. chosen: time of the plan with the least price over "
                        f"the fastest of the {_BEST} with the least.")
    for name in ("program", "plans", "pairs", "tau", "tau by bytes", "chosen", "median error %"):
        out.add_column(name, justify="left" if name == "program" else "right")
    agreed = pairs = near = count = 0
    for family, names in programs.items():
        known = {p.name: p for p in importlib.import_module(f"bench.programs.{family}").PROGRAMS}
        for name in names:
            found = alternatives(known[name], machine)
            score, number = kendall(found, lambda a: a.price)
            by_bytes, _ = kendall(found, lambda a: float(a.plan.wire_bytes))
            best = sorted(found, key=lambda a: a.price)[:_BEST]
            ratio = best[0].seconds / min(a.seconds for a in best)
            error = statistics.median(abs(a.price / a.seconds - 1) for a in found)
            agreed, pairs = agreed + score, pairs + number
            count, near = count + 1, near + (ratio <= 1 + _NEAR)
            out.add_row(name, str(len(found)), str(number), _ratio(score, number), _ratio(by_bytes, number),
                        f"{ratio:.2f}", f"{100 * error:.0f}")
    console.print(out)
    tau = agreed / pairs if pairs else 1.0
    console.print(f"Kendall's tau over {pairs} pairs within programs: {tau:.2f} (at least {_TAU})")
    console.print(f"the plan chosen is the fastest of {_BEST}, or within {100 * _NEAR:.0f} % of it, in {near} of "
                  f"{count} (at least {100 * _CHOSEN:.0f} %)")
    return tau >= _TAU and near >= _CHOSEN * count


def alternatives(program: BenchProgram, machine: Machine) -> list[Alternative]:
    """Different plans of a program, timed in turn."""
    plans: dict[str, Plan] = {}
    lowered = program.lower()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EggshardWarning)
        for model in (machine, *CHOOSERS):
            plan = eggshard.optimize(lowered, cost_model=model)
            plans.setdefault(plan.to_stablehlo(), plan)
        plans.setdefault(plan.baseline.to_stablehlo(), plan.baseline)
    arrays = [
        jax.device_put(array, NamedSharding(program.mesh, spec(argument.sharding or "")))
        for array, argument in zip(program.inputs(), program.arguments, strict=True)
    ]
    pricer = Pricer(machine, next(iter(plans.values())).mesh)
    calls = [_call(jax.jit(plan.to_jax()), arrays) for plan in plans.values()]
    times: list[list[float]] = [[] for _ in calls]
    often = [max(1, math.ceil(_SPAN / min(call(1), call(1)))) for call in calls]
    rng = np.random.default_rng(0)
    for _ in range(_ROUNDS):
        for i in rng.permutation(len(calls)):
            times[i].append(calls[i](often[i]))
    return [
        Alternative(plan, pricer.program(plan.device_program), statistics.median(t), _spread(t))
        for plan, t in zip(plans.values(), times, strict=True)
    ]


def kendall(found: Sequence[Alternative], key: Callable[[Alternative], float]) -> tuple[float, int]:
    """Pairs ranked as measured less those ranked the other way, and the number of pairs whose times differ."""
    score, number = 0.0, 0
    for i, a in enumerate(found):
        for b in found[:i]:
            if abs(a.seconds - b.seconds) <= math.hypot(a.spread, b.spread):
                continue
            number += 1
            priced = key(a) - key(b)
            score += 0.0 if math.isclose(key(a), key(b), rel_tol=1e-9) else math.copysign(
                1.0, priced * (a.seconds - b.seconds))
    return score, number


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
