"""The selection problems that the planner poses for programs of the benches."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any
from unittest import mock

from bench.programs import BenchProgram
from eggshard.costmodel import AlphaBeta
from eggshard.errors import EggshardWarning
from eggshard.planner import entry, pipeline
from eggshard.selection import portfolio
from eggshard.selection.problem import Extraction, Problem


def problem_of(program: BenchProgram) -> Problem:
    """The largest selection problem met in planning a program (its body's, where that is a loop), without tags.

    Load, saturate and encode run as they do for a user; only the selection itself is cut short.
    """
    met: list[Problem] = []

    def first_plan(problem: Problem, **_: Any) -> Extraction:
        met.append(problem)
        return portfolio.extract(problem, methods=("greedy",))

    with mock.patch.object(pipeline, "extract", first_plan), warnings.catch_warnings():
        warnings.simplefilter("ignore", EggshardWarning)
        entry.optimize(program.text or program.lower(), cost_model=AlphaBeta())
    if not met:
        raise ValueError(f"{program.name}: nothing is selected")
    return untagged(max(met, key=lambda problem: sum(map(len, problem.choices))))


def untagged(problem: Problem) -> Problem:
    """The problem as extractors see it."""
    choices = [[choice._replace(tag=None) for choice in row] for row in problem.choices]
    return replace(problem, choices=choices)
