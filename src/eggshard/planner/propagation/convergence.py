"""Propagation to a fixed point: each op is visited in turn, and again when a sharding near it has changed.

Where shardings conflict, the first to arrive wins, so the order of visits is Shardy's: first that of the text, then the
latest change first, with an op's surroundings before itself. An op that is dead is removed when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eggshard.planner.propagation.flows import Flow
from eggshard.planner.propagation.graph import NO_SLOT, Graph, Node
from eggshard.planner.propagation.priorities import UserPriorities
from eggshard.planner.propagation.projection import Projection
from eggshard.planner.propagation.schedule import ANYTHING, PHASES
from eggshard.planner.propagation.strategies import Step, Strategy
from eggshard.planner.propagation.table import NONE
from eggshard.program.mesh import Mesh

#: What a step changes: positions among a flow's slots, and the numbers of their new shardings.
Changes = tuple[tuple[int, int], ...]
#: Told of every step that changes something: the op, its flow, and the shardings of factors before and after.
Notes = Callable[[Node, Flow, Projection, Projection, Mesh], None]


class Propagation:
    """The shardings of a program on their way to where nothing changes."""

    def __init__(self, graph: Graph, notes: Notes | None = None) -> None:
        self.graph, self.notes = graph, notes
        self._known: dict[tuple[Strategy, Step, tuple[int, ...]], Changes] = {}

    def by_priorities(self, strategies: Sequence[Strategy], scheduled: bool = True) -> None:
        """Propagate the dimensions of priority 0 to convergence, then with them those of 1, and so on."""
        priorities = UserPriorities(self.graph)
        self.in_phases(strategies, scheduled)
        for priority in sorted(priorities.waiting):
            priorities.give_back(priority)
            self.in_phases(strategies, scheduled)

    def in_phases(self, strategies: Sequence[Strategy], scheduled: bool = True) -> None:
        """Propagate through some kinds of op before others, or else through all at once."""
        for phase in range(PHASES) if scheduled else (ANYTHING,):
            for strategy in strategies:
                self.converge(strategy, phase)

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
                self._visit(node, node.flow, strategy, phase, work)
        self._returns(strategy, phase)

    def _returns(self, strategy: Strategy, phase: int) -> None:
        for function, flow in self.graph.returned:
            before = tuple(map(self.graph.shardings.__getitem__, flow.slots))
            changes = self._changes(strategy, flow.steps[phase], before, flow.operands)
            for position, number in changes:
                slot = flow.slots[position]
                for changed in (slot, *self.graph.groups.get(slot, ())):
                    self.graph.keep(changed, number)
            if changes:
                self._note(function, flow, flow.steps[phase], strategy, before)

    def _visit(self, node: Node, flow: Flow, strategy: Strategy, phase: int, work: Worklist) -> None:
        graph, step = self.graph, flow.steps[phase]
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
            for changed in (slot, *graph.groups.get(slot, ())):
                self._set(changed, number, node, work)
        if changes:
            self._note(node, flow, step, strategy, before)

    def _set(self, slot: int, number: int, node: Node, work: Worklist) -> None:
        if slot == NO_SLOT:
            return
        self.graph.keep(slot, number)
        for other in self.graph.watchers[slot]:
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
        self.notes(node, flow, old, new, common[1])

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
        self._waiting = dict.fromkeys(reversed([node.number for node in nodes if not node.erased]))

    def push(self, node: Node) -> None:
        """Put an op in, and those around it on top of it, as far as they are not there."""
        if not node.erased:
            for number in (node.number, *node.ancestors):
                self._waiting.setdefault(number)

    def drop(self, number: int) -> None:
        """Take an op out."""
        self._waiting.pop(number, None)

    def pop(self) -> int | None:
        """The next op, None when there is none."""
        return self._waiting.popitem()[0] if self._waiting else None
