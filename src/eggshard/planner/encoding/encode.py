"""Encoding of a saturated e-graph as a selection problem: every node's strategies, and every class's reshardings.

Shards are pairs (class, placement). A choice computes a shard in place by one strategy of one e-node; a conversion
(resharding) between two placements of a class is priced by the reshard planner. Classes that are views of one another
are one class of the problem (`views`), with placements of their core dimensions. Multi-result ops are classes of tuples
whose "placements" are tuples of placements, without conversions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from eggshard.egraph.graph import EClass, EGraph, ENode
from eggshard.limits import Limits
from eggshard.ops import registry
from eggshard.ops.base import REDUCE, FactorRule
from eggshard.ops.regions.control import CONTROL_FLOW
from eggshard.placement.transfer import Strategy, useful
from eggshard.planner.derivation import derived
from eggshard.planner.encoding.candidates import kept_choices
from eggshard.planner.encoding.views import Views, find_views
from eggshard.program.monoids import MONOIDS
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType
from eggshard.reshard.routes import Router
from eggshard.selection.problem import Choice, Problem
from eggshard.selection.search.start import plan_by_way_of
from eggshard.steps.window_steps import Loads

Shape = tuple[Placement, ...]
Shard = tuple[int, int]

#: Classes whose placements may be as many as the cap allows; smaller problems keep all.
FEW = 16
NOTHING: Mapping[int, Sequence[int]] = {}


class Widening(NamedTuple):
    """What windows add to a problem besides choices: conversions of the classes of windows, and selections to start
    from (`Problem.seeds`; they may leave out classes)."""

    tables: Mapping[int, np.ndarray] = {}
    seeds: Sequence[dict[int, int]] = ()


class Computed(NamedTuple):
    """A choice's tag: the e-class, the e-node's number within it, and the strategy."""

    cls: int
    node: int
    strategy: Strategy


class Delivered(NamedTuple):
    """A choice's tag for a root whose placement is free: the placement it is delivered at."""

    placement: Placement | Shape


class Handed(NamedTuple):
    """A choice's tag for an input that is another class of the graph: the input's class, that class, the placement."""

    cls: int
    source: int
    placement: Placement


class Widened(NamedTuple):
    """A choice's tag for a class's windows: the group, and the placement that is widened."""

    group: int
    source: Placement


class Jointly(NamedTuple):
    """A choice's tag for an exchange of several values: the group, the placement that is widened and what to of each,
    and what every collective-permute carries (`JointExchange.shared`)."""

    parts: tuple[tuple[int, Placement, Placement], ...]
    shared: tuple[Loads, ...]


class Joined(NamedTuple):
    """A choice's tag for a window that comes of such an exchange: the group, and which of the results."""

    group: int
    number: int


#: A node's strategies on these operand and result types, with the seconds that computing so costs.
StrategySource = Callable[[ENode, tuple[TensorType, ...], tuple[TensorType, ...]], Sequence[tuple[Strategy, float]]]


class Layout(NamedTuple):
    """The choices that a node offers, but for which classes its operands and results are.

    shards: per shard that some choice has to do with, the operand (-1: the result) and its placement, in the order in
    which choices ask for them. choices: per choice the strategy, its price, and its operands and its result as numbers
    of shards.
    """

    shards: tuple[tuple[int, Placement | Shape], ...]
    choices: tuple[tuple[Strategy, float, tuple[int, ...], int], ...]


@dataclass
class Encoding:
    """A problem with the meaning of its numbers.

    ``placements[c][p]`` is placement p of the problem's class c: of core dimensions, or of all results of a tuple.
    ``capped``: some candidates were left out, so the problem may hold neither the best plan nor the baseline.
    ``shared``: some class has several users. Conversions to its placements may share steps in the plan, which the
    problem pays for each, so a plan may cost less than its selection.
    """

    views: Views
    problem: Problem
    placements: list[list[Placement | Shape]]
    index: list[dict[Placement | Shape, int]]
    capped: bool = False
    shared: bool = False
    #: Per group of views and window the class of the problem that holds it, and its number there.
    windows: dict[int, dict[Placement, Shard]] = field(default_factory=dict)
    #: The problem's class and placement number of an e-class at a placement, numbered when first asked for.
    shard: Callable[[int, Placement | Shape], Shard] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.shard = cache(self._numbered)

    @property
    def widens(self) -> int:
        """How many ways there are to widen a value, by slabs that may travel with those of other values."""
        return sum(isinstance(choice.tag, Widened) for options in self.problem.choices for choice in options)

    def _numbered(self, cls: int, placement: Placement | Shape) -> Shard:
        core = self.views.to_core(cls, placement) if isinstance(placement, Placement) else placement
        return self.numbered(self.views.group[cls], core)

    def numbered(self, group: int, core: Placement | Shape) -> Shard:
        """The shard of a group at a placement of its core dimensions, which gets a number if it has none."""
        table = self.index[group]
        if core not in table:
            table[core] = len(self.placements[group])
            self.placements[group].append(core)
        return group, table[core]

    def add(self, placements: Sequence[Placement | Shape]) -> None:
        """Add a class of the problem that no e-class is, with these placements."""
        self.placements.append(list(placements))
        self.index.append({p: i for i, p in enumerate(placements)})

    def need(self, cls: int, placement: Placement) -> Shard:
        """Where an operand at this placement is taken from: windows have a class of their own."""
        windows = self.windows.get(self.views.group[cls])
        found = windows.get(self.views.to_core(cls, placement)) if windows else None
        return self.shard(cls, placement) if found is None else found

    def computed_at(self, cls: int, choices: list[list[Choice]]) -> list[Placement | Shape]:
        """The placements at which some choice computes an e-class."""
        group = self.views.group[cls]
        found = [self.placements[group][p] for p in dict.fromkeys(choice.out for choice in choices[group])]
        return [self.views.from_core(cls, p) if isinstance(p, Placement) else p for p in found]


