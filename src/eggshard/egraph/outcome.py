"""The outcome of one engine iteration, in a file of its own so that readers of it need not import the engine."""

from __future__ import annotations

from array import array
from typing import NamedTuple

#: The columns of a table of integers.
Columns = list["array[int]"]
#: Tables (`Engine.tables`), and the matches per rule.
Result = tuple[dict[str, Columns], dict[str, int]]


class Outcome(NamedTuple):
    """After an iteration: did anything change, how many rows the counted tables have, was it undone for its size, the
    rows of the watched relations, and the run's result where nothing changed and nothing is watched any more."""

    changed: bool
    rows: int
    undone: bool
    watched: dict[str, list[tuple[int, ...]]]
    result: Result | None = None
