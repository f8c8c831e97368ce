"""Lifting of a short program's plan to the whole program: the parts of a row all do what one of its copies does.

The result is a graph, a problem and a selection of the whole program that contain only what was chosen, so that prices
are exact and the decoder emits it like any other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from eggshard.egraph.graph import EClass, EGraph, ENode
from eggshard.planner.derivation import derived
from eggshard.planner.encoding.encode import Computed, Delivered, Encoding, Handed
from eggshard.planner.encoding.views import Order, Views
from eggshard.planner.layers.layering import KEPT
from eggshard.planner.layers.shortening import Short
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Placement
from eggshard.reshard.routes import Router
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Choice, Problem, Selection
from eggshard.selection.search.trees import tree_costs
from eggshard.selection.verify import complete

#: A class of the short program's graph, in one of the equal parts; -1 for what is of none.
Instance = tuple[int, int]


def copies_of(short: Short, graph: EGraph) -> list[int]:
    """Per class the copy whose inputs every computation of it needs; -1 for what can be computed without a copy's."""
    count = len(short.program.region.inputs)
    leaf: dict[int, int] = {}
    rules: list[tuple[int, tuple[int, ...]]] = []
    for c, eclass in enumerate(graph.classes):
        for node in eclass.nodes:
            if node.op == "input":
                index = node.attributes["index"]
                leaf[c] = short.own[index][0] if index < count else short.seams[index - count].user
            if node.op != "input" or leaf[c] < 0:
                rules.append((c, node.children))
    shared, _ = derived(rules)
    users: list[list[int]] = [[] for _ in graph.classes]
    for c, children in rules:
        for child in children:
            users[child].append(c)
    copy = [-1 if c in shared else -2 for c in range(len(graph.classes))]
    stack = [(c, which) for c, which in leaf.items() if which >= 0]
    while stack:
        c, which = stack.pop()
        if copy[c] == -2:
            copy[c] = which
            stack += [(user, which) for user in users[c]]
    return copy


def copies_of_groups(count: int, copies: Sequence[int], groups: Sequence[int]) -> list[int]:
    """Per class of a problem the copy of the e-classes that are its views; -1 for what needs none."""
    of_group = [-1] * count
    for c, copy in enumerate(copies):
        of_group[groups[c]] = max(of_group[groups[c]], copy)
    return of_group


@dataclass
class Lifted:
    """A plan of the whole program: its graph, its problem with what was chosen, and the selection."""

    graph: EGraph
    encoding: Encoding
    selection: Selection
    #: The whole program's outputs: class and the placements to choose from (one).
    roots: list[tuple[int, list[Placement]]]
    #: Per class that of the short program's problem which it follows.
    follows: list[int]
    #: The short program's selection that was lifted.
    source: Selection


