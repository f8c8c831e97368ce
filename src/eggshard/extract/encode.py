"""From a saturated e-graph to a selection problem: every node's strategies, and every class's conversions.

Shards are pairs (class, placement). A choice computes a shard in place by one strategy of one e-node; conversions
between placements of a class are priced by the reshard planner. Classes that are views of one another are one class of
the problem (`views`), with placements of their core dimensions. Multi-result ops are classes of tuples whose
"placements" are tuples of placements, which nothing converts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from eggshard.control_flow import CONTROL_FLOW
from eggshard.egraph.graph import EGraph, ENode
from eggshard.extract.candidates import within_cap
from eggshard.extract.problem import Choice, Problem
from eggshard.extract.views import Views, find_views
from eggshard.limits import Limits
from eggshard.placement.placement import Placement
from eggshard.placement.transfer import Strategy
from eggshard.program.monoids import MONOIDS
from eggshard.program.ops import registry
from eggshard.program.ops.base import REDUCE
from eggshard.program.types import TensorType

Shape = tuple[Placement, ...]


Shard = tuple[int, int]


class Computed(NamedTuple):
    """A choice's tag: the e-class, the e-node's number within it, and the strategy."""

    cls: int
    node: int
    strategy: Strategy


class Delivered(NamedTuple):
    """A choice's tag for a root whose placement is free: the placement it is delivered at."""

    placement: Placement | Shape


class ConversionTable(Protocol):
    def table(self, type_: TensorType, placements: Sequence[Placement]) -> np.ndarray: ...


class Widened(NamedTuple):
    """A choice's tag for a class's windows: the group, and the placement that is widened."""

    group: int
    source: Placement


#: A node's strategies on these operand and result types, with the seconds that computing so costs.
StrategySource = Callable[[ENode, tuple[TensorType, ...], tuple[TensorType, ...]], Sequence[tuple[Strategy, float]]]


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
    #: Per group of views the class of the problem that holds its windows.
    windows: dict[int, int] = field(default_factory=dict)
    _known: dict[tuple[int, Placement | Shape], Shard] = field(default_factory=dict)

    @property
    def widens(self) -> int:
        """How many ways there are to widen a value, by slabs that may travel with those of other values."""
        return sum(isinstance(choice.tag, Widened) for options in self.problem.choices for choice in options)

    def shard(self, cls: int, placement: Placement | Shape) -> Shard:
        """The problem's class and placement number of an e-class at a placement, numbered now if it is new."""
        known = self._known.get((cls, placement))
        if known is None:
            core = self.views.to_core(cls, placement) if isinstance(placement, Placement) else placement
            group = self.views.group[cls]
            table = self.index[group]
            if core not in table:
                table[core] = len(self.placements[group])
                self.placements[group].append(core)
            known = self._known[cls, placement] = group, table[core]
        return known

    def need(self, cls: int, placement: Placement) -> Shard:
        """Where an operand at this placement is taken from: windows have a class of their own."""
        group = self.views.group[cls]
        if group in self.windows:
            window = self.index[self.windows[group]].get(self.views.to_core(cls, placement))
            if window is not None:
                return self.windows[group], window
        return self.shard(cls, placement)

    def computed_at(self, cls: int, choices: list[list[Choice]]) -> list[Placement | Shape]:
        """The placements at which some choice computes an e-class."""
        group = self.views.group[cls]
        found = [self.placements[group][p] for p in dict.fromkeys(choice.out for choice in choices[group])]
        return [self.views.from_core(cls, p) if isinstance(p, Placement) else p for p in found]


