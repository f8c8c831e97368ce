"""Explanation of a selection: its decisions in words, with alternatives and rules (`plan.reasons`), from its problem.

It is computed on demand: a plan keeps its problem for that, as it keeps what makes its baseline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from eggshard.costmodel.pricing import Pricer
from eggshard.egraph.graph import EGraph, ENode
from eggshard.ops.regions.control import CONTROL_FLOW
from eggshard.plan.reasons import Alternative, Decision, Part, Reasons
from eggshard.planner.encoding.decode import a_result_of
from eggshard.planner.encoding.encode import Computed, Delivered, Encoding, Handed, Joined, Jointly, Shape, Widened
from eggshard.planner.progress import tracked
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType
from eggshard.reshard.conversions import Steps
from eggshard.reshard.routes import Router
from eggshard.selection.problem import Selection
from eggshard.selection.search.marginal import Marginal, Switch
from eggshard.selection.search.state import Item

#: The most detours listed for a reshard, and the most rules in a chain.
DETOURS, CHAIN = 3, 12


class Weighing(NamedTuple):
    """What was decided, and among what. values: per value of the program its e-class (-1: none).

    trips: of a loop's body, whose problem is of one of so many iterations, and pays its part of what all of them share.
    unit: as of `Reasons`. followed: the classes whose decisions a plan follows, where it does not follow all.
    """

    graph: EGraph
    encoding: Encoding
    selection: Selection
    router: Router
    pricer: Pricer
    values: Sequence[int]
    note: str = ""
    trips: int = 1
    unit: str = ""
    followed: frozenset[int] | None = None

    def reasons(self, names: Mapping[int, str]) -> Reasons:
        """Every decision with its alternatives. names: what the plan calls the tensors of classes that it holds."""
        return _Weigher(self, names).reasons()


class _Hop(NamedTuple):
    """A step of a reshard: its kind, the placement that it leads to, and its price."""

    kind: str
    after: Placement
    seconds: float


class _Weigher:
    def __init__(self, given: Weighing, names: Mapping[int, str]) -> None:
        self.graph, self.encoding, self.given, self.names = given.graph, given.encoding, given, names
        self.problem, self.views = given.encoding.problem, given.encoding.views
        self.marginal = Marginal(self.problem, given.selection)
        self.values: dict[int, list[int]] = {}
        for v, cls in enumerate(given.values):
            if cls >= 0:
                self.values.setdefault(self.views.group[cls], []).append(v)
        self.result_of = a_result_of(self.graph, self.problem, given.selection)
        self._parts_of: dict[tuple[Item, float], list[Part]] = {}
        self._ways: dict[tuple[TensorType, Placement, Placement], list[_Hop]] = {}

    def reasons(self) -> Reasons:
        if not self.marginal.total < math.inf:
            note = "the selection cannot be priced on its own, so alternatives are not known"
            return Reasons((), self.given.selection.cost, note, self.given.unit)
        followed = self.given.followed
        decided = [i for i in self.marginal.decisions() if followed is None or self._about(i) in followed]
        items = tracked(decided, "weighing alternatives")
        found = [d for item in items if (d := self._decision(item)) is not None]
        return Reasons(tuple(found), self.marginal.total, self.given.note, self.given.unit)

    def _decision(self, item: Item) -> Decision | None:
        if len(item) == 3:
            return self._reshard(*item)
        c, s = item
        choice = self.problem.choices[c][s]
        tag = choice.tag
        if isinstance(tag, (Handed, Joined)) or (isinstance(tag, Computed) and self._given(tag)):
            return None
        switches, weighed = self.marginal.choices(c, s)
        alternatives = tuple(self._alternative(x) for x in switches)
        about = self._about(item)
        kind = "output" if isinstance(tag, Delivered) else "op" if isinstance(tag, Computed) else "window"
        return Decision(
            about, kind, self._said(item), self._type(about), self._placed(c, choice.out), choice.cost,
            tuple(self.values.get(about, ())), self._chain(tag), weighed, alternatives)

    def _node(self, tag: Computed) -> ENode:
        return self.graph.classes[tag.cls].nodes[tag.node]

    def _given(self, tag: Computed) -> bool:
        """Whether there is nothing to decide: an input, or one of the results of an op."""
        return self._node(tag).op in ("input", "result")

    def _reshard(self, c: int, p: int, q: int) -> Decision | None:
        """A conversion: compute the class there, too, or go another way."""
        switches, weighed = self.marginal.conversion(c, q)
        alternatives = [self._alternative(x) for x in switches]
        table = self.problem.conversions[c]
        price = float(table[p, q])
        if not price:
            return None
        about = self._about((c, p, q))
        ends = self._unwindowed(c, p, q)
        others = list(self._routes((c, p, q), *ends) if ends and self.given.trips == 1 else self._detours(c, p, q))
        weighed += len(others)
        gone = self._parts((c, p, q), price)
        alternatives += [Alternative(what, (), cost, cost - price, cost - price, *_apart(gone, joins))
                         for what, cost, joins in others]
        alternatives.sort(key=lambda a: a.change)
        return Decision(
            about, "reshard", self._said((c, p, q)), self._type(about), self._placed(c, q), price,
            tuple(self.values.get(about, ())), (), weighed, tuple(alternatives))

    def _alternative(self, switch: Switch) -> Alternative:
        rules: tuple[str, ...] = ()
        if switch.choice < 0:
            what, own, bounded = "not computed a second time, but resharded", 0.0, False
        else:
            choice = self.problem.choices[switch.cls][switch.choice]
            what, own = self._said((switch.cls, switch.choice)), choice.cost
            if switch.out < 0:
                what = f"computed there, too: {what}"
            rules, bounded = self._rules(choice.tag), self._bounded(choice.tag)
        parts = _apart(self._paid(switch.leaves), self._paid(switch.joins))
        return Alternative(what, rules, own, switch.held, switch.followed, *parts, bounded)

    def _bounded(self, tag: object) -> bool:
        return isinstance(tag, Computed) and self._node(tag).op in CONTROL_FLOW

    def _paid(self, items: Mapping[Item, float]) -> tuple[Part, ...]:
        """What costs something of what is paid for, the dearest first."""
        parts = [part for item, price in items.items() for part in self._parts(item, price) if part.seconds > 0]
        return tuple(sorted(parts, key=lambda part: -part.seconds))

    def _parts(self, item: Item, price: float) -> list[Part]:
        """What is paid for with an item; alternatives share most of that."""
        if (item, price) not in self._parts_of:
            self._parts_of[item, price] = self._parted(item, price)
        return self._parts_of[item, price]

    def _parted(self, item: Item, price: float) -> list[Part]:
        about = self._about(item)
        if len(item) == 2:
            tag = self.problem.choices[item[0]][item[1]].tag
            kind = self._node(tag).op if isinstance(tag, Computed) else "exchange"
            return [Part(f"{self._said(item)} of {self._name(about)}", kind, about, price)]
        c, p, q = item
        return self._parts_of_hops(self._hops(c, p, q, price), about)

    def _detours(self, c: int, p: int, q: int) -> Iterator[tuple[str, float, list[Part]]]:
        """Conversions by way of another place that the class may lie at: in words, their prices, what is paid for."""
        table = self.problem.conversions[c]
        through = table[p] + table[:, q]
        ways = sorted((float(through[r]), r) for r in range(len(table)) if r not in (p, q))
        for cost, r in [way for way in ways if table[p, q] * (1 + 1e-9) < way[0] < math.inf][:DETOURS]:
            joins = [*self._parts((c, p, r), float(table[p, r])), *self._parts((c, r, q), float(table[r, q]))]
            yield f"reshard by way of {self._placed(c, r)}", cost, joins

    def _routes(self, item: Item, source: Placement, target: Placement) -> Iterator[tuple[str, float, list[Part]]]:
        """Reshards by other collectives, alike."""
        c, about = item[0], self._about(item)
        for route in self.given.router.detours(self.views.core_type(c), source, target, DETOURS):
            kinds = [action.kind for action, _ in route.steps]
            between = ", ".join(self._shown(c, after) for _, after in route.steps[:-1])
            what = f"by way of {between}: {', '.join(kinds)}" if between else f"by one {kinds[0]}"
            hops = self._shown_hops(c, self._priced(self.views.core_type(c), source, route.steps))
            yield f"reshard {what}", route.cost, self._parts_of_hops(hops, about)

    def _hops(self, c: int, p: int, q: int, price: float) -> list[tuple[str, str, float]]:
        """The steps of a conversion: kind, placement reached, price; as one where it is not a plain reshard."""
        ends = self._unwindowed(c, p, q)
        if ends:
            found = self._way(self.views.core_type(c), *ends)
            whole = sum(hop.seconds for hop in found)
            for part in {1, self.given.trips}:
                if math.isclose(whole, part * price, rel_tol=1e-9, abs_tol=1e-15):
                    return self._shown_hops(c, found, part)
        return [("reshard" if ends else "halo exchange", self._placed(c, q), price)]

    def _way(self, type_: TensorType, source: Placement, target: Placement) -> list[_Hop]:
        """The cheapest route between tiles, which many tensors of a type take."""
        key = type_, source, target
        if key not in self._ways:
            paths = self.given.router.tree(type_, source, [target])
            self._ways[key] = [hop for _, path in paths for hop in self._priced(type_, source, path)]
        return self._ways[key]

    def _unwindowed(self, c: int, p: int, q: int) -> tuple[Placement, Placement] | None:
        """Where a conversion begins and ends; None unless routes between tiles lead there."""
        source, target = self.encoding.placements[c][p], self.encoding.placements[c][q]
        if not isinstance(source, Placement) or not isinstance(target, Placement) or c >= len(self.views.group):
            return None
        return None if source.windowed or target.windowed else (source, target)

    def _priced(self, type_: TensorType, at: Placement, path: Steps) -> Iterator[_Hop]:
        """Steps from a placement on."""
        for action, after in path:
            yield _Hop(action.kind, after, self.given.pricer(action, at.local_type(type_)))
            at = after

    def _shown_hops(self, c: int, hops: Iterable[_Hop], part: int = 1) -> list[tuple[str, str, float]]:
        """Those that cost something, as the plan shows them, at a part of their prices."""
        return [(kind, self._shown(c, after), seconds / part) for kind, after, seconds in hops if seconds > 0]

    def _parts_of_hops(self, hops: Iterable[tuple[str, str, float]], about: int) -> list[Part]:
        of = self._name(about)
        return [Part(f"{kind} to {there} of {of}", kind, about, seconds) for kind, there, seconds in hops]

    # -- words ---------------------------------------------------------------------------------------------------------

    def _about(self, item: Item) -> int:
        """The group of e-classes that a choice or conversion of the problem is about."""
        c = item[0]
        if c < len(self.views.group):
            return self.result_of.get(c, c)
        choice = self.problem.choices[c][item[1] if len(item) == 2 else 0]
        if isinstance(choice.tag, Delivered):
            return choice.needs[0][0]
        if isinstance(choice.tag, Jointly):
            return choice.tag.parts[0][0]
        return choice.tag.group if isinstance(choice.tag, (Widened, Joined)) else c

    def _name(self, cls: int) -> str:
        """What the plan calls it; of what the plan does without, by which op and rule it would be made."""
        if cls in self.names or cls >= len(self.graph.classes):
            return self.names.get(cls, "several values")
        node = self.graph.classes[cls].nodes[0]
        if cls in self.values:
            return f"the program's {node.op}"
        return f"a {node.op}" + (f" by {node.rules[0]}" if node.rules else "")

    def _type(self, cls: int) -> str:
        return str(self.graph.type_of(cls)) if cls < len(self.graph.classes) else ""

    def _shown(self, c: int, placement: Placement | Shape) -> str:
        if not isinstance(placement, Placement):
            return " ".join(map(str, placement))
        return str(self.views.from_core(c, placement) if c < len(self.views.group) else placement)

    def _placed(self, c: int, p: int) -> str:
        return self._shown(c, self.encoding.placements[c][p])

    def _said(self, item: Item) -> str:
        if len(item) == 3:
            c, p, q = item
            return f"reshard {self._placed(c, p)} to {self._placed(c, q)}"
        tag = self.problem.choices[item[0]][item[1]].tag
        if isinstance(tag, Computed):
            node = self._node(tag)
            lie = tag.strategy
            operands, results = (" ".join(map(str, placements)) for placements in (lie.operands, lie.results))
            return f"{node.op} {operands} -> {results}" if operands else f"{node.op} -> {results}"
        if isinstance(tag, Delivered):
            return f"delivered at {self._shown(item[0], tag.placement)}"
        if isinstance(tag, Widened):
            return f"{self._shown(tag.group, tag.source)} widened"
        if isinstance(tag, Jointly):
            return f"{len(tag.parts)} values widened by one exchange"
        if isinstance(tag, Handed):
            return f"as another layer has it, at {tag.placement}"
        return "out of a joint exchange"

    def _rules(self, tag: object) -> tuple[str, ...]:
        return self._node(tag).rules if isinstance(tag, Computed) else ()

    def _chain(self, tag: object) -> tuple[tuple[str, str], ...]:
        """The rules behind a choice, and behind those of its operands that no value of the program is."""
        found: dict[tuple[str, str], None] = {}
        queue, seen = [tag], {id(tag)}
        for tag in queue:
            if not isinstance(tag, Computed) or len(found) >= CHAIN:
                continue
            node = self._node(tag)
            found.update(dict.fromkeys((rule, node.op) for rule in node.rules))
            for child in node.children:
                group = self.views.group[child]
                if group in self.values:
                    continue
                for s in self.given.selection.chosen.get(group, ()):
                    below = self.problem.choices[group][s].tag
                    if id(below) not in seen:
                        seen.add(id(below))
                        queue.append(below)
        return tuple(found)


def _apart(leaves: Iterable[Part], joins: Iterable[Part]) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """What only one of two plans pays for: a hop that conversions of both begin with is paid in either."""
    gone, new = Counter(leaves), Counter(joins)
    return tuple((gone - new).elements()), tuple((new - gone).elements())
