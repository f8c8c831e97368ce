"""Plans at reduced sizes, on which plan and program agree only if they do at full size.

`classes` says which dimensions are one index in plan and program, every index being a block and a place within it, with
ops doing the same at every place. `places` says how many places in a block suffice. Plans are cut to a few more, where
the program is still small. Windows, masks, positions, and what constants state of single elements keep their sizes; and
so do devices and steps, which is why a plan of a smaller program would show nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from eggshard.limits import Deadline
from eggshard.ops import registry
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Placement
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType
from eggshard.prove.sizes.classes import Classes, Container, Node, Path, Place, inner_of
from eggshard.prove.sizes.lines import Lines, windows
from eggshard.prove.sizes.places import Needs
from eggshard.prove.sizes.positions import Positions
from eggshard.prove.sizes.shortening import shortened_action, shortened_attributes
from eggshard.steps.authored_steps import DeviceNumber
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import BoxExchange
from eggshard.steps.steps import Local, Resize, Step, StepPlan

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Elements of a program's values up to which nothing is cut, or no further: more elements tell more.
ENOUGH = 1 << 16
#: Most runs that a class may ask for by what sums count; it keeps its size where that is not enough.
MOST_RUNS = 4
#: Least places that are kept, as many as leave at most `ENOUGH` elements, else the last.
_KEPT = (64, 16, 4, 2, 1)
_PROGRAM, _PLAN = (0,), (1,)


class Reduced(NamedTuple):
    """A plan at reduced sizes; elements of its program's values."""

    plan: PlanRecord
    elements: int


class Sizes:
    """The sizes that a plan is proved at: run by run another number of places, where some are cut.

    runs: so many are needed. degree: of polynomials (`Needs.degree`). whole: elements of the program's values at full
    size. deadline: TimeoutError once it has passed.
    """

    def __init__(self, plan: PlanRecord, shrink: bool = True, deadline: Deadline | None = None):
        if deadline is not None and deadline.passed:
            raise TimeoutError
        self.runs, self.whole = 1, elements_of(plan.program.region)
        self._full = Reduced(plan, self.whole)
        self._of_run: dict[int, Reduced] = {}
        self._cut: _Cut | None = None
        cut = _Cut(plan, deadline)
        self.degree = cut.degree
        if not shrink or self.whole <= ENOUGH:
            return
        for kept in _KEPT:
            cut.kept = kept
            size = cut.size()
            if size <= ENOUGH:
                break
        if size < self.whole:
            self._cut, self.runs = cut, cut.runs

    def of_run(self, run: int) -> Reduced:
        """What is evaluated in a run."""
        if self._cut is None:
            return self._full
        run %= self.runs
        if run not in self._of_run:
            self._cut.run = run
            plan = self._cut.plan()
            self._of_run[run] = Reduced(plan, elements_of(plan.program.region))
        return self._of_run[run]


def elements_of(region: Region) -> int:
    """Elements of all values of a region, and of regions in it."""
    inner = sum(elements_of(r) for op in region.ops for r in op.regions)
    return inner + sum(t.elements for t in region.types)