class Encoder:
    """Builds the problem of one graph."""

    def __init__(self, graph: EGraph, strategies: StrategySource, conversions: ConversionTable, limits: Limits,
                 widen: Callable[[EGraph, Encoding, list[list[Choice]]], dict[int, np.ndarray]] = lambda *_: {}):
        self.graph, self.strategies, self.conversions, self.limits = graph, strategies, conversions, limits
        self.widen = widen

    def encode(
        self, inputs: dict[int, Placement], roots: Sequence[tuple[int, Sequence[Placement]]],
        hints: Callable[[], Sequence[tuple[int, Placement]]] = list,
    ) -> Encoding:
        """The problem of delivering every root class at one of its placements, given the inputs' placements.

        hints: asked, where a class has more placements than the limit, for the (class, placement) pairs that must stay
        candidates, e.g. propagated ones; the encoding is then ``capped``.
        inputs: input number -> placement. A root with several placements becomes a class of its own whose choices
        are the placements. After these roots come the graph's effects, in program order.
        """
        classes = self.graph.classes
        self._addends = addend_monoids(self.graph)
        out = Encoding(find_views(self.graph), Problem([], [], []), [[] for _ in classes], [{} for _ in classes])
        choices: list[list[Choice]] = [[] for _ in classes]
        for projecting in (False, True):
            for c, eclass in enumerate(classes):
                for n, node in enumerate(eclass.nodes):
                    if (node.op == "result") is projecting and not out.views.is_view(c, node):
                        choices[out.views.group[c]].extend(
                            self._projections(out, c, n, node) if projecting else self._choices(out, c, n, node, inputs)
                        )
        tables = self.widen(self.graph, out, choices)
        first_root = len(choices)
        # Effects are needed wherever they are computed, used or not.
        effects = [(cls, out.computed_at(cls, choices)) for cls in self.graph.effects]
        roots_out: list[tuple[int, int]] = []
        for cls, options in [*roots, *effects]:
            if len(options) == 1:
                roots_out.append(out.shard(cls, options[0]))
                continue
            out.placements.append([options[0]])
            out.index.append({options[0]: 0})
            choices.append([Choice(0, 0.0, (out.shard(cls, p),), Delivered(p)) for p in options])
            roots_out.append((len(choices) - 1, 0))
        cap = self.limits.placements
        out.capped = max((len(p) for p in out.placements), default=0) > cap
        if out.capped:
            pinned = [*roots_out, *(need for made in choices[first_root:] for x in made for need in x.needs)]
            pinned += [(c, x.out) for c, made in enumerate(choices) for x in made if not x.needs]
            pinned += [out.shard(c, p) for c, p in hints() if out.views.to_core(c, p) in out.index[out.views.group[c]]]
            choices = within_cap(choices, out.placements, pinned, cap, self.limits.memory_mib)
        out.shared = _has_shared_class(choices, roots_out)
        conversions = []
        for c, placements in enumerate(out.placements):
            if c in tables:
                conversions.append(tables[c])
            elif c < len(classes) and not classes[c].is_tuple and placements:
                conversions.append(self.conversions.table(out.views.core_type(c), placements))  # type: ignore[arg-type]
            else:
                conversions.append(np.where(np.eye(len(placements), dtype=bool), 0.0, np.inf))
        out.problem = Problem(choices, conversions, roots_out)
        return out

    def _choices(self, out: Encoding, c: int, n: int, node: ENode, inputs: dict[int, Placement]) -> list[Choice]:
        if node.op == "input":
            placement = inputs[node.attributes["index"]]
            return [Choice(out.shard(c, placement)[1], 0.0, (), Computed(c, n, Strategy((), (placement,))))]
        made = []
        is_tuple = self.graph.classes[c].is_tuple
        types = tuple(self.graph.type_of(child) for child in node.children)
        for s, price in self.strategies(node, types, self.graph.classes[c].types):
            if not self._useful(node, s):
                continue
            needs = tuple(dict.fromkeys(
                out.shard(child, p) for child, p in zip(node.children, s.operands, strict=True)
            ))
            target = out.shard(c, s.results if is_tuple else s.results[0])[1]
            made.append(Choice(target, price, needs, Computed(c, n, s)))
        return made

    def _useful(self, node: ENode, s: Strategy) -> bool:
        """Whether some operand that is partial in the strategy can hold addends at all; the others join it for free."""
        partial = [(c, p.monoid) for c, p in zip(node.children, s.operands, strict=True) if p.partial]
        return not partial or any(monoid in self._addends[c] for c, monoid in partial)

    def _projections(self, out: Encoding, c: int, n: int, node: ENode) -> list[Choice]:
        (source,), i = node.children, node.attributes["index"]
        made = []
        for number, shape in enumerate(list(out.placements[source])):
            assert not isinstance(shape, Placement)
            strategy = Strategy((), (shape[i],))
            made.append(Choice(out.shard(c, shape[i])[1], 0.0, ((source, number),), Computed(c, n, strategy)))
        return made


def _has_shared_class(choices: Sequence[Sequence[Choice]], roots: Sequence[Shard]) -> bool:
    """Whether some class is needed at two places of the program, or by two operands of one op."""
    users: dict[int, set[object]] = {}
    for c, placement in roots:
        users.setdefault(c, set()).add(placement)
    for made in choices:
        for choice in made:
            user = choice.tag[:2] if isinstance(choice.tag, Computed) else None
            for i, (c, _) in enumerate(choice.needs):
                users.setdefault(c, set()).add((user, i))
    return any(len(found) > 1 for found in users.values())


def addend_monoids(graph: EGraph) -> list[set[str]]:
    """Per class the monoids under which devices can come to hold addends of it: an op reduces over a sharded factor,
    and linear ops pass its addends on. (Any replicated value can be made addends, but that alone serves nothing.)"""
    found: list[set[str]] = [set() for _ in graph.classes]
    linear: list[tuple[int, tuple[int, ...], tuple[tuple[str, tuple[int, ...]], ...]]] = []
    for c, eclass in enumerate(graph.classes):
        for node in eclass.nodes:
            if node.op == "input" or node.op in CONTROL_FLOW:
                continue
            if node.op == "result":
                linear.append((c, node.children, tuple((m, (0,)) for m in MONOIDS)))
                continue
            types = tuple(graph.type_of(child) for child in node.children)
            rule = registry.get(node.op).factors(node.attributes, types, eclass.types)
            found[c].update(f.monoid for f in rule.factors if f.kind == REDUCE)
            if rule.linear:
                linear.append((c, node.children, rule.linear))
    changed = True
    while changed:
        changed = False
        for c, children, roles in linear:
            for monoid, who in roles:
                if monoid not in found[c] and any(monoid in found[children[i]] for i in who):
                    found[c].add(monoid)
                    changed = True
    return found
