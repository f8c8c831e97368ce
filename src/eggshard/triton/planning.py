"""Joint planning of all layouts of a kernel: what is converted, and what is computed in several layouts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from eggshard.collector import collector_paused
from eggshard.limits import Deadline
from eggshard.selection.portfolio import extract
from eggshard.triton.candidates import Candidates, computing, find_candidates
from eggshard.triton.classes import CONVERT, Classes, find_classes
from eggshard.triton.control import is_sealed
from eggshard.triton.frequencies import USUAL, Frequencies, frequencies
from eggshard.triton.kernels.ir import Kernel
from eggshard.triton.layout_costs import LayoutCostModel, default_costs, priced_as
from eggshard.triton.layouts.families import linear_layout
from eggshard.triton.pricing import Priced, cost, priced
from eggshard.triton.problem import Builder
from eggshard.triton.rewriting import rewrite
from eggshard.triton.rules import is_known
from eggshard.triton.spelling import spell
from eggshard.triton.table import conversions_table

#: Plans are proved optimal to this part of their cost, ops that no choice changes left out.
GAP = 1e-9
#: Work of a search, in seconds that it takes on a usual core: more than any kernel of `python -m bench triton` needs.
WORK = 5.0
#: Costs closer than this part of one another are the same.
SAME = 1e-9
#: Plans this near to their bound count as optimal: rounding.
PROVED = 1e-6


@dataclass(frozen=True)
class LayoutPlan:
    """A kernel at the layouts chosen.

    cost, given_cost: of ``kernel`` and of ``given``, in the cost model's units (SM cycles per thread block). bound: no
    choice among the candidates costs less. capped: some tensor had more encodings than are kept. seconds: of planning.
    late: the clock ended the search, so that another one may find another plan. unknown: ops and encodings that are not
    understood, whose prices the cost and the bound leave out.
    """

    given: Kernel
    kernel: Kernel
    cost: float
    given_cost: float
    bound: float
    seconds: float
    method: str
    capped: bool
    cost_model: LayoutCostModel
    assumed: Frequencies
    late: bool = False
    unknown: tuple[str, ...] = ()

    def __str__(self) -> str:
        saved = 1 - self.cost / self.given_cost if self.given_cost > 0 else 0.0
        lines = (
            f"layouts of {self.name or 'a kernel'} for {self.kernel.target or 'an unknown target'}: "
            f"{self.given_conversions} -> {self.conversions} conversions, cost {self.given_cost:.6g} -> "
            f"{self.cost:.6g} cycles per block ({-100 * saved:+.1f} %)",
            self.certificate,
            self._prices,
            conversions_table(self.priced(), self.cost),
        )
        return "\n".join(filter(None, lines))

    def text(self) -> str:
        """The kernel as TritonGPU IR, in libtriton's own spelling; verified. Raises `ProgramError` if it is refused."""
        from eggshard.triton.frontend.libtriton import module_of

        module = module_of(self.kernel)
        located = any(op.location for op in self.kernel.walk())
        return str(module) if located else str(module.str_nodebug())

    def priced(self) -> list[Priced]:
        """The kernel's ops on tensors with their prices, conversions among them."""
        return list(priced(self.kernel, self.cost_model, self.assumed))

    def again(self, kernel: Kernel) -> LayoutPlan:
        """The plan of a kernel that is equal to ``self.kernel``: it is left as it is."""
        return replace(self, given=kernel, kernel=kernel, given_cost=self.cost, seconds=0.0)

    @property
    def name(self) -> str:
        """The function's name, of the first where there are several."""
        functions = self.kernel.functions
        return (functions[0].attribute("sym_name") or "").strip('"') if functions else ""

    @property
    def given_conversions(self) -> int:
        """``ttg.convert_layout`` ops of the kernel as it came."""
        return count_conversions(self.given)

    @property
    def certificate(self) -> str:
        """What is proved."""
        if self.unknown:
            return f"nothing is proved: not understood are {', '.join(self.unknown)}"
        among = "the candidates that were kept" if self.capped else "all candidates"
        late = "; the clock ended the search: another one may find another plan" if self.late else ""
        if self.search_gap <= PROVED:
            return f"optimal among {among}{late}"
        return f"at most {100 * self.search_gap:.2g} % above the best of {among}{late}"

    @property
    def gap(self) -> float | None:
        """No layouts are cheaper by more than this part of the cost; None where some were left out, or are not
        understood."""
        return None if self.capped or self.unknown else self.search_gap

    @property
    def _prices(self) -> str:
        """Whose prices these are, if not the target's own."""
        target, own = self.kernel.target, priced_as(self.kernel.target)
        if self.cost_model is not default_costs(target) or target == own:
            return ""
        return f"at the prices of {own}: {target or 'a target that the module does not name'} has none of its own"

    @property
    def search_gap(self) -> float:
        """(cost - bound) / cost, of the candidates that were kept."""
        return 0.0 if self.cost <= 0 else max(0.0, (self.cost - self.bound) / self.cost)

    @property
    def conversions(self) -> int:
        """``ttg.convert_layout`` ops that are left."""
        return count_conversions(self.kernel)


