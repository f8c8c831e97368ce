"""Fitting a machine's constants to measured steps: least squares of the logarithms, outliers weighing less.

Of each kind of collective up to three protocols are fitted to what its algorithms need (launch, and factors of the
fabrics' latencies and bandwidths), and where it helps the bytes past which caches are full; of each local op its rates.
How many there are is decided by the Bayesian information criterion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.compute import Compute, spilled
from eggshard.costmodel.machine import Machine, Protocol
from eggshard.costmodel.protocol import StepInfo
from eggshard.costmodel.table import Measured
from eggshard.errors import CostModelError

#: Deviations of logarithms above this weigh as outliers (Huber's function).
_OUTLIER = 0.2
_ITERATIONS = 60
_PROTOCOLS = 3
#: Flops per byte that differ by no more than this factor tell nothing of flops.
_PROPORTIONAL = 1.5


@dataclass(frozen=True)
class KindError:
    """How far prices are from what was measured, as parts of it: of one kind of step, or one op."""

    kind: str
    steps: int
    median: float
    p90: float


def errors(machine: Machine, measured: Iterable[Measured]) -> list[KindError]:
    """The relative errors of a machine's prices, by kind of step, local steps by their op."""
    found: dict[str, list[float]] = {}
    rows = list(measured)
    prices = machine.seconds_many(StepColumns.of([step for step, _ in rows]))
    for (step, seconds), price in zip(rows, prices, strict=True):
        found.setdefault(_name(step), []).append(abs(float(price) / seconds - 1))
    return [KindError(kind, len(e), float(np.median(e)), float(np.quantile(e, 0.9))) for kind, e in found.items()]


def fitted(machine: Machine, measured: Iterable[Measured]) -> Machine:
    """The machine with constants that agree with what was measured; those of kinds that were not stay.

    Raises CostModelError where a time is not above zero.
    """
    kinds: dict[str, list[Measured]] = {}
    for step, seconds in measured:
        if not (seconds > 0 and math.isfinite(seconds)):
            raise CostModelError(f"{step} was measured to take {seconds} seconds; that is no time above zero")
        kinds.setdefault(_name(step), []).append((step, seconds))
    protocols = list(machine.protocols)
    compute = machine.compute
    for kind, rows in kinds.items():
        if rows[0][0].communicates:
            if len(rows) > 2:
                protocols = [p for p in protocols if p.kinds != (kind,)] + _protocols(machine, kind, rows)
        elif len(rows) > 1:
            compute = replace(compute, ops={**compute.ops, kind: _rates(compute, rows)})
    return replace(machine, protocols=tuple(protocols), compute=compute)


def _name(step: StepInfo) -> str:
    return step.kind if step.communicates else step.op or step.kind