class Encoder:
    """Builds problems of one graph; what nodes offer is worked out once for all of them."""

    def __init__(self, graph: EGraph, strategies: StrategySource, conversions: Router, limits: Limits):
        self.graph, self.strategies, self.conversions, self.limits = graph, strategies, conversions, limits
        self._layouts: dict[tuple[object, ...], Layout] = {}

    def encode(
        self, inputs: dict[int, Placement], roots: Sequence[tuple[int, Sequence[Placement]]],
        hints: Callable[[], Sequence[tuple[int, Placement]]] = list, handed: Mapping[int, Sequence[int]] = NOTHING,
        widen: Callable[[EGraph, Encoding, list[list[Choice]]], Widening] = lambda *_: Widening(),
    ) -> Encoding:
        """The problem of delivering every root class at one of its placements, given the inputs' placements.

        handed: inputs' classes -> the class that each is under another name, at any placement, and others that stand
        in for that one where the graph stands for a larger program.
        widen: adds windows to the choices.

        hints: asked for (class, placement) pairs, e.g. propagated ones. A plan that has these classes there is one to
        begin with; where a class has more placements than the limit, and the encoding is ``capped``, they stay
        candidates.
        inputs: input number -> placement. A root with several placements becomes a class of its own whose choices
        are the placements. After these roots come the graph's effects, in program order.
        """
        classes = self.graph.classes
        self._partial_sums = partial_sum_monoids(self.graph, handed)
        out = Encoding(find_views(self.graph), Problem([], [], []), [[] for _ in classes], [{} for _ in classes])
        choices: list[list[Choice]] = [[] for _ in classes]
        for projecting in (False, True):
            for c, eclass in enumerate(classes):
                for n, node in enumerate(eclass.nodes):
                    if (node.op == "result") is projecting and not out.views.is_view(c, node):
                        choices[out.views.group[c]].extend(
                            self._projections(out, c, n, node) if projecting else self._choices(out, c, n, node, inputs)
                        )
        self._hand(out, {c: sources[0] for c, sources in handed.items()}, choices)
        choices = [_distinct(made) for made in choices]
        widening = widen(self.graph, out, choices)
        first_root = len(choices)
        # Effects are needed wherever they are computed, used or not.
        effects = [(cls, out.computed_at(cls, choices)) for cls in self.graph.effects]
        roots_out: list[tuple[int, int]] = []
        for cls, options in [*roots, *effects]:
            if len(options) == 1:
                only = options[0]
                roots_out.append(out.need(cls, only) if isinstance(only, Placement) else out.shard(cls, only))
                continue
            out.add([options[0]])
            choices.append([Choice(0, 0.0, (out.shard(cls, p),), Delivered(p)) for p in options])
            roots_out.append((len(choices) - 1, 0))
        cap, begun = self.limits.placements, widening.seeds
        counts = [len(p) for p in out.placements]
        out.capped = max(counts, default=0) > cap and sum(counts) > FEW * cap
        out.problem = Problem(choices, self._conversions(out, widening.tables), roots_out)
        if out.capped:
            pinned = [*roots_out, *(need for made in choices[first_root:] for x in made for need in x.needs)]
            pinned += [(c, x.out) for c, made in enumerate(choices) for x in made if not x.needs]
            pinned += [out.shard(c, p) for c, p in hints() if out.views.to_core(c, p) in out.index[out.views.group[c]]]
            pinned += [shard for c, i in {item for seed in begun for item in seed.items()}
                       for shard in ((c, choices[c][i].out), *choices[c][i].needs)]
            before, choices = choices, kept_choices(out.problem, out.placements, pinned, cap)
            out.problem.choices, begun = choices, _renumbered(begun, before, choices)
        out.shared = _has_shared_class(choices, roots_out)
        seeds = out.problem.seeds
        seeds += begun
        if not out.capped:
            seeds += [_everywhere(self.graph, choices)]
            staying = plan_by_way_of(out.problem, where_stated(out, hints()))
            seeds += [{c: some[0] for c, some in staying.chosen.items()}] if staying else []
        return out

    def _conversions(self, out: Encoding, windows: Mapping[int, np.ndarray]) -> list[np.ndarray]:
        """The table of each class of the problem. Classes of one type with equal placements share theirs.

        The longest lists come first: the router then mostly has what a shorter one of the same type needs.
        """
        tables: dict[tuple[TensorType | None, tuple[Placement | Shape, ...]], np.ndarray] = {}
        keys = []
        for c, placements in enumerate(out.placements):
            converts = c < len(self.graph.classes) and not self.graph.classes[c].is_tuple
            keys.append((out.views.core_type(c) if converts and placements else None, tuple(placements)))
        for key in sorted(dict.fromkeys(keys), key=lambda key: -len(key[1])):
            type_, listed = key
            if type_ is None:
                tables[key] = np.where(np.eye(len(listed), dtype=bool), 0.0, np.inf)
            else:
                tables[key] = self.conversions.table(type_, listed)  # type: ignore[arg-type]
        return [windows[c] if c in windows else tables[key] for c, key in enumerate(keys)]

    def _choices(self, out: Encoding, c: int, n: int, node: ENode, inputs: dict[int, Placement]) -> list[Choice]:
        if node.op == "input":
            if node.attributes["index"] not in inputs:
                return []
            placement = inputs[node.attributes["index"]]
            return [Choice(out.shard(c, placement)[1], 0.0, (), Computed(c, n, Strategy((), (placement,))))]
        layout = self._layout(node, self.graph.classes[c])
        shards = [out.shard(c if i < 0 else node.children[i], placement) for i, placement in layout.shards]
        groups = [out.views.group[child] for child in node.children]
        distinct = list if len(set(groups)) == len(groups) else dict.fromkeys  # two operands may be one shard
        return [
            Choice(shards[result][1], price, tuple(distinct([shards[k] for k in operands])), Computed(c, n, s))
            for s, price, operands, result in layout.choices
        ]

    def _layout(self, node: ENode, eclass: EClass) -> Layout:
        """What a node offers; computed once for all nodes of one op, types, and monoids of partial operands."""
        types = tuple([self.graph.type_of(child) for child in node.children])
        partial_sums = tuple([frozenset(self._partial_sums[child]) for child in node.children])
        key = (node.op, node.attributes, node.regions, types, eclass.types, partial_sums)
        known = self._layouts.get(key)
        if known is not None:
            return known
        shards: dict[tuple[int, Placement | Shape], int] = {}
        choices = []
        for s, price in self.strategies(node, types, eclass.types):
            if useful(s, partial_sums):
                operands = tuple([shards.setdefault((i, p), len(shards)) for i, p in enumerate(s.operands)])
                result = shards.setdefault((-1, s.results if eclass.is_tuple else s.results[0]), len(shards))
                choices.append((s, price, operands, result))
        layout = Layout(tuple(shards), tuple(choices))
        if not node.regions:  # what is inside may be known better the next time
            self._layouts[key] = layout
        return layout

    def _hand(self, out: Encoding, handed: Mapping[int, int], choices: list[list[Choice]]) -> None:
        """Hand classes on wherever some user takes them, and then where those are taken that are views of them."""
        known = dict.fromkeys(handed, 0)
        while any(known[c] < len(out.placements[out.views.group[c]]) for c in handed):
            for c, source in handed.items():
                group = out.views.group[c]
                first, known[c] = known[c], len(out.placements[group])
                for number in range(first, known[c]):
                    core = out.placements[group][number]
                    assert isinstance(core, Placement)
                    placement = out.views.from_core(c, core)
                    taken = out.shard(source, placement)
                    choices[group].append(Choice(number, 0.0, (taken,), Handed(c, source, placement)))

    def _projections(self, out: Encoding, c: int, n: int, node: ENode) -> list[Choice]:
        (source,), i = node.children, node.attributes["index"]
        made = []
        for number, shape in enumerate(list(out.placements[source])):
            assert not isinstance(shape, Placement)
            strategy = Strategy((), (shape[i],))
            made.append(Choice(out.shard(c, shape[i])[1], 0.0, ((source, number),), Computed(c, n, strategy)))
        return made