class Lift:
    """Lifts selections of one short program. follow: per row the copy that all of its parts follow."""

    def __init__(self, short: Short, graph: EGraph, encoding: Encoding, copies: Sequence[int],
                 tables: Router, roots: Sequence[tuple[int, Sequence[Placement]]]):
        self.short, self.graph, self.encoding, self.copies, self.tables = short, graph, encoding, copies, tables
        self.roots = roots
        groups = encoding.views.group
        #: Whether no view mixes what parts share with what they do not.
        self._apart = all(copies[c] == copies[groups[c]] for c in range(len(groups)))
        self.whole = short.whole.region
        self._kept = list(short.values)
        self._beside: tuple[Selection, list[np.ndarray]] | None = None
        self._input_number = {v: i for i, v in enumerate(self.whole.inputs)}

    def beside(self, selection: Selection, cls: int, placement: int) -> int | None:
        """The choice by which a class that a plan lacks is cheapest at a placement, where what the plan has is free.

        So is made what only parts take that are left out. None where it can't be had there.
        """
        if self._beside is None or self._beside[0] is not selection:
            chosen = selection.chosen
            free = [[choice._replace(cost=0.0, needs=()) if i in chosen.get(c, ()) else choice
                     for i, choice in enumerate(choices)] for c, choices in enumerate(self.encoding.problem.choices)]
            self._beside = selection, tree_costs(Graph(replace(self.encoding.problem, choices=free))).choice
        outs = [choice.out for choice in self.encoding.problem.choices[cls]]
        costs = self._beside[1][cls] + self.table(cls)[outs, placement]
        return int(costs.argmin()) if costs.min(initial=math.inf) < math.inf else None

    def lift(self, selection: Selection, follow: Sequence[int]) -> Lifted | None:
        """The whole program's plan; None where views mix what parts share with what they do not."""
        if not self._apart:
            return None
        priced = _Pricing(self, selection, follow)
        return None if priced.total() is None else _Lifting(self, selection, priced.chosen, follow).result()

    def price(self, selection: Selection, follow: Sequence[int]) -> float | None:
        """What `lift`'s plan costs, found without making it; None where there is none.

        (Where cheapest sources run in a cycle, the plan takes others, and costs more.)
        """
        return _Pricing(self, selection, follow).total() if self._apart else None

    def instance(self, cls: int, part: int) -> Instance:
        """A class in a part. What parts share may be computed by way of one of them; any will do."""
        copy = self.copies[cls]
        if copy < 0:
            return cls, -1
        row = self.short.row(copy)
        return cls, part if part in row else row.start

    def outputs(self, selection: Selection, follow: Sequence[int]) -> list[Placement]:
        """Where the whole program's outputs lie: of the parts left out as in the copy."""
        short = self.short
        chosen: dict[int, list[Placement]] = {}
        for v, (_, options), root in zip(
            short.program.region.outputs, self.roots, self.encoding.problem.roots, strict=True
        ):
            placement = options[0]
            if len(options) > 1:
                if root[0] not in selection.chosen:
                    continue  # of another copy
                tag = self.encoding.problem.choices[root[0]][selection.chosen[root[0]][0]].tag
                assert isinstance(tag, Delivered) and isinstance(tag.placement, Placement)
                placement = tag.placement
            chosen.setdefault(v, []).append(placement)
        found = []
        seen: Counter[int] = Counter()
        for v in self.whole.outputs:
            stands = short.values[self.short.stand_in(v, follow)]
            found.append(chosen[stands][seen[v]])
            seen[v] += 1
        return found

    def value(self, v: int, follow: Sequence[int]) -> Instance:
        """The class of a value of the whole program, and in which equal part (or -1)."""
        cls = self.graph.values[self.short.cut_value(self.short.values[self.short.stand_in(v, follow)])]
        return cls, self.short.part_of(v)

    def handed(self, index: int, part: int, follow: Sequence[int]) -> Instance:
        """The class that a further input of the short program stands for, where an equal part (or -1) takes it."""
        seam = self.short.seams[index - len(self.short.program.region.inputs)]
        return self.value(seam.value if seam.user < 0 else self.short.operand(seam.port, part), follow)

    def input_index(self, tag: Handed) -> int:
        """The number of the further input that stands for a class taken from elsewhere."""
        (node,) = [n for n in self.graph.classes[tag.cls].nodes if n.op == "input"]
        index: int = node.attributes["index"]
        return index

    def table(self, cls: int) -> np.ndarray:
        """The conversions of a class, with those to placements that only other copies take it at."""
        encoding = self.encoding
        table = encoding.problem.conversions[cls]
        if cls >= len(encoding.views.group) or encoding.views.group[cls] != cls:
            return table
        listed = encoding.placements[cls]
        if len(listed) == len(table):
            return table
        found = self.tables.table(encoding.views.core_type(cls), listed)  # type: ignore[arg-type]
        return found

    def input(self, index: int, part: int) -> int:
        """The number of the whole program's input that an input of the short one is in an equal part (or -1)."""
        copy, port = self.short.own[index]
        return self._input_number[self._kept[index] if copy < 0 else self.short.operand(port, part)]


