"""What is known of a program before it is planned, from the search that chose its shardings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eggshard.memory.prediction import fits
from eggshard.plan.identity import program_fingerprint
from eggshard.plan.record import PlanRecord
from eggshard.planner.encoding.encode import Computed
from eggshard.planner.state import Encoded
from eggshard.program.program import Program


@dataclass(frozen=True)
class Known:
    """What was found of a program as it is stated now, by the same rules and under the same prices.

    plan: a plan, if one was made. computed: per class of the program's e-graph what it is computed by in a selection.
    """

    plan: PlanRecord | None = None
    computed: Mapping[int, Computed] = field(default_factory=dict)

    def plan_of(self, program: Program, memory_limit: int | None) -> PlanRecord | None:
        """The plan, if it is this program's and within the limit."""
        plan = self.plan
        if plan is None or memory_limit is not None and not fits(plan, memory_limit):
            return None
        same = program_fingerprint(plan.program) == program_fingerprint(program)
        return replace(plan, program=program) if same else None

    def begun(self, state: Encoded) -> Encoded:
        """A program's first problem, with the selection among its plans to begin with."""
        problem = state.problem
        numbers = {c: next((n for n, choice in enumerate(problem.choices[c]) if choice.tag == tag), None)
                   for c, tag in self.computed.items() if c < len(problem.choices)}
        seed = {c: n for c, n in numbers.items() if n is not None}
        if not seed:
            return state
        encoding = replace(state.encoding, problem=replace(problem, seeds=[*problem.seeds, seed]))
        return replace(state, encoding=encoding)
