"""Planning of ops with bodies (loops, branches and manual computations): each body is planned once per interface.

A loop's *interface* is the placements of its carried values, equal before and after every iteration. The interfaces
tried are full replication and that of a search of all bodies together (`choosing.interfaces`), or, without one, that of
sharding propagation; what no iteration changes may also stay where it lies before the loop. An interface that hardly
any plan uses is priced by a lower bound (`Least`) until a search chooses it; only then its bodies are planned, by the
stages that plan whole programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from eggshard.egraph.graph import EGraph, ENode
from eggshard.egraph.rules import Rule
from eggshard.frontends.normalization.divergence import DIVERGES
from eggshard.placement.transfer import Strategy
from eggshard.plan.reasons import BodyReasons, Weigh, WithBodies
from eggshard.planner.baseline import baseline_program
from eggshard.planner.context import Context
from eggshard.planner.encoding.amortised import relaxed
from eggshard.planner.hints import Hints
from eggshard.planner.op_plans import OpLike, OpPlans, Types
from eggshard.planner.pipeline import demanded, encode, first_problem, saturate, solve
from eggshard.planner.repricing.overlapped import ordered
from eggshard.planner.rows import WORTH, Planning, looks_at_neighbours, with_rows
from eggshard.planner.state import Encoded, Saturated, Scheduled, Task
from eggshard.program.placement import Placement, replicated
from eggshard.program.program import Region
from eggshard.program.types import element_bytes
from eggshard.selection.bounds.bound import cheap_bound
from eggshard.selection.graph import Graph
from eggshard.selection.problem import Problem
from eggshard.spmd.hoisting import hoisted, hoisted_loop, price_of_iterations
from eggshard.spmd.joining import joined
from eggshard.spmd.manual import manual_program, placement_inside
from eggshard.steps.control_steps import Branch, Loop, price_of_loop, trips
from eggshard.steps.nested import names_in_bodies, runs_of_problems
from eggshard.steps.steps import Action, CollectivePermute, Slice, StepPlan

Placements = tuple[Placement, ...]


class Body(NamedTuple):
    """A region at placements of its inputs and outputs. times: how often a loop's body runs; else 1.

    diverges: devices along manual axes may leave each other in it, so that no collectives are added.
    """

    plans: OpPlans
    region: Region
    inputs: Placements
    outputs: Placements
    times: int = 1
    diverges: bool = False


class Least(NamedTuple):
    """What something costs at least, in seconds; ``exact`` where that is its price."""

    seconds: float
    exact: bool


class Bodies:
    """The bodies of one search, and what is known of each so far."""

    def __init__(self, rules: Sequence[Rule]):
        self.rules = rules
        self._forms: dict[tuple[object, ...], Action | StepPlan] = {}
        self._planned: dict[Body, StepPlan] = {}
        #: What is alike at every interface of a region: its e-graph, and what the nodes offer.
        self._saturated: dict[tuple[OpPlans, Region], Saturated] = {}
        #: Op by op; as propagation says; whether nothing better is available; bounds.
        self._greedy: dict[Body, StepPlan] = {}
        self._propagated: dict[Body, StepPlan] = {}
        self._plain: dict[Body, bool] = {}
        self._least: dict[Body, float] = {}
        #: How many bodies were searched for, those inside others after these; by number what explains them, and the
        #: relative gaps of their plans.
        self._searches = 0
        self._reasons: dict[int, Weigh] = {}
        self._gaps: dict[int, float] = {}

    def forget(self) -> None:
        """Let go of the e-graphs of bodies, and of what was begun."""
        self._saturated.clear()
        self._reasons.clear()
        self._gaps.clear()

    def explaining(self, steps: StepPlan, reasons: Weigh) -> Weigh:
        """What explains a plan, from what explains the steps outside of bodies."""
        if not self._reasons:
            return reasons
        runs, names = runs_of_problems(steps), names_in_bodies(steps)
        bodies = tuple(BodyReasons(n, runs[n], self._reasons[n], names.get(n, {})) for n in sorted(runs))
        return WithBodies(reasons, bodies) if bodies else reasons

    def gap(self, steps: StepPlan) -> float:
        """The largest relative gap of the bodies in a device program that were searched for."""
        return max((self._gaps[n] for n in runs_of_problems(steps)), default=0.0)

    # -- interfaces --------------------------------------------------------------------------------------------------

    def strategies(
        self, plans: OpPlans, op: OpLike, operands: Types, results: Types, searched: bool = True
    ) -> Sequence[Strategy]:
        """The interfaces of a loop or branch to choose from: full replication first.

        searched: by a search; else those of propagation.
        """
        whole = Strategy(tuple(replicated(t.shape) for t in operands), tuple(replicated(t.shape) for t in results))
        if _diverges(plans, op):
            return (whole,)
        hints = plans.hints
        proposed = hints.searched(plans.context, op) if searched else hints.interfaces(plans.context, op)
        return tuple(dict.fromkeys([whole, *proposed]))

    def priced(self, plans: OpPlans, op: OpLike, operands: Types, results: Types) -> list[tuple[Strategy, float]]:
        """The interfaces with their prices, or with lower bounds where some search may never choose them.

        These are full replication, where others are offered, and what must cost more than another one is known to.
        """
        offered = self.strategies(plans, op, operands, results)
        return priced_or_bounded(offered, partial(self.least, plans, op), partial(plans.price, op, operands, results))

    def least(self, plans: OpPlans, op: OpLike, strategy: Strategy) -> Least | None:
        """What the loop or branch costs at least at an interface; None where nothing is known but by planning.

        Several iterations that look at neighbours may cost less in a row than one by one. What a loop's condition
        sends may run once, before the loop, and be what the body sends too: such a condition counts for nothing.
        """
        if _diverges(plans, op) or (op.name == "while" and looks_at_neighbours(op.regions[1])):
            return None
        bodies = _bodies(plans, op, strategy)
        if op.name == "while":
            body, condition = self._least_of(bodies[1]), bodies[0]
            asked = self.planned(condition)  # small, so planned at once
            seconds = self._least_of(condition).seconds if not asked.messages else 0.0
            times = trips(op.attributes.get("trip_count"))
            return Least(price_of_loop(times, seconds, body.seconds), body.exact and not asked.messages)
        found = [self._least_of(body) for body in bodies]
        return Least(max(b.seconds for b in found), all(b.exact for b in found))

    # -- ops at an interface -----------------------------------------------------------------------------------------

    def form(self, plans: OpPlans, op: OpLike, strategy: Strategy, types: Types, searched: bool) -> Action | StepPlan:
        """The loop on shards of these types with what is invariant before it, or the branch.

        Iterations are put in a row where that pays. searched: plan bodies; else those that have not been planned yet
        are done op by op.
        """
        bodies = _bodies(plans, op, strategy)
        if not searched and not all(body in self._planned for body in bodies[op.name == "while":]):
            action = _action(op, [self.plain(body) for body in bodies])
            return hoisted_loop(action, types) if isinstance(action, Loop) else action
        key = (plans.base, op.name, op.attributes, op.regions, strategy, types)
        if key not in self._forms:
            form: Action | StepPlan = _action(op, [self.planned(body) for body in bodies])
            context = plans.base.context
            if isinstance(form, Loop) and not context.outer:
                # Nothing has windows in manual computations, so iterations in a row would share no exchange.
                planning = Planning(
                    partial(self._demanded, bodies[1]),
                    lambda region, inputs, outputs: self.planned(Body(plans.base, region, inputs, outputs)),
                    context.router, lambda p: context.pricer.program(joined(hoisted(p), context.pricer)),
                    max(context.limits.gap, WORTH))
                form = with_rows(form, bodies[0].region, bodies[1].region, strategy.operands, planning)
            if isinstance(form, Loop):
                form = hoisted_loop(form, types)
            self._forms[key] = hoisted(form) if isinstance(form, StepPlan) else form
        return self._forms[key]

    def manual(self, plans: OpPlans, op: OpLike, strategy: Strategy) -> StepPlan:
        """A manual computation: its body as its author wrote it, reshards along the free axes added."""
        (region,), axes = op.regions, op.attributes["manual_axes"]
        inner = plans.within(op.attributes)
        if inner.context.free.size == 1:
            return manual_program(plans.mesh, region, inner.context.free)
        inputs, outputs = (
            tuple(placement_inside(p, axes) for p in end) for end in (strategy.operands, strategy.results)
        )
        return self.planned(Body(inner, region, inputs, outputs))

    # -- bodies ------------------------------------------------------------------------------------------------------

    def planned(self, body: Body) -> StepPlan:
        """The cheapest device program found for a body; what is invariant in a loop's is paid for once."""
        if body not in self._planned:
            self._planned[body] = _undivided(body) if body.diverges else self._search(body)
        return self._planned[body]

    def _search(self, body: Body) -> StepPlan:
        if self._is_plain(body):
            return self._op_by_op(body)
        plain = self._op_by_op(body)
        number = self._searches = self._searches + 1
        found = solve(first_problem(replace(self._state(body), number=number)))
        self._reasons[number], self._gaps[number] = found.reasons, _gap(body, found)
        best = min(found.steps, ordered(plain, body.plans.context.pricer), key=partial(_price, body))
        self._greedy[body] = best
        return best

    def plain(self, body: Body) -> StepPlan:
        """A body without a search: op by op, or as propagation says at what it proposed."""
        if body.diverges:
            return _undivided(body)
        greedy, stated = self._op_by_op(body), body.plans.hints.inside(body.region)
        if not stated or not any(p.used_axes for p in (*body.inputs, *body.outputs)):
            return greedy
        if body not in self._propagated:
            self._propagated[body] = baseline_program(body.plans, body.region, stated, body.inputs, body.outputs)
        return min(greedy, self._propagated[body], key=partial(_price, body))

    def _op_by_op(self, body: Body) -> StepPlan:
        if body not in self._greedy:
            self._greedy[body] = baseline_program(body.plans, body.region, None, body.inputs, body.outputs)
        return self._greedy[body]

    def _least_of(self, body: Body) -> Least:
        """What a body costs at least; a loop's body one of its iterations, what is invariant paid for by all."""
        known = self._is_plain(body) or body in self._planned
        price = _price(body, self._op_by_op(body)) / body.times
        if known:
            return Least(price, True)
        if body not in self._least:  # every all-reduce pays its latency
            self._least[body] = min(price, cheap_bound(Graph(_relaxed(encode(self._state(body))))))
        return Least(self._least[body], False)

    def _is_plain(self, body: Body) -> bool:
        """Whether nothing is cheaper than the body op by op, which then sends no message."""
        if body not in self._plain:
            self._plain[body] = self._sends_nothing(body)
        return self._plain[body]

    def _sends_nothing(self, body: Body) -> bool:
        plans, region = body.plans, body.region
        if not any(p.used_axes for p in (*body.inputs, *body.outputs)):
            whole = baseline_program(plans, region, [None] * len(region.types), body.inputs, body.outputs)
            if not whole.messages and plans.context.pricer.program(whole) <= _least_message(plans, region):
                self._greedy[body] = whole  # any message would cost more than all that it could save
        plain = self._op_by_op(body)
        # What a device cuts down once it is made could be made smaller.
        return not plain.messages and not any(isinstance(step.action, Slice) for step in plain.steps)

    def graph_of(self, plans: OpPlans, region: Region) -> EGraph:
        """The e-graph of a region, which is the same at whatever interface."""
        return self._saturated_region(plans.base, region).graph

    def _state(self, body: Body) -> Saturated:
        return replace(self._saturated_region(body.plans, body.region), inputs=body.inputs,
                       outputs=[[p] for p in body.outputs], trips=body.times, clock={})

    def _saturated_region(self, plans: OpPlans, region: Region) -> Saturated:
        key = plans, region
        if key not in self._saturated:
            self._saturated[key] = saturate(Task(plans=plans, rules=self.rules, region=region, inputs=(), outputs=()))
        return self._saturated[key]

    def _demanded(self, body: Body, outputs: Placements) -> Placements:
        """The windows of a body's inputs from which its outputs are computed without communication."""
        return demanded(self._state(body._replace(outputs=outputs, times=1)))


