"""Which dimensions of a plan and its program are one index, and which of them ops treat alike at every place.

A *group* is the dimensions of an op's or step's operands and results that one of its factors makes up. Along a pass
factor, the result at an index is made of the operands at that index alone, in the same way everywhere; along a reduced
one, results are sums (or maxima) over all of it. A dimension that several factors make up belongs to its minor-most.
Where groups meet they join to a *class*, over the whole program and device program. A class has *blocks*: a number
that divides all of its sizes, so that every index is a block and a place within it. Steps that gather, slice or
exchange shards move whole blocks. Dimensions in no group have blocks of 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from eggshard.ops import registry
from eggshard.ops.base import PASS, REDUCE
from eggshard.program.attributes import Attributes
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType
from eggshard.steps.authored_steps import DeviceNumber, GroupCollective, OnFirstDevice
from eggshard.steps.control_steps import Branch, Loop
from eggshard.steps.exchange import BoxExchange
from eggshard.steps.handlers import Handlers
from eggshard.steps.nested import nested
from eggshard.steps.piece_steps import Exchange
from eggshard.steps.steps import (
    Action,
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

#: Where a region or device program is: numbers of the ops or steps that it is in, and its number there.
Path = tuple[int, ...]
Container = Region | StepPlan
#: A dimension of a value of a region or device program, which its path names.
Node = tuple[Path, int, int]
#: A dimension of an op's or step's operands and results: their number, results after operands, and the dimension.
Place = tuple[int, int]
#: Ops whose reduced factors are sums, or maxima and the like, in which every place is as good as any other.
_SYMMETRIC = ("convolution", "dot", "dot_general", "reduce")


class Group(NamedTuple):
    """The places that one factor makes up. divisor: what its blocks divide, 0 for nothing besides the sizes."""

    places: tuple[Place, ...]
    divisor: int = 0


class Inner(NamedTuple):
    """A region or device program in an op or step: its path, and the values that its inputs and outputs are."""

    path: Path
    container: Container
    inputs: Sequence[int]
    outputs: Sequence[int]


class Classes:
    """Dimensions that are cut alike (union-find), with what their blocks divide."""

    def __init__(self) -> None:
        self._parent: dict[Node, Node] = {}
        self._divisor: dict[Node, int] = {}
        self.visited: list[tuple[Path, Container]] = []

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
            self._divisor[a] = math.gcd(self._divisor.get(a, 0), self._divisor.pop(b, 0))

    def divide(self, node: Node, number: int) -> None:
        """Blocks of a class divide this number; 1 keeps a class as it is."""
        root = self.find(node)
        self._divisor[root] = math.gcd(self._divisor.get(root, 0), number)

    def blocks(self, node: Node) -> int:
        """The size of a class's blocks."""
        return max(1, self._divisor.get(self.find(node), 0))

    def visit(self, path: Path, container: Container) -> None:
        """Enter a region or device program, and those in it."""
        self.visited.append((path, container))
        for v, type_ in enumerate(container.types):
            for d, n in enumerate(type_.shape):
                self.divide((path, v, d), n)
        for number, item in enumerate(items(container)):
            values = (*item.operands, *item.results)
            types = [container.types[v] for v in values]
            found = list(groups(item, types))
            for group in found:
                nodes = [(path, values[i], d) for i, d in group.places]
                for node in nodes:
                    self.join(nodes[0], node)
                self.divide(nodes[0], group.divisor)
            free = {place for group in found for place in group.places}
            for i, (v, t) in enumerate(zip(values, types, strict=True)):
                for d in range(t.rank):
                    if (i, d) not in free:
                        self.divide((path, v, d), 1)
            for inner in inner_of(path, number, item):
                self.visit(inner.path, inner.container)
                for outer, own in ((inner.inputs, inner.container.inputs), (inner.outputs, inner.container.outputs)):
                    for v, w in zip(outer, own, strict=False):
                        for d in range(container.types[v].rank):
                            self.join((path, v, d), (inner.path, w, d))


def items(container: Container) -> Sequence[Op | Step]:
    """The ops of a region, or the steps of a device program."""
    return container.ops if isinstance(container, Region) else container.steps


def named(item: Op | Step) -> tuple[str, Attributes, tuple[Region, ...]] | None:
    """The op of an op or local step: its name, attributes and regions; None for any other step."""
    if isinstance(item, Op):
        return item.name, item.attributes, item.regions
    action = item.action
    return (action.name, action.attributes, action.regions) if isinstance(action, Local) else None


