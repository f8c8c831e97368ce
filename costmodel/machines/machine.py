"""Machines: levels of fabrics, the protocols that a communication library runs on them, and compute of the devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from eggshard.costmodel.columns import StepColumns
from eggshard.costmodel.combining import Combinable
from eggshard.costmodel.compute import Compute, check_spill, spilled
from eggshard.costmodel.machines import algorithms
from eggshard.costmodel.machines.algorithms import Span
from eggshard.costmodel.machines.machine_table import Row, table_of
from eggshard.costmodel.machines.topologies import Fabric, Torus
from eggshard.costmodel.positions import Extents, Positions
from eggshard.costmodel.protocol import StepInfo
from eggshard.errors import CostModelError
from eggshard.program.mesh import Mesh
from eggshard.tables import Shown

#: Bytes at which groups of several shapes are compared to find the slowest; groups of one shape are equally fast.
_TYPICAL = 1 << 20


@dataclass(frozen=True)
class Level:
    """One level of a machine. units: how many units of the level below it joins (0: as many as there are).

    algorithms: names of those that collectives may take there (none: all that the fabric has). shared: whether the
    devices of a unit share its link, as those of a host share its network card; else each has one.
    """

    name: str
    fabric: Fabric
    units: int = 0
    algorithms: tuple[str, ...] = ()
    shared: bool = False


@dataclass(frozen=True)
class Protocol:
    """A way to send messages; collectives take the protocol that is fastest for their size.

    launch: seconds per collective. latency, bandwidth: factors of those of the fabrics, or such per level by name.
    cache, spill: bytes on the wire past so many take so many times longer (devices that share a host's caches). memory:
    bytes per second at which operands are read, results written and both copied besides. run: seconds per piece copied.
    channel, part: bytes per second of a message of up to ``part`` bytes; a longer one has several such channels, and
    takes no longer until they fill the links (NCCL doubles their number, calcP2pChannelCount in src/enqueue.cc).
    at_once: messages to different devices that a device sends in the time of one latency.
    kinds: the steps that it is for (none: all); where some protocol names a kind, no other is taken for it. algorithms:
    those that it runs on the innermost level that a collective spreads over (none: all).
    """

    name: str = "default"
    launch: float = 0.0
    latency: float | Mapping[str, float] = field(default=1.0, hash=False)
    bandwidth: float | Mapping[str, float] = field(default=1.0, hash=False)
    kinds: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ()
    cache: float = math.inf
    spill: float = 1.0
    memory: float = math.inf
    run: float = 0.0
    channel: float = math.inf
    part: float = math.inf
    at_once: int = 1

    def __post_init__(self) -> None:
        if not self.memory > 0:
            raise CostModelError(f"protocol {self.name!r}: memory is a rate above zero; got {self.memory}")
        if not (self.channel > 0 and self.part > 0 and self.at_once >= 1):
            raise CostModelError(
                f"protocol {self.name!r}: channel is a rate and part bytes, above zero, and at_once a number from 1; "
                f"got {self.channel}, {self.part} and {self.at_once}")
        check_spill(f"protocol {self.name!r}", self.cache, self.spill)
        if not (self.launch >= 0 and math.isfinite(self.launch)):
            raise CostModelError(
                f"protocol {self.name!r}: launch is seconds, finite and not negative; got {self.launch}")

    @property
    def bends(self) -> tuple[float, ...]:
        """What makes its seconds no line over the bytes."""
        return self.cache, self.spill, self.channel, self.part

    def carrying(self, wire: Any, messages: Any, per_byte: Any, greater: Callable[[Any, Any], Any]) -> Any:
        """Seconds that the bytes of so many messages take on links of this rate, of numbers or of arrays."""
        seconds = spilled(wire, self.cache, self.spill, greater) * per_byte
        if self.channel == math.inf:
            return seconds
        return greater(seconds, -greater(-wire, -messages * self.part) / self.channel)

    def on(self, level: Level, flows: int = 1) -> Fabric:
        """The level's fabric as this protocol uses it; flows: how many devices share a link."""
        latency, bandwidth = (
            f.get(level.name, 1.0) if isinstance(f, Mapping) else f for f in (self.latency, self.bandwidth))
        fabric = level.fabric
        return replace(fabric, latency=fabric.latency * latency, bandwidth=fabric.bandwidth * bandwidth / flows)


@dataclass(frozen=True)
class Option:
    """One way to run a collective. latency: seconds besides the bytes; per_byte: seconds per byte on the wire.

    way: the protocol, for what else it says.
    """

    protocol: str
    algorithm: str
    latency: float
    per_byte: float
    way: Protocol = field(repr=False)


@dataclass(frozen=True)
class _Permute:
    """A way to send to one device: seconds per message, per hop, and per byte over one hop."""

    way: Protocol
    hop: float
    per_byte: float
    distance: float
    spread: float
    counts_hops: bool


@dataclass(frozen=True, repr=False)
class Machine(Shown, Combinable):
    """Prices collectives by the fastest algorithm and protocol that the machine has, and compute by a roofline.

    levels: the inner first; every level but the last has a number of units. axes: by mesh axis the name of the level
    that it lies on; by default the minor-most lie innermost. overlap, capacity: as in `CostModel`. devices: the kinds
    that JAX calls them. sources, disagreements: where the constants are from, by their names in a machine file. origin:
    where the machine is from: "a preset, not calibrated", "calibrated", a file; "" for one made in Python.
    """

    name: str
    levels: tuple[Level, ...]
    compute: Compute
    protocols: tuple[Protocol, ...] = (Protocol(),)
    overlap: float = 0.0
    capacity: float | None = None
    axes: Mapping[str, str] = field(default_factory=dict, hash=False)
    devices: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    disagreements: tuple[Mapping[str, object], ...] = field(default=(), compare=False, repr=False)
    origin: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        names = [level.name for level in self.levels]
        if not self.levels or len(set(names)) != len(names):
            raise CostModelError(f"machine {self.name!r} has levels {names}; give one or more, of different names")
        open_ = [level.name for level in self.levels[:-1] if not level.units]
        if open_:
            raise CostModelError(f"machine {self.name!r}: levels {open_} lack a number of units; only the last may")
        if not 0 <= self.overlap <= 1:
            raise CostModelError(f"machine {self.name!r}: overlap is a part, from 0 to 1; got {self.overlap}")
        unknown = sorted(set(self.axes.values()) - set(names))
        if unknown:
            raise CostModelError(f"machine {self.name!r} has no levels {unknown}; there are {names}")
        if not self.protocols:
            raise CostModelError(f"machine {self.name!r} has no protocols; give one, or leave them out")

    def __str__(self) -> str:
        rows = [Row(x.name, x.units, x.fabric, x.shared, x.algorithms) for x in self.levels]
        title = f"{self.name} ({self.origin})" if self.origin else self.name
        return table_of(title, rows, self.compute, [p.name for p in self.protocols], self.overlap)

    def placed(self, **axes: str) -> Machine:
        """Return a copy with mesh axes placed on named levels: ``machine.placed(data="network", model="node")``."""
        return replace(self, axes=axes)

    def seconds(self, step: StepInfo) -> float:
        """The price of a step."""
        if not step.communicates:
            if not step.flops and not step.memory_bytes:
                return 0.0
            local: float = self.compute.seconds(step, step.flops, step.memory_bytes, max)
            return local
        found = self._found(step)
        touched = step.memory_bytes + step.copied_bytes
        if isinstance(found, tuple):
            return min((_collective(o, step.messages, step.wire_bytes, touched, step.runs, max) for o in found),
                       default=0.0)
        mean = step.hops / step.messages
        return min(
            (_permute(o, step.messages, step.hops, step.wire_bytes, touched, mean, math.ceil, max)
             for o in found), default=0.0)

    def seconds_many(self, steps: StepColumns) -> np.ndarray:
        """The prices of many steps, ``[steps]``."""
        out = np.zeros(len(steps))
        for step, rows in zip(steps.heads, steps.rows, strict=True):
            whole = len(rows) == len(steps)
            wire, messages, flops, memory, hops, runs = (
                c if whole else c[rows] for c in (
                    steps.wire_bytes, steps.messages, steps.flops, steps.memory_bytes + steps.copied_bytes, steps.hops,
                    steps.runs))
            if not messages.any():
                out[rows] = self.compute.seconds(step, flops, memory, np.maximum)
                continue
            found = self._found(step)
            if not found:
                continue
            if isinstance(found, tuple):
                out[rows] = np.minimum.reduce(
                    [_collective(o, messages, wire, memory, runs, np.maximum) for o in found])
            else:
                mean = hops / np.maximum(messages, 1)
                out[rows] = np.minimum.reduce(
                    [_permute(o, messages, hops, wire, memory, mean, np.ceil, np.maximum) for o in found])
        return out

    def options(self, step: StepInfo) -> list[Option]:
        """The ways to run a collective that are the fastest for some size, by ascending latency."""
        found = self._found(step) if step.communicates else ()
        if isinstance(found, tuple):
            return list(found)
        distance = step.hops / step.messages if step.hops else 0.0
        return [Option(o.way.name, "direct", _permute(o, 1, distance, 0.0, 0.0, distance, math.ceil, max),
                       o.per_byte * (distance or o.spread) if o.counts_hops else o.per_byte, o.way) for o in found]

    def channels(self, axes: tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
        """The links that a collective over these axes holds: by level, and on a torus by its axis."""
        key = (axes, mesh)
        found = self._links.get(key)
        if found is None:
            found = self._links[key] = self._positions(mesh).links(axes)
        return found

    @cached_property
    def _links(self) -> dict[tuple[tuple[str, ...], Mesh], tuple[str, ...]]:
        return {}

    @cached_property
    def _known(self) -> dict[object, tuple[Option, ...] | list[_Permute]]:
        return {}

    @cached_property
    def _places(self) -> dict[Mesh, Positions]:
        return {}

    def _positions(self, mesh: Mesh) -> Positions:
        if mesh not in self._places:
            if self.axes:
                missing = {a.partition(":")[0] for a in mesh.axes} - set(self.axes)
                if missing:
                    raise CostModelError(f"machine {self.name!r} maps no axes {sorted(missing)} of {mesh} onto a level")
            levels = [(level.fabric, level.units) for level in self.levels]
            self._places[mesh] = Positions(mesh, [level.name for level in self.levels], levels, self.axes)
        return self._places[mesh]

    def _found(self, step: StepInfo) -> tuple[Option, ...] | list[_Permute]:
        """The ways to run a step: options for collectives of groups, a list for what sends to one device."""
        axes = tuple(a for a in step.axes or step.mesh.axes if step.mesh.axes[a] > 1)
        key = (step.kind, axes, step.mesh, step.group)
        found = self._known.get(key)
        if found is None:
            group = step.kind in algorithms.KINDS
            found = self._options(step.kind, axes, step) if group else self._permutes(step.kind, axes, step.mesh)
            self._known[key] = found
        return found

    def _spans(self, protocol: Protocol, extents: Extents, mesh: Mesh, kind: str) -> list[Span]:
        """How a group lies on each level that it spreads over, and on what links."""
        found, inside = [], 1
        for k, (level, (n, lines)) in enumerate(zip(self.levels, extents, strict=True)):
            if n > 1:
                flows = math.prod(self._positions(mesh).units[:k]) if level.shared else 1
                if kind == algorithms.HALO_EXCHANGE:  # of a group only the devices at either end of a unit
                    flows = max(1, flows // inside)
                found.append(Span(protocol.on(level, flows), n, lines, frozenset(level.algorithms) or None,
                                  protocol.at_once))
            inside *= n
        if protocol.algorithms and found:
            allowed = frozenset(protocol.algorithms)
            inner = found[0].algorithms
            found[0] = replace(found[0], algorithms=allowed if inner is None else allowed & inner)
        return found

    def _usable(self, kind: str) -> list[Protocol]:
        own = [p for p in self.protocols if kind in p.kinds]
        return own or [p for p in self.protocols if not p.kinds]

    def _options(self, kind: str, axes: tuple[str, ...], step: StepInfo) -> tuple[Option, ...]:
        if not axes or step.group == 1:
            return ()
        n = step.group
        per_wire = {algorithms.ALL_REDUCE: n / (2 * (n - 1))}.get(kind, n / (n - 1))
        positions = self._positions(step.mesh)
        ways: list[list[Option]] = []
        for extents in positions.extents(positions.groups(axes)):
            found = []
            for protocol in self._usable(kind):
                spans = self._spans(protocol, extents, step.mesh, kind)
                found += [
                    Option(protocol.name, term.algorithm, protocol.launch + term.latency, term.per_byte * per_wire,
                           protocol)
                    for term in algorithms.terms(kind, spans)
                ] if spans else []
            if not found:
                raise CostModelError(
                    f"machine {self.name!r} has no algorithm and protocol for {kind} over {axes} of {step.mesh}; allow "
                    "one in its levels and protocols"
                )
            ways.append(found)
        slowest = max(ways, key=lambda found: min(o.latency + _TYPICAL * o.per_byte for o in found))
        return tuple(_least(slowest))

    def _permutes(self, kind: str, axes: tuple[str, ...], mesh: Mesh) -> list[_Permute]:
        if not axes:
            return []
        positions = self._positions(mesh)
        ways = []
        for extents in positions.extents(positions.groups(axes)):
            found = []
            for protocol in self._usable(kind):
                if protocol.algorithms and "direct" not in protocol.algorithms:
                    continue
                span = self._spans(protocol, extents, mesh, kind)[-1]
                found.append(_Permute(protocol, span.fabric.latency, 1 / span.fabric.rate, algorithms.distance(span),
                                      algorithms.spread(span), isinstance(span.fabric, Torus)))
            if not found:
                raise CostModelError(f"machine {self.name!r} has no protocol for {kind}; allow one \"direct\"")
            ways.append(found)
        return max(ways, key=lambda found: min(
            o.way.launch + o.hop * o.distance + _TYPICAL * o.per_byte * o.spread for o in found))


def _least(options: list[Option]) -> list[Option]:
    """The options that are the least for some size: none that is nowhere less than another."""
    out: list[Option] = []
    for option in sorted(options, key=lambda o: (o.latency, o.per_byte)):
        if not any(o.per_byte <= option.per_byte and o.way.memory >= option.way.memory
                   and o.way.bends in (Protocol().bends, option.way.bends) for o in out):
            out.append(option)
    return out


def _collective(o: Option, messages: Any, wire: Any, touched: Any, runs: Any,
                greater: Callable[[Any, Any], Any]) -> Any:
    """Seconds of collectives of groups, of numbers or of arrays."""
    carried = o.way.carrying(wire, messages, o.per_byte, greater)
    return messages * o.latency + carried + touched / o.way.memory + runs * o.way.run


def _permute(o: _Permute, messages: Any, hops: Any, wire: Any, touched: Any, mean: Any, ceil: Callable[[float], Any],
             greater: Callable[[Any, Any], Any]) -> Any:
    """Seconds of messages to one device each, of numbers or of arrays. mean: hops per message, 0 where not known."""
    passed, per_byte = messages, o.per_byte
    if o.counts_hops:
        known = mean > 0
        passed = known * hops + (1 - known) * messages * ceil(o.distance)
        per_byte = o.per_byte * (known * mean + (1 - known) * o.spread)
    carried = o.way.carrying(wire, messages, per_byte, greater)
    return messages * o.way.launch + passed * o.hop + carried + touched / o.way.memory