def plans_of(context: Context, rules: Sequence[Rule]) -> OpPlans:
    """The plans of a context's ops, whose bodies are planned under these rules."""
    return OpPlans(context, Hints(context), Bodies(rules))


def priced_or_bounded(
    offered: Sequence[Strategy], least: Callable[[Strategy], Least | None], price: Callable[[Strategy], float]
) -> list[tuple[Strategy, float]]:
    """Per interface its price, or its bound where that is full replication's, or above a price that is known."""
    known, found = math.inf, []
    for i, s in enumerate(offered):
        most_likely = len(offered) == 1 or (i > 0 and known == math.inf)
        bound = None if most_likely else least(s)
        if bound is None or not (bound.exact or i == 0 or bound.seconds > known):
            bound = Least(price(s), True)
        known = min(known, bound.seconds) if bound.exact else known
        found.append((s, bound.seconds))
    return found


def _diverges(plans: OpPlans, op: OpLike) -> bool:
    """Whether devices along manual axes may leave each other in the op's bodies: nothing is added to those."""
    return bool(plans.context.outer and op.attributes.get(DIVERGES))


def _bodies(plans: OpPlans, op: OpLike, strategy: Strategy) -> list[Body]:
    """The bodies of a loop (its condition, its body) or of a branch at an interface."""
    base, diverges = plans.base, _diverges(plans, op)
    if op.name == "while":
        condition, body = op.regions
        times = max(1, trips(op.attributes.get("trip_count")))
        return [Body(base, condition, strategy.operands, (replicated(()),), 1, diverges),
                Body(base, body, strategy.operands, strategy.results, times, diverges)]
    return [Body(base, region, strategy.operands[1:], strategy.results, 1, diverges) for region in op.regions]


