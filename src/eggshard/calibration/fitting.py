"""Fitting of a machine's constants to measured steps, by robust least squares of the logarithms.

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
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.compute import Compute, spilled
from eggshard.costmodel.machines.algorithms import ALL_TO_ALL
from eggshard.costmodel.machines.machine import Machine, Protocol
from eggshard.costmodel.protocol import StepInfo
from eggshard.costmodel.table import Measured
from eggshard.errors import CostModelError

#: Deviations of logarithms above this weigh as outliers (Huber's function).
_OUTLIER = 0.1
#: Evaluations of all prices, besides those that derivatives take, after which a fit is taken as it is.
_EVALUATIONS = 100
#: The most by which a parameter's natural logarithm may move from its starting value.
_FAR = 30.0
#: The most protocols that are fitted to one kind of collective (`python -m bench costmodel`).
_PROTOCOLS = 3
#: How many messages of an all-to-all may go at once.
_AT_ONCE = (1, 4, 16, 64)
#: Flops per byte that differ by no more than this factor tell nothing of flops.
_PROPORTIONAL = 1.5

#: A protocol, seconds of latency and seconds per byte of its algorithms, ``[steps, algorithms, levels]``: on each level
#: of the machine, or, where a level has several algorithms, on all of them together.
_Needs = tuple[Protocol, np.ndarray, np.ndarray]


class _Kind(NamedTuple):
    """Logarithms of what one kind of collective is fitted by.

    at, by: where its line bends, and by how much (`_bent`). memory: seconds per byte touched. run: seconds per piece of
    memory copied. ways: of each protocol its launch, and by level its factors of latency and of seconds per byte,
    ``[ways, 1 + 2 levels]``.
    """

    at: float
    by: float
    memory: float
    run: float
    ways: np.ndarray

    @staticmethod
    def of(parameters: np.ndarray, ways: int) -> _Kind:
        """Unpack a parameter vector of so many protocols as `vector` packs it."""
        at, by, memory, run, *rest = parameters.tolist()
        return _Kind(at, by, memory, run, np.array(rest).reshape(ways, -1))

    @property
    def vector(self) -> np.ndarray:
        """The parameters as one vector, as least squares takes them."""
        return np.array([*self[:-1], *self.ways.reshape(-1)])


#: Where the parameters stand in the vector that least squares takes.
_BEND, _RUN = (_Kind._fields.index("at"), _Kind._fields.index("by")), _Kind._fields.index("run")


class _Op(NamedTuple):
    """Logarithms of what one local op is fitted by: the bytes that caches hold and how much slower those beyond them
    are (one less), its launch, and seconds per flop and per byte."""

    cache: float
    spill: float
    launch: float
    flop: float
    byte: float

    @property
    def spilling(self) -> tuple[float, float]:
        """The bytes that caches hold, and the factor beyond them."""
        return math.exp(self.cache), 1 + math.exp(self.spill)


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


class _Columns(NamedTuple):
    """What measured collectives sent, touched and took, ``[steps]`` each."""

    messages: np.ndarray
    wire: np.ndarray
    touched: np.ndarray
    runs: np.ndarray
    seconds: np.ndarray

    @staticmethod
    def of(rows: Sequence[Measured]) -> _Columns:
        return _Columns(*(np.array(column, float) for column in zip(*(
            (step.messages, step.wire_bytes, step.memory_bytes + step.copied_bytes, step.runs, seconds)
            for step, seconds in rows), strict=True)))

    def prices(self, parameters: np.ndarray, needs: list[_Needs], bend: str) -> np.ndarray:
        """Seconds by the protocol that is the fastest for each step."""
        logs = _Kind.of(parameters, len(needs))
        way = _bent(bend, logs.at, logs.by)
        best = np.full(len(self.wire), np.inf)
        for (_, latency, load), (launch, *factors) in zip(needs, np.exp(logs.ways), strict=True):
            hop, byte = np.split(np.array(factors), 2)
            carried = way.carrying(self.wire[:, None], self.messages[:, None], (byte * load).max(-1), np.maximum)
            found = self.messages[:, None] * (launch + (hop * latency).sum(-1)) + carried
            best = np.minimum(best, found.min(axis=1))
        prices: np.ndarray = best + self.touched * np.exp(logs.memory) + self.runs * np.exp(logs.run)
        return prices

    def start(self, needs: list[_Needs], bend: str) -> _Kind:
        """Where a fit begins: each protocol with an equal part of the steps, by bytes."""
        order, floor = np.argsort(self.wire), float(self.seconds.min())
        ways = []
        for (_, latency, load), part in zip(needs, np.array_split(order, len(needs)), strict=True):
            launch = 0.5 * float(np.median(self.seconds[part[: max(1, len(part) // 3)]]))
            hops, factors = [], []
            for level in range(load.shape[-1]):
                outermost = (load[..., level].min(1) > 0) & ~(load[..., level + 1:].min(1) > 0).any(-1)
                at = part[outermost[part]]
                at = at[len(at) // 2:]
                per_byte = self.seconds[at] / (self.wire[at] * load[at, :, level].min(1))
                factors.append(float(np.median(per_byte)) if len(at) else 1.0)
                waits = latency[..., level].min(1)
                hops.append(floor / 4 / float(np.median(waits[waits > 0])) if waits.any() else 1.0)
            ways.append((max(launch, floor / 4), *hops, *factors))
        memory, run = (math.log(0.1 * float(np.min(self.seconds / np.maximum(w, 1e-9))))
                       for w in (self.touched, self.runs))
        return _Kind(*_bend(bend, self.wire / self.messages, self.seconds / self.messages), memory, run, np.log(ways))


def _protocols(machine: Machine, kind: str, rows: Sequence[Measured]) -> list[Protocol]:
    """The protocols of one kind: launches, factors of the fabrics' latencies and bandwidths, the rate of memory.

    Algorithms that the machine keeps to protocols of their own, such as those of a switch, keep so.
    """
    families = list(dict.fromkeys(p.algorithms for p in machine.protocols if not p.kinds or kind in p.kinds)) or [()]
    columns, steps = _Columns.of(rows), [step for step, _ in rows]
    sent = max(step.group for step in steps) - 1 if kind == ALL_TO_ALL else 1
    needed = [[found for f in families if (found := _needs(machine, Protocol(algorithms=f, at_once=many), steps))]
              for many in _AT_ONCE if many == 1 or many < sent]
    fits = []
    for bend, known in product(("", "cache", "channel"), needed):
        fixed = [*(() if bend else _BEND), *(() if columns.runs.any() else (_RUN,))]
        for needs in ([known[0]] * (i + 1) + known[1:j + 1] for i in range(_PROTOCOLS) for j in range(len(known))):
            # Three measured steps or more for each parameter.
            each = 1 + 2 * needs[0][1].shape[-1]
            if 3 * (each * len(needs) + len(_Kind._fields) - 1 - len(fixed)) > len(rows) and (len(needs) > 1 or bend):
                continue
            price = partial(columns.prices, needs=needs, bend=bend)
            fit, worth = _least_squares(price, columns.start(needs, bend).vector, columns.seconds, fixed)
            worth += math.log(len(rows)) * (needs[0][0].at_once > 1)
            fits.append((worth, needs, _Kind.of(fit, len(needs)), bend))
    _, needs, best, bend = min(fits, key=lambda fit: fit[0])
    bent = _bent(bend, best.at, best.by)
    if not (min(bent.cache, bent.part) < columns.wire.max() and bent.spill > 1.01 * (bend == "cache")):
        bent = Protocol()
    run = _short(math.exp(best.run)) if columns.runs.any() else 0.0
    return [
        replace(way, name=f"{kind} {i + 1}" if needs[1:] else kind, launch=_short(launch),
                latency=_by_level(machine, hop), bandwidth=_by_level(machine, 1 / byte), kinds=(kind,),
                memory=_short(math.exp(-best.memory)), run=run,
                cache=_short(bent.cache), spill=_short(bent.spill), channel=_short(bent.channel),
                part=_short(bent.part))
        for i, ((way, *_), (launch, *factors)) in enumerate(zip(needs, np.exp(best.ways), strict=True))
        for hop, byte in [np.split(np.array(factors), 2)]
    ]


def _by_level(machine: Machine, factors: np.ndarray) -> float | dict[str, float]:
    """Factors as protocols have them: one for all levels, or of each by its name."""
    if len(factors) == 1:
        return _short(float(factors[0]))
    return {level.name: _short(float(factor)) for level, factor in zip(machine.levels, factors, strict=True)}


def _bent(bend: str, at: float, by: float) -> Protocol:
    """A protocol whose caches are full past some bytes, or whose channels are given so many, by logarithms."""
    where, figure = math.exp(at), math.exp(by)
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
    if most > 1 or len(machine.levels) == 1:
        return way, latency[..., None], load[..., None]
    alone = [[_alone(machine, way, level.name).options(step)[0] for step in steps] for level in machine.levels]
    latency, load = (np.array([[getattr(o, name) for o in found] for found in alone]).T[:, None] for name in
                     ("latency", "per_byte"))
    return way, latency, load


def _alone(machine: Machine, way: Protocol, level: str) -> Machine:
    """The machine with a protocol to which all levels but one cost nothing."""
    others = [other.name for other in machine.levels if other.name != level]
    free = replace(way, latency=dict.fromkeys(others, 0.0), bandwidth=dict.fromkeys(others, math.inf))
    return replace(machine, protocols=(free,))


def _rates(compute: Compute, rows: Sequence[Measured]) -> Compute:
    """The rates of one op: its launch, its bytes of memory, and its flops where they are not in proportion to these."""
    flops, touched, seconds = (np.array(c, float) for c in zip(
        *((step.flops, step.memory_bytes, s) for step, s in rows), strict=True))

    def of(parameters: np.ndarray) -> np.ndarray:
        op = _Op(*parameters.tolist())
        cache, spill = op.spilling
        moved = spilled(touched, cache, spill, np.maximum) * np.exp(op.byte)
        prices: np.ndarray = np.exp(op.launch) + np.maximum(flops * np.exp(op.flop), moved)
        return prices

    intensity = flops / np.maximum(touched, 1.0)
    if intensity.max() <= _PROPORTIONAL * intensity.min():
        flops = np.zeros_like(flops)
    fits = []
    for spills in (False, True):
        for parts in ((0.1, 0.8), (0.8, 0.1), (0.8, 0.8)) if flops.any() else ((0.1, 0.8),):
            flop, byte = (math.log(part * (float(np.min(seconds / np.maximum(what, 1e-300))) if what.any() else 1e-15))
                          for what, part in zip((flops, touched), parts, strict=True))
            start = _Op(math.log(float(np.quantile(touched, 0.75)) if spills else 1e30),
                        math.log(1.0 if spills else 1e-9), math.log(seconds.min() / 2), flop, byte)
            fits.append(_least_squares(of, np.array(start), seconds, () if spills else (0, 1)))
    best = _Op(*min(fits, key=lambda fit: fit[1])[0].tolist())
    cache, spill = best.spilling
    spills = cache < touched.max() and spill > 1.01
    launch, flop, byte = (math.exp(value) for value in (best.launch, best.flop, best.byte))
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
    """Parameters of least squares by Huber's function, the ``fixed`` ones as given, and the fit's criterion."""
    free = np.array([i for i in range(len(start)) if i not in fixed])
    target = np.log(seconds)

    def at(values: np.ndarray) -> np.ndarray:
        parameters = start.copy()
        parameters[free] = values
        return parameters

    def residuals(values: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            found = np.log(of(at(values))) - target
        return np.where(np.isfinite(found), found, 50.0)

    # Bounds keep parameters finite that hardly change a price.
    found = least_squares(residuals, start[free], bounds=(start[free] - _FAR, start[free] + _FAR), loss="huber",
                          f_scale=_OUTLIER, ftol=1e-6, xtol=1e-6, max_nfev=_EVALUATIONS)
    n = len(seconds)
    return at(found.x), 2 * n * math.log(max(float(np.abs(found.fun).mean()), 1e-4)) + len(free) * math.log(n)
