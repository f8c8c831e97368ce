"""Kernels that need no planning again: what passes leave of a planned one as it was.

Between two removals of layout conversions a pipeline may change nothing that layouts depend on. Kernels are compared up
to names, locations and the order of pure ops within their block, which neither candidates nor prices depend on.
"""

from __future__ import annotations

from typing import Any

from eggshard.kernels.ir import Block, Kernel, Operation, Value
from eggshard.layouts.machine import Machine
from eggshard.triton.rules import movable


class Settled:
    """Plans by the kernels that they ended at."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._plans: dict[int, Any] = {}

    def add(self, plan: Any) -> None:
        """A plan, if it is one that can be made again of its own kernel (`LayoutPlan.again`)."""
        if hasattr(plan, "again"):
            self._plans[self.number(plan.kernel)] = plan

    def find(self, kernel: Kernel) -> Any | None:
        """The plan of a kernel that is equal to one which a plan ended at; None for others."""
        if not self._plans:
            return None
        found = self._plans.get(self.number(kernel))
        return None if found is None else found.again(kernel)

    def number(self, kernel: Kernel) -> int:
        """Equal for kernels that are equal."""
        return _Comparison(self._numbers).kernel(kernel)


class _Comparison:
    """One kernel's values and ops as numbers, which stand for what they are made of."""

    def __init__(self, numbers: dict[object, int]) -> None:
        self.numbers = numbers
        self.values: dict[Value, int] = {}
        #: How many ops with effects, and arguments, there were so far; anew within a pure op, and in how many of these.
        self.order = self.depth = 0

    def of(self, key: object) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def kernel(self, kernel: Kernel) -> int:
        blocks = tuple(self.block(b) for region in kernel.module.regions for b in region.blocks)
        return self.of((Machine.of(kernel), blocks))

    def block(self, block: Block) -> int:
        """What it does in order, and what it computes of tensors besides, in any order."""
        for value in block.arguments:
            self.order += 1
            self.values[value] = self.of(("argument", self.depth, self.order, str(value.type)))
        done: list[int] = []
        computed: set[int] = set()
        for op in block.operations:
            number = self.operation(op)
            if not movable(op):
                done.append(number)
            elif any(v.tensor is not None for v in (*op.operands, *op.results)):
                computed.add(number)
        return self.of(("block", tuple(done), tuple(sorted(computed))))

    def operation(self, op: Operation) -> int:
        """Pure ops are what they compute; others are the op that is met at this place in the order."""
        if movable(op):
            order, self.order, self.depth = self.order, 0, self.depth + 1
            regions = self.regions(op)
            self.order, self.depth = order, self.depth - 1
            place = 0
        else:
            self.order += 1
            place = self.order
            regions = self.regions(op)
        operands = tuple(self.values.get(v, -1) for v in op.operands)
        if -1 in operands:  # of a block that comes later in the text: equal to nothing
            operands = (*operands, self.of(object()))
        number = self.of((
            op.name, place, operands, tuple(str(v.type) for v in op.results), tuple(op.successors),
            tuple(sorted(op.properties.items())), tuple(sorted(op.attributes.items())), regions))
        for i, value in enumerate(op.results):
            self.values[value] = self.of(("result", number, i))
        return number

    def regions(self, op: Operation) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(map(self.block, region.blocks)) for region in op.regions)
