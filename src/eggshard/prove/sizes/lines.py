"""Dimensions along which windows pass, and how short they may be.

Every position that an op or step states along such a dimension is one of a line: so many blocks of n places, and a few
more or less. Elements far from where blocks meet are computed alike, each from places near its own. So at any length
of blocks that has all kinds of places, those near either end and some in between, elements are what they are at any
other such length, in other variables. `Lines` finds the dimensions that windows join, and counts how far what is not
alike reaches from the ends of blocks (*edges*), and from how far away elements are made (*reach*).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from eggshard.ops import registry
from eggshard.ops.regions.counted_loops import find_counter, integer
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType
from eggshard.prove.sizes.classes import Classes, Container, Inner, Node, Path, Place, groups, inner_of, items, named
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import Local, Mask, Resize, Step
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, WindowExchange

#: Ops that put parts of their operand before and behind it.
_WIDENED = ("wrap", "extend")
#: Positions are at most this part of a block from where blocks meet.
_PART = 8


class Source(NamedTuple):
    """Where a window lies in an operand: result index j is made of those from ``j + first`` to ``j + last``, or, where
    mirrored, of ``first - j`` to ``last - j``."""

    place: Place
    first: int = 0
    last: int = 0
    mirrored: bool = False


class Window(NamedTuple):
    """How a dimension of a result is made. edges: where it is made in another way than before; spread: by how much a
    fill repeats what lies elsewhere; tiles: what devices' positions are multiples of."""

    result: Place
    sources: tuple[Source, ...]
    edges: tuple[int, ...]
    spread: int = 0
    tiles: tuple[int, ...] = ()


class Extent(NamedTuple):
    """Of a value's dimension, relative to where blocks meet: between which indices elements are made in ways of their
    own, and how far from their own indices what they are made of lies in the inputs."""

    low: int = 0
    high: int = 0
    first: int = 0
    last: int = 0

    def joined(self, other: Extent) -> Extent:
        return Extent(min(self.low, other.low), max(self.high, other.high), min(self.first, other.first),
                      max(self.last, other.last))

    @property
    def most(self) -> int:
        return max(-self.low, self.high) + max(-self.first, self.last)


def windows(item: Op | Step, types: Sequence[TensorType]) -> Iterator[Window]:
    """The windows of an op or step on operands and results of these types."""
    op = named(item)
    if op is not None:
        if not (isinstance(item, Step) and isinstance(item.action, Local) and item.action.sized):
            yield from _of_op(*op[:2], len(item.operands), types)
        return
    assert isinstance(item, Step)
    action, count = item.action, len(item.operands)
    match action:
        case Crop():
            yield _moved(0, 1, action.dim, types, action.offsets)
        case WindowExchange():
            for k, part in enumerate(action.exchanges):
                moved = _moved(k, count + k, part.dim, types, part.offsets)
                sources, edges = list(moved.sources), list(moved.edges)
                for slab in part.rounds:
                    starts = [(slab.source_starts[s], slab.target_starts[r]) for s, r in slab.pairs]
                    sources += [Source((k, part.dim), s - t, s - t) for s, t in starts]
                    edges += [e for _, t in starts for e in (t, t + slab.width)]
                yield moved._replace(sources=tuple(sources), edges=tuple(edges))
        case EdgeFill():
            low, high = action.window.low, action.window.high
            yield Window((1, action.dim), (Source((0, action.dim)),), (-low, action.size - low),
                         2 * max(-low, high, low, -high), (action.window.tile,))
        case BoxSelect():
            for dim, window, start, stop in action.box:
                of = tuple(Source((i, dim)) for i in range(count) if types[i].rank)
                yield Window((count, dim), of, (start - window.low, stop - window.low),
                             tiles=(window.tile,))
        case Mask():
            yield Window((1, action.dim), (Source((0, action.dim)),), (action.size,),
                         tiles=(types[0].shape[action.dim],))
        case Resize():
            for d, (n, m) in enumerate(zip(types[0].shape, action.shape, strict=True)):
                if n != m:
                    yield Window((1, d), (Source((0, d)),), (n, m))


def _moved(operand: int, result: int, dim: int, types: Sequence[TensorType], offsets: Sequence[int]) -> Window:
    """A shard that lies in the new one from an offset of each device on."""
    n = types[operand].shape[dim]
    sources = tuple(Source((operand, dim), -o, -o) for o in dict.fromkeys(offsets))
    return Window((result, dim), sources, tuple(e for o in dict.fromkeys(offsets) for e in (o, o + n)))


