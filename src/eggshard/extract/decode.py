"""From a selection back to a device program: shards in dependency order, conversions by shared routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eggshard.egraph.graph import EGraph, ENode
from eggshard.errors import EggshardError
from eggshard.extract.encode import Computed, Encoding
from eggshard.extract.problem import Selection
from eggshard.placement.placement import Placement
from eggshard.placement.transfer import Strategy
from eggshard.plan.assemble import Assembler, Conversions
from eggshard.plan.steps import Action, StepPlan
from eggshard.program.mesh import Mesh
from eggshard.program.types import TensorType

Shard = tuple[int, int]
Types = tuple[TensorType, ...]
#: The physical action (or several, as a device program) of a node on the shards of a strategy.
ActionSource = Callable[[ENode, Types, Types, Strategy], Action | StepPlan]


class Decoder:
    """Emits every chosen choice once, its operands first (an explicit stack: programs are deep)."""

    def __init__(self, mesh: Mesh, graph: EGraph, encoding: Encoding, selection: Selection,
                 conversions: Conversions, action: ActionSource):
        self.graph, self.encoding, self.selection, self.action = graph, encoding, selection, action
        self.assembler = Assembler(mesh, conversions)
        self.problem = encoding.problem
        self.values: dict[Shard, tuple[int, ...]] = {}
        self._makers: dict[Shard, int] = {}
        for c, chosen in selection.chosen.items():
            for i in chosen:
                self._makers.setdefault((c, self.problem.choices[c][i].out), i)
        self._converted: dict[Shard, list[int]] = {}
        self._origin: dict[Shard, Shard] = {}
        for c, p, q in selection.conversions:
            self._converted.setdefault((c, p), []).append(q)
            self._origin.setdefault((c, q), (c, p))

    def decode(self, input_types: Types, input_placements: Sequence[Placement]) -> tuple[StepPlan, tuple[Placement, ...]]:
        """The device program and where its outputs lie."""
        self._inputs(input_types, input_placements)
        outputs, placements = [], []
        roots = self.problem.roots
        count = len(roots) - len(self.graph.effects)
        for cls, p in roots[count:]:  # in program order, before anything else that does not precede them
            self._require(self._delivered(cls, p))
        for cls, p in roots[:count]:
            shard = self._delivered(cls, p)
            placement = self.encoding.placements[shard[0]][shard[1]]
            assert isinstance(placement, Placement)
            placements.append(placement)
            self._require(shard)
            outputs.append(self.values[shard][0])
        return self.assembler.build(outputs), tuple(placements)

    def _delivered(self, cls: int, p: int) -> Shard:
        """The shard behind a root, which may be one of several placements."""
        if cls < len(self.graph.classes):
            return cls, p
        (i,) = self.selection.chosen[cls]
        (shard,) = self.problem.choices[cls][i].needs
        return shard

    def _inputs(self, input_types: Types, placements: Sequence[Placement]) -> None:
        """Every program input becomes an input of the device program, used or not."""
        self._input_values = []
        for type_, placement in zip(input_types, placements, strict=True):
            self._input_values.append(self.assembler.input(placement.local_type(type_)))

    def _require(self, shard: Shard) -> None:
        stack = [shard]
        active: set[Shard] = set()
        while stack:
            top = stack[-1]
            if top in self.values:
                stack.pop()
                continue
            missing = [s for s in self._dependencies(top) if s not in self.values]
            if not missing:
                self._produce(top)
                stack.pop()
            elif top in active:
                raise EggshardError(f"the selection is cyclic at shard {top}")
            else:
                active.add(top)
                stack.extend(reversed(missing))

    def _dependencies(self, shard: Shard) -> tuple[Shard, ...]:
        if shard in self._makers:
            return self.problem.choices[shard[0]][self._makers[shard]].needs
        return (self._origin[shard],)

    def _produce(self, shard: Shard) -> None:
        """Compute a shard and everything it is converted to."""
        if shard not in self._makers:
            raise EggshardError(f"the selection never computes shard {shard}")
        cls, p = shard
        choice = self.problem.choices[cls][self._makers[shard]]
        assert isinstance(choice.tag, Computed)
        node = self.graph.classes[cls].nodes[choice.tag.node]
        strategy = choice.tag.strategy
        if node.op == "input":
            self.values[shard] = (self._input_values[node.attributes["index"]],)
        elif node.op == "result":
            self.values[shard] = (self.values[choice.needs[0]][node.attributes["index"]],)
        else:
            operands = []
            for child, placement in zip(node.children, strategy.operands, strict=True):
                (value,) = self.values[child, self.encoding.index[child][placement]]
                operands.append(value)
            operands = self.assembler.mask(operands, strategy.masks)
            types = tuple(self.graph.type_of(c) for c in node.children)
            action = self.action(node, types, self.graph.classes[cls].types, strategy)
            self.values[shard] = self.assembler.emit(action, tuple(operands), node.rules, f"class {cls}")
        targets = self._converted.get(shard, ())
        if targets:
            table = self.encoding.placements[cls]
            source = table[p]
            wanted = [table[q] for q in targets]
            made = self.assembler.convert(
                self.values[shard][0], self.graph.classes[cls].types[0], source, wanted, f"class {cls}"  # type: ignore[arg-type]
            )
            for q, placement in zip(targets, wanted, strict=True):
                self.values.setdefault((cls, q), (made[placement],))  # type: ignore[index]
