"""Plans at reduced sizes: dimensions of which a part passes through everything are cut, in plan and program alike.

A pass factor of an op is an index at which the result is made of the operands at that index alone, everywhere in the
same way; that is the law by which ops are sharded. Where all dimensions that such factors connect, over the whole
program and device program, have sizes that a number t divides, every index is a block and a place within it, and the
place passes through unchanged: steps that gather, slice or exchange move whole blocks. So plan and program do the same
at every place, and if they agree where blocks have one place, or a few, they agree at full size.

Everything else stays as it is: what is summed, what windows, masks and exchanges of slabs look at, what a constant
states. Devices and steps stay, too, which is why a plan of the smaller program would show nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from eggshard.ops import registry
from eggshard.ops.base import PASS
from eggshard.program.attributes import Attributes
from eggshard.program.placement import Placement
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import BoxExchange
from eggshard.steps.nested import nested
from eggshard.steps.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    CollectivePermute,
    KeepFirst,
    Local,
    Mask,
    ReduceScatter,
    Resize,
    Slice,
    Step,
    StepPlan,
)
from eggshard.steps.window_steps import BoxSelect, Crop, EdgeFill, WindowExchange

if TYPE_CHECKING:
    from eggshard.plan.record import PlanRecord

#: Elements of a program's values up to which nothing is cut, or no further: more elements tell more.
ENOUGH = 1 << 17
#: How many places of a block are kept, as many as leave at most `ENOUGH` elements, else the last.
_KEPT = (64, 16, 4, 2, 1)

Path = tuple[int, ...]
Container = Region | StepPlan
#: A dimension of a value of a region or device program, which its path names.
Node = tuple[Path, int, int]
_PROGRAM, _PLAN = (0,), (1,)


class _Inner(NamedTuple):
    """A region or device program in an op or step: its path, and the values that its inputs and outputs are."""

    path: Path
    container: Container
    inputs: Sequence[int]
    outputs: Sequence[int]


class _Classes:
    """Dimensions that are cut alike (union-find), and those that are not cut."""

    def __init__(self) -> None:
        self._parent: dict[Node, Node] = {}
        self._divisor: dict[Node, int] = {}

    def find(self, node: Node) -> Node:
        parent = self._parent.setdefault(node, node)
        while parent != node:
            self._parent[node] = parent = self._parent[parent]
            node, parent = parent, self._parent[parent]
        return node

    def join(self, a: Node, b: Node) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self._parent[b] = a
            self._divisor[a] = math.gcd(self.divisor(a), self._divisor.pop(b, 0))

    def divide(self, node: Node, number: int) -> None:
        """Blocks of a class divide this number; 1 keeps a class as it is."""
        root = self.find(node)
        self._divisor[root] = math.gcd(self._divisor.get(root, 0), number)

    def divisor(self, node: Node) -> int:
        """The size of a class's blocks."""
        return self._divisor.get(self.find(node), 0)


def shrunk(plan: PlanRecord) -> tuple[PlanRecord, int, int]:
    """The plan at reduced sizes, and the elements of its program's values there and at full size.

    The plan itself where it is small, or nothing can be cut.
    """
    whole = elements_of(plan.program.region)
    if whole <= ENOUGH:
        return plan, whole, whole
    cut = _Cut(plan)
    for kept in _KEPT:
        cut.kept = kept
        region = cut.container(_PROGRAM, plan.program.region)
        assert isinstance(region, Region)
        if (size := elements_of(region)) <= ENOUGH:
            break
    return (cut.plan(), size, whole) if size < whole else (plan, whole, whole)


def elements_of(region: Region) -> int:
    """Elements of all values of a region, and of regions in it."""
    inner = sum(elements_of(r) for op in region.ops for r in op.regions)
    return inner + sum(t.elements for t in region.types)


