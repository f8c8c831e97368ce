"""Decoding of a selection into a device program: shards in dependency order, reshardings by shared routes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eggshard.egraph.graph import EGraph, ENode
from eggshard.errors import EggshardError
from eggshard.placement.transfer import Strategy
from eggshard.planner.encoding.encode import Computed, Delivered, Encoding, Handed, Joined, Jointly, Shard, Widened
from eggshard.planner.encoding.views import Order
from eggshard.program.attributes import Attributes
from eggshard.program.mesh import Mesh
from eggshard.program.placement import Placement
from eggshard.program.types import TensorType
from eggshard.reshard.window_routes import bounding_window_of, contains, rewindowed
from eggshard.selection.problem import Choice, Problem, Selection
from eggshard.spmd.wrapping import wrapped
from eggshard.steps.assemble import Assembler, Conversions
from eggshard.steps.dependencies import needs_first
from eggshard.steps.held import Held, Origin
from eggshard.steps.steps import Action, Local, StepPlan
from eggshard.steps.window_steps import HaloExchange, JointExchange

#: A local shape, and the core dimensions in its order.
Form = tuple[tuple[int, ...], Order]
Types = tuple[TensorType, ...]
#: The physical action (or several, as a device program) of a node on the shards of a strategy.
ActionSource = Callable[[ENode, Types, Types, Strategy], Action | StepPlan]


def a_result_of(graph: EGraph, problem: Problem, selection: Selection) -> dict[int, int]:
    """Per class of tuples that a selection computes the class of one of the results that it takes of it."""
    found: dict[int, int] = {}
    for c, chosen in selection.chosen.items():
        for choice in (problem.choices[c][s] for s in chosen):
            tag = choice.tag
            if isinstance(tag, Computed) and graph.classes[tag.cls].nodes[tag.node].op == "result":
                found.setdefault(choice.needs[0][0], c)
    return found


class Decoder:
    """Emits every chosen choice once, its operands first.

    number, ops: of a body, the number of its problem, and which of its values which op makes, for `Origin`.
    """

    def __init__(self, mesh: Mesh, graph: EGraph, encoding: Encoding, selection: Selection,
                 conversions: Conversions, action: ActionSource, number: int = 0, ops: Mapping[int, str] | None = None):
        self.number, self.ops = number, ops or {}
        self.graph, self.encoding, self.selection, self.action = graph, encoding, selection, action
        self.assembler = Assembler(mesh, conversions)
        self.problem = encoding.problem
        self.views = encoding.views
        self.tuples: dict[Shard, tuple[int, ...]] = {}
        #: Per shard its values by local shape and order of the core dimensions.
        self.values: dict[Shard, dict[Form, int]] = {}
        self._makers: dict[Shard, int] = {}
        for c, chosen in selection.chosen.items():
            for i in chosen:
                self._makers.setdefault((c, self.problem.choices[c][i].out), i)
        self._taken = {
            need for c, chosen in selection.chosen.items() for i in chosen for need in self.problem.choices[c][i].needs
        }.union(self.problem.roots)
        #: Per e-class a value of the program that it is.
        self._number: dict[int, int] = {}
        for v, cls in enumerate(graph.values):
            self._number.setdefault(cls, v)
        self._equal = {self._view(cls): v for cls, v in reversed(self._number.items())}
        self._result_of = a_result_of(graph, self.problem, selection)
        self._converted: dict[Shard, list[int]] = {}
        self._origin: dict[Shard, Shard] = {}
        for c, p, q in selection.conversions:
            self._converted.setdefault((c, p), []).append(q)
            self._origin.setdefault((c, q), (c, p))

    def decode(
        self,
        input_types: Types,
        input_placements: Sequence[Placement],
        roots: Sequence[tuple[int, Sequence[Placement]]],
    ) -> tuple[StepPlan, tuple[Placement, ...]]:
        """The device program and where its outputs lie, among the placements that each root allowed."""
        self._inputs(input_types, input_placements)
        count = len(self.problem.roots) - len(self.graph.effects)
        for root in self.problem.roots[count:]:  # in program order, before anything else that does not precede them
            self._require(self._delivered(root))
        outputs, placements = [], []
        for (cls, options), root in zip(roots, self.problem.roots[:count], strict=True):
            shard = self._delivered(root)
            self._require(shard)
            placement = self._delivered_at(root, options)
            placements.append(placement)
            outputs.append(self._value(shard, cls, placement))
        return wrapped(self.assembler.build(outputs)), tuple(placements)

    def _delivered(self, root: Shard) -> Shard:
        """The shard behind a root, which may be one of several placements."""
        made = self.problem.choices[root[0]][self._makers[root]] if root in self._makers else None
        return made.needs[0] if made is not None and isinstance(made.tag, Delivered) else root

    def _delivered_at(self, root: Shard, options: Sequence[Placement]) -> Placement:
        """Which of the placements that a root allows is chosen."""
        if len(options) == 1:
            return options[0]
        tag = self.problem.choices[root[0]][self._makers[root]].tag
        assert isinstance(tag, Delivered) and isinstance(tag.placement, Placement)
        return tag.placement

    def _inputs(self, input_types: Types, placements: Sequence[Placement]) -> None:
        """Every program input becomes an input of the device program, used or not."""
        self._input_values = []
        for i, (type_, placement) in enumerate(zip(input_types, placements, strict=True)):
            self._input_values.append(self.assembler.input(placement.local_type(type_)))
            self.assembler.held[self._input_values[-1]] = Held(-1, i, type_, placement)

    def _require(self, shard: Shard) -> None:
        for needed in needs_first(shard, self._dependencies, self._done):
            self._produce(needed)

    def _dependencies(self, shard: Shard) -> tuple[Shard, ...]:
        if shard in self._makers:
            return self.problem.choices[shard[0]][self._makers[shard]].needs
        return (self._origin[shard],)

    def _done(self, shard: Shard) -> bool:
        return shard in self.values or shard in self.tuples

    def _produce(self, shard: Shard) -> None:
        """Compute a shard and everything it is converted to."""
        if shard not in self._makers:
            raise EggshardError(f"the selection never computes shard {shard}")
        choice = self.problem.choices[shard[0]][self._makers[shard]]
        with self.assembler.chosen_for(*self._origins(shard[0], choice.tag)):
            self._make(shard, choice)

    def _make(self, shard: Shard, choice: Choice) -> None:
        if isinstance(choice.tag, Widened):
            self._widen(shard, choice.tag, choice.needs[0])
            return
        if isinstance(choice.tag, Handed):
            self._hand(shard, choice.tag)
            return
        if isinstance(choice.tag, Jointly):
            self.tuples[shard] = self._widen_together(choice.tag)
            return
        if isinstance(choice.tag, Joined):
            value = self.tuples[choice.needs[0]][choice.tag.number]
            target = self.views.from_core(choice.tag.group, self._core(shard))
            self._hold(shard, choice.tag.group, value, target)
            return
        assert isinstance(choice.tag, Computed)
        cls, strategy = choice.tag.cls, choice.tag.strategy
        eclass = self.graph.classes[cls]
        node = eclass.nodes[choice.tag.node]
        if node.op == "input":
            made: tuple[int, ...] = (self._input_values[node.attributes["index"]],)
            self.assembler.held[made[0]] = self._held(cls, strategy.results[0])
        elif node.op == "result":
            made = (self.tuples[choice.needs[0]][node.attributes["index"]],)
        else:
            operands = [self._value(self._needed(choice, c, p), c, p)
                        for c, p in zip(node.children, strategy.operands, strict=True)]
            operands = self.assembler.mask(operands, strategy)
            types = tuple(self.graph.type_of(c) for c in node.children)
            action = self.action(node, types, eclass.types, strategy)
            made = self.assembler.emit(action, tuple(operands), node.rules)
        if eclass.is_tuple:
            self.tuples[shard] = made
            return
        here = strategy.results[0]
        self.values[shard] = {self._form(cls, here): made[0]}
        self.assembler.held.setdefault(made[0], self._held(cls, here))
        self._convert(shard, cls, made[0], here)

    def _held(self, cls: int, placement: Placement) -> Held:
        return Held(*self._of(cls), self.graph.type_of(cls), placement)

    def _of(self, cls: int) -> tuple[int, int]:
        """The class of the problem, and the value of the program, that an e-class is."""
        return self.views.group[cls], self._equal.get(self._view(cls), -1)

    def _view(self, cls: int) -> object:
        """What e-classes of equal values have in common."""
        return self.views.group[cls], self.views.order[cls], self.graph.classes[cls].types

    def _origins(self, c: int, tag: object) -> tuple[Origin, ...]:
        """What is chosen with a choice for class ``c`` of the problem."""
        if isinstance(tag, Jointly):
            return tuple(dict.fromkeys(self._origin_of(group) for group, *_ in tag.parts))
        return (self._origin_of(tag.group if isinstance(tag, (Widened, Joined)) else c),)

    def _origin_of(self, c: int) -> Origin:
        c = self._result_of.get(c, c)
        return Origin(self.number, c, self.ops.get(self._number.get(c, -1), ""))

    def _widen(self, shard: Shard, tag: Widened, source: Shard) -> None:
        """Take a window of a shard."""
        value = self._as(source, self._form(tag.group, self.views.from_core(tag.group, tag.source)))
        target = self.views.from_core(tag.group, self._needed_of(shard, tag))
        type_ = self.graph.type_of(tag.group)
        start = self.views.from_core(tag.group, tag.source)
        value = self.assembler.convert(value, type_, start, [target], of=self._of(tag.group))[target]
        self._hold(shard, tag.group, value, target)

    def _hold(self, shard: Shard, group: int, value: int, target: Placement) -> None:
        """A window, and narrower ones out of it."""
        self.values[shard] = {self._form(group, target): value}
        self.assembler.held.setdefault(value, self._held(group, target))
        self._convert(shard, group, value, target)

    def _widen_together(self, tag: Jointly) -> tuple[int, ...]:
        """The windows of several values, by one exchange."""
        operands, parts, why = [], [], []
        for group, *ends in tag.parts:
            source, target = (self.views.from_core(group, p) for p in ends)
            shard = group, self.encoding.index[group][ends[0]]
            operands.append(self._as(shard, self._form(group, source)))
            steps = rewindowed(self.assembler.mesh, self.graph.type_of(group).shape, source, target)
            assert steps is not None and len(steps) == 1 and isinstance(steps[0][0], HaloExchange)
            parts.append(steps[0][0])
            why.append(f"reshard {source} to {target}")
        action = JointExchange(tuple(parts), tag.shared)
        return self.assembler.emit(action, tuple(operands), tuple(dict.fromkeys(why)))

    def _hand(self, shard: Shard, tag: Handed) -> None:
        """Take a class from where it is computed."""
        value = self._value(self.encoding.shard(tag.source, tag.placement), tag.source, tag.placement)
        self.values[shard] = {self._form(tag.cls, tag.placement): value}
        self._convert(shard, tag.cls, value, tag.placement)

    def _needed_of(self, shard: Shard, tag: Widened) -> Placement:
        """The window itself where some choice takes it; else the (smaller) bounding window of what is cut out of it."""
        window, cuts = self._core(shard), [self._core((shard[0], q)) for q in self._converted.get(shard, ())]
        if shard in self._taken or not cuts:
            return window
        type_, mesh = self.views.core_type(tag.group), self.assembler.mesh
        less = bounding_window_of(type_.shape, cuts)
        there = rewindowed(mesh, type_.shape, tag.source, less) is not None
        return less if there and contains(mesh, type_.shape, window, less) else window

    def _convert(self, shard: Shard, cls: int, value: int, here: Placement) -> None:
        """Everything that a shard is converted to."""
        targets = self._converted.get(shard, ())
        if targets:
            there = [self.views.from_core(cls, self._core((shard[0], q))) for q in targets]
            reached = self.assembler.convert(value, self.graph.type_of(cls), here, there, of=self._of(cls))
            for q, placement in zip(targets, there, strict=True):
                self.values.setdefault((shard[0], q), {self._form(cls, placement): reached[placement]})

    def _core(self, shard: Shard) -> Placement:
        placement = self.encoding.placements[shard[0]][shard[1]]
        assert isinstance(placement, Placement)
        return placement

    def _form(self, cls: int, placement: Placement) -> Form:
        return placement.local_shape, self.views.order[cls]

    def _needed(self, choice: Choice, cls: int, placement: Placement) -> Shard:
        """The shard that a choice takes an operand from: a window where it asks for one, which may be cut smaller than
        it is numbered where nobody does."""
        window = self.encoding.need(cls, placement)
        return window if window in choice.needs else self.encoding.shard(cls, placement)

    def _value(self, shard: Shard, cls: int, placement: Placement) -> int:
        """The value of an e-class at a placement, by local views of whatever form the shard was made in."""
        value = self._as(shard, self._form(cls, placement))
        self.assembler.held.setdefault(value, self._held(cls, placement))
        return value

    def _as(self, shard: Shard, form: Form) -> int:
        """A shard's value in this form."""
        forms = self.values[shard]
        if form not in forms:
            (shape, order), value = next(iter(forms.items()))
            with self.assembler.chosen_for(self._origin_of(shard[0])):
                forms[form] = self._viewed(value, shard, order, form)
        return forms[form]

    def _viewed(self, value: int, shard: Shard, order: Order, form: Form) -> int:
        """Drop unit dimensions, reorder, add unit dimensions: whichever of these is needed."""
        core, assembler = self._core(shard).local_shape, self.assembler
        if order != form[1]:
            value = assembler.reshape(value, tuple(core[i] for i in order))
            type_ = assembler.types[value].with_shape(tuple(core[i] for i in form[1]))
            transpose = Attributes(permutation=tuple(order.index(i) for i in form[1]))
            (value,) = assembler.emit(Local("transpose", transpose, (type_,)), (value,), ("view",))
        return assembler.reshape(value, form[0])