def _of_op(name: str, attributes: object, operands: int, types: Sequence[TensorType]) -> Iterator[Window]:
    reaches = registry.get(name).reaches(attributes, tuple(types[:operands]), tuple(types[operands:]))  # type: ignore[arg-type]
    found: dict[int, list[Source]] = {}
    edges: dict[int, list[int]] = {}
    for i, row in enumerate(reaches or ()):
        for e, reach in enumerate(row):
            if reach is None or reach.scale != 1 or reach.divisor != 1:
                continue
            found.setdefault(reach.dim, []).append(Source((i, e), reach.first, reach.last, reach.mirrored))
            n, sign = types[i].shape[e], -1 if reach.mirrored else 1
            edges.setdefault(reach.dim, []).extend(
                sign * (at - o) for at in (0, n) for o in (reach.first, reach.last))
    spread = 0
    if name in _WIDENED:
        added, n = attributes["lhs"] + attributes["rhs"], types[0].shape[attributes["dimension"]]  # type: ignore[index]
        if 2 * added > n:  # what is repeated reaches over any place where the dimension could be cut
            return
        spread = 2 * added if name == "extend" else 0
    for d, sources in found.items():
        yield Window((operands, d), tuple(sources), tuple(edges[d]), spread)


class Lines(Classes):
    """Classes of dimensions that windows join; those that keep their sizes, and what the others may be cut to."""

    def __init__(self) -> None:
        super().__init__()
        self._moved: set[Node] = set()
        self._kept: set[Node] = set()
        self._sizes: dict[Node, int] = {}
        self._blocks: dict[Node, int] = {}
        self._most: dict[Node, int] = {}

    def keep(self, node: Node) -> None:
        """A dimension keeps its size, and all that are joined to it."""
        self._kept.add(node)

    def visit(self, path: Path, container: Container) -> None:
        """Enter a region or device program, and those in it."""
        self.visited.append((path, container))
        for v, type_ in enumerate(container.types):
            for d, n in enumerate(type_.shape):
                self._sizes[path, v, d] = n
        for number, item in enumerate(items(container)):
            values = (*item.operands, *item.results)
            types = [container.types[v] for v in values]
            free: set[Place] = set()

            def node(place: Place, values: Sequence[int] = values) -> Node:
                return path, values[place[0]], place[1]

            for window in windows(item, types):
                for source in window.sources:
                    self.join(node(window.result), node(source.place))
                    free |= {window.result, source.place}
                self._moved.add(node(window.result))
            for group in groups(item, types):
                for place in group.places:
                    self.join(node(group.places[0]), node(place))
                if any(i >= len(item.operands) for i, _ in group.places):
                    free |= {*group.places}
            op = named(item)
            if op is not None and op[0] == "iota":
                free.discard((0, op[1]["iota_dimension"]))
            programs = list(inner_of(path, number, item))
            for i, t in enumerate(types if not programs else ()):
                for d in range(t.rank):
                    if (i, d) not in free:
                        self.keep(node((i, d)))
            for inner in programs:
                self.visit(inner.path, inner.container)
                for outer, own in ((inner.inputs, inner.container.inputs), (inner.outputs, inner.container.outputs)):
                    for v, w in zip(outer, own, strict=False):
                        for d in range(container.types[v].rank):
                            self.join((path, v, d), (inner.path, w, d))

    def settle(self, containers: Sequence[tuple[Path, Container]]) -> None:
        """Find out, once everything was visited, what may be cut."""
        kept = {self.find(node) for node in self._kept}
        for path, container in self.visited:
            for v, type_ in enumerate(container.types):
                roots = [self.find((path, v, d)) for d in range(type_.rank)]
                kept |= {root for root in roots if roots.count(root) > 1}
        sizes: dict[Node, list[int]] = {}
        for node, n in self._sizes.items():
            sizes.setdefault(self.find(node), []).append(n)
        for root in {self.find(node) for node in self._moved} - kept:
            found = _block(sizes[root])
            if found:
                self._blocks[root] = found
        for path, container in containers:
            self._follow(path, container, None)

    def block(self, node: Node) -> tuple[int, int] | None:
        """The places of a block and how many of them suffice; None for what keeps its size here."""
        root = self.find(node)
        if root not in self._blocks:
            return None
        n, most = self._blocks[root], self._most.get(root, 0)
        # Edges and reaches from either end, and places between them on both sides of where a mirrored index meets its
        # own, whose parity is kept.
        left = 2 * most + 6 + n % 2
        return (n, left) if left < n else None

    def moved(self, node: Node, position: int) -> int:
        """A position, or size, along a dimension at the new length."""
        found = self.block(node)
        if found is None:
            return position
        n, left = found
        blocks, more = _place(position, n)
        return blocks * left + more

    def _more(self, node: Node, position: int) -> int:
        """How far a position is from where blocks meet; what is too far keeps its size."""
        root = self.find(node)
        if root not in self._blocks:
            return 0
        more = _place(position, self._blocks[root])[1]
        if abs(more) * _PART > self._blocks[root]:
            del self._blocks[root]
            return 0
        return more

    def exact(self, node: Node, size: int) -> None:
        """A size that is not made of whole blocks keeps all sizes of its dimension."""
        if self._more(node, size):
            self._blocks.pop(self.find(node), None)

    def _note(self, node: Node, extent: Extent) -> Extent:
        root = self.find(node)
        size = self._more(node, self._sizes[node])
        extent = extent.joined(Extent(min(size, 0), max(size, 0), extent.first, extent.last))
        self._most[root] = max(self._most.get(root, 0), extent.most)
        if root in self._blocks and 2 * extent.most > self._blocks[root]:
            del self._blocks[root]
        return extent if root in self._blocks else Extent()

    def _follow(self, path: Path, container: Container, given: Sequence[tuple[Extent, ...]] | None
                ) -> list[tuple[Extent, ...]]:
        """The extents of a region's or device program's outputs, of the inputs' (as they are, unless given)."""
        extents: dict[int, tuple[Extent, ...]] = {}
        for k, v in enumerate(container.inputs):
            own = (Extent(),) * container.types[v].rank if given is None else given[k]
            extents[v] = tuple(self._note((path, v, d), e) for d, e in enumerate(own))
        for number, item in enumerate(items(container)):
            inner = list(inner_of(path, number, item))
            operands = [extents[v] for v in item.operands]
            if not inner:
                made = self._made(path, item, operands, container)
            elif len(inner) == 2 and not inner[0].outputs:
                made = self._loop(_trips(container, item), operands, *inner)
            else:
                made = _hull([self._follow(i.path, i.container, operands[1:]) for i in inner])
            for v, own in zip(item.results, made, strict=True):
                extents[v] = tuple(self._note((path, v, d), e) for d, e in enumerate(own))
        return [extents[v] for v in container.outputs]

    def _loop(self, trips: int | None, carried: list[tuple[Extent, ...]], condition: Inner, body: Inner
              ) -> list[tuple[Extent, ...]]:
        done = 0
        while trips is None or done < trips:
            self._follow(condition.path, condition.container, carried)
            after = _hull([carried, self._follow(body.path, body.container, carried)])
            if after == carried:
                break
            if trips is None:  # it grows, and nobody knows how often
                for v, old, new in zip(body.container.inputs, carried, after, strict=True):
                    for d in (d for d in range(len(old)) if old[d] != new[d]):
                        self._blocks.pop(self.find((body.path, v, d)), None)
            carried, done = after, done + 1
        return carried

    def _made(self, path: Path, item: Op | Step, operands: list[tuple[Extent, ...]], container: Container
              ) -> list[tuple[Extent, ...]]:
        values = (*item.operands, *item.results)
        types, count = [container.types[v] for v in values], len(item.operands)
        found: dict[Place, Extent] = {}
        for group in groups(item, types):
            own = [operands[i][d] for i, d in group.places if i < count]
            if len({types[i].shape[d] for i, d in group.places}) > 1:  # shards, of which blocks are all
                for i, d in group.places:
                    self.exact((path, values[i], d), types[i].shape[d])
            for place in (place for place in group.places if place[0] >= count):
                for extent in own:
                    found[place] = found[place].joined(extent) if place in found else extent
        for window in windows(item, types):
            node = (path, values[window.result[0]], window.result[1])
            for tile in window.tiles:
                self.exact(node, tile)
            edges = [self._more(node, edge) for edge in window.edges]
            extent = Extent(min(edges, default=0), max(edges, default=0))
            for source in window.sources:
                first, last = self._more(node, source.first), self._more(node, source.last)
                of = operands[source.place[0]][source.place[1]]
                if source.mirrored:
                    far = max(-of.first, of.last) + max(abs(first), abs(last))
                    moved = Extent(first - of.high, last - of.low, -far, far)
                else:
                    moved = Extent(of.low - last, of.high - first, of.first + first, of.last + last)
                extent = extent.joined(moved)
            wide = window.spread
            found[window.result] = Extent(
                extent.low - wide, extent.high + wide, extent.first - wide, extent.last + wide)
        return [
            tuple(found.get((k, d), Extent()) for d in range(types[k].rank)) for k in range(count, len(types))
        ]