def _distinct(made: list[Choice]) -> list[Choice]:
    """The cheapest of the choices that compute the same placement from the same needs: rules find many such nodes."""
    best: dict[tuple[int, tuple[Shard, ...]], Choice] = {}
    for choice in made:
        known = best.setdefault((choice.out, choice.needs), choice)
        if choice.cost < known.cost:
            best[choice.out, choice.needs] = choice
    return list(best.values()) if len(best) < len(made) else made


def _everywhere(graph: EGraph, choices: Sequence[Sequence[Choice]]) -> dict[int, int]:
    """The selection that gathers all inputs and computes everything on every device, by the program's own ops.

    Where communicating costs much and computing little it is near the best, and no local step leads there.
    """
    chosen: dict[int, int] = {}
    for c, made in enumerate(choices):
        own = []
        for i, choice in enumerate(made):
            tag = choice.tag
            if isinstance(tag, Computed):
                if all(not p.used_axes for p in (*tag.strategy.operands, *tag.strategy.results)) or not choice.needs:
                    own.append((bool(graph.classes[tag.cls].nodes[tag.node].rules), choice.cost, i))
            elif isinstance(tag, Delivered):
                own.append((False, 0.0, i))
        if own:
            chosen[c] = min(own)[-1]
    return chosen


def where_stated(out: Encoding, stated: Sequence[tuple[int, Placement]]) -> dict[int, list[int]]:
    """Per class the numbers of its placements over the axes of the one that is stated, windows included: that first."""
    found: dict[int, list[int]] = {}
    for cls, placement in stated:
        group, core = out.views.group[cls], out.views.to_core(cls, placement)
        number = out.index[group].get(core)
        if number is not None and group not in found:
            axes = [d.axes for d in core.dims]
            found[group] = [number, *(
                i for i, p in enumerate(out.placements[group])
                if i != number and isinstance(p, Placement) and not p.partial and [d.axes for d in p.dims] == axes)]
    return found


