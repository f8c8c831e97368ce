"""Times of collective algorithms: latency and bandwidth terms of the algorithms that machines run collectives with.

A term is a line over the bytes V of the collective: of an all-gather its result, of a reduce-scatter, an all-reduce and
an all-to-all the operand of one device, of a permute what a device sends. On one level:

- rings and recursive halving and doubling: Thakur, Rabenseifner and Gropp, "Optimization of collective communication
  operations in MPICH", 2005; Bruck's all-to-all there too;
- trees: Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009;
- rings in both directions, tori of several axes and their all-to-all: "How to scale your model", sharding chapter;
- in the switch: every device writes its part to a multicast address and reads its part of the sum (NVLink SHARP;
  Klenk et al., "An in-network architecture for accelerating shared-memory multiprocessor collectives", ISCA 2020);
- several levels: the inner one first where data is reduced, last where it is gathered, in chunks that pass all levels
  at once (Cho et al., "BlueConnect", MLSys 2019).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from eggshard.costmodel.machines.topologies import Fabric, FatTree, FullMesh, Switch, Torus

ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL = "all-gather", "reduce-scatter", "all-reduce", "all-to-all"
#: The kinds that have algorithms; all others that communicate are permutes.
KINDS = (ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL)
#: The kind of permute in which devices send to their neighbours in the group alone.
HALO_EXCHANGE = "halo-exchange"


@dataclass(frozen=True)
class Term:
    """latency: seconds whatever the size. per_byte: seconds per byte of V."""

    algorithm: str
    latency: float
    per_byte: float


@dataclass(frozen=True)
class Line:
    """How a group lies along one axis of a torus.

    n: devices. stride: the links between two of them, which as many groups share. closed: whether they are a ring.
    """

    n: int
    stride: int = 1
    closed: bool = False

    @property
    def directions(self) -> int:
        return 2 if self.closed else 1

    @property
    def hops(self) -> int:
        """Links that data passes from end to end, at most."""
        return self.stride * (self.n // 2 if self.closed else self.n - 1)


@dataclass(frozen=True)
class Span:
    """How a group lies on one level of a machine: over so many units, and along which axes of a torus.

    algorithms: those that may run there (None: all). at_once: messages that a device has under way at once.
    """

    fabric: Fabric
    n: int
    lines: tuple[Line, ...] = ()
    algorithms: frozenset[str] | None = None
    at_once: int = 1

    def allowed(self, terms: Iterator[Term]) -> list[Term]:
        """The terms of algorithms that the level has, without those that are never the least."""
        return undominated([t for t in terms if self.algorithms is None or t.algorithm in self.algorithms])


def undominated(terms: Sequence[Term]) -> list[Term]:
    """The terms that are the least for some number of bytes, by ascending latency."""
    out: list[Term] = []
    for term in sorted(terms, key=lambda t: (t.latency, t.per_byte)):
        if not out or term.per_byte < out[-1].per_byte:
            out.append(term)
    return out


def gathers(span: Span) -> Iterator[Term]:
    """An all-gather or a reduce-scatter on one level."""
    fabric, n = span.fabric, span.n
    alpha, part = fabric.latency, (n - 1) / n
    if isinstance(fabric, Torus):
        if all(line.closed or line.n == 2 for line in span.lines):
            hops = sum((line.n - 1) * line.stride for line in span.lines)
            yield Term("ring", hops * alpha, _in_turn(span.lines, lambda line: line.stride / fabric.rate))
        hops = sum(line.hops for line in span.lines)
        yield Term("bidirectional-ring", hops * alpha,
                   _in_turn(span.lines, lambda line: line.stride / (line.directions * fabric.rate)))
        if len(span.lines) > 1:
            yield Term("multi-axis", hops * alpha, part / _links(span))
        return
    if isinstance(fabric, FullMesh):
        yield Term("direct", alpha, 1 / n / fabric.rate)
        return
    rate = fabric.rate * (fabric.neighbours(n) if isinstance(fabric, FatTree) else 1.0)
    yield Term("ring", (n - 1) * alpha, part / rate)
    yield Term("recursive-halving", _rounds(n) * alpha, part / fabric.rate / _across(fabric, n))
    if isinstance(fabric, Switch) and fabric.reduces:
        yield Term("in-switch", alpha, part / (fabric.rate * fabric.reduction_efficiency))


def all_reduces(span: Span) -> Iterator[Term]:
    """An all-reduce on one level: a reduce-scatter and an all-gather, or whole."""
    fabric, n = span.fabric, span.n
    for term in gathers(span):
        if term.algorithm != "in-switch":
            yield Term(term.algorithm, 2 * term.latency, 2 * term.per_byte)
    if isinstance(fabric, Torus):
        return
    if not isinstance(fabric, FullMesh):
        yield Term("tree", 2 * _rounds(n) * fabric.latency, 2 / fabric.rate / _across(fabric, n))
    if isinstance(fabric, Switch) and fabric.reduces:
        yield Term("in-switch", 2 * fabric.latency, (n + 1) / n / (fabric.rate * fabric.reduction_efficiency))


def all_to_alls(span: Span) -> Iterator[Term]:
    """An all-to-all on one level."""
    fabric, n = span.fabric, span.n
    alpha = fabric.latency
    if isinstance(fabric, Torus):
        hops = sum(line.hops for line in span.lines)
        loads = [(line.n ** 2 // 4) / line.n * line.stride / (line.directions * fabric.rate) for line in span.lines]
        yield Term("bidirectional-ring", hops * alpha, sum(loads))
        yield Term("multi-axis", hops * alpha, max(loads))
    elif isinstance(fabric, FullMesh):
        yield Term("direct", alpha, 1 / n / fabric.rate)
    else:
        rate = fabric.rate * _across(fabric, n)
        yield Term("direct", max(1.0, (n - 1) / span.at_once) * alpha, (n - 1) / n / rate)
        yield Term("bruck", _rounds(n) * alpha, _rounds(n) / 2 / rate)


def terms(kind: str, spans: Sequence[Span]) -> list[Term]:
    """The algorithms of a collective over a group on several levels, the inner first, each of several units."""
    if kind in (ALL_GATHER, REDUCE_SCATTER):
        return undominated([t for chosen in product(*(s.allowed(gathers(s)) for s in spans))
                            for t in _levels(chosen, _shares(spans))])
    if kind == ALL_REDUCE:
        inner, outer = spans[:-1], spans[-1]
        options = [[Term(t.algorithm, 2 * t.latency, 2 * t.per_byte) for t in s.allowed(gathers(s))] for s in inner]
        return undominated([t for chosen in product(*options, outer.allowed(all_reduces(outer)))
                            for t in _levels(chosen, _shares(spans))])
    if kind == ALL_TO_ALL:
        devices = math.prod(s.n for s in spans)
        inside, shares = 1, []
        for span in spans:  # what leaves a unit of the level below and stays in one of this
            shares.append((span.n - 1) * inside / devices * span.n / (span.n - 1))
            inside *= span.n
        return undominated([t for chosen in product(*(s.allowed(all_to_alls(s)) for s in spans))
                            for t in _levels(chosen, shares)])
    raise ValueError(f"{kind} is no collective of a group")


def distance(span: Span) -> float:
    """Links that a permute's data passes on average where nothing is known of its pattern, at least one."""
    if not span.lines:
        return 1.0
    return max(1.0, sum(line.stride * line.n / (4 if line.closed else 3) for line in span.lines))