class _Lifting:
    """One plan being lifted. chosen: the selection's choices, and of what it does not have."""

    def __init__(
        self, lift: Lift, selection: Selection, chosen: Mapping[int, tuple[int, ...]], follow: Sequence[int]
    ):
        self.lift, self.follow = lift, follow
        self.graph, self.encoding = lift.graph, lift.encoding
        self.selection, self.chosen = selection, chosen
        self.number: dict[Instance, int] = {}
        self.classes: list[EClass] = []
        self.groups: list[int] = []
        self.orders: list[Order] = []
        self.choices: list[list[Choice]] = []
        self.made: set[int] = set()
        self.waiting: list[Instance] = []

    def result(self) -> Lifted | None:
        roots, needs = [], []
        for v, placement in zip(self.lift.whole.outputs, self.lift.outputs(self.selection, self.follow), strict=True):
            cls, part = self.lift.value(v, self.follow)
            roots.append((self._id(cls, part), [placement]))
            needs.append(self._need(self.encoding.need(cls, placement), part))
        while self.waiting:
            self._group(*self.waiting.pop())
        encoding, views = self.encoding, self.encoding.views
        whole = [self.number.get(self.lift.instance(*self.lift.value(v, self.follow)), -1)
                 if self.lift.short.stand_in(v, self.follow) in self.lift.short.values else -1
                 for v in range(len(self.lift.whole.types))]
        graph = EGraph(self.classes, whole, self.graph.report)
        groups = [self.number[views.group[c], part] for c, part in self.number]
        instances = list(self.number)
        placements = [encoding.placements[c] for c, _ in instances]
        index = [encoding.index[c] for c, _ in instances]
        conversions = [self.lift.table(c) for c, _ in instances]
        single = frozenset(i for i, (c, _) in enumerate(instances) if c in encoding.problem.single)
        problem = Problem(self.choices, conversions, needs, single=single)
        chosen = {c: tuple(range(len(made))) for c, made in enumerate(self.choices) if made}
        found = complete(problem, chosen)
        lifted = Encoding(Views(graph, groups, self.orders), problem, placements, index)
        return None if found is None else Lifted(graph, lifted, found, roots, [c for c, _ in instances], self.selection)

    def _id(self, cls: int, part: int) -> int:
        """The number of a class in an equal part; -1 for one that needs nothing of a part."""
        key = self.lift.instance(cls, part)
        found = self.number.get(key)
        if found is None:
            found = self.number[key] = len(self.classes)
            eclass = self.graph.classes[cls]
            self.classes.append(EClass(eclass.types, [], eclass.is_tuple))
            self.choices.append([])
            self.orders.append(self.encoding.views.order[cls])
            self._id(self.encoding.views.group[cls], part)
        return found

    def _need(self, shard: tuple[int, int], part: int) -> tuple[int, int]:
        """A shard of an equal part, whose group is to be computed."""
        group, placement = shard
        number = self._id(group, part)
        if number not in self.made:
            self.made.add(number)
            self.waiting.append(self.lift.instance(group, part))
        return number, placement

    def _group(self, group: int, part: int) -> None:
        """The chosen choices of a group in an equal part."""
        number = self._id(group, part)
        problem = self.encoding.problem
        for i in self.chosen.get(group, ()):
            choice = problem.choices[group][i]
            tag = choice.tag
            if isinstance(tag, Handed):
                source, there = self.lift.handed(self.lift.input_index(tag), part, self.follow)
                need = self._need(self.encoding.shard(source, tag.placement), there)
                made = Handed(self._id(tag.cls, part), self._id(source, there), tag.placement)
                self.choices[number].append(choice._replace(needs=(need,), tag=made))
                continue
            assert isinstance(tag, Computed)
            node = self.graph.classes[tag.cls].nodes[tag.node]
            cls = self._id(tag.cls, part)
            attributes = node.attributes
            if node.op == "input":
                attributes = Attributes(index=self.lift.input(attributes["index"], part))
            children = tuple([self._id(child, part) for child in node.children])
            self.classes[cls].nodes.append(ENode(node.op, attributes, node.regions, children, node.rules))
            needs = tuple([self._need(need, part) for need in choice.needs])
            computed = Computed(cls, len(self.classes[cls].nodes) - 1, tag.strategy)
            self.choices[number].append(choice._replace(needs=needs, tag=computed))


