"""What all-reduces pay for latencies in an open problem: as much of them as they can hardly share.

All-reduces that wait at the same time share a latency (decision 52). Sums that no other sum is computed from, such as
the gradients of a step, wait together at its end, wherever ends lie; others, such as activations, wait for one another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from eggshard.egraph.graph import EClass, EGraph, ENode
from eggshard.ops import registry
from eggshard.ops.base import REDUCE
from eggshard.ops.regions.control import CONTROL_FLOW
from eggshard.planner.choosing.bounds import regions_of
from eggshard.planner.choosing.ends import Ends
from eggshard.planner.choosing.open_problem import Opener, OpenProblem
from eggshard.planner.choosing.preference import with_preferences
from eggshard.planner.repricing.buckets import Shared
from eggshard.selection.problem import Selection
from eggshard.selection.verify import price


class Priced(NamedTuple):
    """A problem at the prices by which shardings are chosen.

    problem: where all-reduces pay what they can hardly share; of a large e-graph in a hurry, at the opener's prices.
    none, whole: where they pay no latency, and each its own; both the problem itself where latencies do not count, and
    in a hurry, which asks for no bound.
    """

    opener: Opener
    problem: OpenProblem
    none: OpenProblem
    whole: OpenProblem

    @property
    def large(self) -> bool:
        """Whether the e-graph is too large for a second search to be cheap."""
        prices = self.opener.plans.context.pricer
        return isinstance(prices, Shared) and prices.part > 0

    def latencies(self, selection: Selection) -> float:
        """The seconds that a selection pays for latencies if none is shared; infinite where the problems do not tell.
        """
        if not alike(self.none, self.whole):
            return math.inf
        none, whole = (price(opened.problem, selection) for opened in (self.none, self.whole))
        return whole - none

    @classmethod
    def of(cls, opener: Opener, ends: Ends, hurried: bool) -> Priced:
        """The problem between these ends. hurried: as fast as can be."""
        types, prices = opener.task.input_types, opener.plans.context.pricer
        if not isinstance(prices, Shared) or (hurried and prices.part):
            problem = with_preferences(opener.whole(ends), types)
            return cls(opener, problem, problem, problem)
        none, whole = (with_preferences(opener.at(p).whole(ends), types) for p in (Shared(prices.base), prices.base))
        problem = _hardly_shared(none, whole) if alike(none, whole) else whole
        return cls(opener, problem, problem, problem) if hurried else cls(opener, problem, none, whole)


def alike(one: OpenProblem, other: OpenProblem) -> bool:
    """Whether problems offer the same choices: where placements are too many, prices decide which are kept."""
    sizes = ([len(choices) for choices in each.problem.choices] for each in (one, other))
    return next(sizes) == next(sizes) and one.encoding.placements == other.encoding.placements


def _hardly_shared(none: OpenProblem, whole: OpenProblem) -> OpenProblem:
    """The problem in which sums that nothing waits for share one latency, and others pay their own."""
    choices, conversions = list(none.problem.choices), list(none.problem.conversions)
    loops = {id(part) for part in _loops(none)}
    for part, first, own, _ in regions_of(none):
        group = part.encoding.views.group
        waiting = {group[c] for c in _waited_for(part, id(part) in loops)}
        last = {*group} - waiting
        shared = 1 / max(1, len(last.intersection(group[c] for c, _ in part.roots)))
        for c in own:
            paid, cls = shared if c in last else 1.0, first + c
            conversions[cls] = _between(conversions[cls], whole.problem.conversions[cls], paid)
            prices = _between(_costs(none, cls), _costs(whole, cls), paid)
            choices[cls] = [x._replace(cost=float(price)) for x, price in zip(choices[cls], prices, strict=True)]
    problem = replace(none.problem, choices=choices, conversions=conversions)
    return replace(none, encoding=replace(none.encoding, problem=problem))


def _costs(opened: OpenProblem, cls: int) -> np.ndarray:
    return np.array([choice.cost for choice in opened.problem.choices[cls]])


def _between(none: np.ndarray, whole: np.ndarray, paid: float) -> np.ndarray:
    """Prices with this part of what they are more on the whole; what is impossible stays so."""
    out = none.astype(float)
    may = np.isfinite(none)
    out[may] += paid * (whole[may] - none[may])
    return out


def _loops(opened: OpenProblem) -> Iterator[OpenProblem]:
    """The bodies of a problem's loops, of those inside others too."""
    for body in opened.bodies:
        for number, (_, part) in enumerate(body.parts):
            if body.node.op == "while" and number:  # the first region is the condition
                yield part
            yield from _loops(part)


def _waited_for(part: OpenProblem, again: bool) -> set[int]:
    """The classes of a region of which something is computed that reduces, or that runs in a loop or branch.

    again: whether its outputs are the inputs of the next iteration.
    """
    graph = part.graph
    queue = [child for eclass in graph.classes for node in eclass.nodes if _reduces(graph, node, eclass)
             for child in node.children]
    found: set[int] = set()
    while queue:
        c = queue.pop()
        if c not in found:
            found.add(c)
            queue += [child for node in graph.classes[c].nodes for child in node.children]
            if again:
                queue += [part.roots[node.attributes["index"]][0] for node in graph.classes[c].nodes
                          if node.op == "input"]
    return found


def _reduces(graph: EGraph, node: ENode, eclass: EClass) -> bool:
    if node.op in CONTROL_FLOW:
        return True
    if node.op in ("input", "result"):
        return False
    types = tuple([graph.type_of(child) for child in node.children])
    factors = registry.get(node.op).factors(node.attributes, types, eclass.types)
    return any(factor.kind == REDUCE for factor in factors.factors)
