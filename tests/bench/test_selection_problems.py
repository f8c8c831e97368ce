"""The problems that extractors are compared on are those that planning meets."""

from __future__ import annotations

import pytest
from bench.programs import by_name, dense, stencil
from bench.selection_problems import problem_of


@pytest.mark.parametrize(("family", "name"), [(dense, "MLP 2-D weights, batch 16"), (stencil, "2D radius 3 pad edge")])
def test_every_program_has_a_problem(family, name) -> None:
    problem = problem_of(by_name(family.PROGRAMS)[name])
    assert problem.roots and all(choice.tag is None for choices in problem.choices for choice in choices)
