"""Bounds of what any choice of shardings costs, where selections pay more than plans do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from eggshard.egraph.graph import EGraph, ENode
from eggshard.planner.choosing.open_problem import Inlined, OpenProblem
from eggshard.planner.encoding.encode import Computed, Jointly, Widened
from eggshard.planner.op_plans import OpPlans
from eggshard.planner.rows import looks_at_neighbours
from eggshard.selection.problem import Choice, Problem


def in_rows(node: ENode) -> bool:
    """Whether a loop's iterations may run in rows, which share exchanges."""
    return node.op == "while" and looks_at_neighbours(node.regions[1])


def exchanges(opened: OpenProblem, choice: Choice) -> bool:
    """Whether a choice of a problem, or of a body in it, exchanges halos, or rotates."""
    node, (tag, _) = _node(opened, choice), _within(opened, choice)
    return isinstance(tag, (Widened, Jointly)) or (node is not None and node.op == "rotate")


def without_shared(opened: OpenProblem, plans: OpPlans) -> Problem | None:
    """A problem that costs no more than any plan, whatever plans share; None where they share nothing.

    Halos and wrap-arounds may travel together, which costs no less than the dearest of them, and so no less than each
    divided by their number. What is sent in iterations that run in rows is free.
    """
    problem = opened.problem
    in_row = {first + c for _, first, own, rows in regions_of(opened) for c in own if rows}
    sending = {c for c, made in enumerate(problem.choices)
               if c not in in_row and any(exchanges(opened, choice) for choice in made)}
    if not sending and not in_row:
        return None
    choices, conversions = list(problem.choices), list(problem.conversions)
    for c in in_row:
        conversions[c] = np.where(np.isfinite(conversions[c]), 0.0, np.inf)
        choices[c] = [x._replace(cost=0.0) if 0 < x.cost < np.inf and not _computes(opened, plans, x) else x
                      for x in choices[c]]
    for c in sending:
        choices[c] = [x._replace(cost=x.cost / len(sending)) if exchanges(opened, x) else x for x in choices[c]]
    return replace(problem, choices=choices, conversions=conversions)


def regions_of(
    opened: OpenProblem, first: int = 0, rows: bool = False
) -> Iterator[tuple[OpenProblem, int, list[int], bool]]:
    """The problem of a region and those inside it, each with the number of its first class in the whole one, its own
    classes, and whether it runs in rows."""
    inside: set[int] = set()
    for body in opened.bodies:
        for number, part in body.parts:
            inside.update(range(number, number + len(part.problem.choices)))
            yield from regions_of(part, first + number, rows or in_rows(body.node))
    yield opened, first, [c for c in range(len(opened.problem.choices)) if c not in inside], rows


def _node(opened: OpenProblem, choice: Choice) -> ENode | None:
    """The node by which a choice of a problem, or of a body in it, computes."""
    tag, graph = _within(opened, choice)
    return graph.classes[tag.cls].nodes[tag.node] if isinstance(tag, Computed) else None


def _within(opened: OpenProblem, choice: Choice) -> tuple[Any, EGraph]:
    """The tag of a choice in its own region's graph, and that."""
    return choice.tag if isinstance(choice.tag, Inlined) else (choice.tag, opened.graph)


def _computes(opened: OpenProblem, plans: OpPlans, choice: Choice) -> bool:
    """Whether a choice that costs something computes an op on shards, and sends nothing."""
    node, (tag, graph) = _node(opened, choice), _within(opened, choice)
    if node is None:
        return False
    types = tuple(graph.type_of(child) for child in node.children)
    return plans.is_one_step(node, types, graph.classes[tag.cls].types, tag.strategy)