def _protocols(machine: Machine, kind: str, rows: Sequence[Measured]) -> list[Protocol]:
    """The protocols of one kind: launches, factors of the fabrics' latencies and bandwidths, the rate of memory.

    Algorithms that the machine keeps to protocols of their own, such as those of a switch, keep so.
    """
    families = list(dict.fromkeys(p.algorithms for p in machine.protocols if not p.kinds or kind in p.kinds)) or [()]
    messages, wire, touched, runs = (np.array(column, float) for column in zip(*(
        (step.messages, step.wire_bytes, step.memory_bytes + step.copied_bytes, step.runs) for step, _ in rows
    ), strict=True))
    seconds = np.array([s for _, s in rows])
    needs = [needs for f in families if (needs := _needs(machine, f, [step for step, _ in rows])) is not None]
    order, floor = np.argsort(wire), float(seconds.min())

    def price(parameters: np.ndarray, chosen: Sequence[int]) -> np.ndarray:
        cache, spill = math.exp(parameters[0]), 1 + math.exp(parameters[1])
        size = spilled(wire, cache, spill, np.maximum)[:, None]
        best = np.full(len(rows), np.inf)
        for family, (launch, hop, byte) in zip(chosen, np.exp(parameters[4:]).reshape(-1, 3), strict=True):
            latency, load = needs[family][1:]
            found = messages[:, None] * (launch + hop * latency) + byte * load * size
            best = np.minimum(best, found.min(axis=1))
        return best + touched * math.exp(parameters[2]) + runs * math.exp(parameters[3])

    fits = []
    for spills in (False, True):
        for chosen in ([0] * (i + 1) + list(range(1, j + 1)) for i in range(_PROTOCOLS) for j in range(len(needs))):
            if 3 * (3 * len(chosen) + 2 + 2 * spills) > len(rows) and (len(chosen) > 1 or spills):
                continue
            start = [math.log(float(np.quantile(wire, 0.75)) if spills else 1e30), math.log(1.0 if spills else 1e-9),
                     math.log(0.1 * float(np.min(seconds / np.maximum(touched, 1e-9)))),
                     math.log(0.1 * float(np.min(seconds / np.maximum(runs, 1e-9))))]
            for family, part in zip(chosen, np.array_split(order, len(chosen)), strict=True):
                latency, load = needs[family][1:]
                at = part[len(part) // 2:]
                factor = float(np.median(seconds[at] / (wire[at] * load[at].min(axis=1))))
                launch = 0.5 * float(np.median(seconds[part[: max(1, len(part) // 3)]]))
                hop = floor / 4 / max(float(np.median(latency.min(axis=1))), 1e-12)
                start += [math.log(max(launch, floor / 4)), math.log(hop), math.log(factor)]
            found = _least_squares(partial(price, chosen=chosen), np.array(start), seconds, 0 if spills else 2)
            fits.append((found[1], chosen, found[0]))
    _, chosen, best = min(fits, key=lambda fit: fit[0])
    cache, spill, memory = math.exp(best[0]), 1 + math.exp(best[1]), math.exp(-best[2])
    run = _short(math.exp(best[3])) if runs.any() else 0.0
    spills = cache < wire.max() and spill > 1.01
    return [
        Protocol(f"{kind} {i + 1}" if chosen[1:] else kind, _short(launch), _short(hop), _short(1 / byte), (kind,),
                 needs[family][0], _short(cache) if spills else math.inf, _short(spill) if spills else 1.0,
                 _short(memory), run)
        for i, (family, (launch, hop, byte)) in enumerate(zip(chosen, np.exp(best[4:]).reshape(-1, 3), strict=True))
    ]


def _needs(
    machine: Machine, family: tuple[str, ...], steps: Sequence[StepInfo]
) -> tuple[tuple[str, ...], np.ndarray, np.ndarray] | None:
    """What a family of algorithms needs of the fabrics: seconds of latency and per byte, ``[steps, algorithms]``.

    None where it cannot run every one of the steps.
    """
    plain = replace(machine, protocols=(Protocol(algorithms=family),))
    try:
        options = [plain.options(step) for step in steps]
    except CostModelError:
        return None
    if not all(options):
        return None
    most = max(map(len, options))
    filled = [[*found, *[found[-1]] * (most - len(found))] for found in options]
    latency, load = (np.array([[getattr(o, name) for o in found] for found in filled]) for name in
                     ("latency", "per_byte"))
    return family, latency, load


def _rates(compute: Compute, rows: Sequence[Measured]) -> Compute:
    """The rates of one op: its launch, its bytes of memory, and its flops where they are not in proportion to these."""
    flops, touched, seconds = (np.array(c, float) for c in zip(
        *((step.flops, step.memory_bytes, s) for step, s in rows), strict=True))

    def of(parameters: np.ndarray) -> np.ndarray:
        cache, spill = math.exp(parameters[0]), 1 + math.exp(parameters[1])
        launch, flop, byte = np.exp(parameters[2:])
        prices: np.ndarray = launch + np.maximum(flops * flop, spilled(touched, cache, spill, np.maximum) * byte)
        return prices

    intensity = flops / np.maximum(touched, 1.0)
    if intensity.max() <= _PROPORTIONAL * intensity.min():
        flops = np.zeros_like(flops)
    fits = []
    for spills in (False, True):
        for parts in ((0.1, 0.8), (0.8, 0.1), (0.8, 0.8)) if flops.any() else ((0.1, 0.8),):
            start = [math.log(float(np.quantile(touched, 0.75)) if spills else 1e30), math.log(1.0 if spills else 1e-9),
                     math.log(seconds.min() / 2)]
            for what, part in zip((flops, touched), parts, strict=True):
                per = float(np.min(seconds / np.maximum(what, 1e-300))) if what.any() else 1e-15
                start.append(math.log(per * part))
            fits.append(_least_squares(of, np.array(start), seconds, fixed=0 if spills else 2))
    best = min(fits, key=lambda fit: fit[1])[0]
    cache, spill = math.exp(best[0]), 1 + math.exp(best[1])
    spills = cache < touched.max() and spill > 1.01
    launch, flop, byte = np.exp(best[2:])
    faster = 1 / flop / compute.flops[rows[0][0].dtype if rows[0][0].dtype in compute.flops else "default"]
    own = {dtype: _short(rate * faster) for dtype, rate in compute.flops.items()} if flops.any() else compute.flops
    return Compute(own, _short(1 / byte), _short(launch), cache=_short(cache) if spills else math.inf,
                   spill=_short(spill) if spills else 1.0)


def _short(value: float) -> float:
    """Four digits: more say nothing of a measured figure."""
    return float(f"{value:.4g}")


def _least_squares(
    of: Callable[[np.ndarray], np.ndarray], start: np.ndarray, seconds: np.ndarray, fixed: int
) -> tuple[np.ndarray, float]:
    """Parameters after Levenberg and Marquardt, the first ``fixed`` of them as given, and the fit's criterion."""
    free = np.arange(fixed, len(start))
    target = np.log(seconds)

    def residuals(parameters: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = np.log(of(parameters)) - target
        return np.where(np.isfinite(found), found, 50.0)

    def loss(r: np.ndarray) -> float:
        size = np.abs(r)
        return float(np.sum(np.where(size <= _OUTLIER, r * r, _OUTLIER * (2 * size - _OUTLIER))))

    at, damping = start.copy(), 1e-2
    r = residuals(at)
    for _ in range(_ITERATIONS):
        jacobian = np.empty((len(r), len(free)))
        for column, i in enumerate(free):
            moved = at.copy()
            moved[i] += 1e-5
            jacobian[:, column] = (residuals(moved) - r) / 1e-5
        weights = np.minimum(1.0, _OUTLIER / np.maximum(np.abs(r), 1e-12))[:, None]
        square, slope = jacobian.T @ (weights * jacobian), jacobian.T @ (weights[:, 0] * r)
        before, improved = loss(r), False
        for _ in range(8):
            # Parameters that nothing depends on here stay as they are.
            damped = square + damping * np.diag(np.diag(square)) + 1e-9 * np.eye(len(free))
            step = np.linalg.lstsq(damped, -slope, rcond=None)[0]
            moved = at.copy()
            moved[free] += np.clip(step, -2.0, 2.0)
            after = residuals(moved)
            if loss(after) < before:
                at, r, damping, improved = moved, after, damping / 4, True
                break
            damping *= 4
        if not improved or before - loss(r) < 1e-9 * before:
            break
    n = len(seconds)
    return at, n * math.log(max(loss(r) / n, 1e-8)) + len(free) * math.log(n)