def spread(span: Span) -> float:
    """The part of that distance which one link carries: data goes along all axes and in all directions."""
    ways = sum(line.directions for line in span.lines)
    return max(1.0, distance(span) / ways) if span.lines else 1.0


def _levels(chosen: Sequence[Term], shares: Sequence[float]) -> Iterator[Term]:
    """One algorithm per level, each on its share of the bytes, pipelined: the slowest level's bytes count."""
    if len(chosen) == 1:
        yield Term(chosen[0].algorithm, chosen[0].latency, chosen[0].per_byte * shares[0])
        return
    name, latency = "+".join(t.algorithm for t in chosen), sum(t.latency for t in chosen)
    loads = [t.per_byte * share for t, share in zip(chosen, shares, strict=True)]
    yield Term(name, latency, max(loads))


def _shares(spans: Sequence[Span]) -> list[float]:
    """The part of the bytes that a gathering or reducing level sees: of an outer one, what a device of an inner has."""
    shares, inside = [], 1
    for span in spans:
        shares.append(1 / inside)
        inside *= span.n
    return shares


def _links(span: Span) -> float:
    return sum(line.directions * span.fabric.rate / line.stride for line in span.lines)


def _in_turn(lines: Sequence[Line], per_byte: Callable[[Line], float]) -> float:
    """Axes one after the other, the fastest while there are most bytes."""
    total, share = 0.0, 1.0
    for line in sorted(lines, key=per_byte):
        total += share * (line.n - 1) / line.n * per_byte(line)
        share /= line.n
    return total


def _rounds(n: int) -> int:
    return (n - 1).bit_length()


def _across(fabric: Fabric, n: int) -> float:
    return fabric.pairs(n) if isinstance(fabric, FatTree) else 1.0
