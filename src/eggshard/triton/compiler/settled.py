"""Detection of kernels that need no new planning because passes left them as they were planned.

Between two removals of layout conversions a pipeline may change nothing that layouts depend on. Kernels are compared up
to names, locations, fences and the order of ops within their block, which affect neither candidates nor prices.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from eggshard.triton.kernels.ir import Block, Kernel, Operation, Value
from eggshard.triton.layouts.machine import Machine
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
        #: How many ops with effects there were that are alike.
        self.alike: Counter[object] = Counter()

    def of(self, key: object) -> int:
        return self.numbers.setdefault(key, len(self.numbers))

    def kernel(self, kernel: Kernel) -> int:
        return self.of((Machine.of(kernel), self.regions(kernel.module, self.of("module"))))

    def operation(self, op: Operation) -> int:
        """Pure ops are what they compute; of others that are alike, each is one of its own."""
        head: tuple[object, ...] = (
            op.name, tuple(self.values.get(v, -1) for v in op.operands), tuple(str(v.type) for v in op.results),
            tuple(op.successors), tuple(sorted(op.properties.items())), tuple(sorted(op.attributes.items())))
        if any(v not in self.values for v in op.operands):  # of a block that comes later in the text: like nothing else
            head = (*head, self.of(object()))
        if not movable(op):
            self.alike[head] += 1
            head = (*head, self.alike[head])
        number = self.of((head, self.regions(op, self.of(head))))
        for i, value in enumerate(op.results):
            self.values[value] = self.of(("result", number, i))
        return number

    def regions(self, op: Operation, number: int) -> tuple[int, ...]:
        return tuple(self.block(block, self.of((number, i)))
                     for i, block in enumerate(b for region in op.regions for b in region.blocks))

    def block(self, block: Block, number: int) -> int:
        """What is done and computed in it, in any order; pure ops of scalars count where tensors come of them."""
        for value in block.arguments:
            self.values[value] = self.of(("argument", number, value.index, str(value.type)))
        done: list[int] = []
        computed: set[int] = set()
        for op in block.operations:
            found = self.operation(op)
            if not movable(op) and (op.operands or op.results or op.regions):
                done.append(found)
            elif any(v.tensor is not None for v in (*op.operands, *op.results)):
                computed.add(found)
        return self.of(("block", tuple(sorted(done)), tuple(sorted(computed))))
