"""What is preferred among placements at which plans cost about the same: to hold less, and to cut few dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from eggshard.planner.choosing.open_problem import OpenProblem
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType
from eggshard.selection.problem import Selection

#: The part of what a program's ops cost at least that all preferences together may be worth, and the part of this that
#: is not for memory (`python -m bench auto`).
WORTH, PLAIN = 1e-3, 0.1


def with_preferences(opened: OpenProblem, types: Sequence[TensorType]) -> OpenProblem:
    """The problem in which a store costs a little: for the bytes that a device holds of it, and for how it is cut.

    types: of the inputs.
    """
    choices, held = list(opened.problem.choices), held_of(opened, zip(opened.stores, types, strict=True))
    least = sum(min((choice.cost for choice in made), default=0.0) for made in choices)
    whole = max(1.0, sum(float(held_bytes.max()) for held_bytes in held.values()))
    for store, held_bytes in held.items():
        cut = PLAIN / len(held) * np.array([_cuts(choice.tag.placement) for choice in choices[store]])
        prices = WORTH * least * (held_bytes / whole + cut)
        choices[store] = [x._replace(cost=float(price)) for x, price in zip(choices[store], prices, strict=True)]
    problem = replace(opened.problem, choices=choices)
    return replace(opened, encoding=replace(opened.encoding, problem=problem))


def held_of(opened: OpenProblem, ends: Iterable[tuple[int, TensorType]]) -> dict[int, np.ndarray]:
    """Per end the bytes that a device holds of it at each of its choices.

    ends: classes whose choices are tagged with placements (stores, outputs), each with the type of one tensor there.
    """
    held: dict[int, np.ndarray] = {}
    for end, type_ in ends:
        local = np.array([float(x.tag.placement.local_type(type_).bytes) for x in opened.problem.choices[end]])
        held[end] = held[end] + local if end in held else local
    return held


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
