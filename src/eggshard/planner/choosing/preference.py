"""What is preferred among placements at which plans cost about the same: to hold less, and to cut few dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from eggshard.planner.choosing.open_problem import OpenProblem
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType
from eggshard.selection.problem import Selection

#: The part of what a program's ops cost at least that all preferences together may be worth, and the part of this that
#: is not for memory (`python -m bench auto`).
WORTH, PLAIN = 1e-3, 0.1


def with_preferences(opened: OpenProblem, types: Sequence[TensorType], times: float = 1.0) -> OpenProblem:
    """The problem in which a store costs a little: for the bytes that a device holds of it, and for how it is cut.

    types: of the inputs. times: how many times the usual price is paid for bytes.
    """
    choices = list(opened.problem.choices)
    at = {store: [choice.tag.placement for choice in choices[store]] for store in opened.stores}
    held = {store: np.zeros(len(placements)) for store, placements in at.items()}
    for store, type_ in zip(opened.stores, types, strict=True):
        held[store] += [p.local_type(type_).bytes for p in at[store]]
    least = sum(min((choice.cost for choice in made), default=0.0) for made in choices)
    whole = max(1.0, sum(float(held_bytes.max()) for held_bytes in held.values()))
    for store, placements in at.items():
        cut = PLAIN / len(at) * np.array([_cuts(p) for p in placements])
        prices = WORTH * least * (times * held[store] / whole + cut)
        choices[store] = [x._replace(cost=float(price)) for x, price in zip(choices[store], prices, strict=True)]
    problem = replace(opened.problem, choices=choices)
    return replace(opened, encoding=replace(opened.encoding, problem=problem))


def preference(opened: OpenProblem, selection: Selection) -> float:
    """What a selection pays for preferences."""
    paid = (opened.problem.choices[store][selection.chosen.get(store, (0,))[0]] for store in {*opened.stores})
    return sum(choice.cost for choice in paid)


def most_preference(opened: OpenProblem) -> float:
    """The most that any selection may pay for them."""
    return sum(max(choice.cost for choice in opened.problem.choices[store]) for store in {*opened.stores})


def _cuts(placement: Placement) -> float:
    """How many dimensions are cut, and then how far behind the first they are."""
    return sum(1 + i / (10 * len(placement.dims)) for i, d in enumerate(placement.dims) if d.axes)
