"""What shardings flow through: ops with rules, data-flow edges, propagation barriers, what functions return.

Everything but ops with rules flows by the *identity*: one factor per dimension, of all values alike.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jaxlib.mlir import ir

from eggshard.program.op_sharding_rule import OpShardingRule, RuleFactor
from eggshard.shardy.attributes import read_per_value
from eggshard.shardy.edges import EDGE, FUNCTION_EDGE, owner_of, with_manual, without_manual
from eggshard.shardy.module import manual_axes, shape
from eggshard.shardy.propagation.factors import BOTH, Step
from eggshard.shardy.propagation.graph import Graph, Node
from eggshard.shardy.propagation.priorities import PHASES, schedule
from eggshard.shardy.propagation.table import NONE
from eggshard.shardy.rules import rule_of
from eggshard.shardy.traits import is_scalar, is_static

BARRIER = "sdy.propagation_barrier"


class Flow:
    """The slots between which shardings flow, operands first, and per phase the step that moves them.

    single_use: in the first phase only if none of these values, which the op takes, has other uses. manual: how the
    sharding of a manual computation's edge looks from the values that flow into it.
    """

    __slots__ = ("rule", "slots", "operands", "values", "steps", "single_use", "manual", "stated", "function_result")

    def __init__(self, rule: OpShardingRule, operands: tuple[int, ...], results: tuple[int, ...],
                 steps: tuple[Step, ...], values: tuple[Any, ...], single_use: tuple[int, ...] = ()) -> None:
        self.rule, self.slots, self.operands, self.steps = rule, operands + results, len(operands), steps
        self.values, self.single_use = values, single_use
        self.manual: ManualEdge | None = None
        #: Whether the rule is the op's, to be stated on it.
        self.stated = False
        #: The number of the function's result that shardings flow to, if it is one.
        self.function_result: int | None = None


class ManualEdge:
    """The edge of an argument or result of a computation that is manual along some axes.

    An argument's edge has the body's view of the sharding, and what flows into it the view from outside; with a result
    it is the other way round.
    """

    def __init__(self, graph: Graph, owner: Any) -> None:
        op = owner_of(owner)
        argument = isinstance(owner, ir.BlockArgument)
        name, number = ("in_shardings", owner.arg_number) if argument else ("out_shardings", owner.result_number)
        self.table, self.argument, self.axes = graph.table, argument, manual_axes(op)
        self.stated = read_per_value(str(op.attributes[name]))[number]
        self._inflow: dict[int, int] = {}

    def inflow(self, number: int) -> int:
        """What is kept at the edge, as seen by what flows into it."""
        found = self._inflow.get(number)
        if found is None:
            found = self._inflow[number] = self._seen(number, self.argument)
        return found

    def kept(self, number: int) -> int:
        """What flows into the edge, as it is kept there."""
        return self._seen(number, not self.argument)

    def _seen(self, number: int, outside: bool) -> int:
        sharding = self.table.shardings[number]
        if sharding is None:
            return NONE
        seen = with_manual(self.stated, sharding, self.axes) if outside else without_manual(sharding, self.axes)
        return self.table.number(seen)


class Flows:
    """The flows of a module's ops, found when they are first asked for."""

    def __init__(self, graph: Graph, conservative: bool = False) -> None:
        self.graph, self.conservative = graph, conservative
        self._steps: dict[tuple[OpShardingRule, tuple[int, ...], bool, bool], Step] = {}
        for node in graph.nodes:
            node.flow = self._of(node)

    def _of(self, node: Node) -> Flow | None:
        if node.name in (EDGE, FUNCTION_EDGE):
            return self._of_edge(node)
        if node.name == BARRIER:
            direction = int(ir.IntegerAttr(node.op.attributes["allowed_direction"]).value)
            same = identity(shape(node.op.results[0]), 1)
            step = self._step(same, (direction,) * len(same.factors), elementwise=True)
            return self._flow(same, node.operands, node.results, (step,) * PHASES)
        if not node.results or node.name.startswith(("func.", "builtin.", "sdy.mesh")):
            return None
        rule = rule_of(node.op, self.conservative)
        if rule is None:
            return None
        flow = self._scheduled(node, rule, node.operands, node.results, self.conservative)
        flow.stated = True
        return flow

    def _of_edge(self, node: Node) -> Flow | None:
        sources = tuple(self.graph.edge_sources(node))
        if not sources or not is_static(node.op.results[0]):
            return None
        rule = identity(shape(node.op.results[0]), len(sources))
        flow = self._scheduled(node, rule, sources, node.results, False)
        owner = node.op.operands[0]
        if owner_of(owner).name == "sdy.manual_computation":
            flow.manual = ManualEdge(self.graph, owner)
        return flow

    def of_result(self, function: Node, value: int, number: int) -> Flow | None:
        """From what a function returns to its stated result, and back; None for tokens."""
        returned = self.graph.values[value]
        if not is_static(returned):
            return None
        rule = identity(shape(returned), 1)
        step = self._step(rule, (BOTH,) * len(rule.factors))
        flow = Flow(rule, (self.graph.slot(value),), (self.graph.result_slot(function, number),), (step,) * PHASES,
                    (returned, returned))
        flow.function_result = number
        return flow

    def _scheduled(self, node: Node, rule: OpShardingRule, operands: tuple[int, ...], results: tuple[int, ...],
                   conservative: bool) -> Flow:
        steps = tuple(
            self._step(rule, directions, conservative, node.elementwise) for directions in schedule(node.op, rule))
        ranked = tuple(v for v in node.operands if not is_scalar(self.graph.values[v]))
        return self._flow(rule, operands, results, steps, ranked)

    def _flow(self, rule: OpShardingRule, operands: tuple[int, ...], results: tuple[int, ...],
              steps: tuple[Step, ...], single_use: tuple[int, ...] = ()) -> Flow:
        slot, values = self.graph.slot, self.graph.values
        return Flow(rule, tuple(map(slot, operands)), tuple(map(slot, results)), steps,
                    tuple(values[v] for v in (*operands, *results)), single_use)

    def _step(self, rule: OpShardingRule, directions: tuple[int, ...], conservative: bool = False,
              elementwise: bool = False) -> Step:
        key = (rule, directions, conservative, elementwise)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = Step(*key)
        return found


@lru_cache(maxsize=4096)
def identity(sizes: tuple[int, ...], operands: int) -> OpShardingRule:
    """The rule by which tensors of one shape, of which the last is the result, are sharded alike."""
    tensor = tuple((factor,) for factor in range(len(sizes)))
    return OpShardingRule(tuple(map(RuleFactor, sizes)), (tensor,) * operands, (tensor,))


