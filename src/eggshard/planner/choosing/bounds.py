"""Bounds of what any choice of shardings costs, where selections pay more than plans do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from eggshard.egraph.graph import ENode
from eggshard.planner.choosing.open_problem import OpenProblem
from eggshard.planner.encoding.encode import Computed, Jointly, Widened
from eggshard.planner.op_plans import OpPlans
from eggshard.planner.rows import looks_at_neighbours
from eggshard.selection.problem import Choice, Problem


def in_rows(node: ENode) -> bool:
    """Whether a loop's iterations may run in rows, which share exchanges."""
    return node.op == "while" and looks_at_neighbours(node.regions[1])


def exchanges(part: OpenProblem, choice: Choice) -> bool:
    """Whether a choice exchanges halos, or rotates."""
    node = _node(part, choice)
    return isinstance(choice.tag, (Widened, Jointly)) or (node is not None and node.op == "rotate")


def without_shared(opened: OpenProblem, plans: OpPlans) -> Problem | None:
    """A problem that costs no more than any plan, whatever plans share; None where they share nothing.

    Halos and wrap-arounds may travel together, which costs no less than the dearest of them, and so no less than each
    divided by their number. What is sent in iterations that run in rows is free.
    """
    problem = opened.problem
    parts = list(regions_of(opened))
    sending = {first + c for part, first, own, rows in parts for c in own
               if not rows and any(exchanges(part, choice) for choice in part.problem.choices[c])}
    if not sending and not any(rows for *_, rows in parts):
        return None
    choices, conversions = list(problem.choices), list(problem.conversions)

    for part, first, own, rows in parts:
        for c in own:
            made = part.problem.choices[c]
            if rows:
                shared = [x.cost > 0 and not _computes(part, plans, x) for x in made]
                conversions[first + c] = np.where(np.isfinite(conversions[first + c]), 0.0, np.inf)
            elif first + c in sending:
                shared = [exchanges(part, x) for x in made]
            else:
                continue
            times = 0.0 if rows else 1 / len(sending)
            choices[first + c] = [x._replace(cost=times * x.cost) if less else x
                                  for x, less in zip(choices[first + c], shared, strict=True)]
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


def _node(part: OpenProblem, choice: Choice) -> ENode | None:
    tag = choice.tag
    return part.graph.classes[tag.cls].nodes[tag.node] if isinstance(tag, Computed) else None


def _computes(part: OpenProblem, plans: OpPlans, choice: Choice) -> bool:
    """Whether a choice that costs something computes an op on shards, and sends nothing."""
    node, tag = _node(part, choice), choice.tag
    if node is None:
        return False
    types = tuple(part.graph.type_of(child) for child in node.children)
    return plans.is_one_step(node, types, part.graph.classes[tag.cls].types, tag.strategy)
