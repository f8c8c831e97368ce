"""Fitting a machine's constants to measured steps: least squares of the logarithms, outliers weighing less.

Of each kind of collective up to three protocols are fitted to what its algorithms need (launch, and factors of the
fabrics' latencies and bandwidths), and where it helps the bytes past which caches are full, or up to which a message
has one channel, and how many messages go at once; of each local op its rates. How many there are is decided by the
Bayesian information criterion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from eggshard.costmodel.algorithms import ALL_TO_ALL
from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.compute import Compute, spilled
from eggshard.costmodel.machine import Machine, Protocol
from eggshard.costmodel.protocol import StepInfo
from eggshard.costmodel.table import Measured
from eggshard.errors import CostModelError

#: Deviations of logarithms above this weigh as outliers (Huber's function).
_OUTLIER = 0.1
_ITERATIONS = 60
_PROTOCOLS = 3
#: How many messages of an all-to-all may go at once.
_AT_ONCE = (1, 4, 16, 64)
#: Flops per byte that differ by no more than this factor tell nothing of flops.
_PROPORTIONAL = 1.5

#: A protocol, seconds of latency and seconds per byte of its algorithms, ``[steps, algorithms]``.
_Needs = tuple[Protocol, np.ndarray, np.ndarray]


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
                others = [replace(p, kinds=tuple(k for k in p.kinds if k != kind)) for p in protocols
                          if p.kinds != (kind,)]
                protocols = others + _protocols(machine, kind, rows)
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
    messages, wire, touched, runs, seconds = (np.array(column, float) for column in zip(*(
        (step.messages, step.wire_bytes, step.memory_bytes + step.copied_bytes, step.runs, s) for step, s in rows
    ), strict=True))
    steps = [step for step, _ in rows]
    sent = max(step.group for step in steps) - 1 if kind == ALL_TO_ALL else 1
    needed = [[found for f in families if (found := _needs(machine, Protocol(algorithms=f, at_once=many), steps))]
              for many in _AT_ONCE if many == 1 or many < sent]
    order, floor = np.argsort(wire), float(seconds.min())

    def price(parameters: np.ndarray, needs: list[_Needs], bend: str) -> np.ndarray:
        way = _bent(bend, *parameters[:2])
        best = np.full(len(rows), np.inf)
        for (_, latency, load), (launch, hop, byte) in zip(needs, np.exp(parameters[4:]).reshape(-1, 3), strict=True):
            carried = way.carrying(wire[:, None], messages[:, None], byte * load, np.maximum)
            found = messages[:, None] * (launch + hop * latency) + carried
            best = np.minimum(best, found.min(axis=1))
        return best + touched * math.exp(parameters[2]) + runs * math.exp(parameters[3])

    fits = []
    for bend, known in product(("", "cache", "channel"), needed):
        fixed = [*([] if bend else [0, 1]), *([] if runs.any() else [3])]
        for needs in ([known[0]] * (i + 1) + known[1:j + 1] for i in range(_PROTOCOLS) for j in range(len(known))):
            if 3 * (3 * len(needs) + 4 - len(fixed)) > len(rows) and (len(needs) > 1 or bend):
                continue
            start = [*_bend(bend, wire / messages, seconds / messages),
                     math.log(0.1 * float(np.min(seconds / np.maximum(touched, 1e-9)))),
                     math.log(0.1 * float(np.min(seconds / np.maximum(runs, 1e-9))))]
            for (_, latency, load), part in zip(needs, np.array_split(order, len(needs)), strict=True):
                at = part[len(part) // 2:]
                factor = float(np.median(seconds[at] / (wire[at] * load[at].min(axis=1))))
                launch = 0.5 * float(np.median(seconds[part[: max(1, len(part) // 3)]]))
                hop = floor / 4 / max(float(np.median(latency.min(axis=1))), 1e-12)
                start += [math.log(max(launch, floor / 4)), math.log(hop), math.log(factor)]
            best, worth = _least_squares(partial(price, needs=needs, bend=bend), np.array(start), seconds, fixed)
            fits.append((worth + math.log(len(rows)) * (needs[0][0].at_once > 1), needs, best, bend))
    _, needs, best, bend = min(fits, key=lambda fit: fit[0])
    bent, memory = _bent(bend, *best[:2]), math.exp(-best[2])
    run = _short(math.exp(best[3])) if runs.any() else 0.0
    if min(bent.cache, bent.part) < wire.max() and bent.spill > 1.01 * (bend == "cache"):
        needs = [(replace(way, cache=_short(bent.cache), spill=_short(bent.spill), channel=_short(bent.channel),
                          part=_short(bent.part)), latency, load) for way, latency, load in needs]
    return [
        replace(way, name=f"{kind} {i + 1}" if needs[1:] else kind, launch=_short(launch), latency=_short(hop),
                bandwidth=_short(1 / byte), kinds=(kind,), memory=_short(memory), run=run)
        for i, ((way, *_), (launch, hop, byte)) in enumerate(zip(needs, np.exp(best[4:]).reshape(-1, 3), strict=True))
    ]


def _bent(bend: str, at: float, by: float) -> Protocol:
    """A protocol whose caches are full past some bytes, or whose channels are given so many, by logarithms."""
    where, figure = np.exp(np.clip((at, by), -99, 99)).tolist()
    if bend == "cache":
        return Protocol(cache=where, spill=1 + figure)
    return Protocol(part=where, channel=figure) if bend else Protocol()


def _bend(bend: str, size: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Where a fit of a bend begins: of channels the bytes after which seconds grow the least, once they have grown."""
    if bend != "channel":
        return math.log(float(np.quantile(size, 0.75))), 0.0
    sizes = np.unique(size)
    times = np.array([np.median(seconds[size == s]) for s in sizes])
    grown = np.flatnonzero(times[:-1] > 3 * times.min())
    if not len(grown):
        return math.log(float(np.median(size))), math.log(float(np.median(size / seconds)))
    at = grown[np.argmin((np.diff(np.log(times)) / np.diff(np.log(sizes)))[grown])]
    return math.log(sizes[at]), math.log(sizes[at] / times[at])


def _needs(machine: Machine, way: Protocol, steps: Sequence[StepInfo]) -> _Needs | None:
    """What a protocol's algorithms need of the fabrics; None where they cannot run every one of the steps."""
    plain = replace(machine, protocols=(way,))
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
    return way, latency, load


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
            fits.append(_least_squares(of, np.array(start), seconds, () if spills else (0, 1)))
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
    of: Callable[[np.ndarray], np.ndarray], start: np.ndarray, seconds: np.ndarray, fixed: Collection[int]
) -> tuple[np.ndarray, float]:
    """Parameters after Levenberg and Marquardt, the ``fixed`` ones as given, and the fit's criterion."""
    free = np.array([i for i in range(len(start)) if i not in fixed])
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
        if not improved or before - loss(r) < 1e-6 * before:
            break
    n = len(seconds)
    return at, 2 * n * math.log(max(float(np.abs(r).mean()), 1e-4)) + len(free) * math.log(n)
