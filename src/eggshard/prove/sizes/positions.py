"""Positions that are only compared with one another, as in causal masks.

What an order decides for some places is decided for as many others that lie in the same order, and there are such
places in every block of as many. So classes whose positions are compared with one another alone may be cut alike, as
any other. A sum that counts places counts how many lie between others: a polynomial in these numbers, which is zero if
it is wherever they add up to one of more numbers than its degree, each at least as large.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from eggshard.program.program import Op
from eggshard.prove.sizes.classes import Classes, Container, Node, Path, inner_of, items, named
from eggshard.steps.authored_steps import DeviceNumber
from eggshard.steps.steps import AllGather, AllToAll, CollectivePermute, Slice, Step

#: What moves positions, and changes none.
_MOVING = ("broadcast_in_dim", "optimization_barrier", "reshape", "sharding_constraint", "transpose")
_MOVES = (AllGather, AllToAll, CollectivePermute, Slice)


class Positions:
    """ordered: the classes whose positions are compared; those whose positions are used in any other way keep their
    sizes. starts: by the values that are devices' first positions, and nothing else, the dimension that these are of.
    """

    def __init__(self, classes: Classes):
        self.starts: dict[tuple[Path, int], Node] = {}
        found: list[Node] = []
        for path, container in classes.visited:
            _follow(classes, path, container, found, self.starts)
        self.ordered = {classes.find(node) for node in found}


def _follow(classes: Classes, path: Path, container: Container, found: list[Node],
            starts: dict[tuple[Path, int], Node]) -> None:
    of: dict[int, Node] = {}
    made = {v: item for item in items(container) for v in item.results}
    uses = Counter(v for item in items(container) for v in item.operands)
    for number, item in enumerate(items(container)):
        op = named(item)
        if op is not None and op[0] == "iota":
            of[item.results[0]] = path, item.results[0], op[1]["iota_dimension"]
            continue
        positions = [of[v] for v in item.operands if v in of]
        if not positions:
            continue
        if _is_order(op, len(positions)):
            found += positions
            for node in positions[1:]:
                classes.join(positions[0], node)
            continue
        roots = {classes.find(node) for node in positions}
        whole = len(roots) == 1 and not list(inner_of(path, number, item))
        if whole and _is_moved(item, op, [_source(made, v) for v in item.operands if v not in of]):
            of |= {v: positions[0] for v in item.results}
        elif whole and op is not None and op[0] == "add" and (
            start := _first_position(made, uses, container, item, of)
        ) is not None:
            starts[path, start] = positions[0]
            of[item.results[0]] = positions[0]
        else:
            for node in positions:
                classes.divide(node, 1)
    for v in container.outputs:
        if v in of:
            classes.divide(of[v], 1)


def _is_order(op: tuple | None, positions: int) -> bool:  # type: ignore[type-arg]
    return op is not None and op[0] == "compare" and positions == 2


def _is_moved(item: Op | Step, op: tuple | None, others: Sequence[Op | Step | None]) -> bool:  # type: ignore[type-arg]
    """Whether results are the positions that an op or step takes; zeros may be added to them."""
    if op is None:
        return isinstance(item, Step) and isinstance(item.action, _MOVES)
    return op[0] in _MOVING or op[0] == "add" and len(others) == 1 and _is_zero(others[0])


def _first_position(made: Mapping[int, Op | Step], uses: Mapping[int, int], container: Container, item: Op | Step,
                    of: Mapping[int, Node]) -> int | None:
    """The number of a device's shard times its size, which is added to positions within shards and used for nothing
    else: its value, or None."""
    (position, *more), (value, *others) = (
        [v for v in item.operands if (v in of) == yes] or [-1] for yes in (True, False))
    if more or others or value < 0:
        return None
    _, v, d = of[position]
    step, size = made.get(value), container.types[v].shape[d]
    while step is not None and uses[value] == 1 and (op := named(step)) is not None and op[0] in _SPREADING:
        value = step.operands[0]
        step = made.get(value)
    if not isinstance(step, Step) or not isinstance(step.action, DeviceNumber) or uses[value] != 1:
        return None
    return None if any(n % size for n in step.action.numbers) else value


#: What a device's number goes through before it is added.
_SPREADING = ("broadcast_in_dim", "convert")


def _source(made: Mapping[int, Op | Step], value: int) -> Op | Step | None:
    """What makes a value, or what it repeats."""
    item = made.get(value)
    op = None if item is None else named(item)
    return _source(made, item.operands[0]) if item and op and op[0] == "broadcast_in_dim" else item


def _is_zero(item: Op | Step | None) -> bool:
    op = None if item is None else named(item)
    if op is None or op[0] != "constant":
        return False
    value = op[1]["value"]
    return bool(value.splat and not np.any(value.array.reshape(-1)[:1]))