class _Pricing:
    """What one plan costs, lifted: walked from the outputs, as `selection.verify.complete` does."""

    def __init__(self, lift: Lift, selection: Selection, follow: Sequence[int]):
        self.lift, self.selection, self.follow = lift, selection, follow
        #: The selection's choices, and how what it does not have is made.
        self.chosen = dict(selection.chosen)
        #: Per shard of the short program what delivers it, found when first asked for.
        self.ways: dict[tuple[int, int], _Way | None] = {}

    def total(self) -> float | None:
        """The sum; None where some shard is not available."""
        lift, ways, encoding = self.lift, self.ways, self.lift.encoding
        computed: list[float] = []
        converted: list[float] = []
        made: set[tuple[int, int, int]] = set()
        stack: list[tuple[tuple[int, int], int]] = []
        for v, placement in zip(lift.whole.outputs, lift.outputs(self.selection, self.follow), strict=True):
            cls, part = lift.value(v, self.follow)
            need = encoding.need(cls, placement)
            stack.append((need, lift.instance(need[0], part)[1]))
        seen = set(stack)
        while stack:
            need, part = stack.pop()
            if need not in ways:
                ways[need] = self._way(*need)
            way = ways[need]
            if way is None:
                return None
            if way.conversion is not None:
                converted.append(way.conversion)
            if (need[0], way.out, part) in made:
                continue
            made.add((need[0], way.out, part))
            computed.append(way.choice.cost)
            for taken in self._taken(way, part):
                if taken not in seen:
                    seen.add(taken)
                    stack.append(taken)
        return math.fsum(computed) + math.fsum(converted)

    def _taken(self, way: _Way, part: int) -> list[tuple[tuple[int, int], int]]:
        tag = way.choice.tag
        if not isinstance(tag, Handed):
            return [(need, part if own else self.lift.instance(need[0], part)[1])
                    for need, own in zip(way.choice.needs, way.own, strict=True)]
        source, there = self.lift.handed(self.lift.input_index(tag), part, self.follow)
        need = self.lift.encoding.shard(source, tag.placement)
        return [(need, self.lift.instance(need[0], there)[1])]

    def _way(self, group: int, placement: int) -> _Way | None:
        """The cheapest chosen source of a shard, of which every part has the same."""
        best: dict[int, Choice] = {}
        if group not in self.chosen:
            beside = self.lift.beside(self.selection, group, placement)
            if beside is None:
                return None
            self.chosen[group] = (beside,)
        for i in self.chosen[group]:
            choice = self.lift.encoding.problem.choices[group][i]
            if choice.out not in best or choice.cost < best[choice.out].cost:
                best[choice.out] = choice
        table = self.lift.table(group)
        source = min(best, key=lambda p: (p != placement, table[p, placement], p), default=None)
        if source is None or not table[source, placement] < math.inf:
            return None
        choice, copies = best[source], self.lift.copies
        own = [copies[group] >= 0 and copies[c] >= 0 and copies[c] // KEPT == copies[group] // KEPT
               for c, _ in choice.needs]
        return _Way(source, choice, None if source == placement else float(table[source, placement]), own)


class _Way(NamedTuple):
    """The placement at which a class is made for a shard, by which choice, and the conversion's price, if there is one;
    which needs are of the same part.
    """

    out: int
    choice: Choice
    conversion: float | None
    own: list[bool]