def _renumbered(
    seeds: Sequence[dict[int, int]], before: Sequence[Sequence[Choice]], after: Sequence[Sequence[Choice]]
) -> list[dict[int, int]]:
    """Plans by the numbers that their choices have among fewer; without those that lost one."""
    found = []
    for seed in seeds:
        numbers = {c: next((n for n, x in enumerate(after[c]) if x is before[c][i]), -1) for c, i in seed.items()}
        found += [numbers] if -1 not in numbers.values() else []
    return found


def _has_shared_class(choices: Sequence[Sequence[Choice]], roots: Sequence[Shard]) -> bool:
    """Whether some class is needed at two places of the program, or by two operands of one op."""
    users: dict[int, object] = {}
    if any(users.setdefault(c, placement) != placement for c, placement in roots):
        return True
    for made in choices:
        for choice in made:
            user = choice.tag[:2] if isinstance(choice.tag, Computed) else None
            for i, (c, _) in enumerate(choice.needs):
                if users.setdefault(c, (user, i)) != (user, i):
                    return True
    return False


def partial_sum_monoids(graph: EGraph, handed: Mapping[int, Sequence[int]] = NOTHING) -> list[set[str]]:
    """Per class the monoids under which devices can come to hold partial values of it: an op reduces over a sharded
    factor, and linear ops pass its partial values on, as do classes that are ``handed`` on: {class: those that it is}.
    (Any replicated value can be made partial values, but that alone serves nothing.)"""
    factors: dict[tuple[object, ...], FactorRule] = {}
    #: A class has partial values under a monoid if another one, or nothing else, does.
    rules: list[tuple[tuple[int, str], tuple[tuple[int, str], ...]]] = [
        ((c, monoid), ((source, monoid),)) for c, sources in handed.items() for source in sources for monoid in MONOIDS]
    for c, eclass in enumerate(graph.classes):
        for node in eclass.nodes:
            if node.op == "input" or node.op in CONTROL_FLOW:
                continue
            if node.op == "result":
                rules += [((c, monoid), ((node.children[0], monoid),)) for monoid in MONOIDS]
                continue
            types = tuple([graph.type_of(child) for child in node.children])
            key = (node.op, node.attributes, types, eclass.types)
            if key not in factors:
                factors[key] = registry.get(node.op).factors(node.attributes, types, eclass.types)
            rules += [((c, f.monoid), ()) for f in factors[key].factors if f.kind == REDUCE]
            rules += [((c, monoid), ((node.children[i], monoid),)) for monoid, who in factors[key].linear for i in who]
    found: list[set[str]] = [set() for _ in graph.classes]
    for c, monoid in derived(rules)[0]:
        found[c].add(monoid)
    return found