def count_conversions(kernel: Kernel) -> int:
    return sum(op.name == CONVERT for op in kernel.walk())


def plan_layouts(
    kernel: Kernel, cost_model: LayoutCostModel | None = None, *, assumed: Frequencies = USUAL,
    seconds: float = 60.0,
) -> LayoutPlan:
    """The cheapest layouts for a kernel's tensors under a cost model, with so much work that a kernel always gets the
    same ones, unless ``seconds`` end the search.

    Anchored ops (large loads and stores, dots, atomics, what is not understood) keep theirs.
    """
    with collector_paused():
        return _plan(kernel, cost_model, assumed, Deadline(seconds))


def _plan(
    kernel: Kernel, cost_model: LayoutCostModel | None, assumed: Frequencies, deadline: Deadline
) -> LayoutPlan:
    began = time.monotonic()
    model = default_costs(kernel.target) if cost_model is None else cost_model
    classes = find_classes(kernel)
    candidates = find_candidates(kernel, classes)
    times = frequencies(kernel, assumed)
    if deadline.passed:
        return replace(given_plan(kernel, model, assumed), seconds=time.monotonic() - began, late=True)
    problem = Builder(kernel, classes, candidates, times, model).build()
    found = extract(problem.problem, seconds=WORK, gap=GAP, exact=True, deadline=deadline.at)
    planned = rewrite(problem, spell(problem, found.selection, WORK, deadline.at))
    prices = list(priced(kernel, model, assumed))
    given_cost = sum(p.cost for p in prices)
    planned_cost = cost(planned, model, assumed)
    if planned_cost >= (1 - SAME) * given_cost:  # nothing better, or the search ran out of time
        planned, planned_cost = kernel, given_cost
    fixed = problem.fixed + sum(p.cost for p in prices if is_sealed(p.op))
    bound = min(planned_cost, found.bound + fixed)
    return LayoutPlan(kernel, planned, planned_cost, given_cost, bound, time.monotonic() - began, found.method,
                      candidates.capped, model, assumed, deadline.passed, tuple(_unknown(kernel, classes, candidates)))


def _unknown(kernel: Kernel, classes: Classes, candidates: Candidates) -> Iterator[str]:
    """The ops on tensors that have no rule, and the encodings that are no linear layout, each once."""
    yield from dict.fromkeys(op.name for op in computing(kernel, classes) if not is_known(op))
    yield from dict.fromkeys(
        encoding.kind for c, some in enumerate(candidates.encodings) for encoding in some
        if linear_layout(encoding, classes.types[c].shape) is None)


def given_plan(
    kernel: Kernel, cost_model: LayoutCostModel | None = None, assumed: Frequencies = USUAL
) -> LayoutPlan:
    """The kernel as it is: the baseline. Nothing is known of how much better it might be."""
    model = default_costs(kernel.target) if cost_model is None else cost_model
    price = cost(kernel, model, assumed)
    return LayoutPlan(kernel, kernel, price, price, 0.0, 0.0, "as given", True, model, assumed)