class _Cut:
    """The classes of a plan's dimensions, and what is left of its parts where blocks keep so many places."""

    def __init__(self, plan: PlanRecord):
        self._plan, self._classes = plan, _Classes()
        self._visited: list[tuple[Path, Container]] = []
        self.kept = 1
        program, device_program = plan.program.region, plan.device_program
        self._visit(_PROGRAM, program)
        self._visit(_PLAN, device_program)
        ends = (
            (program.inputs, device_program.inputs, plan.input_placements),
            (program.outputs, device_program.outputs, plan.output_placements),
        )
        for whole, local, placements in ends:
            for v, w, placement in zip(whole, local, placements, strict=True):
                for d, dim in enumerate(placement.dims):
                    self._classes.join((_PROGRAM, v, d), (_PLAN, w, d))
                    even = plan.mesh.count(dim.axes) * dim.tile == program.types[v].shape[d]
                    if dim.windowed or not even:
                        self._classes.divide((_PROGRAM, v, d), 1)
        for path, container in self._visited:
            for v, t in enumerate(container.types):
                roots = [self._classes.find((path, v, d)) for d in range(t.rank)]
                for root in roots:
                    if roots.count(root) > 1:  # places meet other places in one element, and not themselves alone
                        self._classes.divide(root, 1)

    # Which dimensions go together.

    def _visit(self, path: Path, container: Container) -> None:
        self._visited.append((path, container))
        for v, type_ in enumerate(container.types):
            for d, n in enumerate(type_.shape):
                self._classes.divide((path, v, d), n)
        for number, item in enumerate(_items(container)):
            values = (*item.operands, *item.results)
            types = [container.types[v] for v in values]
            passing = list(_passing(item, len(item.operands), types))
            for group in passing:
                first, *others = [(path, values[i], d) for i, d in group]
                for other in others:
                    self._classes.join(first, other)
            free = {place for group in passing for place in group}
            for i, (v, t) in enumerate(zip(values, types, strict=True)):
                for d in range(t.rank):
                    if (i, d) not in free:
                        self._classes.divide((path, v, d), 1)
            if isinstance(item, Step) and isinstance(item.action, BoxExchange):
                for d, n in enumerate(item.action.whole):
                    self._classes.divide((path, item.operands[0], d), n)
            for inner in _inner(path, number, item):
                self._visit(inner.path, inner.container)
                for outer, own in ((inner.inputs, inner.container.inputs), (inner.outputs, inner.container.outputs)):
                    for v, w in zip(outer, own, strict=False):
                        for d in range(container.types[v].rank):
                            self._classes.join((path, v, d), (inner.path, w, d))

    # What is left.

    def _by(self, path: Path, value: int, dim: int) -> int:
        """What the size of a dimension is divided by."""
        blocks = self._classes.divisor((path, value, dim))
        kept = next((k for k in range(self.kept, blocks) if blocks % k == 0), blocks)
        return max(1, blocks // max(kept, 1))

    def _type(self, path: Path, value: int, type_: TensorType) -> TensorType:
        return type_.with_shape(tuple(n // self._by(path, value, d) for d, n in enumerate(type_.shape)))

    def container(self, path: Path, container: Container) -> Container:
        """What is left of a region or device program."""
        types = tuple(self._type(path, v, t) for v, t in enumerate(container.types))
        if isinstance(container, Region):
            ops = tuple(self._op(path, i, op, container.types, types) for i, op in enumerate(container.ops))
            return replace(container, ops=ops, types=types)
        steps = tuple(self._step(path, i, s, container.types, types) for i, s in enumerate(container.steps))
        return replace(container, steps=steps, types=types, held=())

    def _op(self, path: Path, number: int, op: Op, old: Sequence[TensorType], new: Sequence[TensorType]) -> Op:
        attributes = _localized(op.name, op.attributes, op, old, new)
        return replace(op, attributes=attributes, regions=self._regions(path, number, op, op.regions))

    def _regions(self, path: Path, number: int, item: Op | Step, regions: tuple[Region, ...]) -> tuple[Region, ...]:
        made = [self.container(inner.path, inner.container) for inner in _inner(path, number, item)]
        return tuple(r for r in made if isinstance(r, Region)) or regions

    def _step(self, path: Path, number: int, step: Step, old: Sequence[TensorType], new: Sequence[TensorType]) -> Step:
        action, results = step.action, tuple(new[v] for v in step.results)
        match action:
            case Local():
                attributes = _localized(action.name, action.attributes, step, old, new)
                regions = self._regions(path, number, step, action.regions)
                action = replace(action, attributes=attributes, result_types=results, regions=regions)
            case Resize():
                action = replace(action, shape=results[0].shape)
            case BoxExchange():
                v = step.operands[0]
                by = [self._by(path, v, d) for d in range(len(action.whole))]
                source, target = (
                    tuple(b._replace(size=b.size // k) for b, k in zip(boxes, by, strict=True))
                    for boxes in (action.source, action.target)
                )
                whole = tuple(n // k for n, k in zip(action.whole, by, strict=True))
                action = replace(action, whole=whole, source=source, target=target)
            case Loop() | Branch():
                made = [self.container(inner.path, inner.container) for inner in _inner(path, number, step)]
                programs = tuple(p for p in made if isinstance(p, StepPlan))
                if isinstance(action, Loop):
                    action = replace(action, condition=programs[0], body=programs[1])
                else:
                    action = replace(action, branches=programs)
        return replace(step, action=action)

    def plan(self) -> PlanRecord:
        """What is left of the plan."""
        plan, region = self._plan, self._plan.program.region
        made, device_program = self.container(_PROGRAM, region), self.container(_PLAN, plan.device_program)
        assert isinstance(made, Region) and isinstance(device_program, StepPlan)

        def placed(values: Sequence[int], placements: Sequence[Placement]) -> tuple[Placement, ...]:
            return tuple(
                p._replace(dims=tuple(dim._replace(tile=dim.tile // self._by(_PROGRAM, v, d))
                                      for d, dim in enumerate(p.dims)))
                for v, p in zip(values, placements, strict=True)
            )

        return replace(
            plan, program=replace(plan.program, region=made, text=None), device_program=device_program,
            input_placements=placed(region.inputs, plan.input_placements),
            output_placements=placed(region.outputs, plan.output_placements),
        )


def _items(container: Container) -> Sequence[Op | Step]:
    return container.ops if isinstance(container, Region) else container.steps


def _inner(path: Path, number: int, item: Op | Step) -> Iterator[_Inner]:
    """The regions or device programs in an op or step whose values are tensors of their own sizes."""
    programs: Sequence[Container]
    if isinstance(item, Op) or isinstance(item.action, Local):
        name, programs = (item.name, item.regions) if isinstance(item, Op) else (item.action.name, item.action.regions)
        kind = {"while": "loop", "if": "branch", "case": "branch"}.get(name, "")
    else:
        programs = [inner.program for inner in nested(item.action)]
        kind = "loop" if isinstance(item.action, Loop) else "branch"
    for k, program in enumerate(programs if kind else ()):
        own = (*path, number, k)
        if kind == "branch":
            yield _Inner(own, program, item.operands[1:], item.results)
        else:
            yield _Inner(own, program, item.operands, item.results if k == 1 else ())


def _localized(
    name: str, attributes: Attributes, item: Op | Step, old: Sequence[TensorType], new: Sequence[TensorType]
) -> Attributes:
    """An op's attributes at the new sizes, as on shards of pass factors."""
    before, after = ((tuple(t[v] for v in item.operands), tuple(t[v] for v in item.results)) for t in (old, new))
    return attributes if before == after else registry.get(name).localize(attributes, *before, *after)


#: Dimensions that one pass factor makes up: (number among operands and results, dimension).
_Group = list[tuple[int, int]]


def _passing(item: Op | Step, operands: int, types: Sequence[TensorType]) -> Iterator[_Group]:
    """The groups of dimensions along which an op or step passes indices through, or moves whole blocks of them."""
    if isinstance(item, Op):
        yield from _of_op(item.name, item.attributes, item.regions, operands, types)
        return
    action = item.action
    match action:
        case Local() if not action.sized:
            yield from _of_op(action.name, action.attributes, action.regions, operands, types)
        case AllGather() | AllToAll() | AllReduce() | ReduceScatter() | CollectivePermute() | KeepFirst() | Slice():
            yield from _alike(operands, types)
        case BoxExchange():
            yield from _alike(operands, types)
        case Loop():
            yield from _alike(operands, types)
        case Branch():
            yield from ([(i, d)] for i, t in enumerate(types) for d in range(t.rank))
        case Mask() | EdgeFill() | Crop():
            yield from _alike(operands, types, lambda _, d: d != action.dim)
        case WindowExchange():
            dims = [part.dim for part in action.exchanges]
            yield from _alike(operands, types, lambda i, d: d != dims[i])
        case Resize():
            yield from _alike(operands, types, lambda i, d: types[i].shape[d] == action.shape[d])
        case BoxSelect():
            boxed = [dim for dim, *_ in action.box]
            for d in range(types[0].rank):
                if d not in boxed:
                    yield [(i, d) for i, t in enumerate(types) if t.rank]


def _alike(
    operands: int, types: Sequence[TensorType], passes: Callable[[int, int], bool] = lambda i, d: True
) -> Iterator[_Group]:
    """Each result is its operand along the dimensions that pass."""
    for i in range(operands):
        for d in range(types[i].rank):
            if passes(i, d):
                yield [(i, d), (operands + i, d)]


def _of_op(
    name: str, attributes: Attributes, regions: Sequence[Region], operands: int, types: Sequence[TensorType]
) -> Iterator[_Group]:
    """The pass factors of an op that make up dimensions alone, whatever its shard's place is."""
    if name == "while":
        yield from _alike(operands, types)
        return
    if name in ("if", "case"):
        yield from ([(i, d)] for i, t in enumerate(types) for d in range(t.rank))
        return
    if name == "manual_computation" or name == "constant" and not attributes["value"].splat:
        return
    rule = registry.get(name).factors(attributes, tuple(types[:operands]), tuple(types[operands:]))
    groups: dict[int, _Group] = {}
    shared = {f for row in (*rule.operands, *rule.results) for dim in row if len(dim) > 1 for f in dim}
    for i, row in enumerate((*rule.operands, *rule.results)):
        for d, dim in enumerate(row):
            if len(dim) == 1 and dim[0] not in shared:
                factor = rule.factors[dim[0]]
                if factor.kind == PASS and not factor.positional:
                    groups.setdefault(dim[0], []).append((i, d))
    yield from groups.values()
