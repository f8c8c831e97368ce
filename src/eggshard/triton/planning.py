"""The layouts of a whole kernel, chosen at once: what is converted, and what is computed in several layouts."""

from __future__ import annotations

import time
from dataclasses import dataclass

from eggshard.costmodel.layouts import LayoutCostModel, default_costs
from eggshard.extract.portfolio import extract
from eggshard.kernels.ir import Kernel
from eggshard.triton.candidates import find_candidates, restricted
from eggshard.triton.classes import CONVERT, find_classes
from eggshard.triton.frequencies import USUAL, Frequencies, frequencies
from eggshard.triton.pricing import cost
from eggshard.triton.problem import NOTHING, Builder
from eggshard.triton.rewriting import rewrite

#: Plans are proved optimal to this part of their cost, ops that no choice changes left out.
GAP = 1e-9
#: What a conversion costs at least while spellings are chosen, as a part of the plan's cost: more than the solver's
#: tolerance, and less than any that moves something.
LEAST = 1e-6


@dataclass(frozen=True)
class LayoutPlan:
    """A kernel at the layouts chosen.

    cost, given_cost: of ``kernel`` and of ``given``, in the cost model's units (SM cycles per thread block). bound: no
    choice among the candidates costs less. candidates: "all", or "capped" where some tensor had too many encodings.
    """

    given: Kernel
    kernel: Kernel
    cost: float
    given_cost: float
    bound: float
    seconds: float
    method: str
    capped: bool

    @property
    def gap(self) -> float:
        """(cost - bound) / cost."""
        return 0.0 if self.cost <= 0 else max(0.0, (self.cost - self.bound) / self.cost)

    @property
    def conversions(self) -> int:
        """``ttg.convert_layout`` ops that are left."""
        return count_conversions(self.kernel)


def count_conversions(kernel: Kernel) -> int:
    return sum(op.name == CONVERT for op in kernel.walk())


def plan_layouts(
    kernel: Kernel, cost_model: LayoutCostModel | None = None, *, assumed: Frequencies = USUAL,
    seconds: float = 2.0,
) -> LayoutPlan:
    """The cheapest layouts for a kernel's tensors under a cost model, within about ``seconds`` of search.

    Anchored ops (large loads and stores, dots, atomics, what is not understood) keep theirs.
    """
    began = time.monotonic()
    model = default_costs(kernel.target) if cost_model is None else cost_model
    classes = find_classes(kernel)
    candidates = find_candidates(kernel, classes)
    times = frequencies(kernel, assumed)
    problem = Builder(kernel, classes, candidates, times, model).build()
    found = extract(problem.problem, seconds=seconds, gap=GAP, exact=True)
    # Layouts are chosen; now how they are spelled, with as few conversions as need be that move nothing.
    chosen = restricted(candidates, problem.chosen(found.selection), problem.options(found.selection))
    nothing = max(NOTHING, LEAST * found.selection.cost)
    spelled = Builder(kernel, classes, chosen, times, model, nothing).build()
    spelling = extract(spelled.problem, seconds=seconds, gap=GAP, exact=True)
    planned = rewrite(kernel, classes, spelled, spelling.selection)
    given_cost = cost(kernel, model, assumed)
    planned_cost = cost(planned, model, assumed)
    bound = min(planned_cost, found.bound + problem.fixed)
    return LayoutPlan(kernel, planned, planned_cost, given_cost, bound, time.monotonic() - began, found.method,
                      candidates.capped)
