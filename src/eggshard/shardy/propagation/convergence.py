"""Propagation until nothing changes: ops are looked at in turn, and again when a sharding near them has changed.

Where shardings are in conflict, who comes first decides. So the order is that in which Shardy looks at ops: at first
that of the text, then the latest change first, an op's surroundings before itself. Ops without which nothing would be
missed are taken away when their turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable

from eggshard.program.mesh import Mesh
from eggshard.shardy.projection import Projection
from eggshard.shardy.propagation.factors import Step, Strategy
from eggshard.shardy.propagation.flows import Flow, Flows
from eggshard.shardy.propagation.graph import NO_SLOT, Graph, Node
from eggshard.shardy.propagation.groups import Groups
from eggshard.shardy.propagation.origins import Notes
from eggshard.shardy.propagation.table import NONE

#: What a step changes: positions among a flow's slots, and the numbers of their new shardings.
Changes = tuple[tuple[int, int], ...]


class Propagation:
    """The shardings of a module on their way to where nothing changes; notes: told of every step that changes one."""

    def __init__(self, graph: Graph, groups: Groups, conservative: bool = False, notes: Notes | None = None) -> None:
        self.graph, self.groups, self.notes = graph, groups, notes
        self.flows = Flows(graph, conservative)
        self._known: dict[tuple[Strategy, Step, tuple[int, ...]], Changes] = {}
        self._returned = [
            (function, flow) for function in entry_functions(graph)
            for flow in returned_values(graph, self.flows, function)
        ]

    def converge(self, strategy: Strategy, phase: int) -> None:
        """Propagate until no op that flows in a phase of the schedule changes anything."""
        self._returns(strategy, phase)
        graph = self.graph
        work = Worklist(graph.nodes)
        while (number := work.pop()) is not None:
            node = graph.nodes[number]
            if node.pure and graph.is_dead(node):
                self._erase(node, work)
            elif node.flow is not None:
                self._visit(node, strategy, phase, work)
        self._returns(strategy, phase)

    def _returns(self, strategy: Strategy, phase: int) -> None:
        for function, flow in self._returned:
            before = tuple(map(self.graph.shardings.__getitem__, flow.slots))
            changes = self._changes(strategy, flow.steps[phase], before, flow.operands)
            for position, number in changes:
                self.graph.keep(flow.slots[position], number)
                if position < flow.operands:
                    for member in self.groups.others(flow.slots[position]):
                        self.graph.keep(member, number)
            if changes and self.notes:
                self._note(function, flow, flow.steps[phase], strategy, before)

    def _visit(self, node: Node, strategy: Strategy, phase: int, work: Worklist) -> None:
        flow, graph = node.flow, self.graph
        step = flow.steps[phase]
        if not step.moves:
            return
        if phase == 0 and any(graph.use_counts[value] > 1 for value in flow.single_use):
            return
        before = tuple(map(graph.shardings.__getitem__, flow.slots))
        if flow.manual:
            before = (*before[:-1], flow.manual.inflow(before[-1]))
        changes = self._changes(strategy, step, before, flow.operands)
        for position, number in changes:
            slot = flow.slots[position]
            if flow.manual and position == flow.operands:
                number = flow.manual.kept(number)
            self._set(slot, number, node, work)
            for member in self.groups.others(slot):
                self._set(member, number, node, work)
        if changes and self.notes:
            self._note(node, flow, step, strategy, before)

    def _set(self, slot: int, number: int, node: Node, work: Worklist) -> None:
        if slot == NO_SLOT:
            return
        self.graph.keep(slot, number)
        for other in self.graph.affected(slot):
            if other != node.number:
                work.push(self.graph.nodes[other])

    def _changes(self, strategy: Strategy, step: Step, before: tuple[int, ...], operands: int) -> Changes:
        key = (strategy, step, before)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._computed(strategy, step, before, operands)
        return found

    def _computed(self, strategy: Strategy, step: Step, before: tuple[int, ...], operands: int) -> Changes:
        table = self.graph.table
        common = table.common_mesh(before)
        if common is None:
            return ()
        mesh_name, mesh = common
        projection = self._projection(step, before, operands, mesh)
        changed = strategy(step, projection, mesh)
        out = []
        mappings = (*step.rule.operands, *step.rule.results)
        for position, (tensor, dims) in enumerate(zip(projection.tensors, mappings, strict=True)):
            if not changed[position]:
                continue
            sharding = tensor.sharding(dims, step.rule, mesh, mesh_name)
            number = table.number(sharding)
            if number != before[position] and (before[position] != NONE or any(sharding.axes)):
                out.append((position, number))
        return tuple(out)

    def _projection(self, step: Step, before: tuple[int, ...], operands: int, mesh: Mesh) -> Projection:
        stated = [self.graph.table.shardings[number] for number in before]
        return Projection.of(step.rule, stated[:operands], stated[operands:], mesh)

    def _note(self, node: Node, flow: Flow, step: Step, strategy: Strategy, before: tuple[int, ...]) -> None:
        common = self.graph.table.common_mesh(before)
        if self.notes is None or common is None:
            return
        old, new = (self._projection(step, before, flow.operands, common[1]) for _ in range(2))
        strategy(step, new, common[1])
        self.notes.take(node.op, flow.values, step.rule, old, new, common[1], flow.function_result)

    def _erase(self, node: Node, work: Worklist) -> None:
        graph = self.graph
        for taken in graph.erase(node):
            for value in taken.operands:
                definer = graph.definer(value)
                if definer is not None and len(graph.using(value)) <= 1:
                    work.push(definer)
            work.drop(taken.number)


class Worklist:
    """Ops to look at, the last one put in first; an op is in it once. At first all, those of the text's top on top."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._stack: list[int | None] = [node.number for node in nodes if not node.erased]
        self._stack.reverse()
        self._places: dict[int, int] = {number: i for i, number in enumerate(self._stack) if number is not None}

    def push(self, node: Node) -> None:
        """Put an op in, and those around it on top of it, as far as they are not there."""
        if node.erased:
            return
        for number in (node.number, *node.ancestors):
            if number not in self._places:
                self._places[number] = len(self._stack)
                self._stack.append(number)

    def drop(self, number: int) -> None:
        """Take an op out."""
        place = self._places.pop(number, None)
        if place is not None:
            self._stack[place] = None

    def pop(self) -> int | None:
        """The next op, None when there is none."""
        while self._stack:
            number = self._stack.pop()
            if number is not None:
                del self._places[number]
                return number
        return None


def entry_functions(graph: Graph) -> list[Node]:
    """The function whose results are propagated to and from: the only one, or ``main``, or those that nobody calls."""
    functions = list(graph.functions.values())
    if len(functions) == 1:
        return functions
    if "main" in graph.functions:
        return [graph.functions["main"]]
    return [function for name, function in graph.functions.items() if name not in graph.calls]


def returned_values(graph: Graph, flows: Flows, function: Node) -> list[Flow]:
    """The flows between what a function returns and the shardings stated for its results."""
    blocks = list(function.op.regions[0].blocks)
    if not blocks:
        return []
    last = graph.node(blocks[0].operations[len(blocks[0].operations) - 1].operation)
    found = (flows.of_result(function, value, number) for number, value in enumerate(last.operands))
    return [flow for flow in found if flow is not None]