def inner_of(path: Path, number: int, item: Op | Step) -> Iterator[Inner]:
    """The regions or device programs in an op or step whose values are tensors of their own sizes."""
    programs: Sequence[Container]
    op = named(item)
    if op is not None:
        name, _, programs = op
        kind = {"while": "loop", "if": "branch", "case": "branch"}.get(name, "")
    else:
        assert isinstance(item, Step)
        programs = [inner.program for inner in nested(item.action)]
        kind = "loop" if isinstance(item.action, Loop) else "branch"
    for k, program in enumerate(programs if kind else ()):
        own = (*path, number, k)
        if kind == "branch":
            yield Inner(own, program, item.operands[1:], item.results)
        else:
            yield Inner(own, program, item.operands, item.results if k == 1 else ())


def groups(item: Op | Step, types: Sequence[TensorType]) -> Iterator[Group]:
    """The groups of an op or step on operands and results of these types."""
    if isinstance(item, Op):
        return _of_op(item.name, item.attributes, len(item.operands), types)
    return _of_action(item.action, len(item.operands), types)


_of_action: Handlers[Iterator[Group]] = Handlers("grouping of dimensions")


@_of_action.handles(Local)
def _(action: Local, operands: int, types: Sequence[TensorType]) -> Iterator[Group]:
    return iter(()) if action.sized else _of_op(action.name, action.attributes, operands, types)


@_of_action.handles(AllGather, AllToAll, AllReduce, ReduceScatter, CollectivePermute, KeepFirst, Slice, Loop)
def _(action: Action, operands: int, types: Sequence[TensorType]) -> Iterator[Group]:
    return _alike(operands, types)


@_of_action.handles(BoxExchange)
def _(action: BoxExchange, operands: int, types: Sequence[TensorType]) -> Iterator[Group]:
    return (group._replace(divisor=action.whole[group.places[0][1]]) for group in _alike(operands, types))


@_of_action.handles(Branch)
def _(action: Branch, operands: int, types: Sequence[TensorType]) -> Iterator[Group]:
    return (Group(((i, d),)) for i, t in enumerate(types) for d in range(t.rank))


@_of_action.handles(Mask, EdgeFill, Crop)
def _(action: Mask | EdgeFill | Crop, operands: int, types: Sequence[TensorType]) -> Iterator[Group]:
    return _alike(operands, types, lambda _, d: d != action.dim)


@_of_action.handles(WindowExchange)
def _(action: WindowExchange, operands: int, types: Sequence[TensorType]) -> Iterator[Group]:
    dims = [part.dim for part in action.exchanges]
    return _alike(operands, types, lambda i, d: d != dims[i])


@_of_action.handles(Resize)
def _(action: Resize, operands: int, types: Sequence[TensorType]) -> Iterator[Group]:
    return _alike(operands, types, lambda i, d: types[i].shape[d] == action.shape[d])


@_of_action.handles(BoxSelect)
def _(action: BoxSelect, operands: int, types: Sequence[TensorType]) -> Iterator[Group]:
    boxed = [dim for dim, *_ in action.box]
    free = (d for d in range(types[0].rank) if d not in boxed)
    return (Group(tuple((i, d) for i, t in enumerate(types) if t.rank)) for d in free)


# Pieces that are listed, groups of devices, and what one device does alone, keep their sizes.
@_of_action.handles(Exchange, GroupCollective, OnFirstDevice, DeviceNumber)
def _(action: Action, operands: int, types: Sequence[TensorType]) -> Iterator[Group]:
    return iter(())


def _alike(
    operands: int, types: Sequence[TensorType], passes: Callable[[int, int], bool] = lambda i, d: True
) -> Iterator[Group]:
    """Each result is its operand along the dimensions that pass."""
    for i in range(operands):
        for d in range(types[i].rank):
            if passes(i, d):
                yield Group(((i, d), (operands + i, d)))


def _of_op(name: str, attributes: Attributes, operands: int, types: Sequence[TensorType]) -> Iterator[Group]:
    """The factors of an op, pass factors and sums, whose shards are computed alike whatever their place is."""
    if name == "while":
        yield from _alike(operands, types)
        return
    if name in ("if", "case"):
        yield from (Group(((i, d),)) for i, t in enumerate(types) for d in range(t.rank))
        return
    if name == "manual_computation" or name == "constant" and not attributes["value"].splat:
        return
    rule = registry.get(name).factors(attributes, tuple(types[:operands]), tuple(types[operands:]))
    rows = (*rule.operands, *rule.results)
    major = {f for row in rows for dim in row for f in dim[:-1]}
    found: dict[int, list[Place]] = {}
    for i, row in enumerate(rows):
        for d, dim in enumerate(row):
            if dim and dim[-1] not in major and (len(dim) == 1 or name == "reshape"):
                factor = rule.factors[dim[-1]]
                sums = factor.kind == REDUCE and name in _SYMMETRIC and factor.monoid != "mul"
                if (not factor.positional or name == "iota") and (factor.kind == PASS or sums):
                    found.setdefault(dim[-1], []).append((i, d))
    for f, places in found.items():
        if len({i for i, _ in places}) == len(places):  # no tensor has the factor twice
            yield Group(tuple(places), rule.factors[f].size)