def _hull(ways: Sequence[Sequence[tuple[Extent, ...]]]) -> list[tuple[Extent, ...]]:
    out = list(ways[0])
    for way in ways[1:]:
        out = [tuple(a.joined(b) for a, b in zip(x, y, strict=True)) for x, y in zip(out, way, strict=True)]
    return out


def _trips(container: Container, item: Op | Step) -> int | None:
    """How often a loop runs, if that is known."""
    if isinstance(item, Step):
        return item.action.trip_count if isinstance(item.action, Loop) else None
    counter = find_counter(*item.regions)
    assert isinstance(container, Region)
    start = None if counter is None else integer(
        next((op for op in container.ops if item.operands[counter.position] in op.results), None))
    return None if counter is None or start is None else counter.trips(start)


def _place(position: int, n: int) -> tuple[int, int]:
    """Whole blocks before the nearest place where blocks meet, and the places from there on."""
    blocks = (2 * position + n) // (2 * n)
    return blocks, position - blocks * n


def _block(sizes: Sequence[int]) -> int:
    """The places of a block, of which all sizes are multiples but for a few places; 0 for none."""
    best = (0, 0)
    for n in sorted(set(sizes)):
        more = [abs(_place(size, n)[1]) for size in set(sizes)] if n > 1 else [n]
        if max(more) * _PART <= n and (not best[1] or sum(more) <= best[0]):
            best = sum(more), n
    return best[1]