class _Cut:
    """What is left of a plan where blocks keep at least ``kept`` places, and in every further ``run`` one more."""

    def __init__(self, plan: PlanRecord, deadline: Deadline | None):
        self._plan, self._classes, self._lines = plan, Classes(), Lines()
        self.kept, self.run = 1, 0
        program, device_program = plan.program.region, plan.device_program
        for classes in (self._classes, self._lines):
            classes.visit(_PROGRAM, program)
            classes.visit(_PLAN, device_program)
        ends = (
            (program.inputs, device_program.inputs, plan.input_placements),
            (program.outputs, device_program.outputs, plan.output_placements),
        )
        for whole, local, placements in ends:
            for v, w, placement in zip(whole, local, placements, strict=True):
                for d, dim in enumerate(placement.dims):
                    for classes in (self._classes, self._lines):
                        classes.join((_PROGRAM, v, d), (_PLAN, w, d))
                    if dim.windowed:
                        self._lines.keep((_PROGRAM, v, d))
                    even = plan.mesh.count(dim.axes) * dim.tile == program.types[v].shape[d]
                    if dim.windowed or not even:
                        self._classes.divide((_PROGRAM, v, d), 1)
        self._lines.settle([(_PROGRAM, program), (_PLAN, device_program)])
        for whole, _, placements in ends:
            for v, placement in zip(whole, placements, strict=True):
                for d, dim in enumerate(placement.dims):
                    if dim.axes:
                        self._lines.exact((_PROGRAM, v, d), dim.tile)
        self._positions = Positions(self._classes)
        needs = Needs(self._classes, deadline)
        needs.follow(_PROGRAM, program)
        needs.follow(_PLAN, device_program)
        self._needed, self.degree = needs.places, needs.degree
        for root, sums in needs.counted.items():
            if sums >= MOST_RUNS:
                self._classes.divide(root, 1)
            elif root in self._positions.ordered:
                self._needed[root] = self._needed.get(root, 0) + sums
        cut = [root for root in self._needed if self._places(root) < self._classes.blocks(root)]
        self.runs = 1 + max((needs.counted.get(root, 0) for root in cut), default=0)

    def _places(self, root: Node) -> int:
        return min(max(self.kept, self._needed.get(root, 1)) + self.run, self._classes.blocks(root))

    def _size(self, node: Node, n: int) -> int:
        """What is left of a size."""
        if self._lines.block(node):
            return self._lines.moved(node, n)
        root = self._classes.find(node)
        return n // self._classes.blocks(root) * self._places(root)

    def _types(self, path: Path, container: Container) -> tuple[TensorType, ...]:
        return tuple(
            t.with_shape(tuple(self._size((path, v, d), n) for d, n in enumerate(t.shape)))
            for v, t in enumerate(container.types)
        )

    def size(self) -> int:
        """Elements of what is left of the program."""
        regions = [(path, c) for path, c in self._classes.visited if path[:1] == _PROGRAM]
        return sum(t.elements for path, container in regions for t in self._types(path, container))

    def container(self, path: Path, container: Container) -> Container:
        """What is left of a region or device program."""
        types = self._types(path, container)
        if isinstance(container, Region):
            ops = tuple(self._op(path, i, op, container.types, types) for i, op in enumerate(container.ops))
            return replace(container, ops=ops, types=types)
        steps = tuple(self._step(path, i, s, container.types, types) for i, s in enumerate(container.steps))
        return replace(container, steps=steps, types=types, held=())

    def _inner(self, path: Path, number: int, item: Op | Step) -> Iterator[Container]:
        return (self.container(inner.path, inner.container) for inner in inner_of(path, number, item))

    def _op(self, path: Path, number: int, op: Op, old: Sequence[TensorType], new: Sequence[TensorType]) -> Op:
        inner = tuple(r for r in self._inner(path, number, op) if isinstance(r, Region))
        attributes = self._attributes(path, op.name, op.attributes, op, old, new)
        return replace(op, attributes=attributes, regions=inner or op.regions)

    def _attributes(self, path: Path, name: str, attributes: Attributes, item: Op | Step, old: Sequence[TensorType],
                    new: Sequence[TensorType]) -> Attributes:
        """An op's attributes at the new sizes, as on shards; the positions of windows, as they are along lines."""
        values = (*item.operands, *item.results)
        before, after = [old[v] for v in values], [new[v] for v in values]
        if any(True for _ in windows(item, before)):
            attributes = shortened_attributes(name, attributes, self._moved(path, item))
            before = [
                t.with_shape(tuple(self._lines.moved((path, v, d), n) for d, n in enumerate(t.shape)))
                for v, t in zip(values, before, strict=True)
            ]
        if before == after:
            return attributes
        ends = [tuple(types[part]) for types in (before, after)
                for part in (slice(len(item.operands)), slice(len(item.operands), None))]
        return registry.get(name).localize(attributes, *ends)

    def _moved(self, path: Path, item: Op | Step) -> Callable[[Place, int], int]:
        """What positions along the dimensions of an op's or step's operands and results become."""
        values = (*item.operands, *item.results)

        def moved(place: Place, position: int) -> int:
            return self._lines.moved((path, values[place[0]], place[1]), position)

        return moved

    def _step(self, path: Path, number: int, step: Step, old: Sequence[TensorType], new: Sequence[TensorType]) -> Step:
        action, results = step.action, tuple(new[v] for v in step.results)
        match action:
            case Local():
                attributes = self._attributes(path, action.name, action.attributes, step, old, new)
                inner = tuple(r for r in self._inner(path, number, step) if isinstance(r, Region))
                action = replace(action, attributes=attributes, result_types=results, regions=inner or action.regions)
            case Resize():
                action = replace(action, shape=results[0].shape)
            case BoxExchange():
                action = self._exchange((path, step.operands[0]), action)
            case Loop() | Branch():
                programs = tuple(p for p in self._inner(path, number, step) if isinstance(p, StepPlan))
                if isinstance(action, Loop):
                    action = replace(action, condition=programs[0], body=programs[1])
                else:
                    action = replace(action, branches=programs)
            case DeviceNumber() if (path, step.results[0]) in self._positions.starts:
                node = self._positions.starts[path, step.results[0]]
                action = replace(action, numbers=tuple(self._size(node, n) for n in action.numbers))
            case _:
                action = shortened_action(action, self._moved(path, step))
        return replace(step, action=action)

    def _exchange(self, value: tuple[Path, int], action: BoxExchange) -> BoxExchange:
        nodes = [(*value, d) for d in range(len(action.whole))]
        source, target = (
            tuple(b._replace(size=self._size(node, b.size)) for node, b in zip(nodes, boxes, strict=True))
            for boxes in (action.source, action.target)
        )
        whole = tuple(self._size(node, n) for node, n in zip(nodes, action.whole, strict=True))
        return replace(action, whole=whole, source=source, target=target)

    def plan(self) -> PlanRecord:
        """What is left of the plan."""
        plan, region = self._plan, self._plan.program.region
        made, device_program = self.container(_PROGRAM, region), self.container(_PLAN, plan.device_program)
        assert isinstance(made, Region) and isinstance(device_program, StepPlan)

        def placed(values: Sequence[int], placements: Sequence[Placement]) -> tuple[Placement, ...]:
            return tuple(
                p._replace(dims=tuple(dim._replace(tile=self._size((_PROGRAM, v, d), dim.tile))
                                      for d, dim in enumerate(p.dims)))
                for v, p in zip(values, placements, strict=True)
            )

        return replace(
            plan, program=replace(plan.program, region=made, text=None), device_program=device_program,
            input_placements=placed(region.inputs, plan.input_placements),
            output_placements=placed(region.outputs, plan.output_placements),
        )
