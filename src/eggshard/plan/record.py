"""The plan record: a device program for a program, its price, its certificate and its reasons. Data only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from eggshard.costmodel.pricing import Pricer
from eggshard.costmodel.protocol import CostModel
from eggshard.costmodel.schedule import Schedule
from eggshard.costmodel.units import Unit, unit_of
from eggshard.frontends.protocol import CallingConvention
from eggshard.plan.naming import class_names
from eggshard.plan.proof import Proof
from eggshard.plan.reasons import Reasons, Weigh
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.program import Program
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.steps import Step, StepPlan
from eggshard.tables import Shown, duration

T = TypeVar("T")


class Cost(NamedTuple):
    """Seconds under the plan's cost model.

    total: of the plan's schedule; where the model overlaps nothing this is communication + compute.
    """

    total: float
    communication: float
    compute: float

    @property
    def hidden(self) -> float:
        """What the schedule takes less than communication and compute one after the other."""
        return max(0.0, self.communication + self.compute - self.total)

    @property
    def exposed(self) -> float:
        """Communication that nothing hides."""
        return self.communication - self.hidden


@dataclass(frozen=True, repr=False)
class Search(Shown):
    """How a plan was found: what was searched, and what is certified about it.

    bound: seconds that no plan of the saturated e-graph undercuts. once: the same of plans that compute no value twice.
    terms: the same of plans that compute no value twice, and every value that this plan computes by the same op and
    from the same windows. capped: candidate placements were left out (`Limits.placements`), and the bounds are of plans
    among the others. shared: conversions of one value may share steps, and all-reduces latencies, and the bounds
    are of plans that share none; sharing: seconds that none undercuts that share what they may.
    left_out: what else was not searched, in words. late: the stages that the clock ended: another run may find another
    plan, while one that the clock does not end always finds the same.
    """

    bound: float = 0.0
    once: float = 0.0
    terms: float = 0.0
    method: str = "baseline"
    exact: bool = False
    fallback: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    classes: int = 0
    nodes: int = 0
    rules: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    capped: bool = False
    shared: bool = False
    sharing: float = 0.0
    left_out: tuple[str, ...] = ()
    late: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.method}, sums {'in their order' if self.exact else 'may be reassociated'}; "
                 f"{self.classes} classes, {self.nodes} nodes, {duration(sum(self.seconds.values()))}"]
        if self.fallback:
            lines.append(f"it fell back to the baseline: {self.fallback}")
        lines += [f"  {stage:<12} {duration(seconds):>8}" for stage, seconds in self.seconds.items()]
        if self.rules:
            most = sorted(self.rules.items(), key=lambda item: (-item[1], item[0]))
            lines.append("rules: " + ", ".join(f"{name} {count}" for name, count in most))
        for what, found in (("left out", self.left_out), ("ended by the clock", self.late), ("notes", self.notes)):
            if found:
                lines.append(f"{what}: {'; '.join(found)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class PlanRecord:
    """A device program for a sharded tensor program, with its cost and its reasons: the data of a plan.

    input_placements and output_placements say how the global arrays lie on the mesh at the boundary (always evenly).
    device_order: of a plan from JSON, how the mesh that it was made for ordered its devices, by their numbers.
    """

    program: Program
    device_program: StepPlan
    input_placements: tuple[Placement, ...]
    output_placements: tuple[Placement, ...]
    cost_model: CostModel
    search: Search = Search()
    baseline_factory: Callable[[], PlanRecord] | None = field(default=None, compare=False, repr=False)
    calling_convention: CallingConvention | None = field(default=None, compare=False, repr=False)
    device_order: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    #: What weighs the plan's decisions against their alternatives, given what the plan calls the tensors of classes
    #: (`plan.naming`), or the outcome, as it was read from JSON.
    reasons_factory: Weigh | Reasons | None = field(default=None, compare=False, repr=False)
    #: What `eggshard.optimize` has shown of the plan by itself; None where it did not try.
    proved: Proof | None = field(default=None, compare=False, repr=False)

    @property
    def mesh(self) -> Mesh:
        return self.device_program.mesh

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.device_program.steps

    @property
    def unit(self) -> Unit:
        """What the prices of the plan's cost model are."""
        return unit_of(self.cost_model)

    @cached_property
    def prices(self) -> tuple[float, ...]:
        """The price of each step under the plan's cost model, in seconds unless it states another `unit`."""
        types = self.device_program.types
        return tuple(self._price(s.action, *(types[v] for v in s.operands)) for s in self.steps)

    @cached_property
    def _price(self) -> Pricer:
        return Pricer(self.cost_model, self.mesh)

    @cached_property
    def schedule(self) -> Schedule:
        """When each step runs. Where the model overlaps nothing (`CostModel`), one after the other."""
        return self._price.schedule(self.device_program)

    @cached_property
    def cost(self) -> Cost:
        """Seconds, and those of communication (steps that issue collectives) and of compute (all others).

        Loops and branches have both, by what their bodies do.
        """
        sending = sum(p for p, s in zip(self.prices, self.steps, strict=True) if s.action.messages)
        compute = sum(p for p, s in zip(self.prices, self.steps, strict=True) if not s.action.messages)
        total = self.schedule.makespan if self._price.overlap else sending + compute
        inside = [(p, self._price.parts(s.action)) for p, s in zip(self.prices, self.steps, strict=True)
                  if s.action.messages and isinstance(s.action, (Loop, Branch))]
        communication = sending - sum(p - sent for p, (sent, _) in inside)
        return Cost(total, communication, compute + sum(computed for _, (_, computed) in inside))

    @property
    def bound(self) -> float:
        """No plan of the saturated e-graph costs less than this many seconds (certified by the extractor).

        Where only `Search.once` or `Search.terms` is certified the bound is of fewer plans: see `certificate`.
        """
        return min(max(self.search.bound, self.search.once, self.search.terms), self.cost.total)

    @property
    def certificate(self) -> str:
        """Which plans the bound and `search_gap` are of: "all plans", "plans that compute nothing twice", or those of
        them "by the same ops from the same windows" as this plan, where no bound is known of what there is instead.

        Bodies of loops and branches are planned on their own; the bound takes them as they are.
        """
        near = self.bound * (1 - 1e-3)
        plans = "all plans" if self.search.bound >= near else "plans that compute nothing twice"
        plans += "" if max(self.search.bound, self.search.once) >= near else ", by the same ops from the same windows"
        plans += " among the candidates" if self.search.capped else ""
        bodies = any(isinstance(s.action, (Loop, Branch)) for s in self.steps)
        plans += " with these bodies of loops and branches" if bodies else ""
        if self.search.left_out:
            plans += f" (not searched: {'; '.join(self.search.left_out)})"
        return plans + (", each conversion paid whole" if self.search.shared else "")

    @property
    def gap(self) -> float | None:
        """No plan of all that the rewrites derive is cheaper by more than this part of the cost; None where that is not
        known.

        It is not where something was left out of the search, or nothing was searched. Plans whose conversions of one
        value share steps count. 0 for a plan that costs nothing.
        """
        search, total = self.search, self.cost.total
        if total <= 0:
            return 0.0
        bound = min(search.bound, search.sharing) if search.shared else search.bound
        return None if search.capped or search.left_out or bound <= 0 else max(0.0, 1 - bound / total)

    @property
    def search_gap(self) -> float:
        """(cost - bound) / cost, of the plans that `certificate` names: a measure of the search, not of the plan.

        0 for a plan that costs nothing.
        """
        total = self.cost.total
        return 0.0 if total <= 0 else (total - self.bound) / total

    @cached_property
    def received(self) -> np.ndarray:
        """Bytes that each device receives in each step, ``[steps, devices]``."""
        rows = [self.device_program.received(s) for s in self.steps]
        return np.array(rows) if rows else np.zeros((0, self.mesh.size))

    @property
    def wire_bytes(self) -> int:
        """Bytes received by the busiest device over the whole plan (ring formulas)."""
        return int(round(self.received.sum(axis=0).max())) if len(self.steps) else 0

    @property
    def serial_bytes(self) -> int:
        """The busiest device of each collective, added up: what a bulk-synchronous machine waits for."""
        return int(round(self.device_program.serial_bytes))

    @property
    def collectives(self) -> dict[str, int]:
        """How many collectives of each kind the device program issues."""
        return self.device_program.collectives

    def once(self, compute: Callable[[PlanRecord], T]) -> T:
        """The answer of a function of this plan, computed the first time and kept with the plan: for rooms above."""
        if compute not in self._computed:
            self._computed[compute] = compute(self)
        answer: T = self._computed[compute]
        return answer

    @cached_property
    def _computed(self) -> dict[Callable[[PlanRecord], Any], Any]:
        return {}

    @property
    def flops(self) -> float:
        """Floating-point operations per device, loops counted by their trip counts."""
        return self.device_program.flops

    @cached_property
    def baseline(self) -> PlanRecord:
        """The plan that this one is compared with: propagated shardings, with every op resharded independently.

        The baseline's own baseline is itself, and so is that of a plan read from JSON, which does not hold it.
        """
        return self if self.baseline_factory is None else self.baseline_factory()

    @cached_property
    def reasons(self) -> Reasons:
        """Every decision of the plan: its rules, its alternatives with their prices, and what would change it.

        Found when first asked for. A baseline has none, and says so.
        """
        return self.reasons_for(class_names(self))

    def reasons_for(self, names: Mapping[int, str]) -> Reasons:
        """Return the plan's decisions with tensors called by ``names``, which map e-class ids (`Held.cls`) to text."""
        if isinstance(self.reasons_factory, Reasons):
            return self.reasons_factory
        if self.reasons_factory is None:
            return Reasons(note=self.search.fallback or "nothing was searched for: this is the baseline")
        return self.reasons_factory(names)
