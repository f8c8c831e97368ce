"""How many places of a block suffice: as many as one element's expression has indices of the class.

Between two random functions, an element is a sum, over the places of the indices that it sums over, of some expression
in elements at these places and at its own. Expressions of k indices in all that are equal on k places are equal on any
number of places: choose all of them different. One thing besides depends on the number of places: a sum over a
place on which some of its terms do not depend counts them. What it counts is a polynomial in the number of places, of a
degree that is counted here, too; equal at more numbers than that, it is equal at all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from eggshard.limits import Deadline
from eggshard.ops import registry
from eggshard.ops.regions.counted_loops import find_counter, integer
from eggshard.program.program import Op, Region
from eggshard.program.types import TensorType
from eggshard.prove.sizes.classes import Classes, Container, Inner, Node, Path, groups, inner_of, items, named
from eggshard.steps.control_steps import Loop
from eggshard.steps.steps import Step
from eggshard.steps.window_steps import BoxSelect

#: As good as infinitely many.
MANY = 1 << 40
#: How often at most a loop's body is followed before what still grows counts as infinite: of loops of which it is
#: known how often they run, and of others.
_TRIPS, _TURNS = 128, 4
#: Ops whose indices add up: products, and unknown ones. Of all others that are no random functions, the most count.
_PRODUCTS = frozenset(("convolution", "divide", "dot", "dot_general", "multiply", "xor"))
_CHOICES = frozenset((
    "abs", "add", "and", "broadcast_in_dim", "clamp", "complex", "concatenate", "constant", "convert", "imag", "iota",
    "maximum", "minimum", "negate", "not", "optimization_barrier", "or", "pad", "real", "reduce", "reduce_precision",
    "reshape", "reverse", "select", "sharding_constraint", "sign", "slice", "subtract", "transpose", "update_slice",
))  # fmt: skip
#: How many factors of its operand an op multiplies at most.
_POWERS = {"power": 64, "chlo.square": 2}
#: Ops that choose by comparing their operands, which is a random function of them.
_CHOOSING = frozenset(("abs", "clamp", "maximum", "minimum", "sign"))


class Count(NamedTuple):
    """Of a value's elements, per class: indices that they are summed over, and sums that count what does not depend.

    depends: per dimension whether every term of an element depends on its place there; constant: whether none does.
    degree: at most, as polynomials in elements of inputs and in values of random functions and reciprocals.
    """

    bound: Mapping[Node, int] = {}
    counted: Mapping[Node, int] = {}
    depends: tuple[bool, ...] = ()
    constant: tuple[bool, ...] = ()
    degree: int = 1


class Needs:
    """Per class, the places that the expressions of a plan and its program need, and sums that count places.

    degree: the highest of any element (`Count.degree`). deadline: TimeoutError once it has passed, as it may
    where loops are in loops.
    """

    def __init__(self, classes: Classes, deadline: Deadline | None = None):
        self._classes, self._open, self._deadline = classes, False, deadline
        self.places: dict[Node, int] = {}
        self.counted: dict[Node, int] = {}
        self.degree = 1

    def follow(self, path: Path, container: Container, inputs: Sequence[Count] | None = None) -> list[Count]:
        """Count in a region or device program; its inputs depend on all of their places unless they are given."""
        counts: dict[int, Count] = {}
        for k, v in enumerate(container.inputs):
            rank = container.types[v].rank
            counts[v] = Count(depends=(True,) * rank, constant=(False,) * rank) if inputs is None else inputs[k]
        for number, item in enumerate(items(container)):
            operands = [counts[v] for v in item.operands]
            inner = list(inner_of(path, number, item))
            op = named(item)
            if op is not None and op[0] == "manual_computation":
                made = self._manual((*path, number, 0), op[2][0], operands, item, container)
            elif not inner:
                made = self._made(path, item, operands, [container.types[v] for v in (*item.operands, *item.results)])
            elif len(inner) == 2 and not inner[0].outputs:
                made = self._loop(self._trips(container, item), operands, *inner)
            else:
                made = _joined([self.follow(i.path, i.container, operands[1:]) for i in inner])
            for v, count in zip(item.results, made, strict=True):
                counts[v] = count
                self._note(path, v, container.types[v], count)
        return [counts[v] for v in container.outputs]

    def _manual(
        self, path: Path, region: Region, operands: list[Count], item: Op | Step, container: Container
    ) -> list[Count]:
        """A manual computation, of whose places nothing is known, and whose collectives add."""
        inside = [
            count._replace(depends=(False,) * region.types[v].rank, constant=(False,) * region.types[v].rank)
            for v, count in zip(region.inputs, operands, strict=True)
        ]
        ranks = [container.types[v].rank for v in item.results]
        return [
            count._replace(depends=(False,) * rank, constant=(False,) * rank)
            for rank, count in zip(ranks, self.follow(path, region, inside), strict=True)
        ]

    def _note(self, path: Path, value: int, type_: TensorType, count: Count) -> None:
        free: dict[Node, int] = {}
        for d in range(type_.rank):
            root = self._classes.find((path, value, d))
            free[root] = free.get(root, 0) + 1
        for root in {*free, *count.bound}:
            needed = free.get(root, 0) + count.bound.get(root, 0)
            self.places[root] = max(self.places.get(root, 0), needed)
        for root, sums in count.counted.items():
            self.counted[root] = max(self.counted.get(root, 0), sums)
        self.degree = max(self.degree, count.degree)

    def _trips(self, container: Container, item: Op | Step) -> int | None:
        """How often a loop runs. A plan's loops know it where all of the program's, which come first, do."""
        if isinstance(item, Step) and isinstance(item.action, Loop):
            return None if self._open else item.action.trip_count
        op = named(item)
        counter = find_counter(*op[2]) if op is not None else None
        trips = None
        if counter is not None and isinstance(container, Region):
            made = {v: op for op in container.ops for v in op.results}
            start = integer(made.get(item.operands[counter.position]))
            trips = None if start is None else counter.trips(start)
        self._open |= trips is None
        return trips

    def _loop(self, trips: int | None, carried: list[Count], condition: Inner, body: Inner) -> list[Count]:
        """What a loop carries, until it stays or the loop ends; what grows further has infinitely many indices."""
        turns = trips if trips is not None and trips <= _TRIPS else _TURNS
        before = carried
        for _ in range(turns):
            if self._deadline is not None and self._deadline.passed:
                raise TimeoutError
            self.follow(condition.path, condition.container, carried)
            after = _joined([carried, self.follow(body.path, body.container, carried)])
            if after == carried:
                return after
            before, carried = carried, after
        if turns == trips:
            return carried
        grown = [
            count._replace(
                bound={r: MANY if n != old.bound.get(r) else n for r, n in count.bound.items()},
                counted={r: MANY if n != old.counted.get(r) else n for r, n in count.counted.items()},
                depends=tuple(False for _ in count.depends),
                degree=MANY if count.degree != old.degree else count.degree,
            )
            for count, old in zip(carried, before, strict=True)
        ]
        self.follow(body.path, body.container, grown)
        return grown

    def _made(self, path: Path, item: Op | Step, operands: list[Count], types: Sequence[TensorType]) -> list[Count]:
        """The counts of an op's or step's results."""
        op = named(item)
        name = op[0] if op is not None else ""
        if isinstance(item, Step) and isinstance(item.action, BoxSelect):
            name = "concatenate"  # each element is one of either operand
        count = len(operands)
        of_place = {place: group for group in groups(item, types) for place in group.places}
        random = self._is_random(item, name)
        if random and name == "reduce":  # of one place the largest is the smallest
            for reduced in {g for g in of_place.values() if all(i < count for i, _ in g.places)}:
                i, d = reduced.places[0]
                root = self._classes.find((path, item.operands[i], d))
                self.places[root] = max(self.places.get(root, 0), 2)
        made = []
        for k in range(count, len(types)):
            # Steps, barriers and the like have a result for each operand.
            mine = [k - count] if name in ("", "optimization_barrier") and k - count < count else list(range(count))
            depends, constant = [], []
            for d in range(types[k].rank):
                group = of_place.get((k, d))
                sources = [(i, e) for i, e in group.places if i in mine] if group else []
                constant.append(bool(group) and all(operands[i].constant[e] for i, e in sources))
                if random:
                    depends.append(not constant[-1])
                elif name in _PRODUCTS:
                    depends.append(any(operands[i].depends[e] for i, e in sources))
                elif name in _CHOOSING or name == "select" and (0, d) in sources and not operands[0].constant[d]:
                    depends.append(not constant[-1])
                else:
                    everywhere = {i for i, _ in sources} == {*mine} and bool(mine)
                    depends.append(everywhere and all(operands[i].depends[e] for i, e in sources))
            if random:
                made.append(Count(depends=tuple(depends), constant=tuple(constant)))
                continue
            bound, counted = ({}, {}) if not mine else (
                self._combined(name, [operands[i].bound for i in mine]),
                self._combined(name, [operands[i].counted for i in mine]),
            )
            for group in {g for g in of_place.values() if all(i < count for i, _ in g.places)}:
                if name in _PRODUCTS or name == "reduce":
                    i, d = group.places[0]
                    root = self._classes.find((path, item.operands[i], d))
                    bound[root] = bound.get(root, 0) + 1
                    if not any(operands[i].depends[d] for i, d in group.places):
                        counted[root] = counted.get(root, 0) + 1
            degrees = [operands[i].degree for i in mine]
            if name == "divide":
                degrees[1] = 1
            degree = sum(degrees) if name in _PRODUCTS else max(degrees, default=0)
            if name == "select":  # a blend, p a + (1 - p) b
                degree = degrees[0] + max(degrees[1:])
            degree = min(MANY, degree * _POWERS.get(name, 1))
            made.append(Count(bound, counted, tuple(depends), tuple(constant), degree))
        return made

    def _is_random(self, item: Op | Step, name: str) -> bool:
        """Whether results are random functions of the operands, or maxima over some of them, to what follows."""
        op = named(item)
        if op is None:
            assert isinstance(item, Step)
            # Reductions over devices, of which permutes and the like are none.
            return item.action.messages > 0 and getattr(item.action, "monoid", "add") != "add"
        if name == "reduce":
            return bool(op[1]["monoid"] != "add")
        known = name in _CHOICES or name in _PRODUCTS or name in ("power", "chlo.square", "chlo.conj")
        return registry.get(name).pointwise and not known

    @staticmethod
    def _combined(name: str, counts: Sequence[Mapping[Node, int]]) -> dict[Node, int]:
        if name == "select":
            either = Needs._combined("", counts[1:])
            return Needs._combined("multiply", (counts[0], either))
        out: dict[Node, int] = {}
        for count in counts:
            for root, n in count.items():
                out[root] = max(out.get(root, 0), n) if name in _CHOICES or not name else out.get(root, 0) + n
        return {root: min(MANY, n * _POWERS.get(name, 1)) for root, n in out.items()}


def _joined(ways: Sequence[Sequence[Count]]) -> list[Count]:
    """Counts of values that are computed in one of several ways."""

    def most(maps: Sequence[Mapping[Node, int]]) -> dict[Node, int]:
        return {root: max(m.get(root, 0) for m in maps) for root in {r for m in maps for r in m}}

    return [
        Count(
            most([c.bound for c in same]), most([c.counted for c in same]),
            tuple(all(flags) for flags in zip(*(c.depends for c in same), strict=True)),
            tuple(all(flags) for flags in zip(*(c.constant for c in same), strict=True)),
            max(c.degree for c in same),
        )
        for same in zip(*ways, strict=True)
    ]


