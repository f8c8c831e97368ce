"""Candidate windows of classes: the windows that consumers access, and the bounding windows that serve several of them.

From standard placements of the results of ops that access neighbours, their needs are followed back through the
program: an operand may be computed at that window, and so needs wider windows of its own operands, or be expanded by a
halo exchange. One exchange should serve all that a value's consumers need; so each value is expanded to, or computed
at, the bounding window of its consumers' windows: of the narrowest, of the next wider ones, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from eggshard.egraph.graph import EGraph, ENode
from eggshard.ops import registry
from eggshard.placement.transfer import Strategy
from eggshard.placement.window_transfer import WindowTransfer
from eggshard.placement.windows import covers, trimmed
from eggshard.planner.encoding.bounding import axes_of, bounding_windows, clusters, grid_of, touch, width_of, within
from eggshard.planner.encoding.logical_dims import Axes, LogicalDims
from eggshard.planner.encoding.tilings import Tilings
from eggshard.planner.encoding.views import Views
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement, is_standard
from eggshard.reshard.window_routes import contains, home
from eggshard.selection.graph import strong_components

#: A node's transfer on windows; None for one that must have its operands at standard placements.
TransferSource = Callable[[int, ENode], WindowTransfer | None]


class Held(NamedTuple):
    """Windows of a value that some users take, and the windows that bound several, to which halos may expand it."""

    windows: list[Placement]
    bounding_windows: list[Placement]


class WindowDemand:
    """The windows that a graph's classes may be needed, and computed, at. Keys are groups of views; core placements.

    needed[g]: windows that some consumer takes, each with its level: how many values on the way to the results are
    computed wide, at least, although they might be exchanged. made[g]: bounding windows of them, at which the class may
    be computed.
    """

    def __init__(self, graph: EGraph, views: Views, mesh: Mesh, transfers: TransferSource,
                 inputs: Sequence[tuple[int, Placement]], outputs: Sequence[tuple[int, Placement]], limit: int):
        self.graph, self.views, self.mesh, self.outputs, self.limit = graph, views, mesh, outputs, limit
        pinned = (*inputs, *outputs)
        #: The classes of each group.
        self.members: dict[int, list[int]] = {}
        for c in range(len(graph.classes)):
            self.members.setdefault(views.group[c], []).append(c)
        #: The groups that take part, consumers before operands.
        self.order: list[int] = []
        self.needed: dict[int, dict[Placement, int]] = {}
        #: Standard placements that some consumer takes.
        self.wanted: dict[int, dict[Placement, int | None]] = {}
        #: Windows of values that are others moved, where a node accesses them as it accesses windows of their grid.
        self.tiles: dict[int, dict[Placement, None]] = {}
        self.made: dict[int, list[Placement]] = {}
        #: Where inputs lie.
        self.given: dict[int, list[Placement]] = {}
        #: Standard placements from which windows of other tiles are widened.
        self.moved: dict[int, set[Placement]] = {}
        self.tilings = Tilings(views, mesh, inputs)
        #: Per class the node that computes it on windows: its number, and its transfer.
        self.nodes: dict[int, tuple[int, ENode, WindowTransfer]] = {}
        for c in range(len(graph.classes)):
            self._choose_node(c, transfers)
        self._users = self._drop_unused([c for c, _ in pinned])
        self.dims = LogicalDims(views, pinned, [(c, node, t) for c, (_, node, t) in self.nodes.items()])
        for c, p in inputs:
            self.given.setdefault(views.group[c], []).append(views.to_core(c, p))
        for c, p in pinned:
            at = self.needed if p.windowed and (c, p) in outputs else self.wanted
            at.setdefault(views.group[c], {})[views.to_core(c, p)] = 0

    def close(self) -> WindowDemand:
        """Follow the needs back, consumers before operands, twice where classes are computed from one another."""
        if not any(t.windowed or t.summed for _, _, t in self.nodes.values()):
            return self
        classes = self.graph.classes
        group = self.views.group
        members = self.members
        for c in self._users:  # what takes its operands at any standard placement
            for p in self.nodes[c][2].standard() if c in self.nodes else ():
                if self.dims.allows(c, p):
                    self.wanted.setdefault(group[c], {})[self.views.to_core(c, Placement(p.dims))] = None
        operands: list[list[int]] = [[] for _ in classes]
        for c in range(len(classes)):
            for node in self._taking_part(c):
                operands[group[c]] += [group[child] for child in node.children if group[child] != group[c]]
        components = strong_components(operands)
        for component in components:
            for g in component:
                self.tilings.follow(self.members.get(g, ()), self.nodes, self.dims)
        self.order = [g for component in reversed(components) for g in component if g in members]
        for component in reversed(components):
            for _ in range(1 if len(component) == 1 else 2):
                for g in component:
                    if g in members:
                        self._visit(g)
        return self

    def _choose_node(self, c: int, transfers: TransferSource) -> None:
        """Choose the node through which windows of a class are computed.

        It is the one with the fewest operands accessed at offsets; among those a rotation, whose wrapped windows can be
        computed, too; then one that accesses less than half of what the program's own node does (a slice of a slice
        along another dimension); else that. Other nodes would exchange the same elements in other forms (pads of slices
        for slices of a pad, say). A pointwise op of what a rule has moved is the last choice: through it, what was
        computed before it was moved could be computed wide, but not exchanged; and so is a reshape that joins
        dimensions, which has no windows along these. Inputs are given and have none.
        """
        eclass = self.graph.classes[c]
        found = []
        if self._is_input(c):
            return
        for n, node in enumerate(eclass.nodes):
            if eclass.is_tuple or self.views.is_view(c, node):
                continue
            transfer = transfers(c, node)
            if transfer is not None:
                reaching = sum(any(r is not None for r in row) for row in transfer.reaches)
                ruled = bool(node.rules)
                before = ruled and not reaching and registry.get(node.op).pointwise
                merges = not ruled and any(len(factors) > 1 for factors in transfer.rule.results[0])
                exchanged = sum(
                    self.graph.type_of(child).elements
                    for child, row in zip(node.children, transfer.reaches, strict=True) if any(row))
                kind = before or merges, reaching, not transfer.periodic
                found.append((kind, exchanged, ruled, n, node, transfer))
        if found:
            own = min((exchanged for _, exchanged, ruled, *_ in found if not ruled), default=0)
            *_, n, node, transfer = min(found, key=lambda x: (x[0], x[1] if 2 * x[1] <= own else own, *x[2:4]))
            self.nodes[c] = n, node, transfer

    def _is_input(self, c: int) -> bool:
        return any(node.op == "input" for node in self.graph.classes[c].nodes)

    def _taking_part(self, c: int) -> Sequence[ENode]:
        """The nodes by which a class is computed: the chosen one, or any, of those that know no windows."""
        if c in self.nodes:
            return [self.nodes[c][1]]
        return () if self._is_input(c) else self.graph.classes[c].nodes

    def _drop_unused(self, roots: Iterable[int]) -> set[int]:
        """Keep the nodes that others, or the roots, use where every class is computed by its chosen node.

        Returns the classes that nodes without a transfer use.
        """
        stack, seen, users = [*roots, *self.graph.effects], set[int](), set[int]()
        while stack:
            c = stack.pop()
            if c in seen:
                continue
            seen.add(c)
            nodes = self._taking_part(c)
            children = [child for node in nodes for child in node.children]
            stack.extend(children)
            if c not in self.nodes:
                users.update(child for n in nodes if not self.views.is_view(c, n) for child in n.children)
        self.nodes = {c: chosen for c, chosen in self.nodes.items() if c in seen}
        return users

    def node_of(self, c: int) -> int | None:
        """The number of the node that computes a class on windows."""
        return self.nodes[c][0] if c in self.nodes else None

    def reaches(self, g: int) -> bool:
        """Whether a value is computed by looking at neighbours."""
        return any(self.nodes[c][2].windowed for c in self._computing(g))

    def moves(self, g: int) -> bool:
        """Whether a value is just another one in another place, padded or cut: either may be held wider as well."""
        transfers = [self.nodes[c][2] for c in self._computing(g)]
        return bool(transfers) and all(t.moves for t in transfers)

    def _skips(self, g: int) -> bool:
        """Whether a value leaves out some of what it looks at, between what it takes."""
        rows = (row for c in self._computing(g) for row in self.nodes[c][2].reaches)
        return any(r is not None and r.first == r.last and r.scale > r.divisor for row in rows for r in row)

    def _lies_elsewhere(self, g: int) -> bool:
        """Whether a value is an input, or left where operands lie, over the axes of none of its windows."""
        axes = {axes_of(p) for p in (*self.given.get(g, ()), *self.tilings.left.get(g, ()))}
        return bool(axes) and axes.isdisjoint(axes_of(p) for p in self.made[g])

    def _computing(self, g: int) -> list[int]:
        """The classes of a group that nodes compute on windows."""
        return [c for c in self.members.get(g, ()) if c in self.nodes]

    def _computed(self, g: int, window: Placement) -> bool:
        """Whether some node computes a value at a window."""
        return any(True for c in self._computing(g) for _ in self.strategies(c, self.views.from_core(c, window)))

    def strategies(self, c: int, placement: Placement) -> Iterator[Strategy]:
        """The strategies that compute a class at a placement, as far as its and its operands' groups have those."""
        _, node, transfer = self.nodes[c]
        if self.views.represents(c, placement):
            for strategy in transfer.at(placement):
                placed = list(zip(node.children, strategy.operands, strict=True))
                allowed = not transfer.sums(strategy) or self.dims.allows(*placed[-1])
                if allowed and all(self.views.represents(*pair) for pair in placed):
                    yield strategy

    def reductions(self, c: int) -> Iterator[Strategy]:
        """The strategies that reduce over tiles on which operands are left, to placements that are wanted."""
        if c in self.nodes and self.nodes[c][2].reduces:
            _, node, transfer = self.nodes[c]
            yield from self.tilings.reduced(
                node, transfer, (base for p in self.at_wanted(c) for base in self.strategies(c, p)))

    def homes(self, c: int) -> list[Placement]:
        """Standard placements at which a class is wanted, over which, or at whose partial sums, its node looks at
        neighbours."""
        if c not in self.nodes:
            return []
        transfer = self.nodes[c][2]
        return [p for p in self.at_wanted(c)
                if (p.partial and transfer.summed) or any(p.dims[d].axes for d in transfer.windowed)]

    def at_wanted(self, c: int) -> list[Placement]:
        """The standard placements at which users want a class, or which lead there by combining partial values or by
        moving what lies along other dimensions than those that are reached along: these, as on inputs and outputs."""
        transfer = self.nodes[c][2]
        wanted = self.wanted.get(self.views.group[c], ())

        def along(p: Placement) -> tuple[Axes, ...]:
            return tuple([p.dims[d].axes for d in transfer.windowed])

        reached = {along(self.views.from_core(c, p)) for p in wanted} if transfer.windowed else ()
        return [p for p in transfer.standard()
                if self.views.to_core(c, Placement(p.dims)) in wanted
                or ((p.partial or along(p) in reached) and self.dims.allows(c, p))]

    def _visit(self, g: int) -> None:
        needed = self._trimmed(g, self.needed.get(g, {}))
        self.made[g] = self._made(g, needed)
        for window in list(self.made[g]):
            self._anchor(g, window)
        levels = {window: self._level(g, window, needed) for window in self.made[g]}
        for c in self._computing(g):
            _, node, transfer = self.nodes[c]
            placements = [(p, 0) for p in self.at_wanted(c)]
            placements += [(self.views.from_core(c, p), level) for p, level in levels.items()]
            strategies = [(s, level) for p, level in placements for s in self.strategies(c, p)]
            for strategy, level in [*strategies, *((s, 0) for s in self.reductions(c))]:
                for child, p, row in zip(node.children, strategy.operands, transfer.reaches, strict=True):
                    reached = any(r is not None and d.axes for r, d in zip(row, p.dims, strict=True))
                    self._need(child, p, reached, level)

    def _made(self, g: int, needed: Mapping[Placement, int]) -> list[Placement]:
        """The bounding windows of what is needed of a value, and of the tiles that are reached where these can be
        computed so; a tile that bounds some of it alone is wanted for itself."""
        tiles = self.tiles.get(g, {})
        bounding = self._bounding_windows(g, {**dict.fromkeys(tiles, 0), **needed})
        made = [p for p in bounding if p not in tiles]
        alone = [p for p in bounding if p in tiles]
        if tiles and not all(self._computed(g, p) for p in made):
            made, alone = self._bounding_windows(g, needed), list(tiles)
        self.wanted.setdefault(g, {}).update(dict.fromkeys(alone))
        return made

    def _level(self, g: int, window: Placement, needed: Mapping[Placement, int]) -> int:
        """The level at which a value computed at a bounding window takes its operands: that of the needs that the
        bounding window serves, and one more where the value might lie on tiles and be exchanged instead."""
        grid, shape = grid_of(window), self.views.core_type(g).shape
        inside = [level for p, level in needed.items() if grid_of(p) == grid and within(shape, p, window)]
        on_tiles = home(self.mesh, shape, window) in self.wanted.get(g, ())
        return max(inside, default=0) + on_tiles

    def _trimmed(self, g: int, windows: Mapping[Placement, int]) -> dict[Placement, int]:
        """Windows, with their levels, cut to what they hold of the value (`trimmed`)."""
        type_, out = self.views.core_type(g), dict[Placement, int]()
        for p, level in windows.items():
            sizes = zip(type_.shape, p.dims, strict=True)
            window = Placement(tuple(trimmed(n, self.mesh.count(d.axes), d) for n, d in sizes))
            out[window] = min(level, out.get(window, level))
        return out

    def _anchor(self, g: int, window: Placement) -> None:
        """What a grid's windows are widened from: the standard tiles if they lie inside the narrowest of them, unless
        the value is another one moved, which can be widened instead.

        Else the narrowest itself is computed; of those that are wrapped, which mostly cannot be computed, what of them
        lies inside the tensor, or the standard tiles. From these, too, windows of other tiles are widened: of values
        that lie over other axes, and where windows are computed from those of an operand that hold what is skipped.
        """
        standard = home(self.mesh, self.views.core_type(g).shape, window)
        same = all(a.tile == b.tile for a, b in zip(window.dims, standard.dims, strict=True))
        holds = all(a.low <= 0 <= a.high for a in window.dims)
        wrapped = any(a.wrapped is not None for a in window.dims)
        if self._lies_elsewhere(g) or (not same and self._skips(g)):
            self.wanted.setdefault(g, {})[standard] = None
            self.moved.setdefault(g, set()).add(standard)
        if same and self.narrowest(g, window) == window:
            moved = self.moves(g) and self._computed(g, window)
            if wrapped or (holds and not moved):
                self.wanted.setdefault(g, {})[standard] = None
        if wrapped and not holds:
            inner = window._replace(dims=tuple([a._replace(wrapped=None) for a in window.dims]))
            if inner not in self.made[g]:
                self.made[g].append(inner)

    def narrowest(self, g: int, window: Placement) -> Placement:
        """The first bounding window of a window's grid; itself where none is made on that grid."""
        grid = grid_of(window)
        return next((p for p in self.made[g] if grid_of(p) == grid), window)

    def held(self, g: int) -> list[Held]:
        """How a value's windows are shared out: those along one dimension alone, and the rest in parts that lie apart.

        Sent one dimension after the other, bounding windows hold corners; along a single dimension they need none.
        Windows that lie apart are cut out of different bounding windows, of which a plan may need several.
        """
        alone: dict[object, dict[Placement, int]] = {}
        for p, level in self.needed.get(g, {}).items():
            along = tuple(d.windowed for d in p.dims)
            if sum(along) == 1:
                alone.setdefault(along, {})[p] = level
        arms = [
            Held(list(windows), self._bounding_windows(g, self._trimmed(g, windows))) for windows in alone.values()
        ] if len(alone) > 1 else []
        apart = {p for arm in arms for p in arm.windows}
        rest = [p for p in self.needed.get(g, ()) if p not in apart]
        nearest = sorted(self._trimmed(g, {p: self.needed[g][p] for p in rest}).items(), key=lambda x: x[1])
        made = dict.fromkeys([*self.made.get(g, ()), *(p for p, _ in nearest[: self.limit])])
        return [*arms, *self._apart(g, Held(rest, sorted(made, key=width_of)))]

    def _apart(self, g: int, held: Held) -> list[Held]:
        """Windows and bounding windows by which can be cut out of which, or touch."""
        shape = self.views.core_type(g).shape
        over: dict[object, list[Placement]] = {}
        for p in dict.fromkeys([*held.bounding_windows, *held.windows]):
            over.setdefault(axes_of(p), []).append(p)
        parts = [part for some in over.values() for part in clusters(some, lambda p, q: (
            (grid_of(p) == grid_of(q) and touch(p, q)) or contains(self.mesh, shape, p, q)
            or contains(self.mesh, shape, q, p)
        ))]
        if len(parts) < 2:
            return [held]
        return [
            Held([p for p in held.windows if p in part], [p for p in held.bounding_windows if p in part])
            for part in parts
        ]

    def _bounding_windows(self, g: int, windows: Mapping[Placement, int]) -> list[Placement]:
        return bounding_windows(self.views.core_type(g).shape, windows, self.limit)

    def on_tiles(self, c: int, tiles: Placement) -> list[Placement]:
        """The windows of these tiles at which a class is needed, and the tiles themselves, in core dimensions."""
        core = self.views.to_core(c, tiles)
        return [core, *(p for p in self.needed.get(self.views.group[c], ()) if grid_of(p) == grid_of(core))]

    def made_of(self, c: int) -> list[Placement]:
        """The windows at which a class may be computed, in its own dimensions."""
        return [self.views.from_core(c, p) for p in self.made.get(self.views.group[c], ())]

    def left_on(self, c: int) -> list[Placement]:
        """The tiles of operands that hold all of a class, over the axes of none of its windows: it is cut where an
        operand lies, and moved then. Over the same axes, windows of the operand serve."""
        g, shape = self.views.group[c], self.graph.classes[c].types[0].shape
        over = {axes_of(p) for p in self.made.get(g, ())}
        left = [self.views.from_core(c, p) for p in self.tilings.left.get(g, ()) if axes_of(p) not in over]
        return [p for p in left
                if all(covers(n, self.mesh.count(d.axes), d) for n, d in zip(shape, p.dims, strict=True))]

    def _need(self, child: int, placement: Placement, reached: bool, level: int) -> None:
        type_ = self.graph.type_of(child)
        core, group = self.views.to_core(child, Placement(placement.dims)), self.views.group[child]
        if is_standard(self.mesh, type_.shape, placement):
            (self.tiles if reached and self.moves(group) else self.wanted).setdefault(group, {})[core] = None
        elif not placement.partial:
            needed = self.needed.setdefault(group, {})
            needed[core] = min(level, needed.get(core, level))