def _action(op: OpLike, planned: Sequence[StepPlan]) -> Action:
    if op.name == "while":
        condition, body = planned
        return Loop(condition, body, op.attributes.get("trip_count"))
    return Branch(tuple(planned), predicate=op.name == "if")


def _undivided(body: Body) -> StepPlan:
    """The body as its author wrote it, replicated along the free axes."""
    return manual_program(body.plans.mesh, body.region, body.plans.context.free)


def _gap(body: Body, found: Scheduled) -> float:
    """The relative gap of a body's plan to the bound of plans among which it was sought."""
    cost = body.plans.context.pricer.program(found.steps)
    bound = max(found.search.bound, found.search.once, found.search.terms)
    return max(0.0, 1 - bound / cost) if cost > 0 else 0.0


def _price(body: Body, program: StepPlan) -> float:
    """What a device program of a body costs in all of a loop's iterations, in seconds."""
    return price_of_iterations(program, body.times, body.plans.context.pricer.program)


def _relaxed(state: Encoded) -> Problem:
    """A problem that costs no more than any plan of one of a loop's iterations, whatever is taken out of the loop."""
    graph, region, plans = state.graph, state.region, state.plans
    if state.trips == 1:
        return state.encoding.problem

    def is_one_step(node: ENode, cls: int, strategy: Strategy) -> bool:
        types = tuple(graph.type_of(child) for child in node.children)
        return plans.is_one_step(node, types, graph.classes[cls].types, strategy)

    pairs = enumerate(zip(region.inputs, region.outputs, strict=True))
    same = {i for i, (v, w) in pairs if graph.values[v] == graph.values[w]}
    return relaxed(state.encoding.problem, graph, same, state.trips, is_one_step)


def _least_message(plans: OpPlans, region: Region) -> float:
    """What it costs to send one element of a region's smallest type along the axis where that is cheapest."""
    mesh = plans.mesh
    element = min(region.types, key=lambda t: element_bytes(t.dtype)).with_shape(())
    grid = mesh.grid.reshape(-1).tolist()
    ways = {a: mesh.mirrored((a,)).reshape(-1).tolist() for a, n in mesh.axes.items() if n > 1}
    sent = [CollectivePermute(tuple(zip(grid, to, strict=True)), (a,)) for a, to in ways.items()]
    return min((plans.context.pricer(action, element) for action in sent), default=0.0)
